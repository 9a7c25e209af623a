// zt.convert.npy — scipy's sparse .npz: csr and csc become sparse_csr, coo becomes sparse_coo.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :arrays;
import :header;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::npy::internal {
namespace {

// Number of indices validated at once.
constexpr std::size_t kScan = 32768;

// Row or column pointers, ascending from 0.
using PointerArray = std::shared_ptr<const std::vector<std::uint64_t>>;

// Integers of any width, read as u64, all below `bound`.
class IndexArray {
 public:
  IndexArray(std::unique_ptr<ArrayReader> array, DType dtype, std::uint64_t bound)
      : array_(std::move(array)), dtype_(dtype), bound_(bound) {}

  // kDataLoss if an element is negative or out of bounds.
  Status Get(std::uint64_t first, std::span<std::uint64_t> out) {
    const std::size_t width = ByteWidth(dtype_);
    std::vector<std::byte> raw(out.size() * width);
    ZT_RETURN_IF_ERROR(array_->Read(first * width, raw));
    ZT_RETURN_IF_ERROR(WidenToU64(raw, dtype_, out));
    for (const std::uint64_t index : out) {
      if (index >= bound_) {
        return InvalidData("index " + std::to_string(index) + " is not below the dimension, " +
                           std::to_string(bound_));
      }
    }
    return OkStatus();
  }

  bool sequential() const { return array_->sequential(); }

 private:
  std::unique_ptr<ArrayReader> array_;
  DType dtype_;
  std::uint64_t bound_;
};

// Serves values and columns from memory, sorted by row and column; duplicate
// entries keep their order.
class SortedEntries {
 public:
  // `pointers` are the file's pointers (of columns for csc), `rows` the row pointers of the result.
  SortedEntries(bool columns, PointerArray pointers, PointerArray rows, IndexArray indices,
                std::unique_ptr<ArrayReader> data, std::size_t width)
      : columns_(columns),
        pointers_(std::move(pointers)),
        rows_(std::move(rows)),
        indices_(std::move(indices)),
        data_(std::move(data)),
        width_(width) {}

  // Bytes of memory per entry.
  static std::uint64_t Cost(bool columns, std::size_t width) {
    return (columns ? 1 : 2) * sizeof(std::uint64_t) + width;
  }
  bool sequential() const { return indices_.sequential() || data_->sequential(); }

  Status Read(bool values, std::uint64_t offset, std::span<std::byte> out) {
    const std::lock_guard lock(mutex_);
    if (minor_.empty()) ZT_RETURN_IF_ERROR(columns_ ? LoadColumns() : LoadRows());
    const std::size_t width = values ? width_ : sizeof(std::uint64_t);
    const auto from =
        values ? std::span<const std::byte>(values_) : std::as_bytes(std::span(minor_));
    return ReadUnits(offset, out, width, [&](std::uint64_t at, std::span<std::byte> whole) {
      for (std::size_t i = 0; i < whole.size() / width; ++i) {
        const std::uint64_t served = at / width + i;
        const std::uint64_t entry = columns_ ? served : order_[served];
        std::memcpy(whole.data() + i * width, from.data() + entry * width, width);
      }
      if (!values) LittleEndian(whole, width);
      return OkStatus();
    });
  }

 private:
  // Puts each entry of a column at the end of its row so far: columns ascend.
  Status LoadColumns() {
    const std::uint64_t count = rows_->back();
    std::vector<std::uint64_t> minor(count), next = *rows_, some;
    std::vector<std::byte> values(count * width_), raw;
    std::uint64_t column = 0;
    for (std::uint64_t at = 0; at < count; at += some.size()) {
      some.resize(std::min<std::uint64_t>(kScan, count - at));
      raw.resize(some.size() * width_);
      ZT_RETURN_IF_ERROR(indices_.Get(at, some));
      ZT_RETURN_IF_ERROR(data_->Read(at * width_, raw));
      for (std::size_t i = 0; i < some.size(); ++i) {
        while ((*pointers_)[column + 1] <= at + i) ++column;
        const std::uint64_t place = next[some[i]]++;
        if (place >= (*rows_)[some[i] + 1])
          return InvalidData(
              "it has changed while it was read: a row has more entries than before");
        minor[place] = column;
        std::memcpy(values.data() + place * width_, raw.data() + i * width_, width_);
      }
    }
    minor_ = std::move(minor);
    values_ = std::move(values);
    return OkStatus();
  }
  // Reads all entries, and sorts the numbers of those of each row.
  Status LoadRows() {
    const std::uint64_t count = rows_->back();
    std::vector<std::uint64_t> minor(count), order(count);
    for (std::uint64_t at = 0; at < count; at += kScan) {
      const auto step = std::min<std::uint64_t>(kScan, count - at);
      ZT_RETURN_IF_ERROR(indices_.Get(at, std::span(minor).subspan(at, step)));
    }
    std::vector<std::byte> values(count * width_);
    ZT_RETURN_IF_ERROR(data_->Read(0, values));
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    for (std::size_t row = 0; row + 1 < rows_->size(); ++row) {
      std::sort(order.begin() + static_cast<std::ptrdiff_t>((*rows_)[row]),
                order.begin() + static_cast<std::ptrdiff_t>((*rows_)[row + 1]),
                [&](std::uint64_t a, std::uint64_t b) {
                  return std::pair(minor[a], a) < std::pair(minor[b], b);
                });
    }
    minor_ = std::move(minor);
    values_ = std::move(values);
    order_ = std::move(order);
    return OkStatus();
  }

  const bool columns_;  // the file is csc
  const PointerArray pointers_, rows_;
  IndexArray indices_;
  const std::unique_ptr<ArrayReader> data_;
  const std::size_t width_;
  std::mutex mutex_;
  std::vector<std::uint64_t> minor_;  // column indices, in the order of values_; empty before Load
  std::vector<std::byte> values_;     // of csc as served, of csr in the file's order
  std::vector<std::uint64_t> order_;  // of csr: maps served position to file position
};

// `count` indices of each array, one array after the other; those of array i begin
// at element first[i].
struct WidenedIndices {
  std::vector<IndexArray> arrays;
  std::vector<std::uint64_t> first;
  std::uint64_t count;

  bool sequential() const {
    return std::ranges::any_of(arrays, [](const IndexArray& array) { return array.sequential(); });
  }
  Status Read(std::uint64_t offset, std::span<std::byte> out) {
    return ReadUnits(offset, out, 8, [&](std::uint64_t at, std::span<std::byte> whole) {
      return ReadWhole(at / 8, whole);
    });
  }
  Status ReadWhole(std::uint64_t element, std::span<std::byte> out) {
    std::vector<std::uint64_t> indices;
    for (; !out.empty(); element += indices.size()) {
      const std::uint64_t which = element / count, at = element % count;
      indices.resize(std::min<std::uint64_t>({out.size() / 8, count - at, kScan}));
      ZT_RETURN_IF_ERROR(arrays[which].Get(first[which] + at, indices));
      const auto bytes = std::as_writable_bytes(std::span(indices));
      LittleEndian(bytes, 8);
      std::ranges::copy(bytes, out.begin());
      out = out.subspan(bytes.size());
    }
    return OkStatus();
  }
};

// Reads one component of the matrix by range.
struct ComponentReader {
  bool sequential = false;
  std::function<Status(std::uint64_t, std::span<std::byte>)> read;
};

template <class Reader>
ComponentReader Serve(std::shared_ptr<Reader> reader) {
  return {reader->sequential(), [reader](std::uint64_t offset, std::span<std::byte> out) {
            return reader->Read(offset, out);
          }};
}

ComponentReader Serve(bool values, std::shared_ptr<SortedEntries> entries) {
  return {entries->sequential(), [=](std::uint64_t offset, std::span<std::byte> out) {
            return entries->Read(values, offset, out);
          }};
}

ComponentReader Serve(const PointerArray& rows) {
  return {false, [rows](std::uint64_t offset, std::span<std::byte> out) {
            return ReadUnits(offset, out, 8, [&](std::uint64_t at, std::span<std::byte> whole) {
              std::ranges::copy(std::as_bytes(std::span(*rows)).subspan(at, whole.size()),
                                whole.begin());
              LittleEndian(whole, 8);
              return OkStatus();
            });
          }};
}

class ScipySource final : public TensorSource {
 public:
  ScipySource(std::shared_ptr<ZipArchive> archive, std::span<const EntryArray> arrays,
              std::optional<ElementType> void_type, std::uint64_t memory_limit)
      : archive_(std::move(archive)),
        arrays_(arrays.begin(), arrays.end()),
        void_type_(std::move(void_type)),
        memory_limit_(memory_limit),
        memory_(memory_limit) {}

  Status Init(std::string_view format, std::string name) {
    ZT_ASSIGN_OR_RETURN(const Shape shape, ReadShape());
    if (format == "csr" || format == "csc") {
      ZT_RETURN_IF_ERROR(InitCompressed(format == "csc", shape));
    } else if (format == "coo") {
      ZT_RETURN_IF_ERROR(InitCoo(shape));
    } else {
      return NoMatrix("scipy's sparse format " + Quote(format) +
                      " is not supported (csr, csc and coo are)");
    }
    NameList others;
    for (const EntryArray& array : arrays_) {
      if (used_.contains(array.index)) continue;
      if (array.name == "format" || array.name == "_is_array") continue;  // see IsSparseArray
      others.Add(Quote(array.name));
    }
    if (!others.empty()) {
      AddWarning("entries that are not part of the sparse matrix left out: " + others.ToString());
    }
    // Operator * differs between matrices and two-dimensional sparse arrays, so scipy
    // distinguishes them.
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
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    return components_[id.component].read(offset, out);
  }
  bool sequential(ComponentId id) const override { return components_[id.component].sequential; }
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

  // The archive holds no matrix that can be read, although its arrays have the names of one.
  static Status NoMatrix(const std::string& why) { return FailedPrecondition(why); }
  static Status Lacks(std::string_view name) {
    return NoMatrix("the sparse matrix lacks entry " + Quote(name));
  }

  struct Opened {
    std::unique_ptr<ArrayReader> reader;
    ArrayType type;
    Shape shape;
    std::uint64_t count = 0;  // number of elements
  };
  // Opens an array of the archive; each call has its own read position.
  StatusOr<Opened> Open(std::string_view name, std::size_t rank = 1) {
    const EntryArray* const array = Find(name);
    if (array == nullptr) return Lacks(name);
    auto opened = OpenEntry(*array, rank);
    if (!opened.ok()) return Annotate(opened.status(), "entry " + Quote(name));
    return opened;
  }
  StatusOr<Opened> OpenEntry(const EntryArray& array, std::size_t rank) {
    ZT_RETURN_IF_ERROR(array.unreadable);
    Opened opened;
    opened.shape = array.header.shape;
    if (opened.shape.size() != rank) {
      return NoMatrix("shape " + ToString(opened.shape) + ", " + std::to_string(rank) +
                      " dimensions were expected");
    }
    ZT_ASSIGN_OR_RETURN(opened.type, TypeOf(array.header.descr, void_type_));
    ZT_ASSIGN_OR_RETURN(auto bytes, archive_->OpenEntry(array.index));
    const std::uint64_t entry_size = *bytes->size();
    ZT_ASSIGN_OR_RETURN(opened.reader,
                        ArrayReader::Make(std::move(bytes), array.header, opened.type, memory_));
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

  // Reads the pointers of `count` rows or columns, and checks that they begin with 0, never
  // decrease, and end with at most `entries`.
  StatusOr<PointerArray> ReadPointers(std::uint64_t count, std::uint64_t entries) {
    ZT_ASSIGN_OR_RETURN(IndexArray stored, OpenIndices("indptr", kUnbounded));
    const std::uint64_t have = Find("indptr")->header.shape[0];
    if (have == 0 || have - 1 != count) {
      return InvalidData("entry 'indptr' has " + std::to_string(have) +
                         " elements, the shape needs one more than " + std::to_string(count));
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

  // Validates every index. Finds out whether columns are sorted within each row; for csc,
  // computes the row pointers.
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

  // What csr and csc have in common. `majors`: rows of csr, columns of csc.
  struct Compressed {
    Opened data;
    PointerArray pointers;
    std::uint64_t entries = 0;
  };
  StatusOr<Compressed> OpenCompressed(std::uint64_t majors) {
    Compressed matrix;
    ZT_ASSIGN_OR_RETURN(matrix.data, Open("data"));
    const EntryArray* const indices = Find("indices");
    if (indices == nullptr) return Lacks("indices");
    if (indices->header.shape != matrix.data.shape) {
      return InvalidData("entries 'indices' and 'data' differ in their number of elements");
    }
    ZT_ASSIGN_OR_RETURN(matrix.pointers, ReadPointers(majors, matrix.data.count));
    matrix.entries = matrix.pointers->back();
    if (matrix.entries < matrix.data.count) {
      warnings_.push_back(std::to_string(matrix.data.count - matrix.entries) +
                          " elements of 'indices' and 'data' lie beyond the last row and are left "
                          "out");
    }
    return matrix;
  }

  // A csr array of one dimension is one row: its column indices are coordinates.
  Status InitLine(const Shape& shape) {
    ZT_ASSIGN_OR_RETURN(Compressed line, OpenCompressed(1));
    ZT_ASSIGN_OR_RETURN(IndexArray indices, OpenIndices("indices", shape[0]));
    auto widened = std::make_shared<WidenedIndices>();
    widened->arrays.push_back(std::move(indices));
    widened->first = {0};
    widened->count = line.entries;
    return ServeCoo(shape, std::move(line.data), std::move(widened));
  }

  Status InitCompressed(bool columns, const Shape& shape) {
    if (shape.size() == 1 && !columns) return InitLine(shape);
    if (shape.size() != 2) {
      return Unsupported("a sparse matrix of shape " + ToString(shape) +
                         " is not supported, two dimensions are needed");
    }
    const std::uint64_t majors = shape[columns ? 1 : 0], minors = shape[columns ? 0 : 1];
    const auto pointers_needed = CheckedAdd(shape[0], columns ? shape[1] : 0);
    if (!pointers_needed || *pointers_needed >= memory_limit_ / 2 / 8) {
      return WithAdvice(Unsupported("the row pointers of shape " + ToString(shape) +
                                    " take more than half the memory limit"),
                        Advice::kMemory);
    }
    ZT_ASSIGN_OR_RETURN(Compressed matrix, OpenCompressed(majors));
    auto& [data, pointers, entries] = matrix;
    ZT_ASSIGN_OR_RETURN(const Scan scan, ScanIndices(columns, pointers, shape[0], minors));
    Declare("sparse_csr", shape, data.type, entries);
    objects_.front().components.push_back({"indices", {DType::kU64, ""}, entries * 8});
    objects_.front().components.push_back({"indptr", {DType::kU64, ""}, (shape[0] + 1) * 8});
    ZT_ASSIGN_OR_RETURN(IndexArray for_indices, OpenIndices("indices", minors));
    if (scan.sorted) {
      components_.push_back(Serve(std::shared_ptr(std::move(data.reader))));
      auto widened = std::make_shared<WidenedIndices>();
      widened->arrays.push_back(std::move(for_indices));
      widened->first = {0};
      widened->count = entries;
      components_.push_back(Serve(std::move(widened)));
    } else if (const std::uint64_t cost = SortedEntries::Cost(columns, data.type.width);
               entries > memory_limit_ / cost) {
      return WithAdvice(
          Unsupported("its " + std::to_string(entries) + " entries " +
                      (columns ? "lie by columns" : "are unsorted") +
                      ", and to sort them in memory takes " + std::to_string(cost) +
                      " bytes each, more than the memory limit; save it with tocsr() and "
                      "sort_indices()"),
          Advice::kMemory);
    } else {
      const auto sorted =
          std::make_shared<SortedEntries>(columns, pointers, scan.rows, std::move(for_indices),
                                          std::move(data.reader), data.type.width);
      components_.push_back(Serve(true, sorted));
      components_.push_back(Serve(false, sorted));
    }
    components_.push_back(Serve(scan.rows));
    return OkStatus();
  }

  // A matrix has coordinates in 'row' and 'col'; an array in 'coords', which has
  // one row per dimension.
  Status InitCoo(const Shape& shape) {
    ZT_ASSIGN_OR_RETURN(Opened data, Open("data"));
    const bool together = Find("coords") != nullptr;
    if (!together && shape.size() != 2) {
      return Lacks("coords");
    }
    auto widened = std::make_shared<WidenedIndices>();
    widened->count = data.count;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const std::string_view name = together ? "coords" : k == 0 ? "row" : "col";
      ZT_ASSIGN_OR_RETURN(IndexArray array, OpenIndices(name, shape[k], together ? 2 : 1));
      const Shape expected = together ? Shape{shape.size(), data.count} : Shape{data.count};
      if (Find(name)->header.shape != expected) {
        return InvalidData("entry " + Quote(name) + " has shape " +
                           ToString(Find(name)->header.shape) + ", " + ToString(expected) +
                           " was expected");
      }
      widened->arrays.push_back(std::move(array));
      widened->first.push_back(together ? k * data.count : 0);
    }
    return ServeCoo(shape, std::move(data), std::move(widened));
  }

  Status ServeCoo(const Shape& shape, Opened data, std::shared_ptr<WidenedIndices> widened) {
    const auto coords = CheckedMul(widened->count, shape.size() * 8);
    if (!coords) return InvalidData("coords overflow 64 bits");
    Declare("sparse_coo", shape, data.type, widened->count);
    objects_.front().components.push_back({"coords", {DType::kU64, ""}, *coords});
    components_.push_back(Serve(std::shared_ptr(std::move(data.reader))));
    components_.push_back(Serve(std::move(widened)));
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
  const ArrayMemory memory_;
  std::vector<ComponentReader> components_;
  std::map<std::size_t, std::uint64_t> used_;  // offset of the array in each entry that is used
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
  // The format's name has three letters, as bytes or as UCS-4 of either byte order.
  const std::uint64_t unit = descr.kind == 'U' ? 4 : 1;
  if (descr.width > 8) return std::nullopt;
  auto bytes = archive.OpenEntry(format->index);
  std::array<std::byte, 32> raw;
  const auto text_bytes = std::span(raw).first(descr.width * unit);
  ZT_RETURN_IF_UNAVAILABLE(bytes.status());
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
