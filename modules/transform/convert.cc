// zt.transform:convert — chooses the steps of a conversion and runs them through a block that stays
// in cache.
module;

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "transform/bytes_kernel.h"
#include "transform/convert_kernel.h"
#include "transform/streaming.h"

module zt.transform;

import zt.core;

namespace zt {
namespace {

using kernel::FloatStep;
using kernel::IntStep;

constexpr bool kBigEndian = std::endian::native == std::endian::big;

struct Step {
  std::variant<FloatStep, IntStep> code;
  std::size_t out_width;
};
using Steps = std::vector<Step>;

void Run(const Step& step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
         bool saturate, kernel::Counts& counts) {
  if (const auto* code = std::get_if<FloatStep>(&step.code)) {
    kernel::RunStep(*code, in, out, count, saturate, counts);
  } else {
    kernel::RunStep(std::get<IntStep>(step.code), in, out, count, counts);
  }
}

class Conversion final : public Transform {
 public:
  // `parts` numbers of `in_width` bytes make a unit.
  Conversion(Steps steps, std::size_t in_width, std::size_t parts, bool saturate)
      : steps_(std::move(steps)), in_width_(in_width), parts_(parts), saturate_(saturate) {}

  std::size_t input_unit() const override { return in_width_ * parts_; }
  std::size_t output_unit() const override { return out_width() * parts_; }

  void Apply(std::span<const std::byte> in, std::span<std::byte> out,
             NumericCounts& counts) const override {
    const std::size_t count = in.size() / in_width_;
    if (count == 0) return;
    if (steps_.empty()) {
      std::memcpy(out.data(), in.data(), in.size());
      return;
    }
    const auto* const from = reinterpret_cast<const std::uint8_t*>(in.data());
    kernel::Counts found;
    kernel::ForEachBlock(from, in_width_, reinterpret_cast<std::uint8_t*>(out.data()), out_width(),
                         count, [&](std::size_t first, std::size_t n, std::uint8_t* to) {
                           ApplyToBlock(from + first * in_width_, to, n, found);
                         });
    counts.overflow += found.overflow;
    counts.nan_lost += found.nan_lost;
  }

 private:
  std::size_t out_width() const { return steps_.empty() ? in_width_ : steps_.back().out_width; }

  void ApplyToBlock(const std::uint8_t* in, std::uint8_t* out, std::size_t count,
                    kernel::Counts& counts) const {
    alignas(64) std::uint8_t blocks[2][kernel::kStreamBlock * sizeof(double)];
    // The steps know the machine's own numbers.
    alignas(64) std::uint8_t native[kBigEndian ? kernel::kStreamBlock * sizeof(double) : 1];
    if constexpr (kBigEndian) {
      std::memcpy(native, in, count * in_width_);
      kernel::SwapBytes(native, native, count * in_width_, in_width_);
      in = native;
    }
    kernel::Counts ignored;  // a step on the way clamps only what the last one will count
    for (std::size_t s = 0; s + 1 < steps_.size(); ++s) {
      std::uint8_t* const between = blocks[s % 2];
      Run(steps_[s], in, between, count, saturate_, ignored);
      in = between;
    }
    Run(steps_.back(), in, out, count, saturate_, counts);
    if constexpr (kBigEndian) kernel::SwapBytes(out, out, count * out_width(), out_width());
  }

  Steps steps_;
  std::size_t in_width_;
  std::size_t parts_;
  bool saturate_;
};

struct NarrowFloat {
  std::string_view name;
  std::size_t width;
  FloatStep to_f32;
  FloatStep from_f32;
};
constexpr NarrowFloat kNarrowFloats[] = {
    {"f16", 2, FloatStep::kF16ToF32, FloatStep::kF32ToF16},
    {"bf16", 2, FloatStep::kBf16ToF32, FloatStep::kF32ToBf16},
    {"f8_e4m3fn", 1, FloatStep::kE4m3fnToF32, FloatStep::kF32ToE4m3fn},
    {"f8_e5m2", 1, FloatStep::kE5m2ToF32, FloatStep::kF32ToE5m2},
    {"f8_e4m3fnuz", 1, FloatStep::kE4m3fnuzToF32, FloatStep::kF32ToE4m3fnuz},
    {"f8_e5m2fnuz", 1, FloatStep::kE5m2fnuzToF32, FloatStep::kF32ToE5m2fnuz},
};

struct Integer {
  std::string_view name;
  std::size_t width;
  IntStep to_float;               // exact for f32 (up to 16 bits) or f64 (32 bits); odd for 64 bits
  std::optional<IntStep> to_i64;  // none for i64
  std::optional<IntStep> from_i64;  // none for i64
  IntStep from_f64;
};
constexpr Integer kIntegers[] = {
    {"i8", 1, IntStep::kI8ToF32, IntStep::kI8ToI64, IntStep::kI64ToI8, IntStep::kF64ToI8},
    {"u8", 1, IntStep::kU8ToF32, IntStep::kU8ToI64, IntStep::kI64ToU8, IntStep::kF64ToU8},
    {"i16", 2, IntStep::kI16ToF32, IntStep::kI16ToI64, IntStep::kI64ToI16, IntStep::kF64ToI16},
    {"u16", 2, IntStep::kU16ToF32, IntStep::kU16ToI64, IntStep::kI64ToU16, IntStep::kF64ToU16},
    {"i32", 4, IntStep::kI32ToF64, IntStep::kI32ToI64, IntStep::kI64ToI32, IntStep::kF64ToI32},
    {"u32", 4, IntStep::kU32ToF64, IntStep::kU32ToI64, IntStep::kI64ToU32, IntStep::kF64ToU32},
    {"i64", 8, IntStep::kI64ToF64Odd, std::nullopt, std::nullopt, IntStep::kF64ToI64},
    {"u64", 8, IntStep::kU64ToF64Odd, IntStep::kU64ToI64, IntStep::kI64ToU64, IntStep::kF64ToU64},
};

template <typename Row, std::size_t kRows>
const Row* Find(const Row (&rows)[kRows], std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

bool IsFloatName(std::string_view name) {
  return name == "f32" || name == "f64" || Find(kNarrowFloats, name) != nullptr;
}

// Appends the steps from f32 or f64 (`at`, which each step moves) to a float type.
void AppendToFloat(std::string_view at, std::string_view to, Steps& steps) {
  if (at == to) return;
  if (to == "f64") {
    steps.push_back({FloatStep::kF32ToF64, 8});
  } else if (to == "f32") {
    steps.push_back({FloatStep::kF64ToF32, 4});
  } else {
    if (at == "f64") steps.push_back({FloatStep::kF64ToF32Odd, 4});
    const NarrowFloat* narrow = Find(kNarrowFloats, to);
    steps.push_back({narrow->from_f32, narrow->width});
  }
}

// Steps from one type to another, or nothing where there is no way.
std::optional<Steps> FindSteps(std::string_view from, std::string_view to) {
  Steps steps;
  if (from == to) return steps;
  if (from == "bool") {
    steps.push_back({IntStep::kBoolToU8, 1});
    if (to == "u8") return steps;
    from = "u8";
  }
  const Integer* to_integer = Find(kIntegers, to);
  if (const Integer* integer = Find(kIntegers, from)) {
    if (to_integer != nullptr) {
      if (integer->to_i64) steps.push_back({*integer->to_i64, 8});
      if (to_integer->from_i64) steps.push_back({*to_integer->from_i64, to_integer->width});
      return steps;
    }
    if (!IsFloatName(to)) return std::nullopt;
    const bool f32 = integer->width <= 2;
    if (integer->width == 8 && to == "f64") {
      steps.push_back({from == "i64" ? IntStep::kI64ToF64 : IntStep::kU64ToF64, 8});
      return steps;
    }
    steps.push_back({integer->to_float, f32 ? 4u : 8u});
    AppendToFloat(f32 ? "f32" : "f64", to, steps);
    return steps;
  }
  if (!IsFloatName(from)) return std::nullopt;
  std::string_view at = from;
  if (const NarrowFloat* narrow = Find(kNarrowFloats, from)) {
    steps.push_back({narrow->to_f32, 4});
    at = "f32";
  }
  if (to_integer != nullptr) {
    AppendToFloat(at, "f64", steps);
    steps.push_back({to_integer->from_f64, to_integer->width});
    return steps;
  }
  if (!IsFloatName(to)) return std::nullopt;
  AppendToFloat(at, to, steps);
  return steps;
}

bool IsComplex(std::string_view name) { return name == "complex64" || name == "complex128"; }

}  // namespace

StatusOr<std::shared_ptr<const Transform>> MakeConversion(const ElementType& from,
                                                          const ElementType& to,
                                                          OnOverflow on_overflow) {
  const bool complex = IsComplex(Name(from)) && IsComplex(Name(to));
  const auto steps =
      complex ? FindSteps(Name(from.dtype), Name(to.dtype)) : FindSteps(Name(from), Name(to));
  if (!steps) {
    return Unsupported("no conversion from " + std::string(Name(from)) + " to " +
                       std::string(Name(to)));
  }
  return std::make_shared<const Conversion>(*steps, ByteWidth(from.dtype), complex ? 2 : 1,
                                            on_overflow == OnOverflow::kSaturate);
}

}  // namespace zt
