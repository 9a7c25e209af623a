// huffman_kernel — counting bytes, packing and unpacking their codes: the loops of the Huffman coder, for every CPU target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The codes of two bytes that follow one another, by the number first + 256 * second: the bits in the lower 24, that of
// the first byte above, and how many they are in the upper 8.
inline constexpr std::size_t kPairCodes = 65536;
// The longest code, in bits.
inline constexpr unsigned kMostCodeBits = 11;

// The least and the greatest of `count` bytes, of which there is at least one.
void ByteRange(const std::uint8_t* in, std::size_t count, std::uint8_t* least,
               std::uint8_t* greatest);

// Counts bytes: every line of 64 that begins at a multiple of `step`, itself a multiple of 64. counts[] is added to.
void CountBytes(const std::uint8_t* in, std::size_t count, std::size_t step, std::uint32_t* counts);

// Writes the codes of `count` bytes as a zstd decoder reads them, that is the last byte's first, and the bit that marks
// the end. Returns the bytes written, at most count * kMostCodeBits / 8 + 1; some 8 more are overwritten.
std::size_t PackCodes(const std::uint8_t* in, std::size_t count, const std::uint32_t* pairs,
                      std::uint8_t* out);

// What up to kMostCodeBits bits that come next stand for: for each number of bits b, 2^b entries from 2^b on, by the value
// of the bits (the first bit is the highest). An entry has the bytes whose codes are complete within these bits, at most
// kRunBytes of them, the first one lowest; in its bits 48 to 55 how many bits their codes take; above, how many bytes.
inline constexpr std::size_t kRuns = std::size_t{2} << kMostCodeBits;
inline constexpr std::size_t kRunBytes = 6;

// One stream of codes, read from its end, and where its bytes go. At least 8 bytes can be read before `begin`.
struct CodeStream {
  const std::uint8_t* begin;
  const std::uint8_t* end;
  std::uint8_t* out;
  std::size_t bytes;
};

// Decodes four streams at once. `runs` has kRuns entries, `lengths` is the length of each byte's code in bits. False where
// a stream does not end with its last byte's code.
bool UnpackCodes(const CodeStream (&streams)[4], const std::uint64_t* runs,
                 const std::uint8_t* lengths);

}  // namespace zt::kernel
