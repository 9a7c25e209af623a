// status.h — how the C interface turns statuses and exceptions into numbers and a message of the calling thread.
#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "ztstream/c.h"

namespace zt::capi {

// Keeps the message for zts_last_error of this thread; the number for it. Neither throws.
zts_status Report(const absl::Status& status) noexcept;
zts_status Fail(zts_status status, const char* message) noexcept;

// An error (kInvalidArgument) where `pointer` is null: "NAME must not be null".
absl::Status NotNull(const void* pointer, const char* name);

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

}  // namespace zt::capi
