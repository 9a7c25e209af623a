// zt.capi — mapped files, and sources and sinks that call functions of the caller.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
namespace {

// An open file that is closed at the end of a block.
struct OpenedFile {
  int fd = -1;
  explicit OpenedFile(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenedFile() {
    if (fd >= 0) ::close(fd);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
};

std::optional<FileIdentity> Identity(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  return FileIdentity{static_cast<std::uint64_t>(info.st_dev),
                      static_cast<std::uint64_t>(info.st_ino),
                      static_cast<std::uint64_t>(info.st_size)};
}

class FunctionBytes final : public ByteSource {
 public:
  FunctionBytes(std::string name, std::uint64_t bytes,
                std::function<int(std::uint64_t, std::span<std::byte>)> read)
      : name_(std::move(name)), bytes_(bytes), read_(std::move(read)) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes_ || out.size() > bytes_ - offset) {
      return InvalidData("it ends at byte " + std::to_string(bytes_));
    }
    if (out.empty()) return OkStatus();
    const int error = read_(offset, out);
    return error == 0 ? OkStatus() : IoError(error, "cannot read");
  }

 private:
  std::string name_;
  std::uint64_t bytes_;
  std::function<int(std::uint64_t, std::span<std::byte>)> read_;
};

class KeepingBytes final : public ByteSource {
 public:
  KeepingBytes(std::shared_ptr<ByteSource> bytes, std::shared_ptr<void> kept)
      : kept_(std::move(kept)), bytes_(std::move(bytes)) {}
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return bytes_->sequential(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(offset, out);
  }
  Status CheckUnchanged() override { return bytes_->CheckUnchanged(); }

 private:
  std::shared_ptr<void> kept_;
  std::shared_ptr<ByteSource> bytes_;
};

class FunctionSink final : public Sink {
 public:
  FunctionSink(std::string name, std::function<int(std::span<const std::byte>)> append,
               std::function<int(std::uint64_t)> finish, std::function<void()> abort)
      : name_(std::move(name)),
        append_(std::move(append)),
        finish_(std::move(finish)),
        abort_(std::move(abort)) {}
  ~FunctionSink() override { Abort(); }
  const std::string& name() const override { return name_; }
  Status Append(Pieces pieces) override {
    for (const std::span<const std::byte> piece : pieces) {
      if (piece.empty()) continue;
      if (const int error = append_(piece)) return IoError(error, "cannot write");
    }
    return OkStatus();
  }
  Status Finish(std::uint64_t total) override {
    if (const int error = finish_(total)) {
      Abort();
      return IoError(error, "cannot finish");
    }
    ended_ = true;
    return OkStatus();
  }
  void Abort() override {
    if (!std::exchange(ended_, true)) abort_();
  }

 private:
  std::string name_;
  std::function<int(std::span<const std::byte>)> append_;
  std::function<int(std::uint64_t)> finish_;
  std::function<void()> abort_;
  bool ended_ = false;
};

}  // namespace

std::optional<FileIdentity> IdentityOf(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? Identity(info) : std::nullopt;
}

Mappings::Mappings() {
  std::error_code error;
  folder_ = std::filesystem::current_path(error).string();
}

Mappings::~Mappings() {
  for (const auto& [path, mapped] : files_) ::munmap(mapped.data, mapped.bytes);
}

std::string Mappings::Absolute(const std::string& path) const {
  return (std::filesystem::path(folder_) / path).string();
}

StatusOr<std::span<std::byte>> Mappings::Map(const std::string& path, const FileIdentity& opened,
                                             std::uint64_t offset, std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  Mapped& mapped = files_[path];
  if (mapped.data == nullptr) {
    const OpenedFile file(Absolute(path));
    struct stat info;
    if (file.fd < 0 || ::fstat(file.fd, &info) != 0) {
      const int error = errno;
      files_.erase(path);
      return IoError(error, "cannot open");
    }
    if (Identity(info) != opened) {
      files_.erase(path);
      return InvalidData("the file has changed since it was opened");
    }
    const std::uint64_t bytes = opened.bytes;
    // Few callers write to their pages, so no memory is reserved for all of them.
    void* const data =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      files_.erase(path);
      return IoError(error, "cannot map");
    }
    mapped = {static_cast<std::byte*>(data), bytes};
  }
  if (offset > mapped.bytes || length > mapped.bytes - offset) {
    return InvalidData("the file has changed since it was opened");
  }
  return std::span(mapped.data + offset, length);
}

Status Mappings::Advise(const std::string& path, std::uint64_t offset, std::uint64_t length,
                        bool needed) const {
  const OpenedFile file(Absolute(path));
  if (file.fd < 0) return IoError(errno, "cannot open");
  const int error = ::posix_fadvise(file.fd, static_cast<off_t>(offset), static_cast<off_t>(length),
                                    needed ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED);
  return error == 0 ? OkStatus() : IoError(error, "cannot advise");
}

void WantLargePages(std::span<std::byte> bytes) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::size_t kLeast = 4 << 20;
  if (bytes.size() < kLeast) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + kPage - 1) & ~(kPage - 1);
  const std::uintptr_t last = (begin + bytes.size()) & ~(kPage - 1);
  (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // a hint
}

std::shared_ptr<ByteSource> CalledBytes(
    std::string name, std::uint64_t bytes,
    std::function<int(std::uint64_t, std::span<std::byte>)> read) {
  return std::make_shared<FunctionBytes>(std::move(name), bytes, std::move(read));
}

std::shared_ptr<ByteSource> Keeping(std::shared_ptr<ByteSource> bytes, std::shared_ptr<void> kept) {
  return std::make_shared<KeepingBytes>(std::move(bytes), std::move(kept));
}

std::unique_ptr<Sink> CalledSink(std::string name,
                                 std::function<int(std::span<const std::byte>)> append,
                                 std::function<int(std::uint64_t)> finish,
                                 std::function<void()> abort) {
  return std::make_unique<FunctionSink>(std::move(name), std::move(append), std::move(finish),
                                        std::move(abort));
}

}  // namespace zt::capi
