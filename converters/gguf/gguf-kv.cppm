// zt.convert.gguf:kv — metadata types and how a value of each is held; shared by parser and encoder.
module zt.convert.gguf:kv;

import zt.std;
import zt.core;

namespace zt::gguf::internal {

enum class KvType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
inline constexpr std::uint32_t kKvTypeCount = 13;

std::optional<KvType> ParseKvType(std::uint32_t raw);
std::optional<KvType> ParseKvType(std::string_view name);
std::string_view KvName(KvType type);
// Bytes of one value; 0 for strings and arrays.
std::size_t KvWidth(KvType type);

// Whether an array of `count` numbers is held as their bytes rather than as a list.
bool KeepAsBytes(KvType type, std::uint64_t count);

// A double, or for NaN the little-endian bytes: neither CBOR nor a conversion keeps a NaN's payload.
Value FloatValue(float v);
Value FloatValue(double v);
// Text, or bytes if it is not UTF-8.
Value TextValue(std::string_view text);

}  // namespace zt::gguf::internal
