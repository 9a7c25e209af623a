// huffman_decode — a block's tree, the table of what its bits stand for, and its four streams (RFC 8878 §4.2).
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/huffman.h"
#include "compress/huffman_kernel.h"
#include "compress/literals.h"

namespace zt::compress_huffman {
namespace {

using kernel::kMostCodeBits;
using kernel::kRunBytes;

constexpr std::size_t kLeastDecoded = 256;
constexpr std::size_t kStreams = 4,
                      kEnds = 2 * (kStreams - 1);  // bytes that tell where streams end
constexpr unsigned kBitsAt = 48, kCountAt = 56;    // in a run

// `run` with one more byte before its first, of which the code has `length` bits. A run that is full loses its last.
std::uint64_t Before(std::uint64_t run, std::uint64_t byte, unsigned length,
                     std::span<const std::uint8_t> lengths) {
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << kBitsAt) - 1;
  if (run >> kCountAt == kRunBytes) {
    const std::size_t last = run >> (8 * (kRunBytes - 1)) & 0xff;
    run -= std::uint64_t{lengths[last]} << kBitsAt | std::uint64_t{1} << kCountAt;
  }
  return ((run << 8 & kBytes) | (run & ~kBytes) | byte) +
         (std::uint64_t{length} << kBitsAt | std::uint64_t{1} << kCountAt);
}

}  // namespace

LiteralsDecoder::LiteralsDecoder() : table_(kernel::kRuns) {}

std::size_t LiteralsDecoder::ReadLengths(std::span<const std::byte> tree) {
  constexpr unsigned kDirect = 128;  // a head from here on: 4 bits for each weight but the last
  lengths_.fill(0);
  if (tree.empty()) return 0;
  const auto head = static_cast<unsigned>(tree[0]);
  if (head < kDirect) return 0;
  const std::size_t count = head - (kDirect - 1), size = 1 + (count + 1) / 2;
  if (size > tree.size()) return 0;
  std::uint32_t sum = 0, lightest = 0;
  for (std::size_t v = 0; v < count; ++v) {
    const auto pair = static_cast<std::uint8_t>(tree[1 + v / 2]);
    const unsigned weight = v % 2 == 0 ? pair >> 4 : pair & 15;
    if (weight > kMostCodeBits) return 0;
    lengths_[v] = static_cast<std::uint8_t>(weight);
    if (weight != 0) sum += 1u << (weight - 1);
    if (weight == 1) ++lightest;
  }
  if (sum == 0) return 0;
  // The last weight is what completes the sum to a power of two.
  const auto longest = static_cast<unsigned>(std::bit_width(sum));
  const std::uint32_t rest = (1u << longest) - sum;
  if (longest > kMostCodeBits || !std::has_single_bit(rest)) return 0;
  lengths_[count] = static_cast<std::uint8_t>(std::bit_width(rest));
  if (rest == 1) ++lightest;
  if (lightest < 2) return 0;  // no complete tree
  for (std::size_t v = 0; v <= count; ++v) {
    if (lengths_[v] != 0) lengths_[v] = static_cast<std::uint8_t>(longest + 1 - lengths_[v]);
  }
  return size;
}

// Each number of bits from those with fewer: behind a byte's code stands what the bits that are left stand for.
void LiteralsDecoder::FillTable() {
  std::array<std::uint8_t, 256>
      sorted;  // the longest codes first, and equally long ones by their bytes
  std::size_t codes = 0;
  for (unsigned length = kMostCodeBits; length > 0; --length) {
    for (std::size_t v = 0; v < 256; ++v) {
      if (lengths_[v] == length) sorted[codes++] = static_cast<std::uint8_t>(v);
    }
  }
  table_[0] = table_[1] = 0;
  for (unsigned bits = 1; bits <= kMostCodeBits; ++bits) {
    std::uint64_t* at =
        &table_[(std::size_t{2} << bits) - 1];  // the shortest code is the highest number
    std::uint64_t* const begin = &table_[std::size_t{1} << bits];
    for (std::size_t c = codes; c-- > 0 && lengths_[sorted[c]] <= bits;) {
      const unsigned length = lengths_[sorted[c]];
      const std::size_t count = std::size_t{1} << (bits - length);
      at -= count;
      for (std::size_t i = 0; i < count; ++i) {
        at[1 + i] = Before(table_[count + i], sorted[c], length, lengths_);
      }
    }
    std::fill(begin, at + 1, 0);  // these bits are no whole code
  }
}

bool LiteralsDecoder::Decode(std::span<const std::byte> body, const zstd::Literals& literals,
                             std::span<std::byte> out) {
  if (!literals.four_streams || out.size() < kLeastDecoded) return false;
  const std::size_t end = body.size() - 1;  // what says that there are no sequences
  const std::size_t tree = ReadLengths(body.first(end).subspan(literals.header));
  const std::size_t first = literals.header + tree + kEnds;
  if (tree == 0 || first >= end) return false;
  FillTable();

  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(body.data());
  const std::size_t each = (out.size() + kStreams - 1) / kStreams;
  kernel::CodeStream streams[kStreams];
  std::size_t at = first;
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::size_t told = first - kEnds + 2 * s;
    const std::size_t size = s + 1 == kStreams ? end - at : bytes[told] | bytes[told + 1] << 8;
    if (size > end - at) return false;
    streams[s] = {bytes + at, bytes + at + size,
                  reinterpret_cast<std::uint8_t*>(out.data()) + s * each,
                  std::min(each, out.size() - s * each)};
    at += size;
  }
  return kernel::UnpackCodes(streams, table_.data(), lengths_.data());
}

}  // namespace zt::compress_huffman
