// zt.digest — the implementation, with our CRC-32C kernel, libcrypto and xxHash.
module;

// Uses the low-level functions of SHA-256, deprecated in OpenSSL 3: EVP would link all of
// libcrypto's algorithms, four megabytes, into the program and the library.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <xxhash.h>

#include "digest/crc32c_kernel.h"
#include "digest/xxh3_kernel.h"

module zt.digest;

import zt.std;

namespace zt {
namespace {

constexpr std::string_view kNames[] = {"none", "crc32c", "sha256", "xxh3"};

class Crc32cHasher final : public Hasher {
 public:
  void Update(std::span<const std::byte> bytes) override { crc_ = Crc32c(bytes, crc_); }
  std::string Finish() override { return Crc32cText(crc_); }

 private:
  std::uint32_t crc_ = 0;
};

// Throws if libcrypto failed: its output is then no digest.
void Succeeded(int result, const char* what) {
  if (result != 1) throw std::runtime_error(std::string("sha256: libcrypto's ") + what + " failed");
}

class Sha256Hasher final : public Hasher {
 public:
  Sha256Hasher() { Succeeded(SHA256_Init(&context_), "SHA256_Init"); }
  void Update(std::span<const std::byte> bytes) override {
    Succeeded(SHA256_Update(&context_, bytes.data(), bytes.size()), "SHA256_Update");
  }
  std::string Finish() override {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    Succeeded(SHA256_Final(digest, &context_), "SHA256_Final");
    return "sha256:" + Hex(std::as_bytes(std::span(digest)));
  }

 private:
  SHA256_CTX context_;
};

class Xxh3Hasher final : public Hasher {
 public:
  Xxh3Hasher() : state_(XXH3_createState(), &XXH3_freeState) {
    if (state_ == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(state_.get());
  }
  void Update(std::span<const std::byte> bytes) override {
    if (fast_ != nullptr) {
      fast_(state_.get(), bytes.data(), bytes.size());
    } else {
      XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
    }
  }
  std::uint64_t Number() const { return XXH3_64bits_digest(state_.get()); }
  std::string Finish() override {
    XXH64_canonical_t canonical;
    XXH64_canonicalFromHash(&canonical, Number());
    return "xxh3:" + Hex(std::as_bytes(std::span(canonical.digest)));
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
  kernel::Xxh3Updater fast_ = kernel::FastXxh3();
};

// The parts of a digest's text.
struct DigestFields {
  std::string_view algorithm;
  std::optional<DigestKind> kind;  // nothing if it cannot be verified
  std::string_view hex;            // the digits, without "0x"
  std::size_t digits = 0;          // limit on the number of digits
};

// Without branches: digits of a digest are random, and would be mispredicted.
bool IsHex(char c) {
  const auto digit = static_cast<unsigned char>(c - '0');
  const auto letter = static_cast<unsigned char>((c | 0x20) - 'a');
  return (digit < 10) | (letter < 6);
}

StatusOr<DigestFields> Split(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return InvalidData("digest " + Quote(text) + " is not of the form algorithm:value");
  }
  DigestFields out;
  out.algorithm = text.substr(0, colon);
  const auto kind = ParseDigestKind(out.algorithm);
  // unknown: reported, never treated as verified
  if (!kind || *kind == DigestKind::kNone) return out;
  out.hex = text.substr(colon + 1);
  if (out.hex.starts_with("0x") || out.hex.starts_with("0X")) out.hex.remove_prefix(2);
  out.digits = *kind == DigestKind::kSha256 ? 64 : (*kind == DigestKind::kXxh3 ? 16 : 8);
  const std::size_t least = *kind == DigestKind::kSha256 ? out.digits : 1;
  if (out.hex.size() < least || out.hex.size() > out.digits ||
      !std::all_of(out.hex.begin(), out.hex.end(), IsHex)) {
    return InvalidData("digest " + Quote(text) + " holds no " + std::string(out.algorithm) +
                       " value in hexadecimal");
  }
  out.kind = kind;
  return out;
}

}  // namespace

std::string_view Name(DigestKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::optional<DigestKind> ParseDigestKind(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<DigestKind>(i);
  }
  return std::nullopt;
}

std::string Hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    out += kDigits[std::to_integer<unsigned>(byte >> 4)];
    out += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t seed) {
  return kernel::Crc32cExtend(seed, reinterpret_cast<const std::uint8_t*>(bytes.data()),
                              bytes.size());
}

std::uint32_t Crc32cCombine(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t bytes_b) {
  return kernel::Crc32cMultiply(kernel::Crc32cShift(bytes_b), crc_a) ^ crc_b;
}

std::string Crc32cText(std::uint32_t crc) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out = "crc32c:0x00000000";
  for (std::size_t i = out.size(); crc != 0; crc >>= 4) out[--i] = kDigits[crc & 15];
  return out;
}

std::uint64_t Xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t Xxh3(std::span<const std::span<const std::byte>> parts) {
  Xxh3Hasher hasher;
  for (const std::span<const std::byte> part : parts) hasher.Update(part);
  return hasher.Number();
}

std::unique_ptr<Hasher> MakeHasher(DigestKind kind) {
  switch (kind) {
    case DigestKind::kNone:
      return nullptr;
    case DigestKind::kCrc32c:
      return std::make_unique<Crc32cHasher>();
    case DigestKind::kSha256:
      return std::make_unique<Sha256Hasher>();
    case DigestKind::kXxh3:
      return std::make_unique<Xxh3Hasher>();
  }
  return nullptr;
}

Status CheckDigestText(std::string_view text) { return Split(text).status(); }

StatusOr<DigestText> ParseDigest(std::string_view text) {
  auto fields = Split(text);
  if (!fields.ok()) return fields.status();
  const auto& [algorithm, kind, hex, digits] = *fields;
  DigestText out;
  out.algorithm = algorithm;
  if (!kind) return out;
  out.kind = *kind;
  out.canonical = std::string(Name(*kind)) + ":" + (*kind == DigestKind::kCrc32c ? "0x" : "");
  out.canonical.append(digits - hex.size(), '0');
  for (const char c : hex) {
    if (*kind == DigestKind::kCrc32c) {
      out.canonical += c >= 'a' && c <= 'f' ? static_cast<char>(c - 'a' + 'A') : c;
    } else {
      out.canonical += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return out;
}

DigestText DigestOrUnknown(std::string_view text) {
  if (auto digest = ParseDigest(text); digest.ok()) return *std::move(digest);
  DigestText unknown;
  unknown.algorithm = text;
  return unknown;
}

}  // namespace zt
