// convert_int_kernel — integers to and from integers, f32 and f64: plain loops, vectorized by the
// compiler for each target.
//
// Values out of range are rare. The loops clamp every element and record whether any changed; only
// then a second loop counts them.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "transform/convert_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/convert_int_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

void BoolToU8(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count) {
  ForEachElement<std::uint8_t>(in, out, count, [](std::uint8_t value) HWY_ATTR {
    return static_cast<std::uint8_t>(value != 0 ? 1 : 0);
  });
}

// The double nearest to a 64-bit integer. From 2^53 on the integer is rounded to odd, so that
// rounding again to any narrower float gives the result of rounding the integer itself: the low 11
// bits are folded into the bit above them, which leaves 42 to 53 significant bits.
template <typename From>
HWY_INLINE double OddDouble(From value) {
  const bool negative = value < 0;
  const auto bits = static_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = negative ? 0 - bits : bits;
  const std::uint64_t folded =
      (magnitude & ~std::uint64_t{0x7ff}) | ((magnitude & 0x7ff) != 0 ? 0x800 : 0);
  const auto out_magnitude = static_cast<double>(magnitude >> 53 != 0 ? folded : magnitude);
  return negative ? -out_magnitude : out_magnitude;
}
template <typename From>
void CastOdd(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
             std::size_t count) {
  ForEachElement<From>(in, out, count, [](From value) HWY_ATTR { return OddDouble(value); });
}

// To a type that holds every value, or to a float, for which the cast rounds to
// nearest, ties to even.
template <typename From, typename To>
void Cast(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count) {
  ForEachElement<From>(in, out, count, [](From value) HWY_ATTR {
#if HWY_ARCH_ARM  // clang 19 vectorizes such casts through f64, which rounds twice
    if constexpr (sizeof(From) == 8 && std::is_same_v<To, float>) {
      return static_cast<float>(OddDouble(value));
    }
#endif
    return static_cast<To>(value);
  });
}

template <typename From, typename To>
void Clamp(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count,
           Counts& counts) {
  using LimitsTo = std::numeric_limits<To>;
  constexpr From kLow = std::in_range<From>(LimitsTo::min()) ? static_cast<From>(LimitsTo::min())
                                                             : std::numeric_limits<From>::min();
  constexpr From kHigh = std::in_range<From>(LimitsTo::max()) ? static_cast<From>(LimitsTo::max())
                                                              : std::numeric_limits<From>::max();
  const auto clamp = [](From value) HWY_ATTR {
    const From above = value < kLow ? kLow : value;
    return above > kHigh ? kHigh : above;
  };
  std::make_unsigned_t<From> changed = 0;
  ForEachElement<From>(in, out, count, [&](From value) HWY_ATTR {
    const From clamped = clamp(value);
    changed |= static_cast<std::make_unsigned_t<From>>(value ^ clamped);
    return static_cast<To>(clamped);
  });
  if (HWY_LIKELY(changed == 0)) return;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = LoadAt<From>(in, i);
    counts.overflow += clamp(value) != value ? 1 : 0;
  }
}

template <typename From, typename To>
void Truncate(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, Counts& counts) {
  // A float may not represent the largest integer of a type. It does represent the power of two
  // just above it, and kLast is the largest float below that.
  constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From kBeyond = static_cast<From>(To{1} << (std::numeric_limits<To>::digits - 1)) * 2;
  constexpr From kLast = kBeyond - kBeyond * (std::numeric_limits<From>::epsilon() / 2);
  bool changed = false;
  std::conditional_t<sizeof(From) == 4, std::uint32_t, std::uint64_t> fractions = 0;
  ForEachElement<From>(in, out, count, [&](From value) HWY_ATTR {
    // A NaN becomes one of the ends: a signaling one kLast where this is FMAXNM and FMINNM.
    const From above = value >= kLow ? value : kLow;
    const From within = above <= kLast ? above : kLast;
    changed |= within != value;
    const To whole = static_cast<To>(within);
    fractions += within == value && static_cast<From>(whole) != value ? 1 : 0;
    return whole;
  });
  counts.fraction_lost += fractions;
  if (HWY_LIKELY(!changed)) return;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = LoadAt<From>(in, i);
    const From whole = std::trunc(value);
    if (std::isnan(value)) {
      ++counts.nan_lost;
      StoreAt(To{0}, out, i);
    } else if (whole < kLow) {
      ++counts.overflow;  // kLow is already stored
    } else if (whole >= kBeyond) {
      ++counts.overflow;
      StoreAt(std::numeric_limits<To>::max(), out, i);
    } else if (value < kLow) {
      ++counts.fraction_lost;  // the loop above clamped it to kLow
    }
  }
}

// Calls use(T()) with the integer type `type`.
template <class Use>
HWY_INLINE void WithInteger(Number type, const Use& use) {
  switch (type) {
    case Number::kI8:
      return use(std::int8_t());
    case Number::kU8:
      return use(std::uint8_t());
    case Number::kI16:
      return use(std::int16_t());
    case Number::kU16:
      return use(std::uint16_t());
    case Number::kI32:
      return use(std::int32_t());
    case Number::kU32:
      return use(std::uint32_t());
    case Number::kI64:
      return use(std::int64_t());
    case Number::kU64:
      return use(std::uint64_t());
    default:
      return;
  }
}

void RunIntegers(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                 std::size_t count, Counts& counts) {
  if (from == Number::kBool) return BoolToU8(in, out, count);
  if (IsFloat(from)) {
    return WithInteger(to, [&](auto integer) {
      using To = decltype(integer);
      if (from == Number::kF32) return Truncate<float, To>(in, out, count, counts);
      return Truncate<double, To>(in, out, count, counts);
    });
  }
  WithInteger(from, [&](auto integer) {
    using From = decltype(integer);
    if (to == Number::kF32) return Cast<From, float>(in, out, count);
    if (to == Number::kF64) return Cast<From, double>(in, out, count);
    if constexpr (sizeof(From) == 8) {
      if (to == Number::kOddF64) return CastOdd<From>(in, out, count);
    }
    WithInteger(to, [&](auto target) {
      using To = decltype(target);
      constexpr bool kHoldsAll = std::in_range<To>(std::numeric_limits<From>::min()) &&
                                 std::in_range<To>(std::numeric_limits<From>::max());
      if constexpr (kHoldsAll) {
        Cast<From, To>(in, out, count);
      } else {
        Clamp<From, To>(in, out, count, counts);
      }
    });
  });
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunIntegers);
void ConvertIntegers(Number from, Number to, const std::uint8_t* in, std::uint8_t* out,
                     std::size_t count, Counts& counts) {
  HWY_DYNAMIC_DISPATCH(RunIntegers)(from, to, in, out, count, counts);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
