// Repeats system calls after EINTR, and continues them after partial transfers.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>

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

// Removes the `bytes` that a call has transferred from `vectors`, beginning at index `first`;
// returns the index to continue at.
inline std::size_t SkipDone(std::span<iovec> vectors, std::size_t first, std::size_t bytes) {
  while (bytes > 0) {
    iovec& v = vectors[first];
    const std::size_t take = std::min(bytes, v.iov_len);
    v.iov_base = static_cast<char*>(v.iov_base) + take;
    v.iov_len -= take;
    bytes -= take;
    if (v.iov_len == 0) ++first;
  }
  return first;
}

}  // namespace zt::internal
