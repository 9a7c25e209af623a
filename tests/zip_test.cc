// zt.convert.zip — the seam that sources stand on: entries, ranges of them, the directory's limits.
// What can be wrong with an archive is in npz_test.
#include "npy_files.h"

import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace {

StatusOr<std::shared_ptr<ZipArchive>> Open(std::string_view archive) {
  return ZipArchive::Open(MemoryBytes(BytesOf(archive), "f.zip"));
}

std::string Text(ByteSource& bytes, std::uint64_t offset, std::size_t size) {
  std::string out(size, '?');
  EXPECT_OK(bytes.ReadAt(offset, std::as_writable_bytes(std::span(out))));
  return out;
}

TEST(Zip, LooksLike) {
  EXPECT_TRUE(LooksLikeZip(BytesOf("PK\x03\x04....")));
  EXPECT_TRUE(LooksLikeZip(BytesOf("PK\x05\x06....")));
  EXPECT_FALSE(LooksLikeZip(BytesOf("PK\x01\x02....")));
  EXPECT_FALSE(LooksLikeZip(BytesOf("PK")));
}

TEST(Zip, EntriesAndTheirBytes) {
  const std::string archive =
      Zip({{.name = "model/data.pkl", .content = "pickled"},
           {.name = "model/data/0", .content = "0123456789"},
           {.name = "model/notes", .content = "deflated", .deflate = true}});
  auto opened = Must(Open(archive));
  ZipArchive& zip = *opened;
  EXPECT_EQ(zip.name(), "f.zip");
  ASSERT_EQ(zip.entries().size(), 3u);
  EXPECT_EQ(zip.entries()[1].name, "model/data/0");
  EXPECT_EQ(zip.entries()[1].method, static_cast<std::uint16_t>(ZipMethod::kStored));
  EXPECT_EQ(archive.substr(zip.entries()[1].data, zip.entries()[1].size), "0123456789");

  auto stored = Must(zip.OpenEntry(1));
  EXPECT_FALSE(stored->sequential());
  EXPECT_EQ(Text(*stored, 7, 3), "789");  // any range, in any order
  EXPECT_EQ(Text(*stored, 2, 4), "2345");
  EXPECT_OK(zip.Verify(1, 0));
  std::string more(4, '?');
  EXPECT_EQ(stored->ReadAt(8, std::as_writable_bytes(std::span(more))).code(),
            StatusCode::kDataLoss);

  auto deflated = Must(zip.OpenEntry(2));
  EXPECT_TRUE(deflated->sequential());
  EXPECT_EQ(Text(*deflated, 2, 6), "flated");
}

TEST(Zip, DeflatedEntriesOfManyBuffers) {
  std::string content;
  for (std::uint32_t state = 1; content.size() < 1'000'000;) {
    state = state * 1664525 + 1013904223;
    content += static_cast<char>(state >> 24);
  }
  const std::string archive = Zip({{.name = "first", .content = std::string(1000, '-')},
                                   {.name = "random", .content = content, .deflate = true}});
  auto zip = Must(Open(archive));
  EXPECT_TRUE(Text(*Must(zip->OpenEntry(1)), 0, content.size()) == content);
}

// Counts the bytes that are read.
class Counted final : public ByteSource {
 public:
  explicit Counted(std::string_view bytes) : bytes_(MemoryBytes(BytesOf(bytes), "f.zip")) {}
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    read += out.size();
    return bytes_->ReadAt(offset, out);
  }
  std::uint64_t read = 0;

 private:
  std::shared_ptr<ByteSource> bytes_;
};

// A distributed checkpoint has an archive for each chunk.
TEST(Zip, OpeningReadsLittleMoreThanTheDirectory) {
  const std::vector<Entry> entries = {{.name = "a", .content = std::string(1 << 20, 'x')}};
  for (const std::size_t comment : {0, 900, 1000, 1001, 65535}) {
    const std::string archive = Zip(entries, {.comment = std::string(comment, ' ')});
    auto bytes = std::make_shared<Counted>(archive);
    auto opened = Must(ZipArchive::Open(bytes));
    EXPECT_EQ(opened->entries().size(), 1u);
    EXPECT_LT(bytes->read, comment <= 1000 ? 1200u : 67000u) << comment;
  }
}

TEST(Zip, ADamagedEntryReadInPartIsFoundByVerify) {
  const std::string archive = Zip({{.name = "a", .content = "0123456789", .bad_crc = true}});
  auto zip = Must(Open(archive));
  EXPECT_OK(zip->Verify(0, 0));  // none of it was read
  auto bytes = Must(zip->OpenEntry(0));
  EXPECT_EQ(Text(*bytes, 3, 2), "34");
  EXPECT_THAT(zip->Verify(0, 0), Fails(StatusCode::kDataLoss, HasSubstr("CRC-32 does not match")));
}

TEST(Zip, AnArchiveThatIsWrittenToIsNotCalledDamaged) {
  for (const bool deflate : {false, true}) {
    const TempFolder folder;
    const std::string path = folder / "f.zip";
    WriteFile(path, Zip({{.name = "a", .content = "0123456789", .deflate = deflate}}));
    auto zip = Must(ZipArchive::Open(Must(OpenFile(path))));
    auto bytes = Must(zip->OpenEntry(0));
    WriteFile(path, Zip({{.name = "a", .content = "9876543210", .deflate = deflate}}));
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::nanoseconds(1));
    std::string text(10, '?');
    EXPECT_THAT(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))),
                Fails(StatusCode::kDataLoss, StartsWith("it has been written to")));
  }
}

// 0xffff in the end record refers to a zip64 record, where there is one: numpy, whose zipfile
// writes none for exactly this many entries, has none.
TEST(Zip, ExactlyAsManyEntriesAsTheEndRecordCanCount) {
  for (const std::size_t count : {65534u, 65535u}) {
    std::vector<Entry> entries(count);
    for (std::size_t i = 0; i < count; ++i) entries[i].name = std::to_string(i);
    const std::string archive = Zip(entries);
    const auto zip = Must(Open(archive));
    EXPECT_EQ(zip->entries().size(), count);
  }
  std::vector<Entry> entries(65536);
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].name = std::to_string(i);
  const std::string counted = Zip(entries, {.zip64_end = true});
  EXPECT_OK(Open(counted));
  const std::string lies = Zip({{.name = "a", .content = ""}}, {.announced = 65535});
  EXPECT_EQ(Why(Open(lies)),
            "the zip archive is damaged: its directory has 1 entries, 65535 are announced");
}

}  // namespace
}  // namespace zt
