// stats_test — figures of numbers on every CPU target against ones computed a number at a time.
#include <cmath>
#include <limits>

#include "convert_reference.h"
#include "little_endian.h"
#include "target_iteration.h"
#include "testing.h"

import zt.core;
import zt.transform;

namespace zt {
namespace {

using reference::FloatFormat;
using reference::kFormats;

// Elements as numbers, exactly: of 64-bit integers, `value` is near.
struct Element {
  Number exact;
  double value = 0;
};

// The low bytes of each pattern.
Bytes Pack(const std::vector<std::uint64_t>& patterns, std::size_t width) {
  Bytes out(patterns.size() * width);
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    const std::uint64_t bytes = Little(patterns[i]);
    std::memcpy(out.data() + i * width, &bytes, width);
  }
  return out;
}

struct Expected {
  std::uint64_t finite = 0, zeros = 0, nan = 0, inf = 0;
  std::optional<Number> min, max;
  long double mean = 0, deviation = 0;
  decltype(NumberStats::exponents) exponents = {};
};

Expected Compute(const std::vector<Element>& elements) {
  Expected out;
  long double sum = 0, squares = 0;
  for (const auto& [exact, value] : elements) {
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? out.nan : out.inf);
      continue;
    }
    ++out.finite;
    sum += static_cast<long double>(value);
    if (!out.min || exact < *out.min) out.min = exact;
    if (!out.max || *out.max < exact) out.max = exact;
    if (value == 0) {
      ++out.zeros;
      continue;
    }
    const int exponent =
        std::clamp(std::ilogb(value), NumberStats::kLeastExponent, NumberStats::kMostExponent);
    ++out.exponents[static_cast<std::size_t>(exponent - NumberStats::kLeastExponent)];
  }
  if (out.finite == 0) return out;
  out.mean = sum / static_cast<long double>(out.finite);
  for (const auto& [exact, value] : elements) {
    if (!std::isfinite(value)) continue;
    const long double distance = static_cast<long double>(value) - out.mean;
    squares += distance * distance;
  }
  out.deviation = std::sqrt(squares / static_cast<long double>(out.finite));
  return out;
}

// Equal on every target, to the bit; near `expected` where sums are rounded.
void Check(std::string_view type, const Bytes& bytes, const Expected& expected) {
  SCOPED_TRACE(std::string(type) + ", " + std::to_string(bytes.size()) + " bytes");
  const auto scan = MakeNumberScan(*ParseElementType(type));
  ASSERT_OK(scan);
  std::optional<NumberStats> first;
  ForEachTarget([&] {
    NumberStats stats;
    (*scan)->Add(bytes, stats);
    EXPECT_EQ(stats.finite, expected.finite);
    EXPECT_EQ(stats.zeros, expected.zeros);
    EXPECT_EQ(stats.nan, expected.nan);
    EXPECT_EQ(stats.inf, expected.inf);
    EXPECT_EQ(stats.min, expected.min);
    EXPECT_EQ(stats.max, expected.max);
    EXPECT_EQ(stats.exponents, expected.exponents);
    if (!first) first = stats;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(stats.sum), std::bit_cast<std::uint64_t>(first->sum));
    EXPECT_EQ(stats.squares, first->squares);
    if (expected.finite == 0) return;
    const double near =
        1e-12 * static_cast<double>(std::max(std::fabs(expected.mean), expected.deviation));
    EXPECT_NEAR(stats.mean(), static_cast<double>(expected.mean), near);
    EXPECT_NEAR(stats.deviation(), static_cast<double>(expected.deviation), near);
  });
}

// Around the lanes of a vector, a block and the size from which elements are counted.
constexpr std::size_t kCounts[] = {0, 1, 2, 15, 16, 17, 100, 2047, 2048, 2049, 16383, 16384, 20001};

std::vector<std::uint64_t> FloatPatterns(const FloatFormat& format, std::size_t count, int kind) {
  std::mt19937_64 random(count * 3 + static_cast<std::size_t>(kind));
  std::vector<std::uint64_t> patterns;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random() >> (64 - 8 * format.width);
    if (format.width == 8) {  // no sum beyond f64
      const std::uint64_t exponent = 1023 - 80 + random() % 160;
      bits = (bits & ~reference::TopExponent(format)) | exponent << format.mantissa_bits;
    }
    const bool special = kind == 1 && random() % 7 == 0;
    const std::uint64_t specials[] = {0,
                                      reference::SignBit(format),
                                      reference::TopExponent(format),
                                      reference::TopExponent(format) | 1,
                                      1,
                                      reference::SignBit(format) | reference::TopExponent(format)};
    if (special) bits = specials[random() % std::size(specials)];
    // Without them: those of NaN and infinity lose their lowest exponent bit.
    const bool finite =
        !reference::IsNan(format, bits) && std::isfinite(reference::Value(format, bits));
    if (kind == 0 && !finite) bits = reference::LargestFinite(format);
    patterns.push_back(kind == 2 ? reference::TopExponent(format) | 1 : bits);
  }
  return patterns;
}

TEST(NumberScan, FloatsOfEveryTypeWithAndWithoutSpecials) {
  for (const FloatFormat& format : kFormats) {
    for (const std::size_t count : kCounts) {
      for (int kind = 0; kind < 3; ++kind) {
        const auto patterns = FloatPatterns(format, count, kind);
        std::vector<Element> elements;
        for (const std::uint64_t bits : patterns) {
          const double value = reference::IsNan(format, bits)
                                   ? std::numeric_limits<double>::quiet_NaN()
                                   : reference::Value(format, bits);
          elements.push_back({value + 0.0, value});
        }
        Check(format.name, Pack(patterns, static_cast<std::size_t>(format.width)),
              Compute(elements));
      }
    }
  }
}

template <typename T>
void CheckIntegers(std::string_view type) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  for (const std::size_t count : kCounts) {
    std::mt19937_64 random(count);
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<T>(i % 5 == 0 ? 0 : random() >> random() % 40);
    if (count > 16) {
      values[3] = std::numeric_limits<T>::min();
      values[16] = std::numeric_limits<T>::max();
    }
    std::vector<Element> elements;
    std::vector<std::uint64_t> patterns;
    for (const T value : values) {
      elements.push_back({static_cast<Wide>(value), static_cast<double>(value)});
      patterns.push_back(static_cast<std::uint64_t>(value));
    }
    Check(type, Pack(patterns, sizeof(T)), Compute(elements));
  }
}

TEST(NumberScan, IntegersOfEveryType) {
  CheckIntegers<std::int8_t>("i8");
  CheckIntegers<std::uint8_t>("u8");
  CheckIntegers<std::int16_t>("i16");
  CheckIntegers<std::uint16_t>("u16");
  CheckIntegers<std::int32_t>("i32");
  CheckIntegers<std::uint32_t>("u32");
  CheckIntegers<std::int64_t>("i64");
  CheckIntegers<std::uint64_t>("u64");
}

TEST(NumberScan, BoolsAreZeroAndOne) {
  const Bytes bytes = {std::byte{1}, std::byte{0}, std::byte{1}, std::byte{1}};
  const auto scan = MakeNumberScan({DType::kBool, ""});
  ASSERT_OK(scan);
  NumberStats stats;
  (*scan)->Add(bytes, stats);
  EXPECT_EQ(stats.min, Number(std::uint64_t{0}));
  EXPECT_EQ(stats.max, Number(std::uint64_t{1}));
  EXPECT_EQ(stats.zeros, 1u);
  EXPECT_EQ(stats.mean(), 0.75);
}

TEST(NumberScan, AMeanFarFromZeroKeepsItsDeviation) {
  const FloatFormat& f32 = kFormats[1];
  std::vector<std::uint64_t> patterns;
  std::vector<Element> elements;
  for (std::size_t i = 0; i < 100'000; ++i) {
    patterns.push_back(
        reference::FromValue(f32, 16'000'000 + static_cast<double>(i % 3), false).bits);
    const double value = reference::Value(f32, patterns.back());
    elements.push_back({value, value});
  }
  Check("f32", Pack(patterns, 4), Compute(elements));
}

TEST(NumberScan, MergedRunsAreTheWhole) {
  const FloatFormat& f32 = kFormats[1];
  const auto patterns = FloatPatterns(f32, 50'000, 1);
  const Bytes bytes = Pack(patterns, 4);
  const auto scan = MakeNumberScan({DType::kF32, ""});
  ASSERT_OK(scan);
  NumberStats whole, merged;
  (*scan)->Add(bytes, whole);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(4 * (1 + at % 997), bytes.size() - at);
    NumberStats part;
    (*scan)->Add(std::span(bytes).subspan(at, size), part);
    merged.Merge(part);
    at += size;
  }
  EXPECT_EQ(merged.finite, whole.finite);
  EXPECT_EQ(merged.min, whole.min);
  EXPECT_EQ(merged.exponents, whole.exponents);
  EXPECT_NEAR(merged.mean(), whole.mean(), 1e-12 * whole.deviation());
  EXPECT_NEAR(merged.deviation(), whole.deviation(), 1e-12 * whole.deviation());
}

TEST(NumberScan, SumsBeyondF64AreInfinite) {
  const std::vector<double> values(64, -1.5e308);
  const auto scan = MakeNumberScan({DType::kF64, ""});
  ASSERT_OK(scan);
  NumberStats stats;
  const std::vector<double> bytes = Little(values);
  (*scan)->Add(std::as_bytes(std::span(bytes)), stats);
  EXPECT_EQ(stats.finite, 64u);
  EXPECT_EQ(stats.min, Number(-1.5e308));
  EXPECT_EQ(stats.mean(), -std::numeric_limits<double>::infinity());
}

TEST(NumberScan, NothingElseHasFigures) {
  for (const std::string_view type : {"complex64", "f4_e2m1", "f6_e2m3", "f8_e8m0"}) {
    EXPECT_EQ(MakeNumberScan(*ParseElementType(type)).status().code(), StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace zt
