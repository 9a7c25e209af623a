// zt.pipeline:executor — implementation.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.pipeline;

import zt.std;

namespace zt {

using internal::CondVar;
using internal::Mutex;
using internal::MutexLock;

// Enforces the order at one stage.
class Pipeline::Gate {
 public:
  explicit Gate(StageOrder order) : order_(order) {}

  // True if the task may pass now. Else it is parked, and `node` is empty.
  bool Enter(Node& node) {
    const Task& task = *node.mapped().task;
    if (order_ == StageOrder::kInChain && !task.continues) return true;
    if (order_ == StageOrder::kIfOrdered && !task.ordered) return true;
    const MutexLock lock(mutex_);
    if (IsTurn(task.sequence)) return true;
    parked_.insert(std::move(node));
    return false;
  }
  // Records that a task has passed; returns the parked task whose turn it is, if any.
  Node Pass(std::uint64_t sequence) {
    const MutexLock lock(mutex_);
    passed_[sequence - first_pending_] = true;
    while (!passed_.empty() && passed_.front()) {
      passed_.pop_front();
      ++first_pending_;
    }
    return parked_.extract(order_ == StageOrder::kInChain ? sequence + 1 : first_pending_);
  }
  // Has space for the tasks before this sequence. Throws std::bad_alloc.
  void Reserve(std::uint64_t sequence) {
    const MutexLock lock(mutex_);
    passed_.resize(sequence - first_pending_, false);
  }

 private:
  bool IsTurn(std::uint64_t sequence) const ZT_REQUIRES(mutex_) {
    if (sequence <= first_pending_) return true;
    return order_ == StageOrder::kInChain && passed_[sequence - 1 - first_pending_];
  }

  const StageOrder order_;
  Mutex mutex_;
  Tasks parked_ ZT_GUARDED_BY(mutex_);
  // All tasks before this sequence have passed.
  std::uint64_t first_pending_ ZT_GUARDED_BY(mutex_) = 0;
  // Whether each task from `first_pending_` on has passed.
  std::deque<bool> passed_ ZT_GUARDED_BY(mutex_);
};

namespace {

// Limits on the tasks in flight: so many, or one for each of these bytes of the window.
constexpr std::uint64_t kTasksOfWorker = 64, kSmallTask = 256 << 10;
// Gates reserve space for so many tasks at once.
constexpr std::uint64_t kReserved = 64;

// Any code of a stage may run out of memory; no exception leaves the API.
Status RunStage(const StageOf<Task>& stage, Task& task) {
  try {
    try {
      return stage.run(task);
    } catch (const std::bad_alloc&) {
      return OutOfMemory();  // not the task's fault: without its names
    } catch (...) {
      return task.Named(ExceptionAsStatus());
    }
  } catch (...) {
    return OutOfMemory();
  }
}

}  // namespace

Pipeline::Pipeline(std::vector<StageOf<Task>> stages, const PipelineOptions& options)
    : stages_(std::move(stages)), options_(options), window_(options.window_bytes) {
  for (const auto& [order, run] : stages_) {
    gates_.push_back(order == StageOrder::kParallel ? nullptr : std::make_unique<Gate>(order));
  }
  AddWorkers(options.threads);
}

// Until there are `count`, which 1 means none.
void Pipeline::AddWorkers(unsigned count) {
  if (count <= 1) return;
  try {
    while (workers_.size() < count) workers_.emplace_back([this] { RunWorker(); });
  } catch (const std::system_error&) {
    // No more threads: the existing ones suffice, or the caller's thread.
  } catch (const std::bad_alloc&) {
    // Likewise.
  }
}

Pipeline::~Pipeline() {
  Cancel(MakeStatus(StatusCode::kCancelled, ""));  // never reported; a message would need memory
  (void)Drain();
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void Pipeline::FailLocked(std::uint64_t sequence, const Status& status) {
  if (sequence < failed_at_) {
    failed_at_ = sequence;
    failure_ = status;
  }
  room_.NotifyAll();
}

// Limit on small tasks, which would otherwise exceed the workers' caches before they fill the
// window.
std::size_t Pipeline::MostTasks() const {
  return std::max<std::uint64_t>(kTasksOfWorker, window_ / kSmallTask);
}

bool Pipeline::HasRoomLocked(std::uint64_t added) const {
  return weight_ + added <= window_ && in_flight_ < MostTasks();
}

void Pipeline::HeedShareLocked() {
  if (options_.share == nullptr) return;
  window_ = std::max(window_, options_.share->memory_bytes / 2);
  if (!options_.share->cancelled || failed_at_ != kNever) return;
  failed_at_ = 0;
  failure_ = MakeStatus(StatusCode::kCancelled, "");  // never reported: another error is
}

void Pipeline::MakeReady(Node node) {
  {
    const MutexLock lock(mutex_);
    ready_.insert(std::move(node));
  }
  work_.NotifyOne();
}

// Runs the task until it is done or parked. Returns the weight of a task that is done.
std::optional<std::uint64_t> Pipeline::Run(Node node) {
  const std::uint64_t sequence = node.key();
  Work& at = node.mapped();
  for (; at.stage < stages_.size(); ++at.stage) {
    Gate* const gate = gates_[at.stage].get();
    if (gate != nullptr && !gate->Enter(node)) return std::nullopt;
    if (sequence < failed_at_) {
      const Status status = RunStage(stages_[at.stage], *at.task);
      if (!status.ok()) {
        const MutexLock lock(mutex_);
        FailLocked(sequence, status);
      }
    }
    if (gate == nullptr) continue;
    if (Node next = gate->Pass(sequence)) MakeReady(std::move(next));
  }
  const std::uint64_t released = at.task->weight;
  at.task.reset();  // returns its buffers before the window admits more
  return released;
}

// A task is done and has given its memory back.
void Pipeline::ReleaseLocked(std::uint64_t released) {
  weight_ -= released;
  --in_flight_;
  // Wakes the submitter for several tasks at once, not for each.
  if (in_flight_ == 0 ||
      (weight_ <= window_ - window_ / 8 && in_flight_ <= MostTasks() - MostTasks() / 8)) {
    room_.NotifyAll();
  }
}

// The earliest task that is ready, if need be after waiting for one; none when stopping.
// `released` is what the caller's last Run returned.
Pipeline::Node Pipeline::Next(const std::optional<std::uint64_t>& released) {
  const MutexLock lock(mutex_);
  if (released) ReleaseLocked(*released);
  while (ready_.empty() && !stopping_) work_.Wait(mutex_);
  return ready_.empty() ? Node() : ready_.extract(ready_.begin());
}

void Pipeline::RunWorker() {
  std::optional<std::uint64_t> released;
  while (Node node = Next(released)) released = Run(std::move(node));
}

// Numbers the task and reserves its place in each gate. If it throws, no state has changed that
// matters.
void Pipeline::AdmitLocked(Node& node) {
  if (next_sequence_ == reserved_) {
    for (const auto& gate : gates_) {
      if (gate != nullptr) gate->Reserve(reserved_ + kReserved);
    }
    reserved_ += kReserved;
  }
  node.key() = next_sequence_++;
  Task& task = *node.mapped().task;
  task.sequence = node.key();
  weight_ += task.weight;
  ++in_flight_;
}

Status Pipeline::SubmitNode(Node node) {
  const std::uint64_t added = node.mapped().task->weight;
  if (options_.share != nullptr) AddWorkers(options_.share->threads);
  {
    const MutexLock lock(mutex_);
    for (HeedShareLocked(); failed_at_ == kNever && in_flight_ > 0 && !HasRoomLocked(added);
         HeedShareLocked()) {
      room_.Wait(mutex_);
    }
    if (failed_at_ != kNever) return failure_;
    AdmitLocked(node);
    if (!workers_.empty()) ready_.insert(std::move(node));
  }
  if (node.empty()) {
    work_.NotifyOne();
    return OkStatus();
  }
  const auto released = Run(std::move(node));
  const MutexLock lock(mutex_);
  if (released) ReleaseLocked(*released);
  return failed_at_ == kNever ? OkStatus() : failure_;
}

Status Pipeline::Submit(std::unique_ptr<Task> task) {
  try {
    Tasks made;
    made[0].task = std::move(task);
    return SubmitNode(made.extract(made.begin()));
  } catch (const std::bad_alloc&) {
    Fail(OutOfMemory());
    return Drain();
  }
}

Status Pipeline::Drain() {
  const MutexLock lock(mutex_);
  HeedShareLocked();
  while (in_flight_ > 0) room_.Wait(mutex_);
  return failed_at_ == kNever ? OkStatus() : failure_;
}

void Pipeline::Fail(const Status& status) {
  const MutexLock lock(mutex_);
  FailLocked(next_sequence_, status);
}

void Pipeline::Cancel(const Status& status) {
  const MutexLock lock(mutex_);
  if (failed_at_ != kNever) return;
  failed_at_ = 0;
  failure_ = status;
  room_.NotifyAll();
}

PipelineOptions pipeline::internal::OptionsOf(const RangeOptions& options) {
  return {.threads = options.threads == 0 ? UsableThreads() : options.threads,
          .window_bytes = MemoryFor(options.memory_bytes, options.threads) / 2,
          .share = options.share};
}

}  // namespace zt
