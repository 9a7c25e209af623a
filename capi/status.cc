// status.cc — the C interface: its version, the last error of each thread, and the options of long
// calls.
#include "capi/status.h"

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include "ztstream/c.h"

import zt.core;

namespace zt::capi {
namespace {

struct Error {
  std::string message, file, tensor;
};

Error& LastError() {
  thread_local Error error;
  return error;
}

}  // namespace

zts_status Fail(zts_status status, const char* message) noexcept {
  try {
    LastError() = {message, "", ""};
  } catch (const std::bad_alloc&) {
    LastError().message.clear();
  }
  return status;
}

zts_status Null(const char* name) noexcept {
  try {
    return Fail(ZTS_INVALID_ARGUMENT, (std::string(name) + " must not be null").c_str());
  } catch (const std::bad_alloc&) {
    return Fail(ZTS_IO, "out of memory");
  }
}

zts_status Report(const absl::Status& status) noexcept {
  if (status.ok()) return ZTS_OK;
  try {
    LastError() = {Message(status), FileOf(status).value_or(""), TensorOf(status).value_or("")};
    return static_cast<zts_status>(ExitStatus(status));
  } catch (const std::bad_alloc&) {
    return Fail(ZTS_IO, "out of memory");
  }
}

}  // namespace zt::capi

using zt::capi::LastError;

extern "C" {

unsigned zts_abi(void) { return ZTS_ABI; }

const char* zts_version(void) { return ZTS_VERSION; }

const char* zts_last_error(void) { return LastError().message.c_str(); }

void zts_last_error_place(const char** file, const char** tensor, std::size_t* tensor_bytes) {
  if (file != nullptr) *file = LastError().file.c_str();
  if (tensor != nullptr) *tensor = LastError().tensor.c_str();
  if (tensor_bytes != nullptr) *tensor_bytes = LastError().tensor.size();
}

void zts_free(char* text) { std::free(text); }

void zts_call_init(zts_call* call, std::size_t size) {
  zts_call defaults = {};
  defaults.size = size;
  if (call != nullptr) zt::capi::Give(defaults, call, size);
}

}  // extern "C"
