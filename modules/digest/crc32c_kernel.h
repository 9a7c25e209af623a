// CRC-32C loops, selected for the processor at run time. They do not allocate and cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zt::kernel {

// x^(8 * bytes) modulo the Castagnoli polynomial, bits reflected. Multiplying a CRC by it appends
// `bytes` zero bytes.
std::uint32_t Crc32cShift(std::uint64_t bytes);
std::uint32_t Crc32cMultiply(std::uint32_t a, std::uint32_t b);

// Continues the CRC `seed` over `size` bytes.
std::uint32_t Crc32cExtend(std::uint32_t seed, const std::uint8_t* data, std::size_t size);
// The same by each implementation that this processor supports, the fastest first.
using Crc32cExtender = std::uint32_t (*)(std::uint32_t seed, const std::uint8_t* data,
                                         std::size_t size);
std::span<const Crc32cExtender> Crc32cExtenders();
// The last of them, by table, for any processor.
std::uint32_t Crc32cExtendPortable(std::uint32_t seed, const std::uint8_t* data, std::size_t size);

}  // namespace zt::kernel
