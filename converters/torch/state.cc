// zt.convert.torch:contents — how a checkpoint is nested, as an attribute.
module;

#include "core/name_table.h"

module zt.convert.torch;

import zt.std;
import :contents;
import zt.core;

namespace zt::torch::internal {
namespace {

constexpr std::string_view kStateKey = "ztstream.state";

bool IsDict(const Value& kind) { return kind == Value("dict"); }

}  // namespace

void Containers::Add(std::string_view path, Value kind) {
  if (dropped_) return;
  Count();
  inside = list_.size();
  list_.push_back({std::string(path), std::move(kind)});
}

void Containers::Count() {
  if (inside < list_.size()) ++list_[inside].inside;
}

void Containers::Drop() {
  dropped_ = true;
  list_.clear();
}

void Containers::AddTo(Contents& contents) {
  const bool flat = list_.size() == 1 && IsDict(list_[0].kind) && contents.attributes.empty();
  if (list_.empty() || flat) return;
  std::unordered_map<std::string_view, std::uint64_t, zt::internal::NameHash> inside;
  for (const Container& each : list_) {
    if (!inside.emplace(each.path, 0).second) return;  // of the keys 1 and "1"
  }
  // Counts a name for the container that it seems to lie in: the longest path that begins it.
  const auto count = [&](std::string_view name) {
    for (std::size_t at = name.size(); (at = name.substr(0, at).rfind('.')) != name.npos;) {
      const auto known = inside.find(name.substr(0, at));
      if (known != inside.end()) return void(++known->second);
    }
    if (!name.empty()) ++inside[""];
  };
  for (const Tensor& tensor : contents.tensors) count(tensor.name);
  for (const auto& [key, value] : contents.attributes) {
    if (key == kStateKey) return;
    if (!inside.contains(key)) count(key);  // a tuple is both
  }
  for (const Container& each : list_) count(each.path);
  Value::Map kinds;
  for (Container& each : list_) {
    if (each.inside != inside[each.path]) return;
    if (!each.path.empty() || !IsDict(each.kind)) kinds.emplace_back(each.path, each.kind);
  }
  contents.attributes.emplace_back(kStateKey, Value::Map{{"containers", Value(std::move(kinds))}});
}

}  // namespace zt::torch::internal
