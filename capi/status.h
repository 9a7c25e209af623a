// status.h — how the C interface turns statuses and exceptions into numbers and a message of the calling thread, and reads
// structs of another size than its own.
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

// Keeps the message for zts_last_error of this thread, with the file and the tensor; the number for it. Neither throws.
zts_status Report(const absl::Status& status) noexcept;
zts_status Fail(zts_status status, const char* message) noexcept;
// ZTS_INVALID_ARGUMENT: "NAME must not be null".
zts_status Null(const char* name) noexcept;

// Runs `body`, which returns a zts_status; nothing thrown crosses the C interface.
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

// What a caller knows of `defaults`, which the library has: its first `size` bytes. The rest of a longer struct is zero.
template <typename T>
void Give(const T& defaults, void* out, std::size_t size) {
  std::memcpy(out, &defaults, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(static_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
}

// `defaults` with what a caller has given of it. False where the struct was not filled by its init function.
template <typename T>
bool Take(const T* given, T& defaults) {
  if (given == nullptr) return true;
  if (given->size < sizeof given->size) return false;
  std::memcpy(&defaults, given, std::min(given->size, sizeof(T)));
  return true;
}

// A name of so many bytes, or up to its first zero byte.
inline std::string_view Text(const char* text, std::size_t bytes) {
  return bytes == ZTS_TERMINATED ? std::string_view(text) : std::string_view(text, bytes);
}

}  // namespace zt::capi
