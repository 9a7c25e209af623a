// zt.transform:bytes — calls the kernels.
module;

#include "core/little_endian.h"
#include "transform/bytes_kernel.h"
#include "transform/streaming.h"

module zt.transform;

import zt.std;
import zt.core;

namespace zt {
namespace {

const std::uint8_t* Octets(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
std::uint8_t* Octets(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

std::int64_t SignedAt(std::span<const std::byte> in, std::size_t width, std::size_t i) {
  const std::uint64_t bits = internal::LoadLittle(in.data() + i * width, width);
  const auto unused = 64 - width * 8;
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

}  // namespace

void SwapBytes(std::span<std::byte> data, std::size_t width) {
  if (width > 1) kernel::SwapBytes(Octets(data.data()), Octets(data.data()), data.size(), width);
}

void SwapBytes(std::span<const std::byte> in, std::span<std::byte> out, std::size_t width) {
  if (width == 1) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  const std::uint8_t* const from = Octets(in.data());
  kernel::ForEachBlock(Octets(out.data()), width, in.size() / width,
                       [&](std::size_t first, std::size_t count, std::uint8_t* to) {
                         kernel::SwapBytes(from + first * width, to, count * width, width);
                       });
}

void LittleEndian(std::span<std::byte> data, std::size_t width) {
  if constexpr (std::endian::native == std::endian::big) SwapBytes(data, width);
}

Status WidenToU64(std::span<const std::byte> in, DType from, std::span<std::uint64_t> out) {
  const std::size_t width = ByteWidth(from);
  if (in.size() != out.size() * width) return InvalidArgument("sizes disagree");
  if (!IsSignedInt(from) && !IsUnsignedInt(from)) {
    return Unsupported("indices of dtype " + std::string(Name(from)));
  }
  const std::uint8_t* const source = Octets(in.data());
  bool good = true;
  kernel::ForEachBlock(reinterpret_cast<std::uint8_t*>(out.data()), 8, out.size(),
                       [&](std::size_t first, std::size_t count, std::uint8_t* to) {
                         good &= kernel::WidenToU64(source + first * width, width,
                                                    IsSignedInt(from), count, to);
                       });
  for (std::size_t i = 0; !good && i < out.size(); ++i) {
    if (const std::int64_t value = SignedAt(in, width, i); value < 0) {
      return InvalidData("index " + std::to_string(i) + " is negative: " + std::to_string(value));
    }
  }
  return OkStatus();
}

void Transpose(const std::byte* in, std::size_t in_stride, std::byte* out, std::size_t out_stride,
               std::size_t rows, std::size_t cols, std::size_t width) {
  kernel::Transpose(Octets(in), in_stride, Octets(out), out_stride, rows, cols, width);
}

}  // namespace zt
