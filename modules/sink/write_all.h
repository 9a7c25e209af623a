// Writes several pieces completely, in order or at an offset; handles short writes and EINTR.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/retry.h"

namespace zt::sink_io {

// Limit on the bytes per system call: the size of a raw chunk, so that data that was just checked
// is still in the cache when the kernel copies it. Less costs more calls; more would evict bytes
// before they are copied.
inline constexpr std::size_t kBytesPerCall = 256 << 10;

// Writes all pieces, the first at byte `at` of the output, by write(vectors, count, bytes written
// so far), which returns the bytes written or -1. Calls end at multiples of kBytesPerCall, since
// file systems handle whole pages best. Returns 0 or errno.
template <typename WriteV>
int WriteAll(std::span<const std::span<const std::byte>> pieces, std::uint64_t at, WriteV&& write) {
  std::array<iovec, 256> vectors;
  std::uint64_t done = 0;
  // The piece to continue with, and its bytes in earlier calls.
  std::size_t next = 0, taken = 0;
  for (;;) {
    while (next < pieces.size() && taken >= pieces[next].size()) taken -= pieces[next++].size();
    if (next == pieces.size()) return 0;
    std::size_t count = 0, from = taken, room = kBytesPerCall - (at + done) % kBytesPerCall;
    for (std::size_t i = next; i < pieces.size() && count < vectors.size() && room > 0; ++i) {
      const auto some = pieces[i].subspan(std::exchange(from, 0));
      const std::size_t take = std::min(some.size(), room);
      if (take > 0) vectors[count++] = {const_cast<std::byte*>(some.data()), take};
      room -= take;
    }
    const ssize_t wrote =
        internal::Retry([&] { return write(vectors.data(), static_cast<int>(count), done); });
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;  // no progress, no error code
    done += static_cast<std::uint64_t>(wrote);
    taken += static_cast<std::size_t>(wrote);
  }
}

}  // namespace zt::sink_io
