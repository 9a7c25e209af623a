// zt.convert.gguf — planning a GGUF to be written: from the recorded header where there is one.
module;

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.gguf;

import zt.core;
import zt.transform;

namespace zt {
namespace {

// A recorded gap between tensors is kept up to this; a larger one is closed, so that attributes cannot ask for
// a file of zeros.
constexpr std::uint64_t kMaxGap = std::uint64_t{1} << 20;
constexpr std::size_t kMaxName = 64;  // GGUF's own limit, for names that do not come from a GGUF

// What the attribute "gguf" says.
struct Record {
  GgufHeader header;
  bool little_endian = true;
  struct Tensor {
    std::string_view name, type;
    std::optional<std::uint64_t> offset;
  };
  std::vector<Tensor> tensors;
  std::optional<std::uint64_t> file_bytes;
};

Status Malformed(std::string_view what) {
  return InvalidData("root attribute 'gguf': " + std::string(what));
}

StatusOr<Record> ReadRecord(const Value& value) {
  Record out;
  const Value::Map* map = value.AsMap();
  if (map == nullptr) return Malformed("it is no map");
  const auto number = [&](std::string_view key) -> const std::uint64_t* {
    const Value* member = FindMember(*map, key);
    return member == nullptr ? nullptr : member->AsUint();
  };
  const std::uint64_t* version = number("version");
  if (version == nullptr || *version < 1 || *version > 3) return Malformed("no version 1 to 3");
  out.header.version = static_cast<std::uint32_t>(*version);
  const std::uint64_t* alignment = number("alignment");
  if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment > kMaxGap) {
    return Malformed("no alignment that is a power of two");
  }
  out.header.alignment = *alignment;
  const Value* order = FindMember(*map, "byte_order");
  out.little_endian =
      order != nullptr && order->AsString() != nullptr && *order->AsString() == "little";
  if (!out.little_endian) out.header.version = 3;
  out.header.swapped_magic = out.little_endian && FindMember(*map, "magic") != nullptr;
  const Value* kv = FindMember(*map, "kv");
  if (kv == nullptr || kv->AsArray() == nullptr) return Malformed("no list 'kv'");
  out.header.kv = *kv->AsArray();
  const Value* tensors = FindMember(*map, "tensors");
  if (tensors == nullptr || tensors->AsArray() == nullptr) return Malformed("no list 'tensors'");
  for (const Value& entry : *tensors->AsArray()) {
    const Value::Array* parts = entry.AsArray();
    if (parts == nullptr || parts->size() < 2 || (*parts)[0].AsString() == nullptr ||
        (*parts)[1].AsString() == nullptr) {
      return Malformed("an entry of 'tensors' is no list of name, type and offset");
    }
    Record::Tensor& tensor = out.tensors.emplace_back();
    tensor.name = *(*parts)[0].AsString();
    tensor.type = *(*parts)[1].AsString();
    if (parts->size() > 2 && (*parts)[2].AsUint() != nullptr) {
      tensor.offset = *(*parts)[2].AsUint();
    }
  }
  if (const std::uint64_t* bytes = number("file_bytes")) out.file_bytes = *bytes;
  return out;
}

// The type under which `object` is written; its shape and size must be whole blocks.
StatusOr<GgmlType> TypeOf(const Object& object) {
  if (object.components.size() != 1) {
    return Unsupported("format " + Quote(object.format) + " cannot be written to GGUF");
  }
  const Component& data = object.components[0];
  std::optional<GgmlType> type;
  if (object.format == "dense") {
    if (data.element.type.empty()) type = FindGgmlType(Name(data.element.dtype));
    if (!type || type->plain != data.element.dtype) {
      return Unsupported("GGUF has no type for " + std::string(Name(data.element)) +
                         "; convert it to one of f64 f32 f16 bf16 i64 i32 i16 i8");
    }
  } else {
    if (const GgmlBlock* block = FindGgmlBlockOfFormat(object.format)) {
      type = FindGgmlType(block->name);
    }
    if (!type) {
      return Unsupported("format " + Quote(object.format) + " cannot be written to GGUF");
    }
  }
  if (object.shape.size() > kGgufMaxDims) {
    return Unsupported("shape " + ToString(object.shape) + " has more than " +
                       std::to_string(kGgufMaxDims) + " dimensions");
  }
  const std::uint64_t row = object.shape.empty() ? 1 : object.shape.back();
  const auto count = ElementCount(object.shape);
  const auto bytes = count ? CheckedMul(*count / type->elems, type->bytes) : std::nullopt;
  if (row % type->elems != 0 || !bytes || *bytes != data.bytes) {
    return InvalidData("shape " + ToString(object.shape) + " of " + std::string(type->name) +
                       " does not fit its " + std::to_string(data.bytes) + " bytes");
  }
  return *type;
}

// Whether the recorded offsets can be used as they are: aligned, ascending without overlap or large gaps.
bool OffsetsHold(const GgufHeader& header, std::span<const std::size_t> order) {
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    const GgufTensor& tensor = header.tensors[i];
    if (tensor.offset % header.alignment != 0) return false;
    if (tensor.bytes == 0) {
      if (tensor.offset > end + kMaxGap) return false;
      continue;
    }
    if (tensor.offset < end || tensor.offset - end > kMaxGap) return false;
    const auto next = CheckedAdd(tensor.offset, tensor.bytes);
    if (!next) return false;
    end = *next;
  }
  return true;
}

}  // namespace

StatusOr<GgufLayout> PlanGguf(const Value::Map& root_attributes, std::span<const Object> objects) {
  Record record;
  const Value* attribute = FindMember(root_attributes, "gguf");
  if (attribute != nullptr) {
    ZT_ASSIGN_OR_RETURN(record, ReadRecord(*attribute));
  }
  GgufHeader& header = record.header;

  // The recorded tensors in their order, then the others in the order given.
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < objects.size(); ++i) by_name.emplace(objects[i].name, i);
  if (by_name.size() != objects.size()) return InvalidData("two objects have the same name");
  std::vector<std::size_t> which;  // header.tensors[i] is objects[which[i]]
  std::vector<bool> taken(objects.size(), false);
  bool unchanged =
      attribute != nullptr && record.little_endian && record.tensors.size() == objects.size();
  const auto add = [&](std::size_t index) -> Status {
    const Object& object = objects[index];
    auto type = TypeOf(object);
    if (!type.ok()) return Annotate(type.status(), TensorContext(object.name));
    header.tensors.push_back({object.name, *type, object.shape, 0, object.components[0].bytes});
    which.push_back(index);
    taken[index] = true;
    return OkStatus();
  };
  for (const Record::Tensor& tensor : record.tensors) {
    const auto found = by_name.find(tensor.name);
    if (found == by_name.end() || taken[found->second]) {
      unchanged = false;
      continue;
    }
    ZT_RETURN_IF_ERROR(add(found->second));
    GgufTensor& added = header.tensors.back();
    if (added.type.name != tensor.type || !tensor.offset) unchanged = false;
    added.offset = tensor.offset.value_or(0);
  }
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (taken[i]) continue;
    unchanged = false;
    if (objects[i].name.size() > kMaxName) {
      return Unsupported(TensorContext(objects[i].name) + ": a name in GGUF has at most " +
                         std::to_string(kMaxName) + " bytes");
    }
    ZT_RETURN_IF_ERROR(add(i));
  }

  std::vector<std::size_t> order(header.tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (unchanged) {
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const GgufTensor &x = header.tensors[a], &y = header.tensors[b];
      if (x.offset != y.offset) return x.offset < y.offset;
      return x.bytes != y.bytes ? x.bytes < y.bytes : a < b;
    });
    unchanged = OffsetsHold(header, order);
  }
  if (!unchanged) {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      header.tensors[i].offset = at;
      const auto end = CheckedAdd(at, header.tensors[i].bytes);
      if (!end || *end > ~std::uint64_t{0} - kMaxGap) {
        return InvalidData(TensorContext(header.tensors[i].name) + ": the sizes overflow 64 bits");
      }
      at = header.Align(*end);
    }
  }

  GgufLayout layout;
  ZT_ASSIGN_OR_RETURN(layout.header, EncodeGgufHeader(header));
  const std::uint64_t data = header.Align(layout.header.size());
  std::uint64_t at = layout.header.size();
  for (const std::size_t i : order) {
    const GgufTensor& tensor = header.tensors[i];
    if (tensor.bytes == 0) continue;
    const auto offset = CheckedAdd(data, tensor.offset);
    const auto end = offset ? CheckedAdd(*offset, tensor.bytes) : std::nullopt;
    if (!end || *end > ~std::uint64_t{0} - kMaxGap) {
      return InvalidData(TensorContext(tensor.name) + ": the sizes overflow 64 bits");
    }
    layout.pieces.push_back({which[i], *offset - at, *offset, tensor.bytes});
    at = *end;
  }
  layout.file_bytes = header.Align(at);
  if (unchanged && record.file_bytes) {
    // The padding after the last tensor may be missing; anything more was not kept.
    unchanged = *record.file_bytes >= at && *record.file_bytes <= layout.file_bytes;
    if (unchanged) layout.file_bytes = *record.file_bytes;
  }
  layout.end_padding = layout.file_bytes - at;
  layout.exact = unchanged;
  return layout;
}

}  // namespace zt
