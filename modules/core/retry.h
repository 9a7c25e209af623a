// System calls that are made again after EINTR.
#pragma once

#include <cerrno>

namespace zt::internal {

// call(), again as long as a signal interrupts it; its result.
template <typename Call>
auto Retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// As Retry: 0, or errno.
template <typename Call>
int ErrorOf(Call&& call) {
  return Retry(call) < 0 ? errno : 0;
}

}  // namespace zt::internal
