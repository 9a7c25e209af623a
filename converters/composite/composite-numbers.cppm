// zt.convert.composite:numbers — the numbers of quantized tensors. Internal.
module zt.convert.composite:numbers;

import zt.std;
import :weights;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt::composite::internal {

// The numbers of one tensor, f32 in C order. Thread-safe.
class Numbers {
 public:
  virtual ~Numbers() = default;
  // Computes numbers from `first` on, in the host's byte order. Adds to `overflow` those of finite
  // codes and scales that do not fit f32; they are infinite, or the largest if `saturate`. Errors as
  // of the source's reads, and kDataLoss if an index of a group is out of range.
  virtual Status Compute(std::uint64_t first, std::span<float> out, bool saturate,
                         std::uint64_t& overflow, BufferPool& pool) const = 0;
};

// Makes the numbers of tensors of `source`; it and the weights must outlive them. `memory` limits
// the bytes of bands, and, by itself, those of components that can only be read in order and are
// held.
using NumbersMaker = std::function<StatusOr<std::unique_ptr<Numbers>>(const Weight&)>;
NumbersMaker MakeNumbers(TensorSource& source, std::uint64_t memory);

}  // namespace zt::composite::internal
