// zt.cli:numbers — the elements of a component as numbers for people: decoded, sliced, printed,
// measured. Internal.
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
// "2^-9 ▂▆█▃ 2^-6": a bar for each binary exponent, the most frequent the highest. "≥2^31" is the
// last one, and "≤2^-64" the first. Empty if all numbers are zero.
std::string ExponentsText(const NumberStats& stats);
// At most `digits` significant digits of a float; integers whole.
std::string NumberText(const Number& number, int digits = 6);

// The positions of one dimension in a slice: first, first + step, ...; printed from the last to the
// first if `reversed`.
struct Axis {
  std::uint64_t first = 0, step = 1, count = 0;
  bool reversed = false;
  bool kept = true;  // false: a single position was given, which drops the dimension
};

// Parses the text between the brackets of "name[0:4,:8]": integers, start:stop:step and one "...".
// kInvalidArgument if it is malformed.
StatusOr<std::vector<Axis>> ParseSlice(std::string_view text, std::span<const std::uint64_t> shape);

// Numbers in C order, little-endian.
struct ArrayValues {
  ElementType element;  // bool, an integer, f16, f32, f64, complex64 or complex128
  Shape shape = {};
  std::vector<std::byte> bytes = {};
  std::vector<bool> reversed = {};  // dimensions whose last position comes first
  // True for a dimension of which only the first and last three positions are stored.
  std::vector<bool> cut = {};

  // The index in `bytes`, in elements, of the element at these printed positions.
  std::size_t Place(std::span<const std::size_t> index) const;
};

// numpy prints arrays of up to kWholeArray elements whole; of larger ones, kEdge positions at
// either end of each dimension.
inline constexpr std::uint64_t kWholeArray = 1000, kEdge = 3;

// The array in numpy's brackets and lines; the number, if there is no dimension. Floats have the
// fewest digits that mean them and no other of their type ("0.1", "1e-05"). As JSON nested lists;
// floats as by NumberJson, a complex number as a list of its two parts.
std::string ArrayText(const ArrayValues& values, bool json = false);

}  // namespace zt::cli::internal
