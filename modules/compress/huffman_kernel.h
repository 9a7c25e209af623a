// huffman_kernel — counts bytes, packs and unpacks their codes: the loops of the Huffman coder,
// for every CPU target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The codes of two consecutive bytes, indexed by first + 256 * second: both codes in the lower 24
// bits, that of the first byte above; their total length in the upper 8.
inline constexpr std::size_t kPairCodes = 65536;
// The longest code, in bits.
inline constexpr unsigned kMostCodeBits = 11;

// The minimum and maximum of `count` bytes; `count` must not be 0.
void ByteRange(const std::uint8_t* in, std::size_t count, std::uint8_t* least,
               std::uint8_t* greatest);

// Counts the bytes in each line of 64 at a multiple of `step`, which is a multiple of
// 64. Adds to counts[].
void CountBytes(const std::uint8_t* in, std::size_t count, std::size_t step, std::uint32_t* counts);

// Writes the codes of `count` bytes in the order of a zstd decoder, the last byte's code first, and
// the bit that marks the end. Returns the number of bytes written, at most count * kMostCodeBits /
// 8 + 1; may overwrite 8 more.
std::size_t PackCodes(const std::uint8_t* in, std::size_t count, const std::uint32_t* pairs,
                      std::uint8_t* out);

// The bytes encoded in the next bits, for each number of bits up to kMostCodeBits: for b bits, 2^b
// entries from 2^b on, indexed by the value of the bits (the first bit is the highest). An entry
// has the bytes whose codes are complete within these bits, at most kRunBytes, the first one
// lowest; in bits 48 to 55 the total length of their codes; above that, their number.
inline constexpr std::size_t kRuns = std::size_t{2} << kMostCodeBits;
inline constexpr std::size_t kRunBytes = 6;

// One stream of codes, which is read from its end, and its output. At least 8 bytes before
// `begin` must be readable.
struct CodeStream {
  const std::uint8_t* begin;
  const std::uint8_t* end;
  std::uint8_t* out;
  std::size_t bytes;
};

// Decodes four streams at once. `runs` has kRuns entries; `lengths` has the length of each byte's
// code in bits. False if a stream does not end with the code of its last byte.
bool UnpackCodes(const CodeStream (&streams)[4], const std::uint64_t* runs,
                 const std::uint8_t* lengths);

}  // namespace zt::kernel
