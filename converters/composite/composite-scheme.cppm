// zt.convert.composite:scheme — recognizes a quantized module by its tensors. Internal.
module;

module zt.convert.composite:scheme;

import zt.std;
import zt.core;
import zt.source;

namespace zt::composite::internal {

enum class Scheme { kGptq, kAwqGemm, kPackQuantized };

// The most kinds of weights of config_groups: each module is compared with all.
inline constexpr std::size_t kMostKinds = 1000;

// The suffix of the tensor that identifies a module of the scheme: ".qweight" or ".weight_packed".
std::string_view Anchor(Scheme scheme);

// Splits "model.layers.0.q_proj.qweight" into "model.layers.0.q_proj" and ".qweight"; nullopt if
// `name` ends with no scheme's anchor.
std::optional<std::pair<std::string, std::string_view>> SplitAnchor(std::string_view name);

// The source's tensors by name.
class Tensors {
 public:
  explicit Tensors(TensorSource& source);
  std::optional<std::uint32_t> Find(const std::string& name) const;
  inline const Object& operator[](std::uint32_t index) const { return source_.objects()[index]; }
  inline TensorSource& source() const { return source_; }

 private:
  TensorSource& source_;
  const NameIndex by_name_;
};

// How the tensors of a module become one object.
struct Recipe {
  Shape shape;
  Value::Map attributes;
  std::vector<std::pair<std::string, std::uint32_t>> members;  // role, index of the source's object
  unsigned per_word = 0;  // codes in a word whose other bits are unused; 0: words have no gaps
};

// From here on kUnimplemented means that a module keeps its separate tensors, for the reason in the
// message; any other error ends the run.

// The weights section of an entry of config_groups.
struct Weights {
  std::uint64_t bits = 0;
  bool symmetric = true;
  std::int64_t group_size = -1;  // -1: one group per row
  bool act_order = false;        // groups may be of non-consecutive inputs
  auto operator<=>(const Weights&) const = default;
};

// The parts of a configuration that are needed, extracted once: it may have as many members as the
// checkpoint has modules.
struct Declared {
  Scheme scheme = Scheme::kGptq;
  Value::Map config;             // the members that Recognize needs
  std::vector<Weights> weights;  // for pack-quantized; without duplicates
  bool any_bits = false;
};
// `any_bits`: of pack-quantized, entries of 1 to 8 bits apply, else of 2, 4 and 8.
StatusOr<Declared> ReadDeclared(const Value::Map& config, bool any_bits = false);

// Recognizes the module whose anchor is `module` + Anchor(declared.scheme).
StatusOr<Recipe> Recognize(const Declared& declared, const Tensors& tensors,
                           const std::string& module);

// The quantization method that a configuration names, "gptq", or implies; empty if it does not.
std::string MethodOf(const Value::Map& config);

// The quotient, rounded up.
constexpr std::uint64_t CeilDiv(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

// The largest file of a configuration.
inline constexpr std::uint64_t kMostConfigBytes = std::uint64_t{16} << 20;
// The members of config.json that may hold it; the first that is there does.
inline constexpr std::string_view kQuantMembers[] = {"quantization_config", "compression_config"};
// The configuration in a file of this name, by its text; nullopt if it has none.
StatusOr<std::optional<Value::Map>> QuantConfigIn(std::string_view name, std::string_view text);

// A string member, or an integer, of a JSON object; nullopt if it is missing or of another kind.
std::optional<std::string> FindString(const Value::Map& map, std::string_view key);
std::optional<std::int64_t> FindInteger(const Value::Map& map, std::string_view key);

}  // namespace zt::composite::internal
