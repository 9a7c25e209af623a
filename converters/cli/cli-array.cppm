// zt.cli:array — slices of arrays and the text of arrays, both as numpy has them. Internal.
module zt.cli:array;

import zt.std;
import zt;

namespace zt::cli::internal {

// The positions that a slice takes of one dimension: first, first + step, ...; printed from the
// last to the first if `reversed`.
struct Axis {
  std::uint64_t first = 0, step = 1, count = 0;
  bool reversed = false;
  bool kept = true;  // false: one position was named, and the dimension goes
};

// What stands between the brackets of "name[0:4,:8]": integers, start:stop:step and one "...".
// kInvalidArgument.
StatusOr<std::vector<Axis>> ParseSlice(std::string_view text, std::span<const std::uint64_t> shape);

// Numbers in C order, little-endian.
struct ArrayValues {
  ElementType element;  // bool, an integer, f16, f32, f64, complex64 or complex128
  Shape shape = {};
  std::vector<std::byte> bytes = {};
  std::vector<bool> reversed = {};  // dimensions whose last position comes first
  std::vector<bool> cut =
      {};  // dimensions of which the first and last three positions are there alone

  // The place of an element among them, for one position of each dimension as they are shown.
  std::size_t Place(std::span<const std::size_t> index) const;
};

// How many elements numpy prints whole, and of how many at either end of a dimension beyond.
inline constexpr std::uint64_t kWholeArray = 1000, kEdge = 3;

// str() of a numpy array of them; of no dimension that of a number.
std::string ArrayText(const ArrayValues& values);
// Nested lists of what NumberJson gives for floats. A complex number is a list of its two parts.
void AppendArrayJson(const ArrayValues& values, std::string& out);

}  // namespace zt::cli::internal
