// zt.format — pull reader and head writer over libcbor. Knows CBOR items, not tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/raw_vector.h"

namespace zt::format_cbor {

enum class Kind : std::uint8_t {
  kUint,
  kNegative,  // the number is -1 - value
  kBytes,
  kText,
  kArray,  // `value` items follow, or items until a break
  kMap,    // `value` pairs follow, or pairs until a break
  kBool,
  kNull,
  kUndefined,
  kSimple,  // another of CBOR's simple values: `value` is its number
  kDouble,  // half and single widened
  kTag,     // `value` is the tag's number; the tagged item follows
  kError,   // Reader::error() says what is wrong; every later item is this one
};

// "an array", "text", ...: for messages.
std::string_view Describe(Kind kind);

struct Item {
  Kind kind = Kind::kError;
  bool indefinite = false;  // arrays and maps
  std::uint64_t value = 0;
  double number = 0;
  // Text or bytes of kText and kBytes: in the input, or valid until the next item.
  std::string_view text = {};
};

// The items of an array or map that remain to be read.
struct Container {
  std::uint64_t left = 0;
  bool indefinite = false;
};

// Reads item heads in sequence. Allocates only to join strings that come in chunks.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes, std::size_t position = 0)
      : bytes_(bytes), position_(position) {}

  Item Next();
  // True if another item (or pair) of the container follows. Consumes the break of an indefinite
  // one.
  bool More(Container& container);
  // Skips one item and its content. False, with error() set, if it is malformed or nests deeper
  // than `depth` containers.
  bool Skip(std::size_t depth);

  inline std::size_t position() const { return position_; }
  // Moves to the start of an item, forward or back, and clears the error.
  inline void Rewind(std::size_t position) {
    position_ = position;
    error_.clear();
  }
  inline std::size_t remaining() const { return bytes_.size() - position_; }
  inline const std::string& error() const { return error_; }

 private:
  Item JoinChunks(Kind kind);
  Item Fail(std::string_view what);
  bool SkipItem(const Item& item, std::size_t depth);

  std::span<const std::byte> bytes_;
  std::size_t position_;
  std::string joined_;
  std::string error_;
};

// Size of the shortest head for `value`: a number, or the size of a text.
std::size_t HeadBytes(std::uint64_t value);

inline Container Open(const Item& item) { return {item.value, item.indefinite}; }

// Output buffer. Most items are a few bytes, and a manifest has millions.
using Buffer = zt::internal::RawVector<std::byte>;

// Appends `size` bytes to the buffer and returns them.
inline std::byte* Extend(Buffer& out, std::size_t size) {
  const std::size_t at = out.size();
  out.resize(at + size);
  return out.data() + at;
}

// Append heads and items in the shortest form. The `Long` functions are for heads that do not fit
// one byte.
void AppendLongUint(Buffer& out, std::uint64_t value);
void AppendLongText(Buffer& out, std::string_view text);
void AppendLongArrayHead(Buffer& out, std::uint64_t count);
void AppendLongMapHead(Buffer& out, std::uint64_t count);
inline constexpr std::uint64_t kLong = 24;

inline void AppendUint(Buffer& out, std::uint64_t value) {
  if (value >= kLong) return AppendLongUint(out, value);
  *Extend(out, 1) = static_cast<std::byte>(value);
}
inline void AppendText(Buffer& out, std::string_view text) {
  if (text.size() >= kLong) return AppendLongText(out, text);
  std::byte* const to = Extend(out, 1 + text.size());
  *to = static_cast<std::byte>(0x60 + text.size());
  if (!text.empty()) std::memcpy(to + 1, text.data(), text.size());
}
// Appends a member of a map. The key must be shorter than kLong bytes.
inline void AppendMember(Buffer& out, std::string_view key, std::uint64_t value) {
  AppendText(out, key);
  AppendUint(out, value);
}
inline void AppendMember(Buffer& out, std::string_view key, std::string_view text) {
  if (text.size() >= kLong) {
    AppendText(out, key);
    return AppendLongText(out, text);
  }
  std::byte* const to = Extend(out, 2 + key.size() + text.size());
  to[0] = static_cast<std::byte>(0x60 + key.size());
  std::memcpy(to + 1, key.data(), key.size());
  to[1 + key.size()] = static_cast<std::byte>(0x60 + text.size());
  if (!text.empty()) std::memcpy(to + 2 + key.size(), text.data(), text.size());
}
inline void AppendArrayHead(Buffer& out, std::uint64_t count) {
  if (count >= kLong) return AppendLongArrayHead(out, count);
  *Extend(out, 1) = static_cast<std::byte>(0x80 + count);
}
inline void AppendMapHead(Buffer& out, std::uint64_t count) {
  if (count >= kLong) return AppendLongMapHead(out, count);
  *Extend(out, 1) = static_cast<std::byte>(0xa0 + count);
}
void AppendNegative(Buffer& out, std::uint64_t value);  // the number -1 - value
void AppendBytes(Buffer& out, std::span<const std::byte> bytes);
void AppendBool(Buffer& out, bool value);
void AppendNull(Buffer& out);
// Appends the shortest of half, single and double that holds the value; every NaN becomes the half
// 0x7e00.
void AppendDouble(Buffer& out, double value);

// The order of map keys in deterministic CBOR: by encoded bytes. For text that is by length, then
// by bytes.
inline bool KeyLess(std::string_view a, std::string_view b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace zt::format_cbor
