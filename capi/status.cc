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
  std::string message, file, tensor, advice;
  std::size_t fact = 0;  // of the message's bytes
};

Error& LastError() {
  thread_local Error error;
  return error;
}

// What would help, in terms of this interface; empty if nothing of it does.
std::string_view WordsOf(Advice advice) {
  switch (advice) {
    case Advice::kVoidDtype:
      return "zts_reader_options.npy_void names it";
    case Advice::kMemory:
      return "zts_reader_options.memory_bytes raises the limit";
    case Advice::kFormat:
      return "zts_reader_options.format chooses a format";
    case Advice::kVariant:
      return "zts_reader_options.variant chooses one";
    case Advice::kBase:
      return "zts_reader_options.base names it";
    case Advice::kFollowLinks:
      return "zts_reader_options.follow_links allows that";
    case Advice::kReplace:
      return "zts_writer_options.overwrite replaces it";
    default:
      return "";
  }
}

Error ErrorOf(const absl::Status& status) {
  Error error = {Message(status), FileOf(status).value_or(""), TensorOf(status).value_or(""), ""};
  error.fact = error.message.size();
  for (const Advice advice : AdviceOf(status)) {
    error.advice += (error.advice.empty() ? "" : " ") + std::string(AdviceName(advice));
    if (const std::string_view words = WordsOf(advice); !words.empty())
      error.message += "; " + std::string(words);
  }
  return error;
}

}  // namespace

zts_status Fail(zts_status status, const char* message) noexcept {
  try {
    LastError() = {message, "", "", "", std::string_view(message).size()};
  } catch (const std::bad_alloc&) {
    LastError() = {};
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
    LastError() = ErrorOf(status);
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

const char* zts_last_error_advice(std::size_t* message_bytes) {
  if (message_bytes != nullptr) *message_bytes = LastError().fact;
  return LastError().advice.c_str();
}

void zts_free(char* text) { std::free(text); }

void zts_call_init(zts_call* call, std::size_t size) {
  zts_call defaults = {};
  defaults.size = size;
  if (call != nullptr) zt::capi::Give(defaults, call, size);
}

}  // extern "C"
