// zt.format:data — what bytes show, however they are cut, and the budget of attribute values.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

import zt.compress;
import zt.core;
import zt.format;

namespace zt {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Little(const std::vector<std::uint64_t>& values, std::size_t width) {
  Bytes out;
  for (const std::uint64_t value : values) {
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>(value >> 8 * i));
  }
  return out;
}

Object Csr(DType dtype, std::uint64_t rows, std::uint64_t columns) {
  return {"m",
          "sparse_csr",
          {rows, columns},
          {},
          {{"indices", {dtype, ""}, 0}, {"indptr", {dtype, ""}, 0}}};
}

// What is found where the bytes are cut into pieces at random, each looked at alone, and merged.
std::string Found(const Object& object, std::size_t component, const Bytes& bytes,
                  std::optional<std::uint64_t> indices, std::mt19937& random) {
  const DataRule rule = *RuleOf(object, component, bytes.size());
  DataFacts all(rule);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(bytes.size() - at, random() % 23);
    DataFacts piece(rule, at);
    const std::size_t half = size == 0 ? 0 : random() % size;
    piece.Add(std::span(bytes).subspan(at, half));
    piece.Add(std::span(bytes).subspan(at + half, size - half));
    EXPECT_EQ(piece.end(), at + size);
    all.Merge(piece);
    at += size;
  }
  EXPECT_EQ(all.end(), bytes.size());
  const Status status = all.Check(object, indices);
  return std::string(Message(status));
}

TEST(DataFacts, RowPointersHoweverTheyAreCut) {
  std::mt19937 random(1);
  for (const DType dtype : {DType::kU64, DType::kI32, DType::kU16, DType::kU8}) {
    const std::size_t width = ByteWidth(dtype);
    std::vector<std::uint64_t> pointers;
    for (std::uint64_t i = 0; i < 100; ++i) pointers.push_back(i);
    const Object object = Csr(dtype, 99, 5);
    for (int round = 0; round < 50; ++round) {
      EXPECT_EQ(Found(object, 1, Little(pointers, width), 99, random), "");
      EXPECT_EQ(Found(object, 1, Little(pointers, width), 98, random),
                "the last row pointer is 99, there are 98 indices");
      const std::size_t bad = 1 + random() % 99;
      auto falling = pointers;
      falling[bad] = bad - 1;
      falling[std::min<std::size_t>(bad + 1, 99)] = bad == 99 ? 98 : bad + 1;
      EXPECT_EQ(Found(object, 1, Little(falling, width), bad == 99 ? 98 : 99, random), "");
      if (bad < 2) continue;
      falling[bad] = bad - 2;
      EXPECT_EQ(Found(object, 1, Little(falling, width), 99, random),
                "row pointer " + std::to_string(bad) + " is " + std::to_string(bad - 2) +
                    ", less than the one before");
    }
    auto first = pointers;
    first[0] = 1;
    EXPECT_EQ(Found(object, 1, Little(first, width), 99, random), "row pointer 0 is 1, not 0");
  }
}

TEST(DataFacts, IndicesHoweverTheyAreCut) {
  std::mt19937 random(2);
  const Object coo{"m", "sparse_coo", {7, 3, 11}, {}, {{"coords", {DType::kU32, ""}, 0}}};
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> coords;
    for (const std::uint64_t bound : coo.shape) {
      for (int i = 0; i < 20; ++i) coords.push_back(random() % bound);
    }
    EXPECT_EQ(Found(coo, 0, Little(coords, 4), std::nullopt, random), "");
    const std::size_t bad = random() % 60;
    const std::uint64_t bound = coo.shape[bad / 20];
    coords[bad] = bound + random() % 2;
    EXPECT_EQ(Found(coo, 0, Little(coords, 4), std::nullopt, random),
              "index " + std::to_string(bad) + " is " + std::to_string(coords[bad]) +
                  ", beyond the dimension of " + std::to_string(bound));
  }
  const Object csr = Csr(DType::kI16, 4, 9);
  EXPECT_EQ(Found(csr, 0, Little({1, 0xffff, 3}, 2), std::nullopt, random),
            "index 1 is -1, negative");
  EXPECT_EQ(Found(csr, 0, {}, std::nullopt, random), "");
}

TEST(DataFacts, BoolsAndWhatHasNoRule) {
  std::mt19937 random(3);
  const Object object = *DenseObject("b", {40}, {DType::kBool, ""});
  Bytes bytes(40, std::byte{1});
  EXPECT_EQ(Found(object, 0, bytes, std::nullopt, random), "");
  bytes[30] = std::byte{9};
  bytes[17] = std::byte{2};
  EXPECT_EQ(Found(object, 0, bytes, std::nullopt, random),
            "element 17 of bool is 2, neither 0 nor 1");
  EXPECT_EQ(RuleOf(*DenseObject("u", {40}, {DType::kU8, ""}), 0, 40), std::nullopt);
  EXPECT_EQ(RuleOf(Csr(DType::kU64, 4, 4), 0, kUnknownSize), std::nullopt);
}

StoredObject Blob(std::string name, Value::Map attributes) {
  return {std::move(name),
          "dense",
          {1},
          std::move(attributes),
          {{"data", {DType::kU8, ""}, 64, 1, Encoding::kRaw, 1, ""}}};
}

TEST(AttributeValues, OfOneOneVersionAreCountedOnce) {
  // More than half of what is allowed. 1.1 has its objects before its version, and they are read twice.
  const std::size_t many = kMaxAttributeValues / 2 + 1000;
  Manifest manifest;
  manifest.objects = {Blob("t", Value::Map{{"a", Value(Value::Array(many, Value()))}})};
  auto bytes = EncodeManifest(manifest, SpecVersion::k1_1);
  ASSERT_TRUE(bytes.ok()) << Message(bytes.status());
  manifest.objects.clear();
  const auto decoded = DecodeManifest(*bytes, SpecVersion::k1_1);
  ASSERT_TRUE(decoded.ok()) << Message(decoded.status());
  EXPECT_EQ(decoded->objects[0].attributes[0].second.AsArray()->size(), many);
}

TEST(AttributeValues, NoMoreAreWrittenThanAreRead) {
  // 256 names for one object, the attributes of which are written for each.
  const std::size_t each = kMaxAttributeValues / 256 - 2;  // and the array, and the map
  for (const std::size_t more : {0u, 1u}) {
    ManifestEncoder encoder(SpecVersion::k1_2);
    const Value array(Value::Array(each + more, Value()));
    ASSERT_TRUE(encoder.Add(Blob("t", Value::Map{{"a", array}})).ok());
    for (int i = 1; i < 256; ++i) encoder.AddAlias("t" + std::to_string(i), 0);
    const auto bytes = encoder.Finish({});
    if (more == 0) {
      ASSERT_TRUE(bytes.ok()) << Message(bytes.status());
      EXPECT_FALSE(encoder.Finish(Value::Map{{"one", "more"}}).ok());
    } else {
      EXPECT_EQ(bytes.status().code(), StatusCode::kUnimplemented);
      EXPECT_EQ(Message(bytes.status()),
                "the attributes hold more than 16777216 values, which no reader would accept");
    }
  }
  AttributeBudget budget;
  const Value::Map half{{"a", Value(Value::Array(kMaxAttributeValues / 4, Value()))}};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.Take(half).ok());
  EXPECT_FALSE(budget.Take(half).ok());
}

}  // namespace
}  // namespace zt
