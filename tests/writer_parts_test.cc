// The writer's parts that are numbers and names alone: placer, cutter, names.
#include "testing.h"
#include "writer/names.h"
#include "writer/placement.h"

namespace zt::writer::internal {
namespace {

TEST(Placer, AlignsTheBeginOfEachBlobAndNoMore) {
  Placer placer(8, 64);
  Placer::Gap gap = placer.Open();
  EXPECT_EQ(gap.begin, 64u);
  EXPECT_EQ(gap.padding, 56u);
  placer.Add(3);
  placer.Add(0);
  placer.Add(4);
  EXPECT_EQ(placer.end(), 71u);
  gap = placer.Open();
  EXPECT_EQ(gap.begin, 128u);
  EXPECT_EQ(gap.padding, 57u);
  gap = placer.Open();  // an empty blob
  EXPECT_EQ(gap.begin, 128u);
  EXPECT_EQ(gap.padding, 0u);
}

std::vector<Cut> All(Cuts cuts) {
  std::vector<Cut> out;
  while (!cuts.done()) out.push_back(cuts.Next());
  return out;
}

// Whatever the rule: chunks follow one another without a gap, only the ends are marked,
// each is whole units.
void ExpectWhole(const std::vector<Cut>& cuts, std::uint64_t input, const CutRule& rule) {
  std::uint64_t at = 0, content = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    EXPECT_EQ(cuts[i].input_offset, at);
    EXPECT_EQ(cuts[i].offset, content);
    EXPECT_EQ(cuts[i].first, i == 0);
    EXPECT_EQ(cuts[i].last, i + 1 == cuts.size());
    EXPECT_EQ(cuts[i].input_bytes % rule.in_unit, 0u);
    at += cuts[i].input_bytes;
    content += cuts[i].bytes;
  }
  EXPECT_EQ(at, input);
  EXPECT_EQ(content, input / rule.in_unit * rule.out_unit);
}

TEST(Cutter, LaterChunksBeginAtMultiplesInTheOutput) {
  Placer placer(8, 64);
  Cutter cutter(placer);
  const CutRule rule = {.raw = true, .bytes = 5000, .content = 1024};
  for (int i = 0; i < 3; ++i) {
    const std::vector<Cut> cuts = All(cutter.Begin(rule, 5000));
    ExpectWhole(cuts, 5000, rule);
    // The placer that decides is asked the same.
    const std::uint64_t begin = placer.Open().begin;
    placer.Add(5000);
    for (std::size_t k = 1; k < cuts.size(); ++k) {
      EXPECT_EQ((begin + cuts[k].offset) % 1024, 0u) << i << ' ' << k;
    }
  }
}

TEST(Cutter, ForeseesNothingBehindWhatMayShrink) {
  Cutter cutter(Placer(8, 64));
  const CutRule raw = {.raw = true, .bytes = 5000, .content = 1024};
  CutRule compressed = raw;
  compressed.raw = false;
  ExpectWhole(All(cutter.Begin(compressed, 5000)), 5000, compressed);
  EXPECT_EQ(All(cutter.Begin(raw, 5000))[0].input_bytes, 1024u);

  Cutter streamed(Placer(8, 64));
  streamed.StopPredicting();
  EXPECT_EQ(All(streamed.Begin(raw, 5000))[0].input_bytes, 1024u);
}

TEST(Cutter, KeepsWholeFramesAndUnits) {
  Cutter cutter(Placer(8, 64));
  CutRule rule = {.raw = true, .bytes = 5000, .content = 1024, .whole = true};
  EXPECT_EQ(All(cutter.Begin(rule, 5000))[0].input_bytes, 1024u);
  // 18 bytes become 64, as blocks of numbers do.
  rule = {.raw = true, .bytes = 6400, .content = 1024, .in_unit = 18, .out_unit = 64};
  const std::vector<Cut> cuts = All(cutter.Begin(rule, 1800));
  ExpectWhole(cuts, 1800, rule);
  EXPECT_EQ(cuts[1].bytes, 1024u);
}

TEST(Cutter, AnEmptyComponentIsOneChunk) {
  Cutter cutter(Placer(8, 64));
  const CutRule rule = {.raw = true, .bytes = 0, .content = 1024};
  const std::vector<Cut> cuts = All(cutter.Begin(rule, 0));
  ASSERT_EQ(cuts.size(), 1u);
  ExpectWhole(cuts, 0, rule);
}

TEST(Names, HoldEachNameOnce) {
  Names names;
  names.Expect(1000, 12000);
  for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_TRUE(names.Add("layer." + std::to_string(i), i));
  EXPECT_FALSE(names.Add("layer.17", 5));
  EXPECT_EQ(names.Find("layer.17"), 17u);
  EXPECT_EQ(names.Find("layer"), std::nullopt);
  EXPECT_TRUE(names.Add("", 7));
  EXPECT_EQ(names.Find(""), 7u);
}

TEST(Names, FindAllWithoutRoomMadeForThem) {
  Names names;
  for (std::uint32_t i = 0; i < 5000; ++i) ASSERT_TRUE(names.Add(std::to_string(i), i / 2));
  for (std::uint32_t i = 0; i < 5000; ++i) {
    EXPECT_EQ(names.Find(std::to_string(i)), i / 2);
    EXPECT_FALSE(names.Add(std::to_string(i), 0));
  }
  EXPECT_EQ(names.Find("5000"), std::nullopt);
}

// Numbers and sizes around each border of seven bits.
TEST(Names, HoldNumbersAndSizesOfAnyLength) {
  Names names;
  std::vector<std::pair<std::string, std::uint32_t>> all;
  for (unsigned bits = 7; bits <= 21; bits += 7) {
    for (const int more : {-1, 0, 1}) {
      all.emplace_back(std::string((1u << bits) + more, 'x'), (1u << bits) + more);
      all.emplace_back("of " + std::to_string(all.size()), ~std::uint32_t{0} >> bits);
    }
  }
  all.emplace_back("the last", ~std::uint32_t{0});
  std::size_t bytes = 0;
  for (const auto& [name, of] : all) bytes += Names::Taken(name.size(), of);
  names.Expect(all.size(), bytes);
  for (const auto& [name, of] : all) ASSERT_TRUE(names.Add(name, of));
  EXPECT_EQ(names.capacity(), bytes);  // nothing was copied, and nothing is left
  for (const auto& [name, of] : all) {
    EXPECT_EQ(names.Find(name), of);
    EXPECT_FALSE(names.Add(name, 0));
  }
}

}  // namespace
}  // namespace zt::writer::internal
