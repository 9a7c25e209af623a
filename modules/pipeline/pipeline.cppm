// zt.pipeline — bounded, ordered work: tasks pass a chain of stages on a fixed set of workers; first error wins.
export module zt.pipeline;

import zt.std;
import zt.core;

export namespace zt {

class BufferPool;

// Owns bytes of a pool and returns them when it dies: a buffer has one owner at a time, and spans of it end with it.
// Movable; it may outlive the pool. Contents are uninitialised at first.
class Buffer {
 public:
  Buffer() = default;                          // no bytes
  Buffer(Buffer&& other) noexcept;             // `other` is empty afterwards
  Buffer& operator=(Buffer&& other) noexcept;  // exchanges the two
  ~Buffer();
  // The bytes, as many as were asked for; to be written to as well.
  inline std::span<std::byte> bytes() const { return {data_, size_}; }
  // True where there are none.
  inline bool empty() const { return size_ == 0; }
  // What it costs: its bytes, rounded up to pages.
  inline std::size_t capacity() const { return capacity_; }

 private:
  friend class BufferPool;
  struct Memory;
  std::shared_ptr<Memory> pool_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

// Memory that is reused: large buffers cost page faults each time they come fresh from the system. Thread-safe. What was
// given back must not be touched: builds with the address sanitizer report who does, builds with assertions overwrite it.
class BufferPool {
 public:
  // Memory that was given back is kept for the next buffer of that size, up to `keep_bytes` in all.
  explicit BufferPool(std::uint64_t keep_bytes);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  // `size` bytes, aligned to a page. Throws std::bad_alloc where there is no memory.
  Buffer Take(std::size_t size);
  // What a buffer of `size` bytes costs.
  static std::size_t Capacity(std::size_t size);

 private:
  std::shared_ptr<Buffer::Memory> memory_;  // the buffers have it too
};

// One piece of work on its way through a Pipeline: the base of what its submitter makes of it.
class Task {
 public:
  virtual ~Task() = default;
  // The error with the names the task knows before it. Called for what a stage throws.
  virtual Status Named(const Status& status) const { return status; }

  std::uint64_t weight =
      0;  // the most memory it holds at once, in bytes; counts against the window
  bool continues =
      false;  // its work goes on where that of the task submitted before it ends; see kInChain
  bool ordered = false;        // see kIfOrdered
  std::uint64_t sequence = 0;  // given by Submit: how many tasks were submitted before
};

// Which tasks a stage may be given at once.
enum class StageOrder {
  kParallel,  // any task on any worker
  kInChain,   // a task that continues another comes after that one; otherwise as kParallel
  kIfOrdered,  // a task that is ordered comes after all that were submitted before it; otherwise as kParallel
  kInOrder,  // one at a time, in the order of Submit
};

// A step, as the executor sees it. Derive from StageOf. A Pipeline holds its stages by shared_ptr.
class TaskStage {
 public:
  virtual ~TaskStage() = default;
  // Must not change.
  virtual StageOrder order() const { return StageOrder::kParallel; }
  // The error says what is wrong, in which tensor and in which file.
  virtual Status Run(Task& task) = 0;
};

// A step on tasks of one type. Process of a parallel stage is called by several threads at once.
template <std::derived_from<Task> T>
class StageOf : public TaskStage {
 public:
  virtual Status Process(T& task) = 0;

 private:
  // A PipelineOf<T> takes no other tasks, so this is what they are.
  Status Run(Task& task) final { return Process(static_cast<T&>(task)); }
};

// Threads that can run at once: the affinity mask, cut to the control group's CPU quota. At least 1.
unsigned UsableThreads();

// The most workers a caller may ask for.
inline constexpr unsigned kMaxThreads = 1024;

// The memory for what is under way of a run with so many workers (0 means UsableThreads()): `asked`, or where that is 0,
// 32 MiB for each worker and at least 64 MiB. A frame of 4 MiB takes 8 to 12 in all its forms, and the next must wait
// beside it, or workers stand still.
std::uint64_t MemoryFor(std::uint64_t asked, unsigned threads);

// How much a Pipeline may use.
struct PipelineOptions {
  // 1 runs every stage in Submit, on the caller's thread; so it goes too where no thread can be had.
  unsigned threads = 1;
  std::uint64_t window_bytes = 32 << 20;  // weight in flight; one batch is always let in
};

// The executor. Submit from one thread; stages run on the workers. The error of the earliest failing task is the one
// reported, so it does not depend on timing; everything after it is skipped. No call throws: where memory runs out, or
// a stage throws, that is an error like others.
class Pipeline {
 public:
  // Each task passes the stages in this order.
  Pipeline(std::vector<std::shared_ptr<TaskStage>> stages, const PipelineOptions& options);
  // Cancels what is still under way and joins the workers.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Hands over a task; waits while the window is full. Returns the first error so far.
  Status Submit(std::unique_ptr<Task> task);
  // Waits until nothing is under way. The first error, if any.
  Status Drain();
  // What went wrong between two Submits: the error of a task that would come next. Those under way go on; if one of
  // them fails, its error counts.
  void Fail(const Status& status);
  // Skips everything not yet done; Submit and Drain return `status` unless an error came first. Thread-safe.
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

// ---- ranges --------------------------------------------------------------------------------------------------

// Ranges that travel together: one large range, or many small ones, so that a tensor of some kilobytes costs microseconds.
template <class Range>
struct BatchOf : Task {
  std::vector<Range> ranges;  // at least one
  std::uint64_t bytes = 0;    // of them
  Buffer input;               // where they lie once they are read, as the read stage lays them out
};

// What a RangePipeline has to know of a range.
struct RangeCost {
  std::uint64_t bytes = 0;   // small ranges are gathered by them, and progress counts them
  std::uint64_t weight = 0;  // see Task
  bool ordered = false;      // as those of its task
  bool continues = false;
};

// How a RangePipeline works.
struct RangeOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor: a half of it is for tasks under way
  const std::atomic<bool>* cancelled = nullptr;  // or set by another thread to stop: kCancelled
  // Called in order, by one thread at a time, with the bytes of all ranges that have passed the stages.
  std::function<void(std::uint64_t bytes)> progress = {};
};

}  // namespace zt

namespace zt::pipeline::internal {

// Small ranges share a batch of up to this many bytes and this many ranges.
inline constexpr std::uint64_t kBatchBytes = 256 << 10;
inline constexpr std::size_t kBatchRanges = 100;
// What a batch weighs besides its ranges: itself, what the executor keeps of it, the rounding of its buffers.
inline constexpr std::uint64_t kBatchCost = 4 * 4096;

PipelineOptions OptionsOf(const RangeOptions& options);

// The last stage: says how far the ranges have come, and stops them.
template <class Batch>
class ReportStage final : public StageOf<Batch> {
 public:
  explicit ReportStage(const RangeOptions& options)
      : cancelled_(options.cancelled), progress_(options.progress) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Batch& batch) override {
    if (cancelled_ != nullptr && *cancelled_) return Cancelled("interrupted");
    done_ += batch.bytes;
    if (progress_) progress_(done_);
    return OkStatus();
  }

 private:
  const std::atomic<bool>* const cancelled_;
  const std::function<void(std::uint64_t)> progress_;
  std::uint64_t done_ = 0;
};

}  // namespace zt::pipeline::internal

export namespace zt {

// A Pipeline of ranges: it gathers them into batches, reports, and keeps the order of errors. All that moves bytes of tensors
// moves them so; what a range is and what the stages do is the caller's. `Batch` is a BatchOf<Range>, or derived from one.
template <class Batch>
class RangePipeline {
 public:
  using Range = typename decltype(Batch::ranges)::value_type;

  RangePipeline(typename PipelineOf<Batch>::Stages stages, const RangeOptions& options)
      : pipeline_(WithReport(std::move(stages), options), pipeline::internal::OptionsOf(options)) {}

  // Hands over a range; a small one waits for others. The first error so far.
  Status Add(Range range, const RangeCost& cost);
  // Hands over what was gathered, and waits until nothing is under way. The first error, if any; `added` is what went wrong
  // after the last range, if anything did.
  Status Drain(const Status& added = OkStatus()) {
    (void)Flush();  // the pipeline remembers it
    if (!added.ok()) pipeline_.Fail(added);
    return pipeline_.Drain();
  }
  // See Pipeline.
  inline void Cancel(const Status& status) { pipeline_.Cancel(status); }

 private:
  static typename PipelineOf<Batch>::Stages WithReport(typename PipelineOf<Batch>::Stages stages,
                                                       const RangeOptions& options) {
    if (options.cancelled != nullptr || options.progress) {
      stages.push_back(std::make_shared<pipeline::internal::ReportStage<Batch>>(options));
    }
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
  if (pending_ != nullptr &&
      (pending_->bytes + cost.bytes > kBatchBytes || pending_->ranges.size() >= kBatchRanges ||
       pending_->ordered != cost.ordered)) {
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
