// literals — recognizes blocks of a zstd frame that consist of literals only (RFC 8878
// §3.1.1.2, §3.1.1.3.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/little_endian.h"

namespace zt::zstd {

inline constexpr std::size_t kBlockHeaderBytes = 3;
inline constexpr std::size_t kMaxBlockBytes = 128 << 10;  // limit on content

struct Literals {
  std::size_t bytes = 0;  // size of the content
  // The value of all bytes; nothing if the literals are Huffman-coded, with a tree of their own.
  std::optional<std::byte> repeated;
  std::size_t header = 0;  // bytes before the tree
  bool four_streams = false;
};

// The literals in the body of a compressed block, if it has no sequences and depends on no other
// block; nullopt for all other blocks. Does not validate the coded bytes.
inline std::optional<Literals> FindLiterals(std::span<const std::byte> body) {
  constexpr unsigned kRepeated = 1, kHuffman = 2, kLongForm = 3;
  if (body.size() < 5 || body.back() != std::byte{0}) return std::nullopt;
  const std::uint64_t head = internal::LoadLittle(body.data(), 5);
  const unsigned type = head & 3, form = head >> 2 & 3;
  const auto bits_at = [head](unsigned first, unsigned count) {
    return head >> first & ((std::uint64_t{1} << count) - 1);
  };
  if (type == kRepeated && form == kLongForm && body.size() == 5) {
    const std::uint64_t bytes = bits_at(4, 20);
    if (bytes > kMaxBlockBytes) return std::nullopt;
    return Literals{.bytes = bytes, .repeated = body[3], .header = 0, .four_streams = false};
  }
  if (type != kHuffman) return std::nullopt;
  const unsigned bits = form < 2 ? 10 : form == 2 ? 14 : 18;
  const std::size_t header = form < 2 ? 3 : form == 2 ? 4 : 5;
  const std::uint64_t bytes = bits_at(4, bits), coded = bits_at(4 + bits, bits);
  if (header + coded + 1 != body.size() || bytes > kMaxBlockBytes) return std::nullopt;
  return Literals{
      .bytes = bytes, .repeated = std::nullopt, .header = header, .four_streams = form != 0};
}

}  // namespace zt::zstd
