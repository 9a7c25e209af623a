// zt.pipeline — bounded, ordered work: chunks pass a chain of stages on a fixed set of workers; first error wins.
module;

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

export module zt.pipeline;

import zt.core;

export namespace zt {

class BufferPool;

// Owns bytes of a pool and returns them when it dies. Movable. Contents are uninitialised at first.
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

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

// Memory for chunks, reused: large buffers cost page faults each time they come fresh from the system. Thread-safe.
// Must outlive its buffers.
class BufferPool {
 public:
  // Memory that was given back is kept for the next buffer of that size, up to `keep_bytes` in all.
  explicit BufferPool(std::uint64_t keep_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  // `size` bytes, aligned to a page. Throws std::bad_alloc where there is no memory.
  Buffer Take(std::size_t size);

 private:
  friend class Buffer;
  struct State;
  void Give(std::byte* data, std::size_t capacity);
  std::unique_ptr<State> state_;
};

// Whose a chunk is: the base of whatever its submitter keeps of it.
class ChunkOwner {
 public:
  virtual ~ChunkOwner() = default;
  // The file its bytes come from, for messages; empty where they come from memory.
  virtual std::string_view file() const { return {}; }
};

// A range of one component on its way. Stages read and replace `bytes`; the last ones fill what is stored.
struct Chunk {
  // What it belongs to: the declaration as it will be stored, and the component's index there.
  const Object* object = nullptr;
  std::uint32_t component = 0;        // index into object->components
  std::shared_ptr<ChunkOwner> owner;  // or null

  std::uint64_t input_offset = 0;  // of the range to read, in the source's component
  std::uint64_t input_bytes = 0;   // of that range
  std::uint64_t offset = 0;        // of `bytes`, once transformed, in the component
  bool first = false;              // of its component
  bool last = false;               // of its component

  // The decoded bytes: whatever the chain has made of them so far. They live in `buffer`, in the batch's arena, or
  // with whoever submitted the chunk.
  std::span<const std::byte> bytes;
  Buffer buffer;  // holds `bytes`, or nothing
  BufferPool* pool =
      nullptr;  // where a stage of a Writer takes buffers for Replace; it outlives the stage

  // What will be stored: `bytes`, or `encoded`, which lives in the batch's encoded_arena.
  std::span<const std::byte> encoded;  // empty where the chunk was not compressed
  std::span<const std::byte> stored;   // `bytes` or `encoded`
  std::vector<std::byte> trailer;      // stored after `stored` (a seek table)
  std::uint64_t place = 0;             // absolute offset of `stored` in the output
  std::uint64_t padding = 0;           // zero bytes before it
  std::uint32_t crc = 0;               // CRC-32C of stored and trailer, where asked for

  // Makes `fresh`, of as many bytes, the decoded bytes. The old ones are released.
  inline void Replace(Buffer fresh) {
    bytes = fresh.bytes();
    buffer = std::move(fresh);
  }
};

// "FILE: tensor 'NAME': " put before the message, as far as the chunk knows them; OK stays OK.
Status AnnotateChunk(const Status& status, const Chunk& chunk);

// Consecutive chunks that travel together: one large chunk, or many small ones so that a tensor of some kilobytes
// costs microseconds.
struct Batch {
  std::vector<Chunk> chunks;  // at least one
  Buffer arena;               // bytes as read; small chunks share it
  Buffer encoded_arena;       // compressed bytes
  // The most memory it will hold at once, in bytes; counts against the window.
  std::uint64_t weight = 0;
  std::uint64_t sequence = 0;  // given by Submit
};

// How a stage wants its batches.
enum class StageOrder {
  kParallel,  // any batch on any worker
  kInOrder,   // batches one at a time, in the order of Submit
};

// A step. One method on a chunk; adding a stage touches no other. Process of a parallel stage is called by several
// threads at once. Nothing else is asked of a stage, but that it outlives the Pipeline (it is held by shared_ptr).
class Stage {
 public:
  virtual ~Stage() = default;
  // Must not change.
  virtual StageOrder order() const { return StageOrder::kParallel; }
  // The error should say what is wrong; the caller adds the tensor and the file.
  virtual Status Process(Chunk& chunk) = 0;
  // For stages that gain from seeing neighbours at once. By default Process for each chunk, annotated by
  // AnnotateChunk; whoever overrides it does the same.
  virtual Status ProcessBatch(Batch& batch);
};

// Threads that can run at once: the affinity mask, cut to the control group's CPU quota. At least 1.
unsigned UsableThreads();

// How much a Pipeline may use.
struct PipelineOptions {
  // 1 runs every stage in Submit, on the caller's thread; so it goes too where no thread can be had.
  unsigned threads = 1;
  std::uint64_t window_bytes = 32 << 20;  // weight in flight; one batch is always let in
};

// The executor. Submit from one thread; stages run on the workers. The error of the earliest failing batch is the
// one reported, so it does not depend on timing; everything after it is skipped.
class Pipeline {
 public:
  // Each batch passes the stages in this order.
  Pipeline(std::vector<std::shared_ptr<Stage>> stages, const PipelineOptions& options);
  // Cancels what is still under way and joins the workers.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Hands over a batch; waits while the window is full. Returns the first error so far.
  Status Submit(std::unique_ptr<Batch> batch);
  // Waits until nothing is under way. The first error, if any.
  Status Drain();
  // Skips everything not yet done; Submit and Drain return `status` unless an error came first. Thread-safe.
  void Cancel(const Status& status);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zt
