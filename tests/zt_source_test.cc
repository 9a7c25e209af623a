// zt.reader:tensors — .zt files as sources: any range of any component, from many threads,
// under their digests.
#include "testing.h"

import zt;

namespace zt {
namespace {

Bytes Pattern(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes out(count);
  for (std::byte& b : out) b = static_cast<std::byte>(random() & 0x3f);  // compressible
  return out;
}

// Counts what is read, and can spoil bytes.
class WatchedBytes final : public ByteSource {
 public:
  explicit WatchedBytes(Bytes bytes) : bytes_(std::move(bytes)) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return InvalidData("ends early");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    read_bytes += out.size();
    return OkStatus();
  }
  Bytes& bytes() { return bytes_; }
  std::atomic<std::uint64_t> read_bytes = 0;

 private:
  Bytes bytes_;
  std::string name_ = "f.zt";
};

struct Written {
  Bytes file;
  Manifest manifest;
};

// One dense u8 tensor for each of `data`, named t0, t1, ...
Written Write(const std::vector<Bytes>& data, WriterOptions options) {
  Written out;
  auto writer = Must(Writer::Create(MemorySink(out.file), options));
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_OK(writer->Add("t" + std::to_string(i), {data[i].size()}, {DType::kU8, ""}, data[i]));
  }
  EXPECT_OK(writer->Finish());
  out.manifest = *writer->manifest();
  return out;
}

WriterOptions Options(Compression compression, DigestKind digest, std::uint64_t frame = 64 << 10) {
  return {.storage = {compression, digest}, .zstd = {.frame_bytes = frame}};
}

std::unique_ptr<TensorSource> MustOpen(std::shared_ptr<ByteSource> bytes) {
  auto source = OpenZt(std::move(bytes));
  EXPECT_OK(source);
  return source.ok() ? *std::move(source) : nullptr;
}

std::unique_ptr<TensorSource> MustOpen(const Bytes& file) {
  return MustOpen(std::make_shared<WatchedBytes>(file));
}

Status Read(TensorSource& source, ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  return source.Read(id, offset, out);
}

TEST(ZtSource, DeclaresWhatTheManifestSaysInTheOrderOfTheBytes) {
  const Bytes data = Pattern(64, 1);
  Bytes file;
  auto writer = *Writer::Create(MemorySink(file), {});
  writer->SetAttribute("made", Value::Map{{"by", "hand"}});
  Object object{"z", "my.format/1", {4, 8}, {{"k", std::uint64_t{7}}}, {}};
  object.components = {{"b", {DType::kU8, "f8_e5m2"}, 32}, {"a", {DType::kI16, ""}, 20}};
  ASSERT_OK(writer->Add(object, {std::span(data).first(32), std::span(data).first(20)}));
  ASSERT_OK(writer->Add("empty", {0, 3}, {DType::kF32, ""}, {}));
  ASSERT_OK(writer->Add("m", {8}, {DType::kF64, ""}, data));
  ASSERT_OK(writer->Finish());
  const auto source = MustOpen(file);
  EXPECT_EQ(source->format(), "zt");
  EXPECT_EQ(source->attributes(), (Value::Map{{"made", Value::Map{{"by", "hand"}}}}));
  ASSERT_EQ(source->objects().size(), 3u);
  const Object& first = source->objects()[0];
  EXPECT_EQ(first.name, "z");
  EXPECT_EQ(first.format, "my.format/1");
  EXPECT_THAT(first.shape, ElementsAre(4, 8));
  EXPECT_EQ(first.attributes, object.attributes);
  ASSERT_EQ(first.components.size(), 2u);
  EXPECT_EQ(first.components[0].role, "b");
  EXPECT_EQ(first.components[0].element, (ElementType{DType::kU8, "f8_e5m2"}));
  EXPECT_EQ(first.components[1].role, "a");
  EXPECT_EQ(first.components[1].bytes, 20u);
  EXPECT_EQ(source->objects()[1].name, "empty");
  EXPECT_EQ(source->objects()[2].name, "m");
}

TEST(ZtSource, ServesAnyRangeOfRawAndOfCompressedData) {
  const std::vector<Bytes> data = {Pattern(300'001, 2), Pattern(1, 3), Pattern(65'536, 4)};
  for (const auto compression : {Compression::kNone, Compression::kAlways}) {
    for (const auto digest :
         {DigestKind::kNone, DigestKind::kCrc32c, DigestKind::kSha256, DigestKind::kXxh3}) {
      const auto source = MustOpen(Write(data, Options(compression, digest)).file);
      std::mt19937 random(5);
      for (int round = 0; round < 200; ++round) {
        const std::uint32_t object = random() % 3;
        const std::size_t offset = random() % (data[object].size() + 1);
        const std::size_t count = random() % (data[object].size() - offset + 1);
        Bytes out(count);
        ASSERT_OK(Read(*source, {object, 0}, offset, out));
        ASSERT_TRUE(std::equal(out.begin(), out.end(),
                               data[object].begin() + static_cast<std::ptrdiff_t>(offset)));
      }
      Bytes one(1);
      EXPECT_EQ(Read(*source, {1, 0}, 1, one).code(), StatusCode::kInvalidArgument);
      EXPECT_OK(source->Finish());
    }
  }
}

TEST(ZtSource, SaysHowItIsBestRead) {
  const std::vector<Bytes> data = {Pattern(300'000, 6)};
  const Bytes raw = Write(data, Options(Compression::kNone, DigestKind::kCrc32c)).file;
  const auto plain = MustOpen(raw);
  EXPECT_FALSE(plain->sequential({}));
  EXPECT_EQ(plain->preferred_read({}), 0u);
  const auto extent = plain->extent({});
  ASSERT_TRUE(extent.has_value());
  EXPECT_EQ(extent->offset, 64u);
  EXPECT_EQ(extent->length, 300'000u);
  const auto packed =
      MustOpen(Write(data, Options(Compression::kAlways, DigestKind::kCrc32c)).file);
  EXPECT_FALSE(packed->sequential({}));
  EXPECT_EQ(packed->preferred_read({}), 64u << 10);
  EXPECT_FALSE(packed->extent({}).has_value());
  EXPECT_TRUE(packed->identity({}).has_value());
  // These digests cannot be put together from pieces.
  EXPECT_TRUE(
      MustOpen(Write(data, Options(Compression::kNone, DigestKind::kSha256)).file)->sequential({}));
  EXPECT_TRUE(
      MustOpen(Write(data, Options(Compression::kAlways, DigestKind::kXxh3)).file)->sequential({}));
}

// Whatever order several threads read it in: each byte once, and hashed as they are handed on.
TEST(ZtSource, ABlobWhoseDigestNeedsOrderIsReadInAnyOrder) {
  constexpr std::size_t kPart = 100'000;
  const Bytes data = Pattern(3 * kPart, 8);
  for (const SpecVersion spec : {SpecVersion::k1_2, SpecVersion::k2_0}) {
    for (const bool damaged : {false, true}) {
      WriterOptions options = Options(Compression::kNone, DigestKind::kXxh3);
      options.spec = spec;
      const auto bytes = std::make_shared<WatchedBytes>(Write({data}, options).file);
      const auto source = MustOpen(bytes);
      const std::uint64_t place = source->extent({})->offset;
      if (damaged) bytes->bytes()[place + kPart] ^= std::byte{1};
      const std::uint64_t before = bytes->read_bytes;
      const auto reader = source->unordered_reader({});
      ASSERT_NE(reader, nullptr);
      EXPECT_EQ(reader->extent()->offset, place);
      Bytes out(data.size());
      const auto part = [&](std::size_t i) { return std::span(out).subspan(i * kPart, kPart); };
      for (const std::size_t i : {2, 0, 1}) ASSERT_OK(reader->Read(i * kPart, part(i)));
      EXPECT_EQ(out == data, !damaged);
      EXPECT_OK(reader->Check(0, part(0)));
      EXPECT_OK(reader->Check(kPart, part(1)));
      const Status checked = reader->Check(2 * kPart, part(2));
      EXPECT_EQ(checked.ok(), !damaged);
      if (damaged) EXPECT_THAT(Message(checked), ::testing::HasSubstr("the digest is xxh3:"));
      EXPECT_EQ(bytes->read_bytes - before, data.size());
    }
  }
}

TEST(ZtSource, ReadsNoMoreOfTheFileThanAFrameForARange) {
  const Written written =
      Write({Pattern(4 << 20, 7)}, Options(Compression::kAlways, DigestKind::kCrc32c));
  const auto bytes = std::make_shared<WatchedBytes>(written.file);
  const auto source = MustOpen(bytes);
  Bytes out(100);
  ASSERT_OK(Read(*source, {}, 1'000'000, out));
  EXPECT_LT(bytes->read_bytes, 128u << 10);
}

TEST(ZtSource, ServesManyThreadsAtOnce) {
  std::vector<Bytes> data;
  for (std::uint32_t i = 0; i < 4; ++i) data.push_back(Pattern(500'000 + i, 10 + i));
  for (const auto compression : {Compression::kNone, Compression::kAlways}) {
    const auto source = MustOpen(Write(data, Options(compression, DigestKind::kCrc32c)).file);
    std::atomic<int> wrong = 0;
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          // All of every component, each thread in an order of its own.
          constexpr std::size_t kStep = 30'000;
          std::vector<std::pair<std::uint32_t, std::size_t>> pieces;
          for (std::uint32_t o = 0; o < data.size(); ++o) {
            for (std::size_t at = 0; at < data[o].size(); at += kStep) pieces.emplace_back(o, at);
          }
          std::shuffle(pieces.begin(), pieces.end(), std::mt19937(t));
          Bytes out;
          for (const auto& [o, at] : pieces) {
            out.resize(std::min(kStep, data[o].size() - at));
            if (!Read(*source, {o, 0}, at, out).ok() ||
                std::memcmp(out.data(), data[o].data() + at, out.size()) != 0) {
              ++wrong;
            }
          }
        });
      }
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(ZtSource, ADigestOfNeighboursReadWithOneCallIsChecked) {
  const Written good = Write({Pattern(64, 1), Pattern(64, 2), Pattern(64, 3)},
                             Options(Compression::kNone, DigestKind::kCrc32c));
  const auto bytes = std::make_shared<WatchedBytes>(good.file);
  bytes->bytes()[64 + 64 + 5] ^= std::byte{1};
  const auto source = MustOpen(bytes);
  const Extent first = *source->extent({0, 0});
  Bytes all(192);
  EXPECT_EQ(first.bytes->ReadAt(first.offset, all).code(), StatusCode::kDataLoss);
  Bytes one(64);
  EXPECT_OK(Read(*source, {0, 0}, 0, one));
  EXPECT_EQ(Read(*source, {1, 0}, 0, one).code(), StatusCode::kDataLoss);
  EXPECT_OK(Read(*source, {2, 0}, 0, one));
}

// Everything of `file` into another one.
Status ConvertAll(const std::shared_ptr<ByteSource>& file, unsigned threads, Bytes* out) {
  auto source = OpenZt(file);
  if (!source.ok()) return source.status();
  (*source)->SetFile("f.zt");
  auto plan = MakePlan(**source, {});
  if (!plan.ok()) return plan.status();
  auto writer = Writer::Create(MemorySink(*out), {.threads = threads});
  if (!writer.ok()) return writer.status();
  if (Status status = (*writer)->AddSource(**source, *plan); !status.ok()) return status;
  return (*writer)->Finish();
}

TEST(ZtSource, ACorruptFrameIsOneErrorThatNamesFileAndTensor) {
  const std::vector<Bytes> data = {Pattern(200'000, 30), Pattern(300'000, 31),
                                   Pattern(200'000, 32)};
  // Without a digest: the frame's own checksum tells.
  const Written good = Write(data, Options(Compression::kAlways, DigestKind::kNone, 32 << 10));
  const StoredComponent& stored = good.manifest.objects[1].components[0];
  for (const unsigned threads : {1u, 4u}) {
    Bytes out;
    ASSERT_OK(ConvertAll(std::make_shared<WatchedBytes>(good.file), threads, &out));
    EXPECT_EQ(out, Write(data, {}).file);
    for (const std::uint64_t at : {std::uint64_t{2}, stored.length / 3, stored.length / 2}) {
      const auto bytes = std::make_shared<WatchedBytes>(good.file);
      bytes->bytes()[stored.offset + at] ^= std::byte{0x20};
      EXPECT_THAT(ConvertAll(bytes, threads, &out),
                  Fails(StatusCode::kDataLoss, StartsWith("f.zt: tensor 't1': ")));
      EXPECT_TRUE(out.empty());
    }
  }
}

TEST(ZtSource, AStreamWithoutASeekTableIsReadInOrderAndMayBeginAnew) {
  // One frame, and no seek table: what the encoder yields, as a component of its own.
  const Bytes data = Pattern(1'000'000, 40);
  const Codec& zstd = *FindCodec(Encoding::kZstd);
  Bytes frame(zstd.Bound(data.size()));
  frame.resize(*zstd.MakeEncoder({.frame_bytes = 1 << 20})->Encode({}, data, frame));
  Manifest manifest;
  StoredObject& object = manifest.objects.emplace_back();
  object.name = "s";
  object.shape = {data.size()};
  object.components.push_back({"data",
                               {DType::kU8, ""},
                               64,
                               frame.size(),
                               Encoding::kZstd,
                               data.size(),
                               Crc32cText(Crc32c(frame)),
                               false});
  Bytes file(64);
  std::memcpy(file.data(), "ZTEN1000", 8);
  file.insert(file.end(), frame.begin(), frame.end());
  const Bytes encoded = *EncodeManifest(manifest, SpecVersion::k1_2);
  file.insert(file.end(), encoded.begin(), encoded.end());
  const Bytes footer = EncodeFooter(0, encoded, SpecVersion::k1_2);
  file.insert(file.end(), footer.begin(), footer.end());

  const auto source = MustOpen(file);
  EXPECT_TRUE(source->sequential({}));
  EXPECT_EQ(source->preferred_read({}), 0u);
  for (int pass = 0; pass < 2; ++pass) {
    Bytes out(data.size());
    for (std::size_t at = 0; at < data.size(); at += 99'999) {
      const auto piece =
          std::span(out).subspan(at, std::min<std::size_t>(99'999, data.size() - at));
      ASSERT_OK(Read(*source, {}, at, piece));
    }
    EXPECT_EQ(out, data);
  }
  Bytes converted;
  ASSERT_OK(ConvertAll(std::make_shared<WatchedBytes>(file), 4, &converted));
  const auto again = MustOpen(converted);
  Bytes out(data.size());
  ASSERT_OK(Read(*again, {}, 0, out));
  EXPECT_EQ(out, data);
}

// A blob that is damaged in one place: whichever range finds it, before or after the others, says
// the same, and says it again.
TEST(ZtSource, ADamagedBlobHasOneErrorInWhateverOrderItIsRead) {
  constexpr std::size_t kFrame = 64 << 10, kFrames = 5;
  const Bytes data = Pattern(kFrames * kFrame, 8);
  for (const auto compression : {Compression::kNone, Compression::kAlways}) {
    Written written = Write({data}, Options(compression, DigestKind::kCrc32c, kFrame));
    const StoredComponent stored = written.manifest.objects[0].components[0];
    // In the middle of the third frame, where its checksum tells.
    written.file[stored.offset + stored.length / 2] ^= std::byte{1};
    const std::string says =
        "the digest is " +
        Crc32cText(Crc32c(std::span(written.file).subspan(stored.offset, stored.length))) +
        ", the manifest says " + stored.digest;
    std::vector<std::size_t> order = {0, 1, 2, 3, 4};
    do {
      const auto source = MustOpen(written.file);
      Bytes frame(kFrame);
      int errors = 0;
      for (const std::size_t at : order) {
        const Status status = Read(*source, {}, at * kFrame, frame);
        if (status.ok()) continue;
        ++errors;
        ASSERT_THAT(status, Fails(StatusCode::kDataLoss, says)) << "frame " << at;
      }
      ASSERT_GE(errors, 1);
      ASSERT_THAT(Read(*source, {}, 0, frame), Fails(StatusCode::kDataLoss, says));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Blocks of 18 bytes become 128: far more chunks than frames, and blocks lie across two frames.
TEST(ZtSource, EachFrameIsReadOnceHoweverItIsWidened) {
  constexpr std::uint64_t kBlocks = 150'000, kFrame = 256 << 10;
  Object blocks{.name = "q", .format = "gguf.q4_0/1", .shape = {kBlocks * 32}};
  blocks.attributes = {{"elems_per_block", std::uint64_t{32}}, {"block_bytes", std::uint64_t{18}}};
  blocks.components = {{"data", {DType::kU8}, kBlocks * 18}};
  const Bytes data = Pattern(kBlocks * 18, 21);
  Bytes file;
  auto writer =
      *Writer::Create(MemorySink(file), Options(Compression::kAlways, DigestKind::kCrc32c, kFrame));
  ASSERT_OK(writer->Add(blocks, {data}));
  ASSERT_OK(writer->Finish());
  const StoredComponent stored = writer->manifest()->objects[0].components[0];
  std::vector<Bytes> outputs;
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    for (const unsigned threads : {1U, 4U}) {
      const auto watched = std::make_shared<WatchedBytes>(file);
      const auto source = MustOpen(watched);
      const Plan plan = *MakePlan(*source, {.storage = {compression}, .convert = [](const Object&) {
                                              return ElementType{DType::kF32};
                                            }});
      watched->read_bytes = 0;
      Bytes out;
      writer = *Writer::Create(MemorySink(out), {.threads = threads});
      ASSERT_OK(writer->AddSource(*source, plan));
      ASSERT_OK(writer->Finish());
      // Each frame once; the seek table in two reads, as its last nine bytes say how long it is.
      EXPECT_EQ(watched->read_bytes, stored.length) << threads;
      outputs.push_back(std::move(out));
    }
    EXPECT_EQ(outputs[outputs.size() - 2], outputs.back());
  }
}

// A file of `blobs`, one behind the other, under a manifest that `describe` fills in, given
// where they begin.
template <typename Describe>
Bytes FileOf(const std::vector<Bytes>& blobs, Describe describe) {
  Bytes file(64);
  std::memcpy(file.data(), "ZTEN1000", 8);
  std::vector<std::uint64_t> offsets;
  for (const Bytes& blob : blobs) {
    file.resize((file.size() + 63) / 64 * 64);
    offsets.push_back(file.size());
    file.insert(file.end(), blob.begin(), blob.end());
  }
  Manifest manifest;
  describe(manifest.objects, offsets);
  const Bytes encoded = *EncodeManifest(manifest, SpecVersion::k1_2);
  file.insert(file.end(), encoded.begin(), encoded.end());
  const Bytes footer = EncodeFooter(0, encoded, SpecVersion::k1_2);
  file.insert(file.end(), footer.begin(), footer.end());
  return file;
}

StoredComponent Raw(std::string role, DType dtype, std::uint64_t offset, std::uint64_t bytes) {
  return {std::move(role), {dtype, ""}, offset, bytes, Encoding::kRaw, bytes, ""};
}

std::string ErrorOf(const Bytes& file, unsigned threads = 2) {
  Bytes out;
  return Why(ConvertAll(std::make_shared<WatchedBytes>(file), threads, &out));
}

TEST(ZtSource, ConvertedDataIsReadInWholeElements) {
  const Object object{
      "m",
      "sparse_csr",
      {2, 9},
      {},
      {{"values", {DType::kF32}, 8}, {"indices", {DType::kU32}, 8}, {"indptr", {DType::kU32}, 12}}};
  Bytes file;
  auto writer = *Writer::Create(MemorySink(file), {.spec = SpecVersion::k2_0});
  const Bytes values(8), indices = Words({3, 4}, 4), pointers = Words({0, 1, 2}, 4);
  ASSERT_OK(writer->Add(object, {values, indices, pointers}));
  ASSERT_OK(writer->Finish());
  const auto source = MustOpen(file);
  ASSERT_EQ(source->objects()[0].components[1].bytes, 16u);  // widened to u64
  Bytes out(16);
  const auto read = [&](std::uint32_t component, std::uint64_t offset, std::size_t bytes) {
    return Read(*source, {0, component}, offset, std::span(out).first(bytes));
  };
  for (const auto& [offset, bytes] : {std::pair(8, 4), std::pair(4, 8), std::pair(4, 4)}) {
    EXPECT_THAT(read(1, offset, bytes),
                Fails(StatusCode::kInvalidArgument, "converted data is read in whole elements"));
  }
  EXPECT_OK(read(1, 8, 0));
  EXPECT_OK(read(0, 1, 2));  // as it is stored: any bytes
  EXPECT_THAT(read(1, 8, 16),
              Fails(StatusCode::kInvalidArgument, "a range beyond the component's 16 bytes"));
}

TEST(ZtSource, ADigestIsCheckedHoweverLongTheSeekTableIs) {
  // 560,000 frames of one byte: a seek table of 4.5 MB, which is read before the frames.
  const Codec& zstd = *FindCodec(Encoding::kZstd);
  const Bytes one = {std::byte{7}};
  Bytes frame(zstd.Bound(1));
  frame.resize(*zstd.MakeEncoder({})->Encode({}, one, frame));
  constexpr std::uint32_t kFrames = 560'000;
  Bytes stream;
  std::vector<Frame> frames;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    frames.push_back({stream.size(), i, static_cast<std::uint32_t>(frame.size()), 1});
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  const Bytes table = zstd.Trailer(frames);
  ASSERT_GT(table.size(), 4u << 20);
  stream.insert(stream.end(), table.begin(), table.end());
  const auto hasher = MakeHasher(DigestKind::kSha256);
  hasher->Update(stream);
  const std::string good = hasher->Finish();
  std::string bad = good;
  bad.back() = bad.back() == '0' ? '1' : '0';
  for (const std::string& digest : {good, bad}) {
    const Bytes file = FileOf({stream}, [&](auto& objects, const auto& offsets) {
      objects.push_back({"s",
                         "dense",
                         {kFrames},
                         {},
                         {{"data",
                           {DType::kU8, ""},
                           offsets[0],
                           stream.size(),
                           Encoding::kZstd,
                           kFrames,
                           digest}}});
    });
    EXPECT_EQ(ErrorOf(file), digest == good ? ""
                                            : "f.zt: tensor 's': the digest is " + good +
                                                  ", the manifest says " + bad);
  }
}

TEST(ZtSource, TheDigestOfNoBytesIsChecked) {
  for (const auto& [digest, error] :
       {std::pair("crc32c:0x00000000", ""),
        std::pair("crc32c:0x00000001",
                  "f.zt: tensor 'e': component 'data': the digest is crc32c:0x00000000, the "
                  "manifest says crc32c:0x00000001")}) {
    const Bytes file = FileOf({}, [&](auto& objects, const auto&) {
      objects.push_back({"e", "dense", {0}, {}, {Raw("data", DType::kU8, 64, 0)}});
      objects.back().components[0].digest = digest;
    });
    EXPECT_OK(OpenZt(std::make_shared<WatchedBytes>(file)));  // it can be listed
    EXPECT_EQ(ErrorOf(file), error);
  }
}

TEST(ZtSource, EachDigestOfTiedComponentsIsChecked) {
  const Bytes data = Pattern(1000, 3);
  const auto hasher = MakeHasher(DigestKind::kXxh3);
  hasher->Update(data);
  const std::string xxh3 = hasher->Finish();
  for (const std::string& second : {xxh3, std::string("xxh3:1")}) {
    const Bytes file = FileOf({data}, [&](auto& objects, const auto& offsets) {
      for (const char* name : {"a", "b"}) {
        objects.push_back({name, "dense", {1000}, {}, {Raw("data", DType::kU8, offsets[0], 1000)}});
      }
      objects[0].components[0].digest = Crc32cText(Crc32c(data));
      objects[1].components[0].digest = second;
    });
    if (second == xxh3) {
      EXPECT_EQ(ErrorOf(file), "");
    } else {
      EXPECT_THAT(ErrorOf(file), HasSubstr("the digest is " + xxh3));
    }
  }
}

TEST(ZtSource, TiedComponentsHaveOneIdentity) {
  const Bytes data = Pattern(1000, 60), other = Pattern(1000, 61);
  for (const auto compression : {Compression::kNone, Compression::kAlways}) {
    Bytes file;
    auto writer = *Writer::Create(MemorySink(file), Options(compression, DigestKind::kCrc32c));
    ASSERT_OK(writer->Add("a", {1000}, {DType::kU8, ""}, data));
    ASSERT_OK(writer->AddAlias("b", "a"));
    ASSERT_OK(writer->Add("c", {1000}, {DType::kU8, ""}, other));
    ASSERT_OK(writer->Finish());
    const auto source = MustOpen(file);
    ASSERT_EQ(source->objects().size(), 3u);
    EXPECT_EQ(source->identity({0, 0}), source->identity({1, 0}));
    EXPECT_NE(source->identity({0, 0}), source->identity({2, 0}));
  }
}

}  // namespace
}  // namespace zt
