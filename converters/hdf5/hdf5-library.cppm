// zt.convert.hdf5:library — calls libhdf5: walks a file's links, and reads datasets
// in blocks. Internal.
//
// libhdf5 does not validate its input: forged files make it access memory out of bounds, or loop.
// Only the process forked by :worker calls it.
module;

#include <hdf5.h>

module zt.convert.hdf5:library;

import zt.std;
import :index;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// A libhdf5 id, closed when it goes out of scope.
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

// The error of a failed libhdf5 call: "it is damaged: `what` cannot be read
// (libhdf5: its message)". kUnimplemented if the message is about a version.
Status Damaged(std::string_view what);

// Everything that is reachable from the root group of `file`, which has `size` bytes. Each group is
// visited once. Datasets whose chunks decode to more than `most_chunk` bytes get a problem.
StatusOr<Index> Walk(hid_t file, std::uint64_t size, std::uint64_t most_chunk);

// A file opened by libhdf5. Not thread-safe.
class Library {
 public:
  // `bytes` must not be sequential and must outlive the library; libhdf5 opens no other file.
  // `most_chunk`: limit on the decoded bytes of a chunk.
  static StatusOr<std::unique_ptr<Library>> Open(ByteSource& bytes, std::uint64_t most_chunk);

  StatusOr<Index> ReadIndex() { return Walk(file_.get(), size_, most_chunk_); }
  // Reads a block of the dataset at `address`, elements as stored: from index `start`, `count`
  // indices in each dimension.
  Status ReadBlock(std::uint64_t address, std::span<const std::uint64_t> start,
                   std::span<const std::uint64_t> count, std::span<std::byte> out);

 private:
  std::uint64_t size_ = 0, most_chunk_ = 0;
  bool opened_ = false;
  Handle driver_, file_;
  Handle dataset_;  // the last one read
  std::uint64_t address_ = 0;
};

}  // namespace zt::hdf5::internal
