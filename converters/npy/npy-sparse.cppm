// zt.convert.npy:sparse — the components of a sparse matrix, made of the arrays of a scipy archive.
module zt.convert.npy:sparse;

import zt.std;
import :array;
import zt.core;

namespace zt::npy::internal {

// Serves one component of the object by range. A range lies within the component.
class ComponentReader {
 public:
  virtual ~ComponentReader() = default;
  virtual Status Read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual bool sequential() const = 0;
};

// Integers of any width as u64, each less than `bound`.
class IndexArray {
 public:
  inline IndexArray(std::unique_ptr<ArrayReader> array, DType dtype, std::uint64_t bound)
      : array_(std::move(array)), dtype_(dtype), bound_(bound) {}

  // Elements out of bounds, and negative ones, are kDataLoss.
  Status Get(std::uint64_t first, std::span<std::uint64_t> out);
  inline bool sequential() const { return array_->sequential(); }

 private:
  std::unique_ptr<ArrayReader> array_;
  DType dtype_;
  std::uint64_t bound_;
};

inline constexpr std::size_t kScan = 32768;  // indices to look at in one go

// Pointers of compressed rows or columns, ascending from 0.
using PointerArray = std::shared_ptr<const std::vector<std::uint64_t>>;

// Serves the values in the order of the file.
std::unique_ptr<ComponentReader> StoredValues(std::unique_ptr<ArrayReader> array);

// `count` elements of each array one after another, beginning with element first[i] of array i.
std::unique_ptr<ComponentReader> WidenedIndices(std::vector<IndexArray> arrays,
                                                std::vector<std::uint64_t> first,
                                                std::uint64_t count);

std::unique_ptr<ComponentReader> Pointers(PointerArray rows);

// Serves columns or values in row order; columns ascend within a row, and entries of the same place keep their order.
// One band of rows is made at a time: a csr file's by sorting each row, a csc file's by one pass over the file.
struct SortedBandsOf {
  bool columns = false;         // the file is csc
  PointerArray pointers, rows;  // the file's own, and the result's
  IndexArray indices;
  std::unique_ptr<ArrayReader> data;  // to serve values; null to serve columns
  std::size_t width = 8;              // bytes of what is served
  std::uint64_t memory_limit = 0;
};
std::unique_ptr<ComponentReader> SortedBands(SortedBandsOf of);

}  // namespace zt::npy::internal
