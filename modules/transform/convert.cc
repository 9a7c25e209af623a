// zt.transform:convert — selects the steps of a conversion, and runs them on blocks
// that stay in cache.
module;

#include "transform/bytes_kernel.h"
#include "transform/convert_kernel.h"
#include "transform/streaming.h"

module zt.transform;

import zt.std;
import zt.core;

namespace zt {
namespace {

using kernel::Number;

constexpr bool kBigEndian = std::endian::native == std::endian::big;

struct Step {
  Number from;
  Number to;
};
using Steps = std::vector<Step>;

void Run(const Step& step, const std::uint8_t* in, std::uint8_t* out, std::size_t count,
         bool saturate, kernel::Counts& counts) {
  if (kernel::IsFloat(step.from) && kernel::IsFloat(step.to)) {
    kernel::ConvertFloats(step.from, step.to, in, out, count, saturate, counts);
  } else {
    kernel::ConvertIntegers(step.from, step.to, in, out, count, counts);
  }
}

class Conversion final : public Transform {
 public:
  // A unit is `parts` numbers of `in_width` bytes.
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
    std::uint64_t underflow = 0;
    kernel::ForEachBlock(reinterpret_cast<std::uint8_t*>(out.data()), out_width(), count,
                         [&](std::size_t first, std::size_t n, std::uint8_t* to) {
                           underflow += ApplyToBlock(from + first * in_width_, to, n, found);
                         });
    counts += {found.overflow, found.nan_lost, found.fraction_lost, underflow};
  }

 private:
  std::size_t out_width() const {
    return steps_.empty() ? in_width_ : kernel::WidthOf(steps_.back().to);
  }

  // Returns the number of values that underflowed.
  std::uint64_t ApplyToBlock(const std::uint8_t* in, std::uint8_t* out, std::size_t count,
                             kernel::Counts& counts) const {
    alignas(64) std::uint8_t blocks[2][kernel::kStreamBlock * sizeof(double)];
    // The kernels use the host's byte order.
    alignas(64) std::uint8_t native[kBigEndian ? kernel::kStreamBlock * sizeof(double) : 1];
    if constexpr (kBigEndian) {
      std::memcpy(native, in, count * in_width_);
      kernel::SwapBytes(native, native, count * in_width_, in_width_);
      in = native;
    }
    const std::uint8_t* const given = in;
    kernel::Counts ignored;  // overflow in an intermediate step is counted by the last one too
    for (std::size_t s = 0; s + 1 < steps_.size(); ++s) {
      std::uint8_t* const between = blocks[s % 2];
      Run(steps_[s], in, between, count, saturate_, ignored);
      in = between;
    }
    Run(steps_.back(), in, out, count, saturate_, counts);
    const Number from = steps_.front().from, to = steps_.back().to;
    std::uint64_t underflow = 0;
    if (kernel::IsFloat(from) && kernel::IsFloat(to) && kernel::WidthOf(to) == 1) {
      underflow = kernel::CountZeros(to, out, count) - kernel::CountZeros(from, given, count);
    }
    if constexpr (kBigEndian) kernel::SwapBytes(out, out, count * out_width(), out_width());
    return underflow;
  }

  Steps steps_;
  std::size_t in_width_;
  std::size_t parts_;
  bool saturate_;
};

struct Named {
  std::string_view name;
  Number number;
};
constexpr Named kNumbers[] = {
    {"bool", Number::kBool},
    {"i8", Number::kI8},
    {"u8", Number::kU8},
    {"i16", Number::kI16},
    {"u16", Number::kU16},
    {"i32", Number::kI32},
    {"u32", Number::kU32},
    {"i64", Number::kI64},
    {"u64", Number::kU64},
    {"f64", Number::kF64},
    {"f32", Number::kF32},
    {"f16", Number::kF16},
    {"bf16", Number::kBf16},
    {"f8_e4m3fn", Number::kE4m3fn},
    {"f8_e5m2", Number::kE5m2},
    {"f8_e4m3fnuz", Number::kE4m3fnuz},
    {"f8_e5m2fnuz", Number::kE5m2fnuz},
};

std::optional<Number> FindNumber(std::string_view name) {
  for (const Named& named : kNumbers) {
    if (named.name == name) return named.number;
  }
  return std::nullopt;
}

// The steps from one type to another; nothing if there is no conversion.
std::optional<Steps> FindSteps(std::string_view from_name, std::string_view to_name) {
  Steps steps;
  if (from_name == to_name) return steps;
  const auto found = FindNumber(from_name), to = FindNumber(to_name);
  if (!found || !to || *to == Number::kBool) return std::nullopt;
  Number at = *found;
  const auto go = [&](Number next) {
    if (at != next) steps.push_back({at, next});
    at = next;
  };
  if (at == Number::kBool) go(Number::kU8);
  const bool to_float = kernel::IsFloat(*to);
  const bool narrow_to = to_float && *to != Number::kF32 && *to != Number::kF64;
  if (!kernel::IsFloat(at) && narrow_to) {  // through a float that is exact or rounded to odd
    const std::size_t width = kernel::WidthOf(at);
    go(width <= 2 ? Number::kF32 : width == 4 ? Number::kF64 : Number::kOddF64);
  } else if (kernel::IsFloat(at) && !to_float && at != Number::kF64) {
    go(Number::kF32);
  }
  go(*to);
  return steps;
}

// A logical type that is unknown to us may have the name of a wider number; it would
// be read past its end.
bool HasItsWidth(const ElementType& element) {
  const auto number = FindNumber(Name(element));
  return !number || kernel::WidthOf(*number) == ByteWidth(element.dtype);
}

bool IsComplex(std::string_view name) { return name == "complex64" || name == "complex128"; }

}  // namespace

StatusOr<std::shared_ptr<const Transform>> MakeConversion(const ElementType& from,
                                                          const ElementType& to,
                                                          OnOverflow on_overflow) {
  const bool complex = IsComplex(Name(from)) && IsComplex(Name(to));
  const auto steps =
      complex ? FindSteps(Name(from.dtype), Name(to.dtype)) : FindSteps(Name(from), Name(to));
  if (!steps || !HasItsWidth(from) || !HasItsWidth(to)) {
    return Unsupported("no conversion from " + std::string(Name(from)) + " to " +
                       std::string(Name(to)));
  }
  return std::make_shared<const Conversion>(*steps, ByteWidth(from.dtype), complex ? 2 : 1,
                                            on_overflow == OnOverflow::kSaturate);
}

}  // namespace zt
