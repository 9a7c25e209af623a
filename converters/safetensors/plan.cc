// zt.convert.safetensors — plans a safetensors file.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.safetensors;

import zt.std;
import :dtypes;
import zt.convert.layout;
import zt.core;
import zt.source;

namespace zt {
namespace {

using safetensors::internal::DTypeRow;
using safetensors::internal::kDTypes;

// Text as JSON. Few names need escapes.
void AppendJson(std::string_view text, std::string& out) {
  const bool plain =
      std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == '"' || c == '\\'; });
  if (plain) {
    ((out += '"') += text) += '"';
  } else {
    using Json = nlohmann::ordered_json;
    out += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

// The shape for the header: for packed types in elements, not bytes.
StatusOr<Shape> StatedShape(const Object& object, const DTypeRow& row) {
  const bool packed = row.bits < 8;
  const Component& data = object.components.front();
  const Value* attribute = packed ? FindMember(object.attributes, kLogicalShape) : nullptr;
  Shape shape = object.shape;
  if (attribute != nullptr) {
    shape.clear();
    const Value::Array* dims = attribute->AsArray();
    if (dims == nullptr) return InvalidData("attribute 'logical_shape' is not a list");
    for (const Value& dim : *dims) {
      if (dim.AsUint() == nullptr)
        return InvalidData("attribute 'logical_shape' holds no dimensions");
      shape.push_back(*dim.AsUint());
    }
  } else if (packed && !shape.empty() && shape.back() <= ~std::uint64_t{0} / 8 &&
             shape.back() * 8 % row.bits == 0) {
    shape.back() = shape.back() * 8 / row.bits;
  }
  const auto count = ElementCount(shape);
  const auto bits = count ? CheckedMul(*count, row.bits) : std::nullopt;
  if (bits && *bits % 8 != 0 && *bits / 8 + 1 == data.bytes) {
    return Unsupported("shape " + ToString(shape) + " of " + std::string(row.name) +
                       " ends within a byte, which safetensors does not allow");
  }
  if (!bits || *bits % 8 != 0 || *bits / 8 != data.bytes) {
    return InvalidData("shape " + ToString(shape) + " of " + std::string(row.name) +
                       " does not fit its " + std::to_string(data.bytes) + " bytes");
  }
  return shape;
}

struct Tensor {
  std::uint32_t object = 0;
  std::size_t rank = 0;  // index of its type in kDTypes
  Shape shape;
};

StatusOr<Tensor> MakeTensor(const Object& object) {
  if (object.format != "dense" || object.components.size() != 1) {
    const bool sparse = object.format.starts_with("sparse");
    const Status why =
        Unsupported("format " + Quote(object.format) + " cannot be written to safetensors" +
                    (sparse ? "; write it to .npz" : ""));
    return object.format.starts_with("gguf.") ? WithAdvice(why, Advice::kDequantize) : why;
  }
  if (object.name == "__metadata__") return Unsupported("safetensors reserves this name");
  const Component& data = object.components.front();
  const std::string_view name = Name(data.element);
  Tensor tensor;
  while (tensor.rank < std::size(kDTypes) && kDTypes[tensor.rank].name != name) ++tensor.rank;
  if (tensor.rank == std::size(kDTypes)) {
    return Unsupported("safetensors has no type for " + std::string(name));
  }
  if (data.bytes == kUnknownSize) return Unsupported("its size is not known in advance");
  ZT_ASSIGN_OR_RETURN(tensor.shape, StatedShape(object, kDTypes[tensor.rank]));
  return tensor;
}

void AppendTensor(const Object& object, const Tensor& tensor, std::uint64_t begin,
                  std::string& out) {
  AppendJson(object.name, out);
  out += ":{\"dtype\":\"" + std::string(kDTypes[tensor.rank].tag) + "\",\"shape\":[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(tensor.shape[i]);
  }
  out += "],\"data_offsets\":[" + std::to_string(begin) + "," +
         std::to_string(begin + object.components.front().bytes) + "]}";
}

StatusOr<std::string> MetadataJson(std::span<const std::pair<std::string, std::string>> metadata) {
  std::string out;
  std::unordered_set<std::string_view, zt::internal::NameHash> keys;
  for (const auto& [key, value] : metadata) {
    if (!keys.insert(key).second)
      return InvalidData("root attribute " + Quote(key) + " occurs twice");
    if (!out.empty()) out += ',';
    AppendJson(key, out);
    out += ':';
    AppendJson(value, out);
  }
  return out;
}

}  // namespace

StatusOr<FileLayout> PlanSafetensors(const TensorSource& source,
                                     std::span<const std::uint32_t> objects,
                                     std::optional<SafetensorsMetadata> metadata) {
  std::vector<Tensor> tensors;
  tensors.reserve(objects.size());
  for (const std::uint32_t index : objects) {
    const Object& object = source.objects()[index];
    ZT_ASSIGN_OR_RETURN(tensors.emplace_back(), WithTensor(MakeTensor(object), object.name));
    tensors.back().object = index;
  }
  std::sort(tensors.begin(), tensors.end(), [&](const Tensor& a, const Tensor& b) {
    if (a.rank != b.rank) return a.rank > b.rank;
    return source.objects()[a.object].name < source.objects()[b.object].name;
  });

  FileLayout layout;
  std::string header = "{";
  if (metadata) {
    ZT_ASSIGN_OR_RETURN(const std::string members, MetadataJson(*metadata));
    header += "\"__metadata__\":{" + members + "}";
  }
  std::uint64_t at = 0;
  for (const Tensor& tensor : tensors) {
    const Object& object = source.objects()[tensor.object];
    const std::uint64_t bytes = object.components.front().bytes;
    const auto end = CheckedAdd(at, bytes);
    if (!end || *end > ~std::uint64_t{0} - 2 * kMaxSafetensorsHeader) {
      return WithTensor(InvalidData("the sizes overflow 64 bits"), object.name);
    }
    if (header.size() > 1) header += ',';
    AppendTensor(object, tensor, at, header);
    layout.pieces.push_back({.source = {tensor.object, 0}, .bytes = bytes});
    at = *end;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxSafetensorsHeader) {
    return Unsupported("the header would have " + std::to_string(header.size()) +
                       " bytes, the limit is " + std::to_string(kMaxSafetensorsHeader));
  }
  std::vector<std::byte> head;
  head.reserve(8 + header.size());
  head.resize(8);
  zt::internal::StoreLittle(header.size(), 8, head.data());
  const auto text = std::as_bytes(std::span(header));
  head.insert(head.end(), text.begin(), text.end());
  layout.bytes = head.size() + at;
  (layout.pieces.empty() ? layout.end : layout.pieces.front().before) = std::move(head);
  static constexpr std::string_view kKept[] = {kLogicalShape};
  const std::string lost = LostAttributes(source, objects, kKept, "safetensors does not keep");
  if (!lost.empty()) layout.warnings.push_back(lost);
  return layout;
}

}  // namespace zt
