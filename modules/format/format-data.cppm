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
  auto operator<=>(const DataRule&) const = default;
};

// The rule for component number `component` with `bytes` decoded bytes; nullopt if all bytes are
// valid. For kUnknownSize the rule does not depend on the size and the attributes; it is nullopt
// for coordinates, which SparseValidator holds until their size is known.
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

// Validates the indices of a sparse object together (2.0 §5.2): columns ascend in each row of a
// sparse_csr object, and no two elements of a sparse_coo object name the same cell. Reads the bytes
// of each component once, in order, in limited memory.
class SparseValidator {
 public:
  // Null if `version` has no such rule, unless the number of coordinates is unknown: those are held
  // until it is known, and their range is validated too. Uses at most `memory_bytes`.
  static std::shared_ptr<SparseValidator> Make(const Object& object, SpecVersion version,
                                               std::uint64_t memory_bytes);
  ~SparseValidator();
  SparseValidator(const SparseValidator&) = delete;
  SparseValidator& operator=(const SparseValidator&) = delete;

  // Adds the next bytes of component number `component`; they may end inside an element. Bytes of
  // components that are not indices are ignored.
  void Add(std::size_t component, std::span<const std::byte> bytes);
  // The state of component number `component` of a sparse_csr object, filled by Add; null for
  // other components and objects, and after Check. Validators of objects that share the component's
  // bytes can share it: with SetPart one takes another's, and Add ignores the component. SetPart
  // does nothing and returns false where this component keeps something else. All bytes must be
  // added to the validator that fills it before any of them checks. Not thread-safe.
  struct Part;
  std::shared_ptr<Part> part(std::size_t component) const;
  bool SetPart(std::size_t component, const std::shared_ptr<Part>& part);
  // The memory that the state of a component takes; 0 if there is none.
  std::uint64_t kept_bytes(std::size_t component) const;
  // The most row pointers of an object that will share this component of a sparse_csr object. Before
  // its bytes are added.
  void AllowRows(std::size_t component, std::uint64_t pointers);

  // The result after the last bytes, for an object of the same format and rank with these indices,
  // whose components satisfy their own rules. kDataLoss if a rule is broken, kUnimplemented if the
  // memory limit is too small to decide.
  Status Check(const Object& object);

 private:
  struct State;
  explicit SparseValidator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
