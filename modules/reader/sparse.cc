// zt.reader — rules of sparse objects that several components decide together (2.0: rows that ascend, cells named once).
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.reader;

import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

using zt::internal::LoadLittle;

constexpr std::uint64_t kBlockBytes = 256 << 10;

// The integers of a component, in ascending order, through a block of bytes.
class Integers {
 public:
  Integers(const Reader& reader, ComponentId id)
      : reader_(reader), id_(id), width_(ByteWidth(reader.component(id).element.dtype)) {}

  // A block holds a whole frame where `most_bytes` allows it, so that no frame is decoded over and over.
  Status Init(std::uint64_t most_bytes) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader_.DecodedBytes(id_));
    ZT_ASSIGN_OR_RETURN(const Access access, reader_.FindAccess(id_));
    block_bytes_ = std::max(kBlockBytes, std::min(access.frame_bytes, most_bytes));
    count_ = bytes / width_;
    return OkStatus();
  }
  std::uint64_t count() const { return count_; }

  // Integer number `index`, which is below count().
  Status At(std::uint64_t index, std::uint64_t* value) {
    if (index < first_ || index >= first_ + block_.size() / width_) {
      first_ = index;
      block_.resize(std::min(block_bytes_ / width_, count_ - index) * width_);
      ZT_RETURN_IF_ERROR(reader_.Read(id_, index * width_, block_));
    }
    *value = LoadLittle(block_.data() + (index - first_) * width_, width_);
    return OkStatus();
  }

 private:
  const Reader& reader_;
  const ComponentId id_;
  const std::size_t width_;
  std::uint64_t block_bytes_ = kBlockBytes, count_ = 0, first_ = 0;
  std::vector<std::byte> block_;
};

std::uint32_t IndexOf(const StoredObject& object, std::string_view role) {
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    if (object.components[c].role == role) return c;
  }
  return 0;
}

// `indptr` begins at 0, ascends and ends at the number of indices: the rules of the components are kept.
Status CheckRows(const Reader& reader, std::uint32_t index, std::uint64_t memory_bytes) {
  const StoredObject& object = reader.manifest().objects[index];
  Integers pointers(reader, {index, IndexOf(object, "indptr")});
  Integers indices(reader, {index, IndexOf(object, "indices")});
  ZT_RETURN_IF_ERROR(pointers.Init(memory_bytes / 2));
  ZT_RETURN_IF_ERROR(indices.Init(memory_bytes / 2));
  std::uint64_t row_end = 0, next_pointer = 0, before = 0, value = 0;
  for (std::uint64_t i = 0; i < indices.count(); ++i) {
    bool first = false;  // of its row
    while (row_end <= i && next_pointer < pointers.count()) {
      ZT_RETURN_IF_ERROR(pointers.At(next_pointer++, &row_end));
      first = true;
    }
    ZT_RETURN_IF_ERROR(indices.At(i, &value));
    if (!first && value <= before) {
      return InvalidData("index " + std::to_string(i) + " is " + std::to_string(value) +
                         ", not more than the one before in its row, " + std::to_string(before) +
                         " (zTensor 2.0 §5.2, zt.sparse_csr/1)");
    }
    before = value;
  }
  return OkStatus();
}

// The cells that the coordinates name, in C order. All coordinates are in range, and the shape does not overflow.
class Cells {
 public:
  Cells(const Reader& reader, std::uint32_t index)
      : shape_(reader.manifest().objects[index].shape) {
    const ComponentId id{index, IndexOf(reader.manifest().objects[index], "coords")};
    for (std::size_t d = 0; d < shape_.size(); ++d) dimensions_.emplace_back(reader, id);
  }

  Status Init(std::uint64_t memory_bytes) {
    for (Integers& each : dimensions_) {
      ZT_RETURN_IF_ERROR(each.Init(memory_bytes / dimensions_.size()));
    }
    return OkStatus();
  }
  std::uint64_t count() const { return dimensions_[0].count() / shape_.size(); }

  Status At(std::uint64_t element, std::uint64_t* cell) {
    *cell = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      std::uint64_t index = 0;
      ZT_RETURN_IF_ERROR(dimensions_[d].At(d * count() + element, &index));
      *cell = *cell * shape_[d] + index;
    }
    return OkStatus();
  }

 private:
  const Shape& shape_;
  std::vector<Integers> dimensions_;
};

Status NamedTwice(std::uint64_t cell) {
  return InvalidData("two elements name cell " + std::to_string(cell) +
                     " in C order (zTensor 2.0 §5.2, zt.sparse_coo/1)");
}

// Spreads cells over the passes; the seed keeps a file from having them all in one.
std::uint64_t Mix(std::uint64_t cell, std::uint64_t seed) {
  cell = (cell ^ seed) * 0xbf58476d1ce4e5b9;
  cell = (cell ^ cell >> 31) * 0x94d049bb133111eb;
  return cell ^ cell >> 31;
}

// Ascending cells, the usual order, are compared with the one before. Others are sorted, as many at once as memory allows.
Status CheckCells(const Reader& reader, std::uint32_t index, std::uint64_t memory_bytes) {
  // A scalar has no coordinates to compare.
  if (reader.manifest().objects[index].shape.empty()) return OkStatus();
  Cells cells(reader, index);
  ZT_RETURN_IF_ERROR(cells.Init(memory_bytes / 2));
  const std::uint64_t count = cells.count();
  std::uint64_t before = 0, cell = 0, i = 0;
  for (; i < count; ++i) {
    ZT_RETURN_IF_ERROR(cells.At(i, &cell));
    if (i > 0 && cell == before) return NamedTwice(cell);
    if (i > 0 && cell < before) break;
    before = cell;
  }
  if (i == count) return OkStatus();
  const std::uint64_t at_once =
      std::max<std::uint64_t>(memory_bytes / 2 / sizeof(std::uint64_t), 4096);
  const std::uint64_t passes = count / at_once + 1;
  const std::uint64_t seed = std::uint64_t{std::random_device()()} << 32 | 1;
  std::vector<std::uint64_t> some;
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    some.clear();
    for (i = 0; i < count; ++i) {
      ZT_RETURN_IF_ERROR(cells.At(i, &cell));
      if (passes == 1 || Mix(cell, seed) % passes == pass) some.push_back(cell);
    }
    std::sort(some.begin(), some.end());
    const auto twice = std::adjacent_find(some.begin(), some.end());
    if (twice != some.end()) return NamedTwice(*twice);
  }
  return OkStatus();
}

Status CheckObject(const Reader& reader, std::uint32_t object,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes) {
  const StoredObject& stored = reader.manifest().objects[object];
  for (const StoredComponent& c : stored.components) {
    if (!c.undecodable.empty() || missing.contains(c.shard)) return OkStatus();
  }
  if (stored.format == "sparse_csr") return CheckRows(reader, object, memory_bytes);
  if (stored.format == "sparse_coo") return CheckCells(reader, object, memory_bytes);
  return OkStatus();
}

}  // namespace

Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const std::function<void(std::uint32_t, std::string_view)>& wrong) {
  const Manifest& manifest = reader.manifest();
  if (!Traits(manifest.version).unique_indices) return OkStatus();
  for (std::uint32_t o = 0; o < manifest.objects.size(); ++o) {
    if (bad.contains(o)) continue;
    const std::string& name = manifest.objects[o].name;
    const Status status = WithoutNames(reader, name, CheckObject(reader, o, missing, memory_bytes));
    if (status.code() == StatusCode::kDataLoss) {
      wrong(o, Message(status));
    } else if (!status.ok()) {
      return Annotate(status, TensorContext(name));
    }
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
