// zt.pipeline — a bounded, ordered executor: tasks pass a chain of stages on a fixed set of
// workers; the first error wins.
export module zt.pipeline;

import zt.std;
import zt.core;

export namespace zt {

class BufferPool;

// Owns memory of a pool, and returns it when destroyed. Spans of it must not outlive it. Movable;
// may outlive the pool. The contents are uninitialized.
class Buffer {
 public:
  Buffer() = default;                          // no bytes
  Buffer(Buffer&& other) noexcept;             // `other` is empty afterwards
  Buffer& operator=(Buffer&& other) noexcept;  // swaps the two
  ~Buffer();
  // The bytes, of the size asked for; writable.
  inline std::span<std::byte> bytes() const { return {data_, size_}; }
  // True if it has no bytes.
  inline bool empty() const { return size_ == 0; }
  // Its cost: the size, rounded up to pages.
  inline std::size_t capacity() const { return capacity_; }

 private:
  friend class BufferPool;
  struct Memory;
  std::shared_ptr<Memory> pool_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

// Reuses memory, as large buffers fresh from the system cost page faults. Thread-safe. Memory that
// was given back must not be used: builds with the address sanitizer report that, builds with
// assertions overwrite the memory.
class BufferPool {
 public:
  // Keeps memory that was given back for later buffers of that size, up to `keep_bytes` in total.
  explicit BufferPool(std::uint64_t keep_bytes);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  // A buffer of `size` bytes, aligned to a page. Throws std::bad_alloc if there is no memory.
  Buffer Take(std::size_t size);
  // The cost of a buffer of `size` bytes.
  static std::size_t Capacity(std::size_t size);

 private:
  std::shared_ptr<Buffer::Memory> memory_;  // shared with the buffers
};

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

// A step, as the executor sees it. Derive from StageOf instead. A Pipeline holds its
// stages by shared_ptr.
class TaskStage {
 public:
  virtual ~TaskStage() = default;
  // Must return the same value on each call.
  virtual StageOrder order() const { return StageOrder::kParallel; }
  // Errors name the problem, the tensor and the file.
  virtual Status Run(Task& task) = 0;
};

// A step for tasks of type T. Several threads call Process of a parallel stage at once.
template <std::derived_from<Task> T>
class StageOf : public TaskStage {
 public:
  virtual Status Process(T& task) = 0;

 private:
  // A PipelineOf<T> accepts no other tasks, so the cast is safe.
  Status Run(Task& task) final { return Process(static_cast<T&>(task)); }
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

// Limits of a Pipeline.
struct PipelineOptions {
  // With 1, or if no thread can be created, Submit runs all stages on the caller's thread.
  unsigned threads = 1;
  std::uint64_t window_bytes = 32 << 20;  // limit on weight in flight; one task is always admitted
};

// The executor. Call Submit from one thread; stages run on the workers. The error of the earliest
// failing task is reported, so it does not depend on timing; later tasks are skipped. No call
// throws: lack of memory, or an exception of a stage, is an error like any other.
class Pipeline {
 public:
  // Each task passes the stages in this order.
  Pipeline(std::vector<std::shared_ptr<TaskStage>> stages, const PipelineOptions& options);
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
  struct State;
  std::unique_ptr<State> state_;
};

// A Pipeline of tasks of one type.
template <std::derived_from<Task> T>
class PipelineOf {
 public:
  using Stages = std::vector<std::shared_ptr<StageOf<T>>>;
  PipelineOf(const Stages& stages, const PipelineOptions& options)
      : pipeline_(std::vector<std::shared_ptr<TaskStage>>(stages.begin(), stages.end()), options) {}

  // See Pipeline.
  inline Status Submit(std::unique_ptr<T> task) { return pipeline_.Submit(std::move(task)); }
  inline Status Drain() { return pipeline_.Drain(); }
  inline void Fail(const Status& status) { pipeline_.Fail(status); }
  inline void Cancel(const Status& status) { pipeline_.Cancel(status); }

 private:
  Pipeline pipeline_;
};

// ---- ranges -------------------------------------------------------------------------------------

// Ranges that pass the stages together: one large range or many small ones, so that a tensor of a
// few kilobytes costs only microseconds.
template <class Range>
struct BatchOf : Task {
  std::vector<Range> ranges;  // at least one
  std::uint64_t bytes = 0;    // total size of the ranges
  Buffer input;               // content of the ranges, in the layout of the read stage
};

// What a RangePipeline needs to know about a range.
struct RangeCost {
  std::uint64_t bytes = 0;   // size, which limits batches and is reported as progress
  std::uint64_t weight = 0;  // see Task
  bool ordered = false;      // see kIfOrdered
  bool continues = false;    // continues the range before it; see kInChain
  bool continued = false;    // the next range continues it
};

// Options of a RangePipeline.
struct RangeOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor
  // If not null, another thread may set it to stop the pipeline with kCancelled.
  const std::atomic<bool>* cancelled = nullptr;
  // Called in order, by one thread at a time, with the total size of the ranges that
  // have passed all stages.
  std::function<void(std::uint64_t bytes)> progress = {};
};

}  // namespace zt

namespace zt::pipeline::internal {

// Limits on a batch of small ranges.
inline constexpr std::uint64_t kBatchBytes = 256 << 10;
inline constexpr std::uint64_t kBatchWeight = 1 << 20;  // small ranges may decode to large ones
inline constexpr std::size_t kBatchRanges = 100;
// Memory of a batch beside its ranges: the batch itself, the executor's state, the
// rounding of its buffers.
inline constexpr std::uint64_t kBatchCost = 4 * 4096;

PipelineOptions OptionsOf(const RangeOptions& options);

}  // namespace zt::pipeline::internal

export namespace zt {

// A stage made of a function, which is called for each task in the order of submission.
template <class T>
class InOrderStage final : public StageOf<T> {
 public:
  explicit InOrderStage(std::function<Status(T&)> function) : function_(std::move(function)) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(T& task) override { return function_(task); }

 private:
  const std::function<Status(T&)> function_;
};

// A Pipeline of ranges: gathers ranges into batches, reports progress, and reports the earliest
// error. Everything that moves tensor bytes uses it, with its own type of range and its own
// stages. `Batch` is BatchOf<Range> or derived from it.
template <class Batch>
class RangePipeline {
 public:
  using Range = typename decltype(Batch::ranges)::value_type;

  RangePipeline(typename PipelineOf<Batch>::Stages stages, const RangeOptions& options)
      : pipeline_(WithReport(std::move(stages), options), pipeline::internal::OptionsOf(options)) {}

  // Submits a range; small ranges are gathered into a batch first. Returns the first error so far.
  Status Add(Range range, const RangeCost& cost);
  // Submits the ranges gathered so far, and waits until no task is in flight. `added` is an error
  // that occurred after the last range, or OK. Returns the first error, if any.
  Status Drain(const Status& added = OkStatus()) {
    (void)Flush();  // the pipeline reports the error
    if (!added.ok()) pipeline_.Fail(added);
    return pipeline_.Drain();
  }
  // See Pipeline.
  inline void Cancel(const Status& status) { pipeline_.Cancel(status); }

 private:
  static typename PipelineOf<Batch>::Stages WithReport(typename PipelineOf<Batch>::Stages stages,
                                                       const RangeOptions& options) {
    if (options.cancelled == nullptr && !options.progress) return stages;
    stages.push_back(std::make_shared<InOrderStage<Batch>>(
        [cancelled = options.cancelled, progress = options.progress,
         done = std::uint64_t{0}](Batch& batch) mutable -> Status {
          if (cancelled != nullptr && *cancelled) return Cancelled("interrupted");
          done += batch.bytes;
          if (progress) progress(done);
          return OkStatus();
        }));
    return stages;
  }
  Status Flush() {
    if (pending_ == nullptr || pending_->ranges.empty()) return OkStatus();
    return pipeline_.Submit(std::exchange(pending_, nullptr));
  }

  std::unique_ptr<Batch> pending_;
  PipelineOf<Batch> pipeline_;
};

template <class Batch>
Status RangePipeline<Batch>::Add(Range range, const RangeCost& cost) {
  using namespace pipeline::internal;
  // The end of one chain and the beginning of another in a batch would make one chain of the two.
  const auto ties_chains = [&] { return pending_->continues && cost.continued && !cost.continues; };
  if (pending_ != nullptr &&
      (pending_->bytes + cost.bytes > kBatchBytes ||
       pending_->weight + cost.weight > kBatchWeight || pending_->ranges.size() >= kBatchRanges ||
       pending_->ordered != cost.ordered || ties_chains())) {
    if (Status status = Flush(); !status.ok()) return status;
  }
  if (pending_ == nullptr) {
    pending_ = std::make_unique<Batch>();
    pending_->weight = kBatchCost;
    pending_->ordered = cost.ordered;
    pending_->continues = cost.continues;
    if (cost.bytes < kBatchBytes) {
      pending_->ranges.reserve(std::min<std::uint64_t>(
          kBatchRanges, kBatchBytes / std::max<std::uint64_t>(cost.bytes, 1)));
    }
  }
  pending_->ranges.push_back(std::move(range));
  pending_->weight += cost.weight;
  pending_->bytes += cost.bytes;
  return pending_->bytes >= kBatchBytes ? Flush() : OkStatus();
}

}  // namespace zt
