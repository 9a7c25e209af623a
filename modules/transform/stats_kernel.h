// stats_kernel — sums, extremes and counts of runs of numbers, for every CPU target; independent of
// the modules.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

struct Sums {
  double sum = 0;
  double least = 0, most = 0;  // valid if the sum is finite; a zero has either sign
  std::uint64_t zeros = 0;
};

// Both take at least one number, and give the same bits on every target: lane i % 16 adds up its
// numbers in order, then lanes are added in pairs. No alignment is required.
Sums SumNumbers(const double* in, std::size_t count);
// The sum of (x - mean)^2 over finite numbers.
double SumSquares(const double* in, std::size_t count, double mean);

// The binary exponents of numbers that are counted apart: those below and above count at the ends.
inline constexpr int kLeastExponent = -64;
inline constexpr int kMostExponent = 31;
inline constexpr std::size_t kExponents = kMostExponent - kLeastExponent + 1;
constexpr std::size_t ExponentPlace(std::uint64_t bits) {  // of a double; zero is at the low end
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const int low = exponent < kLeastExponent ? kLeastExponent : exponent;
  return static_cast<std::size_t>((low > kMostExponent ? kMostExponent : low) - kLeastExponent);
}
// Equal exponents follow one another: eight tables in turn, or each count would wait for the last.
using ExponentCounts = std::uint32_t[8][kExponents];
// Counts each of the finite numbers.
void CountExponents(const double* in, std::size_t count, ExponentCounts& counts);

// counts[x] += 1 for each little-endian element x of `width` bytes (1 or 2).
void CountPatterns(const std::uint8_t* in, std::size_t count, std::size_t width,
                   std::uint32_t* counts);

}  // namespace zt::kernel
