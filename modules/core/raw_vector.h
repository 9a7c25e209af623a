// A vector whose new elements are left as they are. Plain header: include it in a global module fragment.
#pragma once

#include <cstddef>
#include <new>
#include <vector>  // std::allocator too; <memory> and the module zt.std cannot meet in one unit

namespace zt::internal {

// The standard allocator, but for elements that are made without a value: they are not set to zero.
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

// For bytes that are written right after a resize.
template <class T>
using RawVector = std::vector<T, Uninitialized<T>>;

}  // namespace zt::internal
