// zt.convert.composite:scheme — which scheme a checkpoint declares, and what the schemes share.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;
import zt.source;

namespace zt::composite::internal {

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

Tensors::Tensors(TensorSource& source) : source_(source) {
  const std::vector<Object>& objects = source.objects();
  by_name_.reserve(objects.size());
  for (std::uint32_t i = 0; i < objects.size(); ++i) by_name_.emplace(objects[i].name, i);
}

std::optional<std::uint32_t> Tensors::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

StatusOr<const Object*> Members::Need(std::string_view role, std::string_view suffix,
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

bool Members::Has(std::string_view suffix) const {
  return tensors_.Find(module_ + std::string(suffix)).has_value();
}

Recipe Members::Finish(Shape shape, Value::Map attributes) {
  recipe_.shape = std::move(shape);
  recipe_.attributes = std::move(attributes);
  return std::move(recipe_);
}

std::vector<DType> FloatTypes() { return {DType::kF16, DType::kBF16, DType::kF32}; }

Status RequireShape(const Object& tensor, const Shape& expected) {
  if (tensor.shape == expected) return OkStatus();
  return Unsupported(TensorContext(tensor.name) + " has shape " + ToString(tensor.shape) +
                     ", the others ask for " + ToString(expected));
}

std::optional<std::string> Text(const Value::Map& map, std::string_view key) {
  const Value* value = FindMember(map, key);
  if (value == nullptr || value->AsString() == nullptr) return std::nullopt;
  return *value->AsString();
}

std::optional<std::int64_t> Integer(const Value::Map& map, std::string_view key) {
  const Value* value = FindMember(map, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* negative = value->AsInt()) return *negative;
  const auto* number = value->AsUint();
  if (number == nullptr || *number > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(*number);
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

namespace {

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// quantize_config.json and quant_config.json need not name their method: it shows in how they spell "bits".
std::string Method(const Value::Map& config) {
  if (const auto method = Text(config, "quant_method")) return *method;
  if (FindMember(config, "w_bit") != nullptr) return "awq";
  if (FindMember(config, "bits") != nullptr && FindMember(config, "desc_act") != nullptr)
    return "gptq";
  return "";
}

StatusOr<Scheme> DeclaredScheme(const Value::Map& config) {
  const std::string method = Method(config);
  if (method == "gptq") return Scheme::kGptq;
  if (method == "awq") {
    const std::string version = Text(config, "version").value_or("");
    if (Lower(version) == "gemm") return Scheme::kAwqGemm;
    return Unsupported("awq version " + Quote(version) + " is not supported, only gemm");
  }
  if (method == "compressed-tensors") {
    const std::string format = Text(config, "format").value_or("");
    if (format == "pack-quantized") return Scheme::kPackQuantized;
    return Unsupported("compressed-tensors format " + Quote(format) +
                       " is not supported, only pack-quantized");
  }
  if (method.empty()) return Unsupported("the configuration names no quantization method");
  return Unsupported("quantization method " + Quote(method) + " is not supported");
}

}  // namespace

StatusOr<Declared> ReadDeclared(const Value::Map& config) {
  static constexpr std::string_view kMembers[] = {
      "bits",         "checkpoint_format", "desc_act", "format", "group_size", "is_marlin_format",
      "q_group_size", "version",           "w_bit"};
  Declared declared;
  ZT_ASSIGN_OR_RETURN(declared.scheme, DeclaredScheme(config));
  for (const std::string_view key : kMembers) {
    const Value* const value = FindMember(config, key);
    if (value != nullptr) declared.config.emplace_back(key, *value);
  }
  if (declared.scheme == Scheme::kPackQuantized) declared.weights = ConfiguredWeights(config);
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
