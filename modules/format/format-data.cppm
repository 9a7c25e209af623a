// zt.format:data — what the decoded bytes of a component have to satisfy, found piece by piece.
export module zt.format:data;

import zt.std;
import :model;
import zt.core;

export namespace zt {

// What has to be looked at in a component's bytes (1.2 §2, §3): the same for all components with equal rules.
struct DataRule {
  enum class Kind : std::uint8_t {
    kBool,      // bytes are 0 or 1
    kIndices,   // below the dimension they count
    kNibble,    // of an odd number of 4-bit elements, the high half of the last byte is 0
    kPointers,  // begin at 0, never fall, end at the number of indices
  };
  Kind kind = Kind::kBool;
  DType dtype = DType::kBool;
  std::uint32_t dimensions = 1;  // kIndices: so many runs of as many indices each
  std::uint64_t each = 0;  // kIndices: elements of a run; kNibble: where the last byte is, if known
  auto operator<=>(const DataRule&) const = default;
};

// The rule of component number `component` of `bytes` decoded bytes; nullopt where any bytes will do. With kUnknownSize it
// is the rule whatever the size and the attributes come to; nullopt for coordinates, which CellFacts then holds.
std::optional<DataRule> RuleOf(const Object& object, std::size_t component, std::uint64_t bytes);

// What the bytes of one component show. Ranges may be looked at by several threads, each with DataFacts of its own,
// and are then merged in order. Elements may be cut anywhere.
class DataFacts {
 public:
  // Of no bytes. What follows begins at `offset` of the component.
  explicit DataFacts(const DataRule& rule, std::uint64_t offset = 0);

  // Looks at the bytes that follow.
  void Add(std::span<const std::byte> bytes);
  // Takes over what `next` found in the bytes that follow. `next` was made with the offset at which these end.
  void Merge(const DataFacts& next);
  inline const DataRule& rule() const { return rule_; }
  // Where the bytes end that were looked at.
  inline std::uint64_t end() const { return end_; }

  // kDataLoss where what was found breaks the rule, for a component of `object`. `indices` is how many indices the
  // object's row pointers must end at, once all of them were looked at, else nullopt.
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
  // The bytes before the first boundary between elements (where begin_ is none) and those after the last.
  std::array<std::byte, 8> head_{}, tail_{};
  std::size_t head_bytes_ = 0, tail_bytes_ = 0;

  std::optional<Found>
      bad_;  // kBool: the first that is neither 0 nor 1; kNibble: the last byte; kPointers: the first that falls
  std::vector<std::optional<Found>>
      largest_;                 // kIndices: of each dimension, the first of the largest
  std::optional<Found> first_;  // kPointers
  std::uint64_t last_ = 0;      // kPointers
};

// The number of indices that the row pointers of a sparse_csr object end at, from the size of its indices; nullopt for
// other formats and where that size is unknown.
std::optional<std::uint64_t> CountIndices(const Object& object);

// What the indices of a sparse object decide together (2.0 §5.2): the columns of each row of a sparse_csr object ascend, no two
// elements of a sparse_coo object name the same cell. The bytes of each component pass once, in order; the memory is limited.
class CellFacts {
 public:
  // Null where `version` asks no such thing, unless the object's coordinates come in unknown number: those are held until
  // their number is known, and their range is checked as well. What is kept takes `memory_bytes` at most.
  static std::shared_ptr<CellFacts> Make(const Object& object, SpecVersion version,
                                         std::uint64_t memory_bytes);
  ~CellFacts();
  CellFacts(const CellFacts&) = delete;
  CellFacts& operator=(const CellFacts&) = delete;

  // The bytes of component number `component` that follow, cut anywhere; those of others than indices are ignored.
  void Add(std::size_t component, std::span<const std::byte> bytes);
  // The verdict, after the last bytes, on an object with these indices, of the same format and rank, whose components keep
  // their own rules. kDataLoss where a rule is broken, kUnimplemented where the memory does not suffice to tell.
  Status Check(const Object& object);

 private:
  struct State;
  explicit CellFacts(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
