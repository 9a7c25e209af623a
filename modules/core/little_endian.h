// Reads and writes little-endian integers on any host. Plain header: include it in a global module
// fragment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::internal {

// The integer of `width` bytes (at most 8) at `from`.
inline std::uint64_t LoadLittle(const std::byte* from, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<std::uint64_t>(from[i]);
  return value;
}

// Writes the lowest `width` bytes of `value` to `to`.
inline void StoreLittle(std::uint64_t value, std::size_t width, std::byte* to) {
  for (std::size_t i = 0; i < width; ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

}  // namespace zt::internal
