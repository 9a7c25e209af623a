// convert_formats — constants of the float formats, derived from their bit widths;
// independent of the CPU target.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zt::kernel::format {

enum class Specials {
  kIeee,
  kFn,
  kFnuz
};  // inf and NaN; NaN at all ones only; NaN at the sign bit alone

inline constexpr std::uint32_t kF32Inf = 0x7f800000, kF32Quiet = 0x00400000;

template <typename StorageT, int kExponentBits, int kMantissaBits, int kBiasValue,
          Specials kKindValue>
struct Float {
  using Storage = StorageT;
  static constexpr Specials kKind = kKindValue;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = kBiasValue;
  static constexpr int kShift = 23 - kMantissaBits;  // f32 mantissa bits beyond this format's
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kAllOnes = kSign - 1;
  static constexpr std::uint32_t kExponentMask = kAllOnes & ~((1u << kMantissaBits) - 1);
  static constexpr std::uint32_t kQuiet = 1u << (kMantissaBits - 1);
  static constexpr std::uint32_t kMax = kKind == Specials::kIeee ? kExponentMask - 1
                                        : kKind == Specials::kFn ? kAllOnes - 1
                                                                 : kAllOnes;
  // The difference of the biases, in f32's exponent field; added to an f32.
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBiasValue) << 23;
  // f32 bits of the smallest normal number. bf16 shares f32's exponents, so it has
  // the same subnormals.
  static constexpr bool kSharesExponent = kBiasValue == 127;
  static constexpr std::uint32_t kMinNormal = kRebias + (1u << 23);
  // f32 bits of the smallest magnitude that rounds beyond kMax: half a step above it; a
  // tie rounds to even.
  static constexpr std::uint32_t kOverflow =
      (kMax << kShift) + kRebias + (1u << (kShift - 1)) + (kMax % 2 == 0 ? 1 : 0);
};

using F16 = Float<std::uint16_t, 5, 10, 15, Specials::kIeee>;
using Bf16 = Float<std::uint16_t, 8, 7, 127, Specials::kIeee>;
using E5m2 = Float<std::uint8_t, 5, 2, 15, Specials::kIeee>;
using E4m3fn = Float<std::uint8_t, 4, 3, 7, Specials::kFn>;
using E4m3fnuz = Float<std::uint8_t, 4, 3, 8, Specials::kFnuz>;
using E5m2fnuz = Float<std::uint8_t, 5, 2, 16, Specials::kFnuz>;

// The eight smallest magnitudes of an 8-bit format as bits of a 16-bit format. They include all
// subnormals of either format.
template <class From, class To>
constexpr std::array<std::uint16_t, 8> LeastMagnitudes() {
  std::array<std::uint16_t, 8> out = {};
  for (std::uint32_t bits = 1; bits < 8; ++bits) {
    const std::uint32_t field = bits >> From::kMantissa;
    const std::uint32_t fraction = bits & ((1u << From::kMantissa) - 1);
    std::uint32_t significand = field == 0 ? fraction : fraction | 1u << From::kMantissa;
    // The value is significand * 2^power.
    int power = (field == 0 ? 1 : static_cast<int>(field)) - From::kBias - From::kMantissa;
    constexpr int kLeastPower = 1 - To::kBias - To::kMantissa;
    while (significand >> To::kMantissa == 0 && power > kLeastPower) {
      significand <<= 1;
      --power;
    }
    // The significand includes the leading one, which adds one to the exponent field; a
    // subnormal has none.
    out[bits] = static_cast<std::uint16_t>(
        (static_cast<std::uint32_t>(power - kLeastPower) << To::kMantissa) + significand);
  }
  return out;
}

}  // namespace zt::kernel::format
