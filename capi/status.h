// status.h — the C interface: statuses and exceptions become numbers and a message of the thread;
// structs of callers may have another size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "ztstream/c.h"

namespace zt::capi {

// Store the message for zts_last_error, with file and tensor, and return the number.
zts_status Report(const absl::Status& status) noexcept;
zts_status Fail(zts_status status, const char* message) noexcept;
// ZTS_INVALID_ARGUMENT: "NAME must not be null".
zts_status Null(const char* name) noexcept;

// Runs `body`, which returns a zts_status, and reports exceptions as statuses.
template <typename Body>
zts_status Guard(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fail(ZTS_IO, "out of memory");
  } catch (const std::exception& error) {
    return Fail(ZTS_MISUSE, error.what());
  } catch (...) {
    return Fail(ZTS_MISUSE, "an unknown error");
  }
}

// Copies `defaults` to the struct of a caller, which has `size` bytes. Further bytes become zero.
template <typename T>
void Give(const T& defaults, void* out, std::size_t size) {
  std::memcpy(out, &defaults, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(static_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
}

// Overwrites `defaults` by the struct of a caller. Returns false if its init function was not
// called.
template <typename T>
bool Take(const T* given, T& defaults) {
  if (given == nullptr) return true;
  if (given->size < sizeof given->size) return false;
  std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  return true;
}

// A name of `bytes` bytes, or up to its zero byte if that is ZTS_TERMINATED.
inline std::string_view Text(const char* text, std::size_t bytes) {
  return bytes == ZTS_TERMINATED ? std::string_view(text) : std::string_view(text, bytes);
}

}  // namespace zt::capi
