// zt.convert.composite:weights — what a configuration says of modules.
module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;
import zt.core;

namespace zt::composite::internal {
namespace {

// A pair of positive numbers; nullopt for anything else.
std::optional<std::pair<std::uint64_t, std::uint64_t>> BlockOf(const Value::Map& map,
                                                               std::string_view key) {
  const Value* const value = FindMember(map, key);
  if (value == nullptr || value->AsArray() == nullptr || value->AsArray()->size() != 2)
    return std::nullopt;
  const std::uint64_t* const rows = (*value->AsArray())[0].AsUint();
  const std::uint64_t* const columns = (*value->AsArray())[1].AsUint();
  if (rows == nullptr || columns == nullptr || *rows == 0 || *columns == 0) return std::nullopt;
  return std::make_pair(*rows, *columns);
}

const Value::Map* MapIn(const Value::Map& map, std::string_view key) {
  const Value* const value = FindMember(map, key);
  return value == nullptr ? nullptr : value->AsMap();
}

}  // namespace

Claims::Claims(const Configuration& config) : file_(config.file) {
  block = BlockOf(config.content, "weight_block_size");
  if (const Value::Map* const groups = MapIn(config.content, "config_groups")) {
    for (const auto& [name, group] : *groups) {
      const Value::Map* const weights =
          group.AsMap() == nullptr ? nullptr : MapIn(*group.AsMap(), "weights");
      if (weights == nullptr) continue;
      groups_.push_back({FindInteger(*weights, "num_bits"), FindInteger(*weights, "group_size"),
                         FindString(*weights, "type").value_or("int"),
                         FindString(*weights, "strategy").value_or("")});
      if (!block) block = BlockOf(*weights, "block_structure");
    }
  }
  for (const std::string_view key : {"modules_to_not_convert", "ignore", "ignored_layers",
                                     "exclude_modules", "llm_int8_skip_modules"}) {
    const Value* const list = FindMember(config.content, key);
    if (list == nullptr || list->AsArray() == nullptr) continue;
    for (const Value& each : *list->AsArray()) {
      if (each.AsString() != nullptr) ignored_.push_back(*each.AsString());
    }
  }
}

bool Claims::IsIgnored(std::string_view name) const {
  return std::ranges::any_of(ignored_, [&](std::string_view pattern) {
    if (pattern.starts_with("re:")) return false;
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    if (pattern.empty()) return false;
    for (std::size_t at = 0; (at = name.find(pattern, at)) != name.npos; ++at) {
      const std::size_t end = at + pattern.size();
      if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
    }
    return false;
  });
}

Status Claims::CheckGroups(const Weight& weight, std::string_view type) const {
  if (groups_.empty()) return OkStatus();
  std::string says;
  for (const Group& group : groups_) {
    const bool sized =
        (group.strategy.empty() || group.strategy.ends_with("group")) && group.size.value_or(0) > 0;
    if (group.bits.value_or(0) == weight.bits && group.type == type &&
        (!sized || static_cast<std::uint64_t>(*group.size) == weight.blocks.block_columns))
      return OkStatus();
    says = group.type + " of " + std::to_string(group.bits.value_or(0)) + " bits" +
           (sized ? ", groups of " + std::to_string(*group.size) : "");
  }
  return InvalidData("its shapes say " + std::string(type) + " of " + std::to_string(weight.bits) +
                     " bits, groups of " + std::to_string(weight.blocks.block_columns) + "; " +
                     file_ + " says " + says);
}

}  // namespace zt::composite::internal
