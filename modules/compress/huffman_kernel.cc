// huffman_kernel — plain loops, compiled for every target: variable shifts are fast from AVX2 on.
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
  if (left % 2 != 0) {  // an odd last byte: the second of a pair without a first
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
  while (left > 0) {  // at most 7 bits are pending, and up to 44 are added
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

HWY_INLINE std::uint64_t LoadLittle(const std::uint8_t* in) {
  std::uint64_t value;
  std::memcpy(&value, in, 8);
  return std::endian::native == std::endian::big ? __builtin_bswap64(value) : value;
}

// The state of a stream. The next bits are the highest of `bits`. A one below the remaining bits of
// the 8 bytes at `at` marks their end: the number of zeros below it is the number of bits taken.
// The mark replaces bit 0 of `at` until the next Refill, after which at least 56 bits remain.
struct Unpacker {
  const std::uint8_t* at;
  std::uint64_t bits;
  std::uint8_t* out;

  HWY_INLINE void Refill() {
    const auto taken = static_cast<unsigned>(std::countr_zero(bits));
    at -= taken / 8;
    bits = (LoadLittle(at) | 1) << taken % 8;
  }
  // Writes 8 bytes, which begin with the run.
  HWY_INLINE void Run(const std::uint64_t* table) {
    const std::uint64_t run = table[bits >> (64 - kMostCodeBits)];
    StoreLittle(run, out);
    out += run >> 56;
    bits <<= run >> 48 & 63;
  }
};

bool RunUnpackCodes(const CodeStream (&streams)[4], const std::uint64_t* runs,
                    const std::uint8_t* lengths) {
  constexpr int kRunsOfRefill = 5;  // of 11 bits each, after at most 8 bits already taken
  constexpr std::ptrdiff_t kRoom = (kRunsOfRefill - 1) * kRunBytes + 8, kBefore = 8;
  const std::uint64_t* const table = runs + (std::size_t{1} << kMostCodeBits);
  Unpacker unpackers[4];
  const std::uint8_t* out_end[4];
  for (int s = 0; s < 4; ++s) {
    const CodeStream& stream = streams[s];
    if (stream.begin >= stream.end || stream.end[-1] == 0) return false;
    const int unused = std::countl_zero(stream.end[-1]) + 1;  // the highest one bit marks the end
    unpackers[s] = {stream.end - 8, (LoadLittle(stream.end - 8) | 1) << unused, stream.out};
    out_end[s] = stream.out + stream.bytes;
  }
  const auto far = [&](const Unpacker& unpacker, int s) HWY_ATTR {
    return unpacker.at - streams[s].begin >= kBefore && out_end[s] - unpacker.out >= kRoom;
  };
  {
    Unpacker a = unpackers[0], b = unpackers[1], c = unpackers[2], d = unpackers[3];
    while (far(a, 0) && far(b, 1) && far(c, 2) && far(d, 3)) {
      for (int i = 0; i < kRunsOfRefill; ++i) {
        a.Run(table);
        b.Run(table);
        c.Run(table);
        d.Run(table);
      }
      a.Refill();
      b.Refill();
      c.Refill();
      d.Refill();
    }
    unpackers[0] = a;
    unpackers[1] = b;
    unpackers[2] = c;
    unpackers[3] = d;
  }
  for (int s = 0; s < 4; ++s) {
    Unpacker& unpacker = unpackers[s];
    while (far(unpacker, s)) {
      for (int i = 0; i < kRunsOfRefill; ++i) unpacker.Run(table);
      unpacker.Refill();
    }
    // The last bytes one by one: a run could exceed the output, or take bits before
    // the stream's begin.
    std::ptrdiff_t left =
        (unpacker.at - streams[s].begin) * 8 + 64 - std::countr_zero(unpacker.bits);
    while (unpacker.out != out_end[s]) {
      if (left <= 0) return false;
      unpacker.Refill();
      const auto byte =
          static_cast<std::uint8_t>(table[unpacker.bits >> (64 - kMostCodeBits)] & 0xff);
      *unpacker.out++ = byte;
      unpacker.bits <<= lengths[byte];
      left -= lengths[byte];
    }
    if (left != 0) return false;
  }
  return true;
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
HWY_EXPORT(RunByteRange);
HWY_EXPORT(RunPackCodes);
HWY_EXPORT(RunUnpackCodes);

void ByteRange(const std::uint8_t* in, std::size_t count, std::uint8_t* least,
               std::uint8_t* greatest) {
  HWY_DYNAMIC_DISPATCH(RunByteRange)(in, count, least, greatest);
}

// Four tables, so that increments for equal adjacent bytes do not depend on each other.
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

bool UnpackCodes(const CodeStream (&streams)[4], const std::uint64_t* runs,
                 const std::uint8_t* lengths) {
  return HWY_DYNAMIC_DISPATCH(RunUnpackCodes)(streams, runs, lengths);
}
}  // namespace zt::kernel
#endif  // HWY_ONCE
