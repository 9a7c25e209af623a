// zt.compress:delta — kernels against scalar twins on every CPU target, chunks there and back,
// frames read by libzstd's decoder, and what damage does.
#include <zstd.h>

#include "compress/delta_kernel.h"
#include "target_iteration.h"
#include "testing.h"

import zt.compress;
import zt.core;

namespace zt {
namespace {

constexpr std::size_t kWidths[] = {1, 2, 4, 8};

std::uint8_t* Octets(Bytes& bytes) { return reinterpret_cast<std::uint8_t*>(bytes.data()); }
const std::uint8_t* Octets(const Bytes& bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

std::uint64_t Get(const Bytes& bytes, std::size_t i, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t b = width; b-- > 0;) {
    const std::size_t at = std::endian::native == std::endian::little ? b : width - 1 - b;
    value = value << 8 | static_cast<std::uint64_t>(bytes[i * width + at]);
  }
  return value;
}
void Set(Bytes& bytes, std::size_t i, std::size_t width, std::uint64_t value) {
  for (std::size_t b = 0; b < width; ++b) {
    const std::size_t at = std::endian::native == std::endian::little ? b : width - 1 - b;
    bytes[i * width + at] = static_cast<std::byte>(value >> (8 * b));
  }
}

// The difference with its sign in the lowest bit, by the words of the page.
std::uint64_t ZigZagOf(std::uint64_t was, std::uint64_t is, std::size_t width) {
  const unsigned bits = static_cast<unsigned>(8 * width);
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const std::uint64_t difference = (is - was) & mask;
  const bool negative = difference >> (bits - 1) != 0;
  return negative ? ((0 - difference) & mask) * 2 - 1 : difference * 2;
}

// `fresh` differs from `old` in about one of `every` elements, by little.
Bytes Changed(const Bytes& old, std::size_t width, unsigned every, unsigned seed) {
  Bytes fresh = old;
  const Bytes random = RandomBytes(old.size() / width * 2, seed);
  for (std::size_t i = 0; i < old.size() / width; ++i) {
    if (static_cast<unsigned>(random[2 * i]) % every != 0) continue;
    const auto by = static_cast<std::uint64_t>(random[2 * i + 1]) % 7;
    Set(fresh, i, width, Get(old, i, width) + by - 3);
  }
  return fresh;
}

// What PackGroups makes of two arrays, an element at a time.
struct Packed {
  Bytes values, gaps;
};
std::vector<Packed> PackedTwin(const Bytes& old, const Bytes& fresh, std::size_t width,
                               kernel::DeltaKey key, std::span<const kernel::DeltaGroup> groups) {
  std::vector<Packed> out(groups.size());
  std::vector<std::size_t> same(groups.size());
  for (std::size_t i = 0; i < old.size() / width; ++i) {
    const std::uint64_t was = Get(old, i, width);
    std::size_t g = 0;
    while ((was >> key.shift & key.mask) > groups[g].last_key) ++g;
    const std::uint64_t value = ZigZagOf(was, Get(fresh, i, width), width);
    if (!groups[g].all) {
      if (value == 0 && ++same[g] > 0) continue;
      for (; same[g] >= 255; same[g] -= 255) out[g].gaps.push_back(std::byte{255});
      out[g].gaps.push_back(static_cast<std::byte>(same[g]));
      same[g] = 0;
    }
    out[g].values.resize(out[g].values.size() + width);
    Set(out[g].values, out[g].values.size() / width - 1, width, value);
  }
  return out;
}

TEST(DeltaKernel, IsTheScalarTwinOnEveryTarget) {
  ForEachTarget([] {
    for (const std::size_t width : kWidths) {
      const kernel::DeltaKey key = {3, width == 1 ? 15u : 255u};
      for (std::size_t count = 0; count < 330; count += count < 140 ? 1 : 37) {
        const Bytes old = RandomBytes(count * width, static_cast<unsigned>(count));
        const Bytes fresh = count % 3 == 0 ? RandomBytes(count * width, 99)
                                           : Changed(old, width, 1 + count % 40, 7);
        std::uint32_t counts[256] = {}, changed[256] = {}, all_counts[256] = {}, differ[256] = {};
        kernel::CountKeys(Octets(old), Octets(fresh), count, width, key, counts, changed);
        for (std::size_t i = 0; i < count; ++i) {
          const std::size_t k = Get(old, i, width) >> key.shift & key.mask;
          ++all_counts[k];
          differ[k] += Get(old, i, width) != Get(fresh, i, width) ? 1 : 0;
        }
        ASSERT_TRUE(std::equal(counts, counts + 256, all_counts));
        ASSERT_TRUE(std::equal(changed, changed + 256, differ));

        std::vector<kernel::DeltaGroup> groups;
        for (const unsigned last : {0u, 3u, 4u, 255u}) {
          const bool all = (count + last) % 3 == 0;
          groups.push_back({static_cast<std::uint8_t>(last), all, 0, 0, nullptr, nullptr});
        }
        const std::vector<Packed> wanted = PackedTwin(old, fresh, width, key, groups);
        std::vector<Packed> room(groups.size());
        for (std::size_t g = 0; g < groups.size(); ++g) {
          room[g].values.resize(wanted[g].values.size());
          room[g].gaps.resize(wanted[g].gaps.size());
          groups[g].value_count = static_cast<std::uint32_t>(wanted[g].values.size() / width);
          groups[g].values = Octets(room[g].values);
          groups[g].gaps = Octets(room[g].gaps);
        }
        kernel::PackGroups(Octets(old), Octets(fresh), count, width, key, groups.data(),
                           groups.size());
        for (std::size_t g = 0; g < groups.size(); ++g) {
          ASSERT_EQ(groups[g].gap_count, wanted[g].gaps.size());
          ASSERT_EQ(room[g].gaps, wanted[g].gaps) << width << " bytes, " << count;
          ASSERT_EQ(room[g].values, wanted[g].values) << width << " bytes, " << count;
        }
        Bytes result = old;
        ASSERT_TRUE(
            kernel::AddGroups(Octets(result), count, width, key, groups.data(), groups.size()));
        ASSERT_EQ(result, fresh) << width << " bytes, " << count;
      }
    }
  });
}

TEST(DeltaKernel, GapsThatDoNotFitAreRefused) {
  Bytes values(8, std::byte{1});
  const auto fits = [&](std::initializer_list<int> given, std::uint32_t changed, std::size_t count,
                        bool all = false) {
    Bytes gaps, elements(count);
    for (const int gap : given) gaps.push_back(static_cast<std::byte>(gap));
    const kernel::DeltaGroup group = {
        255, all, changed, static_cast<std::uint32_t>(gaps.size()), Octets(values), Octets(gaps)};
    return kernel::AddGroups(Octets(elements), count, 1, {0, 0}, &group, 1);
  };
  EXPECT_TRUE(fits({0, 0, 3}, 3, 6));
  EXPECT_TRUE(fits({255, 10}, 1, 266));
  EXPECT_TRUE(fits({}, 0, 0));
  EXPECT_FALSE(fits({255, 10}, 1, 265));
  EXPECT_FALSE(fits({0, 0, 3}, 3, 5));
  EXPECT_FALSE(fits({0, 0}, 3, 6));
  EXPECT_FALSE(fits({0, 0, 0}, 2, 6));
  EXPECT_FALSE(fits({255, 255, 255}, 1, 300));
  EXPECT_TRUE(fits({}, 8, 8, true));
  EXPECT_FALSE(fits({}, 7, 8, true));
  EXPECT_FALSE(fits({}, 8, 7, true));
}

ElementType Type(std::string_view name) { return *ParseElementType(name); }

struct Encoded {
  DeltaChunk chunk;
  Bytes frame;
};
Encoded Encode(const ElementType& type, const Bytes& old, const Bytes& fresh) {
  Encoded out;
  out.frame.resize(DeltaBound(old.size()));
  const auto chunk = EncodeDelta(type, old, fresh, out.frame);
  EXPECT_OK(chunk);
  if (chunk.ok()) out.chunk = *chunk;
  out.frame.resize(out.chunk.frame);
  return out;
}

// Numbers whose exponents differ, in the type's own bytes.
Bytes Weights(const ElementType& type, std::size_t count, unsigned seed) {
  const std::size_t width = ByteWidth(type.dtype);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 0.02);
  Bytes out(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const double value = normal(random);
    std::uint64_t bits = random();
    const auto as_float = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (type.dtype == DType::kBF16) bits = as_float >> 16;
    if (type.dtype == DType::kF32) bits = as_float;
    if (type.dtype == DType::kF64) bits = std::bit_cast<std::uint64_t>(value);
    for (std::size_t b = 0; b < width; ++b)
      out[i * width + b] = static_cast<std::byte>(bits >> (8 * b));
  }
  return out;
}

TEST(Delta, ChunksOfEveryTypeComeBack) {
  for (const std::string_view name : {"bf16", "f16", "f32", "f64", "u8", "i8", "i16", "u32", "i64",
                                      "bool", "f8_e4m3fn", "f8_e5m2", "f8_e8m0", "complex64"}) {
    const ElementType type = Type(name);
    const std::size_t width = ByteWidth(type.dtype);
    for (const std::size_t count : {1u, 3u, 100u, 40'000u, 200'003u}) {
      const Bytes old = Weights(type, count, 1);
      for (const unsigned every : {1u, 2u, 3u, 30u, 250u}) {
        const Bytes fresh = Changed(old, width, every, static_cast<unsigned>(count));
        const Encoded encoded = Encode(type, old, fresh);
        if (old == fresh) {
          EXPECT_EQ(encoded.chunk, DeltaChunk());
          continue;
        }
        ASSERT_OK(CheckDelta(type, encoded.chunk, encoded.frame, old.size()));
        Bytes result = old;
        ASSERT_OK(ApplyDelta(type, encoded.chunk, encoded.frame, result)) << name << " " << count;
        ASSERT_EQ(result, fresh) << name << " " << count << " every " << every;
        // Any decoder of zstd reads the content, and its checksum is there.
        Bytes content(encoded.chunk.content + 1);
        ASSERT_EQ(ZSTD_decompress(content.data(), content.size(), encoded.frame.data(),
                                  encoded.frame.size()),
                  encoded.chunk.content);
        EXPECT_NE(static_cast<unsigned>(encoded.frame[4]) & 4, 0u);
      }
    }
  }
}

TEST(Delta, EveryTargetMakesTheSameBytes) {
  const ElementType type = Type("bf16");
  const Bytes old = Weights(type, 300'001, 3), fresh = Changed(old, 2, 9, 4);
  std::optional<Bytes> first;
  ForEachTarget([&] {
    const Encoded encoded = Encode(type, old, fresh);
    if (!first) first = encoded.frame;
    EXPECT_EQ(encoded.frame, *first);
    Bytes result = old;
    ASSERT_OK(ApplyDelta(type, encoded.chunk, encoded.frame, result));
    EXPECT_EQ(result, fresh);
  });
}

TEST(Delta, OtherNumbersAreAsPlanes) {
  const ElementType type = Type("bf16");
  const Bytes old = Weights(type, 100'000, 3), fresh = Weights(type, 100'000, 4);
  const Encoded encoded = Encode(type, old, fresh);
  EXPECT_EQ(encoded.chunk.kind, DeltaKind::kPlanes);
  EXPECT_LT(encoded.frame.size(), fresh.size() * 68 / 100);
  Bytes result(fresh.size());
  ASSERT_OK(ApplyDelta(type, encoded.chunk, encoded.frame, result));
  EXPECT_EQ(result, fresh);
}

TEST(Delta, SizesOfStepsOfTraining) {
  // What zstd -1 makes of the exclusive or of both is what is shipped elsewhere.
  const ElementType type = Type("bf16");
  constexpr std::size_t kCount = 1 << 20;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  using Case = std::pair<float, double>;  // the step, and the most of what is shipped
  for (const auto& [step, most] :
       {Case(3e-7F, 0.45), Case(3e-6F, 0.40), Case(3e-5F, 0.45), Case(1e-3F, 0.72)}) {
    Bytes old(2 * kCount), fresh(2 * kCount), mixed(2 * kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto bf16 = [](float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
      };
      const std::uint32_t was = bf16(normal(random));
      const float value = std::bit_cast<float>(was << 16);
      const std::uint32_t is = bf16(value + normal(random) / 0.02F * step);
      for (std::size_t b = 0; b < 2; ++b) {
        old[2 * i + b] = static_cast<std::byte>(was >> (8 * b));
        fresh[2 * i + b] = static_cast<std::byte>(is >> (8 * b));
        mixed[2 * i + b] = old[2 * i + b] ^ fresh[2 * i + b];
      }
    }
    Bytes shipped(ZSTD_compressBound(mixed.size()));
    const std::size_t theirs =
        ZSTD_compress(shipped.data(), shipped.size(), mixed.data(), mixed.size(), 1);
    const Encoded encoded = Encode(type, old, fresh);
    EXPECT_LT(static_cast<double>(encoded.frame.size()), most * static_cast<double>(theirs))
        << "step " << step;
    RecordProperty("of_shipped", std::to_string(static_cast<double>(encoded.frame.size()) /
                                                static_cast<double>(theirs)));
  }
}

TEST(Delta, DamageIsNoCrash) {
  const ElementType type = Type("bf16");
  const Bytes old = Weights(type, 50'000, 3), fresh = Changed(old, 2, 20, 4);
  const Encoded good = Encode(type, old, fresh);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Encoded bad = good;
    const std::size_t at = random() % bad.frame.size();
    if (i % 3 == 0) bad.frame.resize(at);
    if (i % 3 == 1) bad.frame[at] ^= static_cast<std::byte>(1 + random() % 255);
    if (i % 3 == 2) bad.chunk.content += random() % 64 + 1;
    bad.chunk.frame = static_cast<std::uint32_t>(bad.frame.size());
    Bytes result = old;
    const Status status = ApplyDelta(type, bad.chunk, bad.frame, result);
    if (status.ok()) EXPECT_EQ(result, fresh);
  }
  // Another base: the result is another, or an error.
  Bytes other = Weights(type, 50'000, 9);
  (void)ApplyDelta(type, good.chunk, good.frame, other);
  Bytes smaller(old.begin(), old.begin() + 1000);
  EXPECT_FALSE(ApplyDelta(type, good.chunk, good.frame, smaller).ok());
}

}  // namespace
}  // namespace zt
