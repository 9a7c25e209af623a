// Dequantization kernels for the K-quants and other blocks of 256 elements.
#include <cstddef>
#include <cstdint>

#include "transform/dequant_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/dequant_k_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "transform/dequant-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

// 16 bytes: scale in the low nibble, minimum in the high, each for 16 elements | 64 bytes of 2 bits
// | f16 d, dmin. Element 128 h + 32 s + i is in bits 2 s of byte 32 h + i.
void Q2_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 84, out += 256) {
    const float d = LoadF16(in + 80), dmin = LoadF16(in + 82);
    float scale[16], offset[16];
    for (int j = 0; j < 16; ++j) {
      scale[j] = d * static_cast<float>(in[j] & 15);
      offset[j] = dmin * static_cast<float>(in[j] >> 4);
    }
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
        const VI q = LoadBytes(in + 16 + 32 * h + i), mask = Int(3);
        const float* s = scale + 8 * h + i / 16;
        const float* m = offset + 8 * h + i / 16;
        float* to = out + 128 * h + i;
        PutAffine(Splat(s[0]), hn::And(q, mask), Splat(m[0]), to);
        PutAffine(Splat(s[2]), hn::And(hn::ShiftRight<2>(q), mask), Splat(m[2]), to + 32);
        PutAffine(Splat(s[4]), hn::And(hn::ShiftRight<4>(q), mask), Splat(m[4]), to + 64);
        PutAffine(Splat(s[6]), hn::ShiftRight<6>(q), Splat(m[6]), to + 96);
      }
    }
  }
}

// 32 bytes of third bits: of element 32 g + i in bit g of byte i | 64 bytes as in q2_k | 12 bytes
// of 16 scales of 6 bits | f16 d. A clear third bit means minus 4.
void Q3_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 110, out += 256) {
    const float d = LoadF16(in + 108);
    const std::uint8_t* packed = in + 96;
    float scale[16];
    for (int j = 0; j < 16; ++j) {
      const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
      const int high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
      scale[j] = d * static_cast<float>((low | high << 4) - 32);
    }
    for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
      VI third = LoadBytes(in + i);
      const VI mask = Int(3), one = Int(1), four = Int(4);
      for (std::size_t h = 0; h < 2; ++h) {
        VI q = LoadBytes(in + 32 + 32 * h + i);
        for (std::size_t s = 0; s < 4; ++s) {
          const VI bit = hn::ShiftLeft<2>(hn::And(third, one));
          const VI value = hn::Sub(hn::Add(hn::And(q, mask), bit), four);
          PutScaled(Splat(scale[8 * h + 2 * s + i / 16]), value, out + 128 * h + 32 * s + i);
          q = hn::ShiftRight<2>(q);
          third = hn::ShiftRight<1>(third);
        }
      }
    }
  }
}

// Unpacks the 8 scales and 8 minima of 6 bits in the 12 bytes of q4_k and q5_k, and multiplies
// them by d and dmin.
struct ScaleMin {
  float scale[8], offset[8];
};
HWY_INLINE void UnpackScaleMin(float d, float dmin, const std::uint8_t* p, ScaleMin& out) {
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = d * static_cast<float>(p[j] & 63);
    out.offset[j] = dmin * static_cast<float>(p[4 + j] & 63);
    out.scale[4 + j] = d * static_cast<float>((p[8 + j] & 15) | ((p[j] >> 2) & 48));
    out.offset[4 + j] = dmin * static_cast<float>((p[8 + j] >> 4) | ((p[4 + j] >> 2) & 48));
  }
}

// f16 d, dmin | 12 bytes of scales and minima | 128 bytes: the low nibble of byte 32 g + i is
// element 64 g + i, the high nibble element 64 g + 32 + i
void Q4_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 144, out += 256) {
    ScaleMin sm;
    UnpackScaleMin(LoadF16(in), LoadF16(in + 2), in + 4, sm);
    for (std::size_t g = 0; g < 4; ++g) {
      const VF s0 = Splat(sm.scale[2 * g]), s1 = Splat(sm.scale[2 * g + 1]);
      const VF m0 = Splat(sm.offset[2 * g]), m1 = Splat(sm.offset[2 * g + 1]);
      for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
        const VI q = LoadBytes(in + 16 + 32 * g + i);
        PutAffine(s0, hn::And(q, Int(15)), m0, out + 64 * g + i);
        PutAffine(s1, hn::ShiftRight<4>(q), m1, out + 64 * g + 32 + i);
      }
    }
  }
}

// As q4_k, but 32 bytes precede the nibbles: bit g of byte i is the fifth bit of element 32 g + i
void Q5_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 176, out += 256) {
    ScaleMin sm;
    UnpackScaleMin(LoadF16(in), LoadF16(in + 2), in + 4, sm);
    for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
      VI fifth = LoadBytes(in + 16 + i);
      const VI one = Int(1);
      for (std::size_t g = 0; g < 4; ++g) {
        const VI q = LoadBytes(in + 48 + 32 * g + i);
        const VI a = hn::ShiftLeft<4>(hn::And(fifth, one));
        const VI b = hn::ShiftLeft<4>(hn::And(hn::ShiftRight<1>(fifth), one));
        fifth = hn::ShiftRight<2>(fifth);
        PutAffine(Splat(sm.scale[2 * g]), hn::Or(hn::And(q, Int(15)), a), Splat(sm.offset[2 * g]),
                  out + 64 * g + i);
        PutAffine(Splat(sm.scale[2 * g + 1]), hn::Or(hn::ShiftRight<4>(q), b),
                  Splat(sm.offset[2 * g + 1]), out + 64 * g + 32 + i);
      }
    }
  }
}

// 128 bytes of low nibbles | 64 bytes of high bits | 16 signed scales | f16 d. For h = 0, 1 and
// s = 0 to 3, element 128 h + 32 s + i has its low bits in byte 64 h + 32 (s % 2) + i, in the low
// nibble if s < 2, else in the high one; its high bits are bits 2 s of byte 32 h + i; minus 32.
void Q6_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 210, out += 256) {
    const float d = LoadF16(in + 208);
    float scale[16];
    for (int j = 0; j < 16; ++j) {
      scale[j] = d * static_cast<float>(static_cast<std::int8_t>(in[192 + j]));
    }
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
        const VI a = LoadBytes(in + 64 * h + i), b = LoadBytes(in + 64 * h + 32 + i);
        const VI top = LoadBytes(in + 128 + 32 * h + i);
        const VI low = Int(15), two = Int(48), bias = Int(32);
        const float* s = scale + 8 * h + i / 16;
        float* to = out + 128 * h + i;
        const VI q0 = hn::Or(hn::And(a, low), hn::And(hn::ShiftLeft<4>(top), two));
        const VI q1 = hn::Or(hn::And(b, low), hn::And(hn::ShiftLeft<2>(top), two));
        const VI q2 = hn::Or(hn::ShiftRight<4>(a), hn::And(top, two));
        const VI q3 = hn::Or(hn::ShiftRight<4>(b), hn::And(hn::ShiftRight<2>(top), two));
        PutScaled(Splat(s[0]), hn::Sub(q0, bias), to);
        PutScaled(Splat(s[2]), hn::Sub(q1, bias), to + 32);
        PutScaled(Splat(s[4]), hn::Sub(q2, bias), to + 64);
        PutScaled(Splat(s[6]), hn::Sub(q3, bias), to + 96);
      }
    }
  }
}

// f32 d | 256 signed bytes | 16 sums of 16, not needed here
void Q8_K(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 292, out += 256) {
    const VF d = Splat(LoadAs<float>(in));
    for (std::size_t i = 0; i < 256; i += hn::Lanes(DF())) {
      PutScaled(d, LoadSigned(in + 4 + i), out + i);
    }
  }
}

// f16 d | u16: 2 high bits for each of 8 scales | 4 bytes: their low nibbles | 8 runs of 16
// bytes as in iq4_nl
void IQ4_XS(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 136, out += 256) {
    const float d = LoadF16(in);
    const auto high = LoadAs<std::uint16_t>(in + 2);
    for (int j = 0; j < 8; ++j) {
      const int low = (in[4 + j / 2] >> (4 * (j % 2))) & 15;
      const int scale = (low | ((high >> (2 * j)) & 3) << 4) - 32;
      PutLookup(d * static_cast<float>(scale), kIq4Values, in + 8 + 16 * j, out + 32 * j);
    }
  }
}

// A byte has 5 base-3 digits, the first one in the top of byte / 256. Digit n is (byte * 3^n mod
// 256) * 3 / 256, minus 1.
HWY_INLINE VI Ternary(VI scaled) {
  const VI rest = hn::And(scaled, Int(255));
  return hn::Sub(hn::ShiftRight<8>(hn::Add(rest, hn::Add(rest, rest))), Int(1));
}

// 32 bytes of digits 32 n + i | 16 bytes of 160 + 16 n + i | 4 bytes of four digits 240
// + 4 n + i | f16 d
void TQ1_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  const auto triple = [](VI v) HWY_ATTR { return hn::Add(v, hn::Add(v, v)); };
  for (; blocks > 0; --blocks, in += 54, out += 256) {
    const VF d = Splat(LoadF16(in + 52));
    for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
      VI q = LoadBytes(in + i);
      for (std::size_t n = 0; n < 5; ++n, q = triple(q)) {
        PutScaled(d, Ternary(q), out + 32 * n + i);
      }
    }
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      VI q = LoadBytes(in + 32 + i);
      for (std::size_t n = 0; n < 5; ++n, q = triple(q)) {
        PutScaled(d, Ternary(q), out + 160 + 16 * n + i);
      }
    }
    std::uint8_t last[16];  // the four bytes, and times 3, 9, 27
    for (int i = 0; i < 16; ++i)
      last[i] = static_cast<std::uint8_t>(i < 4 ? in[48 + i] : last[i - 4] * 3);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(DF())) {
      PutScaled(d, Ternary(LoadBytes(last + i)), out + 240 + i);
    }
  }
}

// 64 bytes of 2 bits as in q2_k, minus 1 | f16 d
void TQ2_0(const std::uint8_t* in, float* out, std::size_t blocks) {
  for (; blocks > 0; --blocks, in += 66, out += 256) {
    const VF d = Splat(LoadF16(in + 64));
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 32; i += hn::Lanes(DF())) {
        VI q = LoadBytes(in + 32 * h + i);
        for (std::size_t s = 0; s < 4; ++s, q = hn::ShiftRight<2>(q)) {
          PutScaled(d, hn::Sub(hn::And(q, Int(3)), Int(1)), out + 128 * h + 32 * s + i);
        }
      }
    }
  }
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {

ZT_DISPATCH_DEQUANT(Q2_K)
ZT_DISPATCH_DEQUANT(Q3_K)
ZT_DISPATCH_DEQUANT(Q4_K)
ZT_DISPATCH_DEQUANT(Q5_K)
ZT_DISPATCH_DEQUANT(Q6_K)
ZT_DISPATCH_DEQUANT(Q8_K)
ZT_DISPATCH_DEQUANT(IQ4_XS)
ZT_DISPATCH_DEQUANT(TQ1_0)
ZT_DISPATCH_DEQUANT(TQ2_0)

}  // namespace zt::kernel
#endif  // HWY_ONCE
