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
  virtual const Weight& weight() const = 0;
  // True if the codes are not in the order of the numbers: they are transposed by bands.
  virtual bool moved() const = 0;
  // Computes numbers from `first` on, in the host's byte order. Errors as of the source's reads, and
  // kDataLoss if an index of a group is out of range.
  virtual Status Compute(std::uint64_t first, std::span<float> out, BufferPool& pool) const = 0;
};

// Makes the numbers of tensors of `source`, which must outlive them. `memory` limits the bytes of
// bands, and, by itself, those of components that can only be read in order and are held.
using NumbersMaker = std::function<StatusOr<std::unique_ptr<Numbers>>(Weight)>;
NumbersMaker MakeNumbers(TensorSource& source, std::uint64_t memory);

}  // namespace zt::composite::internal
