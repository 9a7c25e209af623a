// zt.convert.npy:array — an array's bytes as zTensor wants them: little-endian, C order, by range.
module;

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

module zt.convert.npy:array;

import :header;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// A column-major array served in C order. The output is cut into bands, boxes of the array whose
// C-ordered bytes are contiguous and fit the limit; a band is gathered tile by tile from the runs
// it consists of in the file, and each tile is transposed in cache. At most two bands and a tile a
// thread are held. Thread-safe.
class FortranView {
 public:
  // `shape` has rank >= 2 and no dimension 0. Reads are of `bytes` from byte `data`.
  FortranView(ByteSource& bytes, std::uint64_t data, Shape shape, const ArrayType& type,
              std::uint64_t memory_limit);

  Status Read(std::uint64_t offset, std::span<std::byte> out);

 private:
  struct Box {
    Shape low, size;
  };
  struct Band {
    std::mutex mutex;
    std::uint64_t index = ~std::uint64_t{0};
    std::vector<std::byte> bytes;
  };

  // How a box is fetched: in tiles, each read in runs. A run is what one read fetches: the dimensions before `partial`
  // whole, `partial` in steps.
  struct Tiling {
    std::vector<std::size_t>
        varying;  // dimensions with more than one index in the box: the first is the fastest in
                  // the file, the last in the output
    Shape step;   // indices of each dimension in a tile
    std::uint64_t run = 1;  // elements
    std::size_t partial = 0;
    bool apart = false;  // the last dimension lies across runs
  };

  Box BandBox(std::uint64_t prefix, std::uint64_t block) const;
  Tiling TilesOf(const Box& box) const;
  Status Load(const Box& box, std::span<std::byte> out);
  // The tile at `at`, which is relative to the box, through the buffer `tile`.
  Status LoadTile(const Box& box, const Tiling& tiling, const Shape& at, const Shape& out_strides,
                  std::span<std::byte> tile, std::span<std::byte> out);
  void Release();

  ByteSource& bytes_;
  const std::uint64_t data_;
  const Shape shape_;
  const std::uint64_t width_, swap_;
  Shape strides_;        // in the file, in elements
  std::uint64_t total_;  // bytes
  std::uint64_t tile_;   // bytes of a tile
  std::size_t split_;    // a band is a range of this dimension, whole in those after, one index in
                         // those before
  std::uint64_t inner_;  // elements of one index of split_
  std::uint64_t block_;  // indices of split_ in a band
  std::array<Band, 2> bands_;  // by the parity of the band
  std::atomic<std::uint64_t> served_ = 0;
};

// One array of a file or an entry.
class ArrayReader {
 public:
  // `bytes` hold the header and the array. Refuses a Fortran-ordered array that would have to be
  // held and exceeds the limit.
  static StatusOr<std::unique_ptr<ArrayReader>> Make(std::shared_ptr<ByteSource> bytes,
                                                     const Header& header, const ArrayType& type,
                                                     std::uint64_t memory_limit);

  // Thread-safe unless sequential().
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  inline bool sequential() const { return bytes_->sequential(); }
  // True where the bytes are served as they lie, from data() of bytes().
  inline bool direct() const { return !fortran_ && type_.swap == 1; }
  inline ByteSource& bytes() const { return *bytes_; }
  inline std::uint64_t data() const { return data_; }
  inline std::uint64_t size() const { return size_; }

 private:
  ArrayReader() = default;
  Status ReadSwapped(std::uint64_t offset, std::span<std::byte> out);
  Status ReadElement(std::uint64_t index, std::span<std::byte> out);
  Status ReadHeld(std::uint64_t offset, std::span<std::byte> out);

  std::shared_ptr<ByteSource> bytes_;
  ArrayType type_;
  Shape shape_;  // without dimensions of 1
  std::uint64_t data_ = 0, size_ = 0, memory_limit_ = 0;
  bool fortran_ = false;  // and the order makes a difference

  std::unique_ptr<FortranView> view_;
  // A sequential Fortran-ordered array, from its first Read to its last byte.
  std::vector<std::byte> held_;
  std::shared_ptr<ByteSource> held_bytes_;
  // The element a sequential Read ended within.
  std::uint64_t split_index_ = ~std::uint64_t{0};
  std::array<std::byte, 8> split_element_{};
};

}  // namespace zt::npy::internal
