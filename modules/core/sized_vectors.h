// Include before Highway in a kernel that keeps vectors in arrays: leaves out the targets whose vectors have a size that
// only the machine knows, for which C++ has no arrays. Such machines run the kernel's target of fixed size.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
