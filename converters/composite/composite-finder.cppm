// zt.convert.composite:finder — recognizes the quantized tensors of a checkpoint by the names, types
// and shapes of their parts, and compares them with its configuration. Internal.
module zt.convert.composite:finder;

import zt.std;
import :scheme;
import :weights;
import zt.core;
import zt.source;

namespace zt::composite::internal {

// True if the object is dense, of that element type.
bool Is(const Object& object, std::string_view type);
// True if it is dense, of f32, bf16 or f16.
bool IsScale(const Object& object);
// The module of a tensor: "a.b" of "a.b.weight".
std::string ModuleOf(const std::string& name);

class Finder {
 public:
  // Looks at the objects `own`, in this order.
  Finder(const Tensors& tensors, const Configuration& config, std::vector<std::uint32_t> own);
  StatusOr<FoundWeights> Run();

  // How the name of a part of a quantized tensor ends, and what looks at it: `module` is what stands
  // before the ending. Null: another part finds it.
  struct Part {
    std::string_view suffix;
    Status (Finder::*look)(const Object& part, const std::string& module);
  };
  static std::span<const Part> Parts();

 private:
  Status Look(const Object& object);

  // M.weight or M.weight_packed with M.weight_scale: compressed-tensors and ModelOpt.
  Status LookAtScale(const Object& scales, const std::string& module);
  // X, X_scale_inv: DeepSeek V3.
  Status LookAtInverse(const Object& scales, const std::string& name);
  // M.weight, M.scale: DeepSeek V4.
  Status LookAtPlainScale(const Object& scales, const std::string& module);
  // P_blocks, P_scales of gpt-oss as transformers has it, which is transposed; P.blocks, P.scales as
  // OpenAI has it.
  Status LookAtBlocks(const Object& codes, const std::string& name);
  // GPTQ, AWQ and pack-quantized, which the groups of --quant are, too.
  Status LookAtPacked(const Object& codes, const std::string& module);
  // M.weight, M.SCB: int8 of bitsandbytes.
  Status LookAtInt8(const Object& scales, const std::string& module);
  // W, W.absmax, W.quant_map, W.quant_state.bitsandbytes__nf4: 4 bits of bitsandbytes.
  Status LookAtNf4(const Object& absmax, const std::string& name);

  Status LookAtFp4(const Object& scales, const Object& codes, const std::string& module);
  Status AddFp4(const Object& codes, const Object& scales);
  Status AddFp8Blocks(const Object& codes, const Object& scales, std::string_view scheme);
  Status AddRecipe(Scheme scheme, const Recipe& recipe, const Object& codes,
                   const std::string& module);
  Status AddNested(Weight& weight, const Value::Map& state, const std::string& name);
  StatusOr<Value::Map> ReadState(const Object& state);

  // ---- what is there ----------------------------------------------------------------------------

  inline const Object* Find(const std::string& name) const {
    const auto index = tensors_.Find(name);
    return index ? &tensors_[*index] : nullptr;
  }
  inline std::uint32_t IndexOf(const Object& object) const { return *tensors_.Find(object.name); }
  inline Status At(const Object& object, const Status& status) const {
    return AtTensor(tensors_.source(), {IndexOf(object), 0}, status);
  }
  Status Missing(const std::string& name, std::string_view why) const;
  Status Misshapen(const Object& object, const Shape& wanted, std::string_view why) const;
  Status Mistyped(const Object& object, std::string_view wanted) const;
  // kUnimplemented: of such a shape; `read` are those that are read.
  Status Unread(const Object& object, std::string_view read) const;
  StatusOr<std::uint32_t> Need(const std::string& name, std::string_view type, const Shape* shape);
  // A tensor of one f32, of any rank.
  StatusOr<std::uint32_t> NeedNumber(const std::string& name);
  // A scale for each block of the last two dimensions.
  StatusOr<Blocks> BlocksOf(const Object& codes, const Object& scales, std::uint64_t rows,
                            std::uint64_t columns, std::uint64_t block_rows,
                            std::uint64_t block_columns, std::string_view why) const;
  // The scales of a tensor: one, one a row, one a group of a row, or one a block.
  StatusOr<Blocks> AnyBlocks(const Object& codes, const Object& scales, std::uint64_t columns);

  // ---- the configuration ------------------------------------------------------------------------

  Status NeedsConfiguration(const std::string& codes) const;
  inline std::string Configured() const { return config_.file + " says " + Quote(method_); }
  // Compares a scheme with the configuration.
  Status CheckMethod(const Weight& weight, std::initializer_list<std::string_view> methods) const;
  Status CheckBitsandbytes(const Weight& weight, std::string_view flag) const;
  // In a quantized checkpoint, codes without scales are an error.
  Status CheckScaled(const Object& object);

  // ---- what is found ----------------------------------------------------------------------------

  Weight Start(std::string name, std::string_view scheme, const Object& codes,
               const Object& scales);
  // Codes of e2m1, two a byte, in the last dimension.
  void SetNibbles(Weight& weight) const;
  // Adds the weight, with the members of its module that serve activations.
  Status Add(Weight weight, const std::string& module);
  // ComfyUI's M.comfy_quant says how the weight is stored.
  Status TakeMarker(Weight& weight, const Object& marker);
  // Scales of the cache of keys and values belong to a weight of their module.
  void AddCacheScales();

  const Tensors& tensors_;
  const Configuration& config_;
  const Claims claims_;
  const std::string method_;
  std::optional<StatusOr<Declared>> declared_;
  const std::vector<std::uint32_t> own_;
  std::unordered_set<std::uint32_t> used_;  // objects that are members
  std::unordered_set<std::string> names_;   // of what is found
  FoundWeights found_;
};

}  // namespace zt::composite::internal
