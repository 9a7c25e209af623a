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

// The module whose anchor is `module` + Anchor(declared.scheme).
StatusOr<Recipe> Recognize(const Declared& declared, const Tensors& tensors,
                           const std::string& module);

// The text member of a JSON object; nullopt where it is missing or of another kind.
std::optional<std::string> Text(const Value::Map& map, std::string_view key);

}  // namespace zt::composite::internal
