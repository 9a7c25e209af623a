// zt.convert.gguf — the byte order of tensor types, and the keys of metadata entries.
module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.transform;
import :model;

namespace zt::gguf::internal {
namespace {

struct BlockFields {
  std::string_view type;
  std::uint32_t fields;
  std::array<std::uint32_t, 2> at;
};
// The block types for which writers of big-endian files exist and every field's width is certain.
constexpr BlockFields kBlockFields[] = {
    {"q4_0", 1, {0}}, {"q8_0", 1, {0}}, {"q4_k", 2, {0, 2}}, {"q6_k", 1, {208}}};

constexpr std::string_view kSplitKeys[] = {"split.no", "split.count", "split.tensors.count"};

}  // namespace

StatusOr<ByteOrder> ByteOrderOf(const GgmlType& type) {
  if (type.plain) return ByteOrder{type.bytes, 0, {}};
  if (type.name == "mxfp4") return ByteOrder{};  // single bytes only
  for (const BlockFields& row : kBlockFields) {
    if (row.type == type.name) return ByteOrder{type.bytes, row.fields, row.at};
  }
  return Unsupported("the byte order of " + std::string(type.name) +
                     " blocks in a big-endian file is not certain; convert the file to "
                     "little-endian with the tool that wrote it");
}

void SwapUnits(const ByteOrder& order, std::span<std::byte> data) {
  if (order.fields == 0) return SwapBytes(data, order.unit);
  for (std::size_t i = 0; i < data.size(); i += order.unit) {
    for (std::uint32_t f = 0; f < order.fields; ++f) {
      std::swap(data[i + order.at[f]], data[i + order.at[f] + 1]);
    }
  }
}

const std::string* KeyOf(const Value& entry) {
  const Value::Array* parts = entry.AsArray();
  return parts == nullptr || parts->empty() ? nullptr : parts->front().AsString();
}

bool IsSplitKey(const Value& entry) {
  const std::string* key = KeyOf(entry);
  return key != nullptr && std::ranges::find(kSplitKeys, *key) != std::end(kSplitKeys);
}

}  // namespace zt::gguf::internal
