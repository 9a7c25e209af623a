// zt.transform:stage — Transform, the interface between the pipeline and element-wise transforms.
export module zt.transform:stage;

import zt.std;
import zt.core;

export namespace zt {

// The conversion of a number that its target cannot represent. It is counted under every policy.
enum class OnOverflow : std::uint8_t {
  kError,     // convert as kInf; the writer then fails, naming the tensor
  kInf,       // infinity, or NaN if the target has no infinity
  kSaturate,  // the largest finite value of the same sign
};

// Numbers that a conversion of one tensor could not preserve. Counts of chunks add
// up to the tensor's.
struct NumericCounts {
  // Finite values beyond the target's largest, or integers beyond its range.
  std::uint64_t overflow = 0;
  std::uint64_t nan_lost = 0;  // NaN, if the target has none
  // Floats to integers: values in range that are not whole.
  std::uint64_t fraction_lost = 0;
  // Floats to floats of 8 bits: values other than 0 that became 0.
  std::uint64_t underflow = 0;

  inline bool any() const { return (overflow | nan_lost | fraction_lost | underflow) != 0; }
  inline NumericCounts& operator+=(const NumericCounts& other) {
    overflow += other.overflow;
    nan_lost += other.nan_lost;
    fraction_lost += other.fraction_lost;
    underflow += other.underflow;
    return *this;
  }
};

// Converts whole input units to whole output units. Immutable, so all threads can
// share one instance.
class Transform {
 public:
  virtual ~Transform() = default;
  // Bytes of the smallest unit that converts by itself: 4 for f32 to bf16, 144 for
  // a Q4_K block to f32.
  virtual std::size_t input_unit() const = 0;
  // Bytes that a unit becomes: 2 for f32 to bf16, 1024 for a Q4_K block to f32.
  virtual std::size_t output_unit() const = 0;
  // Converts the units of `in`, a whole number of them, to `out`. The spans do not overlap; no
  // alignment is required. Adds to `counts`. Several threads may call it at once; it cannot fail.
  virtual void Apply(std::span<const std::byte> in, std::span<std::byte> out,
                     NumericCounts& counts) const = 0;
};

}  // namespace zt
