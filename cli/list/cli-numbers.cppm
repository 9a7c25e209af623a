// zt.cli:numbers — the elements of a component as numbers for people: decoded, measured. Internal.
module zt.cli:numbers;

import zt.std;
import :output;

namespace zt::cli::internal {

// How the stored elements of a component become numbers.
struct NumberForm {
  // The name of the type in the file: "bf16", "q4_0", "int4".
  std::string stored;
  // The type of the numbers: bool, an integer, f16, f32, f64, complex64 or complex128. Types that
  // numpy lacks become f32 or i8, which hold all their values.
  ElementType element;
  std::shared_ptr<const Transform> decode = nullptr;  // null if the bytes are the numbers
  // The smallest run that can be decoded alone: its size in bytes, and in numbers.
  std::size_t unit_bytes = 1, unit_numbers = 1;
  Shape shape;            // of the numbers
  std::uint64_t numbers;  // the product of the shape

  // Decodes whole units.
  std::vector<std::byte> Decoded(std::span<const std::byte> units) const;
};
// kUnimplemented, naming the type, if its elements are not known numbers. A component of an object
// with several has one dimension.
StatusOr<NumberForm> FormOf(const Object& object, std::size_t component);

// The figures of a tensor for `inspect --stats`.
struct TensorStats {
  NumberStats numbers = {};
  bool stored = false;  // of the stored values of a sparse tensor; its other elements are zeros
  std::string skipped = {};  // why there are no figures; empty if there are
};
// The figures of the objects with these indices, in that order; equal bytes are read once. Errors
// name file and tensor.
StatusOr<std::vector<std::shared_ptr<const TensorStats>>> Measure(
    TensorSource& source, std::span<const std::uint32_t> objects, const Common& common);

Json ToJson(const TensorStats& stats);
// "2^-9 ▂▆█▃ 2^-6": a bar for each binary exponent, the most frequent the highest. Empty if all
// numbers are zero.
std::string ExponentsText(const NumberStats& stats);
// At most `digits` significant digits of a float; integers whole.
std::string NumberText(const Number& number, int digits = 6);

}  // namespace zt::cli::internal
