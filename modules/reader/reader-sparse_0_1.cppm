// zt.reader:sparse_0_1 — sparse entries of 0.1.0, whose single blob mixes values and indices.
// Internal.
module zt.reader:sparse_0_1;

import zt.std;
import :file;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {

// How to extract a component from the single blob of a sparse entry, which mixes values and
// indices.
struct Sparse01Part {
  enum class Kind : std::uint8_t {
    kRange,   // a range of the blob, from `base`
    kCoords,  // the indices of interleaved entries, dimension by dimension
    kValues,  // the values of interleaved entries
  };
  Kind kind = Kind::kRange;
  std::uint64_t base = 0;
  std::uint64_t entries = 0;  // number of interleaved entries
};
// The sparse_csr or sparse_coo object that such an entry stands for.
struct Sparse01Object {
  Object object = {};
  std::vector<Sparse01Part> parts = {};  // one for each component
};
// True if the object is such an entry.
bool IsSparse01(const Reader& reader, std::uint32_t object);
// True for the layouts of such entries.
bool IsSparse01Layout(std::string_view format);
// Splits such an entry into components. kDataLoss if its blob has another size than they,
// kUnimplemented if its structure is not described.
StatusOr<Sparse01Object> TakeApart(const Reader& reader, std::uint32_t object);
// Reads whole elements of a component from byte `offset`. Indices may be out of range.
Status ReadSparse01(const Reader& reader, std::uint32_t object, const Sparse01Object& mixed,
                    std::uint32_t component, std::uint64_t offset, std::span<std::byte> out);

// Checks the indices in such entries. A blob that several entries take apart in the same way is read
// once. `reader` must outlive it. Not thread-safe.
class Sparse01Checker {
 public:
  explicit Sparse01Checker(const Reader& reader) : reader_(reader) {}
  // kDataLoss if a rule is broken, kUnimplemented if the structure is not described.
  Status Check(std::uint32_t object);

 private:
  // What the indices in a blob show, by component.
  using FoundParts = std::map<std::uint32_t, DataValidator>;
  StatusOr<FoundParts> Look(std::uint32_t index, const Sparse01Object& mixed) const;

  const Reader& reader_;
  // The blob, the width of its values, the rank, and of sparse_csr the rows.
  using Key = std::tuple<ContentKey, std::size_t, std::size_t, std::optional<std::uint64_t>>;
  std::map<Key, StatusOr<FoundParts>> looks_;
};

}  // namespace zt::reader::internal
