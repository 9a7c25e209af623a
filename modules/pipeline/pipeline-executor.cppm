// zt.pipeline:executor — a bounded, ordered executor: tasks pass a chain of stages on a fixed set of
// workers; the first error wins.
export module zt.pipeline:executor;

import zt.std;
import zt.core;

export namespace zt {

// A unit of work that passes a Pipeline. Submitters derive from it.
class Task {
 public:
  virtual ~Task() = default;
  // The status with the names that the task knows (tensor, file) prefixed. Called for
  // exceptions of a stage.
  virtual Status Named(const Status& status) const { return status; }

  // Limit on the bytes of memory that it holds at once; counts against the window.
  std::uint64_t weight = 0;
  // The task continues the work of the task submitted before it; see kInChain.
  bool continues = false;
  bool ordered = false;        // see kIfOrdered
  std::uint64_t sequence = 0;  // set by Submit: number of tasks submitted before
};

// The order in which tasks enter a stage.
enum class StageOrder {
  kParallel,   // any task on any worker
  kInChain,    // a continuing task after the task that it continues; else as kParallel
  kIfOrdered,  // an ordered task after all tasks submitted before it; else as kParallel
  kInOrder,    // one at a time, in the order of submission
};

// A step for tasks of type T. Several threads call `run` of a parallel stage at once. Its errors
// name the problem, the tensor and the file.
template <std::derived_from<Task> T>
struct StageOf {
  StageOrder order = StageOrder::kParallel;
  std::function<Status(T&)> run;

  // The same for a Pipeline, all of whose tasks must be of type T.
  StageOf<Task> ForTasks() && {
    return {order, [run = std::move(run)](Task& task) { return run(static_cast<T&>(task)); }};
  }
};

// The number of threads that can run at once: that of the affinity mask, limited by the control
// group's CPU quota. At least 1.
unsigned UsableThreads();

// Limit on the number of workers.
inline constexpr unsigned kMaxThreads = 1024;

// The memory budget of a pipeline with this number of workers (0 means UsableThreads()): `asked`,
// or if that is 0, 32 MiB per worker and at least 64 MiB. Half of it limits tasks in flight, half
// is for pooled buffers. A frame of 4 MiB takes 8 to 12 MiB in all its forms, and each worker needs
// the next one in reach to stay busy.
std::uint64_t MemoryFor(std::uint64_t asked, unsigned threads);

// What one of several runs at a time may use of the threads and the memory of all; see RunNumbered,
// which raises both when others have ended. Its pipelines look at it with each task.
struct Share {
  std::atomic<unsigned> threads = 1;
  std::atomic<std::uint64_t> memory_bytes = 0;  // as MemoryFor returns it
  std::atomic<bool> cancelled = false;          // what the run makes is not wanted any more
};

// Limits of a Pipeline.
struct PipelineOptions {
  // With 1, or if no thread can be created, Submit runs all stages on the caller's thread.
  unsigned threads = 1;
  std::uint64_t window_bytes = 32 << 20;  // limit on weight in flight; one task is always admitted
  const Share* share = nullptr;           // if set, may raise both later, or cancel
};

// The executor. Call Submit from one thread; stages run on the workers. The error of the earliest
// failing task is reported, so it does not depend on timing; later tasks are skipped. No call
// throws: lack of memory, or an exception of a stage, is an error like any other.
//
// A task passes parallel stages on one worker without stopping. At an ordered stage it continues if
// it is its turn; else it is parked there, and the worker that finishes its predecessor makes it
// ready again. So ordering costs no waiting, and no worker is ever blocked by another.
//
// Many workers share little: each ordered stage has its own lock, a parallel stage has none, and the
// lock of all is taken when a task begins and when it ends. Workers are not woken under a lock.
//
// A task is stored in a map node, which moves between maps, and Submit reserves space in each gate:
// workers allocate nothing, so they cannot run out of memory.
class Pipeline {
 public:
  // Each task passes the stages in this order.
  Pipeline(std::vector<StageOf<Task>> stages, const PipelineOptions& options);
  // Cancels all tasks in flight and joins the workers.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Submits a task; waits while the window is full. Returns the first error so far.
  Status Submit(std::unique_ptr<Task> task);
  // Waits until no task is in flight. Returns the first error, if any.
  Status Drain();
  // Reports an error between two Submits, as if the next task had failed. Tasks in flight continue;
  // an error of one of them takes precedence.
  void Fail(const Status& status);
  // Skips all remaining work; Submit and Drain return `status` unless an earlier error
  // occurred. Thread-safe.
  void Cancel(const Status& status);

 private:
  class Gate;
  struct Work {
    std::unique_ptr<Task> task;
    std::size_t stage = 0;
  };
  using Tasks = std::map<std::uint64_t, Work>;  // by sequence
  using Node = Tasks::node_type;
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  void FailLocked(std::uint64_t sequence, const Status& status)
      __attribute__((requires_capability(mutex_)));
  bool HasRoomLocked(std::uint64_t added) const __attribute__((requires_capability(mutex_)));
  void AdmitLocked(Node& node) __attribute__((requires_capability(mutex_)));
  void ReleaseLocked(std::uint64_t released) __attribute__((requires_capability(mutex_)));
  std::size_t MostTasks() const __attribute__((requires_capability(mutex_)));
  void AddWorkers(unsigned count);
  void HeedShareLocked() __attribute__((requires_capability(mutex_)));
  void MakeReady(Node node);
  std::optional<std::uint64_t> Run(Node node);
  Node Next(const std::optional<std::uint64_t>& released);
  void RunWorker();
  Status SubmitNode(Node node);

  const std::vector<StageOf<Task>> stages_;
  const PipelineOptions options_;
  std::vector<std::unique_ptr<Gate>> gates_;  // by stage; null where it is parallel
  // Tasks from this sequence on are skipped. Written under `mutex_`.
  std::atomic<std::uint64_t> failed_at_ = kNever;

  internal::Mutex mutex_;
  internal::CondVar work_;  // signals ready tasks, or stopping
  internal::CondVar room_;  // signals that the window has room, or all tasks are done
  // The earliest task first: it is furthest along and frees memory soonest.
  Tasks ready_ __attribute__((guarded_by(mutex_)));
  std::uint64_t next_sequence_ __attribute__((guarded_by(mutex_))) = 0;
  std::uint64_t reserved_ __attribute__((guarded_by(mutex_))) =
      0;  // the gates have space for tasks before it
  std::uint64_t in_flight_ __attribute__((guarded_by(mutex_))) = 0;
  std::uint64_t weight_ __attribute__((guarded_by(mutex_))) = 0;
  std::uint64_t window_ __attribute__((guarded_by(mutex_)));  // limit on it
  Status failure_ __attribute__((guarded_by(mutex_)));
  bool stopping_ __attribute__((guarded_by(mutex_))) = false;
  std::vector<std::thread> workers_;  // of the submitter's thread
};

}  // namespace zt
