// CRC-32C: by folding 256 bytes at a time with carry-less products of AVX-512, by the processor's
// CRC instruction on three interleaved streams, or by eight tables. Folding follows Gopal et al.,
// "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
#include "digest/crc32c_kernel.h"

#include <array>
#include <bit>
#include <cstring>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace zt::kernel {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli, reflected

constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int k = 0; k < 8; ++k) crc = crc & 1 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 255];
    }
  }
  return tables;
}();

std::uint64_t LoadLittle64(const std::uint8_t* p) {
  std::uint64_t value;
  std::memcpy(&value, p, 8);
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  return value;
}

#if defined(__x86_64__)
#define ZT_CRC_TARGET __attribute__((target("sse4.2")))
inline bool HaveCrc() { return __builtin_cpu_supports("sse4.2"); }
ZT_CRC_TARGET inline std::uint32_t Step64(std::uint32_t crc, std::uint64_t v) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, v));
}
ZT_CRC_TARGET inline std::uint32_t Step8(std::uint32_t crc, std::uint8_t v) {
  return _mm_crc32_u8(crc, v);
}
#elif defined(__aarch64__) && defined(__linux__)
#define ZT_CRC_TARGET __attribute__((target("crc")))
inline bool HaveCrc() { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; }  // HWCAP_CRC32
ZT_CRC_TARGET inline std::uint32_t Step64(std::uint32_t crc, std::uint64_t v) {
  return __crc32cd(crc, v);
}
ZT_CRC_TARGET inline std::uint32_t Step8(std::uint32_t crc, std::uint8_t v) {
  return __crc32cb(crc, v);
}
#endif

#if defined(ZT_CRC_TARGET)
// Appends kBytes zeros to a CRC: multiplies by a constant, with one table per byte of the CRC.
template <std::size_t kBytes>
struct Shift {
  Shift() {
    const std::uint32_t power = Crc32cShift(kBytes);
    for (std::uint32_t i = 0; i < 256; ++i) {
      for (int k = 0; k < 4; ++k) table[k][i] = Crc32cMultiply(power, i << (8 * k));
    }
  }
  std::uint32_t operator()(std::uint32_t crc) const {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^
           table[3][crc >> 24];
  }
  std::uint32_t table[4][256];
};

// Three interleaved streams of kBytes, as often as they fit: the instruction has a latency of three
// cycles and a throughput of one per cycle.
template <std::size_t kBytes>
ZT_CRC_TARGET std::uint32_t ThreeStreams(std::uint32_t crc, const std::uint8_t*& p,
                                         std::size_t& n) {
  static const Shift<kBytes> shift;
  while (n >= 3 * kBytes) {
    std::uint32_t b = 0, c = 0;
    for (std::size_t i = 0; i < kBytes; i += 8) {
      crc = Step64(crc, LoadLittle64(p + i));
      b = Step64(b, LoadLittle64(p + kBytes + i));
      c = Step64(c, LoadLittle64(p + 2 * kBytes + i));
    }
    crc = shift(shift(crc) ^ b) ^ c;
    p += 3 * kBytes;
    n -= 3 * kBytes;
  }
  return crc;
}

ZT_CRC_TARGET std::uint32_t ExtendHardware(std::uint32_t seed, const std::uint8_t* p,
                                           std::size_t n) {
  std::uint32_t crc = ~seed;
  crc = ThreeStreams<4096>(crc, p, n);
  crc = ThreeStreams<512>(crc, p, n);
  crc = ThreeStreams<128>(crc, p, n);
  for (; n >= 8; n -= 8, p += 8) crc = Step64(crc, LoadLittle64(p));
  for (; n > 0; --n, ++p) crc = Step8(crc, *p);
  return ~crc;
}
#endif

#if defined(__x86_64__)
#define ZT_FOLD_TARGET __attribute__((target("avx512f,vpclmulqdq,sse4.2")))

inline bool HaveFolds() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("sse4.2");
}

// Constants that append kBytes to 16 bytes: x^(8 kBytes + 63) for the first eight, x^(8 kBytes -
// 1) for the next. Exponents are one less than the distance, because the product of reflected
// words is one bit too high.
template <std::size_t kBytes>
struct Fold {
  static constexpr std::uint32_t kX7 = 0x80000000u >> 7;
  std::uint64_t first = std::uint64_t{Crc32cMultiply(Crc32cShift(kBytes + 7), kX7)} << 32;
  std::uint64_t second = std::uint64_t{Crc32cMultiply(Crc32cShift(kBytes - 1), kX7)} << 32;
};

// Four independent blocks of 64 bytes: a product has a latency of about eight cycles and a
// throughput of one per cycle.
ZT_FOLD_TARGET std::uint32_t ExtendFolding(std::uint32_t seed, const std::uint8_t* p,
                                           std::size_t n) {
  if (n < 512) return ExtendHardware(seed, p, n);
  static const Fold<256> far;
  static const Fold<64> near;
  const auto spread = [](const auto& by) ZT_FOLD_TARGET {
    return _mm512_broadcast_i32x4(
        _mm_set_epi64x(static_cast<long long>(by.second), static_cast<long long>(by.first)));
  };
  const auto fold = [](__m512i sum, __m512i by, __m512i next) ZT_FOLD_TARGET {
    constexpr int kXor3 = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                     _mm512_clmulepi64_epi128(sum, by, 0x11), next, kXor3);
  };
  const auto load = [&p](std::size_t at) ZT_FOLD_TARGET { return _mm512_loadu_si512(p + at); };
  __m512i a = _mm512_xor_si512(load(0),
                               _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~seed)))),
          b = load(64), c = load(128), d = load(192);
  p += 256;
  n -= 256;
  for (const __m512i by = spread(far); n >= 256; p += 256, n -= 256) {
    a = fold(a, by, load(0));
    b = fold(b, by, load(64));
    c = fold(c, by, load(128));
    d = fold(d, by, load(192));
  }
  const __m512i by = spread(near);
  d = fold(fold(fold(a, by, b), by, c), by, d);
  for (; n >= 64; p += 64, n -= 64) d = fold(d, by, load(0));
  // These 64 bytes have the CRC of all bytes before, if it starts from 0.
  std::uint8_t rest[64];
  _mm512_storeu_si512(rest, d);
  return ExtendHardware(ExtendHardware(~std::uint32_t{0}, rest, sizeof rest), p, n);
}
#endif

}  // namespace

std::uint32_t Crc32cMultiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    product ^= a & bit ? b : 0;
    b = (b >> 1) ^ (b & 1 ? kPolynomial : 0);
  }
  return product;
}

std::uint32_t Crc32cShift(std::uint64_t bytes) {
  std::uint32_t power = 0x00800000u;   // x^8
  std::uint32_t result = 0x80000000u;  // x^0
  for (; bytes != 0; bytes >>= 1) {
    if (bytes & 1) result = Crc32cMultiply(result, power);
    power = Crc32cMultiply(power, power);
  }
  return result;
}

std::uint32_t Crc32cExtendPortable(std::uint32_t seed, const std::uint8_t* p, std::size_t n) {
  std::uint32_t crc = ~seed;
  for (; n >= 8; n -= 8, p += 8) {
    const std::uint64_t v = LoadLittle64(p) ^ crc;
    crc = kTables[7][v & 255] ^ kTables[6][v >> 8 & 255] ^ kTables[5][v >> 16 & 255] ^
          kTables[4][v >> 24 & 255] ^ kTables[3][v >> 32 & 255] ^ kTables[2][v >> 40 & 255] ^
          kTables[1][v >> 48 & 255] ^ kTables[0][v >> 56];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 255];
  return ~crc;
}

std::span<const Crc32cExtender> Crc32cExtenders() {
  struct Extenders {
    std::array<Crc32cExtender, 3> found{};
    std::size_t count = 0;
    Extenders() {
#if defined(__x86_64__)
      if (HaveFolds()) found[count++] = ExtendFolding;
#endif
#if defined(ZT_CRC_TARGET)
      if (HaveCrc()) found[count++] = ExtendHardware;
#endif
      found[count++] = Crc32cExtendPortable;
    }
  };
  static const Extenders extenders;
  return std::span(extenders.found).first(extenders.count);
}

std::uint32_t Crc32cExtend(std::uint32_t seed, const std::uint8_t* data, std::size_t size) {
  return Crc32cExtenders().front()(seed, data, size);
}

}  // namespace zt::kernel
