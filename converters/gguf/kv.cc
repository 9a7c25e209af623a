// zt.convert.gguf:kv — bodies.
module zt.convert.gguf;

import zt.std;
import zt.core;
import :kv;

namespace zt::gguf::internal {
namespace {

constexpr std::uint64_t kLongestList = 64;

struct Row {
  std::string_view name;
  std::size_t width;
};
constexpr std::array<Row, kKvTypeCount> kRows = {{{"u8", 1},
                                                  {"i8", 1},
                                                  {"u16", 2},
                                                  {"i16", 2},
                                                  {"u32", 4},
                                                  {"i32", 4},
                                                  {"f32", 4},
                                                  {"bool", 1},
                                                  {"string", 0},
                                                  {"array", 0},
                                                  {"u64", 8},
                                                  {"i64", 8},
                                                  {"f64", 8}}};

template <typename T>
Value Held(T v) {
  if (!std::isnan(v)) return Value(static_cast<double>(v));
  Value::Bytes bytes(sizeof(T));
  std::memcpy(bytes.data(), &v, sizeof(T));
  if constexpr (std::endian::native == std::endian::big) std::reverse(bytes.begin(), bytes.end());
  return Value(std::move(bytes));
}

}  // namespace

std::optional<KvType> ParseKvType(std::uint32_t raw) {
  if (raw >= kKvTypeCount) return std::nullopt;
  return static_cast<KvType>(raw);
}

std::optional<KvType> ParseKvType(std::string_view name) {
  for (std::uint32_t i = 0; i < kKvTypeCount; ++i) {
    if (kRows[i].name == name) return static_cast<KvType>(i);
  }
  return std::nullopt;
}

std::string_view KvName(KvType type) { return kRows[static_cast<std::uint32_t>(type)].name; }
std::size_t KvWidth(KvType type) { return kRows[static_cast<std::uint32_t>(type)].width; }

bool KeepAsBytes(KvType type, std::uint64_t count) {
  return type == KvType::kU8 || type == KvType::kI8 || count > kLongestList;
}

Value FloatValue(float v) { return Held(v); }
Value FloatValue(double v) { return Held(v); }

Value TextValue(std::string_view text) {
  if (IsUtf8(text)) return Value(text);
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return Value(Value::Bytes(data, data + text.size()));
}

}  // namespace zt::gguf::internal
