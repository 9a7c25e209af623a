// zt.cli:compare — two inputs by content, component by component. Internal.
module zt.cli:compare;

import zt.std;
import :output;

namespace zt::cli::internal {

enum class DifferenceKind {
  kOnlyFirst,
  kOnlySecond,
  kFormat,
  kShape,
  kAttribute,
  kComponents,
  kDType,
  kValues
};

// One way in which a tensor differs. Attributes are compared where formats agree, values where format, shape and element
// types do.
struct Difference {
  DifferenceKind kind = DifferenceKind::kValues;
  std::string tensor = {};
  std::string component = {};  // kDType and kValues: its role
  std::string attribute = {};  // kAttribute: its key
  // What each says of format, shape, the attribute (empty: it has none), components or type.
  std::string first = {}, second = {};
  // kValues. Elements are equal where their bits are.
  std::uint64_t elements = 0, differing = 0;
  std::uint64_t nan = 0;  // of the differing: NaN on one side, or different NaN
  std::optional<double> largest =
      std::nullopt;  // absolute difference of numbers; nothing where they are none
};
// "3 of 100 elements differ, by at most 0.5": without the tensor's name.
std::string FormatDifference(const Difference& difference, std::string_view first,
                             std::string_view second);
Json ToJson(const Difference& difference);

struct Comparison {
  std::vector<Difference>
      differences;              // in the order of the first input, then what only the second has
  std::uint64_t tensors = 0;    // in both
  std::uint64_t differing = 0;  // tensors in both that differ
  std::uint64_t bytes = 0;      // compared, of one side
};

struct CompareOptions {
  unsigned threads = 1;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(std::uint64_t bytes, std::uint64_t total)> progress;
};

// Streams both in bounded memory. At most one may be unseekable. Both are finished. Errors name file and tensor.
StatusOr<Comparison> Compare(TensorSource& first, TensorSource& second,
                             const CompareOptions& options);
// The same for a command: prints the inputs' warnings, shows progress, ends on a signal.
StatusOr<Comparison> CompareSources(TensorSource& first, TensorSource& second, const Common& common,
                                    std::string_view verb);

}  // namespace zt::cli::internal
