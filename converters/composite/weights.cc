// zt.convert.composite:weights — finds quantized tensors by the names of their parts.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :finder;
import :scheme;
import :weights;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::composite::internal {
namespace {

// Where scales of the cache of keys and values lie.
constexpr std::string_view kCacheScales[] = {".k_scale", ".v_scale", ".q_scale", ".prob_scale",
                                             ".kv_scale"};
constexpr std::uint64_t kMostCacheScales = std::uint64_t{1} << 16;  // of a module

bool DeclaresCache(const Value::Map& config) {
  return std::ranges::any_of(std::array{"kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype"},
                             [&](const char* key) {
                               const Value* const value = FindMember(config, key);
                               return value != nullptr && !value->is_null();
                             });
}

// kDataLoss if a member that says how to read numbers is none of the kind that it must be.
Status CheckForm(const Configuration& config) {
  const auto wrong = [&](std::string_view key, std::string_view what) {
    return InvalidData(std::string(key) + " is not " + std::string(what));
  };
  for (const std::string_view key : {"quant_method", "quant_algo", "checkpoint_format", "format"}) {
    const Value* const value = FindMember(config.content, key);
    if (value != nullptr && !value->is_null() && value->AsString() == nullptr)
      return wrong(key, "a string");
  }
  if (const Value* const rotations = FindMember(config.content, "transform_config")) {
    const Value* const groups =
        rotations->AsMap() == nullptr ? nullptr : FindMember(*rotations->AsMap(), "config_groups");
    if (groups != nullptr && groups->AsMap() != nullptr && !groups->AsMap()->empty())
      return Unsupported("transform_config rotates the weights, which is not read");
  }
  const Value* const block = FindMember(config.content, "weight_block_size");
  if (block == nullptr || block->is_null()) return OkStatus();
  const Value::Array* const sides = block->AsArray();
  const auto positive = [](const Value& side) { return side.AsUint() && *side.AsUint() > 0; };
  if (sides == nullptr || sides->size() != 2 || !std::ranges::all_of(*sides, positive))
    return wrong("weight_block_size", "two positive integers");
  return OkStatus();
}

// What is left of a quantized tensor whose codes, or scales, are missing.
struct Rest {
  std::string_view method, suffix, type, codes;
};
constexpr Rest kRests[] = {{"mxfp4", "_scales", "u8", "_blocks"},
                           {"mxfp4", ".scales", "u8", ".blocks"},
                           {"gptq", ".scales", "", ".qweight"},
                           {"gptq", ".qzeros", "i32", ".qweight"},
                           {"gptq", ".g_idx", "i32", ".qweight"},
                           {"awq", ".scales", "", ".qweight"},
                           {"awq", ".qzeros", "i32", ".qweight"},
                           {"compressed-tensors", ".weight_shape", "", ".weight_packed"},
                           {"compressed-tensors", ".weight_zero_point", "", ".weight_scale"},
                           {"compressed-tensors", ".weight_g_idx", "i32", ".weight_packed"},
                           {"compressed-tensors", ".weight_global_scale", "", ".weight_packed"},
                           {"modelopt", ".weight_scale_2", "", ".weight_scale"},
                           {"bitsandbytes", ".quant_map", "", ".absmax"},
                           {"bitsandbytes", ".nested_absmax", "", ".absmax"}};

// Of a name's last part: "scales", "weight_scale_inv", "q_scale", "SCB", "absmax".
bool NamesScales(std::string_view part) {
  return part.find("scale") != part.npos || part == "SCB" || part == "absmax";
}

// What stands before this ending of a name; nullopt if nothing does, or it ends otherwise.
std::optional<std::string_view> Before(std::string_view name, std::string_view suffix) {
  if (name.size() <= suffix.size() || !name.ends_with(suffix)) return std::nullopt;
  return name.substr(0, name.size() - suffix.size());
}

}  // namespace

bool Is(const Object& object, std::string_view type) {
  return object.format == "dense" && Name(object.components[0].element) == type;
}
bool IsScale(const Object& object) {
  return Is(object, "f32") || Is(object, "bf16") || Is(object, "f16");
}
std::string ModuleOf(const std::string& name) {
  return name.substr(0, name.rfind('.') == name.npos ? 0 : name.rfind('.'));
}

std::span<const Finder::Part> Finder::Parts() {
  static constexpr Part kParts[] = {{"_scale_inv", &Finder::LookAtInverse},
                                    {".weight_scale", &Finder::LookAtScale},
                                    {".scale", &Finder::LookAtPlainScale},
                                    {".SCB", &Finder::LookAtInt8},
                                    {".absmax", &Finder::LookAtNf4},
                                    {"_blocks", &Finder::LookAtBlocks},
                                    {".blocks", &Finder::LookAtBlocks},
                                    {".qweight", &Finder::LookAtPacked},
                                    {".weight_packed", &Finder::LookAtPacked},
                                    {".scales", nullptr},
                                    {"_scales", nullptr}};
  return kParts;
}

Finder::Finder(const Tensors& tensors, const Configuration& config, std::vector<std::uint32_t> own)
    : tensors_(tensors),
      config_(config),
      claims_(config),
      method_(MethodOf(config.content)),
      own_(std::move(own)) {}

StatusOr<FoundWeights> Finder::Run() {
  const std::vector<Object>& objects = tensors_.source().objects();
  for (const auto step : {&Finder::Look, &Finder::CheckScaled}) {
    for (const std::uint32_t each : own_) {
      const Status status = (this->*step)(objects[each]);
      ZT_RETURN_IF_ERROR(claims_.CheckSteps());  // before what was said for want of them
      if (!status.ok()) return AtTensor(tensors_.source(), {each, 0}, status);
    }
  }
  if (!found_.empty()) {
    ZT_RETURN_IF_ERROR(WithFile(CheckForm(config_), config_.path));
    AddCacheScales();
  }
  std::ranges::stable_sort(found_, {}, [](const auto& each) { return each->codes.object; });
  return std::move(found_);
}

Status Finder::Missing(const std::string& name, std::string_view why) const {
  return InvalidData(TensorContext(name) + " is missing, " + std::string(why));
}

Status Finder::Misshapen(const Object& object, const Shape& wanted, std::string_view why) const {
  return At(object, InvalidData("it has shape " + ToString(object.shape) + ", " + std::string(why) +
                                " needs " + ToString(wanted)));
}

Status Finder::Mistyped(const Object& object, std::string_view wanted) const {
  return At(object, InvalidData("it is " + std::string(Name(object.components[0].element)) +
                                ", not " + std::string(wanted)));
}

Status Finder::Unread(const Object& object, std::string_view read) const {
  return At(object, Unsupported("it has shape " + ToString(object.shape) + ", and only " +
                                std::string(read) + " are read"));
}

Status Finder::NeedsConfiguration(const std::string& codes) const {
  if (!config_.file.empty())
    return InvalidData(codes + " need a configuration that names their method to be read, and " +
                       config_.file + " names none");
  return InvalidData(
      codes + " need a quantization configuration (config.json, quantize_config.json) to be read");
}

StatusOr<std::uint32_t> Finder::Need(const std::string& name, std::string_view type,
                                     const Shape* shape) {
  const Object* const object = Find(name);
  if (object == nullptr) return Missing(name, "which the scheme needs");
  if (!Is(*object, type)) return Mistyped(*object, type);
  if (shape != nullptr && object->shape != *shape) return Misshapen(*object, *shape, "its tensor");
  return IndexOf(*object);
}

StatusOr<std::uint32_t> Finder::NeedNumber(const std::string& name) {
  ZT_ASSIGN_OR_RETURN(const std::uint32_t index, Need(name, "f32", nullptr));
  if (ElementCount(tensors_[index].shape) != 1)
    return Misshapen(tensors_[index], {1}, "one number");
  return index;
}

Status Finder::CheckMethod(const Weight& weight,
                           std::initializer_list<std::string_view> methods) const {
  const std::string part =  // codes, where nobody has looked for the scales yet
      weight.scales.object == weight.codes.object ? "codes" : "scales";
  if (claims_.IsIgnored(weight.name)) {
    return InvalidData(config_.file + " says that its module is not quantized, and " +
                       TensorContext(tensors_[weight.scales.object].name) + " holds its " + part);
  }
  if (method_.empty() || std::ranges::find(methods, method_) != methods.end()) return OkStatus();
  return InvalidData("it is stored as " + std::string(weight.scheme) + ", with " + part + " in " +
                     Quote(tensors_[weight.scales.object].name) + ", and " + Configured());
}

Status Finder::Look(const Object& object) {
  if (object.format != "dense" || object.components[0].element.type == "complex64")
    return OkStatus();
  const std::string_view name = object.name;
  for (const Part& part : Parts()) {
    const auto module = Before(name, part.suffix);
    if (part.look != nullptr && module) return (this->*part.look)(object, std::string(*module));
  }
  return OkStatus();
}

Weight Finder::Start(std::string name, std::string_view scheme, const Object& codes,
                     const Object& scales) {
  Weight weight;
  weight.name = std::move(name);
  weight.scheme = scheme;
  weight.shape = codes.shape;
  weight.columns = codes.shape.empty() ? 1 : codes.shape.back();
  weight.codes.object = IndexOf(codes);
  weight.scales.object = IndexOf(scales);
  weight.pitch = weight.columns;
  weight.members = {weight.codes.object, weight.scales.object};
  return weight;
}

Status Finder::Add(Weight weight, const std::string& module) {
  for (const std::string& name :
       {module + ".input_scale", module + ".input_scale_ub", module + ".input_global_scale",
        module + ".input_zero_point", module + ".output_scale", module + ".activation_scale",
        module + ".weight_format", module + ".weight_shape", weight.name + "_activation_scale"}) {
    if (const Object* const other = Find(name)) weight.members.push_back(IndexOf(*other));
  }
  if (const Object* const marker = Find(module + ".comfy_quant"))
    ZT_RETURN_IF_ERROR(TakeMarker(weight, *marker));
  // What changes the numbers and no scheme here reads.
  for (const std::string& name :
       {module + ".weight_g_idx", module + ".weight_zero_point", weight.name + "_global_scale",
        module + ".weight_scale_2", module + ".pre_quant_scale"}) {
    const Object* const other = Find(name);
    if (other == nullptr ||
        std::ranges::find(weight.members, IndexOf(*other)) != weight.members.end())
      continue;
    return Unsupported("it is stored as " + std::string(weight.scheme) +
                       ", which is not read with " + TensorContext(other->name));
  }
  if (const auto taken = tensors_.Find(weight.name);
      taken && std::ranges::find(weight.members, *taken) == weight.members.end()) {
    return InvalidData("its numbers would be " + TensorContext(weight.name) +
                       ", and there is such a tensor");
  }
  if (used_.contains(weight.codes.object) || !names_.insert(weight.name).second) {
    return InvalidData("another scheme has codes or scales of " + TensorContext(weight.name) +
                       ", too");
  }
  used_.insert(weight.members.begin(), weight.members.end());
  found_.push_back(std::make_unique<Weight>(std::move(weight)));
  return OkStatus();
}

Status Finder::TakeMarker(Weight& weight, const Object& marker) {
  ZT_ASSIGN_OR_RETURN(const Value::Map map, ReadState(marker));
  const std::string format = FindString(map, "format").value_or("");
  if (format != "float8_e4m3fn" || weight.scheme != "fp8") {
    return At(marker, Unsupported("it says format " + Quote(format) +
                                  ", and only 'float8_e4m3fn' of scaled FP8 is read"));
  }
  weight.members.push_back(IndexOf(marker));
  return OkStatus();
}

Status Finder::CheckScaled(const Object& object) {
  if ((method_.empty() && found_.empty()) || used_.contains(IndexOf(object)) ||
      object.format != "dense")
    return OkStatus();
  const std::string_view name = object.name;
  for (const Rest& rest : kRests) {
    const auto module = Before(name, rest.suffix);
    if (!module || rest.method != method_ || (!rest.type.empty() && !Is(object, rest.type)) ||
        claims_.IsIgnored(name))
      continue;
    const std::string codes = std::string(*module) + std::string(rest.codes);
    const Object* const there = Find(codes);
    return there == nullptr
               ? Missing(codes, "to which this belongs")
               : Mistyped(*there, "what " + TensorContext(object.name) + " belongs to");
  }
  const bool words = method_ == "gptq" || method_ == "awq";  // whose codes are words
  const bool codes =
      name.ends_with(".weight_packed") || name.ends_with(".qweight") ||
      (!words && (Is(object, "f8_e4m3fn") || Is(object, "f8_e5m2") ||
                  (name.ends_with(".weight") && (Is(object, "i8") || Is(object, "u8")))));
  if (!codes || claims_.IsIgnored(name)) return OkStatus();
  const std::string what = "it holds codes (" + std::string(Name(object.components[0].element)) +
                           "), and no tensor beside it their scales; ";
  if (method_.empty()) {
    return InvalidData(what + TensorContext(found_.front()->name) +
                       " has some, and no configuration says which modules are not quantized");
  }
  return InvalidData(what + Configured() +
                     " and does not name its module among those that are not quantized");
}

void Finder::AddCacheScales() {
  std::vector<std::uint32_t> scales;
  for (const std::uint32_t each : own_) {
    const Object& object = tensors_[each];
    const bool named = std::ranges::any_of(
        kCacheScales, [&](std::string_view suffix) { return object.name.ends_with(suffix); });
    if (named && IsScale(object) && !used_.contains(each) &&
        ElementCount(object.shape).value_or(0) <= kMostCacheScales)
      scales.push_back(each);
  }
  if (scales.empty()) return;
  std::unordered_map<std::string, std::size_t> near;  // a module around one that is quantized
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const std::string module = ModuleOf(found_[i]->name);
    near.emplace(module, i);
    near.emplace(ModuleOf(module), i);
  }
  near.erase("");  // a module that stands alone is within none
  const bool declared = DeclaresCache(config_.content);
  for (const std::uint32_t each : scales) {
    const std::string& name = tensors_[each].name;
    const std::string module = ModuleOf(name);
    const bool usual = ElementCount(tensors_[each].shape) == 1 &&
                       (name.ends_with(".k_scale") || name.ends_with(".v_scale"));
    auto beside = near.find(module);
    if (beside == near.end()) beside = near.find(ModuleOf(module));
    if (!declared && (!usual || beside == near.end())) continue;
    found_[beside == near.end() ? 0 : beside->second]->members.push_back(each);
    used_.insert(each);
  }
}

StatusOr<FoundWeights> FindWeights(const Tensors& tensors, std::span<const Configuration> configs) {
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> by_prefix;
  for (std::size_t i = 0; i < configs.size(); ++i) by_prefix.emplace(configs[i].prefix, i);
  std::vector<std::vector<std::uint32_t>> own(configs.size());
  for (std::uint32_t i = 0; i < tensors.source().objects().size(); ++i) {
    const std::string_view name = tensors[i].name;
    const auto found =
        configs.size() == 1 ? by_prefix.end() : by_prefix.find(name.substr(0, name.find('/') + 1));
    own[found == by_prefix.end() ? 0 : found->second].push_back(i);
  }
  FoundWeights out;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    ZT_ASSIGN_OR_RETURN(FoundWeights found, Finder(tensors, configs[i], std::move(own[i])).Run());
    if (configs.size() == 1) return found;
    for (auto& each : found) out.push_back(std::move(each));
  }
  return out;
}

}  // namespace zt::composite::internal

namespace zt {

using composite::internal::NamesScales;

std::vector<std::string_view> QuantizedModulesOf(std::span<const Object* const> objects) {
  struct Module {
    bool codes = false, scales = false;
  };
  std::unordered_map<std::string_view, Module, internal::NameHash> modules;
  std::vector<std::string_view> out;
  for (const Object* const object : objects) {
    const std::string_view name = object->name;
    const std::size_t dot = name.rfind('.');
    // bitsandbytes: "x.weight.absmax", "x.weight.quant_state.bitsandbytes__nf4".
    out.push_back(name.substr(0, std::min(name.rfind(".weight."), dot == name.npos ? 0 : dot)));
    const DType dtype = object->components[0].element.dtype;
    if (out.back().empty() || object->format != "dense") continue;
    Module& module = modules[out.back()];
    if (NamesScales(name.substr(dot + 1))) {
      module.scales = true;
    } else if (!IsFloat(dtype) && dtype != DType::kBool && ByteWidth(dtype) <= 4) {
      module.codes = true;
    }
  }
  for (std::string_view& each : out) {
    const auto found = modules.find(each);
    if (found == modules.end() || !found->second.codes || !found->second.scales) each = {};
  }
  return out;
}

}  // namespace zt
