// zt.cli:array — slices of arrays and the text of arrays, both as numpy has them. Internal.
module zt.cli:array;

import zt.std;
import zt;

namespace zt::cli::internal {

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
// fewest digits that mean them and no other of their type ("0.1", "1e-05"). As JSON nested lists; floats as by NumberJson, a complex number as a list of its two parts.
std::string ArrayText(const ArrayValues& values, bool json = false);

}  // namespace zt::cli::internal
