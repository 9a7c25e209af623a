// target_iteration — runs a check once on every CPU target this machine has and the kernels were
// compiled for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>

namespace zt {

// Computes with one target until it goes.
class OneTarget {
 public:
  explicit OneTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OneTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  OneTarget(const OneTarget&) = delete;
  OneTarget& operator=(const OneTarget&) = delete;
};

// Base of tests that run once for each target that this machine has: its parameter.
class TargetTest : public ::testing::TestWithParam<std::int64_t> {
 private:
  const OneTarget target_{GetParam()};
};

template <class Check>
void ForEachTarget(const Check& check) {
  int targets = 0;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    const OneTarget one(target);
    check();
    ++targets;
  }
  // The baseline and at least one vector target, or the only one that Highway has for
  // this kind of host.
  constexpr bool kSeveral = (HWY_TARGETS & (HWY_TARGETS - 1)) != 0;
  EXPECT_GT(targets, kSeveral ? 1 : 0);
}

}  // namespace zt
