// zt.convert.npy — scipy's sparse .npz: csr and csc as sparse_csr, coo as sparse_coo.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :array;
import :arrays;
import :header;
import :sparse;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt::npy::internal {
namespace {

class ScipySource final : public TensorSource {
 public:
  ScipySource(std::shared_ptr<ZipArchive> archive, std::span<const EntryArray> arrays,
              std::optional<ElementType> void_type, std::uint64_t memory_limit)
      : archive_(std::move(archive)),
        arrays_(arrays.begin(), arrays.end()),
        void_type_(std::move(void_type)),
        memory_limit_(memory_limit),
        bands_(std::make_shared<StridedBands>(memory_limit / 2)) {}

  Status Init(std::string_view format, std::string name) {
    ZT_ASSIGN_OR_RETURN(const Shape shape, ReadShape());
    if (format == "csr" || format == "csc") {
      ZT_RETURN_IF_ERROR(InitCompressed(format == "csc", shape));
    } else if (format == "coo") {
      ZT_RETURN_IF_ERROR(InitCoo(shape));
    } else {
      return Unsupported("scipy's sparse format " + Quote(format) +
                         " is not supported (csr, csc and coo are); keep its arrays as they are "
                         "(--sparse keep), or convert it with tocsr()");
    }
    std::vector<std::string> others;
    for (const EntryArray& array : arrays_) {
      if (used_.contains(array.index)) continue;
      if (array.name == "format" || array.name == "_is_array") continue;  // see IsSparseArray
      others.push_back(array.name);
    }
    if (!others.empty()) {
      warnings_.push_back(
          ListNames("entries that are not part of the sparse matrix left out:", others));
    }
    // A matrix and a sparse array of two dimensions differ in what * means, so scipy tells them apart.
    ZT_ASSIGN_OR_RETURN(const bool is_array, IsSparseArray(*archive_, arrays_));
    if (is_array && shape.size() == 2) {
      SetMember(objects_.front().attributes, kScipyIsArray, true);
    }
    objects_.front().name = std::move(name);
    return ValidateObject(objects_.front());
  }

  std::string_view format() const override { return "npz"; }
  const std::string& file(ComponentId) const override { return archive_->name(); }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const std::uint64_t size = objects_[id.object].components[id.component].bytes;
    if (offset > size || out.size() > size - offset) {
      return InvalidArgument("a range beyond the component's " + std::to_string(size) + " bytes");
    }
    return components_[id.component]->Read(offset, out);
  }
  bool sequential(ComponentId id) const override { return components_[id.component]->sequential(); }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (const auto& [entry, data] : used_) {
      ZT_RETURN_IF_ERROR(AtTensor(*this, {},
                                  Annotate(archive_->Verify(entry, data),
                                           "entry " + Quote(archive_->entries()[entry].name))));
    }
    return OkStatus();
  }

 private:
  const EntryArray* Find(std::string_view name) const {
    for (const EntryArray& array : arrays_) {
      if (array.name == name) return &array;
    }
    return nullptr;
  }

  struct Opened {
    std::unique_ptr<ArrayReader> reader;
    ArrayType type;
    Shape shape;
    std::uint64_t count = 0;  // elements
  };
  // Opens an array of the archive with a read position of its own.
  StatusOr<Opened> Open(std::string_view name, std::size_t rank = 1) {
    const EntryArray* const array = Find(name);
    if (array == nullptr) return InvalidData("the sparse matrix lacks entry " + Quote(name));
    auto opened = OpenEntry(*array, rank);
    if (!opened.ok()) return Annotate(opened.status(), "entry " + Quote(name));
    return opened;
  }
  StatusOr<Opened> OpenEntry(const EntryArray& array, std::size_t rank) {
    ZT_RETURN_IF_ERROR(array.unreadable);
    Opened opened;
    opened.shape = array.header.shape;
    if (opened.shape.size() != rank) {
      return InvalidData("shape " + ToString(opened.shape) + ", " + std::to_string(rank) +
                         " dimensions were expected");
    }
    ZT_ASSIGN_OR_RETURN(opened.type, TypeOf(array.header.descr, void_type_));
    ZT_ASSIGN_OR_RETURN(auto bytes, archive_->OpenEntry(array.index));
    const std::uint64_t entry_size = *bytes->size();
    ZT_ASSIGN_OR_RETURN(opened.reader, ArrayReader::Make(std::move(bytes), array.header,
                                                         opened.type, memory_limit_, bands_));
    if (array.header.size + opened.reader->size() != entry_size) {
      return InvalidData("its header declares " +
                         std::to_string(array.header.size + opened.reader->size()) +
                         " bytes, its entry has " + std::to_string(entry_size));
    }
    opened.count = opened.reader->size() / opened.type.width;
    used_.emplace(array.index, array.header.size);
    return opened;
  }
  StatusOr<IndexArray> OpenIndices(std::string_view name, std::uint64_t bound,
                                   std::size_t rank = 1) {
    ZT_ASSIGN_OR_RETURN(Opened opened, Open(name, rank));
    const DType dtype = opened.type.element.dtype;
    if (!opened.type.element.type.empty() || (!IsSignedInt(dtype) && !IsUnsignedInt(dtype))) {
      return InvalidData("entry " + Quote(name) + " holds " +
                         std::string(Name(opened.type.element)) + ", integers were expected");
    }
    return IndexArray(std::move(opened.reader), dtype, bound);
  }

  StatusOr<Shape> ReadShape() {
    ZT_ASSIGN_OR_RETURN(IndexArray dims, OpenIndices("shape", kUnbounded));
    const std::uint64_t rank = Find("shape")->header.shape[0];
    if (rank > kMaxRank) return InvalidData("rank " + std::to_string(rank) + " exceeds 64");
    Shape shape(rank);
    ZT_RETURN_IF_ERROR(Annotate(dims.Get(0, shape), "entry 'shape'"));
    return shape;
  }

  // Reads the pointers of `count` rows or columns. They begin with 0, never fall, and end with at most `entries`.
  StatusOr<PointerArray> ReadPointers(std::uint64_t count, std::uint64_t entries) {
    ZT_ASSIGN_OR_RETURN(IndexArray stored, OpenIndices("indptr", kUnbounded));
    const std::uint64_t have = Find("indptr")->header.shape[0];
    if (have == 0 || have - 1 != count) {
      return InvalidData("entry 'indptr' has " + std::to_string(have) +
                         " elements, the shape asks for " + std::to_string(count) +
                         " and one more");
    }
    auto pointers = std::make_shared<std::vector<std::uint64_t>>(have);
    for (std::uint64_t at = 0; at < have; at += kScan) {
      const auto step = std::min<std::uint64_t>(kScan, have - at);
      ZT_RETURN_IF_ERROR(
          Annotate(stored.Get(at, std::span(*pointers).subspan(at, step)), "entry 'indptr'"));
    }
    if (pointers->front() != 0) return InvalidData("entry 'indptr' does not begin with 0");
    if (!std::is_sorted(pointers->begin(), pointers->end())) {
      return InvalidData("entry 'indptr' falls");
    }
    if (pointers->back() > entries) {
      return InvalidData("entry 'indptr' ends with " + std::to_string(pointers->back()) +
                         ", there are " + std::to_string(entries) + " entries");
    }
    return PointerArray(std::move(pointers));
  }

  // Checks every index once. Finds whether each row's columns ascend or, for a csc file, counts the row pointers.
  struct Scan {
    PointerArray rows;
    bool sorted = true;
  };
  StatusOr<Scan> ScanIndices(bool columns, const PointerArray& pointers, std::uint64_t rows,
                             std::uint64_t bound) {
    Scan scan{columns ? nullptr : pointers, !columns};
    std::vector<std::uint64_t> counts(columns ? rows + 1 : 0);
    ZT_ASSIGN_OR_RETURN(IndexArray indices, OpenIndices("indices", bound));
    std::vector<std::uint64_t> some;
    std::uint64_t major = 0, previous = 0;
    for (std::uint64_t at = 0; at < pointers->back(); at += kScan) {
      some.resize(std::min<std::uint64_t>(kScan, pointers->back() - at));
      ZT_RETURN_IF_ERROR(Annotate(indices.Get(at, some), "entry 'indices'"));
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (columns) {
          ++counts[some[i] + 1];
          continue;
        }
        while ((*pointers)[major + 1] <= at + i) ++major;
        if ((*pointers)[major] != at + i && some[i] < previous) scan.sorted = false;
        previous = some[i];
      }
    }
    if (columns) {
      std::partial_sum(counts.begin(), counts.end(), counts.begin());
      scan.rows = std::make_shared<const std::vector<std::uint64_t>>(std::move(counts));
    }
    return scan;
  }

  Status InitCompressed(bool columns, const Shape& shape) {
    if (shape.size() != 2) {
      return Unsupported("a sparse matrix of shape " + ToString(shape) +
                         " is not supported, two dimensions are needed");
    }
    const std::uint64_t majors = shape[columns ? 1 : 0], minors = shape[columns ? 0 : 1];
    const auto pointers_needed = CheckedAdd(shape[0], columns ? shape[1] : 0);
    if (!pointers_needed || *pointers_needed >= memory_limit_ / 2 / 8) {
      return Unsupported("the row pointers of shape " + ToString(shape) +
                         " take more than half the memory limit; raise it");
    }
    ZT_ASSIGN_OR_RETURN(Opened data, Open("data"));
    const EntryArray* const indices = Find("indices");
    if (indices == nullptr) return InvalidData("the sparse matrix lacks entry 'indices'");
    if (indices->header.shape != data.shape) {
      return InvalidData("entries 'indices' and 'data' differ in their number of elements");
    }
    ZT_ASSIGN_OR_RETURN(const PointerArray pointers, ReadPointers(majors, data.count));
    const std::uint64_t entries = pointers->back();
    if (entries < data.count) {
      warnings_.push_back(std::to_string(data.count - entries) +
                          " elements of 'indices' and 'data' lie beyond the last row and are left "
                          "out");
    }
    ZT_ASSIGN_OR_RETURN(const Scan scan, ScanIndices(columns, pointers, shape[0], minors));
    Declare("sparse_csr", shape, data.type, entries);
    objects_.front().components.push_back({"indices", {DType::kU64, ""}, entries * 8});
    objects_.front().components.push_back({"indptr", {DType::kU64, ""}, (shape[0] + 1) * 8});
    ZT_ASSIGN_OR_RETURN(IndexArray for_indices, OpenIndices("indices", minors));
    if (scan.sorted) {
      components_.push_back(StoredValues(std::move(data.reader)));
      std::vector<IndexArray> arrays;
      arrays.push_back(std::move(for_indices));
      components_.push_back(
          WidenedIndices(std::move(arrays), std::vector<std::uint64_t>{0}, entries));
    } else {
      ZT_ASSIGN_OR_RETURN(IndexArray for_values, OpenIndices("indices", minors));
      components_.push_back(
          SortedBands({columns, pointers, scan.rows, std::move(for_values), std::move(data.reader),
                       data.type.width, memory_limit_ / 4}));
      components_.push_back(SortedBands(
          {columns, pointers, scan.rows, std::move(for_indices), nullptr, 8, memory_limit_ / 4}));
    }
    components_.push_back(Pointers(scan.rows));
    return OkStatus();
  }

  // A matrix has its coordinates in 'row' and 'col'; an array in 'coords', one row of it for each dimension.
  Status InitCoo(const Shape& shape) {
    ZT_ASSIGN_OR_RETURN(Opened data, Open("data"));
    const bool together = Find("coords") != nullptr;
    if (!together && shape.size() != 2) {
      return InvalidData("a coo array of shape " + ToString(shape) + " lacks entry 'coords'");
    }
    std::vector<IndexArray> arrays;
    std::vector<std::uint64_t> first;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const std::string_view name = together ? "coords" : k == 0 ? "row" : "col";
      ZT_ASSIGN_OR_RETURN(IndexArray array, OpenIndices(name, shape[k], together ? 2 : 1));
      const Shape expected = together ? Shape{shape.size(), data.count} : Shape{data.count};
      if (Find(name)->header.shape != expected) {
        return InvalidData("entry " + Quote(name) + " has shape " +
                           ToString(Find(name)->header.shape) + ", " + ToString(expected) +
                           " was expected");
      }
      arrays.push_back(std::move(array));
      first.push_back(together ? k * data.count : 0);
    }
    const auto coords = CheckedMul(data.count, shape.size() * 8);
    if (!coords) return InvalidData("coords overflow 64 bits");
    Declare("sparse_coo", shape, data.type, data.count);
    objects_.front().components.push_back({"coords", {DType::kU64, ""}, *coords});
    components_.push_back(StoredValues(std::move(data.reader)));
    components_.push_back(WidenedIndices(std::move(arrays), std::move(first), data.count));
    return OkStatus();
  }

  void Declare(std::string_view format, const Shape& shape, const ArrayType& type,
               std::uint64_t entries) {
    Object object;
    object.format = format;
    object.shape = shape;
    object.components.push_back({"values", type.element, entries * type.width});
    objects_.push_back(std::move(object));
  }

  static constexpr std::uint64_t kUnbounded = std::numeric_limits<std::uint64_t>::max();

  std::shared_ptr<ZipArchive> archive_;
  std::vector<EntryArray> arrays_;
  std::optional<ElementType> void_type_;
  std::uint64_t memory_limit_;
  std::shared_ptr<StridedBands> bands_;
  std::vector<std::unique_ptr<ComponentReader>> components_;
  std::map<std::size_t, std::uint64_t> used_;  // entry -> where its array begins
};

}  // namespace

StatusOr<std::optional<std::string>> ScipyFormat(ZipArchive& archive,
                                                 std::span<const EntryArray> arrays) {
  const EntryArray* format = nullptr;
  bool shape = false, data = false;
  for (const EntryArray& array : arrays) {
    if (!array.unreadable.ok()) continue;
    if (array.name == "format") format = &array;
    shape |= array.name == "shape";
    data |= array.name == "data";
  }
  if (format == nullptr || !shape || !data) return std::nullopt;
  const Descr& descr = format->header.descr;
  if (!format->header.shape.empty() || (descr.kind != 'S' && descr.kind != 'U')) {
    return std::nullopt;
  }
  // The name has three letters, as bytes or in UCS-4 of either byte order.
  const std::uint64_t unit = descr.kind == 'U' ? 4 : 1;
  if (descr.width > 8) return std::nullopt;
  auto bytes = archive.OpenEntry(format->index);
  std::array<std::byte, 32> raw;
  const auto text_bytes = std::span(raw).first(descr.width * unit);
  if (!bytes.ok()) return std::nullopt;
  ZT_RETURN_IF_ERROR(WithTensor((*bytes)->ReadAt(format->header.size, text_bytes), format->name));
  std::string text;
  for (const std::byte letter : text_bytes) {
    if (letter != std::byte{0}) text += static_cast<char>(letter);
  }
  for (const std::string_view known : {"csr", "csc", "coo", "bsr", "dia"}) {
    if (text == known) return std::optional(text);
  }
  return std::nullopt;
}

StatusOr<bool> IsSparseArray(ZipArchive& archive, std::span<const EntryArray> arrays) {
  for (const EntryArray& array : arrays) {
    if (array.name != "_is_array" || !array.unreadable.ok()) continue;
    const Descr& descr = array.header.descr;
    if (!array.header.shape.empty() || descr.kind != 'b' || descr.width != 1) continue;
    ZT_ASSIGN_OR_RETURN(const auto bytes, archive.OpenEntry(array.index));
    std::array<std::byte, 1> flag;
    ZT_RETURN_IF_ERROR(WithTensor(bytes->ReadAt(array.header.size, flag), array.name));
    return flag[0] != std::byte{0};
  }
  return false;
}

StatusOr<std::unique_ptr<TensorSource>> OpenScipy(std::shared_ptr<ZipArchive> archive,
                                                  std::span<const EntryArray> arrays,
                                                  std::string_view format, std::string name,
                                                  const std::optional<ElementType>& void_type,
                                                  std::uint64_t memory_limit) {
  auto source = std::make_unique<ScipySource>(std::move(archive), arrays, void_type, memory_limit);
  ZT_RETURN_IF_ERROR(source->Init(format, std::move(name)));
  return source;
}

}  // namespace zt::npy::internal
