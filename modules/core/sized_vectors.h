// Include before Highway in a kernel that keeps vectors in arrays: disables the targets whose
// vector size is known only at run time, since C++ has no arrays of such types. These machines run
// a target of fixed size.
#pragma once

#undef HWY_DISABLED_TARGETS  // cmake/Dependencies.cmake disables SSSE3 everywhere
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
