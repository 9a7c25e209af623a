// zt.sink — files that get their name only when complete.
module;

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "core/thread_annotations.h"
#include "sink/sync.h"
#include "sink/write_all.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::ErrorOf;
using internal::Mutex;
using internal::MutexLock;
using internal::Retry;

namespace {

constexpr std::string_view kSuffix = ".ztstream-tmp";

// Splits `path` into the folder and the last component.
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// ".NAME.", the prefix of temporary siblings. Cut if the name is too long for the file system; then
// leftovers of names with the same beginning match too.
std::string TemporaryPrefix(const std::string& base) { return "." + base.substr(0, 200) + "."; }

// Removes the temporary siblings that killed runs for the same output left: those without a lock.
void RemoveLeftovers(const std::string& folder, const std::string& prefix) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) continue;
    const std::string_view middle =
        name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size());
    if (middle.empty() || middle.find_first_not_of("0123456789-") != std::string_view::npos) {
      continue;
    }
    const int fd = ::openat(::dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlinkat(::dirfd(dir), entry->d_name, 0);
    ::close(fd);
  }
  ::closedir(dir);
}

// Names of the existing temporary files.
struct Temporaries {
  Mutex mutex;
  std::set<std::string> names ZT_GUARDED_BY(mutex);
};
Temporaries& LiveTemporaries() {
  static Temporaries* const live = new Temporaries;  // outlives every sink
  return *live;
}

Status WriteAllAt(int fd, std::uint64_t offset, Pieces pieces) {
  const int error =
      sink_io::WriteAll(pieces, offset, [&](const iovec* v, int count, std::uint64_t done) {
        return ::pwritev(fd, v, count, static_cast<off_t>(offset + done));
      });
  return error == 0 ? OkStatus() : IoError(error, "cannot write");
}

class FileSink final : public Sink {
 public:
  FileSink(std::string name, std::string folder, std::string target, FileSinkOptions options)
      : name_(std::move(name)),
        folder_(std::move(folder)),
        target_(std::move(target)),
        options_(options) {}
  ~FileSink() override { FileSink::Abort(); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Status Open(const std::string& prefix) {
    // No name is used twice, so that no sink removes the file of another.
    static std::atomic<unsigned> next = 0;
    for (int attempt = 0; attempt < 100; ++attempt) {
      temporary_ = folder_ + "/" + prefix + std::to_string(::getpid()) + "-" +
                   std::to_string(next++) + std::string(kSuffix);
      fd_ = Retry(
          [&] { return ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
      if (fd_ < 0) {
        if (errno == EEXIST) continue;
        const int error = errno;
        temporary_.clear();
        struct stat info;
        if (error == ENOENT && ::stat(folder_.c_str(), &info) != 0)
          return IoError("there is no folder " + folder_ + "; make the folder first");
        return IoError(error, "cannot create a file in " + folder_);
      }
      // Between creation and lock, another run may take the file for a leftover, lock it and remove
      // it: then try again. On a file system without locks no run removes leftovers.
      const int locked = Retry([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); });
      struct stat info;
      if ((locked == 0 || errno != EWOULDBLOCK) &&
          (::fstat(fd_, &info) != 0 || info.st_nlink == 1)) {
        Temporaries& live = LiveTemporaries();
        const MutexLock lock(live.mutex);
        live.names.insert(temporary_);
        return OkStatus();
      }
      ::close(fd_);
      fd_ = -1;
    }
    temporary_.clear();
    return IoError("cannot create a temporary file in " + folder_);
  }

  const std::string& name() const override { return name_; }
  bool can_place() const override { return true; }

  Status Append(Pieces pieces) override {
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    ZT_RETURN_IF_ERROR(WriteAt(position_, pieces));
    position_ += bytes;
    return OkStatus();
  }
  Status WriteAt(std::uint64_t offset, Pieces pieces) override {
    ZT_RETURN_IF_ERROR(WriteAllAt(fd_, offset, pieces));
    return WriteBack(pieces);
  }

  Status Reserve(std::uint64_t bytes) override {
    // Checks free space instead of preallocating: writing into preallocated extents takes nearly
    // twice as long on ext4.
    struct statvfs info;
    if (::fstatvfs(fd_, &info) != 0) return OkStatus();
    const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
    // Space that the file already occupies is not needed again.
    struct stat file;
    const std::uint64_t taken =
        ::fstat(fd_, &file) == 0 ? static_cast<std::uint64_t>(file.st_blocks) * 512 : 0;
    if (bytes <= taken || bytes - taken <= free) return OkStatus();
    return IoError(ENOSPC, std::to_string(bytes - taken) + " bytes are needed, " +
                               std::to_string(free) + " are free");
  }

  Status Finish(std::uint64_t total) override {
    if (fd_ < 0) return FailedPrecondition("the file was finished or aborted already");
    Status status = Publish(total);
    if (!status.ok()) Abort();
    return status;
  }

  void Abort() override {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    Forget();
  }

 private:
  // Writes data back to the disk in steps and then drops it from the page cache, so that a large
  // conversion does not displace everything else and pages are reused; in a virtual machine that
  // returns free memory to its host, new pages cost more than the disk. With a sync, write-back
  // begins at once, so that the final sync finds little left, and the first 256 MiB stay in the
  // cache: this takes a third less time for 1.5 GiB and two thirds less for 4 GiB on ext4. Without
  // a sync, the first GiB is left to the kernel, no call waits for the disk, and write-back stops
  // if the disk is slow. Writes come nearly in order; the final sync covers the few that come after
  // their step.
  Status WriteBack(Pieces pieces) {
    constexpr std::uint64_t kStep = 16 << 20, kBehind = 3 * kStep;
    const std::uint64_t cached = options_.sync ? 256 << 20 : 1 << 30;
    constexpr std::chrono::milliseconds kSlow(16);  // a step at 1 GB/s
    constexpr unsigned kSlowSteps = 4;
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    const std::uint64_t before = written_.fetch_add(bytes, std::memory_order_relaxed);
    const std::uint64_t begin = before / kStep * kStep, end = (before + bytes) / kStep * kStep;
    if (begin == end) return OkStatus();
    if (!options_.sync && (begin < cached || slow_steps_ >= kSlowSteps)) return OkStatus();
    const auto started = std::chrono::steady_clock::now();
    ZT_RETURN_IF_ERROR(SyncRange(begin, end - begin, SYNC_FILE_RANGE_WRITE));
    if (std::chrono::steady_clock::now() - started > kSlow) ++slow_steps_;
    if (begin < cached + kBehind) return OkStatus();
    if (options_.sync) {
      ZT_RETURN_IF_ERROR(SyncRange(
          begin - kBehind, end - begin,
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    }
    (void)::posix_fadvise(fd_, static_cast<off_t>(begin - kBehind), static_cast<off_t>(end - begin),
                          POSIX_FADV_DONTNEED);
    return OkStatus();
  }

  // The kernel reports a disk error only once per descriptor, so it must be returned here. Only the
  // errors that mean "cannot write back by range" are ignored.
  Status SyncRange(std::uint64_t begin, std::uint64_t bytes, unsigned how) {
    const int error = ErrorOf([&] {
      return ::sync_file_range(fd_, static_cast<off_t>(begin), static_cast<off_t>(bytes), how);
    });
    const bool unable =
        error == ENOSYS || error == EOPNOTSUPP || error == EINVAL || error == ESPIPE;
    return error == 0 || unable ? OkStatus() : IoError(error, "cannot write");
  }

  void Forget() {
    Temporaries& live = LiveTemporaries();
    const MutexLock lock(live.mutex);
    live.names.erase(temporary_);
    temporary_.clear();
  }

  // Everything that can fail comes before the rename, except for making it durable: if that fails,
  // the rename is undone.
  Status Publish(std::uint64_t total) {
    // Sets the size in case the end was never written, and frees space beyond it.
    int error = ErrorOf([&] { return ::ftruncate(fd_, static_cast<off_t>(total)); });
    if (error != 0) return IoError(error, "cannot set the size");
    int folder = -1;
    if (options_.sync) {
      error = ErrorOf([&] { return ::fsync(fd_); });
      if (error != 0) return IoError(error, "cannot sync");
      folder = Retry([&] { return ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
      if (folder < 0) return IoError(errno, "cannot open " + folder_);
    }
    Status status = Rename();
    if (status.ok()) {
      if (options_.sync) status = SyncFolder(folder);
      error = ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
      if (error != 0 && error != EINTR && status.ok()) status = IoError(error, "cannot close");
      if (!status.ok()) Undo();
    }
    if (folder >= 0) ::close(folder);
    if (!status.ok()) return status;
    if (exchanged_) ::unlink(temporary_.c_str());  // the previous output
    Forget();
    return OkStatus();
  }

  int RenameTo(unsigned flags) {
    return ErrorOf([&] {
      return ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), flags);
    });
  }

  // Gives the finished file its name.
  Status Rename() {
    const int error = options_.overwrite ? Replace() : Create();
    if (error == 0) return OkStatus();
    if (error == EEXIST) return AlreadyExists("the output exists already");
    if (error == EISDIR) return InvalidArgument("the output is a folder; name a file");
    return IoError(error, "cannot rename the finished file");
  }

  // Renames only if the name is free. Returns 0 or errno.
  int Create() {
    int error = RenameTo(RENAME_NOREPLACE);
    if (error == EINVAL) {  // the file system cannot rename without replacing: link and unlink
      error = ::link(temporary_.c_str(), target_.c_str()) == 0 ? 0 : errno;
      if (error == 0) ::unlink(temporary_.c_str());
    }
    created_ = error == 0;
    return error;
  }

  // Renames over an existing file. Where the file system can, it exchanges the two, so that this
  // can be undone. Returns 0 or errno.
  int Replace() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      int error = RenameTo(RENAME_EXCHANGE);
      if (error == 0) return CheckExchanged();
      if (error != ENOENT) {
        struct stat older;
        const bool existed = ::lstat(target_.c_str(), &older) == 0;
        error = RenameTo(0);
        created_ = error == 0 && !existed;
        return error;
      }
      error = Create();
      if (error != EEXIST) return error;  // another output has appeared since: exchange with it
    }
    return EEXIST;
  }

  // If a folder has appeared at the target since, it was exchanged too: exchange it back.
  int CheckExchanged() {
    struct stat older;
    if (::lstat(temporary_.c_str(), &older) == 0 && S_ISDIR(older.st_mode)) {
      const int error = RenameTo(RENAME_EXCHANGE);
      return error == 0 ? EISDIR : error;
    }
    exchanged_ = true;
    return 0;
  }

  // Restores the previous output. If that no longer exists, keeps the new one, which is complete.
  void Undo() {
    if (exchanged_) {
      (void)RenameTo(RENAME_EXCHANGE);
    } else if (created_) {
      ::unlink(target_.c_str());
    }
  }

  Status SyncFolder(int folder) {
    const int error = sink_io::SyncError([&] { return ::fsync(folder); });
    return error == 0 ? OkStatus() : IoError(error, "cannot sync " + folder_);
  }

  std::string name_, folder_, target_;
  FileSinkOptions options_;
  std::string temporary_;
  int fd_ = -1;
  bool exchanged_ = false;  // temporary_ is the previous output
  bool created_ = false;    // the name was free before
  std::uint64_t position_ = 0;
  std::atomic<std::uint64_t> written_ = 0;
  std::atomic<unsigned> slow_steps_ = 0;  // of WriteBack
};

// A device or named pipe, opened and written in order. A block device is synced like a file.
class DirectSink final : public Sink {
 public:
  DirectSink(int fd, std::string name, bool sync)
      : fd_(fd), sync_(sync), inner_(DescriptorSink(fd, std::move(name))) {}
  ~DirectSink() override { ::close(fd_); }
  DirectSink(const DirectSink&) = delete;
  DirectSink& operator=(const DirectSink&) = delete;
  const std::string& name() const override { return inner_->name(); }
  Status Append(Pieces pieces) override { return inner_->Append(pieces); }
  Status Finish(std::uint64_t total) override {
    ZT_RETURN_IF_ERROR(inner_->Finish(total));
    if (!sync_) return OkStatus();
    const int error = ErrorOf([&] { return ::fsync(fd_); });
    return error == 0 ? OkStatus() : IoError(error, "cannot sync");
  }
  void Abort() override { inner_->Abort(); }

 private:
  int fd_;
  bool sync_;
  std::unique_ptr<Sink> inner_;
};

StatusOr<std::unique_ptr<Sink>> (*g_create_url)(const std::string&,
                                                const FileSinkOptions&) = nullptr;

// As CreateFileSink, without the path in errors.
StatusOr<std::unique_ptr<Sink>> CreateUnnamed(const std::string& path,
                                              const FileSinkOptions& options) {
  if (path.empty()) return InvalidArgument("the output has an empty name");
  if (IsUrl(path)) {
    if (g_create_url == nullptr)
      return Unsupported("URLs are not written here; write a file and upload it");
    return g_create_url(path, options);
  }
  std::string target = path;
  // Replaces the target of a symbolic link, not the link, as other programs do.
  if (char* resolved = ::realpath(path.c_str(), nullptr)) {
    target = resolved;
    std::free(resolved);
  }
  struct stat info;
  if (::stat(target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return InvalidArgument("the output is a folder; name a file");
    if (!S_ISREG(info.st_mode)) {
      const int fd = Retry([&] { return ::open(target.c_str(), O_WRONLY | O_CLOEXEC); });
      if (fd < 0) return IoError(errno, "cannot open for writing");
      return std::make_unique<DirectSink>(fd, path, options.sync && S_ISBLK(info.st_mode));
    }
  }
  // lstat: a dangling symbolic link has the name too.
  if (!options.overwrite && ::lstat(target.c_str(), &info) == 0) {
    return AlreadyExists("the output exists already");
  }
  auto [folder, base] = SplitPath(target);
  if (base.empty()) return InvalidArgument("the output is a folder; name a file");
  const std::string prefix = TemporaryPrefix(base);
  if (!options.new_folder) RemoveLeftovers(folder, prefix);
  auto sink = std::make_unique<FileSink>(path, folder, target, options);
  ZT_RETURN_IF_ERROR(sink->Open(prefix));
  return sink;
}

}  // namespace

void SetUrlSinks(StatusOr<std::unique_ptr<Sink>> (*create)(const std::string& url,
                                                           const FileSinkOptions& options)) {
  g_create_url = create;
}

void AbandonTemporaryFiles() {
  Temporaries& live = LiveTemporaries();
  const MutexLock lock(live.mutex);
  for (const std::string& name : live.names) ::unlink(name.c_str());
}

StatusOr<std::unique_ptr<Sink>> CreateFileSink(const std::string& path,
                                               const FileSinkOptions& options) {
  return WithFile(CreateUnnamed(path, options), path);
}

}  // namespace zt
