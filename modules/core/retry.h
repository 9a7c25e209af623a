// Repeats system calls after EINTR, and waits on non-blocking descriptors.
#pragma once

#include <poll.h>

#include <cerrno>

namespace zt::internal {

// Repeats call() while a signal interrupts it; returns its result.
template <typename Call>
auto Retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// As Retry. If the call fails because `fd` is non-blocking (EAGAIN), waits with poll(2) until one
// of `events` occurs on `fd`, and calls again.
template <typename Call>
auto RetryWaiting(int fd, short events, Call&& call) {
  for (;;) {
    auto result = Retry(call);
    if (result >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return result;
    pollfd waiting = {fd, events, 0};
    if (Retry([&] { return ::poll(&waiting, 1, -1); }) < 0) return result;
  }
}

// As Retry, but returns 0 or errno.
template <typename Call>
int ErrorOf(Call&& call) {
  return Retry(call) < 0 ? errno : 0;
}

}  // namespace zt::internal
