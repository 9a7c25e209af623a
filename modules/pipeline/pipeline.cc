// zt.pipeline — the executor.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "core/status_macros.h"

module zt.pipeline;

namespace zt {

using internal::CondVar;
using internal::Mutex;
using internal::MutexLock;

Status Stage::ProcessBatch(Batch& batch) {
  for (Chunk& chunk : batch.chunks) {
    if (auto status = Process(chunk); !status.ok()) {
      return chunk.object == nullptr ? status : Annotate(status, TensorContext(chunk.object->name));
    }
  }
  return OkStatus();
}

namespace {

// Memory can run out anywhere below; nothing thrown crosses the API.
Status RunStage(Stage& stage, Batch& batch) {
  try {
    return stage.ProcessBatch(batch);
  } catch (const std::bad_alloc&) {
    return IoError("out of memory");
  } catch (const std::exception& error) {
    return MakeStatus(StatusCode::kInternal, error.what());
  }
}

}  // namespace

// A batch is a task at some stage. It runs through parallel stages on one worker without a stop. At an in-order
// stage it goes on if its turn has come, else it is parked there, and whoever finishes its predecessor there makes
// it ready again. So order costs no waiting, and no worker is ever blocked by another.
struct Pipeline::State {
  struct Task {
    std::unique_ptr<Batch> batch;
    std::size_t stage = 0;
  };
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  std::vector<std::shared_ptr<Stage>> stages;
  PipelineOptions options;

  Mutex mutex;
  CondVar work;  // ready tasks, or stopping
  CondVar room;  // the window shrank, or everything is done
  std::deque<Task> ready ZT_GUARDED_BY(mutex);
  std::vector<std::map<std::uint64_t, Task>> parked ZT_GUARDED_BY(mutex);  // by stage, then sequence
  std::vector<std::uint64_t> turn ZT_GUARDED_BY(mutex);                    // by stage: whose turn it is
  std::uint64_t next_sequence ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t in_flight ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t weight ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t failed_at ZT_GUARDED_BY(mutex) = kNever;  // batches from this sequence on are skipped
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

  // Runs the task until it is done or parked.
  void Run(Task task) {
    const std::uint64_t sequence = task.batch->sequence;
    while (task.stage < stages.size()) {
      Stage& stage = *stages[task.stage];
      const bool ordered = stage.order() == StageOrder::kInOrder;
      bool skip;
      {
        const MutexLock lock(mutex);
        if (ordered && turn[task.stage] != sequence) {
          const std::size_t at = task.stage;
          parked[at].emplace(sequence, std::move(task));
          return;
        }
        skip = sequence >= failed_at;
      }
      if (!skip) {
        const Status status = RunStage(stage, *task.batch);
        if (!status.ok()) {
          const MutexLock lock(mutex);
          FailLocked(sequence, status);
        }
      }
      if (ordered) {
        const MutexLock lock(mutex);
        const std::uint64_t next = ++turn[task.stage];
        auto& waiting = parked[task.stage];
        if (auto it = waiting.find(next); it != waiting.end()) {
          ready.push_front(std::move(it->second));  // the further along, the sooner it frees memory
          waiting.erase(it);
          work.NotifyOne();
        }
      }
      ++task.stage;
    }
    const std::uint64_t released = task.batch->weight;
    task.batch.reset();  // returns its buffers before the window opens
    const MutexLock lock(mutex);
    weight -= released;
    --in_flight;
    room.NotifyAll();
  }

  void Work() {
    while (true) {
      Task task;
      {
        const MutexLock lock(mutex);
        while (ready.empty() && !stopping) work.Wait(mutex);
        if (ready.empty()) return;
        task = std::move(ready.front());
        ready.pop_front();
      }
      Run(std::move(task));
    }
  }
};

Pipeline::Pipeline(std::vector<std::shared_ptr<Stage>> stages, const PipelineOptions& options)
    : state_(std::make_unique<State>()) {
  state_->stages = std::move(stages);
  state_->options = options;
  {
    const MutexLock lock(state_->mutex);
    state_->parked.resize(state_->stages.size());
    state_->turn.resize(state_->stages.size());
  }
  if (options.threads > 1) {
    for (unsigned i = 0; i < options.threads; ++i) {
      state_->workers.emplace_back([state = state_.get()] { state->Work(); });
    }
  }
}

Pipeline::~Pipeline() {
  Cancel(Cancelled("the pipeline was dropped"));
  (void)Drain();
  {
    const MutexLock lock(state_->mutex);
    state_->stopping = true;
    state_->work.NotifyAll();
  }
  for (std::thread& worker : state_->workers) worker.join();
}

Status Pipeline::Submit(std::unique_ptr<Batch> batch) {
  State& s = *state_;
  State::Task task{std::move(batch), 0};
  {
    const MutexLock lock(s.mutex);
    while (s.failed_at == State::kNever && s.in_flight > 0 &&
           s.weight + task.batch->weight > s.options.window_bytes) {
      s.room.Wait(s.mutex);
    }
    if (s.failed_at != State::kNever) return s.failure;
    task.batch->sequence = s.next_sequence++;
    s.weight += task.batch->weight;
    ++s.in_flight;
    if (!s.workers.empty()) {
      s.ready.push_back(std::move(task));
      s.work.NotifyOne();
      return OkStatus();
    }
  }
  s.Run(std::move(task));
  const MutexLock lock(s.mutex);
  return s.failed_at == State::kNever ? OkStatus() : s.failure;
}

Status Pipeline::Drain() {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  while (s.in_flight > 0) s.room.Wait(s.mutex);
  return s.failed_at == State::kNever ? OkStatus() : s.failure;
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
