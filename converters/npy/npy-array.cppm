// zt.convert.npy:array — an array's bytes as zTensor wants them: little-endian, C order, by range.
module zt.convert.npy:array;

import zt.std;
import :header;
import zt.convert.strided;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt::npy::internal {

// One array of a file or an entry.
class ArrayReader {
 public:
  // `bytes` hold the header and the array. Refuses a Fortran-ordered array that would have to be
  // held and exceeds half the limit; others are gathered in `bands`.
  static StatusOr<std::unique_ptr<ArrayReader>> Make(std::shared_ptr<ByteSource> bytes,
                                                     const Header& header, const ArrayType& type,
                                                     std::uint64_t memory_limit,
                                                     std::shared_ptr<StridedBands> bands);

  // Thread-safe unless sequential().
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  // See TensorSource::preferred_read.
  inline std::uint64_t preferred_read() const {
    return sequential() || view_ == nullptr ? 0 : view_->preferred_read();
  }
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
  void MakeView(ByteSource& bytes, std::uint64_t data, std::shared_ptr<StridedBands> bands);

  std::shared_ptr<ByteSource> bytes_;
  ArrayType type_;
  Shape shape_;  // without dimensions of 1
  std::uint64_t data_ = 0, size_ = 0, memory_limit_ = 0;
  bool fortran_ = false;  // and the order makes a difference

  std::unique_ptr<StridedView> view_;  // where direct() is false
  // A sequential Fortran-ordered array, from its first Read to its last byte.
  BufferPool pool_{0};  // not the heap, which would keep what was freed
  Buffer held_;
  std::shared_ptr<ByteSource> held_bytes_;
  // The element a sequential Read ended within.
  std::uint64_t split_index_ = ~std::uint64_t{0};
  std::array<std::byte, 8> split_element_{};
};

}  // namespace zt::npy::internal
