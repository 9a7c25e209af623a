// status.cc — the C interface: the version, and the last error of each thread.
#include "capi/status.h"

#include <new>
#include <string>

#include "ztstream/c.h"

import zt.core;

namespace zt::capi {
namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

zts_status Fail(zts_status status, const char* message) noexcept {
  try {
    LastError() = message;
  } catch (const std::bad_alloc&) {
    LastError().clear();
  }
  return status;
}

zts_status Report(const absl::Status& status) noexcept {
  if (status.ok()) return ZTS_OK;
  try {
    return Fail(static_cast<zts_status>(ExitStatus(status)), Message(status).c_str());
  } catch (const std::bad_alloc&) {
    return Fail(ZTS_IO, "out of memory");
  }
}

absl::Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return OkStatus();
  return InvalidArgument(std::string(name) + " must not be null");
}

}  // namespace zt::capi

extern "C" {

const char* zts_version(void) { return ZTS_VERSION; }

const char* zts_last_error(void) { return zt::capi::LastError().c_str(); }

}  // extern "C"
