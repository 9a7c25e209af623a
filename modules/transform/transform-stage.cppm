// zt.transform:stage — Transform, the seam between the pipeline and every element-wise change.
export module zt.transform:stage;

import zt.std;
import zt.core;

export namespace zt {

// What becomes of a number its target cannot hold. Whatever is chosen, it is counted.
enum class OnOverflow : std::uint8_t {
  kError,     // convert as kInf; the writer then fails, naming the tensor
  kInf,       // infinity, or NaN where the target has no infinity
  kSaturate,  // the largest finite value of the same sign
};

// What a conversion could not carry over, for one tensor. Sums of chunks are the tensor's.
struct NumericCounts {
  // Finite values beyond the target's largest, or integers beyond its range.
  std::uint64_t overflow = 0;
  std::uint64_t nan_lost = 0;  // NaN where the target has none
  // Floats to integers: values in range that are not whole. They never fail a conversion.
  std::uint64_t fraction_lost = 0;
};

// Turns whole input units into whole output units. Immutable, so one instance serves all threads.
class Transform {
 public:
  virtual ~Transform() = default;
  // Bytes of the smallest piece that converts by itself: 4 for f32 to bf16, 144 for a Q4_K block to f32.
  virtual std::size_t input_unit() const = 0;
  // Bytes that come of it: 2 for f32 to bf16, 1024 for a Q4_K block to f32.
  virtual std::size_t output_unit() const = 0;
  // Converts in.size() / input_unit() units, a whole number of them, to as many of output_unit() bytes. The spans do
  // not overlap; no alignment is asked. Adds to `counts`. Called by several threads at once; cannot fail.
  virtual void Apply(std::span<const std::byte> in, std::span<std::byte> out,
                     NumericCounts& counts) const = 0;
};

}  // namespace zt
