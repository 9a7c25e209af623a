// zt.convert.hdf5:library — libhdf5: the walk over a file's links, and datasets by blocks. Internal.
//
// libhdf5 trusts what it reads: forged files make it read and write beyond its memory, or loop. It is called only by the
// process that :worker forks.
module zt.convert.hdf5:library;

import zt.std;
import :index;
import zt.core;
import zt.source;

namespace zt::hdf5::internal {

// A file that libhdf5 has opened. One thread at a time.
class Library {
 public:
  // `bytes` is not sequential and outlives the library; it is the only file that libhdf5 opens. `most_chunk` is the most
  // bytes that a chunk may decode to.
  static StatusOr<std::unique_ptr<Library>> Open(ByteSource& bytes, std::uint64_t most_chunk);
  virtual ~Library() = default;

  virtual StatusOr<Index> ReadIndex() = 0;
  // Elements of the dataset at `address` as they are stored: a block from `start`, `count` indices in each dimension.
  virtual Status ReadBlock(std::uint64_t address, std::span<const std::uint64_t> start,
                           std::span<const std::uint64_t> count, std::span<std::byte> out) = 0;
};

}  // namespace zt::hdf5::internal
