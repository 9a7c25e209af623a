// zt.transform — the names of the instruction sets that the kernels use.
module;

#include "hwy/highway.h"

#define ZT_TEXT_OF(x) #x
#define ZT_TEXT(x) ZT_TEXT_OF(x)
module zt.transform;

import zt.std;

namespace zt {

std::string_view HighwayVersion() {
  return ZT_TEXT(HWY_MAJOR) "." ZT_TEXT(HWY_MINOR) "." ZT_TEXT(HWY_PATCH);
}

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  // Better targets have lower bits.
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    names.emplace_back(hwy::TargetName(rest & -rest));
  }
  return names;
}

}  // namespace zt
