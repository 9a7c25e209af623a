// zt.convert.npy — scipy's sparse .npz: csr and csc as sparse_csr, coo as sparse_coo.
module;

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.npy;

import :array;
import :arrays;
import :header;
import :zip;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::npy::internal {
namespace {

constexpr std::size_t kScan = 32768;  // indices looked at in one go

// One component of the object, by range.
class ComponentReader {
 public:
  virtual ~ComponentReader() = default;
  virtual Status Read(std::uint64_t offset, std::span<std::byte> out) = 0;
  virtual bool sequential() const = 0;
};

// Values in the order of the file.
class StoredValues final : public ComponentReader {
 public:
  explicit StoredValues(std::unique_ptr<ArrayReader> array) : array_(std::move(array)) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    return array_->Read(offset, out);
  }
  bool sequential() const override { return array_->sequential(); }

 private:
  std::unique_ptr<ArrayReader> array_;
};

// Integers of any width as u64, each less than `bound`.
class IndexArray {
 public:
  IndexArray(std::unique_ptr<ArrayReader> array, DType dtype, std::uint64_t bound)
      : array_(std::move(array)), dtype_(dtype), bound_(bound) {}

  // At most kScan elements.
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
  inline bool sequential() const { return array_->sequential(); }

 private:
  std::unique_ptr<ArrayReader> array_;
  DType dtype_;
  std::uint64_t bound_;
};

// Index arrays one after another, `count` elements of each.
class WidenedIndices final : public ComponentReader {
 public:
  WidenedIndices(std::vector<IndexArray> arrays, std::vector<std::uint64_t> first,
                 std::uint64_t count)
      : arrays_(std::move(arrays)), first_(std::move(first)), count_(count) {}

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::vector<std::uint64_t> indices;
    while (!out.empty()) {
      const std::uint64_t element = offset / 8, skip = offset % 8;
      const std::uint64_t which = element / count_, at = element % count_;
      const std::uint64_t wanted = (skip + out.size() + 7) / 8;
      indices.resize(std::min({wanted, count_ - at, std::uint64_t{kScan}}));
      ZT_RETURN_IF_ERROR(arrays_[which].Get(first_[which] + at, indices));
      const std::size_t take = std::min<std::size_t>(indices.size() * 8 - skip, out.size());
      std::memcpy(out.data(), reinterpret_cast<const std::byte*>(indices.data()) + skip, take);
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }
  bool sequential() const override {
    return std::any_of(arrays_.begin(), arrays_.end(),
                       [](const IndexArray& array) { return array.sequential(); });
  }

 private:
  std::vector<IndexArray> arrays_;
  std::vector<std::uint64_t> first_;  // element of each array the component begins with
  std::uint64_t count_;
};

// The row pointers, in memory.
class Pointers final : public ComponentReader {
 public:
  explicit Pointers(std::shared_ptr<const std::vector<std::uint64_t>> rows)
      : rows_(std::move(rows)) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(rows_->data()) + offset, out.size());
    return OkStatus();
  }
  bool sequential() const override { return false; }

 private:
  std::shared_ptr<const std::vector<std::uint64_t>> rows_;
};

using PointerArray = std::shared_ptr<const std::vector<std::uint64_t>>;

// Columns or values in row order, columns ascending within a row, entries of equal place in their
// old order. Made a band of rows at a time: of a csr file by sorting each row, of a csc file by one
// pass over it.
class SortedBands final : public ComponentReader {
 public:
  // `pointers` are the file's own: of rows, or of columns where `columns`; `rows` are the result's.
  // Serves values where `data` is given, else columns.
  SortedBands(bool columns, PointerArray pointers, PointerArray rows, IndexArray indices,
              std::unique_ptr<ArrayReader> data, std::size_t width, std::uint64_t memory_limit)
      : columns_(columns),
        pointers_(std::move(pointers)),
        rows_(std::move(rows)),
        indices_(std::move(indices)),
        data_(std::move(data)),
        width_(width),
        max_entries_(std::max<std::uint64_t>(memory_limit / (columns ? width : kSortBytes), 1)) {}

  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(mutex_);
    while (!out.empty()) {
      const std::uint64_t entry = offset / width_;
      if (entry < begin_ || entry >= end_) ZT_RETURN_IF_ERROR(Load(entry));
      const std::uint64_t at = offset - begin_ * width_;
      const std::size_t take = std::min<std::size_t>(band_.size() - at, out.size());
      std::memcpy(out.data(), band_.data() + at, take);
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }
  bool sequential() const override {
    return indices_.sequential() || (data_ != nullptr && data_->sequential());
  }

 private:
  // What sorting holds for an entry: column, order, the value as read and as served.
  static constexpr std::uint64_t kSortBytes = 8 + 8 + 16 + 16;

  Status Load(std::uint64_t entry) {
    const std::vector<std::uint64_t>& rows = *rows_;
    const auto after = std::upper_bound(rows.begin(), rows.end(), entry);
    const auto first = static_cast<std::size_t>(after - rows.begin()) - 1;
    std::size_t last = first + 1;
    while (last + 1 < rows.size() && rows[last + 1] - rows[first] <= max_entries_) ++last;
    if (rows[last] - rows[first] > max_entries_) {
      return Unsupported("row " + std::to_string(first) + " has " +
                         std::to_string(rows[last] - rows[first]) +
                         " entries, too many to sort within the memory limit; raise it");
    }
    begin_ = end_ = 0;  // nothing valid, should this fail
    band_.resize((rows[last] - rows[first]) * width_);
    ZT_RETURN_IF_ERROR(columns_ ? Gather(first, last) : Sort(first, last));
    begin_ = rows[first];
    end_ = rows[last];
    return OkStatus();
  }

  // Rows [first, last) of a csr file.
  Status Sort(std::size_t first, std::size_t last) {
    const std::vector<std::uint64_t>& rows = *rows_;
    const std::uint64_t begin = rows[first], count = rows[last] - begin;
    std::vector<std::uint64_t> columns(count), order(count);
    for (std::uint64_t at = 0; at < count; at += kScan) {
      const auto step = std::min<std::uint64_t>(kScan, count - at);
      ZT_RETURN_IF_ERROR(indices_.Get(begin + at, std::span(columns).subspan(at, step)));
    }
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    for (std::size_t r = first; r < last; ++r) {
      std::sort(order.begin() + static_cast<std::ptrdiff_t>(rows[r] - begin),
                order.begin() + static_cast<std::ptrdiff_t>(rows[r + 1] - begin),
                [&](std::uint64_t a, std::uint64_t b) {
                  return std::pair(columns[a], a) < std::pair(columns[b], b);
                });
    }
    std::vector<std::byte> values;
    if (data_ != nullptr) {
      values.resize(count * width_);
      ZT_RETURN_IF_ERROR(data_->Read(begin * width_, values));
    }
    const std::byte* const from =
        data_ != nullptr ? values.data() : reinterpret_cast<const std::byte*>(columns.data());
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(band_.data() + i * width_, from + order[i] * width_, width_);
    }
    return OkStatus();
  }

  // Rows [first, last) of a csc file: columns come in ascending order, so each row fills from its
  // beginning.
  Status Gather(std::size_t first, std::size_t last) {
    const std::vector<std::uint64_t>& rows = *rows_;
    std::vector<std::uint64_t> next(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                    rows.begin() + static_cast<std::ptrdiff_t>(last));
    std::vector<std::uint64_t> row(kScan);
    std::vector<std::byte> values;
    std::uint64_t column = 0;
    for (std::uint64_t at = 0; at < rows.back(); at += kScan) {
      row.resize(std::min<std::uint64_t>(kScan, rows.back() - at));
      ZT_RETURN_IF_ERROR(indices_.Get(at, row));
      if (data_ != nullptr) {
        values.resize(row.size() * width_);
        ZT_RETURN_IF_ERROR(data_->Read(at * width_, values));
      }
      for (std::size_t i = 0; i < row.size(); ++i) {
        while ((*pointers_)[column + 1] <= at + i) ++column;
        if (row[i] < first || row[i] >= last) continue;
        const std::uint64_t place = next[row[i] - first]++ - rows[first];
        const std::byte* const from =
            data_ != nullptr ? values.data() + i * width_ : reinterpret_cast<std::byte*>(&column);
        std::memcpy(band_.data() + place * width_, from, width_);
      }
    }
    return OkStatus();
  }

  const bool columns_;
  PointerArray pointers_, rows_;
  IndexArray indices_;
  std::unique_ptr<ArrayReader> data_;
  const std::size_t width_;
  const std::uint64_t max_entries_;
  std::mutex mutex_;
  std::vector<std::byte> band_;
  std::uint64_t begin_ = 0, end_ = 0;  // entries in band_
};

class ScipySource final : public TensorSource {
 public:
  ScipySource(std::shared_ptr<ZipArchive> archive, std::span<const EntryArray> arrays,
              std::optional<ElementType> void_type, std::uint64_t memory_limit)
      : archive_(std::move(archive)),
        arrays_(arrays.begin(), arrays.end()),
        void_type_(std::move(void_type)),
        memory_limit_(memory_limit) {}

  Status Init(std::string_view format, std::string name) {
    ZT_ASSIGN_OR_RETURN(const Shape shape, ReadShape());
    if (format == "csr" || format == "csc") {
      ZT_RETURN_IF_ERROR(InitCompressed(format == "csc", shape));
    } else if (format == "coo") {
      ZT_RETURN_IF_ERROR(InitCoo(shape));
    } else {
      return Unsupported("scipy's sparse format " + Quote(format) +
                         " is not supported (csr, csc and coo are); keep its arrays as they are, "
                         "or convert it with tocsr()");
    }
    for (const EntryArray& array : arrays_) {
      if (used_.contains(array.index)) continue;
      if (array.name == "format" || array.name == "_is_array") continue;  // said by our format
      warnings_.push_back("entry " + Quote(array.name) +
                          " is no part of the sparse matrix and is left out");
    }
    objects_.front().name = std::move(name);
    return ValidateObject(objects_.front());
  }

  std::string_view format() const override { return "npz"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const std::uint64_t size = objects_[id.object].components[id.component].bytes;
    if (offset > size || out.size() > size - offset) {
      return InvalidArgument("a range beyond the component's " + std::to_string(size) + " bytes");
    }
    const Status status = components_[id.component]->Read(offset, out);
    return status.ok() ? status : Annotate(status, archive_->name());
  }
  bool sequential(ComponentId id) const override { return components_[id.component]->sequential(); }
  Status Finish() override {
    for (const auto& [entry, data] : used_) {
      ZT_RETURN_IF_ERROR(
          Annotate(archive_->Verify(entry, data),
                   archive_->name() + ": entry " + Quote(archive_->entries()[entry].name)));
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
  // A cursor of its own over an array of the archive.
  StatusOr<Opened> Open(std::string_view name, std::size_t rank = 1) {
    const EntryArray* const array = Find(name);
    if (array == nullptr) return InvalidData("the sparse matrix lacks entry " + Quote(name));
    auto opened = OpenEntry(*array, rank);
    if (!opened.ok()) return Annotate(opened.status(), "entry " + Quote(name));
    return opened;
  }
  StatusOr<Opened> OpenEntry(const EntryArray& array, std::size_t rank) {
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
                                                         opened.type, memory_limit_));
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

  // The pointers of `count` rows or columns: from 0, never falling, to at most `entries`.
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

  // Checks every index once; the row pointers where the file has columns', and whether rows are in
  // order.
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
      components_.push_back(std::make_unique<StoredValues>(std::move(data.reader)));
      std::vector<IndexArray> arrays;
      arrays.push_back(std::move(for_indices));
      components_.push_back(std::make_unique<WidenedIndices>(
          std::move(arrays), std::vector<std::uint64_t>{0}, entries));
    } else {
      ZT_ASSIGN_OR_RETURN(IndexArray for_values, OpenIndices("indices", minors));
      const std::size_t width = data.type.width;
      components_.push_back(
          std::make_unique<SortedBands>(columns, pointers, scan.rows, std::move(for_values),
                                        std::move(data.reader), width, memory_limit_ / 4));
      components_.push_back(std::make_unique<SortedBands>(
          columns, pointers, scan.rows, std::move(for_indices), nullptr, 8, memory_limit_ / 4));
    }
    components_.push_back(std::make_unique<Pointers>(scan.rows));
    return OkStatus();
  }

  // 'row' and 'col' of a matrix; 'coords' of other ranks, one row of it a dimension.
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
    components_.push_back(std::make_unique<StoredValues>(std::move(data.reader)));
    components_.push_back(
        std::make_unique<WidenedIndices>(std::move(arrays), std::move(first), data.count));
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
  std::vector<std::unique_ptr<ComponentReader>> components_;
  std::map<std::size_t, std::uint64_t> used_;  // entry -> where its array begins
};

}  // namespace

std::optional<std::string> ScipyFormat(ZipArchive& archive, std::span<const EntryArray> arrays) {
  const EntryArray* format = nullptr;
  bool shape = false, data = false;
  for (const EntryArray& array : arrays) {
    if (array.name == "format") format = &array;
    shape |= array.name == "shape";
    data |= array.name == "data";
  }
  if (format == nullptr || !shape || !data) return std::nullopt;
  const Descr& descr = format->header.descr;
  if (!format->header.shape.empty() || (descr.kind != 'S' && descr.kind != 'U')) {
    return std::nullopt;
  }
  // Three or four letters, as bytes or in UCS-4 of either byte order.
  const std::uint64_t unit = descr.kind == 'U' ? 4 : 1;
  if (descr.width > 8) return std::nullopt;
  auto bytes = archive.OpenEntry(format->index);
  std::array<std::byte, 32> raw;
  const auto text_bytes = std::span(raw).first(descr.width * unit);
  if (!bytes.ok() || !(*bytes)->ReadAt(format->header.size, text_bytes).ok()) return std::nullopt;
  std::string text;
  for (const std::byte letter : text_bytes) {
    if (letter != std::byte{0}) text += static_cast<char>(letter);
  }
  for (const std::string_view known : {"csr", "csc", "coo", "bsr", "dia"}) {
    if (text == known) return text;
  }
  return std::nullopt;
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
