// huffman — lengths by package-merge, codes as zstd assigns them, the tree's description and the four streams.
#include "compress/huffman.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "compress/huffman_kernel.h"

namespace zt::compress_huffman {
namespace {

using kernel::kMostCodeBits;

constexpr std::size_t kLeast = 4096, kMost = 128 << 10;
constexpr unsigned kGreatest = 128;      // a tree is described directly up to this value
constexpr std::size_t kMostValues = 96;  // the table of pairs has their square in entries
constexpr std::size_t kStreams = 4;
// Where no more values than these may occur, a quarter of the block tells how often each does.
constexpr unsigned kNarrow = 48;
constexpr std::size_t kSampled = 256;

struct Value {
  std::uint32_t count;
  std::uint8_t byte;
};

// Every value that may occur, the rarest first. One that was not seen in a sample counts once.
std::vector<Value> Values(const std::uint8_t* in, std::size_t size) {
  std::uint8_t least, greatest;
  kernel::ByteRange(in, size, &least, &greatest);
  if (greatest > kGreatest) return {};
  const bool narrow = greatest - least < static_cast<int>(kNarrow);
  std::array<std::uint32_t, 256> counts{};
  kernel::CountBytes(in, size, narrow ? kSampled : 64, counts.data());
  std::vector<Value> values;
  for (unsigned v = least; v <= greatest; ++v) {
    if (counts[v] != 0 || narrow) {
      values.push_back({std::max(counts[v], 1u), static_cast<std::uint8_t>(v)});
    }
  }
  std::sort(values.begin(), values.end(), [](const Value& a, const Value& b) {
    return a.count != b.count ? a.count < b.count : a.byte < b.byte;
  });
  return values;
}

// The lengths of the best codes of at most kMostCodeBits bits, as `values` are sorted: package-merge. In each round the
// packages of the one before, two items of it each, are merged with the values; a value's length is the number of rounds
// whose cheapest items, as many as the next round wants, contain it.
std::vector<std::uint8_t> Lengths(const std::vector<Value>& values) {
  const std::size_t n = values.size();
  std::array<std::vector<bool>, kMostCodeBits> is_value;
  std::vector<std::uint64_t> before, merged;
  for (std::vector<bool>& round : is_value) {
    merged.clear();
    std::size_t v = 0, p = 0;
    while (v < n || 2 * p + 1 < before.size()) {
      const bool package = 2 * p + 1 < before.size();
      const std::uint64_t cost = package ? before[2 * p] + before[2 * p + 1] : 0;
      const bool take = !package || (v < n && values[v].count <= cost);
      round.push_back(take);
      merged.push_back(take ? values[v].count : cost);
      ++(take ? v : p);
    }
    before.swap(merged);
  }
  std::vector<std::uint8_t> lengths(n, 0);
  std::size_t wanted = 2 * n - 2;
  for (std::size_t round = kMostCodeBits; round-- > 0 && wanted > 0;) {
    const auto taken = static_cast<std::size_t>(
        std::count(is_value[round].begin(),
                   is_value[round].begin() + static_cast<std::ptrdiff_t>(wanted), true));
    for (std::size_t v = 0; v < taken; ++v) ++lengths[v];
    wanted = 2 * (wanted - taken);
  }
  return lengths;
}

// The codes as zstd assigns them: the longest ones first, from 0 on, and equally long ones in the order of their values.
std::array<std::uint32_t, kGreatest + 1> Codes(
    const std::array<std::uint8_t, kGreatest + 1>& lengths,
    const std::array<unsigned, kMostCodeBits + 2>& of_length, unsigned longest) {
  std::array<std::uint32_t, kMostCodeBits + 2> next{};
  std::uint32_t code = 0;
  for (unsigned length = longest; length > 0; --length) {
    next[length] = code;
    code = (code + of_length[length]) >> 1;
  }
  std::array<std::uint32_t, kGreatest + 1> codes{};
  for (std::size_t v = 0; v < codes.size(); ++v) {
    if (lengths[v] != 0) codes[v] = next[lengths[v]]++;
  }
  return codes;
}

void PutLittle(std::uint64_t value, std::size_t bytes, std::uint8_t* out) {
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

}  // namespace

LiteralsCoder::LiteralsCoder() : pairs_(kernel::kPairCodes) {}

std::span<const std::byte> LiteralsCoder::Code(std::span<const std::byte> block) {
  const auto* const in = reinterpret_cast<const std::uint8_t*>(block.data());
  if (block.size() < kLeast || block.size() > kMost) return {};
  const std::vector<Value> values = Values(in, block.size());
  if (values.size() < 2 || values.size() > kMostValues) return {};
  const std::vector<std::uint8_t> sorted = Lengths(values);
  std::array<std::uint8_t, kGreatest + 1> lengths{};
  unsigned longest = 0, greatest = 0;
  std::array<unsigned, kMostCodeBits + 2> of_length{};
  for (std::size_t v = 0; v < values.size(); ++v) {
    lengths[values[v].byte] = sorted[v];
    ++of_length[sorted[v]];
    longest = std::max<unsigned>(longest, sorted[v]);
    greatest = std::max<unsigned>(greatest, values[v].byte);
  }

  const std::array<std::uint32_t, kGreatest + 1> codes = Codes(lengths, of_length, longest);
  for (const Value& second : values) {
    for (const Value& first : values) {
      const unsigned shift = lengths[second.byte];
      pairs_[first.byte | static_cast<unsigned>(second.byte) << 8] =
          codes[second.byte] | codes[first.byte] << shift | (shift + lengths[first.byte]) << 24;
    }
  }

  // Header of the literals, tree, where the streams end, streams, no sequences.
  const std::size_t header = block.size() < (1 << 14) ? 4 : 5;
  body_.resize(header + 1 + kGreatest + 6 + block.size() * kMostCodeBits / 8 + 64);
  std::uint8_t* out = body_.data() + header;
  *out++ = static_cast<std::uint8_t>(127 + greatest);
  for (unsigned v = 0; v < greatest; v += 2) {
    const auto weight = [&](unsigned value) {
      return value < greatest && lengths[value] != 0 ? longest + 1 - lengths[value] : 0;
    };
    *out++ = static_cast<std::uint8_t>(weight(v) << 4 | weight(v + 1));
  }
  std::uint8_t* const ends = out;
  out += 2 * (kStreams - 1);
  const std::size_t each = (block.size() + kStreams - 1) / kStreams;
  for (std::size_t s = 0; s < kStreams; ++s) {
    const std::size_t begin = s * each, count = std::min(each, block.size() - begin);
    const std::size_t written = kernel::PackCodes(in + begin, count, pairs_.data(), out);
    if (s + 1 < kStreams) PutLittle(written, 2, ends + 2 * s);
    out += written;
  }
  const std::size_t compressed = static_cast<std::size_t>(out - body_.data()) - header;
  const unsigned bits = header == 4 ? 14 : 18;
  if (compressed >= (std::size_t{1} << bits)) return {};
  constexpr std::uint64_t kHuffman = 2;
  const std::uint64_t form = header == 4 ? 2 : 3;
  PutLittle(kHuffman | form << 2 | std::uint64_t{block.size()} << 4 |
                std::uint64_t{compressed} << (4 + bits),
            header, body_.data());
  *out++ = 0;
  return std::as_bytes(std::span(body_)).first(static_cast<std::size_t>(out - body_.data()));
}

}  // namespace zt::compress_huffman
