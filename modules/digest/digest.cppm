// zt.digest — checksums of stored bytes: crc32c, sha256, xxh3, and their text form in the manifest.
export module zt.digest;

import zt.std;
import zt.core;

export namespace zt {

// The algorithms that can be computed and checked (zTensor 1.2 §1 "digest").
enum class DigestKind : std::uint8_t { kNone, kCrc32c, kSha256, kXxh3 };
std::string_view Name(DigestKind kind);  // "none", "crc32c", "sha256", "xxh3"
// The kind of that name; nothing if unknown.
std::optional<DigestKind> ParseDigestKind(std::string_view name);

// CRC-32C (Castagnoli) of `bytes`. `seed` is the CRC of the preceding bytes (0 if there are none).
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0);
// The CRC of A followed by B, from the CRCs of both and B's length in bytes. Lets several workers
// hash one component.
std::uint32_t Crc32cCombine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b);
// "crc32c:0x%08X".
std::string Crc32cText(std::uint32_t crc);

// 64-bit XXH3 without a seed.
std::uint64_t Xxh3(std::span<const std::byte> bytes);
// The XXH3 of the concatenated parts.
std::uint64_t Xxh3(std::span<const std::span<const std::byte>> parts);

// Bytes as lower-case hexadecimal digits.
std::string Hex(std::span<const std::byte> bytes);

// A digest of bytes that come in order. Not thread-safe.
class Hasher {
 public:
  virtual ~Hasher() = default;
  // Adds the next bytes; does not keep a reference to them.
  virtual void Update(std::span<const std::byte> bytes) = 0;
  // The text for the manifest: "crc32c:0x1234ABCD", "sha256:" or "xxh3:" followed by
  // lower-case hex. Call it once.
  virtual std::string Finish() = 0;
};
// Makes a hasher; null for kNone.
std::unique_ptr<Hasher> MakeHasher(DigestKind kind);

// A digest as written in a manifest. Hexadecimal digits may be upper or lower case, with or without
// "0x"; crc32c and xxh3, being numbers, may lack leading zeros.
struct DigestText {
  DigestKind kind = DigestKind::kNone;  // kNone: an unknown algorithm
  std::string algorithm;                // text before the colon, unchanged
  std::string canonical;                // the form of Hasher::Finish; empty if unknown
};
// kDataLoss unless the text is "algorithm:value" with a value that is valid for the
// algorithm, if known.
StatusOr<DigestText> ParseDigest(std::string_view text);
// ParseDigest for 2.0, which allows any text: text that cannot be parsed counts as the name of an
// unknown algorithm.
DigestText DigestOrUnknown(std::string_view text);
// The result of ParseDigest without its value, at less cost.
Status CheckDigestText(std::string_view text);

}  // namespace zt
