// zt.writer:chunk — the interface of a caller's stage: a range of one component on its way to the
// output.
export module zt.writer:chunk;

import zt.std;
import zt.core;
import zt.pipeline;

export namespace zt {

// Whole elements of one component in their current state. The bytes belong to the chunk, or to an
// owner that outlives it.
class Chunk {
 public:
  const Object* object = nullptr;   // the declaration as it will be stored
  std::uint32_t component = 0;      // index into object->components
  std::uint64_t offset = 0;         // of bytes(), in the component
  bool first = false;               // of its component
  bool last = false;                // of its component
  BufferPool* pool = nullptr;       // where buffers for Replace are taken
  std::shared_ptr<void> note = {};  // what one of the caller's stages leaves for another
  // In an object's last chunk a stage may set it: the declaration to be recorded, of which shape and
  // attributes may differ. It is called when all chunks of the object have passed all stages.
  std::function<std::shared_ptr<const Object>()> closing = {};

  inline std::span<const std::byte> bytes() const { return bytes_; }
  // Replaces the bytes. The old ones are freed.
  inline void Replace(Buffer fresh) {
    bytes_ = fresh.bytes();
    own_ = std::move(fresh);
  }

 protected:
  // Sets the bytes: to those of another owner, or to the first `count` of a buffer that the chunk
  // then owns.
  inline void Borrow(std::span<const std::byte> bytes) { bytes_ = bytes; }
  inline void Adopt(Buffer buffer, std::size_t count) {
    bytes_ = buffer.bytes().first(count);
    own_ = std::move(buffer);
  }
  inline bool owns() const { return !own_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  Buffer own_;
};

// A step on each chunk (WriterOptions::stages). Several threads may call Process of a parallel
// stage at once.
class Stage {
 public:
  virtual ~Stage() = default;
  // Must always return the same order. kInChain: the chunks of one component come in sequence;
  // kInOrder: all chunks do.
  virtual StageOrder order() const { return StageOrder::kParallel; }
  // The error should state the cause; the writer adds the tensor and the file.
  virtual Status Process(Chunk& chunk) = 0;
};

}  // namespace zt
