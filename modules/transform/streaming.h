// streaming — runs an element-wise transform in cache-sized blocks, and stores large
// results past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transform/bytes_kernel.h"

namespace zt::kernel {

inline constexpr std::size_t kStreamBlock = 512;  // elements

// Calls produce(first, count, out) for consecutive blocks of elements, which writes
// their results to `out`.
template <class Produce>
void ForEachBlock(std::uint8_t* out, std::size_t out_width, std::size_t count,
                  const Produce& produce) {
  const std::size_t misaligned = (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64;
  if (count * out_width < kStreamedBytes || misaligned % out_width != 0) {
    for (std::size_t done = 0; done < count; done += kStreamBlock) {
      produce(done, std::min(kStreamBlock, count - done), out + done * out_width);
    }
    return;
  }
  alignas(64) std::uint8_t block[kStreamBlock * 8];
  std::size_t done = misaligned / out_width;
  produce(std::size_t{0}, done, out);
  while (done < count) {
    const std::size_t n = std::min(kStreamBlock, count - done);
    produce(done, n, block);
    CopyStreamed(block, out + done * out_width, n * out_width);
    done += n;
  }
  FlushStreamed();
}

}  // namespace zt::kernel
