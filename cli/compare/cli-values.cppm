// zt.cli:values — how the elements of two arrays differ: which, how many, by how much. Internal.
module zt.cli:values;

import zt.std;
import :output;

namespace zt::cli::internal {

// Limit on the difference of numbers x and y: |x - y| <= absolute + relative * |y|. NaN then equals
// NaN, and -0 equals 0. Without a tolerance elements are equal if their bits are.
struct Tolerance {
  double absolute = 0, relative = 0;
};

// The differences in a run of elements. Errors count all numbers, within the tolerance or not.
struct ValueCounts {
  std::uint64_t differing = 0;
  // Differing elements that are NaN on one side or both; on both, with other bits; -0 and 0.
  std::uint64_t nan = 0, both_nan = 0, zeros = 0;
  // The index in C order of the first differing element, and its value on each side: a number, a
  // list of two, "nan", "inf"; null if elements are not numbers.
  std::optional<std::uint64_t> first = std::nullopt;
  Json values[2] = {};
  // The largest |x - y| of unequal numbers, and the largest |x - y| / |y| with y other than 0.
  std::optional<double> largest = std::nullopt, relative = std::nullopt;
  double squares = 0;  // the sum of |x - y|^2

  // Adds the counts of the next elements.
  void Add(const ValueCounts& later);
};

// A double in JSON, which has no NaN and no infinity: "nan", "inf", "-inf".
Json NumberJson(double value);

// Compares the elements of two components of the same shape. Immutable, for all threads.
class ValueComparer {
 public:
  // nullopt if the elements of the two sides are not comparable. Types may differ: elements are
  // then compared as numbers, and GGUF blocks by their dequantized numbers.
  static std::optional<ValueComparer> Make(const Object& first, const Component& first_component,
                                           const Object& second, const Component& second_component,
                                           const std::optional<Tolerance>& tolerance);

  // Every range that is compared holds a multiple of this number of elements; only the last range
  // of a component may hold fewer.
  static constexpr std::uint64_t kElements = 256;

  std::uint64_t elements() const { return elements_; }
  // The bytes of `elements` elements of side 0 or 1, and the elements of `bytes`; whole units.
  std::uint64_t BytesOf(int side, std::uint64_t elements) const {
    return elements / sides_[side].per_unit * sides_[side].unit;
  }
  std::uint64_t ElementsIn(int side, std::uint64_t bytes) const {
    return bytes / sides_[side].unit * sides_[side].per_unit;
  }
  // `first` and `second` hold the same number of elements, the earliest of which is the `at`th.
  ValueCounts Compare(std::uint64_t at, std::span<const std::byte> first,
                      std::span<const std::byte> second) const;
  // Equal keys: equal results for equal bytes.
  auto Key() const {
    return std::tuple(sides_[0].format, std::string_view(sides_[0].element.type),
                      sides_[0].element.dtype, sides_[1].format,
                      std::string_view(sides_[1].element.type), sides_[1].element.dtype, elements_);
  }

 private:
  enum class Numbers { kNone, kFloat, kInteger, kComplex };
  struct Side {
    std::string_view format;
    ElementType element;
    std::size_t unit = 1, per_unit = 1;  // bytes that are decoded together, and their elements
    std::shared_ptr<const Transform> blocks = nullptr;   // to f32
    std::shared_ptr<const Transform> numbers = nullptr;  // to f64, or to complex128
  };
  struct Scratch;

  static Numbers Interpret(const Object& object, const Component& component, Side& side);
  // The numbers of `units` whole units.
  void Decode(int side, std::span<const std::byte> in, std::vector<float>& f32,
              std::span<double> out) const;
  void CompareBytes(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                    ValueCounts& counts) const;
  void CompareIntegers(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                       ValueCounts& counts) const;
  void CompareFloats(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                     Scratch& scratch, ValueCounts& counts) const;
  void CompareComplex(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                      Scratch& scratch, ValueCounts& counts) const;
  bool Within(double distance, double size) const;

  Side sides_[2];
  Numbers numbers_ = Numbers::kNone;
  bool same_ = true;  // types of both sides
  std::uint64_t elements_ = 0;
  std::optional<Tolerance> tolerance_;
};

}  // namespace zt::cli::internal
