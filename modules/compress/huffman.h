// huffman — the literals of a zstd block, Huffman-coded, for bytes of few values: twice as fast as a general coder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace zt::compress_huffman {

// Codes one block after another. Not thread-safe.
class LiteralsCoder {
 public:
  LiteralsCoder();
  // The body of a compressed block (RFC 8878 §3.1.1.2.2) that holds `block` as literals and has no sequences; valid until
  // the next call. Empty where this coder does not do for the block: fewer than 4096 bytes or more than 128 KiB, one value
  // only, values above 128, or many of them. The same block gives the same bytes everywhere.
  std::span<const std::byte> Code(std::span<const std::byte> block);

 private:
  std::vector<std::uint32_t> pairs_;  // see kernel::kPairCodes
  std::vector<std::uint8_t> body_;
};

}  // namespace zt::compress_huffman
