// convert_int_kernel — integers to and from f32, f64 and i64: plain loops, vectorised by the
// compiler for each target.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "transform/convert_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/convert_int_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

template <typename T>
HWY_INLINE T LoadAt(const std::uint8_t* p, std::size_t i) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
HWY_INLINE void StoreAt(T value, std::uint8_t* p, std::size_t i) {
  std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

void BoolToU8(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] != 0 ? 1 : 0;
}

// To a type that holds every value, or f64 from 64 bits, where the cast rounds to nearest even.
template <typename From, typename To>
void Cast(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) StoreAt(static_cast<To>(LoadAt<From>(in, i)), out, i);
}

// Beyond 2^53 the low 11 bits are folded into the one above them, which leaves at most 53 and at
// least 42.
template <typename From>
void CastOdd(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const From value = LoadAt<From>(in, i);
    const bool negative = value < 0;
    const auto bits = static_cast<std::uint64_t>(value);
    const std::uint64_t magnitude = negative ? 0 - bits : bits;
    const std::uint64_t folded =
        (magnitude & ~std::uint64_t{0x7ff}) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
    const auto out_magnitude = static_cast<double>(magnitude >> 53 != 0 ? folded : magnitude);
    StoreAt(negative ? -out_magnitude : out_magnitude, out, i);
  }
}

template <typename To>
void Clamp(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count,
           Counts& counts) {
  constexpr std::int64_t kLow = std::is_signed_v<To> ? std::numeric_limits<To>::min() : 0;
  constexpr std::int64_t kHigh = sizeof(To) == 8
                                     ? std::numeric_limits<std::int64_t>::max()
                                     : static_cast<std::int64_t>(std::numeric_limits<To>::max());
  std::uint64_t overflow = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = LoadAt<std::int64_t>(in, i);
    const std::int64_t clamped = value < kLow ? kLow : value > kHigh ? kHigh : value;
    overflow += clamped != value ? 1 : 0;
    StoreAt(static_cast<To>(clamped), out, i);
  }
  counts.overflow += overflow;
}

void U64ToI64(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, Counts& counts) {
  constexpr std::uint64_t kHigh = std::numeric_limits<std::int64_t>::max();
  std::uint64_t overflow = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = LoadAt<std::uint64_t>(in, i);
    overflow += value > kHigh ? 1 : 0;
    StoreAt(value > kHigh ? kHigh : value, out, i);
  }
  counts.overflow += overflow;
}

template <typename To>
void Truncate(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, Counts& counts) {
  // Whole numbers are exact in a double up to 2^53, so for the 64-bit types the upper bound is the
  // power of two that is just out of range, and the largest value below it the last that fits.
  constexpr double kLow = static_cast<double>(std::numeric_limits<To>::min());
  constexpr double kBeyond =
      static_cast<double>(To{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  constexpr double kLast = sizeof(To) == 8
                               ? kBeyond - kBeyond * (std::numeric_limits<double>::epsilon() / 2)
                               : kBeyond - 1;
  std::uint64_t overflow = 0, nan_lost = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = LoadAt<double>(in, i);
    const bool nan = value != value;
    const double whole = nan ? 0.0 : std::trunc(value);
    const bool low = whole < kLow, high = whole >= kBeyond;
    const double within = low ? kLow : high ? kLast : whole;
    const To cast = static_cast<To>(within);
    nan_lost += nan ? 1 : 0;
    overflow += low || high ? 1 : 0;
    StoreAt(high ? std::numeric_limits<To>::max() : cast, out, i);
  }
  counts.overflow += overflow;
  counts.nan_lost += nan_lost;
}

void RunInt(IntStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
            Counts& counts) {
  switch (step) {
    case IntStep::kBoolToU8:
      return BoolToU8(in, out, count);
    case IntStep::kI8ToF32:
      return Cast<std::int8_t, float>(in, out, count);
    case IntStep::kU8ToF32:
      return Cast<std::uint8_t, float>(in, out, count);
    case IntStep::kI16ToF32:
      return Cast<std::int16_t, float>(in, out, count);
    case IntStep::kU16ToF32:
      return Cast<std::uint16_t, float>(in, out, count);
    case IntStep::kI32ToF64:
      return Cast<std::int32_t, double>(in, out, count);
    case IntStep::kU32ToF64:
      return Cast<std::uint32_t, double>(in, out, count);
    case IntStep::kI64ToF64:
      return Cast<std::int64_t, double>(in, out, count);
    case IntStep::kU64ToF64:
      return Cast<std::uint64_t, double>(in, out, count);
    case IntStep::kI64ToF64Odd:
      return CastOdd<std::int64_t>(in, out, count);
    case IntStep::kU64ToF64Odd:
      return CastOdd<std::uint64_t>(in, out, count);
    case IntStep::kI8ToI64:
      return Cast<std::int8_t, std::int64_t>(in, out, count);
    case IntStep::kU8ToI64:
      return Cast<std::uint8_t, std::int64_t>(in, out, count);
    case IntStep::kI16ToI64:
      return Cast<std::int16_t, std::int64_t>(in, out, count);
    case IntStep::kU16ToI64:
      return Cast<std::uint16_t, std::int64_t>(in, out, count);
    case IntStep::kI32ToI64:
      return Cast<std::int32_t, std::int64_t>(in, out, count);
    case IntStep::kU32ToI64:
      return Cast<std::uint32_t, std::int64_t>(in, out, count);
    case IntStep::kU64ToI64:
      return U64ToI64(in, out, count, counts);
    case IntStep::kI64ToI8:
      return Clamp<std::int8_t>(in, out, count, counts);
    case IntStep::kI64ToU8:
      return Clamp<std::uint8_t>(in, out, count, counts);
    case IntStep::kI64ToI16:
      return Clamp<std::int16_t>(in, out, count, counts);
    case IntStep::kI64ToU16:
      return Clamp<std::uint16_t>(in, out, count, counts);
    case IntStep::kI64ToI32:
      return Clamp<std::int32_t>(in, out, count, counts);
    case IntStep::kI64ToU32:
      return Clamp<std::uint32_t>(in, out, count, counts);
    case IntStep::kI64ToU64:
      return Clamp<std::uint64_t>(in, out, count, counts);
    case IntStep::kF64ToI8:
      return Truncate<std::int8_t>(in, out, count, counts);
    case IntStep::kF64ToU8:
      return Truncate<std::uint8_t>(in, out, count, counts);
    case IntStep::kF64ToI16:
      return Truncate<std::int16_t>(in, out, count, counts);
    case IntStep::kF64ToU16:
      return Truncate<std::uint16_t>(in, out, count, counts);
    case IntStep::kF64ToI32:
      return Truncate<std::int32_t>(in, out, count, counts);
    case IntStep::kF64ToU32:
      return Truncate<std::uint32_t>(in, out, count, counts);
    case IntStep::kF64ToI64:
      return Truncate<std::int64_t>(in, out, count, counts);
    case IntStep::kF64ToU64:
      return Truncate<std::uint64_t>(in, out, count, counts);
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunInt);
void RunStep(IntStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
             Counts& counts) {
  HWY_DYNAMIC_DISPATCH(RunInt)(step, in, out, count, counts);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
