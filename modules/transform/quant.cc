// zt.transform:quant — calls of the kernels for quantized checkpoints.
module;

#include "core/status_macros.h"
#include "transform/convert_kernel.h"
#include "transform/quant_kernel.h"

module zt.transform;

import zt.std;
import zt.core;

namespace zt {
namespace {

// Codes per step: they and their numbers stay in the first-level cache.
constexpr std::size_t kStep = 2048;

const std::uint8_t* AsBytes(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}

// The code of `bits` bits that begins at a bit of `in`.
std::uint8_t DenseCode(const std::uint8_t* in, unsigned bits, std::size_t bit) {
  const auto shift = static_cast<unsigned>(bit % 8);
  unsigned code = in[bit / 8] >> shift;
  if (shift + bits > 8) code |= unsigned{in[bit / 8 + 1]} << (8 - shift);
  return static_cast<std::uint8_t>(code & ((1u << bits) - 1));
}

// Nibbles from an odd or even place on.
void Nibbles(const std::uint8_t* in, bool high_first, bool odd, std::uint8_t* out,
             std::size_t count) {
  if (odd && count > 0) {
    *out++ = static_cast<std::uint8_t>(high_first ? *in & 15 : *in >> 4);
    ++in;
    --count;
  }
  kernel::UnpackNibbles(in, count / 2, high_first, out);
  if (count % 2 != 0)
    out[count - 1] = static_cast<std::uint8_t>((in[count / 2] >> (high_first ? 4 : 0)) & 15);
}

void DecodeStep(const CodeLayout& layout, const std::uint8_t* in, std::uint64_t first,
                unsigned shift, std::span<float> out) {
  std::uint8_t codes[kStep];
  switch (layout.kind) {
    case Codes::kE4m3: {
      kernel::Counts ignored;
      return kernel::ConvertFloats(kernel::Number::kE4m3fn, kernel::Number::kF32, in,
                                   reinterpret_cast<std::uint8_t*>(out.data()), out.size(), false,
                                   ignored);
    }
    case Codes::kI8:
      return kernel::WidenI8(in, out.data(), out.size());
    case Codes::kLowFirst:
      if (layout.per_word != 0) {
        const std::size_t at = first % layout.per_word;  // of the first word
        for (std::size_t i = 0; i < out.size(); ++i) {
          const std::size_t word = (at + i) / layout.per_word, code = (at + i) % layout.per_word;
          codes[i] = DenseCode(in + 4 * word, layout.bits, code * layout.bits);
        }
        return kernel::WidenU8(codes, out.data(), out.size());
      }
      if (layout.bits == 8) return kernel::WidenU8(in, out.data(), out.size());
      if (layout.bits != 4) {
        const auto before = static_cast<unsigned>(first % 8 * layout.bits % 8);  // bits, in `in`
        for (std::size_t i = 0; i < out.size(); ++i)
          codes[i] = DenseCode(in, layout.bits, before + i * layout.bits);
        return kernel::WidenU8(codes, out.data(), out.size());
      }
      Nibbles(in, false, first % 2 != 0, codes, out.size());
      break;
    case Codes::kHighNibble:
      Nibbles(in, true, first % 2 != 0, codes, out.size());
      break;
    case Codes::kPicked:
      kernel::PickNibbles(in, layout.unit, shift, codes, out.size());
      break;
  }
  kernel::LookUp16(codes, layout.values.data(), out.data(), out.size());
}

}  // namespace

const std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                           -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
const std::array<float, 16> kPlainValues = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

std::pair<std::uint64_t, std::uint64_t> BytesOfCodes(const CodeLayout& layout, std::uint64_t first,
                                                     std::uint64_t count) {
  switch (layout.kind) {
    case Codes::kE4m3:
    case Codes::kI8:
      return {first, first + count};
    case Codes::kPicked:
      return {first * layout.unit, (first + count) * layout.unit};
    case Codes::kLowFirst:
    case Codes::kHighNibble:
      break;
  }
  if (const std::uint64_t per = layout.per_word; per != 0 && layout.kind == Codes::kLowFirst)
    return {first / per * 4, (first + count + per - 1) / per * 4};
  const unsigned bits = layout.kind == Codes::kLowFirst ? layout.bits : 4;
  // No overflow: eight codes have `bits` bytes.
  const auto byte = [&](std::uint64_t code, std::uint64_t round_up) {
    return code / 8 * bits + (code % 8 * bits + round_up) / 8;
  };
  return {byte(first, 0), byte(first + count, 7)};
}

void DecodeCodes(const CodeLayout& layout, const std::byte* bytes, std::uint64_t first,
                 unsigned shift, std::span<float> out) {
  const std::uint64_t begin = BytesOfCodes(layout, first, 0).first;
  while (!out.empty()) {
    const std::size_t some = std::min(out.size(), kStep);
    const std::uint64_t at = BytesOfCodes(layout, first, 0).first - begin;
    DecodeStep(layout, AsBytes(bytes) + at, first, shift, out.first(some));
    first += some;
    out = out.subspan(some);
  }
}

void ScaleRuns(std::span<float> x, const float* scales, const float* zeros, std::size_t into,
               std::size_t group) {
  kernel::ScaleRuns(x.data(), x.size(), scales, zeros, into, group);
}
void ScaleEach(std::span<float> x, const float* scales, const float* zeros) {
  kernel::ScaleEach(x.data(), x.size(), scales, zeros);
}

void ScaleGathered(std::span<float> x, const std::uint32_t* groups, const float* scales,
                   const float* zeros) {
  kernel::ScaleGathered(x.data(), x.size(), groups, scales, zeros);
}

Status DecodeScales(const ElementType& element, std::span<const std::byte> in, float* out) {
  const bool plain_u8 = element.type.empty() && element.dtype == DType::kU8;
  if (plain_u8 || element.type == "f8_e8m0") {
    kernel::ExpandE8m0(AsBytes(in.data()), out, in.size());
    return OkStatus();
  }
  ZT_ASSIGN_OR_RETURN(const auto convert, MakeConversion(element, {DType::kF32}, OnOverflow::kInf));
  NumericCounts ignored;
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(out),
                                   in.size() / ElementBytes(element) * sizeof(float));
  convert->Apply(in, bytes, ignored);
  LittleEndian(bytes, sizeof(float));
  return OkStatus();
}

}  // namespace zt
