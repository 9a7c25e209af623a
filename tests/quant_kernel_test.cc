// The arithmetic of quantized checkpoints: every Highway target against scalar twins, bit for bit.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cmath>
#include <random>

#include "target_iteration.h"
#include "testing.h"

import zt.core;
import zt.transform;

namespace zt {
namespace {

// Runs the tests once for each target that this machine has.
class Quant : public TargetTest {
 protected:
  std::mt19937 random{7};

  Bytes RandomBytes(std::size_t count) {
    Bytes out(count);
    for (std::byte& each : out) each = static_cast<std::byte>(random() & 255);
    return out;
  }
  std::vector<float> RandomFloats(std::size_t count) {
    std::vector<float> out(count);
    for (float& each : out) {  // among them zeros, infinities and NaNs of either sign
      const auto bits = static_cast<std::uint32_t>(random());
      each =
          std::bit_cast<float>(random() % 4 == 0 ? bits & 0xffc00000u & -(bits >> 20 & 1u) : bits);
      if (random() % 8 == 0) each = std::bit_cast<float>(0x7f800000u | (bits & 0x80400000u));
    }
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, Quant, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

// Equal bits; any NaN equals any other.
void ExpectSame(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want[i])) << i;
    }
  }
}

void ExpectSameBits(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size_bytes()), 0);
}

// Bit `bit` of a row, the lowest of the first byte first.
unsigned Bit(std::span<const std::byte> row, std::size_t bit) {
  return std::to_integer<unsigned>(row[bit / 8] >> bit % 8) & 1;
}

float Scalar(const CodeLayout& layout, std::span<const std::byte> row, std::size_t i,
             unsigned shift) {
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(row[at]); };
  switch (layout.kind) {
    case Codes::kE4m3: {
      const unsigned code = byte(i), exponent = code >> 3 & 15, mantissa = code & 7;
      if ((code & 127) == 127) return std::nanf("");
      const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                            : std::ldexp(static_cast<float>(8 + mantissa),
                                                         static_cast<int>(exponent) - 10);
      return code & 128 ? -magnitude : magnitude;
    }
    case Codes::kI8:
      return static_cast<float>(static_cast<std::int8_t>(byte(i)));
    case Codes::kLowFirst: {
      unsigned code = 0;
      const std::size_t per = layout.per_word;
      const std::size_t at = per == 0 ? i * layout.bits : i / per * 32 + i % per * layout.bits;
      for (unsigned b = 0; b < layout.bits; ++b) code |= Bit(row, at + b) << b;
      return layout.bits == 4 ? layout.values[code] : static_cast<float>(code);
    }
    case Codes::kHighNibble:
      return layout.values[byte(i / 2) >> (i % 2 == 0 ? 4 : 0) & 15];
    case Codes::kPicked:
      return layout.values[byte(i * layout.unit + shift / 8) >> shift % 8 & 15];
  }
  return 0;
}

TEST_P(Quant, DecodesFromAnyCodeOn) {
  std::array<float, 16> values;
  for (float& each : values) each = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  const std::pair<CodeLayout, std::vector<unsigned>> layouts[] = {
      {{.kind = Codes::kE4m3}, {0}},
      {{.kind = Codes::kI8}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 2}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 3}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 4, .values = kE2m1Values}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 8}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 1}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 5}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 7}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 3, .per_word = 10}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 5, .per_word = 6}, {0}},
      {{.kind = Codes::kLowFirst, .bits = 7, .per_word = 4}, {0}},
      {{.kind = Codes::kHighNibble, .values = values}, {0}},
      {{.kind = Codes::kPicked, .unit = 1, .values = values}, {0, 4}},
      {{.kind = Codes::kPicked, .unit = 4, .values = kPlainValues}, {0, 4, 12, 16, 28}}};
  for (const auto& [layout, shifts] : layouts) {
    for (const unsigned shift : shifts) {
      for (const std::size_t first : {0, 1, 5, 8, 13}) {
        for (const std::size_t count : {1, 2, 15, 16, 17, 70, 2048, 5001}) {
          const auto [begin, end] = BytesOfCodes(layout, first, count);
          const Bytes row = RandomBytes(end + 1);
          Bytes exact(row.begin() + static_cast<std::ptrdiff_t>(begin),
                      row.begin() + static_cast<std::ptrdiff_t>(end));
          std::vector<float> got(count), want;
          DecodeCodes(layout, exact.data(), first, shift, got);
          for (std::size_t i = 0; i < count; ++i)
            want.push_back(Scalar(layout, row, first + i, shift));
          SCOPED_TRACE(static_cast<int>(layout.kind) * 100 + static_cast<int>(layout.bits));
          ExpectSame(got, want);
        }
      }
    }
  }
}

TEST_P(Quant, ScalesRunsAndElements) {
  for (const std::size_t group : {1, 3, 16, 32, 128, 1000}) {
    for (const std::size_t count : {1, 15, 16, 33, 700}) {
      for (const std::size_t into : {std::size_t{0}, group / 2, group - 1}) {
        const std::vector<float> x = RandomFloats(count);
        const std::vector<float> scales = RandomFloats((into + count) / group + 1);
        const std::vector<float> zeros = RandomFloats(scales.size());
        for (const bool zero : {false, true}) {
          std::vector<float> got = x, want = x;
          ScaleRuns(got, scales.data(), zero ? zeros.data() : nullptr, into, group);
          std::vector<float> each_scale, each_zero;
          for (std::size_t i = 0; i < count; ++i) {
            each_scale.push_back(scales[(into + i) / group]);
            each_zero.push_back(zeros[(into + i) / group]);
            volatile float difference = zero ? x[i] - each_zero[i] : x[i];
            want[i] = difference * each_scale[i];
            if (std::isnan(want[i])) want[i] = std::bit_cast<float>(0x7fc00000u);
          }
          ExpectSameBits(got, want);
          got = x;
          ScaleEach(got, each_scale.data(), zero ? each_zero.data() : nullptr);
          ExpectSameBits(got, want);
          if (!zero) continue;
          std::vector<std::uint32_t> groups;
          for (std::size_t i = 0; i < count; ++i)
            groups.push_back(static_cast<std::uint32_t>((into + i) / group));
          got = x;
          ScaleGathered(got, groups.data(), scales.data(), zeros.data());
          ExpectSameBits(got, want);
        }
      }
    }
  }
}

TEST_P(Quant, ScalesOfEveryType) {
  Bytes all(256);
  for (std::size_t i = 0; i < 256; ++i) all[i] = static_cast<std::byte>(i);
  std::vector<float> got(256), want(256);
  for (int i = 0; i < 256; ++i) want[i] = i == 255 ? std::nanf("") : std::ldexp(1.0f, i - 127);
  for (const char* type : {"u8", "f8_e8m0"}) {
    ASSERT_OK(DecodeScales(*ParseElementType(type), all, got.data()));
    ExpectSame(got, want);
  }
  for (std::size_t i = 0; i < 256; ++i) want[i] = Scalar({.kind = Codes::kE4m3}, all, i, 0);
  ASSERT_OK(DecodeScales(*ParseElementType("f8_e4m3fn"), all, got.data()));
  ExpectSame(got, want);
  const Bytes half = {std::byte{0x00}, std::byte{0x3c}, std::byte{0x01}, std::byte{0x80}};
  ASSERT_OK(DecodeScales({DType::kF16}, half, got.data()));
  ExpectSame(std::span(got).first(2), std::vector<float>{1.0f, -0x1p-24f});
  ASSERT_OK(DecodeScales({DType::kBF16}, half, got.data()));
  EXPECT_EQ(got[0], std::bit_cast<float>(0x3c000000u));
}

}  // namespace
}  // namespace zt
