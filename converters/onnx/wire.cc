// zt.convert.onnx:wire — reads protobuf's wire format.
module;

#include "core/status_macros.h"

module zt.convert.onnx;

import zt.std;
import :wire;
import zt.core;
import zt.source;

namespace zt::onnx::internal {
namespace {

constexpr std::uint64_t kMaxName = std::uint64_t{1} << 20;
constexpr std::uint64_t kBuffer = std::uint64_t{64} << 10;  // size of a read
constexpr std::size_t kMostVarint = 10;                     // bytes of a number

// The number at the begin of `bytes`, and how many bytes it has; 0 bytes if it does not end within.
std::pair<std::uint64_t, std::size_t> Decode(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[i]);
    if (i < kMostVarint) value |= (byte & 0x7f) << (7 * i);  // the tenth byte has one bit
    if (byte < 0x80) return {value, i + 1};
  }
  return {0, 0};
}

}  // namespace

Status Damaged(std::uint64_t at, std::string_view what) {
  return InvalidData("the model is damaged at byte " + std::to_string(at) + ": " +
                     std::string(what));
}

StatusOr<std::span<const std::byte>> Cursor::Buffered() {
  if (at_ >= size_) return Damaged(at_, "it ends within a field; the file is truncated");
  // A number lies in the buffer whole, unless the file ends.
  const std::uint64_t want = std::min<std::uint64_t>(kMostVarint, size_ - at_);
  if (at_ < begin_ || at_ + want > begin_ + buffer_.size()) {
    buffer_.resize(std::min(kBuffer, size_ - at_));
    begin_ = at_;
    ZT_RETURN_IF_ERROR(bytes_.ReadAt(at_, buffer_));
  }
  return std::span<const std::byte>(buffer_).subspan(at_ - begin_);
}

StatusOr<std::uint64_t> Cursor::Varint(std::uint64_t end) {
  if (at_ >= end) return Damaged(at_, "a number reaches beyond its message");
  ZT_ASSIGN_OR_RETURN(std::span<const std::byte> bytes, Buffered());
  const std::size_t most = std::min<std::uint64_t>({bytes.size(), kMostVarint, end - at_});
  const auto [value, size] = Decode(bytes.first(most));
  if (size == 0 && most == kMostVarint) return Damaged(at_, "a number has more than ten bytes");
  if (size == 0 && most == end - at_) return Damaged(at_, "a number reaches beyond its message");
  if (size == 0) return Damaged(size_, "it ends within a field; the file is truncated");
  at_ += size;
  return value;
}

Status Cursor::Bytes(std::span<std::byte> out) {
  while (!out.empty() && out.size() < kBuffer) {
    ZT_ASSIGN_OR_RETURN(std::span<const std::byte> bytes, Buffered());
    bytes = bytes.first(std::min(bytes.size(), out.size()));
    std::ranges::copy(bytes, out.begin());
    out = out.subspan(bytes.size());
    at_ += bytes.size();
  }
  if (out.empty()) return OkStatus();
  at_ += out.size();
  return bytes_.ReadAt(at_ - out.size(), out);
}

StatusOr<Field> Cursor::Next(std::uint64_t end) {
  const std::uint64_t begin = at_;
  ZT_ASSIGN_OR_RETURN(const std::uint64_t tag, Varint(end));
  Field field{.number = tag >> 3, .wire = static_cast<int>(tag & 7), .value = 0, .range = {}};
  if (field.number == 0) return Damaged(begin, "a field has the number 0");
  std::uint64_t length = 0, offset = at_;
  switch (field.wire) {
    case 0: {
      ZT_ASSIGN_OR_RETURN(field.value, Varint(end));
      length = at_ - offset;
      break;
    }
    case 1:
      length = 8;
      break;
    case 2: {
      ZT_ASSIGN_OR_RETURN(length, Varint(end));
      offset = at_;
      break;
    }
    case 5:
      length = 4;
      break;
    default:
      return Damaged(begin, "a field has a wire type that protobuf does not have");
  }
  if (length > end - offset) return Damaged(begin, "a field reaches beyond its message");
  if (length > size_ - offset) return Damaged(begin, "a field is cut off; the file is truncated");
  field.range = {offset, length};
  at_ = offset + length;
  return field;
}

StatusOr<std::string> Cursor::Name(const FileRange& range) {
  if (range.length > kMaxName) return Unsupported("a name in it is longer than 1 MiB");
  std::string text(range.length, '\0');
  at_ = range.offset;
  ZT_RETURN_IF_ERROR(Bytes(std::as_writable_bytes(std::span(text))));
  return text;
}

StatusOr<std::uint64_t> Cursor::CountVarints(const FileRange& range) {
  std::uint64_t count = 0;
  at_ = range.offset;
  while (at_ < range.end()) {
    ZT_ASSIGN_OR_RETURN(std::span<const std::byte> bytes, Buffered());
    bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), range.end() - at_));
    count += static_cast<std::uint64_t>(
        std::ranges::count_if(bytes, [](std::byte byte) { return byte < std::byte{0x80}; }));
    at_ += bytes.size();
  }
  return count;
}

}  // namespace zt::onnx::internal
