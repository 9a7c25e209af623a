// zt.transform:stats — elements of one or two bytes are counted by their value, which tells all;
// wider ones are converted to f64 in blocks that stay in cache.
module;

#include "core/little_endian.h"
#include "transform/stats_kernel.h"

module zt.transform;

import zt.std;
import zt.core;

namespace zt {
namespace {

static_assert(NumberStats::kLeastExponent == kernel::kLeastExponent &&
              NumberStats::kMostExponent == kernel::kMostExponent);

constexpr std::size_t kBlock = 2048;  // numbers: 16 KiB of f64
// Fewer elements of two bytes are not worth a table of 65,536 counts.
constexpr std::size_t kWorthCounting = 16 << 10;
// A number of elements whose counts fit 32 bits.
constexpr std::size_t kPart = std::size_t{1} << 28;

// Numbers of one kind are compared without conversion.
template <typename T>
Number AsNumber(double value) {
  if constexpr (std::is_same_v<T, double>) return value + 0.0;  // -0 becomes 0
  return Number(static_cast<T>(value));
}

void Extend(NumberStats& stats, const Number& least, const Number& most) {
  if (!stats.min || least < *stats.min) stats.min = least;
  if (!stats.max || *stats.max < most) stats.max = most;
}

// Figures of elements that are of type T as numbers.
template <typename T>
class Scan final : public NumberScan {
 public:
  Scan(const ElementType& element, std::shared_ptr<const Transform> to_f64)
      : width_(ByteWidth(element.dtype)), to_f64_(std::move(to_f64)) {
    if (width_ > 2) return;
    values_.resize(std::size_t{1} << (8 * width_));
    std::vector<std::byte> patterns(values_.size() * width_);
    for (std::size_t i = 0; i < values_.size(); ++i)
      internal::StoreLittle(i, width_, &patterns[i * width_]);
    Convert(patterns, values_);
  }

  std::unique_ptr<Run> Begin(std::uint64_t bytes) const override {
    const bool table = width_ == 1 || (width_ == 2 && bytes / width_ >= kWorthCounting);
    if (table) return std::make_unique<PatternRun>(*this);
    return std::make_unique<BlockRun>(*this);
  }

 private:
  void Convert(std::span<const std::byte> in, std::span<double> out) const {
    NumericCounts ignored;
    to_f64_->Apply(in, std::as_writable_bytes(out), ignored);
    LittleEndian(std::as_writable_bytes(out), sizeof(double));
  }

  // Counts elements by their pattern.
  class PatternRun final : public Run {
   public:
    explicit PatternRun(const Scan& scan) : scan_(scan), counts_(scan.values_.size()) {}

    void Add(std::span<const std::byte> in) override {
      while (!in.empty()) {
        if (counted_ == kPart) Flush();
        const auto part = in.first(std::min((kPart - counted_) * scan_.width_, in.size()));
        const std::size_t count = part.size() / scan_.width_;
        kernel::CountPatterns(reinterpret_cast<const std::uint8_t*>(part.data()), count,
                              scan_.width_, counts_.data());
        counted_ += count;
        in = in.subspan(part.size());
      }
    }
    void End(NumberStats& stats) override {
      Flush();
      stats.Merge(figures_);
    }

   private:
    void Flush() {
      figures_.Merge(scan_.FiguresOf(counts_));
      std::ranges::fill(counts_, 0u);
      counted_ = 0;
    }

    const Scan& scan_;
    std::vector<std::uint32_t> counts_;
    std::size_t counted_ = 0;  // their sum
    NumberStats figures_;
  };

  // Converts elements to f64 by blocks.
  class BlockRun final : public Run {
   public:
    explicit BlockRun(const Scan& scan) : scan_(scan) {}

    void Add(std::span<const std::byte> in) override {
      const std::size_t most = kPart * scan_.width_;
      for (std::size_t at = 0; at < in.size(); at += most)
        scan_.AddBlocks(in.subspan(at, std::min(most, in.size() - at)), figures_);
    }
    void End(NumberStats& stats) override { stats.Merge(figures_); }

   private:
    const Scan& scan_;
    NumberStats figures_;
  };

  NumberStats FiguresOf(std::span<const std::uint32_t> counts) const {
    NumberStats part;
    double least = 0, most = 0;
    std::vector<std::pair<double, double>> found;  // values and how many there are
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::uint32_t count = counts[i];
      if (count == 0) continue;
      const double value = values_[i];
      if (!std::isfinite(value)) {
        (std::isnan(value) ? part.nan : part.inf) += count;
        continue;
      }
      least = part.finite == 0 ? value : std::min(least, value);
      most = part.finite == 0 ? value : std::max(most, value);
      part.finite += count;
      if (value == 0) {
        part.zeros += count;
      } else {
        part.exponents[kernel::ExponentPlace(std::bit_cast<std::uint64_t>(value))] += count;
      }
      found.emplace_back(value, count);
      part.sum += value * count;
    }
    if (part.finite > 0) Extend(part, AsNumber<T>(least), AsNumber<T>(most));
    const double mean = part.mean();
    for (const auto& [value, count] : found)
      part.squares += (value - mean) * (value - mean) * count;
    return part;
  }

  void AddBlocks(std::span<const std::byte> in, NumberStats& stats) const {
    alignas(64) double block[kBlock];
    kernel::ExponentCounts exponents = {};
    std::uint64_t zeros = 0;
    for (std::size_t at = 0; at < in.size(); at += kBlock * width_) {
      const auto bytes = in.subspan(at, std::min(kBlock * width_, in.size() - at));
      const std::span<double> numbers(block, bytes.size() / width_);
      Convert(bytes, numbers);
      const NumberStats figures = FiguresOf(numbers, bytes, exponents);
      zeros += figures.zeros;
      stats.Merge(figures);
    }
    for (const auto& table : exponents) {
      for (std::size_t e = 0; e < kernel::kExponents; ++e) stats.exponents[e] += table[e];
    }
    stats.exponents[0] -= zeros;
  }

  // All but the exponents, which are counted apart, zeros among them. Rearranges the numbers where
  // some are not finite.
  static NumberStats FiguresOf(std::span<double> numbers, std::span<const std::byte> bytes,
                               kernel::ExponentCounts& exponents) {
    NumberStats figures;
    kernel::Sums sums = kernel::SumNumbers(numbers.data(), numbers.size());
    if (!std::isfinite(sums.sum)) {
      std::size_t kept = 0;
      for (const double each : numbers) {
        if (std::isfinite(each)) {
          numbers[kept++] = each;
        } else {
          ++(std::isnan(each) ? figures.nan : figures.inf);
        }
      }
      numbers = numbers.first(kept);
      if (numbers.empty()) return figures;
      sums = kernel::SumNumbers(numbers.data(), numbers.size());
    }
    figures.finite = numbers.size();
    figures.zeros = sums.zeros;
    figures.sum = sums.sum;
    figures.squares = kernel::SumSquares(numbers.data(), numbers.size(), figures.mean());
    kernel::CountExponents(numbers.data(), numbers.size(), exponents);
    if constexpr (std::is_integral_v<T>) {
      if (bytes.size() == numbers.size() * sizeof(T)) {  // of 64 bits: f64 has not all of them
        ExtendExactly(bytes, figures);
        return figures;
      }
    }
    Extend(figures, AsNumber<T>(sums.least), AsNumber<T>(sums.most));
    return figures;
  }

  static void ExtendExactly(std::span<const std::byte> bytes, NumberStats& figures) {
    T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::min();
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, &bytes[at], sizeof value);
      if constexpr (std::endian::native == std::endian::big)
        value = static_cast<T>(__builtin_bswap64(static_cast<std::uint64_t>(value)));
      least = std::min(least, value);
      most = std::max(most, value);
    }
    Extend(figures, Number(least), Number(most));
  }

  std::size_t width_;
  std::shared_ptr<const Transform> to_f64_;
  std::vector<double> values_;  // of all patterns of one or two bytes
};

}  // namespace

double NumberStats::mean() const {
  // Beyond f64's largest there is no telling what was lost.
  return (std::isfinite(sum) ? sum + sum_lost : sum) / static_cast<double>(finite);
}

double NumberStats::deviation() const { return std::sqrt(squares / static_cast<double>(finite)); }

void NumberStats::Merge(const NumberStats& next) {
  zeros += next.zeros;
  nan += next.nan;
  inf += next.inf;
  for (std::size_t e = 0; e < exponents.size(); ++e) exponents[e] += next.exponents[e];
  if (next.finite == 0) return;
  Extend(*this, *next.min, *next.max);
  squares += next.squares;
  if (finite > 0) {  // Chan, Golub and LeVeque 1979
    const double a = static_cast<double>(finite), b = static_cast<double>(next.finite);
    const double distance = next.mean() - mean();
    squares += distance * distance * (a * (b / (a + b)));
  }
  finite += next.finite;
  const double whole = sum + next.sum;
  const double rounded = whole - sum;  // Knuth's two-sum: what `whole` took of next.sum
  sum_lost += next.sum_lost + ((sum - (whole - rounded)) + (next.sum - rounded));
  sum = whole;
}

void NumberScan::Add(std::span<const std::byte> in, NumberStats& stats) const {
  const std::unique_ptr<Run> run = Begin(in.size());
  run->Add(in);
  run->End(stats);
}

StatusOr<std::shared_ptr<const NumberScan>> MakeNumberScan(const ElementType& element) {
  auto to_f64 = MakeConversion(element, {DType::kF64, ""}, OnOverflow::kInf);
  if (!to_f64.ok()) return to_f64.status();
  const DType kind = ParseDType(Name(element)).value_or(DType::kF64);  // f8 is a float
  if (IsFloat(kind)) return std::make_shared<const Scan<double>>(element, *std::move(to_f64));
  if (IsSignedInt(kind))
    return std::make_shared<const Scan<std::int64_t>>(element, *std::move(to_f64));
  return std::make_shared<const Scan<std::uint64_t>>(element, *std::move(to_f64));
}

}  // namespace zt
