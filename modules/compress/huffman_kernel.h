// huffman_kernel — counting bytes and packing their codes: the loops of the Huffman coder, for every CPU target.
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

}  // namespace zt::kernel
