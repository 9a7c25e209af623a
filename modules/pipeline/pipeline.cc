// zt.pipeline — the executor.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.pipeline;

import zt.std;

namespace zt {

using internal::CondVar;
using internal::Mutex;
using internal::MutexLock;

// A task passes parallel stages on one worker without stopping. At an ordered stage it continues if
// it is its turn; else it is parked there, and the worker that finishes its predecessor makes it
// ready again. So ordering costs no waiting, and no worker is ever blocked by another.
//
// Many workers share little: each ordered stage has its own lock, a parallel stage has none, and the
// lock of all is taken when a task begins and when it ends. Workers are not woken under a lock.
//
// A task is stored in a map node, which moves between maps, and Submit reserves space in each gate:
// workers allocate nothing, so they cannot run out of memory.
struct Pipeline::State {
  // Limit on the tasks in flight per worker.
  static constexpr std::uint64_t kTasksOfWorker = 64;
  // Gates reserve space for so many tasks at once.
  static constexpr std::uint64_t kReserved = 64;
  struct Work {
    std::unique_ptr<Task> task;
    std::size_t stage = 0;
  };
  using Tasks = std::map<std::uint64_t, Work>;  // by sequence
  using Node = Tasks::node_type;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  // Enforces the order at one stage.
  class Gate {
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

  State(std::vector<std::shared_ptr<TaskStage>> chain, const PipelineOptions& limits)
      : stages(std::move(chain)), options(limits) {
    for (const auto& stage : stages) {
      const StageOrder order = stage->order();
      gates.push_back(order == StageOrder::kParallel ? nullptr : std::make_unique<Gate>(order));
    }
  }

  const std::vector<std::shared_ptr<TaskStage>> stages;
  const PipelineOptions options;
  std::vector<std::unique_ptr<Gate>> gates;  // by stage; null where it is parallel
  // Tasks from this sequence on are skipped. Written under `mutex`.
  std::atomic<std::uint64_t> failed_at = kNever;

  Mutex mutex;
  CondVar work;  // signals ready tasks, or stopping
  CondVar room;  // signals that the window has room, or all tasks are done
  // The earliest task first: it is furthest along and frees memory soonest.
  Tasks ready ZT_GUARDED_BY(mutex);
  std::uint64_t next_sequence ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t reserved ZT_GUARDED_BY(mutex) = 0;  // the gates have space for tasks before it
  std::uint64_t in_flight ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t weight ZT_GUARDED_BY(mutex) = 0;
  Status failure ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;
  std::vector<std::thread> workers;

  void FailLocked(std::uint64_t sequence, const Status& status) ZT_REQUIRES(mutex) {
    if (sequence < failed_at) {
      failed_at = sequence;
      failure = status;
    }
    room.NotifyAll();
  }

  // Any code of a stage may run out of memory; no exception leaves the API.
  Status RunStage(TaskStage& stage, Task& task) const {
    try {
      try {
        return stage.Run(task);
      } catch (const std::bad_alloc&) {
        return OutOfMemory();  // not the task's fault: without its names
      } catch (...) {
        return task.Named(ExceptionAsStatus());
      }
    } catch (...) {
      return OutOfMemory();
    }
  }

  // Limit on small tasks, which would otherwise exceed the workers' caches before
  // they fill the window.
  std::size_t MostTasks() const { return kTasksOfWorker * std::max(options.threads, 1U); }
  bool HasRoomLocked(std::uint64_t added) const ZT_REQUIRES(mutex) {
    return weight + added <= options.window_bytes && in_flight < MostTasks();
  }

  void MakeReady(Node node) {
    {
      const MutexLock lock(mutex);
      ready.insert(std::move(node));
    }
    work.NotifyOne();
  }

  // Runs the task until it is done or parked. Returns the weight of a task that is done.
  std::optional<std::uint64_t> Run(Node node) {
    const std::uint64_t sequence = node.key();
    Work& at = node.mapped();
    for (; at.stage < stages.size(); ++at.stage) {
      Gate* const gate = gates[at.stage].get();
      if (gate != nullptr && !gate->Enter(node)) return std::nullopt;
      if (sequence < failed_at) {
        const Status status = RunStage(*stages[at.stage], *at.task);
        if (!status.ok()) {
          const MutexLock lock(mutex);
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
  void ReleaseLocked(std::uint64_t released) ZT_REQUIRES(mutex) {
    weight -= released;
    --in_flight;
    // Wakes the submitter for several tasks at once, not for each.
    if (in_flight == 0 || (weight <= options.window_bytes - options.window_bytes / 8 &&
                           in_flight <= MostTasks() - MostTasks() / 8)) {
      room.NotifyAll();
    }
  }

  // The earliest task that is ready, if need be after waiting for one; none when stopping.
  // `released` is what the caller's last Run returned.
  Node Next(const std::optional<std::uint64_t>& released) {
    const MutexLock lock(mutex);
    if (released) ReleaseLocked(*released);
    while (ready.empty() && !stopping) work.Wait(mutex);
    return ready.empty() ? Node() : ready.extract(ready.begin());
  }

  void RunWorker() {
    std::optional<std::uint64_t> released;
    while (Node node = Next(released)) released = Run(std::move(node));
  }

  // Numbers the task and reserves its place in each gate. If it throws, no state has
  // changed that matters.
  void AdmitLocked(Node& node) ZT_REQUIRES(mutex) {
    if (next_sequence == reserved) {
      for (const auto& gate : gates) {
        if (gate != nullptr) gate->Reserve(reserved + kReserved);
      }
      reserved += kReserved;
    }
    node.key() = next_sequence++;
    Task& task = *node.mapped().task;
    task.sequence = node.key();
    weight += task.weight;
    ++in_flight;
  }

  Status Submit(std::unique_ptr<Task> submitted) {
    const std::uint64_t added = submitted->weight;
    Tasks made;
    made[0].task = std::move(submitted);
    Node node = made.extract(made.begin());
    {
      const MutexLock lock(mutex);
      while (failed_at == kNever && in_flight > 0 && !HasRoomLocked(added)) {
        room.Wait(mutex);
      }
      if (failed_at != kNever) return failure;
      AdmitLocked(node);
      if (!workers.empty()) ready.insert(std::move(node));
    }
    if (node.empty()) {
      work.NotifyOne();
      return OkStatus();
    }
    const auto released = Run(std::move(node));
    const MutexLock lock(mutex);
    if (released) ReleaseLocked(*released);
    return failed_at == kNever ? OkStatus() : failure;
  }
};

PipelineOptions pipeline::internal::OptionsOf(const RangeOptions& options) {
  return {.threads = options.threads == 0 ? UsableThreads() : options.threads,
          .window_bytes = MemoryFor(options.memory_bytes, options.threads) / 2};
}

Pipeline::Pipeline(std::vector<std::shared_ptr<TaskStage>> stages, const PipelineOptions& options)
    : state_(std::make_unique<State>(std::move(stages), options)) {
  if (options.threads > 1) {
    state_->workers.reserve(options.threads);
    try {
      for (unsigned i = 0; i < options.threads; ++i) {
        state_->workers.emplace_back([state = state_.get()] { state->RunWorker(); });
      }
    } catch (const std::system_error&) {
      // No more threads: the existing ones suffice, or the caller's thread.
    } catch (const std::bad_alloc&) {
      // Likewise.
    }
  }
}

Pipeline::~Pipeline() {
  Cancel(MakeStatus(StatusCode::kCancelled, ""));  // never reported; a message would need memory
  (void)Drain();
  {
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
    state_->work.NotifyAll();
  }
  for (std::thread& worker : state_->workers) worker.join();
}

Status Pipeline::Submit(std::unique_ptr<Task> task) {
  try {
    return state_->Submit(std::move(task));
  } catch (const std::bad_alloc&) {
    Fail(OutOfMemory());
    return Drain();
  }
}

Status Pipeline::Drain() {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  while (s.in_flight > 0) s.room.Wait(s.mutex);
  return s.failed_at == State::kNever ? OkStatus() : s.failure;
}

void Pipeline::Fail(const Status& status) {
  const MutexLock lock(state_->mutex);
  state_->FailLocked(state_->next_sequence, status);
}

void Pipeline::Cancel(const Status& status) {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  if (s.failed_at != State::kNever) return;
  s.failed_at = 0;
  s.failure = status;
  s.room.NotifyAll();
}

}  // namespace zt
