// convert_reference — float formats spelled out one value at a time in doubles; shares nothing with
// the kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

namespace zt::reference {

struct FloatFormat {
  const char* name;
  int width;  // bytes
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;
  bool fnuz;
};

inline constexpr FloatFormat kFormats[] = {
    {"f64", 8, 11, 52, 1023, true, false},    {"f32", 4, 8, 23, 127, true, false},
    {"f16", 2, 5, 10, 15, true, false},       {"bf16", 2, 8, 7, 127, true, false},
    {"f8_e4m3fn", 1, 4, 3, 7, false, false},  {"f8_e5m2", 1, 5, 2, 15, true, false},
    {"f8_e4m3fnuz", 1, 4, 3, 8, false, true}, {"f8_e5m2fnuz", 1, 5, 2, 16, false, true},
};

inline std::uint64_t SignBit(const FloatFormat& f) { return std::uint64_t{1} << (f.width * 8 - 1); }
inline std::uint64_t MantissaMask(const FloatFormat& f) {
  return (std::uint64_t{1} << f.mantissa_bits) - 1;
}
// The exponent field all ones.
inline std::uint64_t TopExponent(const FloatFormat& f) {
  return ((std::uint64_t{1} << f.exponent_bits) - 1) << f.mantissa_bits;
}
inline std::uint64_t LargestFinite(const FloatFormat& f) {
  if (f.has_infinity) return TopExponent(f) - 1;
  return (TopExponent(f) | MantissaMask(f)) - (f.fnuz ? 0 : 1);
}
inline bool IsNan(const FloatFormat& f, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & ~SignBit(f);
  if (f.has_infinity) return magnitude > TopExponent(f);
  return f.fnuz ? bits == SignBit(f) : magnitude == (TopExponent(f) | MantissaMask(f));
}

// The value of `bits`, which are no NaN.
inline double Value(const FloatFormat& f, std::uint64_t bits) {
  const std::uint64_t magnitude = bits & ~SignBit(f);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const auto mantissa = static_cast<double>(magnitude & MantissaMask(f));
  double value;
  if (f.has_infinity && magnitude == TopExponent(f)) {
    value = std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(1 + std::ldexp(mantissa, -f.mantissa_bits), exponent - f.bias);
  }
  return (bits & SignBit(f)) != 0 ? -value : value;
}

struct Result {
  std::uint64_t bits = 0;
  bool overflow = false;
};

inline Result FromValue(const FloatFormat& to, double value, bool saturate) {
  const std::uint64_t sign = std::signbit(value) ? SignBit(to) : 0;
  const double magnitude = std::fabs(value);
  const auto beyond = [&](bool infinite) -> Result {
    if (infinite && to.has_infinity) return {TopExponent(to) | sign, false};
    if (saturate) return {LargestFinite(to) | sign, true};
    if (to.has_infinity) return {TopExponent(to) | sign, true};
    if (to.fnuz) return {SignBit(to), true};
    return {TopExponent(to) | MantissaMask(to) | sign, true};
  };
  if (std::isinf(value)) return beyond(true);
  if (magnitude == 0) return {to.fnuz ? 0 : sign, false};
  const int least = 1 - to.bias;
  int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  if (exponent < least) exponent = least;
  // In units of the last place; the halves go to even. The sum carries into the
  // exponent where it must.
  double units;
  if (to.width == 8) {
    units = std::ldexp(magnitude, to.mantissa_bits - exponent);  // exact
  } else {
    const auto scale = static_cast<std::uint64_t>(1023 + to.mantissa_bits - exponent) << 52;
    units = magnitude * std::bit_cast<double>(scale);
    units = units + 0x1p52 - 0x1p52;  // doubles from 2^52 to 2^53 are the whole numbers
  }
  const std::uint64_t bits = static_cast<std::uint64_t>(units) +
                             (static_cast<std::uint64_t>(exponent - least) << to.mantissa_bits);
  if (bits > LargestFinite(to)) return beyond(false);
  return {bits == 0 && to.fnuz ? 0 : bits | sign, false};
}

// What a conversion must give for every pattern of `from`.
inline Result Convert(const FloatFormat& from, const FloatFormat& to, std::uint64_t bits,
                      bool saturate) {
  if (!IsNan(from, bits)) return FromValue(to, Value(from, bits), saturate);
  if (to.fnuz) return {SignBit(to), false};
  const bool negative = !from.fnuz && (bits & SignBit(from)) != 0;
  std::uint64_t nan = TopExponent(to) | (negative ? SignBit(to) : 0);
  if (!to.has_infinity) return {nan | MantissaMask(to), false};
  std::uint64_t payload = from.has_infinity ? bits & MantissaMask(from) : 0;
  payload = from.mantissa_bits > to.mantissa_bits
                ? payload >> (from.mantissa_bits - to.mantissa_bits)
                : payload << (to.mantissa_bits - from.mantissa_bits);
  const bool verbatim = from.width == 2 && from.exponent_bits == 8 && to.width == 4;  // bf16 to f32
  if (!verbatim) payload |= std::uint64_t{1} << (to.mantissa_bits - 1);
  return {nan | payload, false};
}

}  // namespace zt::reference
