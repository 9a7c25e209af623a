// zt.sink — files that get their name only when complete.
module;

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/permissions.h"
#include "sink/sync.h"
#include "sink/write_all.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::ErrorOf;
using internal::Retry;

namespace {

// Splits `path` into the folder and the last component.
std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
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

  // `older`: the file that is replaced, or the like; null if there is none.
  Status Open(const std::string& base, const struct stat* older) {
    const int error = temporary_.Make(folder_, base, false, older == nullptr ? 0666 : 0600);
    struct stat info;
    if (error == ENOENT && ::stat(folder_.c_str(), &info) != 0)
      return IoError("there is no folder " + folder_ + "; make the folder first");
    if (error != 0) return IoError(error, "cannot create a file in " + folder_);
    if (older != nullptr) sink_io::CopyPermissions(temporary_.fd(), *older);
    return OkStatus();
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
    ZT_RETURN_IF_ERROR(WriteAllAt(temporary_.fd(), offset, pieces));
    return WriteBack(pieces);
  }

  Status Reserve(std::uint64_t bytes) override {
    // Checks free space instead of preallocating: writing into preallocated extents takes nearly
    // twice as long on ext4.
    // Space that the file already occupies is not needed again.
    struct stat file;
    const std::uint64_t taken =
        ::fstat(temporary_.fd(), &file) == 0 ? static_cast<std::uint64_t>(file.st_blocks) * 512 : 0;
    return sink::internal::CheckSpace(temporary_.fd(), bytes - std::min(bytes, taken));
  }

  Status Finish(std::uint64_t total) override {
    if (temporary_.fd() < 0) return FailedPrecondition("the file was finished or aborted already");
    Status status = Publish(total);
    if (!status.ok()) Abort();
    return status;
  }

  void Abort() override { temporary_.Remove(); }

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
    (void)::posix_fadvise(temporary_.fd(), static_cast<off_t>(begin - kBehind),
                          static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
    return OkStatus();
  }

  // The kernel reports a disk error only once per descriptor, so it must be returned here. Only the
  // errors that mean "cannot write back by range" are ignored.
  Status SyncRange(std::uint64_t begin, std::uint64_t bytes, unsigned how) {
    const int error = ErrorOf([&] {
      return ::sync_file_range(temporary_.fd(), static_cast<off_t>(begin),
                               static_cast<off_t>(bytes), how);
    });
    const bool unable =
        error == ENOSYS || error == EOPNOTSUPP || error == EINVAL || error == ESPIPE;
    return error == 0 || unable ? OkStatus() : IoError(error, "cannot write");
  }

  // Everything that can fail comes before the rename, except for making it durable.
  Status Publish(std::uint64_t total) {
    const int fd = temporary_.fd();
    // Sets the size in case the end was never written, and frees space beyond it.
    int error = ErrorOf([&] { return ::ftruncate(fd, static_cast<off_t>(total)); });
    if (error != 0) return IoError(error, "cannot set the size");
    error = options_.sync ? ErrorOf([&] { return ::fsync(fd); }) : CloseCopy(fd);
    if (error != 0) return IoError(error, options_.sync ? "cannot sync" : "cannot close");
    const int folder = options_.sync ? sink::internal::OpenFolder(folder_) : -1;
    if (options_.sync && folder < 0) return IoError(errno, "cannot open " + folder_);
    const Publication publication;
    Status status = Rename();
    if (status.ok()) temporary_.Release();
    if (status.ok() && options_.sync) status = SyncFolder(folder);
    if (folder >= 0) ::close(folder);
    return status;
  }

  // A close reports what could not be written back (NFS, quotas). That of a copy leaves the file
  // locked. Returns 0 or errno.
  static int CloseCopy(int fd) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return errno;
    return ::close(copy) == 0 || errno == EINTR ? 0 : errno;
  }

  // Gives the finished file its name.
  Status Rename() {
    const int error = sink::internal::Rename(temporary_.path(), target_, options_.overwrite);
    if (error == 0) return OkStatus();
    if (error == EEXIST)
      return WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace);
    if (error == EISDIR) return InvalidArgument("the output is a folder; name a file");
    return IoError(error, "cannot rename the finished file");
  }

  Status SyncFolder(int folder) {
    const int error = sink_io::SyncError([&] { return ::fsync(folder); });
    if (error == 0) return OkStatus();
    return IoError(
        error,
        "it is complete and has its name, but a crash may undo that: cannot sync " + folder_);
  }

  std::string name_, folder_, target_;
  FileSinkOptions options_;
  sink::internal::Temporary temporary_;
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

const std::string& ShownAs(const std::string& path, const FileSinkOptions& options) {
  return options.shown_as.empty() ? path : options.shown_as;
}

// As CreateFileSink, without the path in errors.
StatusOr<std::unique_ptr<Sink>> CreateUnnamed(const std::string& path,
                                              const FileSinkOptions& options) {
  if (path.empty()) return InvalidArgument("the output has an empty name");
  if (IsUrl(path)) return Unsupported("URLs are not written here; write a file and upload it");
  std::string target = path;
  // Replaces the target of a symbolic link, not the link, as other programs do.
  if (char* resolved = ::realpath(path.c_str(), nullptr)) {
    target = resolved;
    std::free(resolved);
  }
  struct stat info;
  const bool exists = ::stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode))
    return InvalidArgument("the output is a folder; name a file");
  if (exists && !S_ISREG(info.st_mode)) {
    // What a block device holds is lost as a file's content is; one that is mounted refuses O_EXCL.
    const bool block = S_ISBLK(info.st_mode);
    if (block && !options.overwrite)
      return WithAdvice(AlreadyExists("the output is a block device"), Advice::kReplace);
    const int exclusive = block ? O_EXCL : 0;
    const int fd = Retry([&] { return ::open(target.c_str(), O_WRONLY | O_CLOEXEC | exclusive); });
    if (fd < 0) return IoError(errno, "cannot open for writing");
    return std::make_unique<DirectSink>(fd, path, options.sync && block);
  }
  struct stat link;
  const bool there = ::lstat(target.c_str(), &link) == 0;
  // What such a link names may lie where nobody meant to write.
  if (there && S_ISLNK(link.st_mode))
    return AlreadyExists("it is a link that leads nowhere; remove it, or name another output");
  if (there && !options.overwrite)
    return WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace);
  if (!there && errno == ENAMETOOLONG) return IoError(errno, "cannot make a file of this name");
  auto [folder, base] = SplitPath(target);
  if (base.empty()) return InvalidArgument("the output is a folder; name a file");
  if (!options.new_folder) {
    sink::internal::RemoveLeftovers(folder, base);
    ZT_RETURN_IF_ERROR(sink::internal::CheckRenamable(folder, base));
  }
  auto sink = std::make_unique<FileSink>(ShownAs(path, options), folder, target, options);
  const bool alike = exists || (!options.like.empty() && ::stat(options.like.c_str(), &info) == 0);
  ZT_RETURN_IF_ERROR(sink->Open(base, alike ? &info : nullptr));
  return sink;
}

}  // namespace

StatusOr<std::unique_ptr<Sink>> CreateFileSink(const std::string& path,
                                               const FileSinkOptions& options) {
  return WithFile(CreateUnnamed(path, options), ShownAs(path, options));
}

}  // namespace zt
