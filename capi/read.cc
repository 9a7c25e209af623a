// zt.capi — long calls: reading many ranges by many threads, and watching them.
module;

#include "core/huge_pages.h"
#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
namespace {

constexpr std::uint64_t kSubRange = 4 << 20;
// Reading this much takes less time than starting a thread.
constexpr std::uint64_t kSmall = 1 << 20;
// Fewer bytes are no run of their own.
constexpr std::uint64_t kLeastRun = 64 << 10;
constexpr auto kBeat = std::chrono::milliseconds(50);

// A part of a range that one thread reads.
struct SubRange {
  std::size_t range = 0;
  std::uint64_t offset = 0, bytes = 0;  // within the range
};

// True if a component of `bytes` bytes contains the range.
bool Lies(const Range& range, std::uint64_t bytes) {
  return range.offset <= bytes && range.out.size() <= bytes - range.offset;
}

// Cuts ranges into subranges: compressed ones into whole frames; those that must be read in order
// are one subrange.
void Cut(const Input& input, std::span<const Range> ranges, std::vector<SubRange>& subranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const std::uint64_t bytes = range.out.size();
    std::uint64_t step = std::max<std::uint64_t>(bytes, 1);
    std::uint64_t first = step;
    // A range outside of the component is one subrange, which Read refuses.
    if (bytes > kSmall && Lies(range, input.component(range.id).bytes)) {
      const std::uint64_t frame = input.source().preferred_read(range.id);
      const bool sequential = input.source().sequential(range.id);
      if (!sequential && frame == 0) first = step = kSubRange;
      if (!sequential && frame > 0) {
        step = (kSmall + frame - 1) / frame * frame;
        first = step - range.offset % step;
      }
    }
    subranges.push_back({i, 0, std::min(first, bytes)});
    for (std::uint64_t at = first; at < bytes; at += step) {
      subranges.push_back({i, at, std::min(step, bytes - at)});
    }
  }
}

}  // namespace

Status CancelledStatus() { return Cancelled("cancelled"); }

Status RunWatched(const std::function<bool()>& poll, const std::function<void()>& cancel,
                  const std::function<Status()>& body) {
  if (!poll) return body();
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  Status status;
  std::exception_ptr thrown;
  std::thread worker([&] {
    try {
      status = body();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_one();
  });
  bool going = true;
  for (std::unique_lock lock(mutex); !ended.wait_for(lock, kBeat, [&] { return done; });) {
    lock.unlock();
    if (going && !poll()) {
      going = false;
      cancel();
    }
    lock.lock();
  }
  worker.join();
  if (thrown) std::rethrow_exception(thrown);
  return status;
}

Status ReadMany(const Input& input, std::span<const Range> ranges, unsigned threads, Watch& watch,
                const RangeStep& step) {
  std::vector<SubRange> subranges;
  Cut(input, ranges, subranges);
  std::uint64_t bytes = 0;
  std::vector<ComponentId> whole;
  for (const Range& range : ranges) {
    bytes += range.out.size();
    const std::uint64_t size = input.component(range.id).bytes;
    // A page fault for every small page of new memory takes as long as decoding.
    if (Lies(range, size)) zt::internal::PreferHugePages(range.out.data(), range.out.size());
    if (range.offset == 0 && range.out.size() == size) whole.push_back(range.id);
  }
  if (watch.total == 0) watch.total = bytes;
  input.WillRead(whole);
  const std::uint64_t worth = input.source().seekable() ? bytes / kSmall + 1 : 1;
  const NumberedOptions options{
      .threads = worth == 1     ? 1
                 : threads == 0 ? UsableThreads()
                                : threads,
      .most = static_cast<unsigned>(std::min<std::uint64_t>(worth, kMaxThreads))};
  std::vector<std::size_t> runs = {0};  // the first subrange of each: small ones share a run
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < subranges.size(); ++i) {
    held += subranges[i].bytes;
    if (held < kLeastRun && i + 1 < subranges.size()) continue;
    runs.push_back(i + 1);
    held = 0;
  }
  return RunNumbered(runs.size() - 1, options, [&](std::uint64_t run, const Share&) -> Status {
    for (std::size_t i = runs[run]; i < runs[run + 1]; ++i) {
      if (watch.cancelled) return CancelledStatus();
      const auto [index, offset, size] = subranges[i];
      const Range& range = ranges[index];
      ZT_RETURN_IF_ERROR(
          input.Read(range.id, range.offset + offset, range.out.subspan(offset, size), step));
      watch.done += size;
    }
    return OkStatus();
  });
}

Status UpdateMany(const Input& input, std::span<const Range> ranges, unsigned threads,
                  Watch& watch) {
  for (const Range& range : ranges) watch.total += 2 * range.out.size();  // looked at, then changed
  return input.Update(ranges, [&](std::span<const Range> some, const RangeStep& step) {
    return ReadMany(input, some, threads, watch, step);
  });
}

}  // namespace zt::capi
