// zt.capi — many ranges by many threads: what an input throws.
#include "testing.h"

import zt;
import zt.capi;

namespace {

// A source of one component whose bytes cannot be read without an exception.
class ThrowingSource final : public zt::TensorSource {
 public:
  static constexpr std::uint64_t kBytes = 64 << 20;

  explicit ThrowingSource(std::function<void()> raise) : raise_(std::move(raise)) {
    objects_.push_back(*zt::DenseObject("thrown", {kBytes}, {zt::DType::kU8, ""}));
  }
  std::string_view format() const override { return "test"; }
  zt::Status Read(zt::ComponentId, std::uint64_t, std::span<std::byte>) override {
    raise_();
    return zt::OkStatus();
  }

 private:
  std::function<void()> raise_;
};

zt::Status ReadThrowing(std::function<void()> raise) {
  const zt::capi::Input input(std::make_unique<ThrowingSource>(std::move(raise)), "thrown");
  std::vector<std::byte> out(ThrowingSource::kBytes);
  const zt::capi::Range range{{0, 0}, 0, out};
  zt::capi::Watch watch;
  return zt::capi::ReadMany(input, {&range, 1}, 4, watch);
}

TEST(ReadMany, WhatIsThrownIsAnError) {
  const zt::Status thrown = ReadThrowing([] { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(thrown.code(), zt::StatusCode::kInternal);
  EXPECT_THAT(std::string(thrown.message()), ::testing::HasSubstr("out of luck"));
  EXPECT_EQ(ReadThrowing([] { throw 7; }).code(), zt::StatusCode::kInternal);
  EXPECT_EQ(ReadThrowing([] { throw std::bad_alloc(); }), zt::OutOfMemory());
}

}  // namespace
