// zt.reader:sparse_0_1 — reads the sparse entries of 0.1.0. The released 0.1 writers wrote
// `sparsecoo` and `sparsecsr`, and their readers split the blob as follows, all little-endian:
//   sparsecoo   for each non-zero: its index in each dimension (u64), then its value
//   sparsecsr   row pointers (u64, rows + 1), column indices (u64), values
// The specification's own `sparse` does not say where the indices lie; nobody wrote it.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import :sparse_0_1;
import zt.core;
import zt.format;

namespace zt::reader::internal {
namespace {

constexpr std::string_view kCoo01 = "sparsecoo", kCsr01 = "sparsecsr", kSparse01 = "sparse";
const ElementType kIndex{DType::kU64, ""};
constexpr std::size_t kBlock = 64 << 10;  // bytes of interleaved entries read at once

class Layout01 {
 public:
  Layout01(std::uint64_t bytes, Sparse01Object& out)
      : bytes_(bytes), object_(out.object), parts_(out.parts) {
    element_ = object_.components[0].element;
    width_ = ByteWidth(element_.dtype);
    object_.components.clear();
    parts_.clear();
  }

  Status Describe() {
    if (object_.format == kCoo01) return InterleavedCoo();
    if (object_.format == kCsr01) return ConcatenatedCsr();
    return Unsupported("layout 'sparse' does not say where its indices lie; save it dense");
  }

 private:
  void AddComponent(std::string role, ElementType element, std::uint64_t bytes, Sparse01Part part) {
    object_.components.push_back({std::move(role), std::move(element), bytes});
    parts_.push_back(std::move(part));
  }
  void AddRange(std::string role, ElementType element, std::uint64_t base, std::uint64_t bytes) {
    Sparse01Part part;
    part.base = base;
    AddComponent(std::move(role), std::move(element), bytes, std::move(part));
  }

  Status InterleavedCoo() {
    if (object_.shape.empty()) return InvalidData("layout 'sparsecoo' of a scalar");
    const std::uint64_t entry = object_.shape.size() * kIndexBytes + width_;
    if (bytes_ % entry != 0) {
      return InvalidData("the blob of " + std::to_string(bytes_) +
                         " bytes is not a whole number of entries of " + std::to_string(entry) +
                         " bytes, as layout 'sparsecoo' has them");
    }
    Sparse01Part part;
    part.entries = bytes_ / entry;
    part.kind = Sparse01Part::Kind::kCoords;
    AddComponent("coords", kIndex, part.entries * object_.shape.size() * kIndexBytes, part);
    part.kind = Sparse01Part::Kind::kValues;
    AddComponent("values", element_, part.entries * width_, part);
    object_.format = "sparse_coo";
    return OkStatus();
  }

  Status ConcatenatedCsr() {
    if (object_.shape.size() != 2)
      return InvalidData("layout 'sparsecsr' of shape " + ToString(object_.shape));
    const auto pointers = CheckedMul(object_.shape[0], kIndexBytes);
    if (!pointers || bytes_ < kIndexBytes || *pointers > bytes_ - kIndexBytes) {
      return InvalidData("the blob of " + std::to_string(bytes_) +
                         " bytes cannot hold the pointers of " + std::to_string(object_.shape[0]) +
                         " rows");
    }
    const std::uint64_t rest = bytes_ - *pointers - kIndexBytes;
    const std::uint64_t count = rest / (kIndexBytes + width_);
    if (rest % (kIndexBytes + width_) != 0) {
      return InvalidData("after its row pointers the blob has " + std::to_string(rest) +
                         " bytes, not a whole number of indices and values of " +
                         std::to_string(width_) + " bytes");
    }
    AddRange("indptr", kIndex, 0, *pointers + kIndexBytes);
    AddRange("indices", kIndex, *pointers + kIndexBytes, count * kIndexBytes);
    AddRange("values", element_, *pointers + kIndexBytes + count * kIndexBytes, count * width_);
    object_.format = "sparse_csr";
    return OkStatus();
  }

  std::uint64_t bytes_;  // of the decoded blob
  Object& object_;
  std::vector<Sparse01Part>& parts_;
  ElementType element_;
  std::size_t width_;
};

// Calls `each(entry, bytes)` for `count` interleaved entries from `first`.
template <typename Each>
Status ForEntries(const Reader& reader, ComponentId stored, std::size_t entry, std::uint64_t first,
                  std::uint64_t count, Each each) {
  const std::uint64_t block = std::max<std::uint64_t>(1, kBlock / entry);
  std::vector<std::byte> bytes(std::min(block, count) * entry);
  for (std::uint64_t at = first, end = first + count; at < end;) {
    const std::uint64_t step = std::min(block, end - at);
    ZT_RETURN_IF_ERROR(reader.Read(stored, at * entry, std::span(bytes).first(step * entry)));
    for (std::uint64_t i = 0; i < step; ++i)
      ZT_RETURN_IF_ERROR(each(at + i, bytes.data() + i * entry));
    at += step;
  }
  return OkStatus();
}

Status ReadCoords(const Reader& reader, ComponentId stored, const Object& object,
                  const Sparse01Part& part, std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t entry =
      object.shape.size() * kIndexBytes + ByteWidth(object.components[1].element.dtype);
  std::uint64_t element = offset / kIndexBytes;
  std::byte* to = out.data();
  for (std::uint64_t left = out.size() / kIndexBytes; left > 0;) {
    const std::uint64_t dimension = element / part.entries, first = element % part.entries;
    const std::uint64_t count = std::min(left, part.entries - first);
    ZT_RETURN_IF_ERROR(
        ForEntries(reader, stored, entry, first, count, [&](std::uint64_t, const std::byte* from) {
          std::memcpy(to, from + dimension * kIndexBytes, kIndexBytes);
          to += kIndexBytes;
          return OkStatus();
        }));
    element += count;
    left -= count;
  }
  return OkStatus();
}

Status ReadValues(const Reader& reader, ComponentId stored, const Object& object,
                  std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t width = ByteWidth(object.components[1].element.dtype);
  const std::size_t indices = object.shape.size() * kIndexBytes;
  std::byte* to = out.data();
  return ForEntries(reader, stored, indices + width, offset / width, out.size() / width,
                    [&](std::uint64_t, const std::byte* from) {
                      std::memcpy(to, from + indices, width);
                      to += width;
                      return OkStatus();
                    });
}

}  // namespace

bool IsSparse01(const Reader& reader, std::uint32_t index) {
  return Traits(reader.manifest().version).mixed_sparse &&
         IsSparse01Layout(reader.manifest().objects[index].format);
}

bool IsSparse01Layout(std::string_view format) {
  return format == kSparse01 || format == kCoo01 || format == kCsr01;
}

StatusOr<Sparse01Object> TakeApart(const Reader& reader, std::uint32_t index) {
  const StoredObject& stored = reader.manifest().objects[index];
  if (!stored.components[0].undecodable.empty()) {
    return Unsupported(stored.components[0].undecodable);
  }
  Sparse01Object mixed;
  mixed.object = Declare(stored);
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.DecodedBytes({index, 0}));
  ZT_RETURN_IF_ERROR(Layout01(bytes, mixed).Describe());
  ZT_RETURN_IF_ERROR(ValidateObject(mixed.object));
  return mixed;
}

Status ReadSparse01(const Reader& reader, std::uint32_t index, const Sparse01Object& mixed,
                    std::uint32_t component, std::uint64_t offset, std::span<std::byte> out) {
  const Sparse01Part& part = mixed.parts[component];
  const ComponentId stored{index, 0};
  switch (part.kind) {
    case Sparse01Part::Kind::kCoords:
      return ReadCoords(reader, stored, mixed.object, part, offset, out);
    case Sparse01Part::Kind::kRange:
      ZT_RETURN_IF_ERROR(reader.Read(stored, part.base + offset, out));
      break;
    case Sparse01Part::Kind::kValues:
      ZT_RETURN_IF_ERROR(ReadValues(reader, stored, mixed.object, offset, out));
      break;
  }
  if (mixed.object.components[component].element.dtype == DType::kBool) {
    for (std::byte& each : out) each = std::byte{each != std::byte{0}};
  }
  return OkStatus();
}

namespace {

// All dimensions in one pass, a column of each at a time.
StatusOr<DataValidator> LookAtCoords(const Reader& reader, ComponentId stored,
                                     const Sparse01Object& mixed, const DataRule& rule) {
  constexpr std::size_t kColumn = 512 * kIndexBytes;
  const std::size_t rank = mixed.object.shape.size();
  std::vector<DataValidator> dimensions;
  for (std::size_t d = 0; d < rank; ++d) dimensions.emplace_back(rule, rule.each * kIndexBytes * d);
  std::vector<std::byte> columns(rank * kColumn);
  std::size_t filled = 0;  // bytes of each column
  const auto flush = [&] {
    for (std::size_t d = 0; d < rank; ++d)
      dimensions[d].Add(std::span(columns).subspan(d * kColumn, filled));
    filled = 0;
  };
  const std::size_t entry =
      rank * kIndexBytes + ByteWidth(mixed.object.components[1].element.dtype);
  ZT_RETURN_IF_ERROR(
      ForEntries(reader, stored, entry, 0, rule.each, [&](std::uint64_t, const std::byte* from) {
        for (std::size_t d = 0; d < rank; ++d) {
          std::memcpy(&columns[d * kColumn + filled], from + d * kIndexBytes, kIndexBytes);
        }
        filled += kIndexBytes;
        if (filled == kColumn) flush();
        return OkStatus();
      }));
  flush();
  for (std::size_t d = 1; d < rank; ++d) dimensions[0].Merge(dimensions[d]);
  return std::move(dimensions[0]);
}

}  // namespace

// Reads the blob once.
StatusOr<Sparse01Checker::FoundParts> Sparse01Checker::Look(std::uint32_t index,
                                                            const Sparse01Object& mixed) const {
  FoundParts found;
  const ComponentId stored{index, 0};
  const Object& object = mixed.object;
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    const std::uint64_t bytes = object.components[c].bytes;
    const auto rule = RuleOf(object, c, bytes);
    if (!rule || bytes == 0) continue;
    if (mixed.parts[c].kind == Sparse01Part::Kind::kCoords) {
      ZT_ASSIGN_OR_RETURN(auto coords, LookAtCoords(reader_, stored, mixed, *rule));
      found.emplace(c, std::move(coords));
      continue;
    }
    DataValidator validator(*rule);
    std::vector<std::byte> block(std::min<std::uint64_t>(kBlock, bytes));
    for (std::uint64_t at = 0; at < bytes; at += block.size()) {
      block.resize(std::min<std::uint64_t>(block.size(), bytes - at));
      ZT_RETURN_IF_ERROR(ReadSparse01(reader_, index, mixed, c, at, block));
      validator.Add(block);
    }
    found.emplace(c, std::move(validator));
  }
  return found;
}

Status Sparse01Checker::Check(std::uint32_t index) {
  ZT_ASSIGN_OR_RETURN(const Sparse01Object mixed, TakeApart(reader_, index));
  const Object& object = mixed.object;
  const StoredComponent& stored = reader_.component({index, 0});
  const Key key(ContentKey(stored), ByteWidth(stored.element.dtype), object.shape.size(),
                object.format == "sparse_csr" ? std::optional(object.shape[0]) : std::nullopt);
  auto look = looks_.find(key);
  if (look == looks_.end()) look = looks_.emplace(key, Look(index, mixed)).first;
  ZT_RETURN_IF_ERROR(look->second.status());
  for (const auto& [c, found] : *look->second) {
    ZT_RETURN_IF_ERROR(
        WithComponent(found.Check(object, CountIndices(object)), object.components[c].role));
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
