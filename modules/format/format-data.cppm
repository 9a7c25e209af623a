// zt.format:data — validates the decoded bytes of components, range by range.
export module zt.format:data;

import zt.std;
import :model;
import zt.core;

export namespace zt {

// A rule for a component's bytes (1.2 §2, §3). Components with equal rules can share a validator.
struct DataRule {
  enum class Kind : std::uint8_t {
    kBool,      // bytes are 0 or 1
    kIndices,   // each below the size of its dimension
    kNibble,    // the high half of the last byte is 0 if the number of 4-bit elements is odd
    kPointers,  // begin at 0, never decrease, end at the number of indices
  };
  Kind kind = Kind::kBool;
  DType dtype = DType::kBool;
  // kIndices: the number of runs, one for each dimension.
  std::uint32_t dimensions = 1;
  // kIndices: elements in a run. kNibble: position of the last byte, or kUnknownSize.
  std::uint64_t each = 0;
  bool csr = false;  // kIndices: of a sparse_csr object
  auto operator<=>(const DataRule&) const = default;
};

// The rule for component number `component` with `bytes` decoded bytes; nullopt if all bytes are
// valid. For kUnknownSize the rule does not depend on the size and the attributes; that of
// coordinates, which lie one dimension after the other, only ContentCheck can judge, at their end.
std::optional<DataRule> RuleOf(const Object& object, std::size_t component, std::uint64_t bytes);

// Validates one component's bytes. Several threads may scan ranges, each with its own
// DataValidator; these are merged in order. A range may begin and end inside an element.
class DataValidator {
 public:
  // No bytes yet. The first to be added begins at `offset` of the component.
  explicit DataValidator(const DataRule& rule, std::uint64_t offset = 0);

  // Scans the next bytes.
  void Add(std::span<const std::byte> bytes);
  // Merges what the next range holds: `next` was constructed with end() of this one as its
  // offset.
  void Merge(const DataValidator& next);
  inline const DataRule& rule() const { return rule_; }
  // The end of the scanned bytes.
  inline std::uint64_t end() const { return end_; }

  // kDataLoss if the bytes of this component of `object` break the rule. `indices` is the number at
  // which the row pointers must end if all of them were scanned, else nullopt.
  Status Check(const Object& object, std::optional<std::uint64_t> indices) const;

 private:
  struct Found {
    std::uint64_t value = 0, position = 0;
  };
  void Edge(std::span<const std::byte> bytes);
  void Whole(std::span<const std::byte> bytes, std::uint64_t position);
  void Bools(std::span<const std::byte> bytes, std::uint64_t position);
  void Nibble(std::span<const std::byte> bytes, std::uint64_t position);
  void Indices(std::span<const std::byte> bytes, std::uint64_t position);
  void Pointers(std::span<const std::byte> bytes, std::uint64_t position);

  DataRule rule_;
  std::size_t width_;
  std::uint64_t begin_, end_;
  // Partial elements: the bytes before the first element boundary if begin_ is not one, and the
  // bytes after the last boundary.
  std::array<std::byte, 8> head_{}, tail_{};
  std::size_t head_bytes_ = 0, tail_bytes_ = 0;

  // kBool: the first byte above 1. kNibble: the last byte. kPointers: the first that decreases.
  std::optional<Found> bad_;
  // kIndices: for each dimension, the first occurrence of the largest index.
  std::vector<std::optional<Found>> largest_;
  std::optional<Found> first_;  // kPointers
  std::uint64_t last_ = 0;      // kPointers
};

// The number of indices in a sparse_csr object, from their size; the row pointers must end at it.
// nullopt for other formats and if the size is unknown.
std::optional<std::uint64_t> CountIndices(const Object& object);

// Judges the bytes that one component has, or several: whether they keep the rule of each, and, for
// the indices of sparse objects, what versions with ContainerTraits::unique_indices ask of them
// (2.0 §5.2): columns ascend in each row of a sparse_csr object, and no two elements of a sparse_coo
// object name the same cell.
class ContentCheck {
 public:
  // Judges components by their rules alone.
  ContentCheck();
  // Judges indices, too, if `version` asks it: in at most `memory_bytes` for each rule.
  ContentCheck(SpecVersion version, std::uint64_t memory_bytes);
  ~ContentCheck();
  ContentCheck(const ContentCheck&) = delete;
  ContentCheck& operator=(const ContentCheck&) = delete;

  // Adds the rule of a component of `object`. Rules that are equal are one. Before any bytes.
  void Expect(const DataRule& rule, const Object& object);
  // The most row pointers of an object that will be judged by indices of a sparse_csr object.
  void AllowRows(std::uint64_t pointers);

  // What a range shows, for each rule. Thread-safe.
  using Found = std::vector<DataValidator>;
  Found Look(std::uint64_t offset, std::span<const std::byte> bytes) const;
  // Adds the next range, of which `found` tells.
  void Add(Found found, std::span<const std::byte> bytes);

  // After the last range: kDataLoss if the bytes break the rule of a component of `object`.
  // `indices` as for DataValidator. kUnimplemented if the memory limit is too small to decide.
  Status Check(const DataRule& rule, const Object& object,
               std::optional<std::uint64_t> indices) const;

  // A component, by its check and the rule that was expected.
  struct Part {
    std::shared_ptr<ContentCheck> check;
    DataRule rule;
  };
  // Judges the indices of an object together; `parts` are its components with rules, each of which
  // satisfies Check. Status as of Check. What was kept to find out goes with the checks.
  static Status CheckTogether(const Object& object, std::span<const Part> parts);
  // The memory that the state takes between two calls of CheckTogether.
  std::uint64_t kept_bytes() const;

 private:
  struct Slot;
  Slot& SlotOf(const DataRule& rule) const;
  std::vector<std::unique_ptr<Slot>> slots_;  // one for each rule
  const bool unique_;
  const std::uint64_t memory_bytes_;
};

}  // namespace zt
