// Variable-length integers (LEB128): seven bits per byte, the lowest first; the high bit says that
// more follow.
#ifndef ZTSTREAM_CORE_VARINT_H_
#define ZTSTREAM_CORE_VARINT_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace zt::internal {

// The encoded size of a number.
inline std::size_t VarintBytes(std::uint64_t number) {
  return (static_cast<std::size_t>(std::bit_width(number | 1)) + 6) / 7;
}

// Appends a number to a container of bytes.
template <class Bytes>
void PutVarint(Bytes& out, std::uint64_t number) {
  using Byte = typename Bytes::value_type;
  for (; number > 0x7f; number >>= 7) out.push_back(static_cast<Byte>((number & 0x7f) | 0x80));
  out.push_back(static_cast<Byte>(number));
}

// Decodes a number from the bytes that next() returns. Only for data that this program encoded:
// nothing is checked.
template <class Next>
std::uint64_t TakeVarint(Next next) {
  std::uint64_t number = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(next()));
    number |= (byte & 0x7f) << shift;
    if (byte <= 0x7f) return number;
  }
}

}  // namespace zt::internal

#endif  // ZTSTREAM_CORE_VARINT_H_
