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
// A task is stored in a map node, which moves between maps, and Submit reserves space in each gate:
// workers allocate nothing, so they cannot run out of memory.
struct Pipeline::State {
  // Limit on the tasks in flight per worker.
  static constexpr std::uint64_t kTasksOfWorker = 64;
  struct Work {
    std::unique_ptr<Task> task;
    std::size_t stage = 0;
  };
  using Tasks = std::map<std::uint64_t, Work>;  // by sequence
  using Node = Tasks::node_type;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  // Enforces the order at one stage.
  struct Gate {
    StageOrder order = StageOrder::kParallel;
    Tasks parked;
    std::uint64_t first_pending = 0;  // all tasks before this sequence have passed
    std::deque<bool> passed;  // whether each submitted task from `first_pending` on has passed

    bool Opens(const Task& task) const {
      if (order == StageOrder::kInChain) {
        return !task.continues || task.sequence <= first_pending ||
               passed[task.sequence - 1 - first_pending];
      }
      return task.sequence == first_pending || (order == StageOrder::kIfOrdered && !task.ordered);
    }
    // Records that a task has passed; returns the parked task whose turn it is, if any.
    Node Pass(std::uint64_t sequence) {
      passed[sequence - first_pending] = true;
      while (!passed.empty() && passed.front()) {
        passed.pop_front();
        ++first_pending;
      }
      return parked.extract(order == StageOrder::kInChain ? sequence + 1 : first_pending);
    }
  };

  std::vector<std::shared_ptr<TaskStage>> stages;
  PipelineOptions options;

  Mutex mutex;
  CondVar work;  // signals ready tasks, or stopping
  CondVar room;  // signals that the window has room, or all tasks are done
  // The earliest task first: it is furthest along and frees memory soonest.
  Tasks ready ZT_GUARDED_BY(mutex);
  std::vector<Gate> gates ZT_GUARDED_BY(mutex);  // by stage
  std::uint64_t next_sequence ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t in_flight ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t weight ZT_GUARDED_BY(mutex) = 0;
  // Tasks from this sequence on are skipped.
  std::uint64_t failed_at ZT_GUARDED_BY(mutex) = kNever;
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

  // Runs the task until it is done or parked.
  void Run(Node node) {
    const std::uint64_t sequence = node.key();
    Work& at = node.mapped();
    while (at.stage < stages.size()) {
      TaskStage& stage = *stages[at.stage];
      const bool ordered = stage.order() != StageOrder::kParallel;
      bool skip;
      {
        const MutexLock lock(mutex);
        if (ordered && !gates[at.stage].Opens(*at.task)) {
          gates[at.stage].parked.insert(std::move(node));
          return;
        }
        skip = sequence >= failed_at;
      }
      if (!skip) {
        const Status status = RunStage(stage, *at.task);
        if (!status.ok()) {
          const MutexLock lock(mutex);
          FailLocked(sequence, status);
        }
      }
      if (ordered) {
        const MutexLock lock(mutex);
        if (Node next = gates[at.stage].Pass(sequence)) {
          ready.insert(std::move(next));
          work.NotifyOne();
        }
      }
      ++at.stage;
    }
    const std::uint64_t released = at.task->weight;
    at.task.reset();  // returns its buffers before the window admits more
    const MutexLock lock(mutex);
    weight -= released;
    --in_flight;
    // Wakes the submitter for several tasks at once, not for each.
    if (in_flight == 0 || (weight <= options.window_bytes - options.window_bytes / 8 &&
                           in_flight <= MostTasks() - MostTasks() / 8)) {
      room.NotifyAll();
    }
  }

  void RunWorker() {
    while (true) {
      Node node;
      {
        const MutexLock lock(mutex);
        while (ready.empty() && !stopping) work.Wait(mutex);
        if (ready.empty()) return;
        node = ready.extract(ready.begin());
      }
      Run(std::move(node));
    }
  }

  // Numbers the task and reserves its place in each gate. If it throws, no state has
  // changed that matters.
  void AdmitLocked(Node& node) ZT_REQUIRES(mutex) {
    for (Gate& gate : gates) {
      if (gate.order != StageOrder::kParallel) {
        gate.passed.resize(next_sequence + 1 - gate.first_pending, false);
      }
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
      if (!workers.empty()) {
        ready.insert(std::move(node));
        work.NotifyOne();
        return OkStatus();
      }
    }
    Run(std::move(node));
    const MutexLock lock(mutex);
    return failed_at == kNever ? OkStatus() : failure;
  }
};

PipelineOptions pipeline::internal::OptionsOf(const RangeOptions& options) {
  return {.threads = options.threads == 0 ? UsableThreads() : options.threads,
          .window_bytes = MemoryFor(options.memory_bytes, options.threads) / 2};
}

Pipeline::Pipeline(std::vector<std::shared_ptr<TaskStage>> stages, const PipelineOptions& options)
    : state_(std::make_unique<State>()) {
  state_->stages = std::move(stages);
  state_->options = options;
  {
    const MutexLock lock(state_->mutex);
    state_->gates = std::vector<State::Gate>(state_->stages.size());
    for (std::size_t i = 0; i < state_->stages.size(); ++i) {
      state_->gates[i].order = state_->stages[i]->order();
    }
  }
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
