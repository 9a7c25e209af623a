// stats_kernel — sums in Highway vectors, counts in plain loops: a table takes one count at a time.
#include "transform/stats_kernel.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "transform/stats_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace zt::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes of the sum, on whatever target: two vectors of at most eight at a time.
constexpr std::size_t kLanes = 16;

HWY_INLINE double AddLanes(double (&lanes)[kLanes]) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

Sums RunSumNumbers(const double* HWY_RESTRICT in, std::size_t count) {
  const hn::CappedTag<double, kLanes / 2> d;
  const std::size_t n = hn::Lanes(d), whole = count / kLanes * kLanes;
  HWY_ALIGN double sum[kLanes], least[kLanes], most[kLanes];
  const auto zero = hn::Zero(d), first = hn::Set(d, in[0]);
  Sums out;
  for (std::size_t lane = 0; lane < kLanes; lane += 2 * n) {
    auto sum_a = zero, sum_b = zero;
    auto least_a = first, least_b = first, most_a = first, most_b = first;
    for (std::size_t i = lane; i < whole; i += kLanes) {
      const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + i + n);
      sum_a = hn::Add(sum_a, a);
      sum_b = hn::Add(sum_b, b);
      least_a = hn::Min(least_a, a);
      least_b = hn::Min(least_b, b);
      most_a = hn::Max(most_a, a);
      most_b = hn::Max(most_b, b);
      out.zeros += hn::CountTrue(d, hn::Eq(a, zero)) + hn::CountTrue(d, hn::Eq(b, zero));
    }
    hn::Store(sum_a, d, sum + lane);
    hn::Store(sum_b, d, sum + lane + n);
    hn::Store(hn::Min(least_a, least_b), d, least + lane);
    hn::Store(hn::Min(least_a, least_b), d, least + lane + n);
    hn::Store(hn::Max(most_a, most_b), d, most + lane);
    hn::Store(hn::Max(most_a, most_b), d, most + lane + n);
  }
  out.least = *std::min_element(least, least + kLanes);
  out.most = *std::max_element(most, most + kLanes);
  for (std::size_t i = whole; i < count; ++i) {
    sum[i - whole] += in[i];
    out.least = std::min(out.least, in[i]);
    out.most = std::max(out.most, in[i]);
    out.zeros += in[i] == 0 ? 1 : 0;
  }
  out.sum = AddLanes(sum);
  return out;
}

double RunSumSquares(const double* HWY_RESTRICT in, std::size_t count, double mean) {
  const hn::CappedTag<double, kLanes / 2> d;
  const std::size_t n = hn::Lanes(d), whole = count / kLanes * kLanes;
  HWY_ALIGN double sum[kLanes];
  const auto middle = hn::Set(d, mean);
  for (std::size_t lane = 0; lane < kLanes; lane += 2 * n) {
    auto sum_a = hn::Zero(d), sum_b = hn::Zero(d);
    for (std::size_t i = lane; i < whole; i += kLanes) {
      const auto a = hn::Sub(hn::LoadU(d, in + i), middle);
      const auto b = hn::Sub(hn::LoadU(d, in + i + n), middle);
      sum_a = hn::Add(sum_a, hn::Mul(a, a));
      sum_b = hn::Add(sum_b, hn::Mul(b, b));
    }
    hn::Store(sum_a, d, sum + lane);
    hn::Store(sum_b, d, sum + lane + n);
  }
  for (std::size_t i = whole; i < count; ++i) {
    const double distance = in[i] - mean;
    const double square = distance * distance;  // a statement of its own is not fused with the next
    sum[i - whole] += square;
  }
  return AddLanes(sum);
}

}  // namespace zt::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zt::kernel {
namespace {

// True if all elements of a line are equal, as in padding and zeros. Lines of others
// mostly end by the first look.
template <int kBits>
bool AreEqual(const std::uint64_t (&words)[8]) {
  if (words[0] != words[7] || words[0] != std::rotl(words[0], kBits)) return false;
  std::uint64_t unlike = 0;
  for (const std::uint64_t word : words) unlike |= word ^ words[0];
  return unlike == 0;
}

// A cache line at a time. One of equal elements counts at once: one after the other would wait for
// each other.
template <typename Element>
void CountElements(const std::uint8_t* in, std::size_t count, std::uint32_t* counts) {
  constexpr std::size_t kLine = 64 / sizeof(Element);
  const auto at = [in](std::size_t i) {
    Element element;
    std::memcpy(&element, in + i * sizeof(Element), sizeof(Element));
    if constexpr (sizeof(Element) == 2 && std::endian::native == std::endian::big)
      element = __builtin_bswap16(element);
    return element;
  };
  std::size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    const std::uint8_t* const line = in + i * sizeof(Element);
    PrefetchAhead(line);
    std::uint64_t words[8];
    std::memcpy(words, line, sizeof words);
    if (AreEqual<8 * sizeof(Element)>(words)) {
      counts[at(i)] += kLine;
      continue;
    }
    for (std::size_t j = i; j < i + kLine; ++j) ++counts[at(j)];
  }
  for (; i < count; ++i) ++counts[at(i)];
}

}  // namespace

HWY_EXPORT(RunSumNumbers);
Sums SumNumbers(const double* in, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(RunSumNumbers)(in, count);
}

HWY_EXPORT(RunSumSquares);
double SumSquares(const double* in, std::size_t count, double mean) {
  return HWY_DYNAMIC_DISPATCH(RunSumSquares)(in, count, mean);
}

void CountExponents(const double* in, std::size_t count, ExponentCounts& counts) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j)
      ++counts[j][ExponentPlace(std::bit_cast<std::uint64_t>(in[i + j]))];
  }
  for (; i < count; ++i) ++counts[0][ExponentPlace(std::bit_cast<std::uint64_t>(in[i]))];
}

void CountPatterns(const std::uint8_t* in, std::size_t count, std::size_t width,
                   std::uint32_t* counts) {
  if (width == 1) return CountElements<std::uint8_t>(in, count, counts);
  return CountElements<std::uint16_t>(in, count, counts);
}

}  // namespace zt::kernel
#endif  // HWY_ONCE
