// Dequantization kernels for blocks of 32 to 128 elements.
#include <cstddef>
#include <cstdint>

#include "transform/dequant_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/dequant_small_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "transform/dequant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

// f16 d | 16 bytes: the low nibble of byte i is element i, the high nibble element i + 16
void Q4_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 18, out += 32) {
    const VF d = Splat(LoadF16(in));
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      const VI q = LoadBytes(in + 2 + i);
      PutScaled(d, hn::Sub(hn::And(q, Int(15)), Int(8)), out + i);
      PutScaled(d, hn::Sub(hn::ShiftRight<4>(q), Int(8)), out + 16 + i);
    }
  }
}

// f16 d, m | 16 bytes as in q4_0
void Q4_1(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 20, out += 32) {
    const VF d = Splat(LoadF16(in)), m = Splat(LoadF16(in + 2));
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      const VI q = LoadBytes(in + 4 + i);
      Put(hn::Add(hn::Mul(d, Float(hn::And(q, Int(15)))), m), out + i);
      Put(hn::Add(hn::Mul(d, Float(hn::ShiftRight<4>(q))), m), out + 16 + i);
    }
  }
}

// The fifth bits of q5_0 and q5_1: bits i, i + 1, ... of `bits`, as 16 or 0 in the lanes.
HWY_INLINE VI FifthBit(std::uint32_t bits, std::size_t i) {
  const DU du;
  const auto shifted = hn::Shr(hn::Set(du, bits), hn::Iota(du, static_cast<std::uint32_t>(i)));
  return hn::BitCast(DI(), hn::ShiftLeft<4>(hn::And(shifted, hn::Set(du, 1))));
}

// f16 d | u32: bit i is the fifth bit of element i | 16 bytes as in q4_0
void Q5_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 22, out += 32) {
    const VF d = Splat(LoadF16(in));
    const auto high = LoadAs<std::uint32_t>(in + 2);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      const VI q = LoadBytes(in + 6 + i);
      const VI a = hn::Or(hn::And(q, Int(15)), FifthBit(high, i));
      const VI b = hn::Or(hn::ShiftRight<4>(q), FifthBit(high, 16 + i));
      PutScaled(d, hn::Sub(a, Int(16)), out + i);
      PutScaled(d, hn::Sub(b, Int(16)), out + 16 + i);
    }
  }
}

// f16 d, m | the rest as in q5_0
void Q5_1(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 24, out += 32) {
    const VF d = Splat(LoadF16(in)), m = Splat(LoadF16(in + 2));
    const auto high = LoadAs<std::uint32_t>(in + 4);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      const VI q = LoadBytes(in + 8 + i);
      const VI a = hn::Or(hn::And(q, Int(15)), FifthBit(high, i));
      const VI b = hn::Or(hn::ShiftRight<4>(q), FifthBit(high, 16 + i));
      Put(hn::Add(hn::Mul(d, Float(a)), m), out + i);
      Put(hn::Add(hn::Mul(d, Float(b)), m), out + 16 + i);
    }
  }
}

// f16 d | 32 signed bytes
void Q8_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 34, out += 32) {
    const VF d = Splat(LoadF16(in));
    for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
      PutScaled(d, LoadSigned(in + 2 + i), out + i);
    }
  }
}

// f16 d | 16 bytes as in q4_0, the nibbles indices into kIq4Values
void IQ4_NL(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 18, out += 32) {
    PutLookup(LoadF16(in), kIq4Values, in + 2, out);
  }
}

// e8m0, halved because the table has doubled values | 16 bytes as in q4_0, the nibbles e2m1
void MXFP4(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 17, out += 32) {
    const std::uint32_t e = in[0];
    const float d = FloatFromBits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    PutLookup(d, kFp4Values, in + 1, out);
  }
}

// Unsigned e4m3 (the top bit is ignored), halved; 0x7f means 0.
HWY_INLINE float HalfE4M3(std::uint8_t x) {
  const std::uint32_t exponent = (x >> 3) & 15, mantissa = x & 7;
  if (x == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return FloatFromBits((exponent - 8 + 127) << 23 | mantissa << 20);
}

// 4 scales | 4 runs of 8 bytes, each 16 elements: i in the low nibble of byte i, i + 8
// in its high nibble
void NVFP4(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 36, out += 64) {
    for (std::size_t pair = 0; pair < 2; ++pair) {
      HWY_ALIGN std::int8_t values[32];
      LookupNibbles(kFp4Values, in + 4 + 16 * pair, values);
      // Low nibbles come first: 8 of run 0, 8 of run 1; then the high nibbles likewise.
      const hn::CappedTag<float, 8> df;
      const hn::Rebind<std::int32_t, decltype(df)> di;
      const hn::Rebind<std::int8_t, decltype(df)> di8;
      for (std::size_t run = 0; run < 2; ++run) {
        const auto d = hn::Set(df, HalfE4M3(in[2 * pair + run]));
        float* to = out + 32 * pair + 16 * run;
        for (std::size_t i = 0; i < 8; i += hn::Lanes(df)) {
          const auto low = hn::PromoteTo(di, hn::LoadU(di8, values + 8 * run + i));
          const auto high = hn::PromoteTo(di, hn::LoadU(di8, values + 16 + 8 * run + i));
          Store(df, hn::Mul(d, hn::ConvertTo(df, low)), to + i);
          Store(df, hn::Mul(d, hn::ConvertTo(df, high)), to + 8 + i);
        }
      }
    }
  }
}

// f16 d | 128 bits: d where set, -d where not
void Q1_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  const DU du;
  for (; blocks > 0; --blocks, in += 18, out += 128) {
    const auto d = hn::BitCast(du, Splat(LoadF16(in)));
    for (std::size_t i = 0; i < 128; i += 16) {
      const std::uint32_t bits = ~std::uint32_t{LoadAs<std::uint16_t>(in + 2 + i / 8)};
      for (std::size_t j = 0; j < 16; j += hn::Lanes(DF())) {
        const auto shifted =
            hn::Shr(hn::Set(du, bits), hn::Iota(du, static_cast<std::uint32_t>(j)));
        Put(hn::BitCast(DF(), hn::Xor(d, hn::ShiftLeft<31>(shifted))), out + i + j);
      }
    }
  }
}

// f16 d | 64 elements of 2 bits, lowest first, minus 1
void Q2_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  const DU du;
  for (; blocks > 0; --blocks, in += 18, out += 64) {
    const VF d = Splat(LoadF16(in));
    for (std::size_t i = 0; i < 64; i += 16) {
      const auto bits = LoadAs<std::uint32_t>(in + 2 + i / 4);
      for (std::size_t j = 0; j < 16; j += hn::Lanes(DF())) {
        const auto by = hn::ShiftLeft<1>(hn::Iota(du, static_cast<std::uint32_t>(j)));
        const auto q = hn::And(hn::Shr(hn::Set(du, bits), by), hn::Set(du, 3));
        PutScaled(d, hn::Sub(hn::BitCast(DI(), q), Int(1)), out + i + j);
      }
    }
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {

ZT_DISPATCH_DEQUANT(Q4_0)
ZT_DISPATCH_DEQUANT(Q4_1)
ZT_DISPATCH_DEQUANT(Q5_0)
ZT_DISPATCH_DEQUANT(Q5_1)
ZT_DISPATCH_DEQUANT(Q8_0)
ZT_DISPATCH_DEQUANT(IQ4_NL)
ZT_DISPATCH_DEQUANT(MXFP4)
ZT_DISPATCH_DEQUANT(NVFP4)
ZT_DISPATCH_DEQUANT(Q1_0)
ZT_DISPATCH_DEQUANT(Q2_0)

}  // namespace zt::kernel
#endif  // HWY_ONCE
