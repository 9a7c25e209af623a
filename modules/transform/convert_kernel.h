// convert_kernel — numeric conversions of runs of elements, for every CPU target;
// independent of the modules.
//
// A conversion is one step, or a chain of up to three through f32 or f64 (convert.cc). All steps
// but the last are exact or round to odd: the lowest bit records whether anything was lost. If an
// odd-rounded value is rounded again to a format at least two bits shorter, the result is that of
// rounding the original (Boldo and Melquiond 2008), so the chain rounds only once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

enum class Number : std::uint8_t {
  kBool,
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF64,
  kF32,
  kF16,
  kBf16,
  kE4m3fn,
  kE5m2,
  kE4m3fnuz,
  kE5m2fnuz,
  kOddF64,  // a 64-bit integer rounded to odd, on its way to a narrower float
};
constexpr bool IsFloat(Number type) { return type >= Number::kF64; }
constexpr std::size_t WidthOf(Number type) {
  switch (type) {
    case Number::kI64:
    case Number::kU64:
    case Number::kF64:
    case Number::kOddF64:
      return 8;
    case Number::kI32:
    case Number::kU32:
    case Number::kF32:
      return 4;
    case Number::kI16:
    case Number::kU16:
    case Number::kF16:
    case Number::kBf16:
      return 2;
    default:
      return 1;
  }
}

struct Counts {
  std::uint64_t overflow = 0;
  std::uint64_t nan_lost = 0;
  std::uint64_t fraction_lost = 0;
};

// The conversions convert `count` elements and add to `counts`. No alignment is required; `in` and
// `out` do not overlap.

// Between floats (convert_kernel.cc). On overflow `saturate` selects the largest finite value
// instead of infinity (or NaN, if the target has no infinity). A signalling NaN becomes quiet,
// except from bf16 to f32.
void ConvertFloats(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                   std::size_t count, bool saturate, Counts& counts);

// The number of zeros among floats, of either sign.
std::size_t CountZeros(Number type, const std::uint8_t* in, std::size_t count);

// From bool to u8; between integers; from integers to f32, f64 and, if they have 64 bits, kOddF64;
// from f32 and f64 to integers, truncated toward zero, NaN to 0 (convert_int_kernel.cc). A value
// out of an integer's range becomes its nearest end.
void ConvertIntegers(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                     std::size_t count, Counts& counts);

}  // namespace zt::kernel
