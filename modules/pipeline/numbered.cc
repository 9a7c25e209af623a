// zt.pipeline:numbered — implementation.
module;

#include "core/thread_annotations.h"

module zt.pipeline;

import zt.std;
import zt.core;

namespace zt {
namespace {

using internal::Mutex;
using internal::MutexLock;

class Runs {
 public:
  Runs(std::uint64_t count, const NumberedOptions& options, unsigned at_once)
      : count_(count),
        threads_(options.threads == 0 ? UsableThreads() : options.threads),
        memory_(MemoryFor(options.memory_bytes, options.threads)),
        at_once_(at_once) {}

  // Begins one run after another, until none is left. For several threads. A lack of memory, which
  // CatchAsStatus lets pass, must leave no thread: it fails the run, or leaves runs to the other
  // threads and to result().
  void Work(const std::function<Status(std::uint64_t, const Share&)>& run) noexcept {
    try {
      while (const auto mine = Begin()) {
        Status status;
        try {
          status = CatchAsStatus([&] { return run((*mine)->number, (*mine)->share); });
        } catch (const std::bad_alloc&) {
          status = OutOfMemory();
        }
        End(*mine, status);
      }
    } catch (const std::bad_alloc&) {
    }
  }
  // There are fewer threads for Work than were meant.
  void HasThreads(unsigned count) {
    const MutexLock lock(mutex_);
    at_once_ = count;
    Divide();
  }
  Status result() {
    const MutexLock lock(mutex_);
    if (failure_.ok() && next_ < count_) return OutOfMemory();  // no thread could begin them
    return failure_;
  }

 private:
  struct Running {
    explicit Running(std::uint64_t of) : number(of) {}
    const std::uint64_t number;
    Share share;
  };
  using Place = std::list<Running>::iterator;

  std::optional<Place> Begin() {
    const MutexLock lock(mutex_);
    if (next_ == count_ || failed_ < count_) return std::nullopt;
    running_.emplace_back(next_);
    ++next_;
    Divide();
    return std::prev(running_.end());
  }

  void End(Place place, const Status& status) {
    const MutexLock lock(mutex_);
    if (!status.ok() && place->number < failed_) {
      failed_ = place->number;
      failure_ = status;
      for (Running& each : running_) each.share.cancelled = each.number > failed_;
    }
    running_.erase(place);
    Divide();
  }

  void Divide() ZT_REQUIRES(mutex_) {
    const std::uint64_t left = failed_ < count_ ? 0 : count_ - next_;
    const std::uint64_t parts = std::min<std::uint64_t>(running_.size() + left, at_once_);
    std::uint64_t i = 0;
    for (Running& each : running_) {
      each.share.threads =
          std::max(1U, static_cast<unsigned>(threads_ / parts + (i++ < threads_ % parts ? 1 : 0)));
      each.share.memory_bytes = memory_ / parts;
    }
  }

  const std::uint64_t count_;
  const unsigned threads_;
  const std::uint64_t memory_;
  Mutex mutex_;
  unsigned at_once_ ZT_GUARDED_BY(mutex_);
  std::list<Running> running_ ZT_GUARDED_BY(mutex_);  // ascending
  std::uint64_t next_ ZT_GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_ ZT_GUARDED_BY(mutex_) = ~std::uint64_t{0};  // the lowest
  Status failure_ ZT_GUARDED_BY(mutex_);
};

}  // namespace

unsigned RunsAtOnce(std::uint64_t count, const NumberedOptions& options) {
  const std::uint64_t memory = MemoryFor(options.memory_bytes, options.threads);
  const std::uint64_t runs = std::min(
      {count, std::uint64_t{options.threads == 0 ? UsableThreads() : options.threads},
       std::uint64_t{options.most}, memory / std::max<std::uint64_t>(options.least_memory, 1)});
  return static_cast<unsigned>(std::max<std::uint64_t>(runs, 1));
}

Status RunNumbered(std::uint64_t count, const NumberedOptions& options,
                   const std::function<Status(std::uint64_t, const Share&)>& run) {
  return CatchAsStatus([&] {
    const unsigned at_once = RunsAtOnce(count, options);
    Runs runs(count, options, at_once);
    std::vector<std::thread> threads;
    threads.reserve(at_once);
    const auto work = [&] { runs.Work(run); };
    try {
      while (threads.size() + 1 < at_once) threads.emplace_back(work);
    } catch (const std::exception&) {  // no thread, or no memory for one
      runs.HasThreads(static_cast<unsigned>(threads.size() + 1));
    }
    work();
    for (std::thread& thread : threads) thread.join();
    return runs.result();
  });
}

}  // namespace zt
