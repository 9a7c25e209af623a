// Sources over other sources: everything that a source says of a component passes through them.
#include <regex>

#include "testing.h"

import zt;
import zt.convert.composite;
import zt.convert.files;

namespace zt {
namespace {

class NoDigest final : public UnorderedReader {
  Status Read(std::uint64_t, std::span<std::byte>) override { return OkStatus(); }
  Status Check(std::uint64_t, std::span<const std::byte>) override { return OkStatus(); }
};

// Answers every question about its one component with something else than TensorSource does.
class Probe final : public TensorSource {
 public:
  Probe() {
    Object object = *DenseObject("w", {4}, {DType::kU8, ""});
    object.format = "quantized_group";
    object.components[0].role = "scales";
    const Value::Map entry = {
        {"name", "w.scales"}, {"dtype", "u8"}, {"shape", Value::Array{std::uint64_t{4}}}};
    object.attributes.emplace_back(kSourceTensorsAttribute, Value::Map{{"scales", entry}});
    objects_.push_back(std::move(object));
    warnings_ = {"a warning"};
    attributes_.emplace_back("key", "value");
  }
  const std::string& file(ComponentId) const override { return name_; }
  std::string_view format() const override { return "probe"; }
  Status CheckReadable(std::uint32_t) const override { return Unsupported("readable"); }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override {
    return Unsupported("read");
  }
  bool sequential(ComponentId) const override { return true; }
  std::shared_ptr<UnorderedReader> unordered_reader(ComponentId) override { return apart; }
  bool seekable() const override { return false; }
  std::uint64_t preferred_read(ComponentId) const override { return 3; }
  void WillRead(std::span<const ComponentId> components) override {
    hints.assign(components.begin(), components.end());
  }
  std::optional<Extent> extent(ComponentId) const override { return Extent{nullptr, 5, 4}; }
  std::string_view version() const override { return "8"; }
  std::optional<StoredForm> stored(ComponentId) const override {
    return StoredForm{.digest = "none"};
  }
  StatusOr<std::uint64_t> Size(ComponentId) const override { return std::uint64_t{9}; }
  std::optional<Identity> identity(ComponentId) const override { return Identity{this, 6, 4}; }
  std::optional<std::span<const std::byte>> View(ComponentId) const override {
    return std::as_bytes(std::span(name_).first(4));
  }
  std::optional<EncodedStream> encoded(ComponentId) const override {
    return EncodedStream{.encoding = Encoding::kZstd};
  }
  StatusOr<std::vector<Frame>> Frames(ComponentId) const override { return std::vector<Frame>(7); }
  Status Finish() override { return Unsupported("finish"); }
  Status CheckRead(std::span<const ComponentId> components) override {
    hints.assign(components.begin(), components.end());
    return Unsupported("check");
  }

  const std::shared_ptr<UnorderedReader> apart = std::make_shared<NoDigest>();
  std::vector<ComponentId> hints;

 private:
  const std::string name_ = "probe.bin";
};

using Wrap = StatusOr<std::unique_ptr<TensorSource>> (*)(std::unique_ptr<TensorSource>);

void ExpectForwarded(Wrap wrap) {
  auto owned = std::make_unique<Probe>();
  Probe& probe = *owned;
  const std::unique_ptr<TensorSource> source = Must(wrap(std::move(owned)));
  ASSERT_NE(source.get(), &probe);
  const ComponentId id{0, 0};
  EXPECT_EQ(source->file(id), "probe.bin");
  EXPECT_EQ(source->file({}), "probe.bin");
  EXPECT_EQ(source->format(), "probe");
  EXPECT_THAT(source->warnings(), ::testing::ElementsAre("a warning"));
  EXPECT_NE(FindMember(source->attributes(), "key"), nullptr);
  EXPECT_EQ(Message(source->CheckReadable(0)), "readable");
  EXPECT_EQ(Message(source->Read(id, 0, {})), "read");
  EXPECT_TRUE(source->sequential(id));
  EXPECT_EQ(source->unordered_reader(id), probe.apart);
  EXPECT_FALSE(source->seekable());
  EXPECT_EQ(source->preferred_read(id), 3u);
  source->WillRead({&id, 1});
  EXPECT_THAT(probe.hints, ::testing::ElementsAre(id));
  EXPECT_EQ(source->extent(id)->offset, 5u);
  EXPECT_EQ(source->version(), "8");
  EXPECT_EQ(source->stored(id)->digest, "none");
  EXPECT_EQ(*source->Size(id), 9u);
  EXPECT_EQ(source->identity(id)->value, 6u);
  EXPECT_EQ(source->View(id)->size(), 4u);
  EXPECT_EQ(source->encoded(id)->encoding, Encoding::kZstd);
  EXPECT_EQ(source->Frames(id)->size(), 7u);
  EXPECT_EQ(Message(source->Finish()), "finish");
  probe.hints.clear();
  EXPECT_EQ(Message(source->CheckRead({&id, 1})), "check");
  EXPECT_THAT(probe.hints, ::testing::ElementsAre(id));
}

TEST(WrappedSource, MergedSourcesForwardEverything) {
  ExpectForwarded([](std::unique_ptr<TensorSource> source) {
    std::vector<std::unique_ptr<TensorSource>> sources;
    sources.push_back(std::move(source));
    sources.push_back(std::make_unique<MemorySource>());  // one source alone is returned as it is
    return MergeSources(std::move(sources), {"probe.bin", "memory"});
  });
}

TEST(WrappedSource, PrefixedNamesForwardEverything) {
  ExpectForwarded([](std::unique_ptr<TensorSource> source) {
    return StatusOr<std::unique_ptr<TensorSource>>(PrefixNames(std::move(source), "a/"));
  });
}

TEST(WrappedSource, SplitGroupsForwardEverything) { ExpectForwarded(Ungroup); }

TEST(WrappedSource, RegroupedObjectsForwardEverything) {
  ExpectForwarded(
      [](std::unique_ptr<TensorSource> source) -> StatusOr<std::unique_ptr<TensorSource>> {
        auto regrouped = std::make_unique<RegroupedSource>(std::move(source));
        regrouped->Keep(0);
        return regrouped;
      });
}

TEST(WrappedSource, RefusesAnObjectBeforeItsOriginIsAsked) {
  RegroupedSource source(std::make_unique<Probe>());
  source.Keep(0);
  source.Keep(0);
  source.Refuse(InvalidData("a part"));
  EXPECT_EQ(Message(source.CheckReadable(0)), "readable");
  EXPECT_EQ(Message(source.Read({0, 0}, 0, {})), "read");
  EXPECT_EQ(Message(source.CheckReadable(1)), "a part");
  EXPECT_EQ(Message(source.Read({1, 0}, 0, {})), "a part");
}

// Makes its component itself.
class Making final : public RegroupedSource {
 public:
  using RegroupedSource::RegroupedSource;
  bool passes(ComponentId) const override { return false; }
};

TEST(WrappedSource, PromisesNothingOfTheOriginsBytesForThoseItMakes) {
  auto owned = std::make_unique<Probe>();
  const Probe& probe = *owned;
  Making source(std::move(owned));
  source.Keep(0);
  const ComponentId id{0, 0};
  EXPECT_FALSE(source.sequential(id));
  EXPECT_EQ(source.unordered_reader(id), nullptr);
  EXPECT_EQ(source.preferred_read(id), 0u);
  EXPECT_EQ(source.extent(id), std::nullopt);
  EXPECT_FALSE(source.stored(id));
  EXPECT_EQ(*source.Size(id), 4u);
  EXPECT_FALSE(source.identity(id));
  EXPECT_FALSE(source.View(id));
  EXPECT_FALSE(source.encoded(id));
  EXPECT_TRUE(Must(source.Frames(id)).empty());
  EXPECT_EQ(source.file(id), "probe.bin");
  EXPECT_EQ(Message(source.CheckReadable(0)), "readable");
  source.WillRead({&id, 1});
  EXPECT_THAT(probe.hints, ::testing::ElementsAre(id));
}

// A virtual function that is new in TensorSource has to be forwarded, and asked about above.
TEST(WrappedSource, OverridesEveryVirtualFunction) {
  std::ifstream file(ZT_TEST_DATA "/../../modules/source/source.cppm");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto named = [&](std::string_view from, std::string_view to, const char* pattern) {
    const std::size_t begin = text.find(from), end = text.find(to, begin);
    EXPECT_NE(end, text.npos);
    const std::string part = text.substr(begin, end - begin);
    std::set<std::string> names;
    const std::regex regex(pattern);
    for (std::sregex_iterator it(part.begin(), part.end(), regex), last; it != last; ++it)
      names.insert((*it)[1]);
    return names;
  };
  const auto declared =
      named("\nclass TensorSource {", "\n};", "virtual [^;({~]*?([A-Za-z_]+)\\([^;{]*[;{]");
  const auto forwarded = named("\nclass WrappedSource ", "\n};", "([A-Za-z_]+)\\([^;{]*override;");
  EXPECT_GE(declared.size(), 15u);
  EXPECT_EQ(forwarded, declared);
}

}  // namespace
}  // namespace zt
