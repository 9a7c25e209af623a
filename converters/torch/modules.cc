// zt.convert.torch:contents — modules of torch.nn and of TorchScript, and the pairs of dicts.
module;

#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import zt.core;

namespace zt::torch::internal {
namespace {

// True for a tensor, and for an object of TorchScript, which need be no module.
bool IsScriptMember(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kCall) || !graph.Is(graph.callable(id), NodeKind::kGlobal))
    return false;
  const std::string name = graph.GlobalName(graph.callable(id));
  return RebuildsTensor(name) || name.starts_with("__torch__.") || IsPacked(name);
}

// True for the packed weights of a quantized layer: what its state_dict() makes of them is code.
bool IsPackedObject(const Graph& graph, NodeId id) {
  return graph.Is(id, NodeKind::kCall) && graph.Is(graph.callable(id), NodeKind::kGlobal) &&
         IsPacked(graph.GlobalName(graph.callable(id)));
}

// The texts of a set, which older protocols make by a call.
std::set<std::string_view> TextsOf(const Graph& graph, NodeId id) {
  std::set<std::string_view> texts;
  if (id == Graph::kNoNode) return texts;
  const bool call = graph.Is(id, NodeKind::kCall);
  for (const NodeId item : graph.Items(call ? graph.args(id) : id)) {
    for (const NodeId text : call ? graph.Items(item) : std::span<const NodeId>(&item, 1)) {
      if (graph.Is(text, NodeKind::kText)) texts.insert(graph.Text(text));
    }
  }
  return texts;
}

}  // namespace

bool RebuildsTensor(std::string_view name) {
  return name.starts_with("torch._utils._rebuild_") ||
         name.starts_with("torch._tensor._rebuild_") || name == "torch.storage._load_from_bytes";
}

bool IsPacked(std::string_view name) {
  return name.starts_with("__torch__.torch.classes.") || name.ends_with(".ScriptObject") ||
         name.find("PackedParams") != name.npos;
}

bool IsModule(const Graph& graph, NodeId id) {
  const NodeId state = graph.state(id), callable = graph.callable(id);
  if (state == Graph::kNoNode || !graph.Is(state, NodeKind::kDict)) return false;
  if (graph.Is(callable, NodeKind::kGlobal) && graph.GlobalName(callable).starts_with("__torch__."))
    return true;
  return graph.Member(id, "_parameters") != Graph::kNoNode &&
         graph.Member(id, "_modules") != Graph::kNoNode;
}

StatusOr<ModuleMembers> ReadModule(const Graph& graph, NodeId id, const std::vector<bool>& holds) {
  const bool script = graph.Member(id, "_parameters") == Graph::kNoNode;
  constexpr std::array<std::string_view, 3> kParts{"_parameters", "_buffers", "_modules"};
  const auto hidden = TextsOf(graph, graph.Member(id, "_non_persistent_buffers_set"));
  ModuleMembers members;
  for (const std::string_view part : kParts) {
    const NodeId dict = graph.Member(id, part);
    if (dict == Graph::kNoNode || !holds[dict]) continue;
    ZT_ASSIGN_OR_RETURN(const std::vector<NodeId> pairs, PairsOf(graph, dict));
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const bool is_hidden = part == "_buffers" && graph.Is(pairs[i], NodeKind::kText) &&
                             hidden.contains(graph.Text(pairs[i]));
      if (holds[pairs[i + 1]] && !is_hidden)
        members.pairs.insert(members.pairs.end(), {pairs[i], pairs[i + 1]});
    }
  }
  const auto all = graph.Items(graph.state(id));
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
    if (!holds[all[i + 1]] || !graph.Is(all[i], NodeKind::kText)) continue;
    const std::string_view name = graph.Text(all[i]);
    if (script ? IsScriptMember(graph, all[i + 1]) : IsPackedObject(graph, all[i + 1])) {
      members.pairs.insert(members.pairs.end(), {all[i], all[i + 1]});
    } else if (name != "_flat_weights" &&  // those of recurrent layers, which are parameters
               (script || std::ranges::find(kParts, name) == kParts.end())) {
      members.others.push_back(name);
    }
  }
  return members;
}

StatusOr<std::vector<NodeId>> PairsOf(const Graph& graph, NodeId id) {
  std::vector<NodeId> pairs;
  const bool call = graph.Is(id, NodeKind::kCall);
  if (!call && !graph.Is(id, NodeKind::kDict)) return InvalidData("is no dict");
  const auto args = call ? graph.Items(graph.args(id)) : std::span<const NodeId>();
  if (!args.empty() && !graph.IsGlobal(graph.callable(id), "collections.defaultdict")) {
    const bool dict = graph.Is(args[0], NodeKind::kDict);
    for (const NodeId item : graph.Items(args[0])) {
      if (dict) {
        pairs.push_back(item);
        continue;
      }
      const auto pair = graph.Items(item);  // OrderedDict([[key, value], ...])
      if (pair.size() != 2) return InvalidData("is a dict with items that are not pairs");
      pairs.insert(pairs.end(), pair.begin(), pair.end());
    }
  }
  const auto items = graph.Items(id);
  if (call && !items.empty() && !graph.has_pairs(id))
    return InvalidData("is a dict to which a list was added");
  pairs.insert(pairs.end(), items.begin(), items.end());
  return pairs;
}

}  // namespace zt::torch::internal
