// zt.digest: known values, the CRC's algebra, and every path of the kernel against a bitwise one.
#include <xxhash.h>

#include "digest/crc32c_kernel.h"
#include "testing.h"

import zt.core;
import zt.digest;

namespace zt {
namespace {

// The definition, a bit at a time.
std::uint32_t Bitwise(std::uint32_t seed, const std::uint8_t* p, std::size_t n) {
  std::uint32_t crc = ~seed;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= p[i];
    for (int k = 0; k < 8; ++k) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

std::string HashOf(DigestKind kind, std::string_view text) {
  auto hasher = MakeHasher(kind);
  hasher->Update(BytesOf(text));
  return hasher->Finish();
}

// RFC 3720, B.4 and the check value of the catalogue of CRCs.
TEST(Crc32c, PublishedValues) {
  EXPECT_EQ(Crc32c({}), 0u);
  EXPECT_EQ(Crc32c(BytesOf("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c(BytesOf(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(BytesOf(std::string(32, '\xff'))), 0x62A8AB43u);
  std::string up, down;
  for (int i = 0; i < 32; ++i) {
    up += static_cast<char>(i);
    down += static_cast<char>(31 - i);
  }
  EXPECT_EQ(Crc32c(BytesOf(up)), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(BytesOf(down)), 0x113FDB5Cu);
  EXPECT_EQ(Crc32cText(0x8A9136AAu), "crc32c:0x8A9136AA");
  EXPECT_EQ(Crc32cText(0xAu), "crc32c:0x0000000A");
}

// Folding begins with 512 bytes and works on 256, then 64; the instruction on three streams of 4096
// bytes, then words, then bytes: every length passes each border.
TEST(Crc32c, EveryLengthTo20000OnEveryPath) {
  const auto paths = kernel::Crc32cExtenders();
  const auto bytes = RandomBytes(20008, 1);
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::uint32_t want = 0x12345678u;
  for (std::size_t n = 0; n <= 20000; ++n) {
    for (std::size_t path = 0; path < paths.size(); ++path) {
      ASSERT_EQ(paths[path](0x12345678u, p, n), want) << n << " by path " << path;
    }
    want = Bitwise(want, p + n, 1);
  }
}

TEST(Crc32c, EveryAlignment) {
  const auto paths = kernel::Crc32cExtenders();
  const auto bytes = RandomBytes(70000, 2);
  const auto* p = reinterpret_cast<const std::uint8_t*>(bytes.data());
  for (std::size_t at = 0; at < 64; ++at) {
    for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 4095u, 12287u, 12288u, 12289u, 65536u}) {
      const std::uint32_t want = Bitwise(7, p + at, n);
      for (const auto extend : paths) ASSERT_EQ(extend(7, p + at, n), want) << at << " " << n;
    }
  }
}

TEST(Crc32c, ContinuesFromASeed) {
  const auto bytes = RandomBytes(50000, 3);
  std::mt19937 random(4);
  for (int i = 0; i < 200; ++i) {
    const std::size_t cut = random() % (bytes.size() + 1);
    const auto all = std::span(bytes);
    ASSERT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), Crc32c(all)) << cut;
  }
}

TEST(Crc32c, CombinesAnySplit) {
  const auto bytes = RandomBytes(50000, 5);
  const auto all = std::span(bytes);
  std::mt19937 random(6);
  for (int i = 0; i < 500; ++i) {
    const std::size_t a = random() % (bytes.size() + 1), b = a + random() % (bytes.size() - a + 1);
    const std::uint32_t left = Crc32c(all.first(a)), middle = Crc32c(all.subspan(a, b - a)),
                        right = Crc32c(all.subspan(b));
    const std::uint32_t front = Crc32cCombine(left, middle, b - a);
    ASSERT_EQ(front, Crc32c(all.first(b)));
    ASSERT_EQ(Crc32cCombine(front, right, bytes.size() - b), Crc32c(all));
    const std::uint32_t back = Crc32cCombine(middle, right, bytes.size() - b);
    ASSERT_EQ(Crc32cCombine(left, back, bytes.size() - a), Crc32c(all));
  }
}

TEST(Crc32c, ShiftsAddUpBeyond32Bits) {
  // x^(8a) * x^(8b) = x^(8(a+b)).
  const std::uint64_t a = (std::uint64_t{1} << 40) + 12345, b = (std::uint64_t{3} << 33) + 1;
  EXPECT_EQ(kernel::Crc32cMultiply(kernel::Crc32cShift(a), kernel::Crc32cShift(b)),
            kernel::Crc32cShift(a + b));
}

// FIPS 180-2 and xxHash's own test of the empty input.
TEST(Hasher, PublishedValues) {
  EXPECT_EQ(HashOf(DigestKind::kSha256, ""),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HashOf(DigestKind::kSha256, "abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashOf(DigestKind::kXxh3, ""), "xxh3:2d06800538d394c2");
  EXPECT_EQ(HashOf(DigestKind::kCrc32c, "123456789"), "crc32c:0xE3069283");
  EXPECT_EQ(MakeHasher(DigestKind::kNone), nullptr);
}

// What is hashed in pieces, with wider vectors where the host has them, is what xxHash's own build
// makes of the whole.
TEST(Hasher, Xxh3IsTheLibrarys) {
  const auto bytes = RandomBytes(70000, 7);
  std::mt19937 random(9);
  for (std::size_t size = 0; size < bytes.size(); size += size < 1200 ? 1 : 1 + random() % 3000) {
    const auto all = std::span(bytes).first(size);
    XXH64_canonical_t canonical;
    XXH64_canonicalFromHash(&canonical, XXH3_64bits(all.data(), all.size()));
    std::string want = "xxh3:";
    for (const unsigned char byte : canonical.digest) {
      want += "0123456789abcdef"[byte >> 4];
      want += "0123456789abcdef"[byte & 15];
    }
    auto hasher = MakeHasher(DigestKind::kXxh3);
    for (std::size_t at = 0; at < size;) {
      const std::size_t take = std::min<std::size_t>(random() % 1500, size - at);
      hasher->Update(all.subspan(at, take));
      at += take;
    }
    ASSERT_EQ(hasher->Finish(), want) << size;
  }
}

TEST(Hasher, PiecesDoNotMatter) {
  const auto bytes = RandomBytes(100000, 8);
  for (const DigestKind kind : {DigestKind::kCrc32c, DigestKind::kSha256, DigestKind::kXxh3}) {
    auto whole = MakeHasher(kind);
    whole->Update(bytes);
    const std::string want = whole->Finish();
    for (unsigned seed = 0; seed < 20; ++seed) {
      std::mt19937 random(seed);
      auto pieces = MakeHasher(kind);
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t take = std::min<std::size_t>(random() % 5000, bytes.size() - at);
        pieces->Update(std::span(bytes).subspan(at, take));
        at += take;
      }
      EXPECT_EQ(pieces->Finish(), want);
    }
  }
}

TEST(DigestKind, Names) {
  for (const DigestKind kind :
       {DigestKind::kNone, DigestKind::kCrc32c, DigestKind::kSha256, DigestKind::kXxh3}) {
    EXPECT_EQ(ParseDigestKind(Name(kind)), kind);
  }
  for (const auto* name : {"", "CRC32C", "crc32", "md5"})
    EXPECT_FALSE(ParseDigestKind(name)) << name;
}

TEST(ParseDigest, FormsThatMeanTheSame) {
  for (const auto* text : {"crc32c:0x0A1B2C3D", "crc32c:0X0a1b2c3d", "crc32c:0a1B2c3D"}) {
    const auto digest = Must(ParseDigest(text));
    EXPECT_EQ(digest.kind, DigestKind::kCrc32c);
    EXPECT_EQ(digest.canonical, Crc32cText(0x0A1B2C3Du));
  }
  const std::string upper(64, 'F'), lower(64, 'f');
  for (const std::string& hex : {upper, lower, "0x" + upper}) {
    EXPECT_EQ(ParseDigest("sha256:" + hex)->canonical, "sha256:" + lower);
  }
  EXPECT_EQ(ParseDigest("xxh3:2D06800538D394C2")->canonical, HashOf(DigestKind::kXxh3, ""));
}

TEST(ParseDigest, AnUnknownAlgorithmIsSaidToBeUnknown) {
  for (const auto* text : {"md5:abc", "CRC32C:0x00000000", "none:00", "blake3:", "sha256 :00"}) {
    const auto digest = Must(ParseDigest(text));
    EXPECT_EQ(digest.kind, DigestKind::kNone) << text;
    EXPECT_EQ(digest.canonical, "") << text;
    EXPECT_EQ(digest.algorithm, std::string_view(text).substr(0, std::string_view(text).find(':')));
  }
}

TEST(ParseDigest, NumbersMayLackLeadingZeros) {
  EXPECT_EQ(ParseDigest("crc32c:0xabc")->canonical, "crc32c:0x00000ABC");
  EXPECT_EQ(ParseDigest("crc32c:1234567")->canonical, "crc32c:0x01234567");
  EXPECT_EQ(ParseDigest("xxh3:ABC")->canonical, "xxh3:0000000000000abc");
  EXPECT_FALSE(ParseDigest("sha256:" + std::string(63, '0')).ok());
}

TEST(ParseDigest, RefusesWhatIsNoDigest) {
  for (const auto* text : {"", ":", ":00", "crc32c", "0x00000000"}) {
    EXPECT_THAT(ParseDigest(text),
                Fails(StatusCode::kDataLoss, HasSubstr("not of the form algorithm:value")))
        << text;
  }
  for (const auto* text :
       {"crc32c:", "crc32c:0x", "crc32c:0x123456789", "xxh3:12345678901234567", "crc32c:0x1234567g",
        "crc32c: 1234567", "sha256:00", "xxh3:0x", "crc32c:0x0x123456"}) {
    EXPECT_THAT(ParseDigest(text), Fails(StatusCode::kDataLoss, HasSubstr("value in hexadecimal")))
        << text;
  }
}

}  // namespace
}  // namespace zt
