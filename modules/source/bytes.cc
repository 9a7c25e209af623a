// zt.source — files, pipes and memory as ByteSource; the only file that calls read(2).
module;

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"

module zt.source;

import zt.std;

namespace zt {

using internal::Retry;

Status EndsEarly(std::uint64_t offset, std::uint64_t wanted, std::uint64_t end) {
  return InvalidData("it ends at byte " + std::to_string(end) + ", " + std::to_string(wanted) +
                     " bytes from " + std::to_string(offset) +
                     " were expected; the file is truncated");
}

namespace {

// The properties that change if a file is written to, or if another file takes its name.
struct FileStamp {
  explicit FileStamp(const struct stat& info)
      : device(info.st_dev),
        inode(info.st_ino),
        size(static_cast<std::uint64_t>(info.st_size)),
        modified(info.st_mtim),
        changed(info.st_ctim) {}

  dev_t device;
  ino_t inode;
  std::uint64_t size;
  timespec modified;
  // The last change of the inode. It alone shows nothing: a link, a new name or other permissions,
  // as a backup makes them, set it as well.
  timespec changed;
};

bool AreEqual(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

// OK if `now` is the file that was `first` when it was opened, and nobody has written to it.
Status CompareStamps(const FileStamp& first, const FileStamp& now) {
  // File systems in user space may give a file that is opened again another inode number.
  const bool renumbered = now.inode != first.inode || now.device != first.device;
  if (renumbered && !AreEqual(now.changed, first.changed))
    return InvalidData("another file has taken its name since it was opened");
  if (now.size != first.size) {
    return InvalidData("its size has changed since it was opened, from " +
                       std::to_string(first.size) + " to " + std::to_string(now.size) +
                       " bytes; wait until it is written");
  }
  if (AreEqual(now.modified, first.modified)) return OkStatus();
  return InvalidData("it has been written to since it was opened; wait until it is written");
}

class FileBytes final : public ByteSource {
 public:
  FileBytes(int fd, bool owned, std::string name, std::uint64_t base, const struct stat& info)
      : fd_(fd), owned_(owned), name_(std::move(name)), base_(base), stamp_(info) {
    size_ = stamp_.size > base ? stamp_.size - base : 0;
  }
  ~FileBytes() override {
    if (owned_) ::close(fd_);
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  std::optional<int> descriptor() const override {
    return base_ == 0 ? std::optional(fd_) : std::nullopt;
  }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    std::uint64_t done = 0;
    if (offset > size_ || out.size() > size_ - offset) {
      return EndsEarly(offset, out.size(), size_);
    }
    while (done < out.size()) {
      const ssize_t got = Retry([&] {
        return ::pread(fd_, out.data() + done, out.size() - done,
                       static_cast<off_t>(base_ + offset + done));
      });
      if (got < 0) return IoError(errno, "cannot read at byte " + std::to_string(offset + done));
      if (got == 0) return EndsEarly(offset, out.size(), SizeNow());
      done += static_cast<std::uint64_t>(got);
    }
    return OkStatus();
  }

  Status CheckUnchanged() override {
    struct stat info;
    if (::fstat(fd_, &info) != 0) return IoError(errno, "cannot stat");
    return CompareStamps(stamp_, FileStamp(info));
  }

  const FileStamp& stamp() const { return stamp_; }

 private:
  std::uint64_t SizeNow() const {
    struct stat info;
    if (::fstat(fd_, &info) != 0) return 0;
    const auto size = static_cast<std::uint64_t>(info.st_size);
    return size > base_ ? size - base_ : 0;
  }

  int fd_;
  bool owned_;
  std::string name_;
  std::uint64_t base_;
  FileStamp stamp_;     // when it was opened
  std::uint64_t size_;  // from base_ on
};

// A file that is open only during reads.
class ReopenedFile final : public ByteSource {
 public:
  ReopenedFile(std::string path, const ByteSource& first)
      : path_(std::move(path)), size_(*first.size()), stamp_(StampOf(first)) {}
  const std::string& name() const override { return path_; }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const auto file, Reopen());
    return file->ReadAt(offset, out);
  }
  Status CheckUnchanged() override { return Reopen().status(); }

 private:
  static const FileStamp& StampOf(const ByteSource& file) {
    return dynamic_cast<const FileBytes&>(file).stamp();
  }
  StatusOr<std::shared_ptr<ByteSource>> Reopen() const {
    ZT_ASSIGN_OR_RETURN(std::shared_ptr<ByteSource> file, OpenFile(path_));
    ZT_RETURN_IF_ERROR(CompareStamps(stamp_, StampOf(*file)));
    if (file->size() != size_) return InvalidData("its size has changed since it was opened");
    return file;
  }

  const std::string path_;
  const std::uint64_t size_;
  const FileStamp stamp_;
};

class StreamBytes final : public PipedBytes {
 public:
  StreamBytes(int fd, bool owned, std::string name)
      : fd_(fd), owned_(owned), name_(std::move(name)) {}
  ~StreamBytes() override {
    if (owned_) ::close(fd_);
  }

  const std::string& name() const override { return name_; }

 private:
  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = internal::RetryWaiting(
          fd_, POLLIN, [&] { return ::read(fd_, out.data() + done, out.size() - done); });
      if (got < 0) return IoError(errno, "cannot read");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  const int fd_;
  const bool owned_;
  const std::string name_;
};

class SpanBytes final : public ByteSource {
 public:
  SpanBytes(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return EndsEarly(offset, out.size(), bytes_.size());
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

}  // namespace

Status PipedBytes::ReadAt(std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(SkipTo(offset));
  const std::size_t kept = std::min(out.size(), ahead().size());
  std::copy_n(ahead().begin(), kept, out.begin());
  Take(kept);
  ZT_ASSIGN_OR_RETURN(const std::size_t got, ReadSome(out.subspan(kept)));
  position_ += got;
  if (kept + got < out.size()) return EndsEarly(offset, out.size(), offset + kept + got);
  return OkStatus();
}

StatusOr<bool> PipedBytes::AtEnd(std::uint64_t offset) {
  ZT_RETURN_IF_ERROR(SkipTo(offset));
  ZT_RETURN_IF_ERROR(Ahead(1));
  return ahead().empty();
}

Status PipedBytes::Ahead(std::size_t count) {
  if (ahead().size() >= count) return OkStatus();
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  const std::size_t have = ahead_.size();
  ahead_.resize(count);
  auto got = ReadSome(std::span(ahead_).subspan(have));
  ahead_.resize(have + (got.ok() ? *got : 0));
  return got.status();
}

// Consumes `count` bytes of ahead(). Erases them only when all are consumed: erasing after each
// read would take time quadratic in the size of a large header.
void PipedBytes::Take(std::size_t count) {
  taken_ += count;
  position_ += count;
  if (taken_ < ahead_.size()) return;
  ahead_ = {};
  taken_ = 0;
}

Status PipedBytes::SkipTo(std::uint64_t offset) {
  if (offset < position_) return CannotGoBack(position_, offset);
  while (position_ < offset) {
    const std::uint64_t left = offset - position_;
    if (ahead().empty()) ZT_RETURN_IF_ERROR(Ahead(std::min<std::uint64_t>(left, 1 << 16)));
    if (ahead().empty()) return EndsEarly(position_, left, position_);
    Take(std::min<std::uint64_t>(left, ahead().size()));
  }
  return OkStatus();
}

Status CannotGoBack(std::uint64_t position, std::uint64_t offset) {
  return Unsupported("a pipe cannot go back from byte " + std::to_string(position) + " to " +
                     std::to_string(offset) + "; save it as a file, and name that");
}

Status NotFromPipe(const std::string& name, std::string_view what) {
  return Unsupported(std::string(what) +
                     (IsUrl(name) ? " cannot be read from a server without ranges; download it"
                                  : " cannot be read from a pipe; name a file"));
}

StatusOr<std::uint64_t> KnownSize(const ByteSource& source, std::string_view what) {
  const std::optional<std::uint64_t> size = source.size();
  if (source.sequential() || !size) return NotFromPipe(source.name(), what);
  return *size;
}

StatusOr<std::string> ReadAll(ByteSource& source, std::uint64_t most) {
  std::string text;
  const auto too_long = [&] {
    return InvalidData("it has more than " + std::to_string(most) + " bytes");
  };
  if (const std::optional<std::uint64_t> size = source.size()) {
    if (*size > most) return too_long();
    text.resize(*size);
    ZT_RETURN_IF_ERROR(source.ReadAt(0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  // Byte by byte, since a read beyond the end fails.
  while (true) {
    ZT_ASSIGN_OR_RETURN(const bool end, source.AtEnd(text.size()));
    if (end) return text;
    if (text.size() == most) return too_long();
    text.push_back('\0');
    ZT_RETURN_IF_ERROR(
        source.ReadAt(text.size() - 1, std::as_writable_bytes(std::span(text).last(1))));
  }
}

StatusOr<bool> ByteSource::AtEnd(std::uint64_t offset) { return size() && offset >= *size(); }

namespace {

std::string KindOfFile(mode_t mode) {
  if (S_ISFIFO(mode)) return "pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "device";
  return "socket";
}

// True if `target` is a blob of the cache of Hugging Face's hub in which `folder` is a snapshot, or
// lies in one: REPOSITORY/snapshots/REVISION/... and REPOSITORY/blobs/HASH. Both are canonical.
bool IsBlobOfSnapshot(const std::filesystem::path& folder, const std::filesystem::path& target) {
  for (std::filesystem::path revision = folder; revision.has_relative_path();
       revision = revision.parent_path()) {
    const std::filesystem::path snapshots = revision.parent_path();
    if (snapshots.filename() == "snapshots")
      return target.parent_path() == snapshots.parent_path() / "blobs";
  }
  return false;
}

}  // namespace

Status CheckStaysInside(const std::string& folder, const std::string& name,
                        const InputOptions& options) {
  if (options.follow_links) return OkStatus();
  namespace fs = std::filesystem;
  if (IsUrl(folder)) return OkStatus();
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return IoError(error.value(), "cannot resolve the folder");
  const fs::path target = fs::canonical(fs::path(folder) / name, error);
  if (error) return OkStatus();  // opening it will report the error
  if (*target.lexically_relative(root).begin() == ".." && !IsBlobOfSnapshot(root, target)) {
    return WithAdvice(InvalidData("it is a symbolic link that leaves the folder"),
                      Advice::kFollowLinks);
  }
  return OkStatus();
}

StatusOr<std::shared_ptr<ByteSource>> OpenFile(const std::string& path) {
  if (IsUrl(path)) return Unsupported("URLs are not read here; download the file");
  // Without O_NONBLOCK, opening a named pipe would wait for a writer; for a regular file it has no
  // effect.
  const int fd = Retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (fd < 0) {
    const int error = errno;
    std::error_code none;
    const auto target = std::filesystem::read_symlink(path, none);
    if (error != ENOENT || none) return IoError(error, "cannot open");
    return IoError(error, "cannot open what the link leads to, " + Quote(target.string()) +
                              "; in a hub's cache, download the model again");
  }
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return IoError(error, "cannot stat");
  }
  if (S_ISDIR(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("it is a folder, a file is needed");
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument("it is a " + KindOfFile(info.st_mode) + ", a regular file is needed");
  }
  return std::make_shared<FileBytes>(fd, true, path, 0, info);
}

StatusOr<std::shared_ptr<ByteSource>> OpenFileForEachRead(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> first, OpenFile(path));
  return std::make_shared<ReopenedFile>(path, *first);
}

StatusOr<std::shared_ptr<ByteSource>> OpenDescriptor(int fd, std::string name) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return IoError(errno, "cannot stat");
  if (S_ISDIR(info.st_mode)) return InvalidArgument("it is a folder, a file is needed");
  if (S_ISREG(info.st_mode)) {
    const off_t at = ::lseek(fd, 0, SEEK_CUR);
    if (at >= 0) {
      return std::make_shared<FileBytes>(fd, false, std::move(name), static_cast<std::uint64_t>(at),
                                         info);
    }
  }
  return std::make_shared<StreamBytes>(fd, false, std::move(name));
}

bool IsPipe(const std::string& path) {
  struct stat info;
  if (IsStandardInput(path)) return ::fstat(STDIN_FILENO, &info) == 0 && !S_ISREG(info.st_mode);
  return ::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode);
}

StatusOr<std::shared_ptr<ByteSource>> OpenPipe(const std::string& path) {
  if (IsStandardInput(path)) return OpenDescriptor(STDIN_FILENO, "standard input");
  const int fd = Retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) return IoError(errno, "cannot open");
  return std::make_shared<StreamBytes>(fd, true, path);
}

Status ReadUnits(std::uint64_t offset, std::span<std::byte> out, std::uint64_t unit,
                 const std::function<Status(std::uint64_t, std::span<std::byte>)>& read) {
  std::array<std::byte, 512> buffer;
  while (!out.empty()) {
    const std::uint64_t skip = offset % unit;
    std::uint64_t take = out.size() / unit * unit;
    if (skip == 0 && take > 0) {
      ZT_RETURN_IF_ERROR(read(offset, out.first(take)));
    } else {
      const std::span<std::byte> whole = std::span(buffer).first(unit);
      ZT_RETURN_IF_ERROR(read(offset - skip, whole));
      take = std::min<std::uint64_t>(unit - skip, out.size());
      std::memcpy(out.data(), whole.data() + skip, take);
    }
    out = out.subspan(take);
    offset += take;
  }
  return OkStatus();
}

StatusOr<bool> ServeSameBytes(
    std::uint64_t bytes, const std::function<Status(std::uint64_t, std::span<std::byte>)>& one,
    const std::function<Status(std::uint64_t, std::span<std::byte>)>& two) {
  constexpr std::uint64_t kPiece = std::uint64_t{256} << 10;
  std::vector<std::byte> first(std::min(bytes, kPiece)), second(first.size());
  for (std::uint64_t at = 0; at < bytes; at += first.size()) {
    first.resize(std::min(bytes - at, kPiece));
    second.resize(first.size());
    ZT_RETURN_IF_ERROR(one(at, first));
    ZT_RETURN_IF_ERROR(two(at, second));
    if (first != second) return false;
  }
  return true;
}

std::shared_ptr<ByteSource> MemoryBytes(std::span<const std::byte> bytes, std::string name) {
  return std::make_shared<SpanBytes>(bytes, std::move(name));
}

StatusOr<std::vector<std::byte>> Peek(ByteSource& source, std::size_t count) {
  if (auto* stream = dynamic_cast<PipedBytes*>(&source)) {
    if (stream->position() != 0) return FailedPrecondition("the pipe has been read from already");
    ZT_RETURN_IF_ERROR(stream->Ahead(count));
    const auto ahead = stream->ahead();
    return std::vector(ahead.begin(),
                       ahead.begin() + static_cast<std::ptrdiff_t>(std::min(count, ahead.size())));
  }
  const std::uint64_t size = source.size().value_or(count);
  std::vector<std::byte> out(std::min<std::uint64_t>(count, size));
  ZT_RETURN_IF_ERROR(source.ReadAt(0, out));
  return out;
}

}  // namespace zt
