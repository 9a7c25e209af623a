// CRC-32C: the processor's instruction on three interleaved streams, or tables of eight.
#include "digest/crc32c_kernel.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
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
// Moves a CRC past kBytes of zeros: the product with one constant, by tables of each of its bytes.
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

// Three streams of kBytes side by side, as often as they fit: the instruction has a latency of three cycles, and one
// can begin each cycle.
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

std::uint32_t Crc32cExtend(std::uint32_t seed, const std::uint8_t* data, std::size_t size) {
#if defined(ZT_CRC_TARGET)
  static const bool hardware = HaveCrc();
  if (hardware) return ExtendHardware(seed, data, size);
#endif
  return Crc32cExtendPortable(seed, data, size);
}

}  // namespace zt::kernel
