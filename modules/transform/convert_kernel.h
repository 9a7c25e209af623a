// convert_kernel — the steps numeric conversion is composed of; plain loops for every CPU target,
// no module code.
//
// A conversion from A to B is a chain of at most four steps through f32, f64 or i64. All but the
// last are exact, or "odd": rounded so that the lowest bit remembers whether anything was lost.
// Rounding an odd-rounded value once more to a format at least two bits shorter gives what rounding
// the original would have given (Boldo and Melquiond 2008), so the chain as a whole rounds once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The f32 steps come in Highway vectors (convert_kernel.cc).
enum class FloatStep : std::uint8_t {
  kF16ToF32,   // exact; a signalling NaN becomes quiet
  kBf16ToF32,  // exact, every bit kept
  kE4m3fnToF32,
  kE5m2ToF32,
  kE4m3fnuzToF32,
  kE5m2fnuzToF32,
  kF32ToF64,     // exact
  kF64ToF32Odd,  // odd; never overflows: beyond the largest finite it stays there
  kF64ToF32,     // the rest round to nearest, ties to even, and count
  kF32ToF16,
  kF32ToBf16,
  kF32ToE4m3fn,
  kF32ToE5m2,
  kF32ToE4m3fnuz,
  kF32ToE5m2fnuz,
};

// The integer steps are loops for the compiler to vectorise (convert_int_kernel.cc).
enum class IntStep : std::uint8_t {
  kBoolToU8,  // 0 stays, all else is 1
  kI8ToF32,
  kU8ToF32,
  kI16ToF32,
  kU16ToF32,
  kI32ToF64,
  kU32ToF64,
  kI64ToF64,     // nearest, ties to even
  kU64ToF64,     //
  kI64ToF64Odd,  // with a sticky low bit, for narrower floats
  kU64ToF64Odd,
  kI8ToI64,
  kU8ToI64,
  kI16ToI64,
  kU16ToI64,
  kI32ToI64,
  kU32ToI64,
  kU64ToI64,  // the next twelve clamp to the target's range and count
  kI64ToI8,
  kI64ToU8,
  kI64ToI16,
  kI64ToU16,
  kI64ToI32,
  kI64ToU32,
  kI64ToU64,
  kF64ToI8,  // the next eight truncate toward zero first; NaN becomes 0
  kF64ToU8,
  kF64ToI16,
  kF64ToU16,
  kF64ToI32,
  kF64ToU32,
  kF64ToI64,
  kF64ToU64,
};

struct Counts {
  std::uint64_t overflow = 0;
  std::uint64_t nan_lost = 0;
};

// Converts `count` elements; no alignment is asked, `in` and `out` do not overlap. Adds to
// `counts`. `saturate` chooses the largest finite value over infinity (or NaN, where the target has
// no infinity) on overflow.
void RunStep(FloatStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
             bool saturate, Counts& counts);
void RunStep(IntStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
             Counts& counts);

}  // namespace zt::kernel
