// zt.convert.gguf — the tables of ggml's tensor types and of metadata types, and their byte order.
module;

#include "core/little_endian.h"

module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.transform;
import :model;

namespace zt {
namespace {

// Indexed by id. `removed` ids occur in old files, and are no longer defined.
struct Row {
  std::string_view name;
  std::optional<DType> plain = std::nullopt;
  bool removed = false;
};
constexpr Row kTypes[] = {
    {"f32", DType::kF32},      // 0
    {"f16", DType::kF16},      // 1
    {"q4_0"},                  // 2
    {"q4_1"},                  // 3
    {"q4_2", {}, true},        // 4
    {"q4_3", {}, true},        // 5
    {"q5_0"},                  // 6
    {"q5_1"},                  // 7
    {"q8_0"},                  // 8
    {"q8_1"},                  // 9
    {"q2_k"},                  // 10
    {"q3_k"},                  // 11
    {"q4_k"},                  // 12
    {"q5_k"},                  // 13
    {"q6_k"},                  // 14
    {"q8_k"},                  // 15
    {"iq2_xxs"},               // 16
    {"iq2_xs"},                // 17
    {"iq3_xxs"},               // 18
    {"iq1_s"},                 // 19
    {"iq4_nl"},                // 20
    {"iq3_s"},                 // 21
    {"iq2_s"},                 // 22
    {"iq4_xs"},                // 23
    {"i8", DType::kI8},        // 24
    {"i16", DType::kI16},      // 25
    {"i32", DType::kI32},      // 26
    {"i64", DType::kI64},      // 27
    {"f64", DType::kF64},      // 28
    {"iq1_m"},                 // 29
    {"bf16", DType::kBF16},    // 30
    {"q4_0_4_4", {}, true},    // 31
    {"q4_0_4_8", {}, true},    // 32
    {"q4_0_8_8", {}, true},    // 33
    {"tq1_0"},                 // 34
    {"tq2_0"},                 // 35
    {"iq4_nl_4_4", {}, true},  // 36
    {"iq4_nl_4_8", {}, true},  // 37
    {"iq4_nl_8_8", {}, true},  // 38
    {"mxfp4"},                 // 39
    {"nvfp4"},                 // 40
    {"q1_0"},                  // 41
    {"q2_0"},                  // 42
};

GgmlType Describe(std::uint32_t id) {
  const Row& row = kTypes[id];
  if (row.plain) {
    return {id, row.name, row.plain, 1, static_cast<std::uint32_t>(ByteWidth(*row.plain))};
  }
  const GgmlBlock& block = *FindGgmlBlock(row.name);
  return {id, row.name, std::nullopt, block.elems, block.bytes};
}

}  // namespace

StatusOr<GgmlType> FindGgmlType(std::uint32_t id) {
  if (id >= std::size(kTypes)) {
    return Unsupported("ggml type " + std::to_string(id) + " is not known");
  }
  if (kTypes[id].removed) {
    return Unsupported("ggml type " + std::to_string(id) + " (" + std::string(kTypes[id].name) +
                       ") was removed from GGUF; convert the file with the tool that wrote it");
  }
  return Describe(id);
}

std::optional<GgmlType> FindGgmlType(std::string_view name) {
  for (std::uint32_t id = 0; id < std::size(kTypes); ++id) {
    if (kTypes[id].name == name && !kTypes[id].removed) return Describe(id);
  }
  return std::nullopt;
}

namespace gguf::internal {
namespace {

constexpr std::uint64_t kLongestList = 64;

enum class Kind { kUnsigned, kSigned, kFloat, kBool, kOther };
struct KvRow {
  std::string_view name;
  std::size_t width;
  Kind kind;
};
constexpr KvRow kKvTypes[] = {
    {"u8", 1, Kind::kUnsigned}, {"i8", 1, Kind::kSigned},    {"u16", 2, Kind::kUnsigned},
    {"i16", 2, Kind::kSigned},  {"u32", 4, Kind::kUnsigned}, {"i32", 4, Kind::kSigned},
    {"f32", 4, Kind::kFloat},   {"bool", 1, Kind::kBool},    {"string", 0, Kind::kOther},
    {"array", 0, Kind::kOther}, {"u64", 8, Kind::kUnsigned}, {"i64", 8, Kind::kSigned},
    {"f64", 8, Kind::kFloat}};

const KvRow& RowOf(KvType type) { return kKvTypes[static_cast<std::uint32_t>(type)]; }

struct BlockFields {
  std::string_view type;
  std::uint32_t fields;
  std::array<std::uint32_t, 2> at;
};
// Block types with known writers of big-endian files, and fields of certain width.
constexpr BlockFields kBlockFields[] = {
    {"q4_0", 1, {0}}, {"q8_0", 1, {0}}, {"q4_k", 2, {0, 2}}, {"q6_k", 1, {208}}};

constexpr std::string_view kSplitKeys[] = {"split.no", "split.count", "split.tensors.count"};

}  // namespace

std::optional<KvType> ParseKvType(std::uint32_t raw) {
  return raw < std::size(kKvTypes) ? std::optional(static_cast<KvType>(raw)) : std::nullopt;
}

std::optional<KvType> ParseKvType(std::string_view name) {
  const auto row = std::ranges::find(kKvTypes, name, &KvRow::name);
  return ParseKvType(static_cast<std::uint32_t>(row - std::begin(kKvTypes)));
}

std::string_view KvName(KvType type) { return RowOf(type).name; }
std::size_t KvWidth(KvType type) { return RowOf(type).width; }
bool IsInteger(KvType type) {
  return RowOf(type).kind == Kind::kUnsigned || RowOf(type).kind == Kind::kSigned;
}

bool KeepAsBytes(KvType type, std::uint64_t count) {
  return type == KvType::kU8 || type == KvType::kI8 || count > kLongestList;
}

Value LoadNumber(KvType type, std::span<const std::byte> little) {
  const std::uint64_t raw = zt::internal::LoadLittle(little.data(), little.size());
  const int spare = static_cast<int>(64 - 8 * little.size());
  switch (RowOf(type).kind) {
    case Kind::kUnsigned:
      return Value(raw);
    case Kind::kSigned:
      return Value(static_cast<std::int64_t>(raw << spare) >> spare);
    case Kind::kBool:
      return Value(raw == 1);
    default:
      break;
  }
  const double number = spare == 0 ? std::bit_cast<double>(raw)
                                   : double{std::bit_cast<float>(static_cast<std::uint32_t>(raw))};
  if (std::isnan(number)) return Value(Value::Bytes(little.begin(), little.end()));
  return Value(number);
}

StatusOr<std::uint64_t> StoreNumber(KvType type, const Value& value) {
  const auto& [name, width, kind] = RowOf(type);
  if (kind == Kind::kBool) {
    if (value.AsBool() == nullptr) return InvalidData("a bool is neither true nor false");
    return std::uint64_t{*value.AsBool()};
  }
  if (kind == Kind::kFloat) {
    if (const Value::Bytes* nan = value.AsBytes(); nan != nullptr && nan->size() == width)
      return zt::internal::LoadLittle(nan->data(), width);
    if (value.AsDouble() == nullptr) return InvalidData("a float is not a number");
    const double number = *value.AsDouble();
    if (width == 8) return std::bit_cast<std::uint64_t>(number);
    if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max())
      return InvalidData("a float is out of its type's range");
    return std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(number))};
  }
  const std::uint64_t most = ~std::uint64_t{0} >> (64 - 8 * width + (kind == Kind::kSigned));
  if (const std::uint64_t* number = value.AsUint(); number != nullptr && *number <= most)
    return *number;
  const std::int64_t* const negative = value.AsInt();
  if (kind == Kind::kSigned && negative != nullptr && *negative < 0 &&
      static_cast<std::uint64_t>(-(*negative + 1)) <= most) {
    return static_cast<std::uint64_t>(*negative);
  }
  return InvalidData("an integer is missing or out of its type's range");
}

Value TextValue(std::string_view text) {
  if (IsUtf8(text)) return Value(text);
  const auto bytes = std::as_bytes(std::span(text));
  return Value(Value::Bytes(bytes.begin(), bytes.end()));
}

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

}  // namespace gguf::internal
}  // namespace zt
