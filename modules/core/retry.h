// System calls that are made again: after EINTR, or for the rest of what they were asked.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>

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

// Takes the `bytes` that a call did off `vectors`, from number `first` on; the number to go on with.
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
