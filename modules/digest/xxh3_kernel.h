// xxh3_kernel — XXH3's loop with vector instructions that the library's own build may lack.
#pragma once

#include <cstddef>

namespace zt::kernel {

// XXH3_64bits_update of an XXH3_state_t that xxHash has reset.
using Xxh3Updater = void (*)(void* state, const void* data, std::size_t size);
// An updater that is faster than the library's on this host; null if there is none.
Xxh3Updater FastXxh3();

}  // namespace zt::kernel
