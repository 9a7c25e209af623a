// zt.pipeline — the executor.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
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
    if (auto status = Process(chunk); !status.ok()) return AnnotateChunk(status, chunk);
  }
  return OkStatus();
}

Status AnnotateChunk(const Status& status, const Chunk& chunk) {
  if (status.ok() || chunk.object == nullptr) return status;
  const Status named = Annotate(status, TensorContext(chunk.object->name));
  const std::string_view file = chunk.owner == nullptr ? std::string_view() : chunk.owner->file();
  return file.empty() ? named : Annotate(named, file);
}

namespace {

// Memory can run out anywhere below; nothing thrown crosses the API. `out_of_memory` is made in time.
Status RunStage(Stage& stage, Batch& batch, const Status& out_of_memory) {
  try {
    try {
      return stage.ProcessBatch(batch);
    } catch (const std::bad_alloc&) {
      return out_of_memory;
    } catch (const std::exception& error) {
      return MakeStatus(StatusCode::kInternal, error.what());
    }
  } catch (...) {
    return out_of_memory;
  }
}

}  // namespace

// A batch is a task at some stage. It runs through parallel stages on one worker without a stop. At an in-order
// stage it goes on if its turn has come, else it is parked there, and whoever finishes its predecessor there makes
// it ready again. So order costs no waiting, and no worker is ever blocked by another.
//
// A task is a map's node that moves between maps: a worker needs no memory of its own, so it cannot run out.
struct Pipeline::State {
  struct Work {
    std::unique_ptr<Batch> batch;
    std::size_t stage = 0;
  };
  using Tasks = std::map<std::uint64_t, Work>;  // by sequence
  using Task = Tasks::node_type;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  std::vector<std::shared_ptr<Stage>> stages;
  PipelineOptions options;

  Mutex mutex;
  CondVar work;  // ready tasks, or stopping
  CondVar room;  // the window shrank, or everything is done
  // The earliest first: it is the furthest along, and frees memory soonest.
  Tasks ready ZT_GUARDED_BY(mutex);
  std::vector<Tasks> parked ZT_GUARDED_BY(mutex);        // by stage
  std::vector<std::uint64_t> turn ZT_GUARDED_BY(mutex);  // by stage: whose turn it is
  std::uint64_t next_sequence ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t in_flight ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t weight ZT_GUARDED_BY(mutex) = 0;
  // Batches from this sequence on are skipped.
  std::uint64_t failed_at ZT_GUARDED_BY(mutex) = kNever;
  Status failure ZT_GUARDED_BY(mutex);
  bool stopping ZT_GUARDED_BY(mutex) = false;
  const Status out_of_memory = IoError("out of memory");
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
    const std::uint64_t sequence = task.key();
    Work& state = task.mapped();
    while (state.stage < stages.size()) {
      const std::size_t at = state.stage;
      Stage& stage = *stages[at];
      const bool ordered = stage.order() == StageOrder::kInOrder;
      bool skip;
      {
        const MutexLock lock(mutex);
        if (ordered && turn[at] != sequence) {
          parked[at].insert(std::move(task));
          return;
        }
        skip = sequence >= failed_at;
      }
      if (!skip) {
        const Status status = RunStage(stage, *state.batch, out_of_memory);
        if (!status.ok()) {
          const MutexLock lock(mutex);
          FailLocked(sequence, status);
        }
      }
      if (ordered) {
        const MutexLock lock(mutex);
        if (Task next = parked[at].extract(++turn[at])) {
          ready.insert(std::move(next));
          work.NotifyOne();
        }
      }
      ++state.stage;
    }
    const std::uint64_t released = state.batch->weight;
    state.batch.reset();  // returns its buffers before the window opens
    const MutexLock lock(mutex);
    weight -= released;
    --in_flight;
    // Whoever submits is woken for some batches at once, not for each.
    if (in_flight == 0 || weight <= options.window_bytes - options.window_bytes / 8) {
      room.NotifyAll();
    }
  }

  void RunWorker() {
    while (true) {
      Task task;
      {
        const MutexLock lock(mutex);
        while (ready.empty() && !stopping) work.Wait(mutex);
        if (ready.empty()) return;
        task = ready.extract(ready.begin());
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
    state_->workers.reserve(options.threads);
    try {
      for (unsigned i = 0; i < options.threads; ++i) {
        state_->workers.emplace_back([state = state_.get()] { state->RunWorker(); });
      }
    } catch (const std::system_error&) {
      // No more threads to be had: those there are will do, or the caller's.
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
  const std::uint64_t weight = batch->weight;
  State::Tasks made;
  made[0].batch = std::move(batch);
  State::Task task = made.extract(made.begin());
  {
    const MutexLock lock(s.mutex);
    while (s.failed_at == State::kNever && s.in_flight > 0 &&
           s.weight + weight > s.options.window_bytes) {
      s.room.Wait(s.mutex);
    }
    if (s.failed_at != State::kNever) return s.failure;
    task.key() = s.next_sequence++;
    task.mapped().batch->sequence = task.key();
    s.weight += weight;
    ++s.in_flight;
    if (!s.workers.empty()) {
      s.ready.insert(std::move(task));
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
