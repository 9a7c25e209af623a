// zt.convert.composite:weights — quantized tensors: where their codes and scales lie, and how they
// combine. Internal.
module;

#include "core/name_table.h"

module zt.convert.composite:weights;

import zt.std;
import :scheme;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::composite::internal {

// A component of a source as rows of the numbers need it: as it is stored, or transposed. `axes` are
// those of the view, in units of `width` bytes; none: as it is stored.
struct Stored {
  std::uint32_t object = 0;
  std::size_t width = 1;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> axes = {};  // count, stride
};

// Where the scale of a number lies. Numbers are matrices of `rows` rows; each has scales for blocks
// of block_rows x block_columns.
struct Blocks {
  std::uint64_t rows = 1, block_rows = 1, block_columns = 1;
  std::uint64_t scale_rows = 1, scale_columns = 1;  // of a matrix
  inline std::uint64_t Index(std::uint64_t row, std::uint64_t column) const {
    return (row / rows * scale_rows + row % rows / block_rows) * scale_columns +
           column / block_columns;
  }
};

// A quantized tensor. A number is (value(code) - zero) * scale [* factor].
struct Weight {
  std::string name;           // of the numbers
  std::string_view scheme;    // "fp8"
  unsigned bits = 8;          // of a code
  Shape shape;                // of the numbers
  std::uint64_t columns = 1;  // numbers are computed by rows of so many

  CodeLayout layout;
  Stored codes;
  std::uint64_t pitch = 0;  // bytes of a row of codes
  // Rows of numbers that share a row of codes, and the bit in its units where each begins.
  std::uint64_t rows_per_codes = 1;
  std::array<std::uint8_t, 8> shifts = {};
  std::optional<std::uint32_t> value_table = std::nullopt;  // an f32 tensor with layout.values

  Stored scales;
  Blocks blocks;
  std::optional<std::uint32_t> global = std::nullopt;  // an f32 tensor of one number
  bool divides = false;                                // each scale is divided by it
  // bitsandbytes' scales of scales: scale = map[code] * absmax[i / block] + offset
  struct Nested {
    std::uint32_t map = 0, absmax = 0;
    std::uint64_t block = 256;
    float offset = 0;
  };
  std::optional<Nested> nested = std::nullopt;
  std::optional<float> factor = std::nullopt;

  enum class Zeros { kNone, kEqual, kEach, kPacked };
  Zeros zeros_kind = Zeros::kNone;
  float zero = 0;  // of kEqual
  // kEach: one for each scale; kPacked: words, dense along the rows.
  std::optional<Stored> zeros = std::nullopt;
  std::uint32_t zero_offset = 0;                       // added to what is stored
  std::optional<std::uint32_t> groups = std::nullopt;  // g_idx: the column of each column's scale

  std::vector<std::uint32_t> members;  // objects that the numbers replace, the codes first
};

// A quantization as the file of that name configures it; both are empty if there is none.
struct Configuration {
  std::string file;
  Value::Map content;
  std::string prefix = {};  // it is of tensors whose names begin so: "transformer/"
  std::string path = {};    // of the file, for errors
};

// kDataLoss, naming both files, if two configurations of one checkpoint say different methods, bits,
// groups or formats.
Status CheckAgree(const Configuration& first, const Configuration& second);

// A glob, or a regular expression of a simple kind, for names of modules.
class NamePattern {
 public:
  // '*' is anything, '?' any character.
  static std::optional<NamePattern> OfGlob(std::string_view text);
  // As Python's re.match compares: to be found at the beginning. Of literals, ".", ".*", ".+",
  // "\\d+", "[0-9]+", escaped punctuation, "^" and "$"; nullopt for others.
  static std::optional<NamePattern> OfRegex(std::string_view text);
  // Takes what it costs off `steps`; false once there are none.
  bool Matches(std::string_view name, std::uint64_t& steps) const;

 private:
  using Token = int;  // a character, or one of these
  static constexpr Token kAnything = -1001, kAny = -1002, kDigits = -1003;
  std::vector<Token> tokens_;
};

// What a configuration says of single modules.
class Claims {
 public:
  explicit Claims(const Configuration& config);
  // True if it names the tensor's module, or one around it, as not quantized: by its name or a part
  // of it, a glob, or a regular expression ("re:...") that NamePattern knows.
  bool IsIgnored(std::string_view name) const;
  // kDataLoss if comparing names with patterns took so long that it was given up.
  Status CheckSteps() const;
  // Compares bits and the size of groups of "int" or "float" codes with config_groups, if there are
  // any. kDataLoss names both.
  Status CheckGroups(const Weight& weight, std::string_view type) const;

  std::optional<std::pair<std::uint64_t, std::uint64_t>> block;  // rows, columns; not 0
  bool without_blocks = false;  // some kinds of weights in config_groups have none

 private:
  struct Group {
    std::optional<std::int64_t> bits, size;
    std::string type, strategy;
  };
  struct NameEqual {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return a == b; }
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return zt::internal::HashOfName(name); }
  };
  using Names = std::unordered_set<std::string, NameHash, NameEqual>;
  void AddIgnored(std::string_view text);

  std::string file_;
  std::vector<Group> groups_;
  Names ignored_, prefixes_;
  std::size_t most_parts_ = 0;  // of one of ignored_
  std::set<std::size_t> prefix_lengths_;
  std::vector<NamePattern> patterns_;
  mutable std::uint64_t steps_ = std::uint64_t{1} << 30;  // that all comparisons may take
};

// There may be as many as a checkpoint has tensors, and a source keeps them.
using FoundWeights = std::vector<std::unique_ptr<Weight>>;

// Finds the quantized tensors of a source, in the order of their codes, and compares them with the
// configurations: each tensor with that of its prefix, else with the first, which has none.
// kDataLoss, naming the tensor, if one contradicts itself or its configuration, or lacks its scales.
StatusOr<FoundWeights> FindWeights(const Tensors& tensors, std::span<const Configuration> configs);

// A member of a JSON object, by its place in the text.
struct JsonMember {
  std::string key;
  std::size_t begin = 0, at = 0, end = 0;  // of the key's quote, the value, what follows it
  std::string_view value;
};
// The members of the JSON object that `text` is, also of one name.
std::vector<JsonMember> MembersOf(std::string_view text);
// How deep the parts of a model may be in its configuration.
inline constexpr int kMostParts = 8;

// A configuration's text without its members on quantization, and with the element type `dtype`, as
// torch names it. `text` must be a JSON object.
std::string Unquantized(const std::string& text, std::string_view dtype);

}  // namespace zt::composite::internal
