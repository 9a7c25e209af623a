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
  std::uint64_t sequence = 0;  // given by Submit: how many tasks were submitted before
};

// Which tasks a stage may be given at once.
enum class StageOrder {
  kParallel,  // any task on any worker
  kInChain,   // a task that continues another comes after that one; otherwise as kParallel
  kInOrder,   // one at a time, in the order of Submit
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

}  // namespace zt
