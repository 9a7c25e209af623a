// zt.pipeline:buffer — pooled memory.
export module zt.pipeline:buffer;

import zt.std;

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

}  // namespace zt
