// Repeats system calls after EINTR.
#pragma once

#include <cerrno>

namespace zt::internal {

// Repeats call() while a signal interrupts it; returns its result.
template <typename Call>
auto Retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// As Retry, but returns 0 or errno.
template <typename Call>
int ErrorOf(Call&& call) {
  return Retry(call) < 0 ? errno : 0;
}

}  // namespace zt::internal
