// zt.writer:chunk — what a stage of the caller's sees: a range of one component on its way to the output.
export module zt.writer:chunk;

import zt.std;
import zt.core;
import zt.pipeline;

export namespace zt {

// Whole elements of one component, as they are so far. The bytes are the chunk's own, or those of somebody who keeps
// them for as long as it lives.
class Chunk {
 public:
  const Object* object = nullptr;  // the declaration as it will be stored
  std::uint32_t component = 0;     // index into object->components
  std::uint64_t offset = 0;        // of bytes(), in the component
  bool first = false;              // of its component
  bool last = false;               // of its component
  BufferPool* pool = nullptr;      // where buffers for Replace are taken

  inline std::span<const std::byte> bytes() const { return bytes_; }
  // Makes `fresh` the bytes. The old ones are gone.
  inline void Replace(Buffer fresh) {
    bytes_ = fresh.bytes();
    own_ = std::move(fresh);
  }

 protected:
  // Makes the bytes those of somebody else, or the first `count` of a buffer that becomes its own.
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

// A step on each chunk: WriterOptions::stages. Process of a parallel stage is called by several threads at once.
class Stage {
 public:
  virtual ~Stage() = default;
  // Must not change. In a chain, the chunks of a component come one after the other; in order, all chunks do.
  virtual StageOrder order() const { return StageOrder::kParallel; }
  // The error should say what is wrong; the writer adds the tensor and the file.
  virtual Status Process(Chunk& chunk) = 0;
};

}  // namespace zt
