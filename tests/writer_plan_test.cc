// zt.writer: plans whose tensors share blobs, what is recorded of them, and progress.
#include "testing.h"

import zt;

namespace zt {
namespace {

Bytes Filled(std::size_t count, unsigned value) {
  return Bytes(count, static_cast<std::byte>(value));
}

// Objects that hold blobs of their own, share all of them, or some: first, last, or the ones of an
// earlier component.
class Shared : public ::testing::Test {
 protected:
  void SetUp() override {
    AddDense("a", one_);
    AddPair("a and b", one_, two_);    // only the second is its own
    AddPair("c and a", three_, one_);  // only the first
    AddPair("twice", four_, four_);    // the second is the first
    AddDense("b again", two_);         // three in a row without a blob
    AddPair("a and c", one_, three_);
    AddDense("d again", four_);
    AddDense("last", five_);
    AddDense("last again", five_);
  }

  void AddDense(const std::string& name, const Bytes& bytes) {
    ASSERT_OK(source_.Add(*DenseObject(name, {bytes.size()}, {DType::kU8}), {bytes}));
  }
  void AddPair(const std::string& name, const Bytes& left, const Bytes& right) {
    Object object{.name = name, .format = "pair/1", .shape = {2}};
    object.components = {{"left", {DType::kU8}, left.size()},
                         {"right", {DType::kU8}, right.size()}};
    ASSERT_OK(source_.Add(std::move(object), {left, right}));
  }

  // Several chunks, one, and fractions of one.
  Bytes one_ = Filled(1 << 20, 1), two_ = Filled(100, 2), three_ = Filled(300 << 10, 3),
        four_ = Filled(64, 4), five_ = Filled(10, 5);
  MemorySource source_;
};

std::string Where(const Manifest& manifest, const std::string& name) {
  for (const StoredObject& object : manifest.objects) {
    if (object.name != name) continue;
    std::string out;
    for (const StoredComponent& component : object.components) {
      out += component.role + " " + std::to_string(component.offset) + "+" +
             std::to_string(component.length) + " " + component.digest + ";";
    }
    return out;
  }
  return "missing";
}

// Objects of equal size, of which some have equal bytes; others differ in one byte, wherever the
// search for equal contents looks at first or last.
TEST(Canonical, PlansAreTheSameForAnyThreadsAndMemory) {
  constexpr std::size_t kSize = (5 << 20) + 24;  // several ranges
  std::vector<Bytes> contents;
  for (const std::size_t odd : {std::size_t{0}, kSize / 2, kSize - 1, std::size_t{3} << 20}) {
    contents.push_back(Filled(kSize, 7));
    contents.back()[odd] = std::byte{8};
  }
  contents.push_back(Filled(kSize, 7));
  MemorySource source;
  for (int i = 0; i < 12; ++i) {
    const Bytes& bytes = contents[i % contents.size()];
    // Other bytes, and the same numbers once they are f64.
    const DType dtype = i < 10 ? DType::kF64 : DType::kF32;
    const auto values = std::span(bytes).first(bytes.size() / 8 * 8);
    ASSERT_OK(source.Add(
        *DenseObject("t" + std::to_string(i), {values.size() / ByteWidth(dtype)}, {dtype}),
        {values}));
  }
  const std::vector<Bytes> copies = contents;  // elsewhere in memory, so not known to be equal
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(source.Add(*DenseObject("u" + std::to_string(i), {kSize / 8}, {DType::kF64}),
                         {std::span(copies[i]).first(kSize / 8 * 8)}));
  }
  PlanOptions options = {.spec = SpecVersion::k2_0};
  options.convert = [](const Object&) { return ElementType{DType::kF64}; };
  const auto shares = [&](const RangeOptions& how) {
    auto plan = Must(MakePlan(source, options));
    EXPECT_OK(MakeCanonical(source, plan, how));
    std::map<std::string, std::string> out;
    for (const PlannedObject& planned : plan.objects) {
      const auto& with = planned.components[0].shared_with;
      if (with) out[planned.object->name] = plan.objects[with->object].object->name;
    }
    return out;
  };
  const auto expected = shares({.threads = 1});
  EXPECT_EQ(expected.at("u0"), "t0");
  EXPECT_EQ(expected.at("u4"), "t4");
  EXPECT_EQ(expected.at("t5"), "t0");
  EXPECT_EQ(expected.count("t10") + expected.count("t11"), 0u);
  for (const unsigned threads : {2u, 3u, 8u}) {
    EXPECT_EQ(shares({.threads = threads, .memory_bytes = 1 << 20}), expected) << threads;
  }
  const std::atomic<bool> stop = true;
  auto plan = Must(MakePlan(source, options));
  EXPECT_THAT(MakeCanonical(source, plan, {.cancelled = &stop}),
              Fails(StatusCode::kCancelled, "interrupted"));
}

TEST_F(Shared, PlansNameTheFirstHolder) {
  const auto plan = Must(MakePlan(source_, {}));
  const auto with = [&](std::uint32_t object, std::uint32_t component) {
    return plan.objects[object].components[component].shared_with;
  };
  EXPECT_EQ(with(0, 0), std::nullopt);
  EXPECT_EQ(with(1, 0), (ComponentId{0, 0}));
  EXPECT_EQ(with(1, 1), std::nullopt);
  EXPECT_EQ(with(2, 1), (ComponentId{0, 0}));
  EXPECT_EQ(with(3, 1), (ComponentId{3, 0}));
  EXPECT_EQ(with(4, 0), (ComponentId{1, 1}));
  EXPECT_EQ(with(5, 0), (ComponentId{0, 0}));
  EXPECT_EQ(with(5, 1), (ComponentId{2, 0}));
  EXPECT_EQ(with(6, 0), (ComponentId{3, 0}));
  EXPECT_EQ(with(8, 0), (ComponentId{7, 0}));
  // What does not change is the source's own declaration.
  EXPECT_EQ(plan.objects[4].object.get(), &source_.objects()[4]);
}

TEST_F(Shared, EveryTensorIsRecordedAndCounted) {
  const auto plan = Must(MakePlan(source_, {}));
  Bytes reference;
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    for (const std::uint64_t memory : {std::uint64_t{1}, std::uint64_t{64} << 20}) {
      Bytes file;
      Progress last;
      WriterOptions options{.threads = threads, .memory_bytes = memory};
      options.progress = [&](const Progress& progress) {
        EXPECT_GE(progress.tensors, last.tensors);
        last = progress;
      };
      const auto writer = Writer::Create(MemorySink(file), options);
      ASSERT_OK((*writer)->AddSource(source_, plan));
      ASSERT_OK((*writer)->Finish());
      EXPECT_EQ(last.tensors, 9U);
      EXPECT_EQ(last.tensors_total, 9U);
      EXPECT_EQ(last.bytes, last.bytes_total);
      if (reference.empty()) reference = file;
      EXPECT_TRUE(file == reference) << threads << " threads, " << memory << " bytes";

      const auto manifest = Must((*writer)->manifest());
      ASSERT_EQ(manifest.objects.size(), 9U);
      const std::uint64_t two = 64 + (1 << 20), three = two + 128, four = three + (300 << 10);
      const auto at = [&](const Bytes& bytes, std::uint64_t offset) {
        return " " + std::to_string(offset) + "+" + std::to_string(bytes.size()) + " " +
               Crc32cText(Crc32c(bytes)) + ";";
      };
      EXPECT_EQ(Where(manifest, "a"), "data" + at(one_, 64));
      EXPECT_EQ(Where(manifest, "a and b"), "left" + at(one_, 64) + "right" + at(two_, two));
      EXPECT_EQ(Where(manifest, "c and a"), "left" + at(three_, three) + "right" + at(one_, 64));
      EXPECT_EQ(Where(manifest, "twice"), "left" + at(four_, four) + "right" + at(four_, four));
      EXPECT_EQ(Where(manifest, "b again"), "data" + at(two_, two));
      EXPECT_EQ(Where(manifest, "a and c"), "left" + at(one_, 64) + "right" + at(three_, three));
      EXPECT_EQ(Where(manifest, "d again"), "data" + at(four_, four));
      EXPECT_EQ(Where(manifest, "last"), "data" + at(five_, four + 64));
      EXPECT_EQ(Where(manifest, "last again"), "data" + at(five_, four + 64));
    }
  }
}

TEST_F(Shared, APlanMustShareWhatComesBefore) {
  const auto made = Must(MakePlan(source_, {}));
  const ComponentId later{7, 0}, itself{0, 0}, a_sharer{4, 0};
  for (const auto& [object, with] : {std::pair{0U, later}, {0U, itself}, {6U, a_sharer}}) {
    Plan plan = made;
    plan.objects[object].components[0].shared_with = with;
    Bytes file;
    const auto writer = Writer::Create(MemorySink(file), {});
    EXPECT_THAT((*writer)->AddSource(source_, plan),
                Fails(StatusCode::kInvalidArgument,
                      "tensor '" + made.objects[object].object->name +
                          "': the plan shares the blob of a component that has no blob"));
    EXPECT_TRUE(file.empty());
  }
}

// The order of the old version's array is the order of adding, aliases last.
TEST(Entries, KeepTheirOrderIn01) {
  const Bytes one = Filled(100, 1), two = Filled(10, 2);
  Bytes file;
  const auto writer = Writer::Create(MemorySink(file), {.spec = SpecVersion::k0_1});
  ASSERT_OK((*writer)->Add("z", {100}, {DType::kU8}, one));
  ASSERT_OK((*writer)->AddAlias("y", "z"));
  ASSERT_OK((*writer)->Add("x", {10}, {DType::kU8}, two));
  ASSERT_OK((*writer)->Finish());
  const auto manifest = Must((*writer)->manifest());
  ASSERT_EQ(manifest.objects.size(), 3U);
  EXPECT_EQ(manifest.objects[0].name, "z");
  EXPECT_EQ(manifest.objects[1].name, "x");
  EXPECT_EQ(manifest.objects[2].name, "y");
  EXPECT_EQ(Where(manifest, "y"), Where(manifest, "z"));
}

}  // namespace
}  // namespace zt
