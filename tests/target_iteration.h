// target_iteration — runs a check once on every CPU target this machine has and the kernels were
// compiled for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

namespace zt {

template <class Check>
void ForEachTarget(const Check& check) {
  int targets = 0;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
    ++targets;
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  // The baseline and at least one vector target, or the only one that Highway has for
  // this kind of host.
  constexpr bool kSeveral = (HWY_TARGETS & (HWY_TARGETS - 1)) != 0;
  EXPECT_GT(targets, kSeveral ? 1 : 0);
}

}  // namespace zt
