// zt.cli:compare — two inputs by content, component by component. Internal.
module zt.cli:compare;

import zt.std;
import :output;
import :select;
import :values;

namespace zt::cli::internal {

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
