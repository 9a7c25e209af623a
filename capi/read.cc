// zt.capi — long calls: reading many ranges by many threads, and watching them.
module;

#include "core/huge_pages.h"

module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
namespace {

constexpr std::uint64_t kSubRange = 4 << 20;
// Reading this much takes less time than starting a thread.
constexpr std::uint64_t kSmall = 1 << 20;
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

// Gives subranges to threads, in order, and returns the error of the first that failed.
class Work {
 public:
  Work(const Input& input, std::span<const Range> ranges, std::span<const SubRange> subranges,
       Watch& watch, const RangeStep& step)
      : input_(input), ranges_(ranges), subranges_(subranges), watch_(watch), step_(step) {}

  void Run() {
    for (std::size_t i = next_++; i < subranges_.size(); i = next_++) {
      const Status status = watch_.cancelled ? CancelledStatus() : Do(subranges_[i]);
      if (!status.ok()) return Fail(i, status);
      watch_.done += subranges_[i].bytes;
    }
  }
  Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  Status Do(const SubRange& subrange) {
    const Range& range = ranges_[subrange.range];
    try {
      const auto out = range.out.subspan(subrange.offset, subrange.bytes);
      const std::uint64_t offset = range.offset + subrange.offset;
      return input_.Read(range.id, offset, out, step_);
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (...) {
      return ExceptionAsStatus();
    }
  }
  void Fail(std::size_t subrange, const Status& status) {
    next_ = subranges_.size();
    const std::lock_guard lock(mutex_);
    if (status_.ok() || subrange < failed_) {
      failed_ = subrange;
      status_ = status;
    }
  }

  const Input& input_;
  std::span<const Range> ranges_;
  std::span<const SubRange> subranges_;
  Watch& watch_;
  const RangeStep& step_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::size_t failed_ = 0;
  Status status_;
};

// Joins the threads even if an exception is thrown.
struct Workers {
  std::vector<std::thread> threads;
  ~Workers() {
    for (std::thread& each : threads) each.join();
  }
};

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
  watch.total = bytes;
  input.WillRead(whole);
  std::size_t workers = threads == 0 ? UsableThreads() : std::min(threads, kMaxThreads);
  workers = std::min({workers, subranges.size(), static_cast<std::size_t>(bytes / kSmall + 1)});
  if (!input.source().seekable()) workers = 1;
  Work work(input, ranges, subranges, watch, step);
  {
    Workers others;
    try {
      for (std::size_t i = 1; i < workers; ++i)
        others.threads.emplace_back([&work] { work.Run(); });
    } catch (const std::system_error&) {
      // There are no more threads: the existing ones do the work.
    }
    work.Run();
  }
  return work.status();
}

Status UpdateMany(const Input& input, std::span<const Range> ranges, unsigned threads,
                  Watch& watch) {
  return input.Update(ranges, [&](std::span<const Range> some, const RangeStep& step) {
    return ReadMany(input, some, threads, watch, step);
  });
}

}  // namespace zt::capi
