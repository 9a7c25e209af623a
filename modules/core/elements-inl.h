// elements-inl — a loop over elements that the compiler vectorizes; compiled once for
// each Highway target.
#if defined(ZT_CORE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZT_CORE_ELEMENTS_INL_H_
#undef ZT_CORE_ELEMENTS_INL_H_
#else
#define ZT_CORE_ELEMENTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/prefetch.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {

template <typename T>
HWY_INLINE T LoadAt(const std::uint8_t* p, std::size_t i) {
  T value;
  std::memcpy(&value, p + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
HWY_INLINE void StoreAt(T value, std::uint8_t* p, std::size_t i) {
  std::memcpy(p + i * sizeof(T), &value, sizeof(T));
}

// Stores of(value) for each value of type From, in strips of whole cache lines, with one
// prefetch per strip.
template <typename From, class Of>
HWY_INLINE void ForEachElement(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out,
                               std::size_t count, const Of& of) {
  constexpr std::size_t kStrip = 64, kBytes = kStrip * sizeof(From);
  std::size_t i = 0;
  for (; i + kStrip <= count; i += kStrip) {
    for (std::size_t b = 0; b < kBytes; b += 64) PrefetchAhead(in + i * sizeof(From) + b);
    for (std::size_t j = i; j < i + kStrip; ++j) StoreAt(of(LoadAt<From>(in, j)), out, j);
  }
  for (; i < count; ++i) StoreAt(of(LoadAt<From>(in, i)), out, i);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
