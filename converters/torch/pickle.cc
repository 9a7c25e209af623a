// zt.convert.torch:pickle — the graph: access to its nodes, and which of them hold storages.
module zt.convert.torch;

import zt.std;
import :pickle;
import zt.core;

namespace zt::torch::internal {
namespace {

constexpr std::uint32_t kNoList = ~std::uint32_t{0};

}  // namespace

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

std::span<const NodeId> Graph::Items(NodeId id) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case NodeKind::kTuple:
      return std::span(pool_).subspan(node.a, node.b);
    case NodeKind::kList:
    case NodeKind::kSet:
    case NodeKind::kDict:
      return node.a == kNoList ? std::span<const NodeId>() : std::span(lists_[node.a]);
    case NodeKind::kCall: {
      const auto list = static_cast<std::uint32_t>(node.value);
      return list == kNoList ? std::span<const NodeId>() : std::span(lists_[list]);
    }
    default:
      return {};
  }
}

NodeId Graph::state(NodeId id) const { return static_cast<NodeId>(nodes_[id].value >> 32); }

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

std::vector<bool> Graph::HoldersOf(const std::function<bool(NodeId)>& wanted) const {
  // The edges turned around: parents of node n are parents[first[n]] to parents[first[n + 1] - 1].
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
      if (holds[parents[i]]) continue;
      holds[parents[i]] = true;
      pending.push_back(parents[i]);
    }
  }
  return holds;
}

}  // namespace zt::torch::internal
