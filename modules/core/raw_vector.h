// A vector whose new elements are uninitialized. Plain header: include it in a global module
// fragment.
#pragma once

#include <cstddef>
#include <new>
#include <vector>  // also declares std::allocator: <memory> and zt.std cannot be in one unit

namespace zt::internal {

// The standard allocator, except that it default-initializes elements: numbers are not set to zero.
template <class T>
struct Uninitialized : std::allocator<T> {
  Uninitialized() = default;
  template <class U>
  Uninitialized(const Uninitialized<U>&) noexcept {}
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
};

// For elements that are written right after a resize.
template <class T>
using RawVector = std::vector<T, Uninitialized<T>>;

}  // namespace zt::internal
