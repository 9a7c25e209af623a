// zt.pipeline — pools memory.
module;

#include <sys/mman.h>
#include <unistd.h>

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // without the sanitizer its macros do nothing
#else
#define ASAN_POISON_MEMORY_REGION(data, count) ((void)(data), (void)(count))
#define ASAN_UNPOISON_MEMORY_REGION(data, count) ((void)(data), (void)(count))
#endif

#include "core/thread_annotations.h"

module zt.pipeline;

import zt.std;

namespace zt {

using internal::Mutex;
using internal::MutexLock;

// The memory that was given back to a pool. Lives as long as the pool or any of its buffers.
struct Buffer::Memory {
  struct Free {
    std::byte* data;
    std::size_t capacity;
  };
  explicit Memory(std::uint64_t keep) : keep_bytes(keep) {}
  ~Memory();
  void Give(std::byte* data, std::size_t capacity);
  const std::uint64_t keep_bytes;
  Mutex mutex;
  std::vector<Free> free ZT_GUARDED_BY(mutex);
  std::uint64_t kept ZT_GUARDED_BY(mutex) = 0;
};

namespace {

// 4 KiB on x86-64; 16 or 64 KiB where aarch64's kernel was built so.
std::size_t PageSize() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::byte* Allocate(std::size_t capacity) {
  void* data =
      ::mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(data);
}

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
// Makes any access to these bytes an error of the address sanitizer; Allow undoes that.
void Forbid(std::byte* data, std::size_t count) { ASAN_POISON_MEMORY_REGION(data, count); }
void Allow(std::byte* data, std::size_t count) { ASAN_UNPOISON_MEMORY_REGION(data, count); }
#else
void Forbid(std::byte*, std::size_t) {}
void Allow(std::byte*, std::size_t) {}
#endif

void Release(std::byte* data, std::size_t capacity) {
  Allow(data, capacity);  // the addresses may be reused
  ::munmap(data, capacity);
}

// Overwrites memory, so that reads through a dangling span do not return valid data by chance.
void Spoil([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t capacity) {
#ifndef NDEBUG
  Allow(data, capacity);
  std::memset(data, 0xee, capacity);
#endif
}

// Rounds sizes up to 1/8 of the power of two below, so that similar sizes share memory.
std::size_t RoundUp(std::size_t size) {
  const std::size_t step = std::max(PageSize(), std::bit_floor(size) / 8);
  return (size + step - 1) / step * step;
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : pool_(std::move(other.pool_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(capacity_, other.capacity_);
  return *this;
}

Buffer::~Buffer() {
  if (pool_ != nullptr && data_ != nullptr) pool_->Give(data_, capacity_);
}

BufferPool::BufferPool(std::uint64_t keep_bytes)
    : memory_(std::make_shared<Buffer::Memory>(keep_bytes)) {}

std::size_t BufferPool::Capacity(std::size_t size) { return size == 0 ? 0 : RoundUp(size); }

Buffer BufferPool::Take(std::size_t size) {
  Buffer buffer;
  if (size == 0) return buffer;
  const std::size_t capacity = RoundUp(size);
  buffer.pool_ = memory_;
  buffer.size_ = size;
  {
    const MutexLock lock(memory_->mutex);
    auto& free = memory_->free;
    for (std::size_t i = free.size(); i-- > 0;) {
      if (free[i].capacity == capacity) {
        buffer.data_ = free[i].data;
        buffer.capacity_ = capacity;
        free[i] = free.back();
        free.pop_back();
        memory_->kept -= capacity;
        Allow(buffer.data_, size);
        return buffer;
      }
    }
  }
  buffer.data_ = Allocate(capacity);
  buffer.capacity_ = capacity;
  Forbid(buffer.data_ + size, capacity - size);
  return buffer;
}

// Must not throw.
void Buffer::Memory::Give(std::byte* data, std::size_t capacity) {
  Allow(data, capacity);
  Spoil(data, capacity);
  Forbid(data, capacity);
  const MutexLock lock(mutex);
  try {
    free.push_back({data, capacity});
  } catch (const std::bad_alloc&) {
    Release(data, capacity);
    return;
  }
  kept += capacity;
  // Releases the oldest first, so that sizes no longer needed do not fill the pool.
  while (kept > keep_bytes) {
    kept -= free.front().capacity;
    Release(free.front().data, free.front().capacity);
    free.erase(free.begin());
  }
}

Buffer::Memory::~Memory() {
  const MutexLock lock(mutex);
  for (const Free& entry : free) Release(entry.data, entry.capacity);
}

}  // namespace zt
