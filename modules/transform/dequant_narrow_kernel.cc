// Rounding of dequantized float32 to f16 and bf16.
#include <cstddef>
#include <cstdint>

#include "transform/dequant_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/dequant_narrow_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#pragma clang fp contract(off)

// Both take magnitudes (sign bit clear) as bits and give the target's bits in the low half of each lane; infinity
// for what rounds beyond the largest.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundF16(D d, V magnitude) {
  const hn::RebindToFloat<D> df;
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const V normal = hn::ShiftRight<13>(
      hn::Add(hn::Sub(magnitude, hn::Set(d, (127u - 15) << 23)), hn::Add(odd, hn::Set(d, 0xfff))));
  // Below 2^-14 the target's unit is 2^-24, which is that of floats from 0.5: adding 0.5 rounds to it.
  const V half = hn::Set(d, 0x3f000000u);
  const V subnormal =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, half))), half);
  const V finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x38800000u)), subnormal, normal);
  const V nan =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3ff)), hn::Set(d, 0x7e00));
  const V capped = hn::Min(finite, hn::Set(d, 0x7c00));
  const V large =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x47800000u)), capped, hn::Set(d, 0x7c00));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000u)), nan, large);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V RoundBF16(D d, V magnitude) {
  const auto odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(d, 1));
  const V rounded = hn::ShiftRight<16>(hn::Add(magnitude, hn::Add(odd, hn::Set(d, 0x7fff))));
  const V nan = hn::Or(hn::ShiftRight<16>(magnitude), hn::Set(d, 0x40));
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000u)), nan, rounded);
}

template <std::uint32_t kInfinity, class Round>
HWY_INLINE std::size_t Narrow(const float* in, std::uint16_t* out, std::size_t count, bool saturate,
                              Round round) {
  std::size_t overflow = 0, i = 0;
  const auto step = [&](auto d) HWY_ATTR {
    const hn::Rebind<float, decltype(d)> df;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto bits = hn::BitCast(d, hn::LoadU(df, in + i));
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffffu));
    auto q = round(d, magnitude);
    const auto lost =
        hn::And(hn::Eq(q, hn::Set(d, kInfinity)), hn::Lt(magnitude, hn::Set(d, 0x7f800000u)));
    if (HWY_UNLIKELY(!hn::AllFalse(d, lost))) {
      overflow += hn::CountTrue(d, lost);
      if (saturate) q = hn::IfThenElse(lost, hn::Set(d, kInfinity - 1), q);
    }
    q = hn::Or(q, hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000u)));
    // Lanes are at most 65535: their low halves are the result.
    hn::StoreU(hn::TruncateTo(d16, q), d16, out + i);
  };
  const hn::ScalableTag<std::uint32_t> d;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) step(d);
  const hn::CappedTag<std::uint32_t, 1> one;
  for (; i < count; ++i) step(one);
  return overflow;
}

std::size_t F16Of(const float* in, std::uint16_t* out, std::size_t count, bool saturate) {
  return Narrow<0x7c00>(in, out, count, saturate,
                        [](auto d, auto m) HWY_ATTR { return RoundF16(d, m); });
}

std::size_t BF16Of(const float* in, std::uint16_t* out, std::size_t count, bool saturate) {
  return Narrow<0x7f80>(in, out, count, saturate,
                        [](auto d, auto m) HWY_ATTR { return RoundBF16(d, m); });
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {

HWY_EXPORT(F16Of);
std::size_t NarrowToF16(const float* in, std::uint16_t* out, std::size_t count, bool saturate) {
  return HWY_DYNAMIC_DISPATCH(F16Of)(in, out, count, saturate);
}

HWY_EXPORT(BF16Of);
std::size_t NarrowToBF16(const float* in, std::uint16_t* out, std::size_t count, bool saturate) {
  return HWY_DYNAMIC_DISPATCH(BF16Of)(in, out, count, saturate);
}

}  // namespace zt::kernel
#endif  // HWY_ONCE
