// zt.sink — files that are changed where they lie, and what guards them.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/sync.h"
#include "sink/write_all.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::ErrorOf;
using internal::Retry;

namespace {

class InPlace final : public Sink {
 public:
  InPlace(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  ~InPlace() override { ::close(fd_); }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  const std::string& name() const override { return name_; }
  bool can_place() const override { return true; }
  Status Append(Pieces) override { return Unsupported("a file is changed by offsets"); }
  Status WriteAt(std::uint64_t offset, Pieces pieces) override {
    const int error =
        sink_io::WriteAll(pieces, offset, [&](const iovec* v, int count, std::uint64_t done) {
          return ::pwritev(fd_, v, count, static_cast<off_t>(offset + done));
        });
    return error == 0 ? OkStatus() : IoError(error, "cannot write");
  }
  Status Finish(std::uint64_t total) override {
    if (const int error = ErrorOf([&] { return ::ftruncate(fd_, static_cast<off_t>(total)); }))
      return IoError(error, "cannot set the size");
    const int error = ErrorOf([&] { return ::fsync(fd_); });
    return error == 0 ? OkStatus() : IoError(error, "cannot sync");
  }
  void Abort() override {}

 private:
  const std::string name_;
  const int fd_;
};

StatusOr<std::unique_ptr<Sink>> OpenUnnamed(const std::string& path) {
  const int fd =
      Retry([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (fd < 0 && errno == ELOOP)
    return InvalidArgument("it is a link, and would be changed under its other names too");
  if (fd < 0) return IoError(errno, "cannot open for writing");
  auto sink = std::make_unique<InPlace>(path, fd);
  struct stat info;
  if (::fstat(fd, &info) != 0) return IoError(errno, "cannot look at it");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("it is not a regular file");
  if (info.st_nlink > 1)
    return InvalidArgument("it has " + std::to_string(info.st_nlink) +
                           " names, and would be changed under the others too");
  return sink;
}

}  // namespace

StatusOr<std::unique_ptr<Sink>> OpenInPlace(const std::string& path) {
  return WithFile(OpenUnnamed(path), path);
}

StatusOr<std::shared_ptr<void>> LockPath(const std::string& path) {
  const int fd = Retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) return WithFile(IoError(errno, "cannot open"), path);
  std::shared_ptr<void> lock(nullptr, [fd](void*) { ::close(fd); });
  // A file system without locks (EBADF: one that locks only what can be written) has none here.
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return WithFile(IoError("another process changes it at the moment"), path);
  return lock;
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return WithFile(IoError(errno, "cannot remove it"), path);
  const std::size_t slash = path.rfind('/');
  const int folder =
      sink::internal::OpenFolder(slash == path.npos ? "." : path.substr(0, slash + 1));
  if (folder < 0) return WithFile(IoError(errno, "cannot open its folder"), path);
  const int error = sink_io::SyncError([&] { return ::fsync(folder); });
  ::close(folder);
  return error == 0 ? OkStatus() : WithFile(IoError(error, "cannot sync its folder"), path);
}

}  // namespace zt
