// zt.convert.torch:contents — tensors that are spread over ranks (DTensor, ShardedTensor), of which a
// pickle holds one rank's part.
module;

#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import zt.convert.parts;
import zt.core;

namespace zt::torch::internal {
namespace {

constexpr std::string_view kAdvice = "; save its full_tensor()";

// A whole number from 0 up.
std::optional<std::uint64_t> Count(const Graph& graph, NodeId id) {
  if (id == Graph::kNoNode || !graph.Is(id, NodeKind::kInt) || graph.Int(id) < 0)
    return std::nullopt;
  return static_cast<std::uint64_t>(graph.Int(id));
}

// The name of a placement's class: "Shard"; empty if it is none of torch's.
std::string PlacementName(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kCall) || !graph.Is(graph.callable(id), NodeKind::kGlobal)) return "";
  const std::string name = graph.GlobalName(graph.callable(id));
  for (const std::string_view module :
       {"torch.distributed.tensor.placement_types.", "torch.distributed._tensor.placement_types.",
        "torch._C._distributed."}) {
    if (name.starts_with(module)) return name.substr(module.size());
  }
  return "";
}

Status NotUnderstood(std::string_view what) {
  return Unsupported("it is one rank's part of a DTensor, whose " + std::string(what) +
                     " is not understood" + std::string(kAdvice));
}

}  // namespace

StatusOr<std::optional<Tensor>> TensorReader::ReadRank(NodeId type, NodeId state, int depth) {
  if (graph_.IsOneOf(
          type, {"torch.distributed.tensor.DTensor", "torch.distributed.tensor._api.DTensor",
                 "torch.distributed._tensor.api.DTensor", "torch.distributed._tensor.DTensor"})) {
    return ReadDTensor(state, depth);
  }
  if (graph_.IsGlobal(type, "torch.distributed._shard.sharded_tensor.api.ShardedTensor")) {
    return ReadShardedTensor(state, depth);
  }
  return std::optional<Tensor>();
}

// The tensor that a rank holds, marked as a part.
StatusOr<std::optional<Tensor>> TensorReader::ReadLocal(NodeId id, const Part& part,
                                                        std::string_view kind, int depth) {
  std::optional<Tensor> local;
  if (id != Graph::kNoNode) {
    ZT_ASSIGN_OR_RETURN(local, Read(id, depth + 1));
  }
  if (!local || local->layout != Layout::kDense ||
      FindMember(local->attributes, kPart) != nullptr) {
    return Unsupported("it is one rank's part of a " + std::string(kind) +
                       ", and not one dense tensor" + std::string(kAdvice));
  }
  local->attributes.emplace_back(std::string(kPart), ToValue(part));
  return local;
}

// The sizes of a mesh of ranks. Newer versions of torch keep its layout, older ones its ranks.
StatusOr<Shape> TensorReader::ReadMesh(NodeId mesh) const {
  const NodeId layout = graph_.Member(mesh, "_layout");
  Shape sizes;
  if (layout == Graph::kNoNode) {
    NodeId ranks = graph_.Member(mesh, "mesh");
    if (ranks == Graph::kNoNode) ranks = graph_.Member(mesh, "_mesh");
    if (ranks == Graph::kNoNode || !graph_.IsCallOf(ranks, "torch._utils._rebuild_tensor_v2") ||
        graph_.Items(graph_.args(ranks)).size() < 3) {
      return NotUnderstood("mesh");
    }
    return ReadSizes(graph_.Items(graph_.args(ranks))[2]);
  }
  // A layout of several axes, each of one size or of several; before, all sizes at once.
  const NodeId axes = graph_.Member(layout, "axes"), whole = graph_.Member(layout, "shape");
  const auto product = [&](NodeId shape) -> StatusOr<std::uint64_t> {
    if (const auto one = Count(graph_, shape)) return *one;
    if (shape == Graph::kNoNode) return NotUnderstood("mesh");
    ZT_ASSIGN_OR_RETURN(const Shape each, ReadSizes(shape));
    const auto count = ElementCount(each);
    if (!count) return NotUnderstood("mesh");
    return *count;
  };
  if (axes == Graph::kNoNode && whole == Graph::kNoNode) return NotUnderstood("mesh");
  if (axes == Graph::kNoNode && Count(graph_, whole)) return Shape{*Count(graph_, whole)};
  for (const NodeId axis : graph_.Items(axes == Graph::kNoNode ? whole : axes)) {
    if (sizes.size() == kMaxRank) return NotUnderstood("mesh");
    ZT_ASSIGN_OR_RETURN(const std::uint64_t size,
                        product(axes == Graph::kNoNode ? axis : graph_.Member(axis, "shape")));
    sizes.push_back(size);
  }
  return sizes;
}

// The state has the local tensor, and a specification: the mesh of ranks with the place of this one,
// how the tensor is placed along each dimension of the mesh, and its shape. Shard(d) cuts dimension
// d into equal chunks, of which the last may be smaller or empty.
StatusOr<std::optional<Tensor>> TensorReader::ReadDTensor(NodeId state, int depth) {
  const NodeId spec = graph_.Member(state, "_spec");
  const NodeId meta = graph_.Member(spec, "tensor_meta"), mesh = graph_.Member(spec, "mesh"),
               placements = graph_.Member(spec, "placements");
  if (meta == Graph::kNoNode || mesh == Graph::kNoNode || placements == Graph::kNoNode ||
      !graph_.Is(meta, NodeKind::kCall) || graph_.Items(graph_.args(meta)).size() < 3) {
    return NotUnderstood("specification");
  }
  ZT_ASSIGN_OR_RETURN(const Shape shape, ReadSizes(graph_.Items(graph_.args(meta))[0]));
  ZT_ASSIGN_OR_RETURN(const Shape sizes, ReadMesh(mesh));
  const NodeId coordinate = graph_.Member(mesh, "_coordinate_on_dim");
  if (coordinate == Graph::kNoNode || graph_.Is(coordinate, NodeKind::kNone)) {
    return NotUnderstood("place in the mesh");
  }
  ZT_ASSIGN_OR_RETURN(const Shape place, ReadSizes(coordinate));
  // Newer versions of torch say which dimension of the mesh cuts a dimension of the tensor first.
  const NodeId order = graph_.Member(spec, "shard_order");
  const auto dims = order == Graph::kNoNode ? std::span<const NodeId>() : graph_.Items(order);
  for (const NodeId dim : dims) {
    if (dims.size() > kMaxRank || !graph_.Is(dim, NodeKind::kCall) ||
        graph_.Items(graph_.args(dim)).size() != 2) {
      return NotUnderstood("order of shards");
    }
    ZT_ASSIGN_OR_RETURN(const Shape cuts, ReadSizes(graph_.Items(graph_.args(dim))[1]));
    if (!std::ranges::is_sorted(cuts)) return NotUnderstood("order of shards");
  }
  const auto each = graph_.Items(placements);
  if (each.size() != sizes.size() || place.size() != sizes.size()) return NotUnderstood("mesh");
  Part part{.offsets = Shape(shape.size(), 0), .shape = shape};
  Shape box = shape;
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    const std::string name = PlacementName(graph_, each[m]);
    if (sizes[m] == 0 || place[m] >= sizes[m]) return NotUnderstood("place in the mesh");
    if (name == "Replicate" || sizes[m] == 1) {
      part.copies = CheckedMul(part.copies, sizes[m]).value_or(~std::uint64_t{0});
      continue;
    }
    if (name.ends_with("Partial")) {
      return Unsupported(
          "it is one rank's part of a DTensor, whose values are those of all ranks "
          "together (" +
          name + ")" + std::string(kAdvice));
    }
    const auto dim = Count(graph_, graph_.Member(each[m], "dim"));
    if (name != "Shard" || !dim || *dim >= shape.size()) {
      return Unsupported("it is one rank's part of a DTensor with the placement " +
                         (name.empty() ? std::string("of another class") : name) +
                         std::string(kAdvice));
    }
    const std::uint64_t chunk = box[*dim] / sizes[m] + (box[*dim] % sizes[m] == 0 ? 0 : 1);
    const std::uint64_t begin = chunk == 0 || place[m] > box[*dim] / chunk
                                    ? box[*dim]
                                    : std::min(box[*dim], chunk * place[m]);
    part.offsets[*dim] += begin;
    box[*dim] = std::min(chunk, box[*dim] - begin);
  }
  ZT_ASSIGN_OR_RETURN(auto local,
                      ReadLocal(graph_.Member(state, "_local_tensor"), part, "DTensor", depth));
  if (local->shape != box) {
    return InvalidData("it is one rank's part of a DTensor, of shape " + ToString(local->shape) +
                       ", and " + ToString(box) + " by its placements");
  }
  return local;
}

// The state has a list of shards, and metadata of the whole.
StatusOr<std::optional<Tensor>> TensorReader::ReadShardedTensor(NodeId state, int depth) {
  const auto refuse = [](std::string_view what) {
    return Unsupported("it is one rank's part of a ShardedTensor, " + std::string(what) +
                       "; save a full state_dict");
  };
  const auto parts = graph_.Items(state);
  if (!graph_.Is(state, NodeKind::kTuple) || parts.size() < 2 ||
      !graph_.Is(parts[0], NodeKind::kList)) {
    return refuse("whose state is not understood");
  }
  const auto shards = graph_.Items(parts[0]);
  if (shards.empty()) {  // there are more ranks than rows
    const NodeId whole = graph_.Member(parts[1], "size"),
                 properties = graph_.Member(parts[1], "tensor_properties");
    if (whole == Graph::kNoNode || properties == Graph::kNoNode ||
        !graph_.Is(properties, NodeKind::kCall)) {
      return refuse("whose state is not understood");
    }
    const NodeId values = graph_.state(properties);
    if (values == Graph::kNoNode || graph_.Items(values).empty()) {
      return refuse("whose state is not understood");
    }
    Part none;
    ZT_ASSIGN_OR_RETURN(none.shape, ReadSizes(whole));
    if (none.shape->empty()) return refuse("which has no shard");
    none.offsets = Shape(none.shape->size(), 0);
    none.offsets[0] = (*none.shape)[0];
    Tensor tensor;
    ZT_ASSIGN_OR_RETURN(tensor.values.element, ReadDtype(graph_, graph_.Items(values)[0]));
    tensor.shape = *none.shape;
    tensor.shape[0] = 0;
    tensor.values.shape = tensor.shape;
    tensor.problem = Unsupported("this rank has no part of it");
    tensor.attributes.emplace_back(std::string(kPart), ToValue(none));
    return std::optional(std::move(tensor));
  }
  if (shards.size() != 1) return refuse("which has " + std::to_string(shards.size()) + " shards");
  const NodeId size = graph_.Member(parts[1], "size"),
               offsets = graph_.Member(graph_.Member(shards[0], "metadata"), "shard_offsets");
  if (offsets == Graph::kNoNode || size == Graph::kNoNode) {
    return refuse("whose state is not understood");
  }
  Part part;
  ZT_ASSIGN_OR_RETURN(part.offsets, ReadSizes(offsets));
  ZT_ASSIGN_OR_RETURN(part.shape, ReadSizes(size));
  return ReadLocal(graph_.Member(shards[0], "tensor"), part, "ShardedTensor", depth);
}

}  // namespace zt::torch::internal
