// Shared by the dequantization kernels; compiled once for each Highway target.

// Scalars of a block are little-endian and unaligned.
#if defined(ZT_TRANSFORM_DEQUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZT_TRANSFORM_DEQUANT_INL_H_
#undef ZT_TRANSFORM_DEQUANT_INL_H_
#else
#define ZT_TRANSFORM_DEQUANT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 floats: in most types runs of 16 share a scale, so every vector has a single scale.
using DF = hn::CappedTag<float, 16>;
using DI = hn::Rebind<std::int32_t, DF>;
using DU = hn::Rebind<std::uint32_t, DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;
using DI8 = hn::Rebind<std::int8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

template <typename T>
HWY_INLINE T LoadAs(const std::uint8_t* p) {
  T v;
  if constexpr (std::endian::native == std::endian::big) {
    std::uint8_t reversed[sizeof v];
    for (std::size_t i = 0; i < sizeof v; ++i) reversed[i] = p[sizeof v - 1 - i];
    std::memcpy(&v, reversed, sizeof v);
  } else {
    std::memcpy(&v, p, sizeof v);
  }
  return v;
}

HWY_INLINE float FloatFromBits(std::uint32_t bits) {
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

// Exact; NaN keeps its payload. Subnormals are converted as integers, to avoid slow microcode.
HWY_INLINE float F16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000) << 16;
  const std::uint32_t magnitude = h & 0x7fff;
  if (HWY_UNLIKELY(magnitude < 0x400)) {
    const float v = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    std::uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    return FloatFromBits(bits | sign);
  }
  const std::uint32_t rebias = magnitude >= 0x7c00 ? (255u - 31) << 23 : (127u - 15) << 23;
  return FloatFromBits(((magnitude << 13) + rebias) | sign);
}
HWY_INLINE float LoadF16(const std::uint8_t* p) { return F16(LoadAs<std::uint16_t>(p)); }

HWY_INLINE VI LoadBytes(const std::uint8_t* p) { return hn::PromoteTo(DI(), hn::LoadU(DU8(), p)); }
HWY_INLINE VI LoadSigned(const std::uint8_t* p) {
  return hn::PromoteTo(DI(), hn::LoadU(DI8(), reinterpret_cast<const std::int8_t*>(p)));
}
HWY_INLINE VF Float(VI v) { return hn::ConvertTo(DF(), v); }
HWY_INLINE VF Splat(float v) { return hn::Set(DF(), v); }
HWY_INLINE VI Int(std::int32_t v) { return hn::Set(DI(), v); }
// Which NaN is made, of two NaNs or of none, depends on the processor: it is stored as one.
template <class D>
HWY_INLINE void Store(D d, hn::Vec<D> v, float* out) {
  hn::StoreU(hn::IfThenElse(hn::IsNaN(v), hn::Set(d, FloatFromBits(0x7fc00000)), v), d, out);
}
HWY_INLINE void Put(VF v, float* out) { Store(DF(), v, out); }

// out[i] = scale * q[i], and out[i] = scale * q[i] - offset.
HWY_INLINE void PutScaled(VF scale, VI q, float* out) { Put(hn::Mul(scale, Float(q)), out); }
HWY_INLINE void PutAffine(VF scale, VI q, VF offset, float* out) {
  Put(hn::Sub(hn::Mul(scale, Float(q)), offset), out);
}

// Looks the 32 nibbles of 16 bytes up in `table`: low nibbles to out[0..15], high
// nibbles to out[16..31].
HWY_INLINE void LookupNibbles(const std::int8_t* HWY_RESTRICT table, const std::uint8_t* p,
                              std::int8_t* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 16; ++i) {
    out[i] = table[p[i] & 15];
    out[16 + i] = table[p[i] >> 4];
  }
#else
  const hn::FixedTag<std::uint8_t, 16> du;
  const hn::FixedTag<std::int8_t, 16> di;
  const auto values = hn::BitCast(du, hn::Load(di, table));
  const auto q = hn::LoadU(du, p);
  const auto low = hn::And(q, hn::Set(du, 15));
  const hn::Repartition<std::uint16_t, decltype(du)> du16;
  const auto high =
      hn::And(hn::BitCast(du, hn::ShiftRight<4>(hn::BitCast(du16, q))), hn::Set(du, 15));
  hn::Store(hn::BitCast(di, hn::TableLookupBytes(values, low)), di, out);
  hn::Store(hn::BitCast(di, hn::TableLookupBytes(values, high)), di, out + 16);
#endif
}

// Stores 32 elements, scale * table[nibble], from 16 bytes of nibbles.
HWY_INLINE void PutLookup(float scale, const std::int8_t* table, const std::uint8_t* p,
                          float* out) {
  HWY_ALIGN std::int8_t values[32];
  LookupNibbles(table, p, values);
  const VF d = Splat(scale);
  for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
    PutScaled(d, LoadSigned(reinterpret_cast<const std::uint8_t*>(values) + i), out + i);
  }
}

// The values of iq4_nl and iq4_xs, and of mxfp4 and nvfp4 (e2m1, doubled).
HWY_ALIGN constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};
HWY_ALIGN constexpr std::int8_t kFp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard

// Defines Dequant##name, which calls the best target's `name`. Use it in the part of a file
// that is compiled once.
#ifndef ZT_DISPATCH_DEQUANT
#define ZT_DISPATCH_DEQUANT(name)                                              \
  HWY_EXPORT(name);                                                            \
  void Dequant##name(const std::uint8_t* in, float* out, std::size_t blocks) { \
    HWY_DYNAMIC_DISPATCH(name)(in, out, blocks);                               \
  }
#endif
