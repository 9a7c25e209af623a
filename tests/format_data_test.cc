// zt.format:data — what bytes show, however they are cut, and the budget of attribute values.
#include "testing.h"

import zt.compress;
import zt.core;
import zt.format;

namespace zt {
namespace {

Object Csr(DType dtype, std::uint64_t rows, std::uint64_t columns) {
  return {"m",
          "sparse_csr",
          {rows, columns},
          {},
          {{"indices", {dtype, ""}, 0}, {"indptr", {dtype, ""}, (rows + 1) * ByteWidth(dtype)}}};
}

// What is found where the bytes are cut into pieces at random, each looked at alone, and merged.
std::string Found(const Object& object, std::size_t component, const Bytes& bytes,
                  std::optional<std::uint64_t> indices, std::mt19937& random) {
  const DataRule rule = *RuleOf(object, component, bytes.size());
  DataValidator all(rule);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(bytes.size() - at, random() % 23);
    DataValidator piece(rule, at);
    const std::size_t half = size == 0 ? 0 : random() % size;
    for (const auto& [begin, end] : {std::pair(at, at + half), std::pair(at + half, at + size)}) {
      Bytes alone(bytes.size() + 8, std::byte{0xff});  // what follows is of no interest
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), end - begin, alone.begin());
      piece.Add(std::span(alone).first(end - begin));
    }
    EXPECT_EQ(piece.end(), at + size);
    all.Merge(piece);
    at += size;
  }
  EXPECT_EQ(all.end(), bytes.size());
  const Status status = all.Check(object, indices);
  return Why(status);
}

TEST(DataValidator, RowPointersHoweverTheyAreCut) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::kU64, DType::kI32, DType::kU16, DType::kU8}) {
    const std::size_t width = ByteWidth(dtype);
    std::vector<std::uint64_t> pointers;
    for (std::uint64_t i = 0; i < 100; ++i) pointers.push_back(i);
    const Object object = Csr(dtype, 99, 5);
    for (int round = 0; round < 50; ++round) {
      EXPECT_EQ(Found(object, 1, Words(pointers, width), 99, random), "");
      EXPECT_EQ(Found(object, 1, Words(pointers, width), 98, random),
                "the last row pointer is 99, there are 98 indices");
      const std::size_t bad = 1 + random() % 99;
      auto falling = pointers;
      falling[bad] = bad - 1;
      falling[std::min<std::size_t>(bad + 1, 99)] = bad == 99 ? 98 : bad + 1;
      EXPECT_EQ(Found(object, 1, Words(falling, width), bad == 99 ? 98 : 99, random), "");
      if (bad < 2) continue;
      falling[bad] = bad - 2;
      EXPECT_EQ(Found(object, 1, Words(falling, width), 99, random),
                "row pointer " + std::to_string(bad) + " is " + std::to_string(bad - 2) +
                    ", less than the one before");
    }
    auto first = pointers;
    first[0] = 1;
    EXPECT_EQ(Found(object, 1, Words(first, width), 99, random), "row pointer 0 is 1, not 0");
  }
}

TEST(DataValidator, IndicesHoweverTheyAreCut) {
  std::mt19937 random(2);
  const Object coo{"m", "sparse_coo", {7, 3, 11}, {}, {{"coords", {DType::kU32, ""}, 0}}};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> coords;
    for (const std::uint64_t bound : coo.shape) {
      for (int i = 0; i < 20; ++i) coords.push_back(random() % bound);
    }
    EXPECT_EQ(Found(coo, 0, Words(coords, 4), std::nullopt, random), "");
    const std::size_t bad = random() % 60;
    const std::uint64_t bound = coo.shape[bad / 20];
    coords[bad] = bound + random() % 2;
    EXPECT_EQ(Found(coo, 0, Words(coords, 4), std::nullopt, random),
              "index " + std::to_string(bad) + " is " + std::to_string(coords[bad]) +
                  ", beyond the dimension of " + std::to_string(bound));
  }
  const Object csr = Csr(DType::kI16, 4, 9);
  EXPECT_EQ(Found(csr, 0, Words({1, 0xffff, 3}, 2), std::nullopt, random),
            "index 1 is -1, negative");
  EXPECT_EQ(Found(csr, 0, {}, std::nullopt, random), "");
}

TEST(DataValidator, BoolsAndWhatHasNoRule) {
  std::mt19937 random(3);
  const Object object = *DenseObject("b", {40}, {DType::kBool, ""});
  Bytes bytes(40, std::byte{1});
  EXPECT_EQ(Found(object, 0, bytes, std::nullopt, random), "");
  bytes[30] = std::byte{9};
  bytes[17] = std::byte{2};
  EXPECT_EQ(Found(object, 0, bytes, std::nullopt, random),
            "element 17 of bool is 2, neither 0 nor 1");
  EXPECT_EQ(RuleOf(*DenseObject("u", {40}, {DType::kU8, ""}), 0, 40), std::nullopt);
  const Object coo{"m", "sparse_coo", {7, 3}, {}, {{"coords", {DType::kU32, ""}, 0}}};
  EXPECT_EQ(RuleOf(coo, 0, kUnknownSize)->each, kUnknownSize);
  EXPECT_NE(RuleOf(Csr(DType::kU64, 4, 4), 0, kUnknownSize), std::nullopt);
}

// A check for each component of an object.
std::vector<ContentCheck::Part> PartsOf(const Object& object, std::uint64_t memory) {
  std::vector<ContentCheck::Part> parts;
  for (std::size_t c = 0; c < object.components.size(); ++c) {
    const DataRule rule = *RuleOf(object, c, object.components[c].bytes);
    parts.push_back({std::make_shared<ContentCheck>(SpecVersion::k2_0, memory), rule});
    parts.back().check->Expect(rule, object);
  }
  return parts;
}

void Pass(ContentCheck& check, const Bytes& bytes) { check.Add(check.Look(0, bytes), bytes); }

// What the indices of an object show where they pass in pieces of any size.
std::string Judged(const Object& object, const std::vector<Bytes>& components, std::uint64_t memory,
                   std::mt19937_64& random) {
  const auto parts = PartsOf(object, memory);
  for (std::size_t c = 0; c < components.size(); ++c) {
    for (std::size_t at = 0; at < components[c].size();) {
      const std::size_t size = std::min<std::size_t>(random() % 20, components[c].size() - at);
      const auto piece = std::span(components[c]).subspan(at, size);
      parts[c].check->Add(parts[c].check->Look(at, piece), piece);
      at += size;
    }
  }
  const std::string first(Why(ContentCheck::CheckTogether(object, parts)));
  // For the next object with the same indices.
  EXPECT_EQ(Why(ContentCheck::CheckTogether(object, parts)), first);
  return first;
}

constexpr std::string_view kTooMuch = "bytes of memory; allow more";

// In every order, with enough memory to keep all and with less; against a set of the cells.
TEST(ContentCheck, TellCellsApartInAnyMemory) {
  std::mt19937_64 random(1);
  int unknown = 0, same = 0;
  for (int round = 0; round < 3000; ++round) {
    Object object{.name = "m", .format = "sparse_coo", .components = {{"coords", {DType::kU16}}}};
    for (std::size_t rank = 1 + random() % 4; object.shape.size() < rank;) {
      object.shape.push_back(1 + random() % 5);
    }
    const std::uint64_t places = *ElementCount(object.shape);
    std::vector<std::uint64_t> cells(1 + random() % 40);
    for (std::uint64_t& cell : cells) cell = random() % places;
    const bool ascend = random() % 4 != 0;
    if (ascend) std::sort(cells.begin(), cells.end());
    const std::set<std::uint64_t> known(cells.begin(), cells.end());
    if (ascend && random() % 2 == 0) cells.assign(known.begin(), known.end());
    std::vector<std::uint64_t> coords;
    for (std::size_t d = 0; d < object.shape.size(); ++d) {
      std::uint64_t below = 1;
      for (std::size_t e = d + 1; e < object.shape.size(); ++e) below *= object.shape[e];
      for (const std::uint64_t cell : cells) coords.push_back(cell / below % object.shape[d]);
    }
    std::sort(cells.begin(), cells.end());
    const auto twice = std::adjacent_find(cells.begin(), cells.end());
    const std::string want = twice == cells.end()
                                 ? ""
                                 : "two elements name cell " + std::to_string(*twice) +
                                       " in C order (zTensor 2.0 §5.2, zt.sparse_coo/1)";
    const std::uint64_t most = random() % 400;
    object.components[0].bytes = 2 * coords.size();
    const std::string found = Judged(object, {Words(coords, 2)}, most, random);
    if (most >= 8 * cells.size() || (ascend && most >= 4 * cells.size())) {
      ASSERT_EQ(found, want) << round;
    } else if (!found.ends_with(kTooMuch)) {  // another cell that is named twice may come first
      ASSERT_EQ(found.starts_with("two elements name cell "), !want.empty()) << round;
    }
    unknown += found.ends_with(kTooMuch) ? 1 : 0;
    same += found == want && !want.empty() ? 1 : 0;
    // The same where their number is not declared.
    object.components[0].bytes = kUnknownSize;
    const auto held = PartsOf(object, 1 << 20);
    const Bytes bytes = Words(coords, 2);
    for (const auto& piece :
         {std::span(bytes).first(bytes.size() / 3), std::span(bytes).subspan(bytes.size() / 3)}) {
      held[0].check->Add(held[0].check->Look(0, piece), piece);
    }
    object.components[0].bytes = bytes.size();
    ASSERT_EQ(Why(held[0].check->Check(held[0].rule, object, std::nullopt)), "") << round;
    ASSERT_EQ(Why(ContentCheck::CheckTogether(object, held)), want) << round;
  }
  EXPECT_GT(unknown, 100);
  EXPECT_GT(same, 500);
}

TEST(ContentCheck, WantRowsThatAscendWhicheverComponentComesFirst) {
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
    const std::string says = want ? "index " + std::to_string(*want) +
                                        " is not more than the one before in its row (zTensor 2.0 "
                                        "§5.2, zt.sparse_csr/1)"
                                  : "";
    for (const bool pointers_first : {false, true}) {
      Object object = Csr(DType::kU64, rows, 1000);
      std::vector<Bytes> components = {Words(indices, 8), Words(pointers, 8)};
      if (pointers_first) {
        std::swap(components[0], components[1]);
        std::swap(object.components[0], object.components[1]);
      }
      const std::uint64_t most = random() % 3 == 0 ? 2 : 1000;
      const std::string found = Judged(object, components, most, random);
      if (most == 2 && found.ends_with(kTooMuch)) {
        ++large;
      } else {
        ASSERT_EQ(found, says) << round << pointers_first;
        bad += want ? 1 : 0;
      }
    }
  }
  EXPECT_GT(bad, 500);
  EXPECT_GT(large, 100);
  const Object empty = Csr(DType::kU64, (1 << 20) - 1, 1);  // rows without elements take nothing
  EXPECT_EQ(Judged(empty, {{}, Bytes(8 << 20)}, 100, random), "");
}

// Matrices of the same indices under row pointers of their own, and the other way round: the bytes
// pass once, and every matrix is judged as by itself.
TEST(ContentCheck, ServesAllObjectsWithTheBytes) {
  const std::vector<std::uint64_t> kIndices = {1, 5, 2, 3, 3};
  const Object object = Csr(DType::kU64, 3, 9);  // components: indices, then indptr
  const auto first = PartsOf(object, 1000);
  Pass(*first[0].check, Words(kIndices, 8));
  Pass(*first[1].check, Words({0, 2, 4, 5}, 8));
  EXPECT_EQ(Why(ContentCheck::CheckTogether(object, first)), "");
  const std::string bad =
      " is not more than the one before in its row (zTensor 2.0 §5.2, "
      "zt.sparse_csr/1)";
  for (const auto& [words, says] : std::vector<std::pair<std::vector<std::uint64_t>, std::string>>{
           {{0, 2, 4, 5}, ""}, {{0, 2, 5, 5}, "index 4" + bad}, {{0, 3, 4, 5}, "index 2" + bad}}) {
    auto other = PartsOf(object, 1000);
    other[0] = first[0];
    Pass(*other[1].check, Words(words, 8));
    EXPECT_EQ(Why(ContentCheck::CheckTogether(object, other)), says);
  }
  auto last = PartsOf(object, 1000);
  last[1] = first[1];
  Pass(*last[0].check, Words({1, 2, 1, 1, 2}, 8));
  EXPECT_EQ(Why(ContentCheck::CheckTogether(object, last)), "index 3" + bad);
  // What was too much to keep decides nothing.
  auto small = PartsOf(object, 2);
  Pass(*small[0].check, Words({5, 4, 3, 2}, 8));
  small[1] = first[1];
  EXPECT_THAT(Why(ContentCheck::CheckTogether(object, small)), testing::EndsWith(kTooMuch));
  // Bytes that are indices of one object, pointers of another and coordinates of a third.
  const Object coo = {"m", "sparse_coo", {9}, {}, {{"coords", {DType::kU64, ""}, 24}}};
  const auto all = std::make_shared<ContentCheck>(SpecVersion::k2_0, 1000);
  std::vector<DataRule> rules = {*RuleOf(object, 0, 24), *RuleOf(object, 1, 24),
                                 *RuleOf(coo, 0, 24), *RuleOf(coo, 0, 24)};
  for (std::size_t i = 0; i < rules.size(); ++i) all->Expect(rules[i], i < 2 ? object : coo);
  EXPECT_EQ(all->Look(0, {}).size(), 3);
  Pass(*all, Words({0, 0, 2}, 8));
  for (const DataRule& rule : rules) EXPECT_EQ(Why(all->Check(rule, object, 2)), "");
  const auto part = [&](std::size_t i) { return ContentCheck::Part{all, rules[i]}; };
  EXPECT_THAT(Why(ContentCheck::CheckTogether(coo, std::array{part(2)})),
              testing::StartsWith("two elements name cell 0 in C order"));
  EXPECT_EQ(Why(ContentCheck::CheckTogether(object, std::array{part(0), part(1)})),
            "index 1" + bad);
}

// One row of equal indices takes no memory: of as many of them as there are row pointers, one is
// wrong. What shares the indices and has more rows asks for more.
TEST(ContentCheck, KeepsNoMoreThanRowsCanBegin) {
  const Object object = Csr(DType::kU8, 1, 9), rows = Csr(DType::kU8, 40, 9);
  const Bytes equal(1 << 20, std::byte{3});
  const std::uint64_t empty = PartsOf(object, 50)[0].check->kept_bytes();
  for (const bool more : {false, true}) {
    const auto parts = PartsOf(object, 50);
    if (more) parts[0].check->Expect(parts[0].rule, rows);
    Pass(*parts[0].check, equal);
    EXPECT_EQ(parts[0].check->kept_bytes() - empty, more ? 41 : 2);
    Pass(*parts[1].check, Words({0, 100}, 1));
    EXPECT_THAT(Why(ContentCheck::CheckTogether(object, parts)),
                testing::StartsWith("index 1 is not more than the one before in its row"));
    if (!more) continue;
    auto other = PartsOf(rows, 50);
    other[0] = parts[0];
    std::vector<std::uint64_t> pointers(41);
    std::iota(pointers.begin(), pointers.end(), 0U);
    Pass(*other[1].check, Words(pointers, 1));
    EXPECT_THAT(Why(ContentCheck::CheckTogether(rows, other)),
                testing::StartsWith("index 41 is not more than"));
  }
  // What is kept goes as soon as it is too much.
  const auto small = PartsOf(rows, 20);
  Pass(*small[0].check, equal);
  EXPECT_EQ(small[0].check->kept_bytes(), empty);
  EXPECT_THAT(Why(ContentCheck::CheckTogether(rows, small)), testing::EndsWith(kTooMuch));
}

TEST(ContentCheck, AsksWhatTheVersionAsks) {
  const Object coo = {"m", "sparse_coo", {4}, {}, {{"coords", {DType::kU64, ""}, 16}}};
  const DataRule rule = *RuleOf(coo, 0, 16);
  for (const SpecVersion version : {SpecVersion::k1_2, SpecVersion::k2_0}) {
    const auto check = std::make_shared<ContentCheck>(version, 1000);
    check->Expect(rule, coo);
    Pass(*check, Words({3, 3}, 8));
    EXPECT_EQ(Why(check->Check(rule, coo, std::nullopt)), "");
    EXPECT_EQ(ContentCheck::CheckTogether(coo, std::array{ContentCheck::Part{check, rule}}).ok(),
              version == SpecVersion::k1_2);
  }
}

TEST(DataValidator, TheLastHalfByteOfAnOddNumberOfPackedElements) {
  std::mt19937 random(5);
  const auto dense = [](const Value::Array& logical, std::uint64_t bytes) {
    Object object = *DenseObject("p", {bytes}, {DType::kU8, "f4_e2m1"});
    object.attributes = {{"logical_shape", Value(logical)}};
    return object;
  };
  const std::string says =
      "the last byte of an odd number of f4_e2m1 is 16, its high half is not 0";
  const Bytes bad = {std::byte{0xff}, std::byte{0x10}}, good = {std::byte{0xff}, std::byte{0xf}};
  EXPECT_EQ(Found(dense({Value(3)}, 2), 0, bad, std::nullopt, random), says);
  EXPECT_EQ(Found(dense({Value(3)}, 2), 0, good, std::nullopt, random), "");
  // Bytes before and after the one that counts, however they are cut.
  Bytes longer(100, std::byte{0xff});
  for (int round = 0; round < 50; ++round) {
    longer.back() = std::byte{round % 2 == 0 ? std::uint8_t{0x10} : std::uint8_t{0xf}};
    EXPECT_EQ(Found(dense({Value(199)}, 100), 0, longer, std::nullopt, random),
              round % 2 == 0 ? says : "");
  }
  // No shape of two bytes: the attribute says nothing.
  EXPECT_EQ(RuleOf(dense({}, 2), 0, 2), std::nullopt);
  EXPECT_EQ(RuleOf(dense({Value(7)}, 2), 0, 2), std::nullopt);
  EXPECT_EQ(RuleOf(dense({Value(4)}, 2), 0, 2), std::nullopt);
  Object coo{.name = "m",
             .format = "sparse_coo",
             .shape = {9},
             .components = {{"coords", {DType::kU64}, 24}, {"values", {DType::kU8, "f4_e2m1"}, 2}}};
  EXPECT_EQ(Found(coo, 1, bad, std::nullopt, random), says);
  coo.components[1].bytes = 3;  // one in each byte
  EXPECT_EQ(RuleOf(coo, 1, 3), std::nullopt);
  // Before all is known of the object, the last byte is remembered.
  const DataRule open = *RuleOf(dense({}, 2), 0, kUnknownSize);
  for (const Bytes& bytes : {bad, good}) {
    DataValidator validator(open), second(open, 1);
    validator.Add(std::span(bytes).first(1));
    second.Add(std::span(bytes).subspan(1));
    validator.Merge(second);
    validator.Merge(DataValidator(open, 2));
    EXPECT_EQ(validator.Check(dense({Value(3)}, 2), std::nullopt).ok(), bytes == good);
    EXPECT_OK(validator.Check(dense({Value(4)}, 2), std::nullopt));
  }
}

StoredObject Blob(std::string name, Value::Map attributes) {
  return {std::move(name),
          "dense",
          {1},
          std::move(attributes),
          {{"data", {DType::kU8, ""}, 64, 1, Encoding::kRaw, 1, ""}}};
}

TEST(AttributeValues, OfOneOneVersionAreCountedOnce) {
  // More than half of what is allowed. 1.1 has its objects before its version, and
  // they are read twice.
  const std::size_t many = kMaxAttributeValues / 2 + 1000;
  Manifest manifest;
  manifest.objects = {Blob("t", Value::Map{{"a", Value(Value::Array(many, Value()))}})};
  auto bytes = Must(EncodeManifest(manifest, SpecVersion::k1_1));
  manifest.objects.clear();
  const auto decoded = Must(DecodeManifest(bytes, SpecVersion::k1_1));
  EXPECT_EQ(decoded.objects[0].attributes[0].second.AsArray()->size(), many);
}

TEST(AttributeValues, NoMoreAreWrittenThanAreRead) {
  // 256 names for one object, the attributes of which are written for each.
  const std::size_t each = kMaxAttributeValues / 256 - 2;  // and the array, and the map
  for (const std::size_t more : {0u, 1u}) {
    ManifestEncoder encoder(SpecVersion::k1_2);
    const Value array(Value::Array(each + more, Value()));
    ASSERT_OK(encoder.Add(Blob("t", Value::Map{{"a", array}})));
    for (int i = 1; i < 256; ++i) encoder.AddAlias("t" + std::to_string(i), 0);
    const auto bytes = encoder.Finish({});
    if (more == 0) {
      ASSERT_OK(bytes);
      EXPECT_FALSE(encoder.Finish(Value::Map{{"one", "more"}}).ok());
    } else {
      EXPECT_THAT(
          bytes,
          Fails(StatusCode::kUnimplemented,
                "the attributes hold more than 16777216 values, which no reader would accept"));
    }
  }
  // Of byte planes, what says so is counted as well: in 1.2 a map in the attributes, in 2.0
  // one in the part.
  StoredObject planes = Blob("t", {});
  planes.components[0].element = {DType::kF32};
  planes.components[0].encoding = Encoding::kPlanes;
  planes.components[0].parameters = {.frame_content = 1024, .group = 1024, .width = 4, .rotate = 1};
  planes.components[0].decoded_bytes = 4;
  // "rotate" is the default in 2.0.
  for (const auto& [version, own] : {std::pair(SpecVersion::k1_2, 5u), {SpecVersion::k2_0, 3u}}) {
    for (const std::size_t more : {0u, 1u}) {
      ManifestEncoder encoder(version);
      planes.components[0].offset = version == SpecVersion::k1_2 ? 64 : 4096;
      planes.attributes = {{"a", Value(Value::Array(each - own + more, Value()))}};
      ASSERT_OK(encoder.Add(planes));
      for (int i = 1; i < 256; ++i) encoder.AddAlias("t" + std::to_string(i), 0);
      EXPECT_EQ(encoder.Finish({}).ok(), more == 0);
    }
  }
  AttributeBudget budget;
  const Value::Map half{{"a", Value(Value::Array(kMaxAttributeValues / 4, Value()))}};
  for (int i = 0; i < 3; ++i) EXPECT_OK(budget.Take(half));
  EXPECT_FALSE(budget.Take(half).ok());
}

}  // namespace
}  // namespace zt
