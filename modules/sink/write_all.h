// Whole writes of several pieces, in order or at an offset: short writes and EINTR end here.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/retry.h"

namespace zt::sink_io {

// The most bytes handed over with one call: as many as a raw piece has, so that what was just checked is still in the
// cache when the kernel copies it. Fewer cost a call each; more would evict the bytes before they are copied.
inline constexpr std::size_t kBytesPerCall = 256 << 10;

// Writes every piece, the first to byte `at` of the output, through write(vectors, count, bytes already written) -> bytes
// or -1. Calls end at multiples of what one call takes: a file system handles whole pages best. 0, or errno.
template <typename WriteV>
int WriteAll(std::span<const std::span<const std::byte>> pieces, std::uint64_t at, WriteV&& write) {
  std::array<iovec, 256> vectors;
  std::uint64_t done = 0;
  std::size_t next = 0,
              taken = 0;  // the piece to go on with, and how much of it is in earlier calls
  while (next < pieces.size()) {
    std::size_t count = 0, room = kBytesPerCall - (at + done) % kBytesPerCall;
    while (next < pieces.size() && count < vectors.size() && room > 0) {
      const auto rest = pieces[next].subspan(taken);
      const std::size_t take = std::min(rest.size(), room);
      if (take > 0) vectors[count++] = {const_cast<std::byte*>(rest.data()), take};
      room -= take;
      taken += take;
      if (take == rest.size()) ++next, taken = 0;
    }
    std::size_t first = 0;
    while (first < count) {
      const ssize_t wrote = internal::Retry(
          [&] { return write(vectors.data() + first, static_cast<int>(count - first), done); });
      if (wrote < 0) return errno;
      if (wrote == 0) return EIO;  // no progress and no reason
      done += static_cast<std::uint64_t>(wrote);
      first = internal::SkipDone(vectors, first, static_cast<std::size_t>(wrote));
    }
  }
  return 0;
}

}  // namespace zt::sink_io
