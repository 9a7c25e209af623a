// zt.transform:stats — figures of the numbers of a tensor: extremes, mean, deviation, counts.
export module zt.transform:stats;

import zt.std;
import zt.core;

export namespace zt {

// A number of any real element type, exactly: a double for floats, else an integer.
using Number = std::variant<double, std::int64_t, std::uint64_t>;

// Figures of a run of numbers. Those of runs that follow one another are merged in order; cut at
// the same places they are the same for any number of threads.
struct NumberStats {
  // The range of exponents that are counted one by one; others count at its ends.
  static constexpr int kLeastExponent = -64, kMostExponent = 31;

  // Finite numbers: zeros, min, max, exponents and the sums count these alone.
  std::uint64_t finite = 0;
  std::uint64_t zeros = 0;  // of both signs
  std::uint64_t nan = 0, inf = 0;
  std::optional<Number> min = {}, max = {};  // zero has no sign
  // exponents[e] counts x with 2^(e + kLeastExponent) <= |x| < 2^(e + 1 + kLeastExponent).
  std::array<std::uint64_t, kMostExponent - kLeastExponent + 1> exponents = {};

  // The mean, and the standard deviation as numpy has it: of the numbers, not of a sample. In f64,
  // each within 1e-12 of the larger of the two; infinite or NaN if f64 cannot hold a sum.
  // Undefined if there is no finite number.
  double mean() const;
  double deviation() const;

  // Adds the figures of the next run.
  void Merge(const NumberStats& next);

  double sum = 0, sum_lost = 0;  // the sum, and its compensation (Kahan)
  double squares = 0;            // sum of the squared distances from the mean
};

// Computes figures of elements of one type. Immutable, so all threads can share one instance.
class NumberScan {
 public:
  virtual ~NumberScan() = default;
  // Adds the elements of `in`, a whole number of them. No alignment is required.
  void Add(std::span<const std::byte> in, NumberStats& stats) const;

  // A run of elements that comes in pieces. Used by one thread, and valid as long as the scan.
  class Run {
   public:
    virtual ~Run() = default;
    // Adds the next elements, a whole number of them.
    virtual void Add(std::span<const std::byte> in) = 0;
    // Adds the figures of the whole run to `stats`. Called once, at the end.
    virtual void End(NumberStats& stats) = 0;
  };
  // Begins a run of `bytes` bytes.
  virtual std::unique_ptr<Run> Begin(std::uint64_t bytes) const = 0;
};

// Makes the scan for any type that converts to f64 (see MakeConversion): floats of 8 to 64 bits,
// integers, bool as 0 and 1. kUnimplemented for others.
StatusOr<std::shared_ptr<const NumberScan>> MakeNumberScan(const ElementType& element);

}  // namespace zt
