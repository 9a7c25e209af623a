// zt.convert.composite — a checkpoint's quantized modules as one object each.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :regroup;
import :scheme;
import zt.core;
import zt.source;

namespace zt {

namespace composite::internal {

RegroupedSource::RegroupedSource(std::unique_ptr<TensorSource> inner) : inner_(std::move(inner)) {
  attributes_ = inner_->attributes();
  warnings_ = inner_->warnings();
  file_ = inner_->file({});
}

void RegroupedSource::Add(Object object, std::vector<ComponentId> components) {
  objects_.push_back(std::move(object));
  origin_.push_back(std::move(components));
}

void RegroupedSource::Keep(std::uint32_t object) {
  const auto count = static_cast<std::uint32_t>(inner_->objects()[object].components.size());
  std::vector<ComponentId> components;
  components.reserve(count);
  for (std::uint32_t c = 0; c < count; ++c) components.push_back({object, c});
  Add(inner_->objects()[object], std::move(components));
}

const std::string& RegroupedSource::file(ComponentId id) const {
  return id.object < origin_.size() ? inner_->file(Inner(id)) : file_;
}

Status RegroupedSource::CheckReadable(std::uint32_t object) const {
  for (const ComponentId id : origin_[object]) {
    ZT_RETURN_IF_ERROR(inner_->CheckReadable(id.object));
  }
  return OkStatus();
}

Status RegroupedSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  return inner_->Read(Inner(id), offset, out);
}

}  // namespace composite::internal

namespace {

using composite::internal::Anchor;
using composite::internal::Declared;
using composite::internal::ReadDeclared;
using composite::internal::Recipe;
using composite::internal::Recognize;
using composite::internal::RegroupedSource;
using composite::internal::SplitAnchor;
using composite::internal::Tensors;

Value SourceTensors(const Tensors& tensors, const Recipe& recipe) {
  Value::Map out;
  for (const auto& [role, index] : recipe.members) {
    const Object& tensor = tensors[index];
    Value::Array shape;
    for (const std::uint64_t dimension : tensor.shape) shape.emplace_back(dimension);
    Value::Map entry;
    entry.emplace_back("name", tensor.name);
    entry.emplace_back("dtype", Name(tensor.components[0].element));
    entry.emplace_back("shape", std::move(shape));
    out.emplace_back(role, std::move(entry));
  }
  return out;
}

// One module, with its name checked against the tensors that will stay.
StatusOr<Recipe> RecognizeNamed(const Declared& declared, const Tensors& tensors,
                                const std::string& module, std::string_view anchor) {
  if (anchor != Anchor(declared.scheme)) {
    return Unsupported("it has " + Quote(anchor) +
                       ", which is not of the scheme the configuration declares");
  }
  if (tensors.Find(module)) return Unsupported("a tensor has the module's name");
  return Recognize(declared, tensors, module);
}

// At most this many modules that stay as they are have a warning of their own.
constexpr std::size_t kWarnings = 20;

// The warning for a reason that holds for the whole checkpoint, which is given once.
std::string AllDense(std::string_view file, std::size_t modules, const std::string& first,
                     std::string_view why) {
  std::string out = std::to_string(modules) +
                    (modules == 1 ? " quantized module stays" : " quantized modules stay") +
                    " as separate tensors (" + Quote(first) +
                    (modules == 1 ? "): " : " is the first): ");
  if (!file.empty()) out += std::string(file) + ": ";
  return out + std::string(why);
}

// The modules of a source that become groups, and why others do not.
struct Recognized {
  std::vector<std::string> names;
  std::vector<Recipe> recipes;                               // of each name
  std::unordered_map<std::uint32_t, std::size_t> member_of;  // source object -> recipe
  std::vector<std::string> warnings;
};

using Modules = std::vector<std::pair<std::string, std::string_view>>;  // name, anchor

StatusOr<Recognized> RecognizeAll(const Modules& modules, const Declared& declared,
                                  const Tensors& tensors) {
  Recognized out;
  for (const auto& [module, anchor] : modules) {
    auto recipe = RecognizeNamed(declared, tensors, module, anchor);
    if (!recipe.ok()) {
      if (recipe.status().code() != StatusCode::kUnimplemented) return recipe.status();
      out.warnings.push_back("module " + Quote(module) +
                             " stays as separate tensors: " + Message(recipe.status()));
      continue;
    }
    for (const auto& [role, index] : recipe->members) {
      out.member_of.emplace(index, out.recipes.size());
    }
    out.recipes.push_back(*std::move(recipe));
    out.names.push_back(module);
  }
  return out;
}

// One module as an object of `grouped`.
void AddGroup(const Tensors& tensors, const std::string& name, Recipe& recipe,
              RegroupedSource& grouped) {
  Object object;
  object.name = name;
  object.format = "quantized_group";
  object.shape = recipe.shape;
  object.attributes = std::move(recipe.attributes);
  object.attributes.emplace_back(kSourceTensorsAttribute, SourceTensors(tensors, recipe));
  std::vector<ComponentId> components;
  for (const auto& [role, index] : recipe.members) {
    const Component& data = tensors[index].components[0];
    object.components.push_back({role, data.element, data.bytes});
    components.push_back({index, 0});
  }
  grouped.Add(std::move(object), std::move(components));
}

// The source with each recognised module in the place of its first tensor.
std::unique_ptr<RegroupedSource> Regroup(std::unique_ptr<TensorSource> source,
                                         const Tensors& tensors, Recognized& recognized) {
  const std::size_t count = source->objects().size();
  auto grouped = std::make_unique<RegroupedSource>(std::move(source));
  std::vector<bool> added(recognized.recipes.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto member = recognized.member_of.find(i);
    if (member == recognized.member_of.end()) {
      grouped->Keep(i);
    } else if (const std::size_t group = member->second; !added[group]) {
      added[group] = true;
      AddGroup(tensors, recognized.names[group], recognized.recipes[group], *grouped);
    }
  }
  auto& warnings = recognized.warnings;
  for (std::size_t i = 0; i < std::min(warnings.size(), kWarnings); ++i) {
    grouped->AddWarning(std::move(warnings[i]));
  }
  if (warnings.size() > kWarnings) {
    grouped->AddWarning(std::to_string(warnings.size() - kWarnings) +
                        " more modules stay as separate tensors");
  }
  return grouped;
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> GroupQuantized(std::unique_ptr<TensorSource> source,
                                                       const QuantConfig& config) {
  Modules modules;
  for (const Object& object : source->objects()) {
    if (auto split = SplitAnchor(object.name)) modules.push_back(*std::move(split));
  }
  if (modules.empty()) return source;
  const auto all_dense = [&](std::string_view why) -> StatusOr<std::unique_ptr<TensorSource>> {
    source->AddWarning(AllDense(config.file, modules.size(), modules[0].first, why));
    return std::move(source);
  };
  if (!source->seekable()) return all_dense("a pipe cannot be reordered; name a file");
  if (config.file.empty())
    return all_dense("the checkpoint has no quantization configuration to check them against");
  const auto declared = ReadDeclared(config.content);
  if (!declared.ok()) return all_dense(Message(declared.status()));
  Value kept = Value::Map{{"file", config.file}, {"content", config.content}};
  const Value* taken = FindMember(source->attributes(), kQuantConfigAttribute);
  if (taken != nullptr && !(*taken == kept)) {
    return all_dense("the input has another attribute " + Quote(kQuantConfigAttribute));
  }
  const Tensors tensors(*source);
  ZT_ASSIGN_OR_RETURN(Recognized recognized, RecognizeAll(modules, *declared, tensors));
  auto grouped = Regroup(std::move(source), tensors, recognized);
  if (!recognized.recipes.empty()) {
    SetMember(grouped->root(), kQuantConfigAttribute, std::move(kept));
  }
  return grouped;
}

}  // namespace zt
