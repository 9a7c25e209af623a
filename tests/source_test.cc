// zt.source: files, pipes and memory by offset; sources in memory and several as one.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipe.h"

import zt.core;
import zt.source;

namespace zt {
namespace {

std::string Read(ByteSource& source, std::uint64_t offset, std::size_t size) {
  std::string out(size, '?');
  const Status status = source.ReadAt(offset, std::as_writable_bytes(std::span(out)));
  return status.ok() ? out : "error: " + Why(status);
}

Status ReadError(ByteSource& source, std::uint64_t offset, std::size_t size) {
  std::vector<std::byte> out(size);
  return source.ReadAt(offset, out);
}

std::string Content(std::size_t size) {
  std::string out(size, 0);
  std::mt19937 random(9);
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// A pipe that is fed in small pieces.
struct Dribble : Pipe {
  explicit Dribble(std::string content) : Pipe(std::move(content), 3000, true) {}
  std::shared_ptr<ByteSource> Open() { return *OpenDescriptor(descriptor(), "standard input"); }
};

TEST(OpenFile, ServesAnyRange) {
  const TempFolder folder;
  const std::string content = Content(1000);
  WriteFile(folder / "f", content);
  const auto source = *OpenFile(folder / "f");
  EXPECT_EQ(source->name(), folder / "f");
  EXPECT_EQ(source->size(), 1000u);
  EXPECT_FALSE(source->sequential());
  EXPECT_EQ(Read(*source, 500, 100), content.substr(500, 100));
  EXPECT_EQ(Read(*source, 0, 1000), content);
  EXPECT_EQ(Read(*source, 1000, 0), "");
  EXPECT_FALSE(*source->AtEnd(999));
  EXPECT_TRUE(*source->AtEnd(1000));
}

TEST(OpenFile, RangesBeyondTheEndAreTruncation) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto source = *OpenFile(folder / "f");
  for (const auto& [offset, size] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {0, 7}, {6, 1}, {7, 0}, {100, 1}, {~std::uint64_t{0}, 2}}) {
    EXPECT_THAT(ReadError(*source, offset, size),
                Fails(StatusCode::kDataLoss, HasSubstr("it ends at byte 6, ")))
        << offset;
  }
}

TEST(OpenFile, WhatIsNoFileIsRefused) {
  const TempFolder folder;
  EXPECT_EQ(OpenFile(folder / "none").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(OpenFile(folder.path()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Why(OpenFile("/dev/zero")), "it is a device, a regular file is needed");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // nobody writes to it: opening it must not wait
  EXPECT_EQ(Why(OpenFile(pipe)), "it is a pipe, a regular file is needed");
}

TEST(Store, WhatNamesLeadTo) {
  using std::filesystem::file_type;
  const TempFolder folder;
  WriteFile(folder / "f", "abc");
  ASSERT_EQ(::symlink("f", (folder / "link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", (folder / "dangling").c_str()), 0);
  ASSERT_EQ(::symlink("loop", (folder / "loop").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  struct Case {
    std::string name;
    file_type type;
    bool folder, file, exists, named;
    std::optional<std::uint64_t> size = {};
  };
  for (const auto& [name, type, is_folder, file, exists, named, size] : {
           Case{"f", file_type::regular, false, true, true, true, 3},
           Case{"link", file_type::regular, false, true, true, true, 3},
           Case{".", file_type::directory, true, false, true, true},
           Case{"pipe", file_type::fifo, false, false, true, true},
           Case{"dangling", file_type::symlink, false, false, false, true},
           Case{"loop", file_type::symlink, false, false, false, true},
           Case{"none", file_type::not_found, false, false, false, false},
           Case{"f/below", file_type::not_found, false, false, false, false},
           Case{std::string(5000, 'x'), file_type::not_found, false, false, false, false},
       }) {
    Store& store = *LocalStore();
    const std::string path = folder / name;
    EXPECT_EQ(*store.TypeOf(path), type) << name;
    EXPECT_EQ(*store.IsFolder(path), is_folder) << name;
    EXPECT_EQ(*store.IsFile(path), file) << name;
    EXPECT_EQ(*store.Exists(path), exists) << name;
    EXPECT_EQ(*store.HasName(path), named) << name;
    EXPECT_EQ(*store.SizeOf(path), size) << name;
  }
  if (::geteuid() == 0) return;  // who may look at everything
  ASSERT_EQ(::mkdir((folder / "closed").c_str(), 0), 0);
  EXPECT_EQ(Why(LocalStore()->Exists(folder / "closed/f")), "cannot open: Permission denied");
}

TEST(CheckStaysInside, LinksOutOfTheFolderAreFound) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "in").c_str(), 0700), 0);
  WriteFile(folder / "in/file", "");
  WriteFile(folder / "out", "");
  ASSERT_EQ(::symlink("file", (folder / "in/near").c_str()), 0);
  ASSERT_EQ(::symlink("../out", (folder / "in/far").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", (folder / "in/dangling").c_str()), 0);
  for (const std::string name : {"file", "near", "dangling", "none"}) {
    EXPECT_OK(CheckStaysInside(folder / "in", name, {})) << name;
  }
  EXPECT_EQ(CheckStaysInside(folder / "in", "far", {}).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(CheckStaysInside(folder / "in", "far", {.follow_links = true}).ok());
  // Below the folder, too.
  ASSERT_EQ(::mkdir((folder / "in/below").c_str(), 0700), 0);
  ASSERT_EQ(::symlink("../file", (folder / "in/below/near").c_str()), 0);
  ASSERT_EQ(::symlink("../../out", (folder / "in/below/far").c_str()), 0);
  ASSERT_EQ(::symlink("..", (folder / "in/up").c_str()), 0);
  EXPECT_OK(CheckStaysInside(folder / "in", "below/near", {}));
  EXPECT_EQ(CheckStaysInside(folder / "in", "below/far", {}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(CheckStaysInside(folder / "in", "up/out", {}).code(), StatusCode::kDataLoss);
}

TEST(ReadUnits, ServesAnyRangeOfWholeUnits) {
  std::string data(96, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
  for (const std::uint64_t unit : {1, 2, 3, 8, 96}) {
    const auto read = [&](std::uint64_t at, std::span<std::byte> out) {
      EXPECT_EQ(at % unit, 0u);
      EXPECT_EQ(out.size() % unit, 0u);
      if (at > data.size() || out.size() > data.size() - at) return InvalidData("beyond");
      std::memcpy(out.data(), data.data() + at, out.size());
      return OkStatus();
    };
    for (std::size_t begin = 0; begin <= data.size(); ++begin) {
      for (std::size_t end = begin; end <= data.size(); ++end) {
        std::string out(end - begin, '?');
        ASSERT_TRUE(ReadUnits(begin, std::as_writable_bytes(std::span(out)), unit, read).ok());
        ASSERT_EQ(out, data.substr(begin, end - begin)) << unit;
      }
    }
    std::string out(2, '?');
    EXPECT_EQ(ReadUnits(95, std::as_writable_bytes(std::span(out)), unit, read).code(),
              StatusCode::kDataLoss);
  }
}

TEST(MergeSources, ManyAttributesThatDisagreeAreCounted) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (int s = 0; s < 2; ++s) {
    Value::Map attributes = {{"same", 1}};
    for (int i = 0; i < 100; ++i) attributes.emplace_back(std::to_string(i), s);
    auto source = std::make_unique<MemorySource>();
    source->SetAttributes(std::move(attributes));
    sources.push_back(std::move(source));
  }
  const auto merged = Must(MergeSources(std::move(sources), {"a", "b"}));
  EXPECT_EQ(merged->attributes().size(), 101u);
  ASSERT_EQ(merged->warnings().size(), 21u);
  EXPECT_EQ(merged->warnings().back(),
            "b: 80 more attributes differ from those in earlier files, which are kept");
}

TEST(OpenFile, AFileThatShrinksOrGrowsIsNoticed) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto source = *OpenFile(folder / "f");
  EXPECT_OK(source->CheckUnchanged());
  std::filesystem::resize_file(folder / "f", 3);
  EXPECT_THAT(ReadError(*source, 0, 6),
              Fails(StatusCode::kDataLoss, HasSubstr("it ends at byte 3, ")));
  EXPECT_THAT(Why(source->CheckUnchanged()), HasSubstr("from 6 to 3 bytes"));
  std::filesystem::resize_file(folder / "f", 7);
  EXPECT_THAT(Why(source->CheckUnchanged()), HasSubstr("from 6 to 7 bytes"));
}

// Makes the time of modification another, as a write does once the clock of files has ticked.
void Touch(const std::string& path) {
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, time + std::chrono::nanoseconds(1));
}

TEST(OpenFile, AFileThatIsWrittenToIsNoticed) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto source = *OpenFile(folder / "f");
  const auto again = *OpenFileForEachRead(folder / "f");
  // What a backup does: reading, a link, another name, other permissions.
  ASSERT_EQ(Read(**OpenFile(folder / "f"), 0, 6), "abcdef");
  std::filesystem::create_hard_link(folder / "f", folder / "link");
  std::filesystem::permissions(folder / "f", std::filesystem::perms::owner_all);
  EXPECT_OK(source->CheckUnchanged());
  EXPECT_OK(again->CheckUnchanged());
  std::filesystem::rename(folder / "f", folder / "g");
  EXPECT_OK(source->CheckUnchanged());
  WriteFile(folder / "g", "ghijkl");
  Touch(folder / "g");
  EXPECT_THAT(source->CheckUnchanged(),
              Fails(StatusCode::kDataLoss, StartsWith("it has been written to")));
}

TEST(OpenFile, AFileThatIsOpenedAgainIsTheFirst) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto source = *OpenFileForEachRead(folder / "f");
  EXPECT_EQ(Read(*source, 1, 3), "bcd");
  EXPECT_EQ(source->descriptor(), std::nullopt);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // more than the clock of files steps
  WriteFile(folder / "g", "ghijkl");
  std::filesystem::last_write_time(folder / "g", std::filesystem::last_write_time(folder / "f"));
  std::filesystem::rename(folder / "g", folder / "f");
  EXPECT_THAT(ReadError(*source, 1, 3),
              Fails(StatusCode::kDataLoss, StartsWith("another file has taken its name")));
  EXPECT_EQ(source->CheckUnchanged().code(), StatusCode::kDataLoss);
}

TEST(OpenFile, AFileThatIsOpenedAgainAndHasAnotherSizeIsRefused) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto source = *OpenFileForEachRead(folder / "f");
  std::filesystem::resize_file(folder / "f", 3);
  EXPECT_THAT(ReadError(*source, 1, 3),
              Fails(StatusCode::kDataLoss, HasSubstr("from 6 to 3 bytes")));
}

TEST(OpenDescriptor, WaitsForANonBlockingPipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(::write(ends[1], "abc", 3), 3);
    ::close(ends[1]);
  });
  const auto source = *OpenDescriptor(ends[0], "pipe");
  EXPECT_EQ(Read(*source, 0, 3), "abc");
  EXPECT_THAT(ReadError(*source, 1, 1),
              Fails(StatusCode::kUnimplemented,
                    "a pipe cannot go back from byte 3 to 1; save it as a file, and name that"));
  writer.join();
  ::close(ends[0]);
}

TEST(OpenDescriptor, ARegularFileBeginsAtItsOffset) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const int fd = ::open((folder / "f").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::lseek(fd, 2, SEEK_SET), 2);
  {
    const auto source = *OpenDescriptor(fd, "standard input");
    EXPECT_FALSE(source->sequential());
    EXPECT_EQ(source->size(), 4u);
    EXPECT_EQ(Read(*source, 1, 3), "def");
    EXPECT_OK(source->CheckUnchanged());
  }
  EXPECT_EQ(::close(fd), 0);  // still ours
  EXPECT_EQ(OpenDescriptor(-1, "none").status().code(), StatusCode::kUnavailable);
}

TEST(Descriptor, IsThatOfAWholeFile) {
  const TempFolder folder;
  WriteFile(folder / "f", "abcdef");
  const auto file = *OpenFile(folder / "f");
  ASSERT_TRUE(file->descriptor());
  char first = 0;
  EXPECT_EQ(::pread(*file->descriptor(), &first, 1, 0), 1);
  EXPECT_EQ(first, 'a');
  const int fd = ::open((folder / "f").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ((*OpenDescriptor(fd, "f"))->descriptor(), fd);
  ASSERT_EQ(::lseek(fd, 2, SEEK_SET), 2);
  EXPECT_FALSE((*OpenDescriptor(fd, "a part of f"))->descriptor());
  EXPECT_EQ(::close(fd), 0);
  EXPECT_FALSE(MemoryBytes(BytesOf("abc"), "memory")->descriptor());
  Dribble pipe("abc");
  EXPECT_FALSE(pipe.Open()->descriptor());
}

// Notes what is asked of it. Byte 20 cannot be read.
class AskedBytes final : public ByteSource {
 public:
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return 256; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    asked.emplace_back(offset, out.size());
    if (throws) throw std::runtime_error("odd");
    if (offset <= 20 && 20 < offset + out.size()) return IoError("byte 20");
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(offset + i);
    return OkStatus();
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> asked;
  bool throws = false;

 private:
  std::string name_ = "asked";
};

class ReadRangesTest : public ::testing::Test {
 protected:
  // Reads, alone by a way of their own.
  Status Read(std::vector<RangeToRead> ranges) {
    for (RangeToRead& range : ranges) {
      range.bytes = std::span(memory_).subspan(static_cast<std::size_t>(used_), range.bytes.size());
      used_ += range.bytes.size();
    }
    return ReadRanges(ranges, [&](std::size_t i) {
      alone_.push_back(i);
      const Status status = ranges[i].from == nullptr
                                ? OkStatus()
                                : source_.ReadAt(ranges[i].offset, ranges[i].bytes);
      return status.ok() ? status : Annotate(status, "range " + std::to_string(i));
    });
  }
  RangeToRead Of(std::uint64_t offset, std::size_t bytes) {
    return {&source_, offset, std::span(memory_).first(bytes)};
  }
  using Asked = std::vector<std::pair<std::uint64_t, std::size_t>>;
  AskedBytes source_, other_;
  std::array<std::byte, 256> memory_ = {};
  std::size_t used_ = 0;
  std::vector<std::size_t> alone_;
};

TEST_F(ReadRangesTest, NeighboursComeWithOneCall) {
  std::vector<RangeToRead> ranges = {Of(100, 4), Of(104, 1), Of(105, 0), Of(105, 3),
                                     Of(109, 2), Of(111, 2), Of(0, 0)};
  ranges.push_back({nullptr, 113, std::span(memory_).first(5)});
  ranges.push_back({&other_, 118, std::span(memory_).first(1)});
  ASSERT_TRUE(Read(ranges).ok());
  EXPECT_EQ(source_.asked, (Asked{{100, 8}, {109, 4}, {118, 1}}));
  EXPECT_THAT(other_.asked, ::testing::IsEmpty());
  EXPECT_THAT(alone_, ::testing::ElementsAre(7, 8));
  for (const auto& [at, value] : {std::pair(0, 100), {7, 107}, {8, 109}, {11, 112}, {17, 118}}) {
    EXPECT_EQ(static_cast<int>(memory_[static_cast<std::size_t>(at)]), value) << at;
  }
}

// Which neighbour it was, only reading them one by one tells.
TEST_F(ReadRangesTest, OfNeighboursTheOneThatFailsIsNamed) {
  EXPECT_EQ(std::string(Message(Read({Of(16, 4), Of(20, 4), Of(24, 4), Of(40, 4)}))),
            "range 1: byte 20");
  EXPECT_EQ(source_.asked, (Asked{{16, 12}, {16, 4}, {20, 4}}));
  source_.throws = true;
  EXPECT_THROW((void)Read({Of(30, 4), Of(34, 4)}), std::runtime_error);  // by the way of their own
  EXPECT_EQ(source_.asked.size(), 5u);
}

TEST(RangeAt, IsByTheExtent) {
  std::array<std::byte, 8> memory = {};
  MemorySource source;
  ASSERT_TRUE(source.Add(*DenseObject("a", {8}, {DType::kU8, ""}), {memory}).ok());
  const RangeToRead range = source.RangeAt({0, 0}, 2, std::span(memory).first(3));
  EXPECT_EQ(range.from, nullptr);  // in memory: no ByteSource stands behind it
  EXPECT_EQ(range.bytes.size(), 3u);
}

TEST(Pipe, AscendingRangesAndNothingElse) {
  const std::string content = Content(200000);
  Dribble dribble(content);
  const auto source = dribble.Open();
  EXPECT_TRUE(source->sequential());
  EXPECT_EQ(source->size(), std::nullopt);
  EXPECT_EQ(Read(*source, 0, 10), content.substr(0, 10));
  EXPECT_EQ(Read(*source, 10, 50000), content.substr(10, 50000));
  EXPECT_EQ(Read(*source, 150000, 100),
            content.substr(150000, 100));  // what lies between is dropped
  EXPECT_EQ(ReadError(*source, 150099, 1).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Read(*source, 150100, 1), content.substr(150100, 1));
}

TEST(Pipe, PeekKeepsTheBytes) {
  const std::string content = Content(5000);
  Dribble dribble(content);
  const auto source = dribble.Open();
  for (const std::size_t count : {3u, 100u, 8u}) {
    const auto head = Must(Peek(*source, count));
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(head.data()), head.size()),
              content.substr(0, count));
  }
  EXPECT_EQ(Read(*source, 0, 2000), content.substr(0, 2000));
  EXPECT_EQ(Peek(*source, 8).status().code(), StatusCode::kFailedPrecondition);
}

TEST(Pipe, PeekOfAShortStreamGivesWhatThereIs) {
  Dribble dribble("abc");
  const auto source = dribble.Open();
  EXPECT_EQ(Peek(*source, 100)->size(), 3u);
  EXPECT_EQ(Read(*source, 0, 3), "abc");
  EXPECT_TRUE(*source->AtEnd(3));
}

TEST(Pipe, AtEndKeepsTheByteItWaitedFor) {
  Dribble dribble("abcdef");
  const auto source = dribble.Open();
  EXPECT_FALSE(*source->AtEnd(2));
  EXPECT_EQ(Read(*source, 2, 3), "cde");
  EXPECT_FALSE(*source->AtEnd(5));
  EXPECT_TRUE(*source->AtEnd(6));
}

TEST(Pipe, TruncationSaysWhere) {
  Dribble dribble("abcdef");
  const auto source = dribble.Open();
  EXPECT_THAT(ReadError(*source, 4, 10),
              Fails(StatusCode::kDataLoss,
                    "it ends at byte 6, 10 bytes from 4 were expected; the file is truncated"));
  Dribble skipped("abcdef");
  const auto other = skipped.Open();
  EXPECT_THAT(Why(ReadError(*other, 100, 1)), HasSubstr("it ends at byte 6, "));
}

TEST(ReadAll, OfPipesAndMemory) {
  const std::string content = Content(5000);
  for (const std::string& text : {content, std::string()}) {
    Dribble dribble(text);
    EXPECT_EQ(Must(ReadAll(*dribble.Open(), 5000)), text);
    EXPECT_EQ(Must(ReadAll(*MemoryBytes(BytesOf(text), "memory"), 5000)), text);
  }
  const auto too_long = Fails(StatusCode::kDataLoss, "it has more than 4999 bytes");
  Dribble dribble(content);
  EXPECT_THAT(ReadAll(*dribble.Open(), 4999).status(), too_long);
  EXPECT_THAT(ReadAll(*MemoryBytes(BytesOf(content), "memory"), 4999).status(), too_long);
}

TEST(KnownSize, IsNotThatOfAPipe) {
  EXPECT_EQ(Must(KnownSize(*MemoryBytes(BytesOf("abc"), "memory"), "a model")), 3u);
  Dribble dribble("abc");
  EXPECT_THAT(KnownSize(*dribble.Open(), "a model").status(),
              Fails(StatusCode::kUnimplemented, "a model cannot be read from a pipe; name a file"));
  EXPECT_THAT(NotFromPipe("https://host/m", "a model"),
              Fails(StatusCode::kUnimplemented,
                    "a model cannot be read from a server without ranges; download it"));
}

TEST(Peek, OfFilesAndMemory) {
  const auto source = MemoryBytes(BytesOf("abc"), "memory");
  EXPECT_EQ(Peek(*source, 2)->size(), 2u);
  EXPECT_EQ(Peek(*source, 9)->size(), 3u);
  EXPECT_EQ(Peek(*MemoryBytes({}, "none"), 9)->size(), 0u);
  EXPECT_EQ(ReadError(*source, 2, 2).code(), StatusCode::kDataLoss);
  EXPECT_OK(source->CheckUnchanged());
}

std::unique_ptr<MemorySource> Source(std::vector<std::pair<std::string, std::string_view>> tensors,
                                     Value::Map attributes = {}) {
  auto source = std::make_unique<MemorySource>();
  for (auto& [name, text] : tensors) {
    const Status status =
        source->Add(*DenseObject(name, {text.size()}, {DType::kU8, ""}), {BytesOf(text)});
    EXPECT_OK(status);
  }
  source->SetAttributes(std::move(attributes));
  return source;
}

TEST(MemorySource, DeclaresAndServes) {
  auto source = Source({{"a", "abc"}, {"b", ""}});
  std::string out(2, '?');
  ASSERT_OK(source->Read({0, 0}, 1, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "bc");
  EXPECT_EQ(source->Read({0, 0}, 2, std::as_writable_bytes(std::span(out))).code(),
            StatusCode::kInvalidArgument);
  EXPECT_OK(source->Finish());
  EXPECT_EQ(Why(source->Add(*DenseObject("c", {4}, {DType::kU8, ""}), {BytesOf("abc")})),
            "tensor 'c': component 'data' declares 4 bytes, 3 given");
  EXPECT_FALSE(source->Add(*DenseObject("c", {3}, {DType::kU8, ""}), {}).ok());
  EXPECT_EQ(source->objects().size(), 2u);
}

TEST(MergeSources, InOrderUnderTheirOwnFiles) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(Source({{"b", "bb"}, {"a", "aaa"}}));
  sources.push_back(Source({}));
  sources.push_back(Source({{"c", "c"}}));
  const auto merged = *MergeSources(std::move(sources), {"1", "2", "3"});
  ASSERT_EQ(merged->objects().size(), 3u);
  EXPECT_EQ(merged->objects()[1].name, "a");
  EXPECT_EQ(merged->file({1, 0}), "1");
  EXPECT_EQ(merged->file({2, 0}), "3");
  EXPECT_EQ(merged->format(), "memory");
  EXPECT_TRUE(merged->seekable());
  std::string out(3, '?');
  ASSERT_OK(merged->Read({1, 0}, 0, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "aaa");
  EXPECT_EQ(merged->View({2, 0})->size(), 1u);
  EXPECT_EQ(merged->extent({1, 0})->length, 3u);
  EXPECT_OK(merged->Finish());
}

TEST(MergeSources, ANameInTwoFilesNamesBoth) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(Source({{"a", "x"}}));
  sources.push_back(Source({{"b", "x"}, {"a", "y"}}));
  EXPECT_THAT(MergeSources(std::move(sources), {"1.npy", "2.npy"}),
              Fails(StatusCode::kDataLoss, "tensor 'a': it is in both 1.npy and 2.npy"));
}

TEST(MergeSources, OfAttributesThatDisagreeTheFirstIsKept) {
  Value::Map first, second;
  SetMember(first, "same", 1);
  SetMember(first, "other", 1);
  SetMember(second, "same", 1);
  SetMember(second, "other", 2);
  SetMember(second, "new", 3);
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(Source({{"a", "x"}}, first));
  sources.push_back(Source({{"b", "x"}}, second));
  const auto merged = *MergeSources(std::move(sources), {"1", "2"});
  EXPECT_EQ(merged->attributes().size(), 3u);
  EXPECT_EQ(*FindMember(merged->attributes(), "other"), Value(1));
  ASSERT_EQ(merged->warnings().size(), 1u);
  EXPECT_EQ(merged->warnings()[0],
            "2: attribute 'other' differs from the one in an earlier file, which is kept");
}

TEST(MergeSources, OneAloneIsItself) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(Source({{"a", "x"}}));
  const TensorSource* const alone = sources[0].get();
  const auto merged = *MergeSources(std::move(sources), {"1"});
  EXPECT_EQ(merged.get(), alone);
  EXPECT_EQ(merged->file({}), "1");
}

// Fails at its end as a source does: naming its file.
class Ends final : public TensorSource {
 public:
  std::string_view format() const override { return "test"; }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override { return OkStatus(); }
  Status Finish() override { return InvalidData("f: the end is wrong"); }
};

// Each component of an object in a file of its own, as a .zt of several shards may have it.
class Apart final : public TensorSource {
 public:
  explicit Apart(std::vector<std::vector<std::string>> files) : files_(std::move(files)) {
    for (const auto& each : files_) {
      Object& object = objects_.emplace_back();
      object.components.resize(each.size());
    }
  }
  std::string_view format() const override { return "test"; }
  const std::string& file(ComponentId id) const override { return files_[id.object][id.component]; }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override { return OkStatus(); }

 private:
  const std::vector<std::vector<std::string>> files_;
};

TEST(FilesOf, HasTheFileOfEachComponentOnce) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(FilesOf(Apart({{"b", "a"}, {"b"}, {}, {"c", "b", "d"}})), (Names{"b", "a", "c", "d"}));
  EXPECT_EQ(FilesOf(Apart({})), Names());
}

TEST(LostAttributes, CountsTheTensorsThatHaveOthers) {
  MemorySource source;
  const std::array<std::byte, 1> byte{};
  for (const char* name : {"a", "b", "c"}) {
    Object object = *DenseObject(name, {1}, {DType::kU8, ""});
    object.attributes.emplace_back("kept", 1);
    if (*name != 'a') object.attributes.emplace_back("lost", 2);
    ASSERT_TRUE(source.Add(std::move(object), {byte}).ok());
  }
  const std::array<std::uint32_t, 3> all{0, 1, 2};
  static constexpr std::string_view kKept[] = {"kept"};
  EXPECT_EQ(LostAttributes(source, all, kKept, "it drops"),
            "it drops the attributes of 2 tensors, 'b' the first");
  EXPECT_EQ(LostAttributes(source, std::span(all).first(1), kKept, "it drops"), "");
}

TEST(MergeSources, AnErrorAtTheEndIsPassedAsItIs) {
  std::vector<std::unique_ptr<TensorSource>> sources;
  sources.push_back(Source({{"a", "x"}}));
  sources.push_back(std::make_unique<Ends>());
  const auto merged = *MergeSources(std::move(sources), {"1", "f"});
  EXPECT_EQ(Why(merged->Finish()), "f: the end is wrong");
}

}  // namespace
}  // namespace zt
