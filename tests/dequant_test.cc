// Dequantization: every Highway target against a scalar reference and against gguf-py, bit for bit.
#include <hwy/highway.h>
#include <hwy/targets.h>
#include <cctype>

#include "dequant_reference.h"
#include "fixtures.h"
#include "target_iteration.h"

import zt.core;
import zt.transform;

namespace zt {
namespace {

constexpr std::string_view kTypes[] = {
    "q4_0",   "q4_1",   "q5_0",    "q5_1",   "q8_0",  "q2_k",    "q3_k",  "q4_k",  "q5_k",
    "q6_k",   "q8_k",   "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m",
    "iq4_nl", "iq4_xs", "tq1_0",   "tq2_0",  "mxfp4", "nvfp4",   "q1_0",  "q2_0"};

// The bytes of the splitmix64 sequence from `seed`, each u64 little-endian.
Bytes RandomBytes(std::uint64_t seed, std::size_t count) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint64_t z = seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    z ^= z >> 31;
    const std::uint64_t bytes = Little(z);
    std::memcpy(out.data() + i, &bytes, std::min<std::size_t>(8, count - i));
  }
  return out;
}

Bytes Apply(std::string_view type, DType to, std::span<const std::byte> blocks,
            NumericCounts* counts = nullptr, bool saturate = false) {
  auto transform = MakeDequantize(type, to, saturate);
  EXPECT_OK(transform) << type;
  if (!transform.ok()) return {};
  NumericCounts ignored;
  Bytes out(blocks.size() / (*transform)->input_unit() * (*transform)->output_unit());
  (*transform)->Apply(blocks, out, counts == nullptr ? ignored : *counts);
  return out;
}

template <typename T>
T Get(const Bytes& bytes, std::size_t i) {
  T v;
  std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
  return Little(v);
}

// Runs the tests once for each target that this machine has.
class Dequant : public TargetTest {};

INSTANTIATE_TEST_SUITE_P(Targets, Dequant, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(Dequant, EqualsTheScalarReference) {
  for (const std::string_view type : kTypes) {
    SCOPED_TRACE(type);
    const GgmlBlock& block = *FindGgmlBlock(type);
    // From an odd address, to an odd address.
    const Bytes random = RandomBytes(type.size() + block.bytes, block.bytes * 65 + 1);
    const auto blocks = std::span(random).subspan(1);
    auto transform = Must(MakeDequantize(type, DType::kF32));
    EXPECT_EQ(transform->input_unit(), block.bytes);
    EXPECT_EQ(transform->output_unit(), block.elems * 4);
    Bytes room(65 * block.elems * 4 + 2, std::byte{0x5a});
    NumericCounts counts;
    transform->Apply(blocks, std::span(room).subspan(1, room.size() - 2), counts);
    EXPECT_EQ(room.front(), std::byte{0x5a});
    EXPECT_EQ(room.back(), std::byte{0x5a});
    EXPECT_EQ(counts.overflow + counts.nan_lost, 0u);
    const auto* from = reinterpret_cast<const std::uint8_t*>(blocks.data());
    for (std::size_t i = 0; i < 65 * block.elems; ++i) {
      const float want = reference::Element(type, from + i / block.elems * block.bytes,
                                            static_cast<int>(i % block.elems));
      float got;
      std::memcpy(&got, room.data() + 1 + 4 * i, 4);
      got = Little(got);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got),
                std::isnan(want) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(want))
          << i << ": " << got << ", not " << want;
    }
  }
}

TEST_P(Dequant, LargeResultsAreTheSame) {
  for (const std::string_view type : {"q4_k", "q8_0", "nvfp4"}) {
    const GgmlBlock& block = *FindGgmlBlock(type);
    const std::size_t some = (4 << 20) / 4 / block.elems;  // 4 MiB of floats
    const std::size_t blocks = 4 * some + 3;
    const Bytes random = RandomBytes(block.bytes, blocks * block.bytes);
    auto transform = Must(MakeDequantize(type, DType::kF32));
    const std::size_t unit = transform->output_unit();
    Bytes whole(blocks * unit + 65), piece(blocks * unit);
    NumericCounts counts;
    for (std::size_t done = 0; done < blocks; done += some) {
      const std::size_t n = std::min(some, blocks - done);
      transform->Apply(std::span(random).subspan(done * block.bytes, n * block.bytes),
                       std::span(piece).subspan(done * unit, n * unit), counts);
    }
    for (const std::size_t shift : {0, 1, 4, 48, 64}) {
      std::fill(whole.begin(), whole.end(), std::byte{0x5a});
      transform->Apply(random, std::span(whole).subspan(shift, piece.size()), counts);
      ASSERT_EQ(std::memcmp(whole.data() + shift, piece.data(), piece.size()), 0) << type << shift;
      if (shift > 0) ASSERT_EQ(whole[shift - 1], std::byte{0x5a});
      if (shift < 65) ASSERT_EQ(whole[shift + piece.size()], std::byte{0x5a});
    }
  }
}

TEST_P(Dequant, EqualsGgufPyForRandomBlocks) {
  std::size_t seen = 0;
  const nlohmann::json expected = ReadJson("gguf/dequant.expected.json");
  for (const auto& [type, want] : expected.items()) {
    SCOPED_TRACE(type);
    ++seen;
    const std::size_t blocks = want["blocks"].get<std::size_t>();
    const Bytes random =
        RandomBytes(want["seed"].get<std::uint64_t>(), blocks * FindGgmlBlock(type)->bytes);
    NumericCounts counts;
    EXPECT_EQ(Sha256(Apply(type, DType::kF32, random, &counts)), want["f32"].get<std::string>());
    EXPECT_EQ(counts.overflow, 0u);
    EXPECT_EQ(Sha256(Apply(type, DType::kF16, random, &counts)), want["f16"].get<std::string>());
    EXPECT_EQ(counts.overflow, want["f16_overflow"].get<std::uint64_t>());
    counts = {};
    EXPECT_EQ(Sha256(Apply(type, DType::kBF16, random, &counts)), want["bf16"].get<std::string>());
    EXPECT_EQ(counts.overflow, want["bf16_overflow"].get<std::uint64_t>());
  }
  EXPECT_EQ(seen, 23u);
}

// f16 and bf16 of one float, by way of a q8_k block whose scale is that float and whose
// first element is 1.
TEST_P(Dequant, RoundsOnceToNearestEven) {
  struct Case {
    float in;
    std::uint16_t f16, bf16;
    bool f16_overflow, bf16_overflow;
  };
  const float most = std::bit_cast<float>(0x7f7fffffu);
  const Case cases[] = {
      {0.0f, 0, 0, false, false},
      {-0.0f, 0x8000, 0x8000, false, false},
      {65504.0f, 0x7bff, 0x4780, false, false},
      {65519.996f, 0x7bff, 0x4780, false, false},
      {65520.0f, 0x7c00, 0x4780, true, false},
      {-1e6f, 0xfc00, 0xc974, true, false},
      {most, 0x7c00, 0x7f80, true, true},
      {std::bit_cast<float>(0x7f7f7fffu), 0x7c00, 0x7f7f, true, false},
      {INFINITY, 0x7c00, 0x7f80, false, false},
      {0x1p-24f, 0x0001, 0x3380, false, false},
      {0x1p-25f, 0x0000, 0x3300, false, false},
      {0x1.8p-24f, 0x0002, 0x33c0, false, false},
      {0x1.002p-14f, 0x0400, 0x3880, false, false},
      {0x1.ffap-15f, 0x03ff, 0x3880, false, false},
      {0x1.ffcp-15f, 0x0400, 0x3880, false, false},
      {0x1.ffep-15f, 0x0400, 0x3880, false, false},
      {1.0009766f, 0x3c01, 0x3f80, false, false},
      {0x1.002p0f, 0x3c00, 0x3f80, false, false},
      {0x1.006p0f, 0x3c02, 0x3f80, false, false},
      {0x1.01p0f, 0x3c04, 0x3f80, false, false},
      {0x1.03p0f, 0x3c0c, 0x3f82, false, false},
      {0x1p-140f, 0x0000, 0x0000, false, false},
  };
  for (const Case& c : cases) {
    Bytes block(292);
    const float in = Little(c.in);
    std::memcpy(block.data(), &in, 4);
    block[4] = std::byte{1};
    NumericCounts half, brain;
    SCOPED_TRACE(c.in);
    const bool infinite = std::isinf(c.in);  // infinity times the zeros after it is NaN
    EXPECT_EQ(Get<std::uint16_t>(Apply("q8_k", DType::kF16, block, &half), 0), c.f16);
    EXPECT_EQ(half.overflow, c.f16_overflow ? 1u : 0u);
    if (std::fabs(c.in) != 0x1p-140f) {
      EXPECT_EQ(Get<std::uint16_t>(Apply("q8_k", DType::kBF16, block, &brain), 0), c.bf16);
      EXPECT_EQ(brain.overflow, c.bf16_overflow ? 1u : 0u);
    }
    const std::uint16_t sign = c.f16 & 0x8000;
    EXPECT_EQ(Get<std::uint16_t>(Apply("q8_k", DType::kF16, block, nullptr, true), 0),
              c.f16_overflow ? sign | 0x7bff : c.f16);
    EXPECT_EQ(Get<std::uint16_t>(Apply("q8_k", DType::kBF16, block, nullptr, true), 0),
              c.bf16_overflow ? 0x7f7f : Get<std::uint16_t>(Apply("q8_k", DType::kBF16, block), 0));
    if (infinite)
      EXPECT_TRUE((Get<std::uint16_t>(Apply("q8_k", DType::kF16, block), 1) & 0x7fff) > 0x7c00);
  }
}

TEST(DequantBinding, RefusesWhatHasNoValues) {
  EXPECT_THAT(
      MakeDequantize("q8_1", DType::kF32),
      Fails(StatusCode::kUnimplemented, "blocks of ggml type 'q8_1' cannot be dequantized"));
  EXPECT_EQ(MakeDequantize("f32", DType::kF32).status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Why(MakeDequantize("q4_0", DType::kF64)),
            "dequantization gives f32, f16 or bf16, not f64");
  EXPECT_EQ(FindGgmlBlock("f32"), nullptr);
}

}  // namespace
}  // namespace zt
