// huffman — encoder: code lengths by package-merge, codes as zstd assigns them, the
// tree's description and four streams (RFC 8878 §4.2). Decoder: a table of the bytes that
// the next bits encode.
#include "compress/huffman.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "compress/huffman_kernel.h"
#include "compress/literals.h"

namespace zt::compress_huffman {
namespace {

using kernel::kMostCodeBits;

constexpr std::size_t kLeast = 4096, kMost = 128 << 10;
constexpr unsigned kGreatest = 128;      // up to this value a tree can be described directly
constexpr std::size_t kMostValues = 96;  // the table of pairs has kMostValues^2 entries
constexpr std::size_t kStreams = 4;
// bytes of the jump table, which locates the streams
constexpr std::size_t kEnds = 2 * (kStreams - 1);
// If the range of values is smaller than this, a quarter of the block is counted as a sample.
constexpr unsigned kNarrow = 48;
constexpr std::size_t kSampled = 256;

struct Value {
  std::uint32_t count;
  std::uint8_t byte;
};

// All values that may occur, the rarest first. Values missing from a sample count once.
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

// The optimal code lengths, limited to kMostCodeBits bits, in the order of `values`:
// package-merge. Each round merges the values with packages, which are pairs of items of the
// previous round. A value's length is the number of rounds in which it is among the cheapest items
// that the next round uses.
std::vector<std::uint8_t> Lengths(const std::vector<Value>& values) {
  const std::size_t n = values.size();
  std::array<std::vector<std::uint8_t>, kMostCodeBits> is_value;  // each 0 or 1
  std::vector<std::uint64_t> before, merged;
  for (std::vector<std::uint8_t>& round : is_value) {
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
    const auto taken = static_cast<std::size_t>(std::count(
        is_value[round].begin(), is_value[round].begin() + static_cast<std::ptrdiff_t>(wanted), 1));
    for (std::size_t v = 0; v < taken; ++v) ++lengths[v];
    wanted = 2 * (wanted - taken);
  }
  return lengths;
}

// The codes as zstd assigns them: longest first, from 0 up, codes of equal length in the
// order of their values.
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

  // Literals header, tree, jump table, streams, no sequences.
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
  out += kEnds;
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

// ---- decoding -----------------------------------------------------------------------------------

namespace {

using kernel::kRunBytes;

constexpr std::size_t kLeastDecoded = 256;
constexpr unsigned kBitsAt = 48, kCountAt = 56;  // in a run

// Prepends a byte, whose code has `length` bits, to `run`. A full run loses its last byte.
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
  // Values from here on: direct description, with 4 bits for each weight but the last.
  constexpr unsigned kDirect = 128;
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
  // The last weight is implied: it completes the sum to a power of two.
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

// Entries for each number of bits extend entries for fewer bits: the bits after a byte's code
// are looked up there.
void LiteralsDecoder::FillTable() {
  // Longest codes first; codes of equal length in the order of their bytes.
  std::array<std::uint8_t, 256> sorted;
  std::size_t codes = 0;
  for (unsigned length = kMostCodeBits; length > 0; --length) {
    for (std::size_t v = 0; v < 256; ++v) {
      if (lengths_[v] == length) sorted[codes++] = static_cast<std::uint8_t>(v);
    }
  }
  table_[0] = table_[1] = 0;
  for (unsigned bits = 1; bits <= kMostCodeBits; ++bits) {
    // The shortest codes are the highest numbers.
    std::uint64_t* at = &table_[(std::size_t{2} << bits) - 1];
    std::uint64_t* const begin = &table_[std::size_t{1} << bits];
    for (std::size_t c = codes; c-- > 0 && lengths_[sorted[c]] <= bits;) {
      const unsigned length = lengths_[sorted[c]];
      const std::size_t count = std::size_t{1} << (bits - length);
      at -= count;
      for (std::size_t i = 0; i < count; ++i) {
        at[1 + i] = Before(table_[count + i], sorted[c], length, lengths_);
      }
    }
    std::fill(begin, at + 1, 0);  // these bits contain no complete code
  }
}

bool LiteralsDecoder::Decode(std::span<const std::byte> body, const zstd::Literals& literals,
                             std::span<std::byte> out) {
  if (!literals.four_streams || out.size() < kLeastDecoded) return false;
  const std::size_t end = body.size() - 1;  // before the byte that means no sequences
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
