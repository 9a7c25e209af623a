// zt.cli:compare — two inputs by content: component by component, and how their elements differ:
// which, how many, by how much. Internal.
module zt.cli:compare;

import zt.std;
import :output;
import :rules;

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

 private:
  // kLong: integers of 64 bits on one side, floats on the other.
  enum class Numbers { kNone, kFloat, kInteger, kLong, kComplex };
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
  void CompareLongs(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                    Scratch& scratch, ValueCounts& counts) const;
  void CompareFloats(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                     Scratch& scratch, ValueCounts& counts) const;
  void CompareComplex(std::uint64_t at, std::span<const std::byte> a, std::span<const std::byte> b,
                      Scratch& scratch, ValueCounts& counts) const;
  bool Within(double distance, double size) const;
  // Counts two unequal numbers. True if they are the first that differ.
  bool CountPair(std::uint64_t at, double distance, double size, ValueCounts& counts) const;

  Side sides_[2];
  Numbers numbers_ = Numbers::kNone;
  bool same_ = true;  // types of both sides
  std::uint64_t elements_ = 0;
  std::optional<Tolerance> tolerance_;
};

enum class DifferenceKind {
  kOnlyFirst,
  kOnlySecond,
  kFormat,
  kShape,
  kAttribute,
  kComponents,
  kDType,
  kValues,
  kFileAttribute
};

// One way in which a tensor differs. Attributes are compared if formats agree; values if shapes do
// and elements are numbers on both sides.
struct Difference {
  DifferenceKind kind = DifferenceKind::kValues;
  // Empty: kFileAttribute; by Repeated if one may have many. Of a file of the model its path.
  std::string tensor = {};
  bool file = false;           // a file of the model, not a tensor
  std::string component = {};  // kDType and kValues: its role
  std::string attribute = {};  // kAttribute and kFileAttribute: its key
  // Each side's format, shape, attribute (empty: it has none), components or type.
  std::string first = {}, second = {};
  // kFormat and kDType: whether the values were found equal nevertheless.
  bool equal_values = false;
  // kValues.
  std::uint64_t elements = 0;
  Shape at = {};  // index of the first element that differs
  ValueCounts counts = {};
};
// "tensor 'w': 3 of 100 elements differ, by at most 0.5".
std::string FormatDifference(const Difference& difference, std::string_view first,
                             std::string_view second);
Json ToJson(const Difference& difference);
// Limit on the differences that a command prints by default.
inline constexpr std::size_t kMostDifferences = 20;

struct Comparison {
  // In the order of the first input, then tensors that only the second has.
  std::vector<Difference> differences;
  // Objects: tensors, and files of the model among them.
  struct Count {
    std::uint64_t all = 0, files = 0;
    void Add(bool file) { ++all, files += file ? 1 : 0; }
  };
  Count both, differing;          // in both inputs, and of these those that differ
  Count only_first, only_second;  // in one alone
  std::uint64_t attributes = 0;   // of the file, in both
  std::uint64_t bytes = 0;        // compared, of one side
  // Files of the model on one side, left out before since the other has none.
  std::uint64_t files_not_compared = 0;
  // The largest errors of all values that were compared, within the tolerance or not, and the
  // tensors that have them.
  struct Error {
    std::optional<double> value = std::nullopt;
    std::string tensor = {};
  };
  Error largest, relative;
};
// "57 tensors and 6 files".
std::string CountText(const Comparison::Count& count);

// Which attributes are compared: those of tensors, or those of the file, too. kConverted leaves out
// kFolderAttribute, which convert adds itself.
enum class AttributeChoice { kNone, kTensors, kConverted, kAll };

struct CompareOptions {
  unsigned threads = 1;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(std::uint64_t bytes, std::uint64_t total)> progress = {};
  std::optional<Tolerance> tolerance = std::nullopt;
  AttributeChoice attributes = AttributeChoice::kTensors;
  // The names that the objects of the first input have in the second; empty: their own.
  std::vector<std::string> names = {};
  // Selects tensors by their names in the second input; null selects all.
  Selector* selector = nullptr;
};

// Reads both inputs in bounded memory and calls Finish of both. At most one may be unseekable.
// Errors name file and tensor.
StatusOr<Comparison> Compare(TensorSource& first, TensorSource& second,
                             const CompareOptions& options);
// Compare for a command: prints the inputs' warnings, shows progress, and is cancelled by a signal.
StatusOr<Comparison> CompareSources(TensorSource& first, TensorSource& second, const Common& common,
                                    std::string_view verb, CompareOptions options = {});

}  // namespace zt::cli::internal
