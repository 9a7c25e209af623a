// zt.format — CBOR items over libcbor's streaming decoder and encoders; the only file that includes
// <cbor.h>.
#include "format/cbor.h"

#include <cbor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace zt::format_cbor {
namespace {

// One decoded head, or one of the two events that are not items.
struct Event {
  Item item;
  bool is_break = false;
  bool is_chunked = false;  // an indefinite string begins
};

Event& At(void* context) { return *static_cast<Event*>(context); }
void SetNumber(void* context, Kind kind, std::uint64_t value) {
  At(context).item.kind = kind;
  At(context).item.value = value;
}
void SetString(void* context, Kind kind, cbor_data data, std::size_t size) {
  At(context).item.kind = kind;
  At(context).item.text = {reinterpret_cast<const char*>(data), size};
}
void SetStart(void* context, Kind kind, bool indefinite, std::size_t count) {
  At(context).item.kind = kind;
  At(context).item.indefinite = indefinite;
  At(context).item.value = count;
}
void SetChunked(void* context, Kind kind) {
  At(context).item.kind = kind;
  At(context).is_chunked = true;
}
void SetDouble(void* context, double number) {
  At(context).item.kind = Kind::kDouble;
  At(context).item.number = number;
}

constexpr cbor_callbacks kCallbacks = {
    .uint8 = [](void* c, std::uint8_t v) { SetNumber(c, Kind::kUint, v); },
    .uint16 = [](void* c, std::uint16_t v) { SetNumber(c, Kind::kUint, v); },
    .uint32 = [](void* c, std::uint32_t v) { SetNumber(c, Kind::kUint, v); },
    .uint64 = [](void* c, std::uint64_t v) { SetNumber(c, Kind::kUint, v); },
    .negint64 = [](void* c, std::uint64_t v) { SetNumber(c, Kind::kNegative, v); },
    .negint32 = [](void* c, std::uint32_t v) { SetNumber(c, Kind::kNegative, v); },
    .negint16 = [](void* c, std::uint16_t v) { SetNumber(c, Kind::kNegative, v); },
    .negint8 = [](void* c, std::uint8_t v) { SetNumber(c, Kind::kNegative, v); },
    .byte_string_start = [](void* c) { SetChunked(c, Kind::kBytes); },
    .byte_string = [](void* c, cbor_data d, std::size_t n) { SetString(c, Kind::kBytes, d, n); },
    .string = [](void* c, cbor_data d, std::size_t n) { SetString(c, Kind::kText, d, n); },
    .string_start = [](void* c) { SetChunked(c, Kind::kText); },
    .indef_array_start = [](void* c) { SetStart(c, Kind::kArray, true, 0); },
    .array_start = [](void* c, std::size_t n) { SetStart(c, Kind::kArray, false, n); },
    .indef_map_start = [](void* c) { SetStart(c, Kind::kMap, true, 0); },
    .map_start = [](void* c, std::size_t n) { SetStart(c, Kind::kMap, false, n); },
    .tag = [](void* c, std::uint64_t v) { SetNumber(c, Kind::kTag, v); },
    .float2 = [](void* c, float v) { SetDouble(c, v); },
    .float4 = [](void* c, float v) { SetDouble(c, v); },
    .float8 = [](void* c, double v) { SetDouble(c, v); },
    .undefined = [](void* c) { SetNumber(c, Kind::kUndefined, 0); },
    .null = [](void* c) { SetNumber(c, Kind::kNull, 0); },
    .boolean = [](void* c, bool v) { SetNumber(c, Kind::kBool, v ? 1 : 0); },
    .indef_break = [](void* c) { At(c).is_break = true; },
};

constexpr std::byte kBreak{0xff};

// Size of the longest head or number: one byte and eight.
constexpr std::size_t kMaxHead = 9;

// Appends a head and the bytes after it.
template <typename Encode>
void Append(Buffer& out, const void* data, std::size_t size, Encode encode) {
  unsigned char head[kMaxHead];
  const std::size_t bytes = encode(head);
  std::byte* const to = Extend(out, bytes + size);
  std::memcpy(to, head, bytes);
  if (size > 0) std::memcpy(to + bytes, data, size);
}
template <typename Encode>
void Append(Buffer& out, Encode encode) {
  Append(out, nullptr, 0, encode);
}

// Converts `value` to a half if that loses nothing. The caller handles NaN.
bool ExactHalf(float value, std::uint16_t* half) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127;
  const std::uint32_t mantissa = bits & 0x7fffff;
  if (exponent == 128) {  // infinity
    *half = sign | 0x7c00;
    return true;
  }
  if ((bits & 0x7fffffff) == 0) {
    *half = sign;
    return true;
  }
  if (exponent > 15 || exponent < -24) return false;
  if (exponent >= -14) {
    if (mantissa & 0x1fff) return false;
    *half = static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | mantissa >> 13);
    return true;
  }
  const std::uint32_t full = mantissa | 0x800000;  // subnormal half: 2^-24 units
  const int shift = -exponent - 1;                 // 14..23
  if (full & ((std::uint32_t{1} << shift) - 1)) return false;
  *half = static_cast<std::uint16_t>(sign | full >> shift);
  return true;
}

// Size of the simple value that `bytes` start with, if it is well-formed and has no meaning (RFC
// 8949 §3.3), which libcbor reports as an error; else 0.
std::size_t SimpleBytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return 0;
  if (bytes[0] >= std::byte{0xe0} && bytes[0] < std::byte{0xf4}) return 1;
  return bytes[0] == std::byte{0xf8} && bytes.size() > 1 && bytes[1] >= std::byte{32} ? 2 : 0;
}

}  // namespace

std::string_view Describe(Kind kind) {
  switch (kind) {
    case Kind::kUint:
    case Kind::kNegative:
      return "an integer";
    case Kind::kBytes:
      return "a byte string";
    case Kind::kText:
      return "text";
    case Kind::kArray:
      return "an array";
    case Kind::kMap:
      return "a map";
    case Kind::kBool:
      return "a boolean";
    case Kind::kNull:
      return "null";
    case Kind::kUndefined:
      return "undefined";
    case Kind::kSimple:
      return "a simple value";
    case Kind::kDouble:
      return "a float";
    case Kind::kTag:
      return "a tagged value";
    case Kind::kError:
      break;
  }
  return "malformed CBOR";
}

Item Reader::Fail(std::string_view what) {
  if (error_.empty()) error_ = std::string(what) + " at byte " + std::to_string(position_);
  return {};
}

Item Reader::Next() {
  if (!error_.empty()) return {};
  if (const std::size_t size = SimpleBytes(bytes_.subspan(position_)); size > 0) {
    position_ += size;
    const auto last = std::to_integer<std::uint64_t>(bytes_[position_ - 1]);
    return {.kind = Kind::kSimple, .value = size == 1 ? last & 0x1f : last};
  }
  Event event;
  const auto* data = reinterpret_cast<cbor_data>(bytes_.data()) + position_;
  const cbor_decoder_result result =
      cbor_stream_decode(data, remaining(), &kCallbacks, static_cast<void*>(&event));
  if (result.status == CBOR_DECODER_NEDATA) return Fail("the CBOR ends early");
  if (result.status != CBOR_DECODER_FINISHED) return Fail("the CBOR is malformed");
  if (event.is_break) return Fail("a CBOR break is out of place");
  position_ += result.read;
  if (event.is_chunked) return JoinChunks(event.item.kind);
  return event.item;
}

Item Reader::JoinChunks(Kind kind) {
  std::string joined;
  for (;;) {
    if (remaining() > 0 && bytes_[position_] == kBreak) {
      ++position_;
      break;
    }
    // A chunk is a definite string of the same kind: major type 2 or 3, never the indefinite
    // start 0x5f/0x7f.
    const auto major = kind == Kind::kText ? 3u : 2u;
    if (remaining() > 0) {
      const auto head = std::to_integer<unsigned>(bytes_[position_]);
      if (head >> 5 != major || (head & 31) == 31)
        return Fail("a CBOR string's chunk is malformed");
    }
    const Item chunk = Next();
    if (chunk.kind == Kind::kError) return {};
    joined += chunk.text;
  }
  joined_ = std::move(joined);
  Item item;
  item.kind = kind;
  item.text = joined_;
  return item;
}

bool Reader::More(Container& container) {
  if (container.indefinite) {
    if (remaining() > 0 && bytes_[position_] == kBreak) {
      ++position_;
      return false;
    }
    return true;
  }
  if (container.left == 0) return false;
  --container.left;
  return true;
}

bool Reader::Skip(std::size_t depth) { return SkipItem(Next(), depth); }

bool Reader::SkipItem(const Item& item, std::size_t depth) {
  switch (item.kind) {
    case Kind::kError:
      return false;
    case Kind::kTag:
    case Kind::kArray:
    case Kind::kMap: {
      if (depth == 0) {
        Fail("the CBOR nests too deeply");
        return false;
      }
      if (item.kind == Kind::kTag) return Skip(depth - 1);
      Container container = Open(item);
      while (More(container)) {
        if (item.kind == Kind::kMap && !Skip(depth - 1)) return false;
        if (!Skip(depth - 1)) return false;
      }
      return true;
    }
    default:
      return true;
  }
}

std::size_t HeadBytes(std::uint64_t value) {
  return 1 + (value < 24            ? 0
              : value <= 0xff       ? 1
              : value <= 0xffff     ? 2
              : value <= 0xffffffff ? 4
                                    : 8);
}

void AppendLongUint(Buffer& out, std::uint64_t value) {
  Append(out, [&](unsigned char* to) { return cbor_encode_uint(value, to, kMaxHead); });
}
void AppendNegative(Buffer& out, std::uint64_t value) {
  Append(out, [&](unsigned char* to) { return cbor_encode_negint(value, to, kMaxHead); });
}
void AppendLongText(Buffer& out, std::string_view text) {
  Append(out, text.data(), text.size(),
         [&](unsigned char* to) { return cbor_encode_string_start(text.size(), to, kMaxHead); });
}
void AppendBytes(Buffer& out, std::span<const std::byte> bytes) {
  Append(out, bytes.data(), bytes.size(), [&](unsigned char* to) {
    return cbor_encode_bytestring_start(bytes.size(), to, kMaxHead);
  });
}
void AppendLongArrayHead(Buffer& out, std::uint64_t count) {
  Append(out, [&](unsigned char* to) { return cbor_encode_array_start(count, to, kMaxHead); });
}
void AppendLongMapHead(Buffer& out, std::uint64_t count) {
  Append(out, [&](unsigned char* to) { return cbor_encode_map_start(count, to, kMaxHead); });
}
void AppendBool(Buffer& out, bool value) {
  Append(out, [&](unsigned char* to) { return cbor_encode_bool(value, to, kMaxHead); });
}
void AppendNull(Buffer& out) {
  Append(out, [](unsigned char* to) { return cbor_encode_null(to, kMaxHead); });
}

void AppendDouble(Buffer& out, double value) {
  const auto append_half = [&out](std::uint16_t half) {
    const std::byte bytes[] = {std::byte{0xf9}, static_cast<std::byte>(half >> 8),
                               static_cast<std::byte>(half & 0xff)};
    out.insert(out.end(), std::begin(bytes), std::end(bytes));
  };
  if (std::isnan(value)) return append_half(0x7e00);
  // A double beyond float's range does not fit a single; the conversion would be undefined.
  const bool fits = std::isinf(value) || std::fabs(value) <= 3.4028234663852886e38;
  const float single = fits ? static_cast<float>(value) : 0.0f;
  if (!fits || static_cast<double>(single) != value) {
    Append(out, [&](unsigned char* to) { return cbor_encode_double(value, to, kMaxHead); });
    return;
  }
  std::uint16_t half;
  if (ExactHalf(single, &half)) return append_half(half);
  Append(out, [&](unsigned char* to) { return cbor_encode_single(single, to, kMaxHead); });
}

}  // namespace zt::format_cbor
