// Dequantization kernels for the iq types, whose elements are coordinates of grid points.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transform/dequant_iq_tables.h"
#include "transform/dequant_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/dequant_iq_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "transform/dequant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

using DF8 = hn::CappedTag<float, 8>;

// Loads signed bytes from `i` on, of eight (the first lowest), into the lanes.
HWY_INLINE hn::Vec<DF8> Coordinates(std::uint64_t eight, std::size_t i) {
  if constexpr (std::endian::native == std::endian::big) eight = __builtin_bswap64(eight);
  const hn::Rebind<std::int8_t, DF8> di8;
  const hn::Rebind<std::int32_t, DF8> di;
  const auto* bytes = reinterpret_cast<const std::int8_t*>(&eight);
  return hn::ConvertTo(DF8(), hn::PromoteTo(di, hn::LoadU(di8, bytes + i)));
}

// out[j] = scale * grid[j], negated if byte j of `signs` is 0xff. No coordinate is 0 or above 0x3e,
// so negating bytes causes no carry. Negating before the product gives the same bits.
HWY_INLINE void PutSigned(float scale, std::uint64_t grid, std::uint64_t signs, float* out) {
  const std::uint64_t eight = (grid ^ signs) + (signs & 0x0101010101010101u);
  const auto d = hn::Set(DF8(), scale);
  for (std::size_t i = 0; i < 8; i += hn::Lanes(DF8())) {
    Store(DF8(), hn::Mul(d, Coordinates(eight, i)), out + i);
  }
}

// out[j] = scale * (grid[j] + delta)
HWY_INLINE void PutShifted(float scale, std::uint64_t grid, float delta, float* out) {
  const auto d = hn::Set(DF8(), scale), shift = hn::Set(DF8(), delta);
  for (std::size_t i = 0; i < 8; i += hn::Lanes(DF8())) {
    Store(DF8(), hn::Mul(d, hn::Add(Coordinates(grid, i), shift)), out + i);
  }
}

HWY_INLINE float Scale(float d, std::uint32_t quarter_steps, float factor) {
  const float biased = 0.5f + static_cast<float>(static_cast<std::int32_t>(quarter_steps));
  const float product = d * biased;
  return product * factor;
}

HWY_INLINE std::uint64_t Pair(const std::uint32_t low, const std::uint32_t high) {
  return low | std::uint64_t{high} << 32;
}

// f16 d | 8 runs of 32 elements: 4 bytes of grid indices, u32: 4 x 7 sign bits and a scale
// of 4 bits on top
void IQ2_XXS(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 66, out += 256) {
    const float d = LoadF16(in);
    for (int run = 0; run < 8; ++run) {
      const std::uint8_t* q = in + 2 + 8 * run;
      const auto bits = LoadAs<std::uint32_t>(q + 4);
      const float scale = Scale(d, bits >> 28, 0.25f);
      for (int g = 0; g < 4; ++g) {
        PutSigned(scale, kGridIq2Xxs[q[g]], kEvenSignMasks[bits >> (7 * g) & 127],
                  out + 32 * run + 8 * g);
      }
    }
  }
}

// f16 d | 32 x u16: 9 bits of grid index, 7 of signs | 8 bytes: scales of 4 bits,
// each for 16 elements
void IQ2_XS(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 74, out += 256) {
    const float d = LoadF16(in);
    for (int g = 0; g < 32; ++g) {
      const auto q = LoadAs<std::uint16_t>(in + 2 + 2 * g);
      const std::uint32_t s = in[66 + g / 4] >> (2 * (g & 2)) & 15u;
      PutSigned(Scale(d, s, 0.25f), kGridIq2Xs[q & 511], kEvenSignMasks[q >> 9], out + 8 * g);
    }
  }
}

// f16 d | 32 bytes of grid indices | 32 of signs | 8: 2 high bits for each index | 8:
// scales as in iq2_xs
void IQ2_S(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 82, out += 256) {
    const float d = LoadF16(in);
    for (int g = 0; g < 32; ++g) {
      const unsigned index = in[2 + g] | (in[66 + g / 4] >> (2 * (g & 3)) & 3u) << 8;
      const std::uint32_t s = in[74 + g / 4] >> (2 * (g & 2)) & 15u;
      PutSigned(Scale(d, s, 0.25f), kGridIq2S[index], kSignMasks[in[34 + g]], out + 8 * g);
    }
  }
}

// f16 d | 64 bytes of grid indices, each for 4 elements | 8 x u32: signs and scale as in iq2_xxs
void IQ3_XXS(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 98, out += 256) {
    const float d = LoadF16(in);
    for (int run = 0; run < 8; ++run) {
      const std::uint8_t* q = in + 2 + 8 * run;
      const auto bits = LoadAs<std::uint32_t>(in + 66 + 4 * run);
      const float scale = Scale(d, bits >> 28, 0.5f);
      for (int g = 0; g < 4; ++g) {
        PutSigned(scale, Pair(kGridIq3Xxs[q[2 * g]], kGridIq3Xxs[q[2 * g + 1]]),
                  kEvenSignMasks[bits >> (7 * g) & 127], out + 32 * run + 8 * g);
      }
    }
  }
}

// f16 d | 64 bytes of grid indices | 8: their ninth bits | 32 of signs | 4: scales of 4 bits,
// each for 32 elements
void IQ3_S(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 110, out += 256) {
    const float d = LoadF16(in);
    for (int run = 0; run < 8; ++run) {
      const int s = in[106 + run / 2] >> (4 * (run & 1)) & 15;
      const float scale = d * static_cast<float>(1 + 2 * s);
      const std::uint8_t* q = in + 2 + 8 * run;
      const unsigned ninth = in[66 + run];
      for (int g = 0; g < 4; ++g) {
        const unsigned a = q[2 * g] | (ninth >> (2 * g) & 1) << 8;
        const unsigned b = q[2 * g + 1] | (ninth >> (2 * g + 1) & 1) << 8;
        PutSigned(scale, Pair(kGridIq3S[a], kGridIq3S[b]), kSignMasks[in[74 + 4 * run + g]],
                  out + 32 * run + 8 * g);
      }
    }
  }
}

constexpr float kDelta = 0.125f;

// f16 d | 32 bytes of grid indices | 8 x u16: 4 x 3 high index bits, a scale of 3 bits,
// the sign of delta
void IQ1_S(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 50, out += 256) {
    const float d = LoadF16(in);
    for (int run = 0; run < 8; ++run) {
      const unsigned bits = LoadAs<std::uint16_t>(in + 34 + 2 * run);
      const float scale = d * static_cast<float>(static_cast<int>(2 * (bits >> 12 & 7) + 1));
      const float delta = bits & 0x8000 ? -kDelta : kDelta;
      for (int g = 0; g < 4; ++g) {
        const unsigned index = in[2 + 4 * run + g] | (bits >> (3 * g) & 7) << 8;
        PutShifted(scale, kGridIq1S[index], delta, out + 32 * run + 8 * g);
      }
    }
  }
}

// 32 bytes of grid indices | 16: for each index 3 high bits and the sign of delta | 4 x u16: 4
// scales of 3 bits, each for 16 elements, and on top 4 bits of the f16 d, lowest first
void IQ1_M(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 56, out += 256) {
    unsigned packed[4], bits = 0;
    for (int j = 0; j < 4; ++j) {
      packed[j] = LoadAs<std::uint16_t>(in + 48 + 2 * j);
      bits |= packed[j] >> 12 << (4 * j);
    }
    const float d = F16(static_cast<std::uint16_t>(bits));
    for (int g = 0; g < 32; ++g) {
      const unsigned s = packed[g / 8] >> (3 * (g / 2 % 4)) & 7;
      const unsigned high = in[32 + g / 2] >> (4 * (g & 1));
      PutShifted(d * static_cast<float>(static_cast<int>(2 * s + 1)),
                 kGridIq1S[in[g] | (high & 7) << 8], high & 8 ? -kDelta : kDelta, out + 8 * g);
    }
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {

ZT_DISPATCH_DEQUANT(IQ2_XXS)
ZT_DISPATCH_DEQUANT(IQ2_XS)
ZT_DISPATCH_DEQUANT(IQ2_S)
ZT_DISPATCH_DEQUANT(IQ3_XXS)
ZT_DISPATCH_DEQUANT(IQ3_S)
ZT_DISPATCH_DEQUANT(IQ1_S)
ZT_DISPATCH_DEQUANT(IQ1_M)

}  // namespace zt::kernel
#endif  // HWY_ONCE
