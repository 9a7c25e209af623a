// zt.transform:bytes — bodies.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

module zt.transform;

import zt.core;

namespace zt {

void SwapBytes(std::span<std::byte> data, std::size_t width) {
  for (std::size_t i = 0; i + width <= data.size(); i += width) {
    std::reverse(data.begin() + static_cast<std::ptrdiff_t>(i),
                 data.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

void SwapBytes(std::span<const std::byte> in, std::span<std::byte> out, std::size_t width) {
  std::copy(in.begin(), in.end(), out.begin());
  SwapBytes(out, width);
}

namespace {
template <typename T>
Status Widen(std::span<const std::byte> in, std::span<std::uint64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
    if (value < 0) {
      return InvalidData("index " + std::to_string(i) + " is negative: " + std::to_string(value));
    }
    out[i] = static_cast<std::uint64_t>(value);
  }
  return OkStatus();
}
}  // namespace

Status WidenToU64(std::span<const std::byte> in, DType from, std::span<std::uint64_t> out) {
  if (in.size() != out.size() * ByteWidth(from)) return InvalidArgument("sizes disagree");
  switch (from) {
    case DType::kI64:
      return Widen<std::int64_t>(in, out);
    case DType::kI32:
      return Widen<std::int32_t>(in, out);
    case DType::kI16:
      return Widen<std::int16_t>(in, out);
    case DType::kI8:
      return Widen<std::int8_t>(in, out);
    case DType::kU64:
      return Widen<std::uint64_t>(in, out);
    case DType::kU32:
      return Widen<std::uint32_t>(in, out);
    case DType::kU16:
      return Widen<std::uint16_t>(in, out);
    case DType::kU8:
      return Widen<std::uint8_t>(in, out);
    default:
      return Unsupported("indices of dtype " + std::string(Name(from)));
  }
}

void Transpose(const std::byte* in, std::size_t in_stride, std::byte* out, std::size_t out_stride,
               std::size_t rows, std::size_t cols, std::size_t width) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      std::memcpy(out + (c * out_stride + r) * width, in + (r * in_stride + c) * width, width);
    }
  }
}

}  // namespace zt
