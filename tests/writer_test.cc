// zt.writer: the bytes of a file, whatever the threads; streamed objects, digests, stages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "little_endian.h"

import zt;

namespace zt {
namespace {

using ::testing::StartsWith;

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMiB = 1 << 20;

Bytes Text(std::string_view text) {
  Bytes out;
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

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
  auto writer = Writer::Create(MemorySink(out), std::move(options));
  EXPECT_TRUE(writer.ok()) << Message(writer.status());
  return *std::move(writer);
}

Manifest Parse(const Bytes& file) {
  const std::span all(file);
  const auto trailer = LocateManifest(all.first(8), all.last(16), file.size());
  EXPECT_TRUE(trailer.ok());
  auto manifest = DecodeManifest(all.subspan(trailer->manifest_offset, trailer->manifest_bytes),
                                 trailer->family);
  EXPECT_TRUE(manifest.ok()) << Message(manifest.status());
  EXPECT_TRUE(CheckLayout(*manifest, trailer->manifest_offset).ok());
  return *std::move(manifest);
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
  EXPECT_TRUE(stream->Read(out).ok());
  EXPECT_TRUE(stream->Finish().ok());
  return out;
}

// ---- the bytes -----------------------------------------------------------------------------------------------

TEST(Golden, OneTensorOfTwoFloats) {
  const std::vector<float> values = Little(std::vector<float>{1.0F, -2.0F});
  Bytes file;
  const auto writer = MakeWriter(file);
  ASSERT_TRUE(writer->Add("w", {2}, {DType::kF32}, std::as_bytes(std::span(values))).ok());
  ASSERT_TRUE(writer->Finish().ok());

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
  EXPECT_EQ(file, Text(want));
  EXPECT_EQ(writer->file_bytes(), file.size());
}

TEST(Golden, NoTensor) {
  Bytes file;
  const auto writer = MakeWriter(file);
  ASSERT_TRUE(writer->Finish().ok());
  using namespace std::string_view_literals;
  EXPECT_EQ(file, Text("ZTEN1000\xa2\x67objects\xa0\x67version\x65"
                       "1.2.0\x18\0\0\0\0\0\0\0ZTEN1000"sv));
}

TEST(Layout, BlobsAreAlignedAndTheGapsZero) {
  Bytes file;
  const auto writer = MakeWriter(file);
  const Bytes data = Noise(70);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(writer->Add(name, {70}, U8(), data).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const Manifest manifest = Parse(file);
  EXPECT_EQ(ComponentOf(manifest, "a").offset, 64U);
  EXPECT_EQ(ComponentOf(manifest, "b").offset, 192U);
  EXPECT_EQ(ComponentOf(manifest, "c").offset, 320U);
  for (const std::size_t begin : {134U, 262U}) {
    for (std::size_t i = begin; i < begin + 58; ++i) EXPECT_EQ(file[i], std::byte{0}) << i;
  }
  EXPECT_EQ(Stored(file, ComponentOf(manifest, "c")), data);
}

// A file of large and small, dense and sparse, raw and compressed, planned and streamed objects.
Bytes Everything(unsigned threads, std::uint64_t memory) {
  const Bytes ramp = Ramp(11 * kMiB + 6), noise = Noise(5 * kMiB + 2);
  const auto columns = Little(std::vector<std::uint64_t>{1, 2});
  const auto rows = Little(std::vector<std::uint64_t>{0, 1, 2});
  const auto pointers = std::as_bytes(std::span(rows)), indices = std::as_bytes(std::span(columns));
  Bytes file;
  WriterOptions options;
  options.threads = threads;
  options.memory_bytes = memory;
  options.storage.compression = Compression::kIfGain;
  const auto writer = MakeWriter(file, options);
  writer->SetAttribute("k", 1);
  MemorySource source;
  for (int i = 0; i < 300; ++i) {
    auto object = DenseObject("small." + std::to_string(i), {100}, {DType::kF16});
    EXPECT_TRUE(
        source.Add(*std::move(object), {std::span(noise).subspan(static_cast<std::size_t>(i), 200)})
            .ok());
  }
  PlanOptions plan_options;
  plan_options.convert = [](const Object&) { return ElementType{DType::kBF16}; };
  plan_options.on_overflow = OnOverflow::kInf;
  const auto plan = MakePlan(source, plan_options);
  EXPECT_TRUE(plan.ok());
  EXPECT_TRUE(writer->AddSource(source, *plan).ok());
  EXPECT_TRUE(writer->Add("ramp", {ramp.size() / 2}, {DType::kF16}, ramp).ok());
  EXPECT_TRUE(writer->Add("noise", {noise.size()}, U8(), noise).ok());
  Object sparse = {.name = "sparse", .format = "sparse_csr", .shape = {2, 3}};
  sparse.components = {
      {"values", {DType::kU8}}, {"indices", {DType::kU64}}, {"indptr", {DType::kU64}}};
  EXPECT_TRUE(writer->Add(sparse, {std::span(noise).first(2), indices, pointers}).ok());
  EXPECT_TRUE(writer->AddAlias("tied", "noise").ok());
  Object streamed = {.name = "streamed", .format = "two/1", .shape = {1}};
  streamed.components = {{"x", U8()}, {"y", U8()}};
  auto object = writer->Begin(streamed, {{Compression::kAlways, DigestKind::kSha256}, {}});
  EXPECT_TRUE(object.ok());
  EXPECT_TRUE((*object)->Append(ramp).ok());
  EXPECT_TRUE((*object)->NextComponent().ok());
  EXPECT_TRUE((*object)->Append(noise).ok());
  EXPECT_TRUE((*object)->Finish().ok());
  EXPECT_TRUE(writer->Finish().ok());
  return file;
}

TEST(Bytes, AreTheSameForAnyThreadsAndMemory) {
  const Bytes once = Everything(1, 64 * kMiB);
  EXPECT_EQ(Parse(once).objects.size(), 305U);
  for (const unsigned threads : {1U, 2U, 3U, 8U}) {
    for (const std::uint64_t memory : {std::uint64_t{0}, 8 * kMiB, 64 * kMiB}) {
      EXPECT_TRUE(Everything(threads, memory) == once)
          << threads << " threads, " << memory << " bytes";
    }
  }
}

TEST(Bytes, AreTheSameWhetherStreamedOrNot) {
  const Bytes data = Ramp(9 * kMiB + 5);
  for (const Compression compression :
       {Compression::kNone, Compression::kIfGain, Compression::kAlways}) {
    WriterOptions options;
    options.storage.compression = compression;
    Bytes at_once;
    {
      const auto writer = MakeWriter(at_once, options);
      ASSERT_TRUE(writer->Add("t", {data.size()}, U8(), data).ok());
      ASSERT_TRUE(writer->Finish().ok());
    }
    for (const std::uint64_t declared : {std::uint64_t{data.size()}, kUnknownSize}) {
      for (const std::size_t piece : {std::size_t{100'003}, kMiB, 4 * kMiB, data.size()}) {
        Bytes streamed;
        const auto writer = MakeWriter(streamed, options);
        Object declaration = {.name = "t", .shape = {data.size()}};
        declaration.components = {{"data", U8(), declared}};
        auto object = writer->Begin(declaration);
        ASSERT_TRUE(object.ok());
        for (std::size_t at = 0; at < data.size(); at += piece) {
          ASSERT_TRUE((*object)
                          ->Append(std::span(data).subspan(at, std::min(piece, data.size() - at)))
                          .ok());
        }
        ASSERT_TRUE((*object)->Finish().ok());
        ASSERT_TRUE(writer->Finish().ok());
        EXPECT_TRUE(streamed == at_once) << piece;
      }
    }
  }
}

// ---- reading -------------------------------------------------------------------------------------------------

// Tensors in memory that are served by Read alone; those whose names begin with "ordered" must be read in order.
class ServedSource final : public TensorSource {
 public:
  void Add(std::string name, Bytes bytes, ElementType element) {
    auto object = DenseObject(std::move(name), {bytes.size() / ByteWidth(element.dtype)}, element);
    objects_.push_back(*std::move(object));
    bytes_.push_back(std::move(bytes));
  }
  std::string_view format() const override { return "served"; }
  bool sequential(ComponentId id) const override {
    return objects_[id.object].name.starts_with("ordered");
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    std::copy_n(bytes_[id.object].data() + offset, out.size(), out.data());
    return OkStatus();
  }

 private:
  std::vector<Bytes> bytes_;
};

// Writes over all small buffers of the pool: whoever still points to one that was given back reads that.
class SpoilStage final : public Stage {
 public:
  Status Process(Chunk& chunk) override {
    for (std::size_t size = 4096; size <= 65536; size += 4096) {
      const Buffer buffer = chunk.pool->Take(size);
      std::ranges::fill(buffer.bytes(), std::byte{0xee});
    }
    return OkStatus();
  }
};

// A batch holds components that are read in order and others. What becomes of one of them leaves the others alone.
TEST(Reading, ComponentsReadInOrderAndOthersShareABatch) {
  ServedSource source;
  source.Add("ordered.a", Noise(4000, 1), {DType::kF32});
  source.Add("b", Noise(4000, 2), {DType::kI32});
  source.Add("ordered.c", Noise(4000, 3), {DType::kI32});
  source.Add("d", Ramp(4000), {DType::kF32});
  source.Add("ordered.e", Ramp(4000), {DType::kF32});
  PlanOptions options;
  options.storage = {Compression::kIfGain, DigestKind::kSha256};
  options.on_overflow = OnOverflow::kInf;
  options.convert = [](const Object& object) -> std::optional<ElementType> {
    if (object.components[0].element.dtype == DType::kF32) return ElementType{DType::kBF16};
    return std::nullopt;
  };
  auto plan = MakePlan(source, options);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  for (const unsigned threads : {1U, 3U}) {
    Bytes file;
    const auto writer =
        MakeWriter(file, {.threads = threads, .stages = {std::make_shared<SpoilStage>()}});
    ASSERT_TRUE(writer->AddSource(source, *plan).ok());
    ASSERT_TRUE(writer->Finish().ok());
    const Manifest manifest = Parse(file);
    EXPECT_EQ(Decoded(file, ComponentOf(manifest, "b")), Noise(4000, 2));
    EXPECT_EQ(Decoded(file, ComponentOf(manifest, "ordered.c")), Noise(4000, 3));
  }
}

// A source gives some bytes as a view and their neighbours as extents; they lie one after another.
TEST(Reading, ViewsBetweenExtents) {
  class Mixed final : public TensorSource {
   public:
    Mixed() : data_(Noise(64 * 100)), bytes_(MemoryBytes(data_, "mixed")) {
      for (int i = 0; i < 64; ++i) {
        objects_.push_back(*DenseObject("t" + std::to_string(i), {100}, U8()));
      }
    }
    std::string_view format() const override { return "mixed"; }
    Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
      return bytes_->ReadAt(id.object * 100 + offset, out);
    }
    std::optional<Extent> extent(ComponentId id) const override {
      return Extent{bytes_.get(), id.object * std::uint64_t{100}, 100};
    }
    std::optional<std::span<const std::byte>> View(ComponentId id) const override {
      if (id.object % 3 != 1) return std::nullopt;
      return std::span(data_).subspan(id.object * std::size_t{100}, 100);
    }

   private:
    Bytes data_;
    std::shared_ptr<ByteSource> bytes_;
  } source;
  const auto plan = MakePlan(source, {});
  ASSERT_TRUE(plan.ok());
  Bytes file;
  const auto writer = MakeWriter(file, {.threads = 2});
  ASSERT_TRUE(writer->AddSource(source, *plan).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const Manifest manifest = Parse(file);
  const Bytes data = Noise(64 * 100);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(Decoded(file, ComponentOf(manifest, "t" + std::to_string(i))),
              Bytes(data.begin() + i * 100, data.begin() + i * 100 + 100));
  }
}

// Digests that need order: several components at once, each in its order.
TEST(Digests, OfManyLargeComponentsAtOnce) {
  for (const DigestKind kind : {DigestKind::kSha256, DigestKind::kXxh3}) {
    std::vector<Bytes> data;
    for (int i = 0; i < 8; ++i) data.push_back(Noise(kMiB + 1000 * static_cast<std::size_t>(i), 7));
    Bytes file;
    WriterOptions options = {.threads = 4};
    options.storage.digest = kind;
    const auto writer = MakeWriter(file, options);
    for (std::size_t i = 0; i < data.size(); ++i) {
      ASSERT_TRUE(writer->Add("t" + std::to_string(i), {data[i].size()}, U8(), data[i]).ok());
      ASSERT_TRUE(
          writer->Add("s" + std::to_string(i), {5}, U8(), std::span(data[i]).first(5)).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    const Manifest manifest = Parse(file);
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto hasher = MakeHasher(kind);
      hasher->Update(data[i]);
      EXPECT_EQ(ComponentOf(manifest, "t" + std::to_string(i)).digest, hasher->Finish());
    }
  }
}

// ---- encoding, digests, aliases ------------------------------------------------------------------------------

TEST(Compression, IsKeptOnlyWhereItGains) {
  Bytes file;
  WriterOptions options;
  options.storage.compression = Compression::kIfGain;
  const auto writer = MakeWriter(file, options);
  const Bytes noise = Noise(100'000), ramp = Ramp(100'000);
  // 1.5 % of it compresses away: less than the 2 % asked for; and 4 %: more.
  Bytes little = noise, enough = noise;
  std::fill_n(little.begin(), 1'500, std::byte{0});
  std::fill_n(enough.begin(), 4'000, std::byte{0});
  ASSERT_TRUE(writer->Add("noise", {noise.size()}, U8(), noise).ok());
  ASSERT_TRUE(writer->Add("little", {noise.size()}, U8(), little).ok());
  ASSERT_TRUE(writer->Add("enough", {noise.size()}, U8(), enough).ok());
  ASSERT_TRUE(writer->Add("ramp", {ramp.size()}, U8(), ramp).ok());
  ASSERT_TRUE(writer->Finish().ok());
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
      WriterOptions options;
      options.storage.compression = compression;
      const auto writer = MakeWriter(file, options);
      if (streamed) {
        auto object = writer->Begin({.name = "e", .shape = {0, 3}, .components = {{"data", U8()}}});
        ASSERT_TRUE(object.ok());
        ASSERT_TRUE((*object)->Finish().ok());
      } else {
        ASSERT_TRUE(writer->Add("e", {0, 3}, U8(), {}).ok());
      }
      ASSERT_TRUE(writer->Finish().ok());
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

TEST(Digests, AreOverTheStoredBytes) {
  const Bytes data = Ramp(9 * kMiB);
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    Bytes file;
    const auto writer = MakeWriter(file, {.threads = 3});
    const DigestKind kinds[] = {DigestKind::kCrc32c, DigestKind::kSha256, DigestKind::kXxh3,
                                DigestKind::kNone};
    for (const DigestKind kind : kinds) {
      Object object = {
          .name = std::string(Name(kind)), .shape = {data.size()}, .components = {{"data", U8()}}};
      ASSERT_TRUE(writer->Add(object, {data}, {{compression, kind}}).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    const Manifest manifest = Parse(file);
    for (const DigestKind kind : kinds) {
      const StoredComponent& component = ComponentOf(manifest, Name(kind));
      if (kind == DigestKind::kNone) {
        EXPECT_EQ(component.digest, "");
        continue;
      }
      const auto hasher = MakeHasher(kind);
      hasher->Update(Stored(file, component));
      EXPECT_EQ(component.digest, hasher->Finish());
    }
  }
}

TEST(Digests, KnownAnswer) {
  Bytes file;
  const auto writer = MakeWriter(file);
  const Bytes abc = Text("abc"), digits = Text("123456789");
  ASSERT_TRUE(writer
                  ->Add({.name = "abc", .shape = {3}, .components = {{"data", U8()}}}, {abc},
                        {{Compression::kNone, DigestKind::kSha256}})
                  .ok());
  ASSERT_TRUE(writer->Add("digits", {9}, U8(), digits).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const Manifest manifest = Parse(file);
  EXPECT_EQ(ComponentOf(manifest, "abc").digest,
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ComponentOf(manifest, "digits").digest, "crc32c:0xE3069283");
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
      ASSERT_TRUE(source.Add(*DenseObject(name, {1000}, U8()), {data}).ok());
    auto plan = MakePlan(source, {.spec = spec});
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    EXPECT_EQ(plan->objects[0].components[0].storage.digest, Traits(spec).digest);
    plan->objects[1].components[0].storage = {};
    Bytes file;
    const auto writer = MakeWriter(file, {.spec = spec});
    ASSERT_TRUE(writer->AddSource(source, *plan).ok());
    ASSERT_TRUE(writer->Add("dense", {1000}, U8(), data).ok());
    const Object object = *DenseObject("none", {1000}, U8());
    ASSERT_TRUE(writer->Add(object, {data}, {{.digest = DigestKind::kNone}}).ok());
    auto streamed = writer->Begin(*DenseObject("streamed", {1000}, U8()));
    ASSERT_TRUE(streamed.ok()) << Message(streamed.status());
    ASSERT_TRUE((*streamed)->Append(data).ok());
    ASSERT_TRUE((*streamed)->Finish().ok());
    ASSERT_TRUE(writer->Finish().ok());
    const auto reader = Reader::Open(MemoryBytes(file, "f"));
    ASSERT_TRUE(reader.ok()) << Message(reader.status());
    EXPECT_EQ((*reader)->manifest().objects.size(), 5U);
    for (const StoredObject& each : (*reader)->manifest().objects) {
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
  ASSERT_TRUE(writer
                  ->Add(object, {ramp, ramp, ramp, {}},
                        {{Compression::kAlways, DigestKind::kSha256},
                         {Compression::kNone, DigestKind::kXxh3},
                         {Compression::kNone, DigestKind::kNone},
                         {}})
                  .ok());
  ASSERT_TRUE(writer->Finish().ok());
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
  ASSERT_TRUE(writer->Add("a", {1000}, U8(), data).ok());
  ASSERT_TRUE(writer->AddAlias("b", "a").ok());
  ASSERT_TRUE(writer->AddAlias("c", "b").ok());
  ASSERT_TRUE(writer->Finish().ok());
  const Manifest manifest = Parse(file);
  ASSERT_EQ(manifest.objects.size(), 3U);
  for (const char* name : {"b", "c"}) {
    EXPECT_EQ(ComponentOf(manifest, name).offset, 64U);
    EXPECT_EQ(ComponentOf(manifest, name).digest, ComponentOf(manifest, "a").digest);
  }
  EXPECT_LT(file.size(), 1500U);
}

class XorStage final : public Stage {
 public:
  Status Process(Chunk& chunk) override {
    Buffer out = chunk.pool->Take(chunk.bytes().size());
    for (std::size_t i = 0; i < chunk.bytes().size(); ++i)
      out.bytes()[i] = chunk.bytes()[i] ^ std::byte{0x5a};
    chunk.Replace(std::move(out));
    return OkStatus();
  }
};

TEST(Stages, ACustomOneSeesEveryChunk) {
  Bytes data = Ramp(9 * kMiB + 1);
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    Bytes file;
    WriterOptions options;
    options.threads = 2;
    options.storage.compression = compression;
    options.stages = {std::make_shared<XorStage>()};
    const auto writer = MakeWriter(file, options);
    ASSERT_TRUE(writer->Add("t", {data.size()}, U8(), data).ok());
    ASSERT_TRUE(writer->Finish().ok());
    Bytes want = data;
    for (std::byte& byte : want) byte ^= std::byte{0x5a};
    const Manifest manifest = Parse(file);
    EXPECT_TRUE(Decoded(file, ComponentOf(manifest, "t")) == want);
  }
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
      ASSERT_TRUE(writer->Add("t", {data.size()}, U8(), data).ok());
      ASSERT_TRUE(writer->Finish().ok());
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
    EXPECT_EQ(Message(writer->Finish()), "tensor 'bad': the stage's own words");
    EXPECT_TRUE(file.empty());
  }
}

TEST(Stages, TheErrorOfACustomOneNamesTheFileOfASource) {
  const Bytes data = Noise(4 * kMiB);
  MemorySource source;
  ASSERT_TRUE(source.Add(*DenseObject("bad", {data.size()}, U8()), {data}).ok());
  source.SetFile("model.bin");
  const auto plan = MakePlan(source, {});
  ASSERT_TRUE(plan.ok());
  for (const unsigned threads : {1U, 4U}) {
    Bytes file;
    const auto writer =
        MakeWriter(file, {.threads = threads, .stages = {std::make_shared<FailingStage>()}});
    (void)writer->AddSource(source, *plan);
    EXPECT_EQ(Message(writer->Finish()), "model.bin: tensor 'bad': the stage's own words");
    EXPECT_TRUE(file.empty());
  }
}

TEST(Numbers, TheErrorNamesTheTensorAndCountsAll) {
  std::vector<float> values(3 << 20, 1.0F);  // several chunks
  for (std::size_t i = 0; i < values.size(); i += 1 << 18) values[i] = 1e38F;
  values = Little(std::move(values));
  MemorySource source;
  ASSERT_TRUE(source
                  .Add(*DenseObject("fine", {16}, {DType::kF32}),
                       {std::as_bytes(std::span(values)).subspan(4, 64)})
                  .ok());
  ASSERT_TRUE(source
                  .Add(*DenseObject("layer.3", {values.size()}, {DType::kF32}),
                       {std::as_bytes(std::span(values))})
                  .ok());
  source.SetFile("model.bin");
  for (const OnOverflow policy : {OnOverflow::kError, OnOverflow::kInf, OnOverflow::kSaturate}) {
    for (const unsigned threads : {1U, 4U}) {
      Bytes file;
      const auto writer = MakeWriter(file, {.threads = threads});
      PlanOptions options;
      options.on_overflow = policy;
      options.convert = [](const Object&) { return ElementType{DType::kF16}; };
      const auto plan = MakePlan(source, options);
      ASSERT_TRUE(plan.ok());
      Status status = writer->AddSource(source, *plan);
      if (status.ok()) status = writer->Finish();
      if (policy == OnOverflow::kError) {
        EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
        EXPECT_THAT(std::string(Message(status)),
                    StartsWith("model.bin: tensor 'layer.3': 12 values do not fit f16"));
        EXPECT_TRUE(file.empty());
      } else {
        ASSERT_TRUE(status.ok());
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
