// zt.convert.composite — groups the tensors of quantized modules, and ungroups them.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;
import zt.source;

namespace zt {

namespace {

using composite::internal::Anchor;
using composite::internal::Declared;
using composite::internal::FindString;
using composite::internal::ReadDeclared;
using composite::internal::Recipe;
using composite::internal::Recognize;
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

// Recognizes one module, and checks that its name is not that of a remaining tensor.
StatusOr<Recipe> RecognizeNamed(const Declared& declared, const Tensors& tensors,
                                const std::string& module, std::string_view anchor) {
  if (anchor != Anchor(declared.scheme)) {
    return Unsupported("it has " + Quote(anchor) +
                       ", which is not of the scheme the configuration declares");
  }
  if (tensors.Find(module)) return Unsupported("a tensor has the module's name");
  return Recognize(declared, tensors, module);
}

// Limit on warnings about single modules.
constexpr std::size_t kWarnings = 20;

// The warning for a reason that applies to the whole checkpoint.
std::string AllDense(std::string_view file, std::size_t modules, const std::string& first,
                     std::string_view why) {
  std::string out = std::to_string(modules) +
                    (modules == 1 ? " quantized module stays" : " quantized modules stay") +
                    " as separate tensors (" + Quote(first) +
                    (modules == 1 ? "): " : " is the first): ");
  if (!file.empty()) out += std::string(file) + ": ";
  return out + std::string(why);
}

// The modules of a source that become groups, and warnings about all others.
struct Recognized {
  std::vector<std::string> names;
  std::vector<Recipe> recipes;                               // by name
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

// Adds one module to `grouped`.
void AddGroup(const Tensors& tensors, const std::string& name, Recipe& recipe,
              RegroupedSource& grouped) {
  Object object;
  object.name = name;
  object.format = "quantized_group";
  object.shape = recipe.shape;
  object.attributes = std::move(recipe.attributes);
  object.attributes.emplace_back(kSourceTensorsAttribute, SourceTensors(tensors, recipe));
  InlinedVector<ComponentId, 1> components;
  for (const auto& [role, index] : recipe.members) {
    const Component& data = tensors[index].components[0];
    object.components.push_back({role, data.element, data.bytes});
    components.push_back({index, 0});
  }
  grouped.Add(std::move(object), std::move(components));
}

// The source with each recognized module at the position of its first tensor.
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

bool NamesQuantized(const TensorSource& source) {
  return std::ranges::any_of(source.objects(),
                             [](const Object& each) { return SplitAnchor(each.name).has_value(); });
}

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

namespace {

// The original tensor of a component, from its entry in source_tensors.
StatusOr<Object> SourceTensor(const Component& component, const Value& entry) {
  const Value::Map* map = entry.AsMap();
  if (map == nullptr) return InvalidData("its entry is not a map");
  const auto name = FindString(*map, "name");
  const auto dtype = FindString(*map, "dtype");
  const Value* dimensions = FindMember(*map, "shape");
  if (!name || !dtype || dimensions == nullptr || dimensions->AsArray() == nullptr) {
    return InvalidData("its entry lacks a name, dtype or shape");
  }
  if (*dtype != Name(component.element)) {
    return InvalidData("its entry says " + *dtype + ", it is " +
                       std::string(Name(component.element)));
  }
  Shape shape;
  for (const Value& dimension : *dimensions->AsArray()) {
    if (dimension.AsUint() == nullptr)
      return InvalidData("its entry has a dimension that is not a u64");
    shape.push_back(*dimension.AsUint());
  }
  ZT_ASSIGN_OR_RETURN(Object tensor, DenseObject(*name, std::move(shape), component.element));
  ZT_RETURN_IF_ERROR(ValidateObject(tensor));
  // The size of a compressed component is unknown in a 1.1 file, and taken from the entry.
  if (component.bytes != kUnknownSize && component.bytes != tensor.components[0].bytes) {
    return InvalidData("it has " + std::to_string(component.bytes) + " bytes, shape " +
                       ToString(tensor.shape) + " of its entry needs " +
                       std::to_string(tensor.components[0].bytes));
  }
  return tensor;
}

// Renames the tensors of a renamed group: the entries have the names of the checkpoint, so their
// common prefix, the module's old name, is replaced by the group's name.
void Rename(const Object& group, std::vector<Object>& tensors) {
  std::string before;
  for (std::size_t c = 0; c < tensors.size(); ++c) {
    if (group.components[c].role != "packed_weight") continue;
    if (const auto split = SplitAnchor(tensors[c].name)) before = split->first + ".";
  }
  if (before.empty() || before == group.name + ".") return;
  for (Object& tensor : tensors) {
    if (tensor.name.starts_with(before)) {
      tensor.name.replace(0, before.size(), group.name + ".");
    }
  }
}

StatusOr<std::vector<Object>> SourceTensors(const Object& group, const Value& recorded) {
  const Value::Map* entries = recorded.AsMap();
  if (entries == nullptr || entries->size() != group.components.size()) {
    return InvalidData("attribute " + Quote(kSourceTensorsAttribute) +
                       " does not have one entry for each component");
  }
  std::unordered_map<std::string_view, const Value*, zt::internal::NameHash> by_role;
  for (const auto& [role, entry] : *entries) by_role.emplace(role, &entry);
  std::vector<Object> out;
  for (const Component& component : group.components) {
    const auto found = by_role.find(component.role);
    const Value* const entry = found == by_role.end() ? nullptr : found->second;
    const std::string where =
        "attribute " + Quote(kSourceTensorsAttribute) + ": component " + Quote(component.role);
    if (entry == nullptr) return InvalidData(where + " has no entry");
    auto tensor = SourceTensor(component, *entry);
    if (!tensor.ok()) return Annotate(tensor.status(), where);
    out.push_back(*std::move(tensor));
  }
  Rename(group, out);
  return out;
}

// True if the attribute has the form that GroupQuantized writes.
bool IsKeptConfig(const Value& value) {
  const Value::Map* map = value.AsMap();
  return map != nullptr && map->size() == 2 && FindString(*map, "file") &&
         FindMember(*map, "content") != nullptr;
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> Ungroup(std::unique_ptr<TensorSource> source) {
  TensorSource& inner = *source;
  const auto recorded = [](const Object& object) {
    return object.format == "quantized_group"
               ? FindMember(object.attributes, kSourceTensorsAttribute)
               : nullptr;
  };
  if (std::ranges::none_of(inner.objects(), recorded)) return source;
  auto ungrouped = std::make_unique<RegroupedSource>(std::move(source));
  std::unordered_set<std::string_view, zt::internal::NameHash> names;
  for (std::uint32_t i = 0; i < inner.objects().size(); ++i) {
    const Object& object = inner.objects()[i];
    const Value* const parts = recorded(object);
    if (parts == nullptr) {
      ungrouped->Keep(i);
    } else {
      ZT_ASSIGN_OR_RETURN(auto tensors, WithTensor(SourceTensors(object, *parts), object.name));
      for (std::uint32_t c = 0; c < tensors.size(); ++c)
        ungrouped->Add(std::move(tensors[c]), {{i, c}});
    }
  }
  for (const Object& object : ungrouped->objects()) {
    if (!names.insert(object.name).second) {
      return InvalidData(TensorContext(object.name) + " occurs twice after groups are split");
    }
  }
  Value::Map& root = ungrouped->root();
  std::erase_if(root, [](const Value::Member& member) {
    return member.first == kQuantConfigAttribute && IsKeptConfig(member.second);
  });
  return ungrouped;
}

}  // namespace zt
