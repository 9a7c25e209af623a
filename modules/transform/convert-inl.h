// Shared by float conversions, with all exact ones: loads every format as vectors of f32 bits.
// Compiled once for each Highway target.
#if defined(ZT_TRANSFORM_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZT_TRANSFORM_CONVERT_INL_H_
#undef ZT_TRANSFORM_CONVERT_INL_H_
#else
#define ZT_TRANSFORM_CONVERT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/prefetch.h"
#include "hwy/highway.h"
#include "transform/convert_formats.h"

#undef ZT_HAVE_F16C
// x86 targets with F16C. On other targets the integer code below gives the same bits.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL) && \
    !defined(HWY_DISABLE_F16C)
#define ZT_HAVE_F16C 1
#else
#define ZT_HAVE_F16C 0
#endif

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using format::Specials;

// Order of the halves of a wide lane in a vector of narrower lanes.
inline constexpr bool kLowHalfFirst = std::endian::native == std::endian::little;

// Calls step(in, out) for each whole vector of `lanes` elements, then once on padded
// copies of the remainder.
template <std::size_t kInWidth, std::size_t kOutWidth, class Step>
HWY_INLINE void ForEachVector(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                              std::size_t count, std::size_t lanes, const Step& step) {
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::size_t b = 0; b < lanes * kInWidth; b += 64) PrefetchAhead(in + i * kInWidth + b);
    step(in + i * kInWidth, out + i * kOutWidth);
  }
  if (i == count) return;
  HWY_ALIGN std::uint8_t padded_in[HWY_MAX_BYTES * 2] = {};  // zeros never overflow
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

// Stores the low bits of 32-bit lanes, whose values fit.
template <class D32, class V>
HWY_INLINE void StoreNarrow(D32, V v, std::uint8_t* out, std::uint16_t) {
  const hn::Rebind<std::uint16_t, D32> d16;
  StoreBytes(hn::TruncateTo(d16, v), d16, out);
}
template <class D32, class V>
HWY_INLINE void StoreNarrow(D32, V v, std::uint8_t* out, std::uint8_t) {
  const hn::Rebind<std::uint8_t, D32> d8;
#if HWY_TARGET == HWY_AVX3_DL  // TruncateTo to u8 is wrong here in Highway 1.0.3
  const hn::Rebind<std::int32_t, D32> di;
  StoreBytes(hn::DemoteTo(d8, hn::BitCast(di, v)), d8, out);
#else
  StoreBytes(hn::TruncateTo(d8, v), d8, out);
#endif
}

template <class D, class V>
HWY_INLINE V Magnitude(D d, V f32) {
  return hn::And(f32, hn::Set(d, 0x7fffffffu));
}

// Sources of f32 bits: Load() returns the lanes of `d` that start at p.
struct FromF32 {
  static constexpr std::size_t kWidth = 4;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::uint8_t* p) {
    return LoadBytes(d, p);
  }
};

struct FromBf16 {
  static constexpr std::size_t kWidth = 2;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::uint8_t* p) {
    const hn::Rebind<std::uint16_t, D> dn;
    return hn::ShiftLeft<16>(hn::PromoteTo(d, LoadBytes(dn, p)));
  }
};

// Converts F's bits in 32-bit lanes to f32 bits, exactly.
template <class F, class D, class V>
HWY_INLINE V Decode(D d, V narrow) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  const auto bits = [&](std::uint32_t v) HWY_ATTR { return hn::Set(d, v); };
  const V magnitude = hn::And(narrow, bits(F::kAllOnes));
  const V sign = hn::ShiftLeft<F::kSignShift>(hn::And(narrow, bits(F::kSign)));
  const V shifted = hn::ShiftLeft<F::kShift>(magnitude);
  V f32 = hn::Add(shifted, bits(F::kRebias));
  // Subnormal: give it an implicit one with the weight of the smallest normal, and
  // subtract that weight.
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
struct FromSmall {
  static constexpr std::size_t kWidth = sizeof(typename F::Storage);
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::uint8_t* p) {
    const hn::Rebind<typename F::Storage, D> dn;
    return Decode<F>(d, hn::PromoteTo(d, LoadBytes(dn, p)));
  }
};

#if ZT_HAVE_F16C
struct FromF16 {
  static constexpr std::size_t kWidth = 2;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const std::uint8_t* p) {
    const hn::RebindToFloat<D> df;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::BitCast(d, hn::PromoteTo(df, LoadBytes(dh, p)));
  }
};
#else
using FromF16 = FromSmall<format::F16>;
#endif

struct FromF64 {
  static constexpr std::size_t kWidth = 8;
};

// Converts every element of a source to f32, exactly.
template <class Source>
void ToF32(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out, std::size_t count) {
  const hn::ScalableTag<std::uint32_t> d;
  ForEachVector<Source::kWidth, 4>(in, out, count, hn::Lanes(d),
                                   [&](const std::uint8_t* from, std::uint8_t* to)
                                       HWY_ATTR { StoreBytes(Source::Load(d, from), d, to); });
}

void F32ToF64(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
              std::size_t count) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  ForEachVector<4, 8>(in, out, count, hn::Lanes(dd),
                      [&](const std::uint8_t* from, std::uint8_t* to)
                          HWY_ATTR { StoreBytes(hn::PromoteTo(dd, LoadBytes(df, from)), dd, to); });
}

// Highway's emulated DemoteTo clamps to the largest finite f32; the hardware rounds to
// infinity, as this does.
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

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
