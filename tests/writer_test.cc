// zt.writer: the bytes of a file, whatever the threads; streamed objects, digests, stages.
#include "testing.h"

import zt;

namespace zt {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// Bytes that do not compress.
Bytes Noise(std::size_t count, std::uint64_t seed = 1) {
  Bytes out(count);
  for (std::byte& byte : out) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    byte = static_cast<std::byte>(seed >> 32);
  }
  return out;
}

// Bytes that compress: a ramp of 16-bit numbers.
Bytes Ramp(std::size_t count) {
  Bytes out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::byte>(i % 2 == 0 ? i / 512 : 7);
  return out;
}

ElementType U8() { return {DType::kU8}; }

std::unique_ptr<Writer> MakeWriter(Bytes& out, WriterOptions options = {}) {
  return Must(Writer::Create(MemorySink(out), std::move(options)));
}

Manifest Parse(const Bytes& file) {
  const std::span all(file);
  const auto trailer = Must(LocateManifest(all.first(8), all.last(16), file.size()));
  auto manifest = Must(
      DecodeManifest(all.subspan(trailer.manifest_offset, trailer.manifest_bytes), trailer.family));
  EXPECT_OK(CheckLayout(manifest, trailer.manifest_offset));
  return manifest;
}

const StoredComponent& ComponentOf(const Manifest& manifest, std::string_view name,
                                   std::size_t at = 0) {
  for (const StoredObject& object : manifest.objects) {
    if (object.name == name) return object.components.at(at);
  }
  ADD_FAILURE() << "no object " << name;
  static const StoredComponent kNone;
  return kNone;
}

Bytes Stored(const Bytes& file, const StoredComponent& component) {
  return {file.begin() + static_cast<std::ptrdiff_t>(component.offset),
          file.begin() + static_cast<std::ptrdiff_t>(component.offset + component.length)};
}

// Decoded by zt.compress alone.
Bytes Decoded(const Bytes& file, const StoredComponent& component) {
  const Bytes stored = Stored(file, component);
  if (component.encoding == Encoding::kRaw) return stored;
  const StreamReader read = [&](std::uint64_t offset, std::span<std::byte> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = stored.at(offset + i);
    return OkStatus();
  };
  const auto stream =
      FindCodec(Encoding::kZstd)->OpenStream({}, read, stored.size(), component.decoded_bytes);
  Bytes out(component.decoded_bytes);
  EXPECT_OK(stream->Read(out));
  EXPECT_OK(stream->Finish());
  return out;
}

// ---- the bytes ----------------------------------------------------------------------------------

TEST(Golden, OneTensorOfTwoFloats) {
  const std::vector<float> values = Little(std::vector<float>{1.0F, -2.0F});
  Bytes file;
  const auto writer = MakeWriter(file);
  ASSERT_OK(writer->Add("w", {2}, {DType::kF32}, std::as_bytes(std::span(values))));
  ASSERT_OK(writer->Finish());

  using namespace std::string_view_literals;
  std::string want = "ZTEN1000";
  want.resize(64, '\0');
  want += "\x00\x00\x80\x3f\x00\x00\x00\xc0"sv;
  const std::string manifest =
      "\xa2"
      "\x67objects\xa1"
      "\x61w\xa3"
      "\x65shape\x81\x02"
      "\x66"
      "format\x65"
      "dense"
      "\x6a"
      "components\xa1"
      "\x64"
      "data\xa4"
      "\x65"
      "dtype\x63"
      "f32"
      "\x66"
      "digest\x71"
      "crc32c:0x" +
      Crc32cText(Crc32c(std::as_bytes(std::span(values)))).substr(9) +
      "\x66length\x08"
      "\x66offset\x18\x40"
      "\x67version\x65"
      "1.2.0";
  want += manifest;
  want += static_cast<char>(manifest.size());
  want += "\0\0\0\0\0\0\0ZTEN1000"sv;
  EXPECT_EQ(file, ToBytes(want));
  EXPECT_EQ(writer->file_bytes(), file.size());
}

TEST(Golden, NoTensor) {
  Bytes file;
  const auto writer = MakeWriter(file);
  ASSERT_OK(writer->Finish());
  using namespace std::string_view_literals;
  EXPECT_EQ(file, ToBytes("ZTEN1000\xa2\x67objects\xa0\x67version\x65"
                          "1.2.0\x18\0\0\0\0\0\0\0ZTEN1000"sv));
}

TEST(Bytes, AreTheSameWhetherStreamedOrNot) {
  const Bytes data = Ramp(9 * kMiB + 5);
  for (const Compression compression :
       {Compression::kNone, Compression::kIfGain, Compression::kAlways}) {
    WriterOptions options = {.storage = {.compression = compression}};
    Bytes at_once;
    {
      const auto writer = MakeWriter(at_once, options);
      ASSERT_OK(writer->Add("t", {data.size()}, U8(), data));
      ASSERT_OK(writer->Finish());
    }
    for (const std::uint64_t declared : {std::uint64_t{data.size()}, kUnknownSize}) {
      for (const std::size_t piece : {std::size_t{100'003}, kMiB, 4 * kMiB, data.size()}) {
        Bytes streamed;
        const auto writer = MakeWriter(streamed, options);
        Object declaration = {.name = "t", .shape = {data.size()}};
        declaration.components = {{"data", U8(), declared}};
        auto object = Must(writer->Begin(declaration));
        for (std::size_t at = 0; at < data.size(); at += piece) {
          ASSERT_OK(object->Append(std::span(data).subspan(at, std::min(piece, data.size() - at))));
        }
        ASSERT_OK(object->Finish());
        ASSERT_OK(writer->Finish());
        EXPECT_TRUE(streamed == at_once) << piece;
      }
    }
  }
}

// ---- encoding, digests, aliases -----------------------------------------------------------------

TEST(Compression, IsKeptOnlyWhereItGains) {
  Bytes file;
  const auto writer = MakeWriter(file, {.storage = {.compression = Compression::kIfGain}});
  const Bytes noise = Noise(100'000), ramp = Ramp(100'000);
  // 1.5 % of it compresses away: less than the 2 % asked for; and 4 %: more.
  Bytes little = noise, enough = noise;
  std::fill_n(little.begin(), 1'500, std::byte{0});
  std::fill_n(enough.begin(), 4'000, std::byte{0});
  ASSERT_OK(writer->Add("noise", {noise.size()}, U8(), noise));
  ASSERT_OK(writer->Add("little", {noise.size()}, U8(), little));
  ASSERT_OK(writer->Add("enough", {noise.size()}, U8(), enough));
  ASSERT_OK(writer->Add("ramp", {ramp.size()}, U8(), ramp));
  ASSERT_OK(writer->Finish());
  const Manifest manifest = Parse(file);
  EXPECT_EQ(ComponentOf(manifest, "noise").encoding, Encoding::kRaw);
  EXPECT_EQ(ComponentOf(manifest, "little").encoding, Encoding::kRaw);
  EXPECT_EQ(ComponentOf(manifest, "enough").encoding, Encoding::kZstd);
  EXPECT_EQ(ComponentOf(manifest, "ramp").encoding, Encoding::kZstd);
  EXPECT_EQ(Decoded(file, ComponentOf(manifest, "enough")), enough);
  EXPECT_EQ(Decoded(file, ComponentOf(manifest, "ramp")), ramp);
}

TEST(Compression, EmptyComponents) {
  for (const auto& [compression, encoding] : {std::pair(Compression::kNone, Encoding::kRaw),
                                              std::pair(Compression::kIfGain, Encoding::kRaw),
                                              std::pair(Compression::kAlways, Encoding::kZstd)}) {
    for (const bool streamed : {false, true}) {
      Bytes file;
      const auto writer = MakeWriter(file, {.storage = {.compression = compression}});
      if (streamed) {
        auto object =
            Must(writer->Begin({.name = "e", .shape = {0, 3}, .components = {{"data", U8()}}}));
        ASSERT_OK(object->Finish());
      } else {
        ASSERT_OK(writer->Add("e", {0, 3}, U8(), {}));
      }
      ASSERT_OK(writer->Finish());
      const Manifest manifest = Parse(file);
      const StoredComponent& component = ComponentOf(manifest, "e");
      EXPECT_EQ(component.encoding, encoding);
      EXPECT_EQ(component.decoded_bytes, 0U);
      EXPECT_EQ(component.length == 0, encoding == Encoding::kRaw);
      EXPECT_EQ(Decoded(file, component), Bytes());
      EXPECT_EQ(component.digest, Crc32cText(Crc32c(Stored(file, component))));
    }
  }
}

// By every way in, and the library's defaults alone.
TEST(Digests, AreTheVersionsOwnUnlessOneIsNamed) {
  for (const SpecVersion spec :
       {SpecVersion::k0_1, SpecVersion::k1_1, SpecVersion::k1_2, SpecVersion::k2_0}) {
    const std::string own(Name(Traits(spec).digest));
    EXPECT_EQ(own, spec == SpecVersion::k2_0 ? "xxh3" : "crc32c");
    const Bytes data = Ramp(1000);
    MemorySource source;
    for (const char* name : {"planned", "edited"})
      ASSERT_OK(source.Add(*DenseObject(name, {1000}, U8()), {data}));
    auto plan = Must(MakePlan(source, {.spec = spec}));
    EXPECT_EQ(plan.objects[0].components[0].storage.digest, Traits(spec).digest);
    plan.objects[1].components[0].storage = {};
    Bytes file;
    const auto writer = MakeWriter(file, {.spec = spec});
    ASSERT_OK(writer->AddSource(source, plan));
    ASSERT_OK(writer->Add("dense", {1000}, U8(), data));
    const Object object = *DenseObject("none", {1000}, U8());
    ASSERT_OK(writer->Add(object, {data}, {{.digest = DigestKind::kNone}}));
    auto streamed = Must(writer->Begin(*DenseObject("streamed", {1000}, U8())));
    ASSERT_OK(streamed->Append(data));
    ASSERT_OK(streamed->Finish());
    ASSERT_OK(writer->Finish());
    const auto reader = Must(Reader::Open(MemoryBytes(file, "f")));
    EXPECT_EQ(reader->manifest().objects.size(), 5U);
    for (const StoredObject& each : reader->manifest().objects) {
      const std::string& digest = each.components[0].digest;
      EXPECT_EQ(digest.substr(0, digest.find(':')), each.name == "none" ? "" : own) << each.name;
    }
  }
}

TEST(Components, EachWithItsOwnStorage) {
  const Bytes ramp = Ramp(10'000);
  Bytes file;
  const auto writer = MakeWriter(file);
  Object object = {.name = "q", .format = "quantized_group", .shape = {100, 100}};
  object.attributes = {{"bits", 8}, {"group_size", 1}};
  object.components = {{"packed_weight", U8()}, {"scales", U8()}, {"zeros", U8()}, {"extra", U8()}};
  ASSERT_OK(writer->Add(object, {ramp, ramp, ramp, {}},
                        {{Compression::kAlways, DigestKind::kSha256},
                         {Compression::kNone, DigestKind::kXxh3},
                         {Compression::kNone, DigestKind::kNone},
                         {}}));
  ASSERT_OK(writer->Finish());
  const Manifest manifest = Parse(file);
  std::vector<std::string> found;
  for (const StoredComponent& c : manifest.objects[0].components) {
    found.push_back(c.role + " " + std::string(Name(c.encoding)) + " " +
                    c.digest.substr(0, c.digest.find(':')));
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("packed_weight zstd sha256", "scales raw xxh3",
                                                     "zeros raw ", "extra raw crc32c"));
}

TEST(Aliases, ShareABlob) {
  Bytes file;
  const auto writer = MakeWriter(file);
  const Bytes data = Noise(1000);
  ASSERT_OK(writer->Add("a", {1000}, U8(), data));
  ASSERT_OK(writer->AddAlias("b", "a"));
  ASSERT_OK(writer->AddAlias("c", "b"));
  ASSERT_OK(writer->Finish());
  const Manifest manifest = Parse(file);
  ASSERT_EQ(manifest.objects.size(), 3U);
  for (const char* name : {"b", "c"}) {
    EXPECT_EQ(ComponentOf(manifest, name).offset, 64U);
    EXPECT_EQ(ComponentOf(manifest, name).digest, ComponentOf(manifest, "a").digest);
  }
  EXPECT_LT(file.size(), 1500U);
}

// Keeps a buffer of the writer's from one call to the next.
class KeepingStage final : public Stage {
 public:
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Chunk& chunk) override {
    if (kept.empty()) kept = chunk.pool->Take(4096);
    std::memcpy(kept.bytes().data(), chunk.bytes().data(),
                std::min(kept.bytes().size(), chunk.bytes().size()));
    return OkStatus();
  }
  Buffer kept;
};

TEST(Stages, ABufferThatOneKeepsMayOutliveTheWriter) {
  const Bytes data = Noise(4096);
  for (const unsigned threads : {1U, 4U}) {
    auto stage = std::make_shared<KeepingStage>();
    Bytes file;
    {
      const auto writer = MakeWriter(file, {.threads = threads, .stages = {stage}});
      ASSERT_OK(writer->Add("t", {data.size()}, U8(), data));
      ASSERT_OK(writer->Finish());
    }
    EXPECT_TRUE(std::equal(data.begin(), data.end(), stage->kept.bytes().begin()));
  }
}

class FailingStage final : public Stage {
 public:
  Status Process(Chunk& chunk) override {
    return chunk.offset >= 2 * kMiB ? InvalidData("the stage's own words") : OkStatus();
  }
};

TEST(Stages, TheErrorOfACustomOneNamesTheTensor) {
  const Bytes data = Noise(4 * kMiB);
  for (const unsigned threads : {1U, 4U}) {
    Bytes file;
    const auto writer =
        MakeWriter(file, {.threads = threads, .stages = {std::make_shared<FailingStage>()}});
    (void)writer->Add("good", {1000}, U8(), std::span(data).first(1000));
    (void)writer->Add("bad", {data.size()}, U8(), data);
    EXPECT_EQ(Why(writer->Finish()), "tensor 'bad': the stage's own words");
    EXPECT_TRUE(file.empty());
  }
}

TEST(Stages, TheErrorOfACustomOneNamesTheFileOfASource) {
  const Bytes data = Noise(4 * kMiB);
  MemorySource source;
  ASSERT_OK(source.Add(*DenseObject("bad", {data.size()}, U8()), {data}));
  source.SetFile("model.bin");
  const auto plan = Must(MakePlan(source, {}));
  for (const unsigned threads : {1U, 4U}) {
    Bytes file;
    const auto writer =
        MakeWriter(file, {.threads = threads, .stages = {std::make_shared<FailingStage>()}});
    (void)writer->AddSource(source, plan);
    EXPECT_EQ(Why(writer->Finish()), "model.bin: tensor 'bad': the stage's own words");
    EXPECT_TRUE(file.empty());
  }
}

TEST(Numbers, TheErrorNamesTheTensorAndCountsAll) {
  std::vector<float> values(3 << 20, 1.0F);  // several chunks
  for (std::size_t i = 0; i < values.size(); i += 1 << 18) values[i] = 1e38F;
  values = Little(std::move(values));
  MemorySource source;
  ASSERT_OK(source.Add(*DenseObject("fine", {16}, {DType::kF32}),
                       {std::as_bytes(std::span(values)).subspan(4, 64)}));
  ASSERT_OK(source.Add(*DenseObject("layer.3", {values.size()}, {DType::kF32}),
                       {std::as_bytes(std::span(values))}));
  source.SetFile("model.bin");
  for (const OnOverflow policy : {OnOverflow::kError, OnOverflow::kInf, OnOverflow::kSaturate}) {
    for (const unsigned threads : {1U, 4U}) {
      Bytes file;
      const auto writer = MakeWriter(file, {.threads = threads});
      const auto plan = Must(MakePlan(source, {.on_overflow = policy, .convert = [](const Object&) {
                                                 return ElementType{DType::kF16};
                                               }}));
      Status status = writer->AddSource(source, plan);
      if (status.ok()) status = writer->Finish();
      if (policy == OnOverflow::kError) {
        EXPECT_THAT(status,
                    Fails(StatusCode::kOutOfRange,
                          StartsWith("model.bin: tensor 'layer.3': 12 values do not fit f16")));
        EXPECT_TRUE(file.empty());
      } else {
        ASSERT_OK(status);
        ASSERT_EQ(writer->numeric_findings().size(), 1U);
        EXPECT_EQ(writer->numeric_findings()[0].tensor, "layer.3");
        EXPECT_EQ(writer->numeric_findings()[0].counts.overflow, 12U);
        EXPECT_EQ(writer->numeric_findings()[0].counts.nan_lost, 0U);
      }
    }
  }
}

}  // namespace
}  // namespace zt
