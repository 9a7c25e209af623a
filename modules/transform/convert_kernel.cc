// convert_kernel — floats to and from f32 in Highway vectors, identical bits on every target.
#include "transform/convert_kernel.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/convert_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// What does not depend on the target: the formats, as constants derived from their widths.
#ifndef ZT_CONVERT_KERNEL_FORMATS_
#define ZT_CONVERT_KERNEL_FORMATS_
namespace zt::kernel::format {

enum class Specials {
  kIeee,
  kFn,
  kFnuz
};  // inf and NaN; NaN at all ones only; NaN at the sign bit alone

inline constexpr std::uint32_t kF32Inf = 0x7f800000, kF32Quiet = 0x00400000;

template <typename StorageT, int kExponentBits, int kMantissaBits, int kBiasValue,
          Specials kKindValue>
struct Float {
  using Storage = StorageT;
  static constexpr Specials kKind = kKindValue;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kShift = 23 - kMantissaBits;  // f32 mantissa bits beyond ours
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kAllOnes = kSign - 1;
  static constexpr std::uint32_t kExponentMask = kAllOnes & ~((1u << kMantissaBits) - 1);
  static constexpr std::uint32_t kQuiet = 1u << (kMantissaBits - 1);
  static constexpr std::uint32_t kMax = kKind == Specials::kIeee ? kExponentMask - 1
                                        : kKind == Specials::kFn ? kAllOnes - 1
                                                                 : kAllOnes;
  // Added to an f32's exponent field, the difference of the biases, as f32 bits.
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBiasValue) << 23;
  // f32 bits of our smallest normal number. bf16 shares f32's exponents: it has the same
  // subnormals.
  static constexpr bool kSharesExponent = kBiasValue == 127;
  static constexpr std::uint32_t kMinNormal = kRebias + (1u << 23);
  // f32 bits of a power of two whose last place weighs as much as our smallest subnormal: adding it
  // rounds there.
  static constexpr std::uint32_t kMagic =
      static_cast<std::uint32_t>(127 + 1 - kBiasValue - kMantissaBits + 23) << 23;
  // f32 bits of the least magnitude that rounds beyond kMax: half a step above it, the tie itself
  // going to even.
  static constexpr std::uint32_t kOverflow =
      (kMax << kShift) + kRebias + (1u << (kShift - 1)) + (kMax % 2 == 0 ? 1 : 0);
};

using F16 = Float<std::uint16_t, 5, 10, 15, Specials::kIeee>;
using Bf16 = Float<std::uint16_t, 8, 7, 127, Specials::kIeee>;
using E5m2 = Float<std::uint8_t, 5, 2, 15, Specials::kIeee>;
using E4m3fn = Float<std::uint8_t, 4, 3, 7, Specials::kFn>;
using E4m3fnuz = Float<std::uint8_t, 4, 3, 8, Specials::kFnuz>;
using E5m2fnuz = Float<std::uint8_t, 5, 2, 16, Specials::kFnuz>;

}  // namespace zt::kernel::format
#endif  // ZT_CONVERT_KERNEL_FORMATS_

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using format::Specials;

// x86 targets with F16C; elsewhere the integer code below gives the same bits.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL) && \
    !defined(HWY_DISABLE_F16C)
#define ZT_HAVE_F16C 1
#else
#define ZT_HAVE_F16C 0
#endif

// Calls step(in, out) for each whole vector of `lanes` elements, then once more on padded copies
// for the rest.
template <std::size_t kInWidth, std::size_t kOutWidth, class Step>
HWY_INLINE void ForEachVector(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                              std::size_t count, std::size_t lanes, const Step& step) {
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) step(in + i * kInWidth, out + i * kOutWidth);
  if (i == count) return;
  HWY_ALIGN std::uint8_t padded_in[HWY_MAX_BYTES * 2] = {};  // zeros overflow nothing
  HWY_ALIGN std::uint8_t padded_out[HWY_MAX_BYTES * 2];
  std::memcpy(padded_in, in + i * kInWidth, (count - i) * kInWidth);
  step(padded_in, padded_out);
  std::memcpy(out + i * kOutWidth, padded_out, (count - i) * kOutWidth);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::uint8_t* p) {
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(p));
}
template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D d, std::uint8_t* p) {
  hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(p));
}

// The low bits of 32-bit lanes, whose values fit.
template <class D32, class V>
HWY_INLINE void StoreNarrow(D32, V v, std::uint8_t* out, std::uint16_t) {
  const hn::Rebind<std::uint16_t, D32> d16;
  StoreBytes(hn::TruncateTo(d16, v), d16, out);
}
template <class D32, class V>
HWY_INLINE void StoreNarrow(D32, V v, std::uint8_t* out, std::uint8_t) {
  const hn::Rebind<std::uint8_t, D32> d8;
#if HWY_TARGET == HWY_AVX3_DL  // TruncateTo to u8 is wrong there in Highway 1.0.3
  const hn::Rebind<std::int32_t, D32> di;
  StoreBytes(hn::DemoteTo(d8, hn::BitCast(di, v)), d8, out);
#else
  StoreBytes(hn::TruncateTo(d8, v), d8, out);
#endif
}

// Replaces the lanes of `magnitude` whose f32 magnitude `abs` is beyond F's range, infinite or NaN;
// counts them. Rare in real tensors, so the loops branch to it. Clears `sign` where F has no signed
// special value.
template <class F, class D, class V>
HWY_NOINLINE V FixSpecials(D d, V abs, V magnitude, V& sign, bool saturate, Counts& counts) {
  const hn::RebindToSigned<D> di;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  const auto above = [&](std::uint32_t v) HWY_ATTR {  // magnitudes are positive as signed integers
    return hn::RebindMask(d,
                          hn::Gt(hn::BitCast(di, abs), hn::Set(di, static_cast<std::int32_t>(v))));
  };
  const auto special = above(F::kOverflow - 1);
  const auto nan = above(format::kF32Inf);
  const auto infinite_or_nan = above(format::kF32Inf - 1);
  const auto finite = hn::AndNot(infinite_or_nan, special);
  const auto infinite = hn::AndNot(nan, infinite_or_nan);
  if constexpr (F::kKind == Specials::kIeee) {
    counts.overflow += hn::CountTrue(d, finite);
    // A NaN keeps the top bits of its payload and becomes quiet.
    const V payload = hn::And(hn::ShiftRight<F::kShift>(abs), bits(F::kAllOnes));
    const V quiet = hn::Or(payload, bits(F::kExponentMask | F::kQuiet));
    magnitude = hn::IfThenElse(finite, bits(saturate ? F::kMax : F::kExponentMask), magnitude);
    magnitude = hn::IfThenElse(infinite, bits(F::kExponentMask), magnitude);
    return hn::IfThenElse(nan, quiet, magnitude);
  } else {
    counts.overflow += hn::CountTrue(d, hn::AndNot(nan, special));
    constexpr std::uint32_t kNan = F::kKind == Specials::kFn ? F::kAllOnes : F::kSign;
    const auto to_nan = saturate ? nan : special;
    if (F::kKind == Specials::kFnuz) sign = hn::IfThenZeroElse(to_nan, sign);
    magnitude = hn::IfThenElse(special, bits(F::kMax), magnitude);
    return hn::IfThenElse(to_nan, bits(kNan), magnitude);
  }
}

// f32 bits to F's bits in 32-bit lanes, rounded to nearest, ties to even.
template <class F, class D, class V>
HWY_INLINE V Encode(D d, V f32, bool saturate, Counts& counts) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  const V abs = hn::And(f32, bits(0x7fffffff));
  V sign = hn::And(hn::ShiftRight<F::kSignShift>(f32), bits(F::kSign));
  // Normal results: drop kShift bits, rounding by addition; a carry into the exponent is what it
  // should be.
  const V odd = hn::And(hn::ShiftRight<F::kShift>(abs), bits(1));
  const V half = bits((1u << (F::kShift - 1)) - 1 - F::kRebias);
  V magnitude = hn::ShiftRight<F::kShift>(hn::Add(hn::Add(abs, odd), half));
  if constexpr (!F::kSharesExponent) {
    // Subnormal results: the addition of kMagic rounds at the right place and leaves the result in
    // the low bits.
    const V sum = hn::BitCast(d, hn::Add(hn::BitCast(df, abs), hn::BitCast(df, bits(F::kMagic))));
    const auto small =
        hn::Lt(hn::BitCast(di, abs), hn::Set(di, static_cast<std::int32_t>(F::kMinNormal)));
    magnitude = hn::IfThenElse(hn::RebindMask(d, small), hn::Sub(sum, bits(F::kMagic)), magnitude);
  }
  if constexpr (F::kKind == Specials::kFnuz) {  // there is no -0: that pattern is NaN
    const auto nonzero = hn::Gt(hn::BitCast(di, magnitude), hn::Zero(di));
    sign = hn::IfThenElseZero(hn::RebindMask(d, nonzero), sign);
  }
  const auto special =
      hn::Gt(hn::BitCast(di, abs), hn::Set(di, static_cast<std::int32_t>(F::kOverflow - 1)));
  if (HWY_UNLIKELY(!hn::AllFalse(di, special))) {
    magnitude = FixSpecials<F>(d, abs, magnitude, sign, saturate, counts);
  }
  return hn::Or(magnitude, sign);
}

template <class F>
void F32ToNarrow(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                 std::size_t count, bool saturate, Counts& counts) {
  const hn::ScalableTag<std::uint32_t> d;
  using Storage = typename F::Storage;
  Counts local;
  ForEachVector<4, sizeof(Storage)>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        StoreNarrow(d, Encode<F>(d, LoadBytes(d, from), saturate, local), to, Storage{});
      });
  counts.overflow += local.overflow;
}

#if ZT_HAVE_F16C
void F32ToF16(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, bool saturate, Counts& counts) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> d;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  Counts local;
  ForEachVector<4, 2>(
      in, out, count, hn::Lanes(df), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto bits = LoadBytes(d, from);
        const auto abs = hn::BitCast(di, hn::And(bits, hn::Set(d, 0x7fffffffu)));
        StoreBytes(hn::DemoteTo(dh, hn::BitCast(df, bits)), dh, to);
        if (HWY_UNLIKELY(!hn::AllFalse(
                di,
                hn::Gt(abs, hn::Set(di, static_cast<std::int32_t>(format::F16::kOverflow - 1)))))) {
          StoreNarrow(d, Encode<format::F16>(d, bits, saturate, local), to, std::uint16_t{});
        }
      });
  counts.overflow += local.overflow;
}
#endif

// F's bits in 32-bit lanes to f32 bits, exactly.
template <class F, class D, class V>
HWY_INLINE V Decode(D d, V narrow) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  const V magnitude = hn::And(narrow, bits(F::kAllOnes));
  const V sign = hn::ShiftLeft<F::kSignShift>(hn::And(narrow, bits(F::kSign)));
  const V shifted = hn::ShiftLeft<F::kShift>(magnitude);
  V f32 = hn::Add(shifted, bits(F::kRebias));
  // Subnormal: put it behind an implicit one of the smallest normal's weight, and subtract that
  // one.
  const V biased = hn::Add(shifted, bits(F::kMinNormal));
  const V subnormal =
      hn::BitCast(d, hn::Sub(hn::BitCast(df, biased), hn::BitCast(df, bits(F::kMinNormal))));
  const auto small = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 1 << F::kMantissa));
  f32 = hn::IfThenElse(hn::RebindMask(d, small), subnormal, f32);
  const auto reaches = [&](std::uint32_t v) HWY_ATTR {
    return hn::RebindMask(
        d, hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<std::int32_t>(v) - 1)));
  };
  if constexpr (F::kKind == Specials::kIeee) {
    f32 = hn::IfThenElse(reaches(F::kExponentMask), hn::Or(shifted, bits(format::kF32Inf)), f32);
    f32 = hn::IfThenElse(reaches(F::kExponentMask + 1), hn::Or(f32, bits(format::kF32Quiet)), f32);
    return hn::Or(f32, sign);
  } else if constexpr (F::kKind == Specials::kFn) {
    f32 = hn::IfThenElse(reaches(F::kAllOnes), bits(format::kF32Inf | format::kF32Quiet), f32);
    return hn::Or(f32, sign);
  } else {
    const V value = hn::Or(f32, sign);
    return hn::IfThenElse(hn::Eq(narrow, bits(F::kSign)), bits(format::kF32Inf | format::kF32Quiet),
                          value);
  }
}

template <class F>
void NarrowToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                 std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  using Storage = typename F::Storage;
  const hn::Rebind<Storage, decltype(d)> dn;
  ForEachVector<sizeof(Storage), 4>(
      in, out, count, hn::Lanes(d), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        StoreBytes(Decode<F>(d, hn::PromoteTo(d, LoadBytes(dn, from))), d, to);
      });
}

void F16ToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count) {
#if ZT_HAVE_F16C
  const hn::ScalableTag<float> df;
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  ForEachVector<2, 4>(in, out, count, hn::Lanes(df),
                      [&](const std::uint8_t* from, std::uint8_t* to)
                          HWY_ATTR { StoreBytes(hn::PromoteTo(df, LoadBytes(dh, from)), df, to); });
#else
  NarrowToF32<format::F16>(in, out, count);
#endif
}

void Bf16ToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
               std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> dn;
  ForEachVector<2, 4>(in, out, count, hn::Lanes(d),
                      [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
                        StoreBytes(hn::ShiftLeft<16>(hn::PromoteTo(d, LoadBytes(dn, from))), d, to);
                      });
}

void F32ToF64(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  ForEachVector<4, 8>(in, out, count, hn::Lanes(dd),
                      [&](const std::uint8_t* from, std::uint8_t* to)
                          HWY_ATTR { StoreBytes(hn::PromoteTo(dd, LoadBytes(df, from)), dd, to); });
}

// Highway's emulated DemoteTo clamps to the largest finite f32; the hardware's rounds to infinity,
// as here.
template <class DF, class DD, class V>
HWY_INLINE hn::Vec<DF> Round64To32(DF df, DD dd, V v) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  double wide[HWY_MAX_BYTES / sizeof(double)];
  float narrow[HWY_MAX_BYTES / sizeof(double)];
  hn::StoreU(v, dd, wide);
  for (std::size_t i = 0; i < hn::Lanes(dd); ++i) narrow[i] = static_cast<float>(wide[i]);
  return hn::LoadU(df, narrow);
#else
  (void)dd;
  return hn::DemoteTo(df, v);
#endif
}

void F64ToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count, bool saturate, Counts& counts) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const auto limit =
      hn::Set(dd, 0x1.ffffffp127);  // half a step above f32's largest, odd, so the tie is beyond
  std::uint64_t overflow = 0;
  ForEachVector<8, 4>(
      in, out, count, hn::Lanes(dd), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        auto v = LoadBytes(dd, from);
        const auto beyond = hn::Ge(hn::Abs(v), limit);  // not NaN
        if (HWY_UNLIKELY(!hn::AllFalse(dd, beyond))) {
          const auto finite = hn::And(beyond, hn::Lt(hn::Abs(v), hn::Inf(dd)));
          overflow += hn::CountTrue(dd, finite);
          if (saturate) {
            v = hn::IfThenElse(finite, hn::CopySign(hn::Set(dd, 0x1.fffffep127), v), v);
          }
        }
        StoreBytes(Round64To32(df, dd, v), df, to);
      });
  counts.overflow += overflow;
}

void F64ToF32Odd(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                 std::size_t count) {
  const hn::ScalableTag<double> dd;
  const hn::RebindToUnsigned<decltype(dd)> du64;
  const hn::Rebind<float, decltype(dd)> df;
  const hn::RebindToUnsigned<decltype(df)> du32;
  ForEachVector<8, 4>(
      in, out, count, hn::Lanes(dd), [&](const std::uint8_t* from, std::uint8_t* to) HWY_ATTR {
        const auto exact = LoadBytes(dd, from);
        const auto nearest = Round64To32(df, dd, exact);
        const auto back = hn::PromoteTo(dd, nearest);
        // Step back where rounding went away from zero, then mark what is inexact. NaN: only its
        // last bit is set.
        const auto inexact = hn::BitCast(du64, hn::VecFromMask(dd, hn::Ne(back, exact)));
        const auto away =
            hn::BitCast(du64, hn::VecFromMask(dd, hn::Gt(hn::Abs(back), hn::Abs(exact))));
        const auto step32 = hn::TruncateTo(du32, away);  // -1 where away
        const auto sticky = hn::And(hn::TruncateTo(du32, inexact), hn::Set(du32, 1u));
        StoreBytes(hn::Or(hn::Add(hn::BitCast(du32, nearest), step32), sticky), du32, to);
      });
}

void Run(FloatStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
         bool saturate, Counts& counts) {
  switch (step) {
    case FloatStep::kF16ToF32:
      return F16ToF32(in, out, count);
    case FloatStep::kBf16ToF32:
      return Bf16ToF32(in, out, count);
    case FloatStep::kE4m3fnToF32:
      return NarrowToF32<format::E4m3fn>(in, out, count);
    case FloatStep::kE5m2ToF32:
      return NarrowToF32<format::E5m2>(in, out, count);
    case FloatStep::kE4m3fnuzToF32:
      return NarrowToF32<format::E4m3fnuz>(in, out, count);
    case FloatStep::kE5m2fnuzToF32:
      return NarrowToF32<format::E5m2fnuz>(in, out, count);
    case FloatStep::kF32ToF64:
      return F32ToF64(in, out, count);
    case FloatStep::kF64ToF32Odd:
      return F64ToF32Odd(in, out, count);
    case FloatStep::kF64ToF32:
      return F64ToF32(in, out, count, saturate, counts);
    case FloatStep::kF32ToF16:
#if ZT_HAVE_F16C
      return F32ToF16(in, out, count, saturate, counts);
#else
      return F32ToNarrow<format::F16>(in, out, count, saturate, counts);
#endif
    case FloatStep::kF32ToBf16:
      return F32ToNarrow<format::Bf16>(in, out, count, saturate, counts);
    case FloatStep::kF32ToE4m3fn:
      return F32ToNarrow<format::E4m3fn>(in, out, count, saturate, counts);
    case FloatStep::kF32ToE5m2:
      return F32ToNarrow<format::E5m2>(in, out, count, saturate, counts);
    case FloatStep::kF32ToE4m3fnuz:
      return F32ToNarrow<format::E4m3fnuz>(in, out, count, saturate, counts);
    case FloatStep::kF32ToE5m2fnuz:
      return F32ToNarrow<format::E5m2fnuz>(in, out, count, saturate, counts);
  }
}

#undef ZT_HAVE_F16C
}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(Run);
void RunStep(FloatStep step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
             bool saturate, Counts& counts) {
  HWY_DYNAMIC_DISPATCH(Run)(step, in, out, count, saturate, counts);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
