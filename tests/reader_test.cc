// zt.reader: ranges over frames, maps, and what verification finds when any byte of a file changes.
#include "testing.h"

import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.reader;
import zt.sink;
import zt.source;
import zt.writer;

namespace zt {
namespace {

Bytes Sample(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random() % 11);
  return out;
}

struct Tensor {
  Object object;
  std::vector<Bytes> components;
  Storage storage;
};

Bytes Write(const std::vector<Tensor>& tensors, SpecVersion spec = SpecVersion::k1_2,
            std::uint64_t frame = 1024) {
  Bytes out;
  auto writer = *Writer::Create(MemorySink(out), {.spec = spec, .zstd = {.frame_bytes = frame}});
  for (const Tensor& tensor : tensors) {
    std::vector<std::span<const std::byte>> components(tensor.components.begin(),
                                                       tensor.components.end());
    EXPECT_OK(writer->Add(tensor.object, components,
                          std::vector<Storage>(components.size(), tensor.storage)));
  }
  EXPECT_OK(writer->Finish());
  return out;
}

Tensor Dense(std::string name, Bytes bytes, Compression compression,
             DigestKind digest = DigestKind::kCrc32c, DType dtype = DType::kU8) {
  Tensor tensor;
  tensor.object = *DenseObject(std::move(name), {bytes.size() / ByteWidth(dtype)}, {dtype, ""});
  tensor.components = {std::move(bytes)};
  tensor.storage.compression = compression;
  tensor.storage.digest = digest;
  return tensor;
}

StatusOr<std::unique_ptr<Reader>> Open(const Bytes& file) {
  return Reader::Open(MemoryBytes(file, "memory"));
}

// The same bytes under another manifest.
Bytes Rewrite(const Bytes& file, const Manifest& manifest) {
  const auto reader = *Open(file);
  Bytes out(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(reader->data_end()));
  const Bytes encoded = *EncodeManifest(manifest, manifest.version);
  const Bytes footer = EncodeFooter(0, encoded, manifest.version);
  out.insert(out.end(), encoded.begin(), encoded.end());
  out.insert(out.end(), footer.begin(), footer.end());
  return out;
}

VerifyOptions Options(unsigned threads) { return {.threads = threads}; }

VerifyReport Check(const Bytes& file, unsigned threads = 1) {
  auto reader = Must(Open(file));
  auto report = Must(Verify(*reader, Options(threads)));
  return report;
}

TEST(Reader, EveryRangeOverFrames) {
  const Bytes content = Sample(4500);
  const Bytes file =
      Write({Dense("a", content, Compression::kAlways), Dense("b", content, Compression::kNone)});
  const auto reader = *Open(file);
  EXPECT_EQ(reader->FindAccess({0, 0})->frame_bytes, 1024u);
  EXPECT_EQ(reader->FindAccess({1, 0})->frame_bytes, 0u);
  EXPECT_FALSE(reader->FindAccess({0, 0})->sequential);
  for (const std::uint32_t object : {0u, 1u}) {
    for (std::size_t at = 0; at <= content.size(); ++at) {
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1024},
                                     std::size_t{2500}, content.size() - at}) {
        Bytes out(std::min(size, content.size() - at));
        ASSERT_OK(reader->Read({object, 0}, at, out));
        ASSERT_TRUE(
            std::equal(out.begin(), out.end(), content.begin() + static_cast<std::ptrdiff_t>(at)))
            << at;
      }
    }
    Bytes out(2);
    EXPECT_EQ(reader->Read({object, 0}, 4499, out).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(reader->Read({object, 0}, ~std::uint64_t{0}, out).code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(Reader, RangesWithoutASeekTable) {
  const Bytes content = Sample(4500);
  Bytes file = Write({Dense("z", content, Compression::kAlways, DigestKind::kNone)});
  {
    // The footer's magic of the table: without it the stream has none.
    const auto reader = *Open(file);
    const StoredComponent& c = reader->component({0, 0});
    file[c.offset + c.length - 1] ^= std::byte{1};
  }
  const auto reader = *Open(file);
  EXPECT_TRUE(reader->FindAccess({0, 0})->sequential);
  EXPECT_EQ(reader->FindAccess({0, 0})->frame_bytes, 0u);
  for (const std::size_t at : {0u, 100u, 3000u, 2000u, 4499u, 0u}) {
    Bytes out(std::min<std::size_t>(700, content.size() - at));
    ASSERT_OK(reader->Read({0, 0}, at, out));
    EXPECT_TRUE(
        std::equal(out.begin(), out.end(), content.begin() + static_cast<std::ptrdiff_t>(at)))
        << at;
  }
  EXPECT_THAT(Check(file).problems, IsEmpty());
}

TEST(Reader, FromManyThreads) {
  const Bytes content = Sample(40000);
  const Bytes file = Write({Dense("z", content, Compression::kAlways)});
  const auto reader = *Open(file);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 200; ++i) {
        const std::size_t at = random() % content.size();
        Bytes out(std::min<std::size_t>(random() % 5000, content.size() - at));
        ASSERT_OK(reader->Read({0, 0}, at, out));
        ASSERT_TRUE(
            std::equal(out.begin(), out.end(), content.begin() + static_cast<std::ptrdiff_t>(at)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Reader, FindsByName) {
  const Bytes file =
      Write({Dense("a", Sample(3), Compression::kNone), Dense("b", Sample(4), Compression::kNone)});
  const auto reader = *Open(file);
  EXPECT_EQ(reader->Find("b"), 1u);
  EXPECT_EQ(reader->Find("c"), std::nullopt);
  EXPECT_EQ(reader->component({1, 0}).decoded_bytes, 4u);
}

TEST(Reader, MapsRawComponentsOfAFile) {
  const TempFolder folder;
  const Bytes content = Sample(5000);
  const Bytes file =
      Write({Dense("r", content, Compression::kNone), Dense("z", content, Compression::kAlways)});
  WriteFile(folder / "f.zt", file);
  const auto reader = *Reader::Open(folder / "f.zt");
  const auto view = Must(reader->Map({0, 0}));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % 64, 0u);
  EXPECT_TRUE(std::equal(view.begin(), view.end(), content.begin(), content.end()));
  EXPECT_EQ(reader->Map({1, 0}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ((*Open(file))->Map({0, 0}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Reader, AFileThatChangedIsNotMapped) {
  const TempFolder folder;
  const Bytes file = Write({Dense("r", Sample(5000), Compression::kNone)});
  WriteFile(folder / "f.zt", file);
  const auto reader = *Reader::Open(folder / "f.zt");
  std::filesystem::resize_file(folder / "f.zt", 3000);
  EXPECT_EQ(reader->Map({0, 0}).status().code(), StatusCode::kDataLoss);
  Bytes out(5000);
  EXPECT_EQ(reader->Read({0, 0}, 0, out).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(Verify(*reader).ok());
}

TEST(Reader, MapsTheFileThatWasOpened) {
  const TempFolder folder;
  for (const unsigned seed : {1u, 2u}) {  // of the same size
    const Bytes file = Write({Dense("r", Sample(5000, seed), Compression::kNone)});
    WriteFile(folder / (seed == 1 ? "f.zt" : "g.zt"), file);
  }
  const auto reader = *Reader::Open(folder / "f.zt");
  std::filesystem::rename(folder / "g.zt", folder / "f.zt");  // another file takes its name
  const auto view = Must(reader->Map({0, 0}));
  EXPECT_EQ(Bytes(view.begin(), view.end()), Sample(5000, 1));
  Bytes out(5000);
  ASSERT_OK(reader->Read({0, 0}, 0, out));
  EXPECT_EQ(out, Sample(5000, 1));
}

TEST(Verify, CountsWhatItChecked) {
  const Bytes content = Sample(4500);
  const Bytes file =
      Write({Dense("a", content, Compression::kAlways), Dense("b", content, Compression::kNone),
             Dense("c", content, Compression::kNone, DigestKind::kNone),
             Dense("d", {}, Compression::kNone)});
  for (const unsigned threads : {1u, 2u, 3u}) {
    const VerifyReport report = Check(file, threads);
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_EQ(report.objects, 4u);
    EXPECT_EQ(report.components, 4u);
    EXPECT_EQ(report.digests, 3u);
    EXPECT_EQ(report.decoded_bytes, 13500u);
  }
}

// Fails from a given read on.
class FailingBytes final : public ByteSource {
 public:
  FailingBytes(const Bytes& file, int good) : inner_(MemoryBytes(file, "memory")), good_(good) {}
  const std::string& name() const override { return inner_->name(); }
  std::optional<std::uint64_t> size() const override { return inner_->size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return good_-- > 0 ? inner_->ReadAt(offset, out) : IoError("broken");
  }

 private:
  std::shared_ptr<ByteSource> inner_;
  std::atomic<int> good_;
};

TEST(Verify, AReadErrorAtAnyCallIsNoVerdict) {
  const Bytes content = Sample(4500);
  const Bytes file =
      Write({Dense("a", content, Compression::kAlways), Dense("b", content, Compression::kNone)});
  int faults = 0;
  for (const unsigned threads : {1u, 2u, 3u}) {
    for (int good = 0;; ++good) {
      auto reader = Reader::Open(std::make_shared<FailingBytes>(file, good));
      if (!reader.ok()) {
        ASSERT_EQ(reader.status().code(), StatusCode::kUnavailable);
        ++faults;
        continue;
      }
      auto report = Verify(**reader, Options(threads));
      if (report.ok()) {
        EXPECT_THAT(report->problems, IsEmpty());
        break;
      }
      ASSERT_EQ(report.status().code(), StatusCode::kUnavailable) << Why(report);
      ++faults;
    }
  }
  EXPECT_EQ(faults, 3 * 9);  // each call fails once
}

std::string Listed(const VerifyReport& report) {
  std::string out;
  for (const VerifyProblem& problem : report.problems) {
    out += problem.object + "/" + problem.component + ": " + problem.message + "\n";
  }
  return out;
}

TEST(Verify, ProblemsAreListedByComponentWhateverFindsThem) {
  // Seek tables that contradict are found by one thread, damaged frames by the others.
  std::vector<Tensor> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back(Dense("t" + std::to_string(1000 + i), Sample(600), Compression::kAlways));
  }
  Bytes file = Write(tensors);
  const Manifest manifest = (*Open(file))->manifest();
  for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
    const StoredComponent& c = manifest.objects[i].components[0];
    file[c.offset + (i % 2 == 0 ? 30 : c.length - 13)] ^= std::byte{1};
  }
  const VerifyReport alone = Check(file, 1);
  EXPECT_EQ(alone.problems.size(), 400u);  // each digest, and what it is that does not decode
  EXPECT_TRUE(std::is_sorted(alone.problems.begin(), alone.problems.end(),
                             [](const auto& a, const auto& b) { return a.object < b.object; }));
  for (int round = 0; round < 5; ++round) {
    for (const unsigned threads : {2u, 3u, 4u}) {
      ASSERT_EQ(Listed(Check(file, threads)), Listed(alone));
    }
  }
}

// Counts what is read, and refuses one byte.
class OneBadByte final : public ByteSource {
 public:
  explicit OneBadByte(Bytes file) : file_(std::move(file)), inner_(MemoryBytes(file_, "memory")) {}
  const std::string& name() const override { return inner_->name(); }
  std::optional<std::uint64_t> size() const override { return inner_->size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    ++calls;
    read_bytes += out.size();
    if (out.size() > largest) largest = out.size();
    if (offset <= bad && bad < offset + out.size() && failures-- > 0) return IoError("broken");
    return inner_->ReadAt(offset, out);
  }
  std::uint64_t bad = ~std::uint64_t{0};
  std::atomic<int> failures = 1000;
  std::atomic<std::uint64_t> calls = 0, read_bytes = 0, largest = 0;

 private:
  const Bytes file_;
  std::shared_ptr<ByteSource> inner_;
};

TEST(Verify, AReadErrorNamesTheTensorItConcerns) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back(Dense("t" + std::to_string(i), Sample(3000), Compression::kNone));
  }
  const auto bytes = std::make_shared<OneBadByte>(Write(tensors));
  const auto reader = *Reader::Open(bytes);
  bytes->bad = reader->component({*reader->Find("t5"), 0}).offset + 1000;
  for (const unsigned threads : {1u, 2u, 2u, 2u, 4u}) {
    EXPECT_EQ(Why(Verify(*reader, Options(threads))), "tensor 't5': broken") << threads;
  }
}

TEST(Reader, AStreamBeginsAnewAfterAnError) {
  std::mt19937 random(3);
  Bytes content(3 << 20);
  for (std::byte& byte : content) byte = static_cast<std::byte>(random() & 0x7f);
  Bytes file = Write({Dense("z", content, Compression::kAlways)}, SpecVersion::k1_2, 1 << 20);
  const StoredComponent stored = (*Open(file))->component({0, 0});
  file[stored.offset + stored.length - 1] ^= std::byte{1};  // no seek table
  const auto bytes = std::make_shared<OneBadByte>(file);
  const auto reader = *Reader::Open(bytes);
  ASSERT_TRUE(reader->FindAccess({0, 0})->sequential);
  bytes->bad = stored.offset + stored.length / 2;
  bytes->failures = 1;
  constexpr std::size_t kStep = 200000;
  int errors = 0;
  for (std::size_t at = 0; at < content.size(); at += kStep) {
    Bytes out(std::min(kStep, content.size() - at));
    Status status = reader->Read({0, 0}, at, out);
    if (!status.ok()) {
      ++errors;
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      status = reader->Read({0, 0}, at, out);
    }
    ASSERT_OK(status);
    ASSERT_TRUE(
        std::equal(out.begin(), out.end(), content.begin() + static_cast<std::ptrdiff_t>(at)))
        << at;
  }
  EXPECT_EQ(errors, 1);
}

TEST(Reader, NoSuchComponent) {
  const auto reader = *Open(Write({Dense("a", Sample(10), Compression::kNone)}));
  Bytes out(1);
  for (const ComponentId id : {ComponentId{0, 1}, ComponentId{1, 0}, ComponentId{~0u, ~0u}}) {
    EXPECT_EQ(reader->Read(id, 0, out).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(reader->DecodedBytes(id).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(reader->FindAccess(id).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(reader->Map(id).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Why(reader->Read({0, 1}, 0, out)), "tensor 'a': there is no component 1 of object 0");
}

// `file` with so many more names for its first object.
Bytes WithAliases(const Bytes& file, int aliases) {
  Manifest manifest = (*Open(file))->manifest();
  for (int i = 0; i < aliases; ++i) {
    manifest.objects.push_back(manifest.objects[0]);
    manifest.objects.back().name = "alias" + std::to_string(i);
  }
  return Rewrite(file, manifest);
}

TEST(Verify, ABlobIsCheckedOnce) {
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    Bytes file = WithAliases(Write({Dense("a", Sample(9000), compression)}), 50);
    const auto bytes = std::make_shared<OneBadByte>(file);
    const auto reader = *Reader::Open(bytes);
    const std::uint64_t stored = reader->component({0, 0}).length;
    bytes->read_bytes = 0;
    const auto report = *Verify(*reader);
    EXPECT_EQ(Listed(report), "");
    EXPECT_EQ(report.components, 51u);
    EXPECT_EQ(report.digests, 51u);
    EXPECT_EQ(report.stored_bytes, stored);
    EXPECT_EQ(report.decoded_bytes, 9000u);
    EXPECT_LT(bytes->read_bytes, stored + 1000);
    file[reader->component({0, 0}).offset + 40] ^= std::byte{4};
    const VerifyReport bad = Check(file);
    std::set<std::string> names;
    for (const VerifyProblem& problem : bad.problems) names.insert(problem.object);
    EXPECT_EQ(names.size(), 51u);  // each is said to be damaged
  }
}

TEST(Verify, TheSameBytesDoNotDecodeToTwoSizes) {
  const Bytes file = WithAliases(Write({Dense("a", Sample(9000), Compression::kAlways)}), 2);
  Manifest manifest = (*Open(file))->manifest();
  manifest.objects[1].shape = {8999};
  manifest.objects[1].components[0].decoded_bytes = 8999;
  EXPECT_EQ(Listed(Check(Rewrite(file, manifest))),
            manifest.objects[1].name +
                "/data: its decoded size is 8999, that of tensor 'a', which has the same stored "
                "bytes, is 9000\n");
}

TEST(Reader, AliasesShareTheirFrames) {
  const Bytes file = WithAliases(
      Write({Dense("a", Sample(9000), Compression::kAlways)}, SpecVersion::k1_2, 1024), 50);
  const auto bytes = std::make_shared<OneBadByte>(file);
  const auto reader = *Reader::Open(bytes);
  bytes->calls = 0;
  for (std::uint32_t i = 0; i < 51; ++i) EXPECT_OK(reader->FindAccess({i, 0}));
  EXPECT_LE(bytes->calls, 2u);  // the seek table's end, and all of it
}

TEST(Verify, FramesNeedNotEndOnAnElement) {
  constexpr std::uint64_t kRows = 300, kEach = 4;
  Bytes values(kRows * kEach), indices, pointers;
  for (std::uint64_t i = 0; i < kRows * kEach; ++i) {
    const Bytes word = Words({i % 1000});
    indices.insert(indices.end(), word.begin(), word.end());
  }
  for (std::uint64_t row = 0; row <= kRows; ++row) {
    const Bytes word = Words({row * kEach});
    pointers.insert(pointers.end(), word.begin(), word.end());
  }
  const auto write = [&](const Bytes& index_bytes, const Bytes& pointer_bytes) {
    const Tensor bytes{{"m",
                        "x.y/1",
                        {},
                        {},
                        {{"values", {DType::kU8, ""}, values.size()},
                         {"indices", {DType::kU8, ""}, index_bytes.size()},
                         {"indptr", {DType::kU8, ""}, pointer_bytes.size()}}},
                       {values, index_bytes, pointer_bytes},
                       {Compression::kAlways}};
    const Bytes file = Write({bytes}, SpecVersion::k1_2, 1025);
    Manifest manifest = (*Open(file))->manifest();
    StoredObject& object = manifest.objects[0];
    object.format = "sparse_csr";
    object.shape = {kRows, 1000};
    for (StoredComponent& c : object.components) {
      if (c.role != "values") c.element = {DType::kU64, ""};
    }
    return Rewrite(file, manifest);
  };
  EXPECT_EQ(Listed(Check(write(indices, pointers), 2)), "");
  Bytes beyond = indices;
  beyond[1024 + 1] = std::byte{4};  // index 128, of which frame 1 has but the first byte
  EXPECT_EQ(Listed(Check(write(beyond, pointers), 2)),
            "m/indices: index 128 is 1152, beyond the dimension of 1000\n");
  Bytes falling = pointers;
  falling[1024 + 1] = std::byte{0};
  EXPECT_EQ(Listed(Check(write(indices, falling), 2)),
            "m/indptr: row pointer 128 is 0, less than the one before\n");
}

TEST(Reader, AFrameTooLargeForItsContentIsNotReadAtOnce) {
  // A skippable frame of 64 MiB, which a seek table calls a frame of 16 bytes.
  constexpr std::uint32_t kFrame = 64 << 20;
  const auto append32 = [](Bytes& out, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  Bytes stream;
  append32(stream, 0x184D2A50);
  append32(stream, kFrame - 8);
  stream.resize(kFrame);
  const Bytes table = FindCodec(Encoding::kZstd)->Trailer(std::vector<Frame>{{0, 0, kFrame, 16}});
  stream.insert(stream.end(), table.begin(), table.end());
  const Bytes file = Write({Dense("z", stream, Compression::kNone, DigestKind::kNone)});
  Manifest manifest = (*Open(file))->manifest();
  manifest.objects[0].shape = {16};
  StoredComponent& c = manifest.objects[0].components[0];
  c.encoding = Encoding::kZstd;
  c.decoded_bytes = 16;
  const auto bytes = std::make_shared<OneBadByte>(Rewrite(file, manifest));
  const auto reader = *Reader::Open(bytes);
  Bytes out(16);
  EXPECT_EQ(reader->Read({0, 0}, 0, out).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Verify(*reader)->problems.size(), 1u);
  EXPECT_LE(bytes->largest, std::uint64_t{1} << 20);
}

// What a manifest says otherwise than another.
std::string Difference(const Manifest& a, const Manifest& b) {
  if (a.objects.size() != b.objects.size()) return "objects";
  std::string out;
  const auto differs = [&out](const char* what) {
    if (out.find(what) == std::string::npos)
      out += (out.empty() ? "" : " and ") + std::string(what);
  };
  if (a.version_text != b.version_text) differs("version");
  if (a.attributes != b.attributes) differs("attributes");
  for (std::size_t o = 0; o < a.objects.size(); ++o) {
    const StoredObject &x = a.objects[o], &y = b.objects[o];
    if (x.name != y.name) differs("name");
    if (x.format != y.format) differs("format");
    if (x.shape != y.shape) differs("shape");
    if (x.attributes != y.attributes) differs("attributes");
    if (x.components.size() != y.components.size()) return "components";
    for (std::size_t c = 0; c < x.components.size(); ++c) {
      const StoredComponent &p = x.components[c], &q = y.components[c];
      if (p.role != q.role) differs("role");
      if (!(p.element == q.element)) differs("element type");
      if (p.offset != q.offset || p.length != q.length) differs("place");
      if (p.encoding != q.encoding || p.decoded_bytes != q.decoded_bytes) differs("encoding");
      if (p.digest == q.digest) continue;
      if (q.digest.empty()) {
        differs("no digest");  // the key is another, and an unknown one
      } else if (ParseDigest(p.digest)->canonical != ParseDigest(q.digest)->canonical) {
        differs("digest");
      }
    }
  }
  return out;
}

// Every bit of a file: opening or verifying notices that it changed, or it is one of the manifest's
// few that make another well-formed manifest. No digest covers a manifest of 1.x; what may differ
// unnoticed is listed here.
void FlipEveryByte(SpecVersion spec, Compression compression, DigestKind digest) {
  const Bytes content = Sample(500);
  std::vector<Tensor> tensors = {
      Dense("alpha", content, compression, digest, DType::kU16),
      Dense("beta", {std::byte{1}, std::byte{0}}, compression, digest, DType::kBool)};
  const Bytes file = Write(tensors, spec);
  const auto original = *Open(file);
  const std::uint64_t manifest = original->data_end();
  std::size_t noticed = 0, unknown = 0, unnoticed = 0;
  std::map<std::string, int> other;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = file;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      auto reader = Open(bad);
      if (!reader.ok()) {
        ++noticed;
        continue;
      }
      const auto report = Must(Verify(**reader, {.threads = 1}));
      if (!report.problems.empty()) {
        ++noticed;
      } else if (!report.unverified.empty()) {
        ++unknown;  // the digest's algorithm is another one: said so
      } else {
        // Blobs, padding, header and footer are covered by digests and rules; the
        // manifest alone is not.
        ASSERT_TRUE(i >= manifest && i < file.size() - 16) << "byte " << i << " bit " << bit;
        ++unnoticed;
        ++other[Difference(original->manifest(), (*reader)->manifest())];
      }
    }
  }
  std::printf("%zu flips: %zu noticed, %zu an unknown digest, %zu another manifest\n",
              8 * file.size(), noticed, unknown, unnoticed);
  for (const auto& [what, count] : other) {
    std::printf("  %d: %s\n", count, what.empty() ? "the same in another spelling" : what.c_str());
    EXPECT_THAT(what, ::testing::AnyOf("", "name", "format", "role", "version", "no digest"))
        << count;
  }
}

TEST(Verify, EveryFlippedBitOfARawFile) {
  FlipEveryByte(SpecVersion::k1_2, Compression::kNone, DigestKind::kCrc32c);
}
TEST(Verify, EveryFlippedBitOfACompressedFile) {
  FlipEveryByte(SpecVersion::k1_2, Compression::kAlways, DigestKind::kSha256);
}
TEST(Verify, EveryFlippedBitOfAFileOf1_1) {
  FlipEveryByte(SpecVersion::k1_1, Compression::kNone, DigestKind::kCrc32c);
}

// A root over one shard of `shard`'s objects.
Bytes RootOver(const Bytes& shard) {
  Bytes root;
  auto writer = *Writer::Create(MemorySink(root), {.spec = SpecVersion::k2_0, .threads = 1});
  auto hasher = MakeHasher(DigestKind::kXxh3);
  hasher->Update(shard);
  EXPECT_OK(writer->AddShard({.name = "s", .bytes = shard.size(), .digest = hasher->Finish()},
                             (*Open(shard))->manifest().objects));
  EXPECT_OK(writer->Finish());
  return root;
}

TEST(Shards, AreKnownByTheirDigests) {
  for (const Compression compression : {Compression::kNone, Compression::kAlways}) {
    const Bytes content = Sample(5000);
    const Bytes right =
        Write({Dense("w", content, compression, DigestKind::kNone)}, SpecVersion::k2_0);
    Bytes wrong = right;
    wrong[65536 + 20] ^= std::byte{1};
    const Bytes root = RootOver(right);
    for (const Bytes* found : std::initializer_list<const Bytes*>{&right, &wrong}) {
      int opened = 0;
      OpenOptions options;
      options.find_shard = [&](const StoredShard&) -> StatusOr<std::shared_ptr<ByteSource>> {
        ++opened;
        return MemoryBytes(*found, "shard");
      };
      const auto reader = *Reader::Open(MemoryBytes(root, "root"), options);
      EXPECT_EQ(opened, 0);  // listing opens nothing
      Bytes out(10);
      const Status status = reader->Read({0, 0}, 0, out);
      const auto report = *Verify(*reader, Options(1));
      EXPECT_EQ(opened, 1);
      EXPECT_EQ(report.problems.empty(), found == &right);
      if (found == &right) {
        EXPECT_OK(status);
        EXPECT_TRUE(std::ranges::equal(out, std::span(content).first(10)));
        continue;
      }
      EXPECT_THAT(status,
                  Fails(StatusCode::kDataLoss, HasSubstr("shard 's': the digest is xxh3:")));
      EXPECT_THAT(Why(status), HasSubstr(", the root says xxh3:"));
      // Again: it is not forgotten.
      EXPECT_EQ(reader->Read({0, 0}, 100, out).code(), StatusCode::kDataLoss);
    }
  }
}

}  // namespace
}  // namespace zt
