// The writer's parts that are numbers and names alone: placer, cutter, names, cells.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "writer/cells.h"
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

// Whatever the rule: chunks follow one another without a gap, only the ends are marked, each is whole units.
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
  streamed.Forget();
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

std::vector<std::byte> Eights(const std::vector<std::uint64_t>& numbers) {
  std::vector<std::byte> out;
  for (const std::uint64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) out.push_back(static_cast<std::byte>(number >> 8 * byte));
  }
  return out;
}

// Whether cells are the same, in every order, with enough memory to keep all and with less; against a set of them.
TEST(Cells, AreToldApartInAnyMemory) {
  std::mt19937_64 random(1);
  int unknown = 0, same = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint64_t> shape;
    for (std::size_t rank = 1 + random() % 4; shape.size() < rank;)
      shape.push_back(1 + random() % 5);
    std::uint64_t places = 1;
    for (const std::uint64_t dimension : shape) places *= dimension;
    std::vector<std::uint64_t> cells(1 + random() % 40);
    for (std::uint64_t& cell : cells) cell = random() % places;
    const bool ascend = random() % 4 != 0;
    if (ascend) std::sort(cells.begin(), cells.end());
    const std::set<std::uint64_t> known(cells.begin(), cells.end());
    if (ascend && random() % 2 == 0) cells.assign(known.begin(), known.end());
    std::vector<std::byte> coords;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::uint64_t below = 1;
      for (std::size_t e = d + 1; e < shape.size(); ++e) below *= shape[e];
      for (const std::uint64_t cell : cells)
        coords.push_back(static_cast<std::byte>(cell / below % shape[d]));
    }
    const auto want = known.size() == cells.size() ? Cells::Answer::kDiffer : Cells::Answer::kSame;
    const std::uint64_t most = random() % 400;
    Cells checked(shape, cells.size(), most);
    for (std::size_t at = 0; at < coords.size();) {
      const std::size_t part = std::min<std::size_t>(1 + random() % 20, coords.size() - at);
      checked.Add(std::span(coords).subspan(at, part), 1);
      at += part;
    }
    const Cells::Answer answer = checked.Finish();
    if (most >= 8 * cells.size() || (ascend && most >= 4 * cells.size())) {
      ASSERT_EQ(answer, want) << round;
    } else if (answer != Cells::Answer::kUnknown) {
      ASSERT_EQ(answer, want) << round;
    }
    unknown += answer == Cells::Answer::kUnknown ? 1 : 0;
    same += answer == Cells::Answer::kSame ? 1 : 0;
  }
  EXPECT_GT(unknown, 100);
  EXPECT_GT(same, 500);
}

TEST(Rows, AscendWhicheverComponentComesFirst) {
  std::mt19937_64 random(1);
  int bad = 0, large = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint64_t> pointers = {0}, indices;
    std::optional<std::uint64_t> want;
    const std::uint64_t rows = random() % 12;
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (std::uint64_t count = random() % 4; count > 0; --count) {
        const std::uint64_t index = random() % 3 == 0 || indices.size() == pointers.back()
                                        ? random() % 1000
                                        : indices.back() + 1 + random() % 9;
        if (indices.size() > pointers.back() && index <= indices.back() && !want)
          want = indices.size();
        indices.push_back(index);
      }
      pointers.push_back(indices.size());
    }
    const std::vector<std::byte> p = Eights(pointers), i = Eights(indices);
    for (const bool pointers_first : {false, true}) {
      const std::uint64_t most = random() % 3 == 0 ? 2 : 1000;
      Rows checked(rows, most);
      if (pointers_first) checked.AddPointers(p, 8);
      checked.AddIndices(i, 8);
      if (!pointers_first) checked.AddPointers(p, 8);
      if (checked.too_many()) {
        ASSERT_EQ(most, 2u);
        ++large;
      } else {
        ASSERT_EQ(checked.bad().has_value(), want.has_value()) << round << pointers_first;
        if (pointers_first) {  // else it may be a later one that tells
          ASSERT_EQ(checked.bad(), want) << round;
        }
        bad += want ? 1 : 0;
      }
    }
  }
  EXPECT_GT(bad, 500);
  EXPECT_GT(large, 100);
  Rows empty(1 << 20, 100);  // rows without elements take nothing
  empty.AddPointers(std::vector<std::byte>(8 << 20), 8);
  EXPECT_FALSE(empty.too_many());
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
