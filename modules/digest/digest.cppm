// zt.digest — checksums over stored bytes: crc32c, sha256, xxh3, and their text form in the manifest.
export module zt.digest;

import zt.std;
import zt.core;

export namespace zt {

// The algorithms that can be computed and checked (zTensor 1.2 §1 "digest").
enum class DigestKind : std::uint8_t { kNone, kCrc32c, kSha256, kXxh3 };
std::string_view Name(DigestKind kind);  // "none", "crc32c", "sha256", "xxh3"
// The kind of that name; nothing for others.
std::optional<DigestKind> ParseDigestKind(std::string_view name);

// CRC-32C (Castagnoli) of `bytes` continuing from `seed`, the CRC of what came before (0 for nothing).
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);
// The CRC of A followed by B, from the CRC of each and B's length in bytes: how several workers hash one component.
std::uint32_t Crc32cCombine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b);
// "crc32c:0x%08X".
std::string Crc32cText(std::uint32_t crc);

// XXH3 of 64 bits, without a seed.
std::uint64_t Xxh3(std::span<const std::byte> bytes);
// Of these parts, one after the other.
std::uint64_t Xxh3(std::span<const std::span<const std::byte>> parts);

// A digest fed in order. Not thread-safe.
class Hasher {
 public:
  virtual ~Hasher() = default;
  // Takes the next bytes; they need not stay.
  virtual void Update(std::span<const std::byte> bytes) = 0;
  // The manifest's text: "crc32c:0x1234ABCD", "sha256:" or "xxh3:" and lower-case hex. Call once.
  virtual std::string Finish() = 0;
};
// A fresh one; null for kNone.
std::unique_ptr<Hasher> MakeHasher(DigestKind kind);

// A digest as written in a manifest. Hexadecimal digits are accepted with or without "0x" and in either case, and
// crc32c and xxh3, which are numbers, without leading zeros.
struct DigestText {
  DigestKind kind = DigestKind::kNone;  // kNone: an algorithm we do not know
  std::string algorithm;                // before the colon, as written
  std::string canonical;  // as Hasher::Finish would write it; empty for an unknown algorithm
};
// kDataLoss where the text is not "algorithm:value", or the value does not fit a known algorithm.
StatusOr<DigestText> ParseDigest(std::string_view text);
// The same where any digest may stand (2.0): what cannot be parsed is, as a whole, an algorithm we do not know.
DigestText DigestOrUnknown(std::string_view text);
// Whether ParseDigest would take it, at less cost.
Status CheckDigestText(std::string_view text);

}  // namespace zt
