// zt.convert.hdf5:library — libhdf5: the walk over a file's links, and datasets by blocks. Internal.
//
// libhdf5 trusts what it reads: forged files make it read and write beyond its memory, or loop. It is called only by the
// process that :worker forks.
module;

#include <hdf5.h>

module zt.convert.hdf5:library;

import zt.std;
import :index;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// An id of libhdf5's, given back when it goes out of scope.
class Handle {
 public:
  Handle() = default;
  inline explicit Handle(hid_t id) : id_(id) {}
  inline Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  inline Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  inline ~Handle() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  inline hid_t get() const { return id_; }
  inline bool ok() const { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

// "it is damaged: `what` cannot be read (libhdf5: its own words)", of the call that has just failed.
Status Damaged(std::string_view what);

// What can be reached from the root group of `file`, which has `size` bytes. Each group is walked once. Datasets whose
// chunks decode to more than `most_chunk` bytes have a problem.
StatusOr<Index> Walk(hid_t file, std::uint64_t size, std::uint64_t most_chunk);

// A file that libhdf5 has opened. One thread at a time.
class Library {
 public:
  // `bytes` is not sequential and outlives the library; it is the only file that libhdf5 opens. `most_chunk` is the most
  // bytes that a chunk may decode to.
  static StatusOr<std::unique_ptr<Library>> Open(ByteSource& bytes, std::uint64_t most_chunk);

  StatusOr<Index> ReadIndex() { return Walk(file_.get(), size_, most_chunk_); }
  // Elements of the dataset at `address` as they are stored: a block from `start`, `count` indices in each dimension.
  Status ReadBlock(std::uint64_t address, std::span<const std::uint64_t> start,
                   std::span<const std::uint64_t> count, std::span<std::byte> out);

 private:
  std::uint64_t size_ = 0, most_chunk_ = 0;
  bool opened_ = false;
  Handle driver_, file_;
  Handle dataset_;  // the last that was read
  std::uint64_t address_ = 0;
};

}  // namespace zt::hdf5::internal
