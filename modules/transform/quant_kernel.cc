// Kernels for codes of quantized checkpoints. Plain loops are vectorized for each target by the
// compiler.
#include "transform/quant_kernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/quant_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::uint32_t kNan = 0x7fc00000;

void UnpackNibbles(const std::uint8_t* HWY_RESTRICT in, std::size_t bytes, bool high_first,
                   std::uint8_t* HWY_RESTRICT out) {
  const unsigned first = high_first ? 4 : 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    out[2 * i] = static_cast<std::uint8_t>((in[i] >> first) & 15);
    out[2 * i + 1] = static_cast<std::uint8_t>((in[i] >> (4 - first)) & 15);
  }
}

void PickNibbles(const std::uint8_t* HWY_RESTRICT in, std::size_t unit, unsigned shift,
                 std::uint8_t* HWY_RESTRICT out, std::size_t count) {
  if (unit == 1 && shift == 0) {  // a shift that the compiler knows is not done in 32 bits
    for (std::size_t i = 0; i < count; ++i) out[i] = in[i] & 15;
    return;
  }
  if (unit == 1) {
    for (std::size_t i = 0; i < count; ++i) out[i] = in[i] >> 4;
    return;
  }
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto mask = hn::Set(d, 15);
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes) {
    const auto words =
        hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, decltype(d)>(), in + 4 * i));
    const auto nibbles = hn::And(hn::ShiftRightSame(words, static_cast<int>(shift)), mask);
    hn::StoreU(hn::U8FromU32(nibbles), d8, out + i);
  }
#endif
  for (; i < count; ++i)
    out[i] = static_cast<std::uint8_t>((in[4 * i + shift / 8] >> shift % 8) & 15);
}

// Where 16 floats are a vector, the entries are one. Elsewhere each of their bytes is looked up by
// itself, 16 codes at once; then they are interleaved.
void LookUp16(const std::uint8_t* HWY_RESTRICT codes, const float* HWY_RESTRICT table,
              float* HWY_RESTRICT out, std::size_t count) {
  std::size_t i = 0;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const hn::FixedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto entries = hn::LoadU(d, table);
  for (; i + 16 <= count; i += 16) {
    const auto c = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
    hn::StoreU(hn::TableLookupLanes(entries, hn::IndicesFromVec(d, c)), d, out + i);
  }
#elif HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::Repartition<std::uint16_t, decltype(d)> d16;
  const hn::Repartition<float, decltype(d)> df;
  HWY_ALIGN std::uint8_t entries[64], planes[4][16];
  std::memcpy(entries, table, sizeof entries);
  for (std::size_t k = 0; k < 64; ++k) planes[k % 4][k / 4] = entries[k];
  const auto p0 = hn::Load(d, planes[0]), p1 = hn::Load(d, planes[1]);
  const auto p2 = hn::Load(d, planes[2]), p3 = hn::Load(d, planes[3]);
  for (; i + 16 <= count; i += 16) {
    const auto c = hn::LoadU(d, codes + i);
    const auto b0 = hn::TableLookupBytes(p0, c), b1 = hn::TableLookupBytes(p1, c);
    const auto b2 = hn::TableLookupBytes(p2, c), b3 = hn::TableLookupBytes(p3, c);
    const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d, b0, b1));
    const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d, b2, b3));
    const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d, b0, b1));
    const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d, b2, b3));
    hn::StoreU(hn::BitCast(df, hn::InterleaveLower(d16, low01, low23)), df, out + i);
    hn::StoreU(hn::BitCast(df, hn::InterleaveUpper(d16, low01, low23)), df, out + i + 4);
    hn::StoreU(hn::BitCast(df, hn::InterleaveLower(d16, high01, high23)), df, out + i + 8);
    hn::StoreU(hn::BitCast(df, hn::InterleaveUpper(d16, high01, high23)), df, out + i + 12);
  }
#endif
  for (; i < count; ++i) std::memcpy(out + i, table + (codes[i] & 15), sizeof(float));
}

void WidenU8(const std::uint8_t* HWY_RESTRICT in, float* HWY_RESTRICT out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]);
}
void WidenI8(const std::uint8_t* HWY_RESTRICT in, float* HWY_RESTRICT out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>(static_cast<std::int8_t>(in[i]));
}

void ExpandE8m0(const std::uint8_t* HWY_RESTRICT in, float* HWY_RESTRICT out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = std::uint32_t{in[i]} << 23;
    bits = in[i] == 0 ? 0x00400000u : in[i] == 255 ? kNan : bits;
    std::memcpy(out + i, &bits, sizeof bits);
  }
}

// Which NaN a product makes, of two NaNs or of none, depends on the processor: here it is always the
// same.
HWY_INLINE float Product(float x, float scale) {
  const float product = x * scale;
  return product == product ? product : std::bit_cast<float>(kNan);
}

HWY_INLINE void ScaleRun(float* HWY_RESTRICT x, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) x[i] = Product(x[i], scale);
}
HWY_INLINE void ScaleRun(float* HWY_RESTRICT x, std::size_t count, float scale, float zero) {
  for (std::size_t i = 0; i < count; ++i) x[i] = Product(x[i] - zero, scale);
}

// kGroup: the size of groups if the compiler is to know it, else 0.
template <std::size_t kGroup>
HWY_INLINE void ScaleGroups(float* HWY_RESTRICT x, std::size_t count,
                            const float* HWY_RESTRICT scales, const float* HWY_RESTRICT zeros,
                            std::size_t into, std::size_t any_group) {
  const std::size_t group = kGroup == 0 ? any_group : kGroup;
  for (std::size_t k = 0, run; count > 0; ++k, x += run, count -= run) {
    run = std::min(group - into, count);
    into = 0;
    if (zeros != nullptr) {
      ScaleRun(x, run, scales[k], zeros[k]);
    } else if (run == kGroup && kGroup != 0) {
      ScaleRun(x, kGroup, scales[k]);
    } else {
      ScaleRun(x, run, scales[k]);
    }
  }
}

void ScaleRuns(float* x, std::size_t count, const float* scales, const float* zeros,
               std::size_t into, std::size_t group) {
  if (group == 16) return ScaleGroups<16>(x, count, scales, zeros, into, group);
  if (group == 32) return ScaleGroups<32>(x, count, scales, zeros, into, group);
  return ScaleGroups<0>(x, count, scales, zeros, into, group);
}

void ScaleEach(float* HWY_RESTRICT x, std::size_t count, const float* HWY_RESTRICT scales,
               const float* HWY_RESTRICT zeros) {
  if (zeros == nullptr) {
    for (std::size_t i = 0; i < count; ++i) x[i] = Product(x[i], scales[i]);
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] = Product(x[i] - zeros[i], scales[i]);
  }
}

void ScaleGathered(float* HWY_RESTRICT x, std::size_t count,
                   const std::uint32_t* HWY_RESTRICT groups, const float* HWY_RESTRICT scales,
                   const float* HWY_RESTRICT zeros) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto nan = hn::Set(d, std::bit_cast<float>(kNan));
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= count; i += lanes) {
    const auto at = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(groups + i));
    const auto difference = hn::Sub(hn::LoadU(d, x + i), hn::GatherIndex(d, zeros, at));
    const auto product = hn::Mul(difference, hn::GatherIndex(d, scales, at));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(product), nan, product), d, x + i);
  }
#endif
  for (; i < count; ++i) x[i] = Product(x[i] - zeros[groups[i]], scales[groups[i]]);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {

HWY_EXPORT(UnpackNibbles);
void UnpackNibbles(const std::uint8_t* in, std::size_t bytes, bool high_first, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(UnpackNibbles)(in, bytes, high_first, out);
}
HWY_EXPORT(PickNibbles);
void PickNibbles(const std::uint8_t* in, std::size_t unit, unsigned shift, std::uint8_t* out,
                 std::size_t count) {
  HWY_DYNAMIC_DISPATCH(PickNibbles)(in, unit, shift, out, count);
}
HWY_EXPORT(LookUp16);
void LookUp16(const std::uint8_t* codes, const float* table, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(LookUp16)(codes, table, out, count);
}
HWY_EXPORT(WidenU8);
void WidenU8(const std::uint8_t* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenU8)(in, out, count);
}
HWY_EXPORT(WidenI8);
void WidenI8(const std::uint8_t* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenI8)(in, out, count);
}
HWY_EXPORT(ExpandE8m0);
void ExpandE8m0(const std::uint8_t* in, float* out, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(ExpandE8m0)(in, out, count);
}
HWY_EXPORT(ScaleRuns);
void ScaleRuns(float* x, std::size_t count, const float* scales, const float* zeros,
               std::size_t into, std::size_t group) {
  HWY_DYNAMIC_DISPATCH(ScaleRuns)(x, count, scales, zeros, into, group);
}
HWY_EXPORT(ScaleEach);
void ScaleEach(float* x, std::size_t count, const float* scales, const float* zeros) {
  HWY_DYNAMIC_DISPATCH(ScaleEach)(x, count, scales, zeros);
}

HWY_EXPORT(ScaleGathered);
void ScaleGathered(float* x, std::size_t count, const std::uint32_t* groups, const float* scales,
                   const float* zeros) {
  HWY_DYNAMIC_DISPATCH(ScaleGathered)(x, count, groups, scales, zeros);
}

}  // namespace zt::kernel
#endif  // HWY_ONCE
