// zt.capi — many ranges by many threads: what an input throws.
#include "testing.h"

import zt;
import zt.capi;

namespace {

// An input of one component whose bytes cannot be read without an exception.
class ThrowingInput final : public zt::capi::Input {
 public:
  static constexpr std::uint64_t kBytes = 64 << 20;

  explicit ThrowingInput(std::function<void()> raise) : raise_(std::move(raise)) {}
  std::string_view format() const override { return "test"; }
  std::string version() const override { return ""; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const zt::Value::Map& attributes() const override { return attributes_; }
  std::size_t size() const override { return 1; }
  zt::capi::ObjectView object(std::uint32_t) const override { return {.name = &name_}; }
  zt::capi::ComponentView component(zt::ComponentId) const override { return {.bytes = kBytes}; }
  const std::string& name() const override { return name_; }
  std::string_view file(zt::ComponentId) const override { return name_; }
  zt::Status Read(zt::ComponentId, std::uint64_t, std::span<std::byte>) const override {
    raise_();
    return zt::OkStatus();
  }
  zt::StatusOr<zt::Access> FindAccess(zt::ComponentId) const override { return zt::Access{}; }
  void WillRead(std::span<const zt::ComponentId>) const override {}
  zt::StatusOr<zt::VerifyReport> VerifyAll(unsigned, zt::capi::Watch&) const override {
    return zt::VerifyReport{};
  }
  zt::StatusOr<zt::VerifyReport> VerifyOne(std::uint32_t, zt::capi::Watch&) const override {
    return zt::VerifyReport{};
  }
  std::optional<std::uint32_t> Find(std::string_view) const override { return std::nullopt; }

 private:
  std::function<void()> raise_;
  std::string name_ = "thrown";
  std::vector<std::string> warnings_;
  zt::Value::Map attributes_;
};

zt::Status ReadThrowing(std::function<void()> raise) {
  const ThrowingInput input(std::move(raise));
  std::vector<std::byte> out(ThrowingInput::kBytes);
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
