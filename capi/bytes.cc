// zt.capi — mapped files, and sources and sinks that call functions of the caller.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
namespace {

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

Pages::~Pages() { ::munmap(file_.data(), file_.size()); }

StatusOr<std::unique_ptr<Pages>> Pages::Of(ByteSource& file) {
  ZT_RETURN_IF_ERROR(file.CheckUnchanged());
  const auto bytes = static_cast<std::size_t>(file.size().value_or(0));
  // Few callers write to their pages, so no memory is reserved for all of them.
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                            file.descriptor().value_or(-1), 0);
  if (data == MAP_FAILED) return IoError(errno, "cannot map");
  return std::unique_ptr<Pages>(new Pages({static_cast<std::byte*>(data), bytes}));
}

StatusOr<std::span<std::byte>> Pages::Part(std::uint64_t offset, std::uint64_t length) const {
  if (offset > file_.size() || length > file_.size() - offset) {
    return InvalidData("the file has changed since it was opened");
  }
  return file_.subspan(offset, length);
}

StatusOr<std::span<std::byte>> Mappings::Map(ByteSource& file, std::uint64_t offset,
                                             std::uint64_t length) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Pages>& pages = files_[&file];
  if (pages == nullptr) {
    ZT_ASSIGN_OR_RETURN(pages, Pages::Of(file));
  }
  return pages->Part(offset, length);
}

void Advise(const ComponentView& component, bool needed) {
  if (component.container == nullptr) return;
  const ByteRange range = {component.offset, component.offset + component.length};
  if (needed) component.container->WillRead({&range, 1});
  if (const auto fd = component.container->descriptor()) {
    (void)::posix_fadvise(*fd, static_cast<off_t>(component.offset),
                          static_cast<off_t>(component.length),
                          needed ? POSIX_FADV_WILLNEED : POSIX_FADV_DONTNEED);
  }
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
