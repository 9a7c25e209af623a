// zt.convert.composite — grouped objects as the tensors they came from.
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
namespace {

using composite::internal::RegroupedSource;
using composite::internal::SplitAnchor;
using composite::internal::Text;

// The tensor that a component was, as its entry of source_tensors says.
StatusOr<Object> SourceTensor(const Component& component, const Value& entry) {
  const Value::Map* map = entry.AsMap();
  if (map == nullptr) return InvalidData("its entry is not a map");
  const auto name = Text(*map, "name");
  const auto dtype = Text(*map, "dtype");
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
  // A 1.1 file does not say how large a compressed component is; its entry does.
  if (component.bytes != kUnknownSize && component.bytes != tensor.components[0].bytes) {
    return InvalidData("it has " + std::to_string(component.bytes) + " bytes, shape " +
                       ToString(tensor.shape) + " of its entry asks for " +
                       std::to_string(tensor.components[0].bytes));
  }
  return tensor;
}

// A group that was renamed gives its tensors back under its own name: the entries keep the names that the checkpoint
// had, so what they share, the module's old name, is replaced.
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
                       " has not one entry for each component");
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
  return map != nullptr && map->size() == 2 && Text(*map, "file") &&
         FindMember(*map, "content") != nullptr;
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> Ungroup(std::unique_ptr<TensorSource> source) {
  TensorSource& inner = *source;
  auto ungrouped = std::make_unique<RegroupedSource>(std::move(source));
  std::unordered_set<std::string, zt::internal::NameHash> names;
  bool any = false;
  for (std::uint32_t i = 0; i < inner.objects().size(); ++i) {
    const Object& object = inner.objects()[i];
    const Value* recorded = FindMember(object.attributes, kSourceTensorsAttribute);
    if (object.format != "quantized_group" || recorded == nullptr) {
      ungrouped->Keep(i);
    } else {
      any = true;
      ZT_ASSIGN_OR_RETURN(auto tensors, WithTensor(SourceTensors(object, *recorded), object.name));
      for (std::uint32_t c = 0; c < tensors.size(); ++c)
        ungrouped->Add(std::move(tensors[c]), {{i, c}});
    }
  }
  for (const Object& object : ungrouped->objects()) {
    if (!names.insert(object.name).second) {
      return InvalidData(TensorContext(object.name) +
                         " is there twice once groups are taken apart");
    }
  }
  Value::Map& root = ungrouped->root();
  std::erase_if(root, [&](const Value::Member& member) {
    return any && member.first == kQuantConfigAttribute && IsKeptConfig(member.second);
  });
  return ungrouped;
}

}  // namespace zt
