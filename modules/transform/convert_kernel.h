// convert_kernel — numeric conversions of runs of elements; plain loops for every CPU target, no module code.
//
// A conversion is one step, or a chain of at most three through f32 or f64 (convert.cc). All steps but the last are
// exact, or "odd": rounded so that the lowest bit remembers whether anything was lost. Rounding an odd-rounded value
// once more to a format at least two bits shorter gives what rounding the original would have given (Boldo and
// Melquiond 2008), so the chain as a whole rounds once.
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
  kOddF64,  // what 64-bit integers become on their way to a narrower float
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

// Both convert `count` elements from one type to another. No alignment is asked, `in` and `out` do not overlap. They
// add to `counts`.

// Between floats (convert_kernel.cc). `saturate` chooses the largest finite value over infinity (or NaN, where the
// target has no infinity) on overflow. A signalling NaN becomes quiet, except from bf16 to f32.
void ConvertFloats(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                   std::size_t count, bool saturate, Counts& counts);

// Bool to u8; between integers; integers to f32, f64 and, from 64 bits, kOddF64; f32 and f64 to integers, truncated
// toward zero, NaN to 0 (convert_int_kernel.cc). What is out of an integer's range becomes its nearest end.
void ConvertIntegers(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                     std::size_t count, Counts& counts);

}  // namespace zt::kernel
