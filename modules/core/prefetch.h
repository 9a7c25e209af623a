// prefetch — prefetches for loops that read sequentially.
#pragma once

#include <cstdint>

namespace zt::kernel {

// Two pages of 4 KiB: covers the memory latency, and loads the translations of the next pages.
inline constexpr std::uintptr_t kPrefetchAhead = 8192;

// Kernels call it once per 64 bytes read. Calling it in bursts, or prefetching into L1, gains half
// as much. Prefetching past the end of the input is harmless.
inline void PrefetchAhead(const std::uint8_t* p) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + kPrefetchAhead), 0, 2);
}

}  // namespace zt::kernel
