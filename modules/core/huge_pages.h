// Asks for huge pages. Plain header: include it in a global module fragment.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace zt::internal {

// Asks the system to hold memory that is not yet touched in pages of 2 MiB, where it lies in whole
// ones: a million declarations then cost a hundred page faults, not forty thousand. A hint.
inline void PreferHugePages(const void* data, std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kHuge = std::uintptr_t{2} << 20;
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (at + kHuge - 1) / kHuge * kHuge, end = (at + bytes) / kHuge * kHuge;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// Reserves space in a vector, in huge pages.
template <class Vector>
void ReserveHuge(Vector& vector, std::size_t count) {
  if (vector.capacity() >= count) return;
  vector.reserve(count);
  PreferHugePages(vector.data(), vector.capacity() * sizeof(*vector.data()));
}

}  // namespace zt::internal
