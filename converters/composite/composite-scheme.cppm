// zt.convert.composite:scheme — recognising one quantized module by its tensors. Internal to the module.
module;

#include "core/name_table.h"

module zt.convert.composite:scheme;

import zt.std;
import zt.core;
import zt.source;

namespace zt::composite::internal {

enum class Scheme { kGptq, kAwqGemm, kPackQuantized };

// The suffix of the tensor that a module of the scheme is recognised by: ".qweight" or ".weight_packed".
std::string_view Anchor(Scheme scheme);

// "model.layers.0.q_proj" and ".qweight" of "model.layers.0.q_proj.qweight"; nullopt where `name` ends with neither
// scheme's anchor.
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
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_name_;
};

// How one module becomes one object.
struct Recipe {
  Shape shape;
  Value::Map attributes;
  std::vector<std::pair<std::string, std::uint32_t>> members;  // role, index of the source's object
};

// In what follows kUnimplemented means that something stays dense, and its message why; any other error ends the run.

// What one entry of config_groups says of weights.
struct Weights {
  std::uint64_t bits = 0;
  bool symmetric = true;
  std::int64_t group_size = -1;  // -1: one group a row
  bool act_order = false;        // groups are not of consecutive inputs
  auto operator<=>(const Weights&) const = default;
};

// What the configuration says, taken out of it once: it may hold as many members as the checkpoint has modules.
struct Declared {
  Scheme scheme = Scheme::kGptq;
  Value::Map config;             // the members that Recognize asks for
  std::vector<Weights> weights;  // of pack-quantized, each once
};
StatusOr<Declared> ReadDeclared(const Value::Map& config);
// The weights of all config_groups, sorted, each once.
std::vector<Weights> ConfiguredWeights(const Value::Map& config);

// The module whose anchor is `module` + Anchor(declared.scheme).
StatusOr<Recipe> Recognize(const Declared& declared, const Tensors& tensors,
                           const std::string& module);

// Each by its own scheme's rules.
StatusOr<Recipe> RecognizeGptq(const Value::Map& config, const Tensors& tensors,
                               const std::string& module);
StatusOr<Recipe> RecognizeAwq(const Value::Map& config, const Tensors& tensors,
                              const std::string& module);
StatusOr<Recipe> RecognizePackQuantized(const Declared& declared, const Tensors& tensors,
                                        const std::string& module);

// ---- what the schemes share ----------------------------------------------------------------------------------

// Collects a module's tensors.
class Members {
 public:
  Members(const Tensors& tensors, const std::string& module) : tensors_(tensors), module_(module) {}

  // The tensor `module` + `suffix` as component `role`: of one of `dtypes` and of rank `rank`.
  StatusOr<const Object*> Need(std::string_view role, std::string_view suffix,
                               std::vector<DType> dtypes, std::size_t rank);
  bool Has(std::string_view suffix) const;
  Recipe Finish(Shape shape, Value::Map attributes);

 private:
  const Tensors& tensors_;
  const std::string& module_;
  Recipe recipe_;
};

// Scales are floats.
std::vector<DType> FloatTypes();

Status RequireShape(const Object& tensor, const Shape& expected);

// Members of a JSON object; nullopt where they are missing or of another kind.
std::optional<std::string> Text(const Value::Map& map, std::string_view key);
std::optional<std::int64_t> Integer(const Value::Map& map, std::string_view key);
std::optional<bool> Flag(const Value::Map& map, std::string_view key);

// Checks that `in` elements of each column in groups of the size the configuration gives make `groups` groups (-1 and
// 0: one group). The size of a group.
StatusOr<std::uint64_t> GroupSize(std::optional<std::int64_t> configured, std::uint64_t in,
                                  std::uint64_t groups);

Status RequireBits(std::optional<std::int64_t> configured, std::uint64_t derived);

}  // namespace zt::composite::internal
