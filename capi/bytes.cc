// zt.capi — mapped files.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
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

}  // namespace zt::capi
