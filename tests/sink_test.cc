// zt.sink: files that appear only when whole, descriptors, memory.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

import zt.core;
import zt.sink;

// The program's own calls of the system, so that a test can say what the disk answers.
namespace {
std::atomic<int> g_write_back_error = 0;   // of the next sync_file_range that waits
std::atomic<int> g_folder_sync_error = 0;  // of every fsync of a folder
std::atomic<int> g_syncs = 0;              // how often fsync was called
std::atomic<int> g_flags_error = 0;        // of every renameat2 with a flag
std::atomic<int> g_link_error = 0;         // of every link
std::atomic<int> g_mode_error = 0;         // of every fchmod
std::atomic<bool> g_naps = true;           // false: none takes any time
}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) {
  if (const int error = g_flags_error; error != 0 && flags != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

extern "C" int link(const char* from, const char* to) noexcept {
  if (const int error = g_link_error; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int fchmod(int fd, mode_t mode) noexcept {
  if (const int error = g_mode_error; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fchmod, fd, mode));
}

extern "C" int nanosleep(const timespec* wanted, timespec* left) {
  return g_naps ? static_cast<int>(::syscall(SYS_nanosleep, wanted, left)) : 0;
}

extern "C" int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned flags) {
  if ((flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0) {
    if (const int error = g_write_back_error.exchange(0); error != 0) {
      errno = error;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, bytes, flags));
}

extern "C" int fsync(int fd) {
  struct stat info;
  ++g_syncs;
  if (const int error = g_folder_sync_error;
      error != 0 && ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    errno = error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace zt {
namespace {

Status Append(Sink& sink, std::string_view text) {
  const std::array pieces = {BytesOf(text)};
  return sink.Append(pieces);
}

Status Place(Sink& sink, std::uint64_t offset, std::string_view text) {
  const std::array pieces = {BytesOf(text)};
  return sink.WriteAt(offset, pieces);
}

std::unique_ptr<Sink> Create(const std::string& path, bool overwrite = false) {
  auto sink = CreateFileSink(path, {.overwrite = overwrite});
  EXPECT_OK(sink);
  return sink.ok() ? *std::move(sink) : nullptr;
}

TEST(FileSink, AppearsUnderItsNameOnlyWhenFinished) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  ASSERT_OK(Append(*sink, "abc"));
  const std::string temporary = folder.Entries().at(0);
  EXPECT_EQ(folder.Entries().size(), 1u);
  EXPECT_THAT(temporary, StartsWith(".o.zt." + std::to_string(::getpid()) + "-"));
  EXPECT_THAT(temporary, EndsWith(".ztstream-tmp"));
  ASSERT_OK(Append(*sink, "def"));
  ASSERT_OK(sink->Finish(6));
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  EXPECT_EQ(ReadFile(folder / "o.zt"), "abcdef");
  EXPECT_EQ(sink->Finish(6).code(), StatusCode::kFailedPrecondition);
  sink->Abort();
  sink.reset();
  EXPECT_EQ(ReadFile(folder / "o.zt"), "abcdef");
}

TEST(FileSink, ModeFollowsTheUmask) {
  const TempFolder folder;
  const mode_t before = ::umask(027);
  ASSERT_OK(Create(folder / "o.zt")->Finish(0));
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::stat((folder / "o.zt").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(FileSink, PlacedBytesAndGapsThatReadAsZero) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  ASSERT_TRUE(sink->can_place());
  ASSERT_OK(Place(*sink, 6, "xyz"));
  ASSERT_OK(Place(*sink, 0, "ab"));
  ASSERT_OK(sink->Finish(11));
  EXPECT_EQ(ReadFile(folder / "o.zt"), std::string("ab\0\0\0\0xyz\0\0", 11));
}

TEST(FileSink, MorePiecesThanOneCallTakes) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  std::string want;
  for (int i = 0; i < 3000; ++i) want += static_cast<char>(i * 7);
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t i = 0; i < want.size(); ++i) {
    pieces.push_back(BytesOf(std::string_view(want).substr(i, 1)));
    pieces.push_back({});
  }
  ASSERT_OK(sink->Append(pieces));
  ASSERT_OK(sink->Finish(want.size()));
  EXPECT_EQ(ReadFile(folder / "o.zt"), want);
}

// Beyond some size what was written goes to the disk in steps and leaves the page cache.
TEST(FileSink, WhatLeavesThePageCacheIsInTheFile) {
  constexpr std::size_t kPiece = 16 << 20;
  const TempFolder folder;
  std::string piece(kPiece, '\0'), read(kPiece, '\0');
  for (std::size_t i = 0; i < kPiece; ++i) piece[i] = static_cast<char>(i * 2654435761U >> 13);
  const auto stamp = [&](std::uint64_t index) { std::memcpy(piece.data(), &index, sizeof index); };
  for (const bool sync : {false, true}) {
    SCOPED_TRACE(sync);
    const std::uint64_t begin = sync ? 14 : 62, end = begin + 10;  // 256 MiB or a GiB stay
    auto sink = Must(CreateFileSink(folder / "o.zt", {.overwrite = true, .sync = sync}));
    for (std::uint64_t i = 0; i < begin; ++i) ASSERT_OK(Place(*sink, 0, piece));  // it counts
    // Neighbours change places: writes come nearly in order.
    for (std::uint64_t i = begin; i < end; ++i) {
      stamp(i ^ 1);
      ASSERT_OK(Place(*sink, (i ^ 1) * kPiece, piece));
    }
    ASSERT_OK(sink->Finish(end * kPiece));
    std::ifstream file(folder / "o.zt", std::ios::binary);
    file.seekg(static_cast<std::streamoff>(begin * kPiece));
    for (std::uint64_t i = begin; i < end; ++i) {
      stamp(i);
      ASSERT_TRUE(file.read(read.data(), kPiece));
      ASSERT_TRUE(read == piece) << "piece " << i;
    }
    EXPECT_EQ(file.peek(), std::ifstream::traits_type::eof());
  }
}

// The kernel reports an error of write-back once, to the first caller: it must not be taken for
// granted by a call that is a mere help.
TEST(FileSink, AnErrorOfWriteBackIsReportedWhateverItsNumber) {
  const TempFolder folder;
  const std::string piece(16 << 20, 'x');
  for (const int error : {EIO, ENOSPC, EDQUOT, ENODATA, EREMOTEIO, ETIMEDOUT, EILSEQ, ENOLINK}) {
    SCOPED_TRACE(error);
    auto sink = Create(folder / "o.zt");
    g_write_back_error = error;
    Status status = OkStatus();  // the same bytes again and again: what counts is how many
    for (std::uint64_t i = 0; i < 24 && status.ok(); ++i) status = Place(*sink, 0, piece);
    EXPECT_EQ(g_write_back_error.exchange(0), 0);
    EXPECT_THAT(status, Fails(StatusCode::kUnavailable, StartsWith("cannot write: ")));
    sink.reset();
    EXPECT_THAT(folder.Entries(), IsEmpty());
  }
  for (const int error : {ENOSYS, EOPNOTSUPP, EINVAL}) {  // the file system cannot
    SCOPED_TRACE(error);
    auto sink = Create(folder / "o.zt", true);
    g_write_back_error = error;
    for (std::uint64_t i = 0; i < 24; ++i) ASSERT_OK(Place(*sink, 0, piece));
    EXPECT_EQ(g_write_back_error.exchange(0), 0);
    ASSERT_OK(sink->Finish(24 * piece.size()));
  }
}

TEST(FileSink, WhereTheFolderCannotBeSyncedTheOutputIsThereAndTheErrorSaysSo) {
  const TempFolder folder;
  for (const bool overwrite : {false, true}) {
    SCOPED_TRACE(overwrite);
    auto sink = Create(folder / "o.zt", overwrite);
    ASSERT_OK(Append(*sink, overwrite ? "newer" : "new"));
    g_folder_sync_error = EIO;
    const Status status = sink->Finish(overwrite ? 5 : 3);
    g_folder_sync_error = 0;
    EXPECT_THAT(status, Fails(StatusCode::kUnavailable,
                              "it is complete and has its name, but a crash may undo that: cannot "
                              "sync " +
                                  folder.path() + ": Input/output error"));
    sink->Abort();
    EXPECT_EQ(ReadFile(folder / "o.zt"), overwrite ? "newer" : "new");
    EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  }
}

// What file systems without RENAME_NOREPLACE, and those without hard links too, make of it.
TEST(FileSink, GetsItsNameWithoutFlagsAndLinks) {
  for (const bool links : {true, false}) {
    SCOPED_TRACE(links);
    const TempFolder folder;
    g_flags_error = EINVAL;
    g_link_error = links ? 0 : EPERM;
    auto first = Create(folder / "o.zt"), second = Create(folder / "o.zt");
    ASSERT_OK(Append(*first, "first"));
    ASSERT_OK(Append(*second, "second"));
    EXPECT_OK(first->Finish(5));
    EXPECT_EQ(second->Finish(6).code(), StatusCode::kAlreadyExists);
    EXPECT_EQ(ReadFile(folder / "o.zt"), "first");
    auto third = Create(folder / "o.zt", true);
    ASSERT_OK(Append(*third, "third"));
    EXPECT_OK(third->Finish(5));
    g_flags_error = g_link_error = 0;
    EXPECT_EQ(ReadFile(folder / "o.zt"), "third");
    EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  }
}

TEST(FileSink, AReplacedFileKeepsItsPermissions) {
  const TempFolder folder;
  for (const mode_t mode : {0600, 0640, 0444, 0755}) {
    WriteFile(folder / "o.zt", "old");
    ASSERT_EQ(::chmod((folder / "o.zt").c_str(), mode), 0);
    auto sink = Create(folder / "o.zt", true);
    struct stat info;
    ASSERT_EQ(::stat((folder / folder.Entries().at(0)).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, mode);
    ASSERT_OK(sink->Finish(0));
    ASSERT_EQ(::stat((folder / "o.zt").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, mode);
    ::unlink((folder / "o.zt").c_str());
  }
}

TEST(FileSink, AReplacedFileKeepsItsOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser may give files away";
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  ASSERT_EQ(::chmod((folder / "o.zt").c_str(), 0640), 0);
  ASSERT_EQ(::chown((folder / "o.zt").c_str(), 1234, 2345), 0);
  ASSERT_OK(Create(folder / "o.zt", true)->Finish(0));
  ASSERT_EQ(::mkdir((folder / "d").c_str(), 0777), 0);
  ASSERT_EQ(::rename((folder / "o.zt").c_str(), (folder / "d/o.zt").c_str()), 0);
  auto files = Must(FolderSink::Create(folder / "d", {.overwrite = true}));
  WriteFile(files->Staged("o.zt"), "new");
  ASSERT_OK(files->Finish());
  ASSERT_OK(Must(CreateFileSink(folder / "p.zt", {.like = folder / "d/o.zt"}))->Finish(0));
  for (const std::string path : {"d/o.zt", "p.zt"}) {
    struct stat info;
    ASSERT_EQ(::stat((folder / path).c_str(), &info), 0);
    EXPECT_THAT((std::array{info.st_uid, info.st_gid, info.st_mode & 0777}),
                ElementsAre(1234u, 2345u, 0640u))
        << path;
  }
  EXPECT_EQ(ReadFile(folder / "d/o.zt"), "new");
}

// What both kinds of sinks say of "o.zt" in `folder` before anything is written.
void ExpectRefused(const TempFolder& folder, const std::string& why) {
  const std::vector<std::string> before = folder.Entries();
  const auto refused = Fails(StatusCode::kUnavailable, HasSubstr(why));
  EXPECT_THAT(CreateFileSink(folder / "o.zt", {.overwrite = true}).status(), refused);
  EXPECT_THAT(
      FolderSink::CheckFiles(folder.path() + "/", std::vector<std::string>{"n", "o.zt"}, true),
      refused);
  EXPECT_EQ(folder.Entries(), before);
}

TEST(FileSink, AnotherUsersFileInAStickyFolderIsRefusedAtOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser may become another user";
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  WriteFile(folder / "own", "old");
  ASSERT_EQ(::chown((folder / "own").c_str(), 1234, 1234), 0);
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  ASSERT_EQ(::seteuid(1234), 0);
  ExpectRefused(folder, "o.zt: it cannot be replaced: it is another user's, and the folder is");
  for (const std::string name : {"own", "new"}) EXPECT_OK(Create(folder / name, true)->Finish(0));
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_OK(Create(folder / "o.zt", true)->Finish(0));
}

TEST(FileSink, WhatIsAppendOnlyOrImmutableIsRefusedAtOnce) {
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  for (const std::string flag : {"a", "i"}) {
    const std::string file = " " + folder / "o.zt", all = " " + folder.path();
    if (std::system(("chattr +" + flag + file + " 2> /dev/null").c_str()) != 0)
      GTEST_SKIP() << "only the superuser may set it, and not everywhere";
    ExpectRefused(folder, "o.zt: it cannot be replaced: it is immutable or append-only");
    ASSERT_EQ(std::system(("chattr -" + flag + file + " && chattr +" + flag + all).c_str()), 0);
    ExpectRefused(folder, "o.zt: the folder " + folder.path() + " is immutable or append-only");
    for (const std::string path : {"", "/new"}) {
      EXPECT_EQ(FolderSink::Create(folder.path() + path, {}).status().code(),
                StatusCode::kUnavailable);
    }
    EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
    ASSERT_EQ(std::system(("chattr -" + flag + all).c_str()), 0);
  }
}

TEST(FileSink, AMountedFileIsRefusedAtOnce) {
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  const pid_t child = ::fork();
  if (child == 0) {  // the mount goes with its namespace
    const std::string file = folder / "o.zt";
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
        ::mount(file.c_str(), file.c_str(), nullptr, MS_BIND, nullptr) != 0)
      ::_exit(77);
    ExpectRefused(folder, "o.zt: it cannot be replaced: something is mounted on it");
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(FileSink, AFolderThatAppearsMeanwhileIsKept) {
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  auto sink = Create(folder / "o.zt", true);
  ASSERT_OK(Append(*sink, "new"));
  ASSERT_EQ(::unlink((folder / "o.zt").c_str()), 0);
  ASSERT_EQ(::mkdir((folder / "o.zt").c_str(), 0777), 0);
  WriteFile(folder / "o.zt/inside", "theirs");
  EXPECT_THAT(sink->Finish(3),
              Fails(StatusCode::kInvalidArgument, "the output is a folder; name a file"));
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  EXPECT_EQ(ReadFile(folder / "o.zt/inside"), "theirs");
}

TEST(FileSink, ReservedBytesBeyondTheEndAreGivenBack) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  ASSERT_OK(sink->Reserve(8 << 20));
  ASSERT_OK(Append(*sink, "abc"));
  ASSERT_OK(sink->Finish(3));
  struct stat info;
  ASSERT_EQ(::stat((folder / "o.zt").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 3);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);
}

// On a nearly full disk a second hint must not ask once more for what is written already. The disk
// is not full here, so the hint is: all that was free before, and a little less.
TEST(FileSink, ReserveDoesNotAskForWhatIsWritten) {
  constexpr std::uint64_t kWritten = 64 << 20, kOthers = 32 << 20;
  const TempFolder folder;
  bool fits = false;
  for (int attempt = 0; attempt < 3 && !fits; ++attempt) {  // others may write to the disk as well
    auto sink = Create(folder / "o.zt", true);
    const std::uint64_t free = std::filesystem::space(folder.path()).available;
    if (free < 2 * kWritten) GTEST_SKIP() << "the disk is full";
    ASSERT_OK(Append(*sink, std::string(kWritten, 'x')));
    fits = sink->Reserve(free - kOthers).ok();
  }
  EXPECT_TRUE(fits);
}

TEST(FileSink, ReserveFailsWhereTheBytesCannotFit) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  const Status status = sink->Reserve(std::uint64_t{1} << 62);
  if (status.ok()) GTEST_SKIP() << "this file system does not preallocate";
  EXPECT_THAT(status,
              Fails(StatusCode::kUnavailable, HasSubstr("4611686018427387904 bytes are needed")));
}

TEST(FileSink, AFileThatAppearsMeanwhileIsKept) {
  const TempFolder folder;
  auto sink = Create(folder / "o.zt");
  ASSERT_OK(Append(*sink, "mine"));
  WriteFile(folder / "o.zt", "theirs");
  EXPECT_EQ(sink->Finish(4).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(folder / "o.zt"), "theirs");
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
}

TEST(FileSink, AFileThatVanishesMeanwhileIsNoMatter) {
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  auto sink = Create(folder / "o.zt", true);
  ASSERT_OK(Append(*sink, "new"));
  ASSERT_EQ(::unlink((folder / "o.zt").c_str()), 0);
  ASSERT_OK(sink->Finish(3));
  EXPECT_EQ(ReadFile(folder / "o.zt"), "new");
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
}

TEST(FileSink, AbortRemovesTheTemporaryFileAndIsIdempotent) {
  const TempFolder folder;
  WriteFile(folder / "o.zt", "old");
  auto sink = Create(folder / "o.zt", true);
  ASSERT_OK(Append(*sink, "new"));
  sink->Abort();
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  sink->Abort();
  EXPECT_EQ(sink->Finish(3).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadFile(folder / "o.zt"), "old");
}

TEST(FileSink, TheDestructorAborts) {
  const TempFolder folder;
  Create(folder / "o.zt");
  EXPECT_THAT(folder.Entries(), IsEmpty());
}

TEST(FileSink, LeftoversGoUnlessSomebodyHoldsThemLocked) {
  const TempFolder folder;
  WriteFile(folder / ".o.zt.123-0.ztstream-tmp", "left");
  WriteFile(folder / ".o.zt.124-0.ztstream-tmp", "live");
  WriteFile(folder / ".p.zt.123-0.ztstream-tmp", "another output's");
  WriteFile(folder / ".o.zt.x-0.ztstream-tmp", "no process");
  WriteFile(folder / ".o.zt..ztstream-tmp", "no process either");
  WriteFile(folder / ".o.zt.123-0.tmp", "another program's");
  const int live = ::open((folder / ".o.zt.124-0.ztstream-tmp").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(live, LOCK_EX | LOCK_NB), 0);
  ASSERT_OK(Create(folder / "o.zt")->Finish(0));
  EXPECT_THAT(folder.Entries(),
              ElementsAre(".o.zt..ztstream-tmp", ".o.zt.123-0.tmp", ".o.zt.124-0.ztstream-tmp",
                          ".o.zt.x-0.ztstream-tmp", ".p.zt.123-0.ztstream-tmp", "o.zt"));
  ::close(live);
  ASSERT_OK(Create(folder / "o.zt", true)->Finish(0));
  EXPECT_THAT(folder.Entries(), ::testing::Not(::testing::Contains(".o.zt.124-0.ztstream-tmp")));
}

TEST(FileSink, ManyAtOnceForOneOutputLeaveOneWholeFile) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        auto sink = Must(CreateFileSink(folder / "o.zt", {.overwrite = true, .sync = false}));
        ASSERT_OK(Append(*sink, std::string(1000, static_cast<char>('a' + t))));
        ASSERT_OK(sink->Finish(1000));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(folder.Entries(), ElementsAre("o.zt"));
  const std::string content = ReadFile(folder / "o.zt");
  EXPECT_EQ(content, std::string(1000, content.at(0)));
}

TEST(FileSink, ThroughASymbolicLinkTheFileItNamesIsReplaced) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "real").c_str(), 0777), 0);
  WriteFile(folder / "real/o.zt", "old");
  ASSERT_EQ(::symlink("real/o.zt", (folder / "link").c_str()), 0);
  auto sink = Create(folder / "link", true);
  ASSERT_OK(Append(*sink, "new"));
  EXPECT_EQ(sink->name(), folder / "link");
  ASSERT_OK(sink->Finish(3));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "real/o.zt"), "new");
}

TEST(FileSink, ADanglingLinkIsRefusedAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(::symlink("nowhere/o.zt", (folder / "link").c_str()), 0);
  for (const bool overwrite : {false, true}) {
    EXPECT_THAT(
        CreateFileSink(folder / "link", {.overwrite = overwrite}).status(),
        Fails(StatusCode::kAlreadyExists, HasSubstr("link: it is a link that leads nowhere")));
    const std::vector<std::string> files = {"link"};
    EXPECT_THAT(
        FolderSink::CheckFiles(folder / "", files, overwrite),
        Fails(StatusCode::kAlreadyExists, HasSubstr("link: it is a link that leads nowhere")));
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_THAT(folder.Entries(), ElementsAre("link"));
}

TEST(FileSink, ANameAsLongAsTheFileSystemAllows) {
  const TempFolder folder;
  const std::string name(255, 'n');
  auto sink = Create(folder / name);
  ASSERT_NE(sink, nullptr);
  EXPECT_THAT(folder.Entries().at(0), StartsWith(".nnn"));
  EXPECT_THAT(folder.Entries().at(0), EndsWith(".ztstream-tmp"));
  ASSERT_OK(sink->Finish(0));
  EXPECT_THAT(folder.Entries(), ElementsAre(name));
  auto long_one = CreateFileSink(folder / std::string(256, 'n'), {});
  if (long_one.ok()) EXPECT_EQ((*long_one)->Finish(0).code(), StatusCode::kUnavailable);
  EXPECT_THAT(folder.Entries(), ElementsAre(name));
}

TEST(FileSink, FoldersAndEmptyNamesAreNoOutputs) {
  const TempFolder folder;
  EXPECT_EQ(CreateFileSink("", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateFileSink(folder.path(), {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateFileSink(folder / "none/", {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateFileSink(folder / "none/o.zt", {}).status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(folder.Entries(), IsEmpty());
}

TEST(FileSink, AbandonedTemporaryFilesGoAndTheirFinishFails) {
  const TempFolder folder;
  WriteFile(folder / "p.zt", "old");
  auto fresh = Create(folder / "o.zt");
  auto over = Create(folder / "p.zt", true);
  auto done = Create(folder / "q.zt");
  ASSERT_OK(done->Finish(0));
  auto files = Must(FolderSink::Create(folder / "d", {}));
  WriteFile(files->Staged("a"), "x");
  {
    const Publication publication;
    EXPECT_FALSE(AbandonTemporaryFiles(Publication::Begun()));
  }
  EXPECT_FALSE(AbandonTemporaryFiles(Publication::Begun() - 1));
  EXPECT_EQ(folder.Entries().size(), 5u);
  EXPECT_TRUE(AbandonTemporaryFiles(Publication::Begun()));
  EXPECT_THAT(folder.Entries(), ElementsAre("p.zt", "q.zt"));
  EXPECT_EQ(fresh->Finish(0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(over->Finish(0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(files->Finish().code(), StatusCode::kUnavailable);
  EXPECT_THAT(folder.Entries(), ElementsAre("p.zt", "q.zt"));
  EXPECT_EQ(ReadFile(folder / "p.zt"), "old");
}

std::unique_ptr<FolderSink> CreateFolder(const std::string& path, FolderSinkOptions options = {}) {
  auto sink = FolderSink::Create(path, options);
  EXPECT_OK(sink);
  return sink.ok() ? *std::move(sink) : nullptr;
}

TEST(FolderSink, ANewFolderAppearsWhole) {
  const TempFolder folder;
  auto sink = CreateFolder(folder / "d///");
  for (const std::string file : {"a", "b"}) WriteFile(sink->Staged(file), file);
  const std::string hidden = folder.Entries().at(0);
  EXPECT_THAT(hidden, StartsWith(".d." + std::to_string(::getpid()) + "-"));
  EXPECT_THAT(hidden, EndsWith(".ztstream-tmp"));
  struct stat info;
  ASSERT_EQ(::stat((folder / hidden).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  const mode_t before = ::umask(027);
  ASSERT_OK(sink->Finish());
  ::umask(before);
  ASSERT_EQ(::stat((folder / "d").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
  EXPECT_EQ(ReadFile(folder / "d/b"), "b");
  EXPECT_THAT(folder.Entries(), ElementsAre("d"));
}

TEST(FolderSink, ANewFolderIsOfItsFoldersGroup) {
  const TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 02755), 0);
  ASSERT_OK(CreateFolder(folder / "d")->Finish());
  struct stat info;
  ASSERT_EQ(::stat((folder / "d").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07000, 02000u);
}

TEST(FolderSink, AFileSystemMayRefuseModes) {
  const TempFolder folder;
  g_mode_error = EPERM;
  auto sink = CreateFolder(folder / "d");
  WriteFile(sink->Staged("a"), "a");
  EXPECT_OK(sink->Finish());
  g_mode_error = 0;
  EXPECT_EQ(ReadFile(folder / "d/a"), "a");
}

TEST(FolderSink, FilesMayHaveTheNamesOfHiddenOnes) {
  const TempFolder folder;
  auto sink = CreateFolder(folder / "d");
  // The number in the name of the hidden folder, after which the next are taken.
  const std::string pid = std::to_string(::getpid()) + "-";
  const std::string staged = sink->Staged("");
  const int taken = std::stoi(staged.substr(staged.rfind(pid) + pid.size()));
  for (int i = 1; i <= 50; ++i)
    WriteFile(sink->Staged(".mode." + pid + std::to_string(taken + i) + ".ztstream-tmp"), "");
  WriteFile(sink->Staged(".mode.ztstream-tmp"), "");
  EXPECT_OK(sink->Finish());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "d"), {}), 51);
}

TEST(FolderSink, AWholeFolderIsNewOrEmpty) {
  const TempFolder folder;
  for (const std::string path : {"none", "empty", "meanwhile"}) {
    SCOPED_TRACE(path);
    if (path == "empty") ASSERT_EQ(::mkdir((folder / path).c_str(), 0700), 0);
    EXPECT_OK(FolderSink::CheckNew(folder / path));
    auto sink = CreateFolder(folder / path, {.whole = true});
    EXPECT_OK(FolderSink::CheckNew(folder / path));
    ASSERT_EQ(::mkdir(sink->Staged("below").c_str(), 0777), 0);
    WriteFile(sink->Staged("below/a"), "a");
    const bool meanwhile = path == "meanwhile";
    if (meanwhile) {
      ASSERT_EQ(::mkdir((folder / path).c_str(), 0777), 0);
      WriteFile(folder / path + "/theirs", "theirs");
    }
    EXPECT_EQ(sink->Finish().code(), meanwhile ? StatusCode::kAlreadyExists : StatusCode::kOk);
    sink.reset();
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / path), {}), 1);
    if (!meanwhile) EXPECT_EQ(ReadFile(folder / path + "/below/a"), "a");
    EXPECT_EQ(FolderSink::CheckNew(folder / path).code(), StatusCode::kAlreadyExists);
  }
  EXPECT_THAT(folder.Entries(), ElementsAre("empty", "meanwhile", "none"));
}

TEST(FolderSink, WhatIsNoFolderIsRefusedAtOnce) {
  const TempFolder folder;
  WriteFile(folder / "file", "theirs");
  ASSERT_EQ(::symlink("none", (folder / "link").c_str()), 0);
  for (const std::string path : {"file", "link"}) {
    EXPECT_EQ(FolderSink::Create(folder / path, {.overwrite = true}).status().code(),
              StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(FolderSink::Create(folder / "none/d", {}).status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(folder.Entries(), ElementsAre("file", "link"));
}

TEST(FolderSink, OfTwoForTheSameFilesOneIsRefused) {
  for (const bool exists : {false, true}) {
    SCOPED_TRACE(exists);
    const TempFolder folder;
    if (exists) ASSERT_EQ(::mkdir((folder / "d").c_str(), 0777), 0);
    auto first = CreateFolder(folder / "d"), second = CreateFolder(folder / "d");
    auto third = CreateFolder(folder / "d");
    WriteFile(first->Staged("a"), "first");
    WriteFile(second->Staged("a"), "second");
    WriteFile(third->Staged("b"), "third");
    EXPECT_OK(first->Finish());
    EXPECT_EQ(second->Finish().code(), StatusCode::kAlreadyExists);
    EXPECT_OK(third->Finish());
    for (auto* const sink : {&first, &second, &third}) sink->reset();
    EXPECT_EQ(ReadFile(folder / "d/a") + ReadFile(folder / "d/b"), "firstthird");
    EXPECT_THAT(folder.Entries(), ElementsAre("d"));
  }
}

// The wait is no publication: a signal ends it.
TEST(FolderSink, AFolderThatStaysLockedIsAnErrorAndAWaitCanBeEnded) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "d").c_str(), 0777), 0);
  const int lock = ::open((folder / "d").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  const std::uint64_t begun = Publication::Begun();
  auto sink = CreateFolder(folder / "d");
  WriteFile(sink->Staged("a"), "a");
  g_naps = false;
  EXPECT_THAT(sink->Finish(),
              Fails(StatusCode::kUnavailable, HasSubstr("d: another process has kept the folder")));
  g_naps = true;
  EXPECT_EQ(Publication::Begun(), begun);
  ::close(lock);
  EXPECT_OK(sink->Finish());
  EXPECT_EQ(ReadFile(folder / "d/a"), "a");
}

TEST(FolderSink, WhatAKilledRunLeftIsRemoved) {
  const TempFolder folder;
  for (const std::string left :
       {".d.7-0.ztstream-tmp", "d/.extract.7.ztstream-tmp", ".d.8-0.ztstream-tmp"}) {
    std::filesystem::create_directories(folder / left + "/below");
    WriteFile(folder / left + "/below/a", "left");
  }
  const int live = ::open((folder / ".d.8-0.ztstream-tmp").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(live, LOCK_EX | LOCK_NB), 0);
  CreateFolder(folder / "d");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "d"), {}), 0);
  EXPECT_THAT(folder.Entries(), ElementsAre(".d.8-0.ztstream-tmp", "d"));
  std::filesystem::remove(folder / "d");
  CreateFolder(folder / "d", {.whole = true});
  EXPECT_THAT(folder.Entries(), ElementsAre(".d.8-0.ztstream-tmp"));
  ::close(live);
}

TEST(FolderSink, WhatAKilledRunLeftIsRemovedByOneThatIsRefused) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "d").c_str(), 0777), 0);
  WriteFile(folder / "d/a", "theirs");
  for (const bool whole : {false, true}) {
    for (const std::string left : {".d.7-0.ztstream-tmp", "d/.extract.7-0.ztstream-tmp"}) {
      std::filesystem::create_directories(folder / left);
      WriteFile(folder / left + "/a", "left");
    }
    const Status refused =
        whole ? FolderSink::CheckNew(folder / "d/")
              : FolderSink::CheckFiles(folder / "d/", std::vector<std::string>{"a"}, false);
    EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
    EXPECT_THAT(folder.Entries(), ElementsAre("d"));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "d"), {}), 1);
  }
}

TEST(FolderSink, LinksAndPipesAreReplacedThemselves) {
  const TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "d").c_str(), 0777), 0);
  WriteFile(folder / "theirs", "theirs");
  ASSERT_EQ(::symlink("../theirs", (folder / "d/link").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder / "d/pipe").c_str(), 0666), 0);
  auto sink = CreateFolder(folder / "d", {.overwrite = true});
  for (const std::string file : {"link", "pipe"}) WriteFile(sink->Staged(file), file);
  ASSERT_OK(sink->Finish());
  for (const std::string file : {"link", "pipe"}) {
    const auto found = std::filesystem::symlink_status(folder / "d/" + file);
    EXPECT_TRUE(std::filesystem::is_regular_file(found));
    EXPECT_EQ(ReadFile(folder / "d/" + file), file);
  }
  EXPECT_EQ(ReadFile(folder / "theirs"), "theirs");
}

TEST(DirectSink, DevicesAreWrittenTo) {
  auto null = Must(CreateFileSink("/dev/null", {}));
  EXPECT_FALSE(null->can_place());
  EXPECT_OK(Append(*null, "abc"));
  EXPECT_EQ(Place(*null, 0, "abc").code(), StatusCode::kFailedPrecondition);
  EXPECT_OK(null->Finish(3));

  auto full = Must(CreateFileSink("/dev/full", {}));
  EXPECT_THAT(Append(*full, "abc"),
              Fails(StatusCode::kUnavailable, "cannot write: No space left on device"));
}

TEST(DirectSink, ABlockDeviceIsSyncedUnlessNobodyAsked) {
  const TempFolder folder;
  WriteFile(folder / "image", std::string(1 << 20, '\0'));
  const std::string attach =
      "losetup -f --show '" + folder / "image" + "' 2>/dev/null > '" + folder / "name" + "'";
  if (std::system(attach.c_str()) != 0) GTEST_SKIP() << "no block device is to be had here";
  std::string device = ReadFile(folder / "name");
  device.pop_back();  // the line's end
  for (const bool sync : {true, false}) {
    auto sink = Must(CreateFileSink(device, {.overwrite = true, .sync = sync}));
    ASSERT_OK(Append(*sink, "abc"));
    const int before = g_syncs;
    EXPECT_OK(sink->Finish(3));
    EXPECT_EQ(g_syncs - before, sync ? 1 : 0);
  }
  EXPECT_EQ(ReadFile(device).substr(0, 4), std::string("abc\0", 4));
  EXPECT_EQ(std::system(("losetup -d " + device).c_str()), 0);
}

TEST(DirectSink, NamedPipesAreWrittenTo) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0666), 0);
  std::string read;
  std::thread reader([&] { read = ReadFile(folder / "fifo"); });
  {
    auto sink = Must(CreateFileSink(folder / "fifo", {}));
    EXPECT_OK(Append(*sink, "abc"));
    EXPECT_OK(Append(*sink, "def"));
    EXPECT_OK(sink->Finish(6));
  }
  reader.join();
  EXPECT_EQ(read, "abcdef");
  EXPECT_THAT(folder.Entries(), ElementsAre("fifo"));
}

TEST(DescriptorSink, AClosedPipeIsAnError) {
  ::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto sink = DescriptorSink(ends[1], "standard output");
  EXPECT_EQ(sink->name(), "standard output");
  EXPECT_OK(Append(*sink, "abc"));
  ::close(ends[0]);
  EXPECT_THAT(Append(*sink, "abc"), Fails(StatusCode::kUnavailable, "cannot write: Broken pipe"));
  sink.reset();
  EXPECT_EQ(::close(ends[1]), 0);  // it was not the sink's to close
}

TEST(MemorySink, AppendsAndForgetsOnAbort) {
  std::vector<std::byte> out;
  auto sink = MemorySink(out);
  EXPECT_FALSE(sink->can_place());
  ASSERT_OK(Append(*sink, "ab"));
  ASSERT_OK(Append(*sink, "c"));
  ASSERT_OK(sink->Finish(3));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), out.size()), "abc");
  sink->Abort();
  EXPECT_TRUE(out.empty());
}

TEST(DiscardSink, TakesAnything) {
  auto sink = DiscardSink();
  EXPECT_TRUE(sink->can_place());
  EXPECT_OK(Append(*sink, "ab"));
  EXPECT_OK(Place(*sink, std::uint64_t{1} << 60, "c"));
  EXPECT_OK(sink->Finish(3));
}

}  // namespace
}  // namespace zt
