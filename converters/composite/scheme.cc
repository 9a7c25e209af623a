// zt.convert.composite:scheme — finds out which scheme a checkpoint declares, and recognizes
// modules of each scheme.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;
import zt.source;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kWordBits = 32;

// ---- shared by the schemes ----------------------------------------------------------------------

// The dtypes of scales.
std::vector<DType> FloatTypes() { return {DType::kF16, DType::kBF16, DType::kF32}; }

// Collects a module's tensors.
class Members {
 public:
  Members(const Tensors& tensors, const std::string& module) : tensors_(tensors), module_(module) {}

  // Adds the tensor `module` + `suffix` as component `role`; it must have one of
  // `dtypes` and rank `rank`.
  StatusOr<const Object*> Need(std::string_view role, std::string_view suffix,
                               std::vector<DType> dtypes, std::size_t rank) {
    const std::string name = module_ + std::string(suffix);
    const auto index = tensors_.Find(name);
    if (!index) return Unsupported(TensorContext(name) + " is missing");
    const Object& tensor = tensors_[*index];
    if (tensor.format != "dense" || !tensor.attributes.empty()) {
      return Unsupported(TensorContext(name) + " is not a plain dense tensor");
    }
    const ElementType& element = tensor.components[0].element;
    if (!element.type.empty() ||
        std::find(dtypes.begin(), dtypes.end(), element.dtype) == dtypes.end()) {
      std::string wanted;
      for (const DType dtype : dtypes)
        wanted += (wanted.empty() ? "" : " or ") + std::string(Name(dtype));
      return Unsupported(TensorContext(name) + " is " + std::string(Name(element)) + ", not " +
                         wanted);
    }
    if (tensor.shape.size() != rank || ElementCount(tensor.shape) == 0) {
      return Unsupported(TensorContext(name) + " has shape " + ToString(tensor.shape) + ", " +
                         std::to_string(rank) + " dimensions are expected, none of them 0");
    }
    recipe_.members.emplace_back(role, *index);
    return &tensor;
  }
  // Adds the weight, scales and zero points that GPTQ and AWQ have under equal names.
  StatusOr<std::array<const Object*, 3>> NeedPacked() {
    ZT_ASSIGN_OR_RETURN(const Object* const weight,
                        Need("packed_weight", ".qweight", {DType::kI32}, 2));
    ZT_ASSIGN_OR_RETURN(const Object* const scales, Need("scales", ".scales", FloatTypes(), 2));
    ZT_ASSIGN_OR_RETURN(const Object* const zeros, Need("zeros", ".qzeros", {DType::kI32}, 2));
    return std::array{weight, scales, zeros};
  }
  bool Has(std::string_view suffix) const {
    return tensors_.Find(module_ + std::string(suffix)).has_value();
  }
  Recipe Finish(Shape shape, Value::Map attributes) {
    recipe_.shape = std::move(shape);
    recipe_.attributes = std::move(attributes);
    return std::move(recipe_);
  }

 private:
  const Tensors& tensors_;
  const std::string& module_;
  Recipe recipe_;
};

Status RequireShape(const Object& tensor, const Shape& expected) {
  if (tensor.shape == expected) return OkStatus();
  return Unsupported(TensorContext(tensor.name) + " has shape " + ToString(tensor.shape) +
                     ", the other tensors need " + ToString(expected));
}

std::optional<bool> Flag(const Value::Map& map, std::string_view key) {
  const Value* value = FindMember(map, key);
  if (value == nullptr || value->AsBool() == nullptr) return std::nullopt;
  return *value->AsBool();
}

StatusOr<std::uint64_t> GroupSize(std::optional<std::int64_t> configured, std::uint64_t in,
                                  std::uint64_t groups) {
  if (!configured) return Unsupported("the configuration gives no group size");
  const std::uint64_t size = *configured <= 0 ? in : static_cast<std::uint64_t>(*configured);
  if (in / size + (in % size != 0) != groups) {
    return Unsupported("the shapes have " + std::to_string(groups) +
                       " groups, the configured group size " + std::to_string(*configured) +
                       " makes " + std::to_string(in / size + (in % size != 0)));
  }
  return size;
}

Status RequireBits(std::optional<std::int64_t> configured, std::uint64_t derived) {
  if (!configured) return Unsupported("the configuration gives no bits");
  if (*configured == static_cast<std::int64_t>(derived)) return OkStatus();
  return Unsupported("the shapes say " + std::to_string(derived) + " bits, the configuration " +
                     std::to_string(*configured));
}

}  // namespace

std::string_view Anchor(Scheme scheme) {
  return scheme == Scheme::kPackQuantized ? ".weight_packed" : ".qweight";
}

std::optional<std::pair<std::string, std::string_view>> SplitAnchor(std::string_view name) {
  for (const Scheme scheme : {Scheme::kGptq, Scheme::kPackQuantized}) {
    const std::string_view anchor = Anchor(scheme);
    if (name.size() > anchor.size() && name.ends_with(anchor)) {
      return std::pair(std::string(name.substr(0, name.size() - anchor.size())), anchor);
    }
  }
  return std::nullopt;
}

Tensors::Tensors(TensorSource& source) : source_(source), by_name_(ByName(source.objects())) {}

std::optional<std::uint32_t> Tensors::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> FindString(const Value::Map& map, std::string_view key) {
  const Value* value = FindMember(map, key);
  if (value == nullptr || value->AsString() == nullptr) return std::nullopt;
  return *value->AsString();
}

std::optional<std::int64_t> FindInteger(const Value::Map& map, std::string_view key) {
  const Value* value = FindMember(map, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* negative = value->AsInt()) return *negative;
  const auto* number = value->AsUint();
  if (number == nullptr || *number > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

// quantize_config.json and quant_config.json may omit the method; the name of their member
// for bits implies it. hf_quant_config.json names ModelOpt's algorithm alone.
std::string MethodOf(const Value::Map& config) {
  if (const auto method = FindString(config, "quant_method"))
    return method->starts_with("modelopt") ? "modelopt" : *method;
  if (FindMember(config, "quant_algo") != nullptr) return "modelopt";
  if (FindMember(config, "w_bit") != nullptr) return "awq";
  if (FindMember(config, "bits") != nullptr && FindMember(config, "desc_act") != nullptr)
    return "gptq";
  return "";
}

namespace {

// ---- the configuration --------------------------------------------------------------------------

StatusOr<Scheme> DeclaredScheme(const Value::Map& config) {
  const std::string method = MethodOf(config);
  if (method == "gptq") return Scheme::kGptq;
  if (method == "awq") {
    const std::string version = FindString(config, "version").value_or("");
    if (Lower(version) == "gemm") return Scheme::kAwqGemm;
    return Unsupported("awq version " + Quote(version) + " is not supported, only gemm");
  }
  if (method == "compressed-tensors") {
    const std::string format = FindString(config, "format").value_or("");
    if (format == "pack-quantized" || format == "mixed-precision") return Scheme::kPackQuantized;
    return Unsupported("compressed-tensors format " + Quote(format) +
                       " is not supported, only pack-quantized");
  }
  if (method.empty()) return Unsupported("the configuration names no quantization method");
  return Unsupported("quantization method " + Quote(method) + " is not supported");
}

// nullopt if the entry describes no grouped quantization.
std::optional<Weights> ParseWeights(const Value::Map& map, bool any_bits) {
  const auto bits = FindInteger(map, "num_bits");
  const auto strategy = FindString(map, "strategy");
  const bool whole = bits && (*bits == 2 || *bits == 4 || *bits == 8);  // 32 hold some of them
  if (!bits || !(whole || (any_bits && *bits >= 1 && *bits <= 8)) ||
      FindString(map, "type").value_or("int") != "int" || Flag(map, "dynamic").value_or(false)) {
    return std::nullopt;
  }
  Weights weights;
  weights.bits = static_cast<std::uint64_t>(*bits);
  weights.symmetric = Flag(map, "symmetric").value_or(true);
  weights.act_order = FindString(map, "actorder") == "group";
  const std::int64_t size = FindInteger(map, "group_size").value_or(-1);
  if (strategy == "channel") return weights;
  if ((strategy && strategy != "group") || size <= 0) return std::nullopt;
  weights.group_size = size;
  return weights;
}

// The weights of all config_groups, sorted, without duplicates.
std::vector<Weights> ConfiguredWeights(const Value::Map& config, bool any_bits) {
  std::vector<Weights> out;
  const Value* groups = FindMember(config, "config_groups");
  if (groups == nullptr || groups->AsMap() == nullptr) return out;
  for (const auto& [name, group] : *groups->AsMap()) {
    if (group.AsMap() == nullptr) continue;
    const Value* weights = FindMember(*group.AsMap(), "weights");
    if (weights == nullptr || weights->AsMap() == nullptr) continue;
    const auto parsed = ParseWeights(*weights->AsMap(), any_bits);
    if (parsed) out.push_back(*parsed);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// ---- GPTQ and AWQ (GEMM): the same names, packed along different axes ---------------------------

// Bits per code if `words` words hold `codes` codes without a gap.
std::optional<std::uint64_t> BitsOf(std::uint64_t words, std::uint64_t codes) {
  const auto bits = CheckedMul(words, kWordBits);
  if (!bits || *bits % codes != 0) return std::nullopt;
  return *bits / codes;
}

Status OddPacking(const Object& packed, std::uint64_t codes) {
  return Unsupported(TensorContext(packed.name) + " of shape " + ToString(packed.shape) +
                     " cannot hold " + std::to_string(codes) + " codes a row");
}

// Adds to an error of a module's numbers that GPTQModel may have given it some of its own.
Status WithDynamic(const Value::Map& config, const Status& status) {
  const Value* const dynamic = FindMember(config, "dynamic");
  if (status.ok() || dynamic == nullptr || dynamic->AsMap() == nullptr || dynamic->AsMap()->empty())
    return status;
  return WithFact(status, std::string(status.message()) +
                              "; \"dynamic\", by which a configuration gives modules numbers of "
                              "their own, is not read: quantize all alike");
}

// qweight i32 [in * bits / 32, out] is packed along `in`, qzeros i32 [groups, out * bits / 32]
// along `out`, both from the lowest bits up; scales [groups, out]; g_idx i32 [in]: the group of
// each input, if groups are not consecutive.
StatusOr<Recipe> RecognizeGptq(const Value::Map& config, const Tensors& tensors,
                               const std::string& module) {
  // GPTQModel writes `format`; AutoGPTQ only for its newer kernels. In "gptq" each stored zero
  // point is 1 too small.
  auto format = FindString(config, "checkpoint_format");
  if (!format) format = FindString(config, "format");
  if (format && *format != "gptq" && *format != "gptq_v2") {
    return Unsupported("checkpoint format " + Quote(*format) +
                       " is not supported, only gptq and gptq_v2");
  }
  if (Flag(config, "is_marlin_format").value_or(false)) {
    return Unsupported("checkpoint format 'marlin' is not supported, only gptq and gptq_v2");
  }
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const auto needed, members.NeedPacked());
  const auto [weight, scales, zeros] = needed;
  const std::uint64_t out = weight->shape[1];
  const std::uint64_t groups = scales->shape[0];
  ZT_RETURN_IF_ERROR(RequireShape(*scales, {groups, out}));
  ZT_RETURN_IF_ERROR(RequireShape(*zeros, {groups, zeros->shape[1]}));
  const auto bits = BitsOf(zeros->shape[1], out);
  if (!bits) return OddPacking(*zeros, out);
  if (*bits != 2 && *bits != 3 && *bits != 4 && *bits != 8) {
    return Unsupported(std::to_string(*bits) + " bits are not supported, only 2, 3, 4 and 8");
  }
  ZT_RETURN_IF_ERROR(WithDynamic(config, RequireBits(FindInteger(config, "bits"), *bits)));
  // 3-bit codes cross word boundaries: 32 codes take 3 words.
  const std::uint64_t block = *bits == 3 ? 3 : 1;
  const auto in = CheckedMul(weight->shape[0] / block, kWordBits * block / *bits);
  if (weight->shape[0] % block != 0 || !in) {
    return Unsupported(TensorContext(weight->name) + " has rows that are not whole blocks of " +
                       std::to_string(block));
  }
  if (members.Has(".g_idx")) {
    ZT_ASSIGN_OR_RETURN(const Object* const g_idx,
                        members.Need("g_idx", ".g_idx", {DType::kI32}, 1));
    ZT_RETURN_IF_ERROR(RequireShape(*g_idx, {*in}));
  } else if (Flag(config, "desc_act").value_or(false)) {
    return Unsupported(TensorContext(module + ".g_idx") + " is missing, which desc_act needs");
  }
  const auto group_size = GroupSize(FindInteger(config, "group_size"), *in, groups);
  ZT_RETURN_IF_ERROR(WithDynamic(config, group_size.status()));

  const bool straddles = *bits == 3;
  Value::Map attributes;
  attributes.emplace_back("quant_method", "gptq");
  attributes.emplace_back("bits", *bits);
  attributes.emplace_back("group_size", *group_size);
  attributes.emplace_back("packing", straddles ? "gptq_i32_3bit_rows" : "gptq_i32_lsb_rows");
  attributes.emplace_back("zeros_packing", straddles ? "gptq_i32_3bit_cols" : "i32_lsb_cols");
  attributes.emplace_back("zero_offset", std::uint64_t{format == "gptq_v2" ? 0U : 1U});
  if (format) attributes.emplace_back("checkpoint_format", *format);
  return members.Finish({*in, out}, std::move(attributes));
}

// qweight i32 [in, out / 8] and qzeros i32 [groups, out / 8] are packed along `out`: nibble i holds
// column [0, 2, 4, 6, 1, 3, 5, 7][i] of eight. scales [groups, out].
StatusOr<Recipe> RecognizeAwq(const Value::Map& config, const Tensors& tensors,
                              const std::string& module) {
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const auto needed, members.NeedPacked());
  const auto [weight, scales, zeros] = needed;
  if (members.Has(".g_idx"))
    return Unsupported(TensorContext(module + ".g_idx") + " is not part of an awq module");
  const std::uint64_t in = weight->shape[0];
  const std::uint64_t groups = scales->shape[0];
  const std::uint64_t out = scales->shape[1];
  ZT_RETURN_IF_ERROR(RequireShape(*zeros, {groups, weight->shape[1]}));
  const auto bits = BitsOf(weight->shape[1], out);
  if (!bits) return OddPacking(*weight, out);
  if (*bits != 4) return Unsupported(std::to_string(*bits) + " bits are not supported, only 4");
  auto configured = FindInteger(config, "bits");
  if (!configured) configured = FindInteger(config, "w_bit");
  ZT_RETURN_IF_ERROR(RequireBits(configured, *bits));
  auto size = FindInteger(config, "group_size");
  if (!size) size = FindInteger(config, "q_group_size");
  ZT_ASSIGN_OR_RETURN(const std::uint64_t group_size, GroupSize(size, in, groups));

  Value::Map attributes;
  attributes.emplace_back("quant_method", "awq");
  attributes.emplace_back("bits", *bits);
  attributes.emplace_back("group_size", group_size);
  attributes.emplace_back("packing", "awq_gemm_i32_0246_1357");
  attributes.emplace_back("zeros_packing", "awq_gemm_i32_0246_1357");
  attributes.emplace_back("zero_offset", std::uint64_t{0});
  attributes.emplace_back("version", FindString(config, "version").value_or("gemm"));
  return members.Finish({in, out}, std::move(attributes));
}

// Reads the two numbers in weight_shape, the tensor's data.
StatusOr<Shape> ReadWeightShape(const Tensors& tensors, const Object& tensor) {
  ZT_RETURN_IF_ERROR(RequireShape(tensor, {2}));
  const ComponentId id{*tensors.Find(tensor.name), 0};
  std::array<std::byte, 16> bytes{};
  const std::size_t width = ByteWidth(tensor.components[0].element.dtype);
  const Status read = tensors.source().Read(id, 0, std::span(bytes).first(2 * width));
  if (!read.ok()) return AtTensor(tensors.source(), id, read);
  Shape shape(2);
  for (std::size_t i = 0; i < 2; ++i) {
    shape[i] = zt::internal::LoadLittle(bytes.data() + i * width, width);
  }
  return shape;
}

// The words of codes: `per_word` in each, or without a gap where that is 0.
std::uint64_t WordsOf(std::uint64_t codes, std::uint64_t bits, std::uint64_t per_word) {
  if (per_word != 0) return CeilDiv(codes, per_word);
  return codes / kWordBits * bits + CeilDiv(codes % kWordBits * bits, kWordBits);
}

// Properties of a module derived from its tensors' shapes.
struct Shapes {
  std::uint64_t packed_columns = 0, in = 0, groups = 0;
  bool symmetric = false, act_order = false;
};

// Entries of config_groups, and how their codes lie. They select modules by class and pattern; here
// the shapes decide which entry applies. Older releases of compressed-tensors put no code across words.
StatusOr<std::pair<Weights, unsigned>> FittingWeights(const Declared& declared,
                                                      const Shapes& shapes) {
  std::optional<std::pair<Weights, unsigned>> found;
  for (Weights each : declared.weights) {
    if (each.group_size < 0) each.group_size = static_cast<std::int64_t>(shapes.in);  // a row
    const auto size = static_cast<std::uint64_t>(each.group_size);
    if (CeilDiv(shapes.in, size) != shapes.groups || each.symmetric != shapes.symmetric ||
        each.act_order != shapes.act_order)
      continue;
    const auto per_word = static_cast<unsigned>(kWordBits / each.bits);
    for (const unsigned per : {0u, per_word}) {
      if (WordsOf(shapes.in, each.bits, per) != shapes.packed_columns) continue;
      // Where both fit one word, or bits fill words, they are the same.
      if (per != 0 && (kWordBits % each.bits == 0 || shapes.packed_columns == 1)) continue;
      if (found && *found != std::make_pair(each, per))
        return Unsupported("two of the configuration's config_groups, or two packings, fit it");
      found = std::make_pair(each, per);
    }
  }
  if (found) return *found;
  return Unsupported("no entry of the configuration's config_groups with " +
                     std::string(declared.any_bits ? "1 to 8 bits" : "2, 4 or 8 bits") +
                     " fits the shapes");
}

// weight_packed i32 [out, ceil(in * bits / 32)] is packed along `in`, from the lowest bits up;
// weight_zero_point i32 [ceil(out * bits / 32), groups] along `out`. Both store code + 2^(bits -
// 1). weight_scale [out, groups].
StatusOr<Recipe> RecognizePackQuantized(const Declared& declared, const Tensors& tensors,
                                        const std::string& module) {
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const Object* const packed,
                      members.Need("packed_weight", ".weight_packed", {DType::kI32}, 2));
  ZT_ASSIGN_OR_RETURN(const Object* const scales,
                      members.Need("scales", ".weight_scale", FloatTypes(), 2));
  const Object* zeros = nullptr;
  if (members.Has(".weight_zero_point")) {
    ZT_ASSIGN_OR_RETURN(zeros, members.Need("zeros", ".weight_zero_point", {DType::kI32}, 2));
  }
  const Object* g_idx = nullptr;
  if (members.Has(".weight_g_idx")) {
    ZT_ASSIGN_OR_RETURN(g_idx, members.Need("g_idx", ".weight_g_idx", {DType::kI32}, 1));
  }
  ZT_ASSIGN_OR_RETURN(const Object* const stored_shape,
                      members.Need("weight_shape", ".weight_shape", {DType::kI64, DType::kI32}, 1));
  if (members.Has(".weight_global_scale")) {
    return Unsupported(TensorContext(module + ".weight_global_scale") +
                       " is a further scale, which is not supported");
  }
  ZT_ASSIGN_OR_RETURN(const Shape shape, ReadWeightShape(tensors, *stored_shape));
  const std::uint64_t out = packed->shape[0];
  const std::uint64_t in = shape[1];
  if (shape[0] != out || in == 0 || !CheckedMul(in, kWordBits)) {
    return Unsupported(TensorContext(stored_shape->name) + " says " + ToString(shape) + ", " +
                       TensorContext(packed->name) + " has shape " + ToString(packed->shape));
  }
  const std::uint64_t groups = scales->shape[1];
  ZT_RETURN_IF_ERROR(RequireShape(*scales, {out, groups}));
  if (g_idx != nullptr) ZT_RETURN_IF_ERROR(RequireShape(*g_idx, {in}));

  ZT_ASSIGN_OR_RETURN(const auto fitting,
                      FittingWeights(declared, {.packed_columns = packed->shape[1],
                                                .in = in,
                                                .groups = groups,
                                                .symmetric = zeros == nullptr,
                                                .act_order = g_idx != nullptr}));
  const auto& [weights, per_word] = fitting;
  if (zeros != nullptr) {
    ZT_RETURN_IF_ERROR(RequireShape(*zeros, {WordsOf(out, weights.bits, per_word), groups}));
  }

  Value::Map attributes;
  attributes.emplace_back("quant_method", "compressed-tensors");
  attributes.emplace_back("bits", weights.bits);
  attributes.emplace_back("group_size", static_cast<std::uint64_t>(weights.group_size));
  attributes.emplace_back("packing", "compressed_tensors_i32_lsb_cols");
  if (zeros != nullptr) {
    attributes.emplace_back("zeros_packing", "compressed_tensors_i32_lsb_rows");
    attributes.emplace_back("zero_offset", std::uint64_t{0});
  } else {
    attributes.emplace_back("zero_point", std::uint64_t{1} << (weights.bits - 1));
  }
  attributes.emplace_back("format", FindString(declared.config, "format").value_or(""));
  Recipe recipe = members.Finish(shape, std::move(attributes));
  recipe.per_word = per_word;
  return recipe;
}

}  // namespace

StatusOr<Declared> ReadDeclared(const Value::Map& config, bool any_bits) {
  static constexpr std::string_view kMembers[] = {
      "bits",       "checkpoint_format", "desc_act",     "dynamic", "format",
      "group_size", "is_marlin_format",  "q_group_size", "version", "w_bit"};
  Declared declared;
  ZT_ASSIGN_OR_RETURN(declared.scheme, DeclaredScheme(config));
  for (const std::string_view key : kMembers) {
    const Value* const value = FindMember(config, key);
    if (value != nullptr) declared.config.emplace_back(key, *value);
  }
  declared.any_bits = any_bits;
  if (declared.scheme == Scheme::kPackQuantized)
    declared.weights = ConfiguredWeights(config, any_bits);
  if (declared.weights.size() > kMostKinds) {
    return Unsupported("config_groups has " + std::to_string(declared.weights.size()) +
                       " kinds of weights, more than " + std::to_string(kMostKinds));
  }
  return declared;
}

StatusOr<Recipe> Recognize(const Declared& declared, const Tensors& tensors,
                           const std::string& module) {
  switch (declared.scheme) {
    case Scheme::kGptq:
      return RecognizeGptq(declared.config, tensors, module);
    case Scheme::kAwqGemm:
      return RecognizeAwq(declared.config, tensors, module);
    case Scheme::kPackQuantized:
      return RecognizePackQuantized(declared, tensors, module);
  }
  return Unsupported("unknown scheme");
}

}  // namespace zt::composite::internal
