// xxh3_kernel — xxHash's header compiled for AVX2; distributions build the library for any x86-64
// processor. Both share the state's layout, so one can continue what the other began.
#include "digest/xxh3_kernel.h"

#include <cstddef>

#if defined(__x86_64__)
// All headers that xxhash.h includes, so that only its own functions are compiled for AVX2.
#include <assert.h>
#include <immintrin.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#define XXH_VECTOR 2  // XXH_AVX2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include <xxhash.h>

namespace zt::kernel {
namespace {
void UpdateAvx2(XXH3_state_t* state, const void* data, std::size_t size) {
  XXH3_64bits_update(state, data, size);
}
}  // namespace
}  // namespace zt::kernel
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace zt::kernel {
Xxh3Updater FastXxh3() {
  if (!__builtin_cpu_supports("avx2")) return nullptr;
  return [](void* state, const void* data, std::size_t size) {
    UpdateAvx2(static_cast<XXH3_state_t*>(state), data, size);
  };
}
}  // namespace zt::kernel
#else
namespace zt::kernel {
Xxh3Updater FastXxh3() { return nullptr; }
}  // namespace zt::kernel
#endif
