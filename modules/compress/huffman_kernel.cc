// huffman_kernel — plain loops, compiled for every target: shifts by a variable are fast from AVX2 on.
#include "compress/huffman_kernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/huffman_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

void RunByteRange(const std::uint8_t* in, std::size_t count, std::uint8_t* least,
                  std::uint8_t* greatest) {
  std::uint8_t low = in[0], high = in[0];
  for (std::size_t i = 0; i < count; ++i) {
    low = std::min(low, in[i]);
    high = std::max(high, in[i]);
  }
  *least = low;
  *greatest = high;
}

HWY_INLINE void StoreLittle(std::uint64_t value, std::uint8_t* out) {
  if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap64(value);
  std::memcpy(out, &value, 8);
}

std::size_t RunPackCodes(const std::uint8_t* in, std::size_t count, const std::uint32_t* pairs,
                         std::uint8_t* out) {
  constexpr std::uint32_t kBits = 0xffffff;
  const std::uint8_t* const begin = out;
  std::uint64_t bits = 0;
  unsigned held = 0;
  const auto add = [&](std::size_t first) HWY_ATTR {
    const std::uint32_t code = pairs[in[first] | static_cast<unsigned>(in[first + 1]) << 8];
    bits |= static_cast<std::uint64_t>(code & kBits) << held;
    held += code >> 24;
  };
  const auto flush = [&]() HWY_ATTR {
    StoreLittle(bits, out);
    out += held / 8;
    bits >>= held / 8 * 8;
    held %= 8;
  };
  std::size_t left = count;
  if (left % 2 != 0) {  // the last one alone, as the second of a pair without the first
    const std::uint32_t pair = pairs[in[left - 1] | static_cast<unsigned>(in[left - 1]) << 8];
    const unsigned length = (pair >> 24) / 2;
    bits = pair & ((1u << length) - 1);
    held = length;
    --left;
  }
  if (left % 4 != 0) {
    add(left -= 2);
    flush();
  }
  while (left > 0) {  // 7 bits at most are held, and 44 are added
    add(left - 2);
    add(left - 4);
    flush();
    left -= 4;
  }
  bits |= std::uint64_t{1} << held;
  ++held;
  StoreLittle(bits, out);
  out += (held + 7) / 8;
  return static_cast<std::size_t>(out - begin);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunByteRange);
HWY_EXPORT(RunPackCodes);

void ByteRange(const std::uint8_t* in, std::size_t count, std::uint8_t* least,
               std::uint8_t* greatest) {
  HWY_DYNAMIC_DISPATCH(RunByteRange)(in, count, least, greatest);
}

// Four tables, so that equal bytes that follow one another do not wait for each other's count.
void CountBytes(const std::uint8_t* in, std::size_t count, std::size_t step,
                std::uint32_t* counts) {
  constexpr std::size_t kLine = 64;
  std::uint32_t tables[4][256] = {};
  for (std::size_t line = 0; line < count; line += step) {
    const std::size_t end = std::min(count, step == kLine ? count : line + kLine);
    std::size_t i = line;
    for (; i + 8 <= end; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, in + i, 8);
      for (unsigned b = 0; b < 8; ++b) ++tables[b % 4][word >> (8 * b) & 0xff];
    }
    for (; i < end; ++i) ++tables[0][in[i]];
    if (step == kLine) break;
  }
  for (std::size_t v = 0; v < 256; ++v) {
    counts[v] += tables[0][v] + tables[1][v] + tables[2][v] + tables[3][v];
  }
}

std::size_t PackCodes(const std::uint8_t* in, std::size_t count, const std::uint32_t* pairs,
                      std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(RunPackCodes)(in, count, pairs, out);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
