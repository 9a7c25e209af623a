// Scalar reference of ggml's block types: one element of one block, by index.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "little_endian.h"
#include "transform/dequant_iq_tables.h"

namespace zt::reference {
#pragma clang fp contract(off)

inline unsigned U16(const std::uint8_t* p) { return p[0] | p[1] << 8; }
inline std::uint32_t U32(const std::uint8_t* p) { return U16(p) | U16(p + 2) << 16; }

inline float HalfBits(unsigned h) {
  const int exponent = static_cast<int>(h >> 10 & 31), mantissa = static_cast<int>(h & 1023);
  float v;
  if (exponent == 31) {
    v = mantissa != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    v = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    v = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return h & 0x8000 ? -v : v;
}
inline float Half(const std::uint8_t* p) { return HalfBits(U16(p)); }
inline int Nibble(const std::uint8_t* p, int i) { return p[i / 2] >> (i % 2 * 4) & 15; }
inline int Bit(const std::uint8_t* p, int i) { return p[i / 8] >> (i % 8) & 1; }
// Element j of a block of 32 whose halves share bytes.
inline int Split(const std::uint8_t* p, int j) { return j < 16 ? p[j] & 15 : p[j - 16] >> 4; }

template <typename Word>
float Coordinate(Word entry, int i) {
  return static_cast<float>(static_cast<std::int8_t>(entry >> (8 * i) & 0xff));
}
// Sign of element i by seven stored bits, the eighth being their parity.
inline float EvenSign(unsigned seven, int i) {
  int ones = 0;
  for (int k = 0; k < 7; ++k) ones += seven >> k & 1;
  const bool negative = i == 7 ? ones % 2 != 0 : (seven >> i & 1) != 0;
  return negative ? -1.0f : 1.0f;
}

inline void KScale(const std::uint8_t* s, int j, int& scale, int& min) {
  if (j < 4) {
    scale = s[j] & 63;
    min = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    min = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
  }
}

inline float Iq4(int q) {
  static constexpr int kValues[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
  return static_cast<float>(kValues[q]);
}
inline float Fp4(int q) {
  static constexpr int kValues[] = {0, 1, 2, 3, 4, 6, 8, 12};
  const float v = static_cast<float>(kValues[q & 7]);
  return q & 8 && v != 0 ? -v : v;
}

// Element j of the block at `b`.
inline float Element(std::string_view type, const std::uint8_t* b, int j) {
  const int run = j / 32, in = j % 32, lane = j % 8;
  if (type == "q4_0") return Half(b) * static_cast<float>(Split(b + 2, j) - 8);
  if (type == "q4_1") return Half(b) * static_cast<float>(Split(b + 4, j)) + Half(b + 2);
  if (type == "q5_0") {
    return Half(b) * static_cast<float>(Split(b + 6, j) + 16 * Bit(b + 2, j) - 16);
  }
  if (type == "q5_1") {
    return Half(b) * static_cast<float>(Split(b + 8, j) + 16 * Bit(b + 4, j)) + Half(b + 2);
  }
  if (type == "q8_0") return Half(b) * static_cast<float>(static_cast<std::int8_t>(b[2 + j]));
  if (type == "q1_0") return Bit(b + 2, j) ? Half(b) : -Half(b);
  if (type == "q2_0") return Half(b) * static_cast<float>((b[2 + j / 4] >> (j % 4 * 2) & 3) - 1);
  if (type == "iq4_nl") return Half(b) * Iq4(Split(b + 2, j));
  if (type == "mxfp4") return std::ldexp(1.0f, b[0] - 128) * Fp4(Split(b + 1, j));
  if (type == "nvfp4") {
    const int e = b[j / 16] >> 3 & 15, m = b[j / 16] & 7;
    float d = e == 0 ? std::ldexp(static_cast<float>(m), -10)
                     : std::ldexp(static_cast<float>(8 + m), e - 11);
    if (b[j / 16] == 0x7f) d = 0;
    const std::uint8_t q = b[4 + j / 16 * 8 + lane];
    return d * Fp4(j % 16 < 8 ? q & 15 : q >> 4);
  }
  if (type == "q2_k") {
    const int q = b[16 + j / 128 * 32 + in] >> (j / 32 % 4 * 2) & 3;
    const float scale = Half(b + 80) * static_cast<float>(b[j / 16] & 15);
    const float min = Half(b + 82) * static_cast<float>(b[j / 16] >> 4);
    const float product = scale * static_cast<float>(q);
    return product - min;
  }
  if (type == "q3_k") {
    const int k = j / 16;
    const std::uint8_t* s = b + 96;
    const int low = k < 8 ? s[k] & 15 : s[k - 8] >> 4;
    const int scale = low + ((s[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32;
    const int q = b[32 + j / 128 * 32 + in] >> (j / 32 % 4 * 2) & 3;
    return Half(b + 108) * static_cast<float>(scale) *
           static_cast<float>(q - (b[in] >> run & 1 ? 0 : 4));
  }
  if (type == "q4_k" || type == "q5_k") {
    const bool five = type == "q5_k";
    int scale, min;
    KScale(b + 4, run, scale, min);
    const std::uint8_t byte = b[(five ? 48 : 16) + j / 64 * 32 + in];
    int q = run % 2 == 0 ? byte & 15 : byte >> 4;
    if (five) q += 16 * (b[16 + in] >> run & 1);
    const float product = Half(b) * static_cast<float>(scale) * static_cast<float>(q);
    return product - Half(b + 2) * static_cast<float>(min);
  }
  if (type == "q6_k") {
    const int half = j / 128, quarter = j / 32 % 4;
    const std::uint8_t byte = b[half * 64 + quarter % 2 * 32 + in];
    const int low = quarter < 2 ? byte & 15 : byte >> 4;
    const int high = b[128 + half * 32 + in] >> (quarter * 2) & 3;
    return Half(b + 208) * static_cast<float>(static_cast<std::int8_t>(b[192 + j / 16])) *
           static_cast<float>(low + 16 * high - 32);
  }
  if (type == "q8_k") {
    float d;
    std::memcpy(&d, b, 4);
    return Little(d) * static_cast<float>(static_cast<std::int8_t>(b[4 + j]));
  }
  if (type == "iq4_xs") {
    const int scale = Nibble(b + 4, run) + ((U16(b + 2) >> (2 * run) & 3) << 4) - 32;
    return Half(b) * static_cast<float>(scale) * Iq4(Split(b + 8 + 16 * run, in));
  }
  if (type == "tq1_0") {
    static constexpr unsigned kPowers[] = {1, 3, 9, 27, 81};
    unsigned q;
    if (j < 160) {
      q = b[in] * kPowers[run];
    } else if (j < 240) {
      q = b[32 + (j - 160) % 16] * kPowers[(j - 160) / 16];
    } else {
      q = b[48 + (j - 240) % 4] * kPowers[(j - 240) / 4];
    }
    return Half(b + 52) * static_cast<float>(static_cast<int>((q & 255) * 3 >> 8) - 1);
  }
  if (type == "tq2_0") {
    return Half(b + 64) * static_cast<float>((b[j / 128 * 32 + in] >> (j / 32 % 4 * 2) & 3) - 1);
  }
  const int g = j / 8;  // group of 8
  if (type == "iq2_xxs") {
    const std::uint32_t bits = U32(b + 2 + 8 * run + 4);
    return Half(b) * (0.5f + static_cast<float>(bits >> 28)) * 0.25f *
           Coordinate(kernel::kGridIq2Xxs[b[2 + 8 * run + g % 4]], lane) *
           EvenSign(bits >> (g % 4 * 7) & 127, lane);
  }
  if (type == "iq2_xs") {
    const unsigned q = U16(b + 2 + 2 * g);
    return Half(b) * (0.5f + static_cast<float>(Nibble(b + 66, j / 16))) * 0.25f *
           Coordinate(kernel::kGridIq2Xs[q % 512], lane) * EvenSign(q >> 9, lane);
  }
  if (type == "iq2_s") {
    const unsigned index = b[2 + g] + 256u * (b[66 + g / 4] >> (g % 4 * 2) & 3);
    return Half(b) * (0.5f + static_cast<float>(Nibble(b + 74, j / 16))) * 0.25f *
           Coordinate(kernel::kGridIq2S[index], lane) * (Bit(b + 34, j) ? -1.0f : 1.0f);
  }
  if (type == "iq3_xxs") {
    const std::uint32_t bits = U32(b + 66 + 4 * run);
    return Half(b) * (0.5f + static_cast<float>(bits >> 28)) * 0.5f *
           Coordinate(kernel::kGridIq3Xxs[b[2 + j / 4]], j % 4) *
           EvenSign(bits >> (g % 4 * 7) & 127, lane);
  }
  if (type == "iq3_s") {
    const unsigned index = b[2 + j / 4] + 256u * static_cast<unsigned>(Bit(b + 66, j / 4));
    return Half(b) * static_cast<float>(1 + 2 * Nibble(b + 106, run)) *
           Coordinate(kernel::kGridIq3S[index], j % 4) * (Bit(b + 74, j) ? -1.0f : 1.0f);
  }
  if (type == "iq1_s") {
    const unsigned bits = U16(b + 34 + 2 * run);
    const unsigned index = b[2 + g] + 256u * (bits >> (g % 4 * 3) & 7);
    const float scale = Half(b) * static_cast<float>(2 * (bits >> 12 & 7) + 1);
    return scale * (Coordinate(kernel::kGridIq1S[index], lane) + (bits >> 15 ? -0.125f : 0.125f));
  }
  if (type == "iq1_m") {
    unsigned d = 0;
    for (int k = 0; k < 4; ++k) d |= (U16(b + 48 + 2 * k) >> 12) << (4 * k);
    const unsigned steps = U16(b + 48 + j / 64 * 2) >> (j / 16 % 4 * 3) & 7;
    const int high = Nibble(b + 32, g);
    const float scale = HalfBits(d) * static_cast<float>(2 * steps + 1);
    return scale * (Coordinate(kernel::kGridIq1S[b[g] + 256 * (high & 7)], lane) +
                    (high & 8 ? -0.125f : 0.125f));
  }
  return NAN;
}

}  // namespace zt::reference
