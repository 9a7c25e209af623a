// prefetch — asks for what a loop that reads straight on will want soon.
#pragma once

#include <cstdint>

namespace zt::kernel {

// Two small pages: far enough ahead for the memory to answer, and for the next pages' addresses to be looked up.
inline constexpr std::uintptr_t kPrefetchAhead = 8192;

// Once for each 64 bytes read, by each kernel's loop; in bursts, or into the first-level cache, it gains half as much.
// Past the end of the input it does nothing of consequence.
inline void PrefetchAhead(const std::uint8_t* p) {
  __builtin_prefetch(
      reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(p) + kPrefetchAhead), 0, 2);
}

}  // namespace zt::kernel
