// zt.convert.torch:pickle — the values of a pickle as they are asked for, and the memory that they
// may take.
module;

#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :pickle;
import zt.core;
import zt.source;

namespace zt::torch::internal {

namespace {

// Takes an amount from `own`, and what that lacks from `shared`; false if both lack it.
bool Take(std::uint64_t amount, std::uint64_t& own, std::uint64_t& shared) {
  const std::uint64_t first = std::min(amount, own);
  if (amount - first > shared) return false;
  own -= first;
  shared -= amount - first;
  return true;
}

}  // namespace

Allowance::Allowance(std::uint64_t file_bytes, std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)) {
  Grow(file_bytes);
}

void Allowance::Grow(std::uint64_t bytes) {
  const std::uint64_t more = std::min(bytes, (kMost - granted_) / kPerByte);
  granted_ += more * kPerByte;
  left_ += more * kPerByte;
  names_ += more * kPrintedPerByte;
  values_ += more * kPrintedPerByte;
}

Status Allowance::Spend(std::uint64_t bytes) {
  if (Take(bytes, left_, shared_->bytes)) return OkStatus();
  return Unsupported("its values would take more memory than the file's size allows, " +
                     std::to_string(kPerByte) +
                     " bytes for each byte: they are millions of small ones, shared again and "
                     "again, or compressed beyond measure; save it without them");
}

Status Allowance::PrintName(std::uint64_t bytes) {
  if (Take(bytes, names_, shared_->names)) return OkStatus();
  return Unsupported("its names, written out, would take more than " +
                     std::to_string(kPrintedPerByte) +
                     " times its size: a long key is part of many; shorten it");
}

bool Allowance::SpendOnValue(std::uint64_t bytes, std::uint64_t printed) {
  constexpr std::uint64_t kRest = kShared / 4;
  const std::uint64_t shared = shared_->bytes - std::min(kRest, shared_->bytes);
  return bytes <= left_ + shared && Take(printed, values_, shared_->values) && Spend(bytes).ok();
}

bool Allowance::SpendOnText(std::uint64_t bytes, std::string_view text) {
  if (text.size() > values_ + shared_->values) return false;
  return SpendOnValue(bytes, Printed(text)) || (Take(text.size(), values_, shared_->values), false);
}

std::uint64_t Allowance::Printed(std::string_view text) {
  std::uint64_t bytes = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = byte < 0x20 || byte == 0x7f;
    bytes += control ? 6 : byte >= 0x80 || c == '"' || c == '\\' ? 3 : 1;
  }
  return bytes;
}

Graph::Place Graph::PlaceOf(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind == NodeKind::kFar) return far_[node.value].place;
  const auto next =
      std::ranges::upper_bound(far_, node.value, {}, [](const Far& far) { return far.at; });
  const std::uint64_t skipped = next == far_.begin() ? 0 : std::prev(next)->skipped;
  return {offset_ + node.value + skipped, node.a};
}

double Graph::Double(NodeId id) const { return std::bit_cast<double>(nodes_[id].value); }

std::string_view Graph::Text(NodeId id) const {
  const Node& node = nodes_[id];
  return {reinterpret_cast<const char*>(bytes_.data()) + node.value, node.a};
}

std::string Graph::GlobalName(NodeId id) const {
  return std::string(Text(nodes_[id].a)) + "." + std::string(Text(nodes_[id].b));
}

bool Graph::IsGlobal(NodeId id, std::string_view name) const {
  if (!Is(id, NodeKind::kGlobal)) return false;
  const std::string_view module = Text(nodes_[id].a), own = Text(nodes_[id].b);
  return name.size() == module.size() + 1 + own.size() && name.starts_with(module) &&
         name[module.size()] == '.' && name.ends_with(own);
}

bool Graph::IsOneOf(NodeId id, std::initializer_list<std::string_view> names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return IsGlobal(id, name); });
}

std::span<const NodeId> Graph::Items(NodeId id) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case NodeKind::kTuple:
    case NodeKind::kList:
    case NodeKind::kSet:
    case NodeKind::kDict:
      return std::span(pool_).subspan(node.a, node.b);
    case NodeKind::kCall: {
      const auto items = static_cast<NodeId>(node.value);
      return items == kNoNode ? std::span<const NodeId>() : Items(items);
    }
    default:
      return {};
  }
}

NodeId Graph::state(NodeId id) const { return static_cast<NodeId>(nodes_[id].value >> 32); }

bool Graph::IsCallOf(NodeId id, std::string_view name) const {
  return Is(id, NodeKind::kCall) && IsGlobal(callable(id), name);
}

NodeId Graph::Member(NodeId object, std::string_view name) const {
  if (object == kNoNode) return kNoNode;
  const NodeId all = Is(object, NodeKind::kCall) ? state(object) : object;
  if (all == kNoNode) return kNoNode;
  const auto dicts = Is(all, NodeKind::kTuple)
                         ? Items(all).first(std::min<std::size_t>(Items(all).size(), 2))
                         : std::span<const NodeId>(&all, 1);
  for (const NodeId dict : dicts) {
    if (!Is(dict, NodeKind::kDict)) continue;
    const auto items = Items(dict).first(std::min(Items(dict).size(), 2 * kMostMembers));
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (Is(items[i], NodeKind::kText) && Text(items[i]) == name) return items[i + 1];
    }
  }
  return kNoNode;
}

template <typename Function>
void Graph::ForEachChild(NodeId id, Function f) const {
  for (const NodeId item : Items(id)) f(item);
  switch (nodes_[id].kind) {
    case NodeKind::kCall:
      f(callable(id));
      f(args(id));
      if (state(id) != kNoNode) f(state(id));
      break;
    case NodeKind::kPersistent:
      f(identifier(id));
      break;
    default:
      break;
  }
}

std::vector<bool> Graph::HoldersOf(const std::function<bool(NodeId)>& wanted,
                                   const std::function<bool(NodeId, NodeId)>& through) const {
  // Reverse edges: the parents of node n are parents[first[n]] to parents[first[n + 1] - 1].
  const auto count = static_cast<NodeId>(nodes_.size());
  std::vector<std::uint64_t> first(nodes_.size() + 2);
  for (NodeId id = 0; id < count; ++id) {
    ForEachChild(id, [&](NodeId child) { ++first[child + 2]; });
  }
  for (std::size_t i = 2; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<NodeId> parents(first.back());
  for (NodeId id = 0; id < count; ++id) {
    ForEachChild(id, [&](NodeId child) { parents[first[child + 1]++] = id; });
  }
  std::vector<bool> holds(nodes_.size());
  std::vector<NodeId> pending;
  for (NodeId id = 0; id < count; ++id) {
    if (wanted(id)) {
      holds[id] = true;
      pending.push_back(id);
    }
  }
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    for (std::uint64_t i = first[id]; i < first[id + 1]; ++i) {
      if (holds[parents[i]] || !through(parents[i], id)) continue;
      holds[parents[i]] = true;
      pending.push_back(parents[i]);
    }
  }
  return holds;
}

}  // namespace zt::torch::internal
