// zt.convert.torch:contents — interprets the functions that torch's pickles call
// to rebuild tensors.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import zt.core;

namespace zt::torch::internal {
namespace {

// Limit on nested wrappers, such as a Parameter of a Parameter; torch writes at most two levels.
constexpr int kMaxWrappers = 8;
// Limit on the members of a tensor's metadata; torch writes two.
constexpr std::size_t kMostMetadata = 64;
// Limit on the bytes of a name in an error.
constexpr std::size_t kMostOfName = 64;

Status Malformed(std::string_view what) {
  return InvalidData("the call that makes it is malformed: " + std::string(what));
}

// The storage type in "torch.FloatStorage" or "torch.cuda.HalfStorage": "Float", "Half".
std::optional<std::string> StorageClass(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kGlobal)) return std::nullopt;
  const std::string name = graph.GlobalName(id);
  for (const std::string_view module : {"torch.storage.", "torch.cuda.", "torch."}) {
    if (!name.starts_with(module) || !name.ends_with("Storage")) continue;
    return name.substr(module.size(), name.size() - module.size() - 7);
  }
  return std::nullopt;
}

}  // namespace

StatusOr<ElementType> ReadDtype(const Graph& graph, NodeId id) {
  if (id == Graph::kNoNode || !graph.Is(id, NodeKind::kGlobal))
    return InvalidData("it has no dtype");
  const std::string name = graph.GlobalName(id);
  const auto known = name.starts_with("torch.") ? ParseTorchDtype(name.substr(6)) : std::nullopt;
  if (!known) {
    return Unsupported("its dtype " + Quote(name) + " is not supported; save it with another");
  }
  return *known;
}

StatusOr<Shape> TensorReader::ReadSizes(NodeId id) const {
  if (graph_.Is(id, NodeKind::kCall) && graph_.IsGlobal(graph_.callable(id), "torch.Size")) {
    const auto args = graph_.Items(graph_.args(id));
    if (args.size() != 1) return Malformed("torch.Size does not have one argument");
    id = args[0];
  }
  if (!graph_.Is(id, NodeKind::kTuple) && !graph_.Is(id, NodeKind::kList)) {
    return Malformed("a shape or its strides are not a tuple");
  }
  Shape sizes;
  for (const NodeId item : graph_.Items(id)) {
    if (!graph_.Is(item, NodeKind::kInt) || graph_.Int(item) < 0) {
      return Malformed("a dimension or stride is not a whole number from 0 up");
    }
    if (sizes.size() == kMaxRank) return Unsupported("it has more than 64 dimensions");
    sizes.push_back(static_cast<std::uint64_t>(graph_.Int(item)));
  }
  return sizes;
}

StatusOr<TensorReader::StorageRef> TensorReader::ReadStorage(NodeId id) {
  if (!graph_.Is(id, NodeKind::kPersistent)) {
    if (graph_.Is(id, NodeKind::kCall)) {
      return Unsupported("its storage is made by " +
                         (graph_.Is(graph_.callable(id), NodeKind::kGlobal)
                              ? graph_.GlobalName(graph_.callable(id))
                              : std::string("a call")) +
                         "; load it and save its state_dict()");
    }
    return Malformed("it has no storage");
  }
  const NodeId tuple = graph_.identifier(id);
  const auto parts = graph_.Items(tuple);
  if (!graph_.Is(tuple, NodeKind::kTuple) || parts.size() < 5 ||
      !graph_.Is(parts[0], NodeKind::kText) || graph_.Text(parts[0]) != "storage") {
    return Malformed("its storage's identifier is not ('storage', class, key, place, count)");
  }
  const std::optional<std::string> kind = StorageClass(graph_, parts[1]);
  if (!kind) return Unsupported("its storage is of an unknown class");
  StorageRef ref;
  if (*kind != "Untyped") {
    ref.element = ParseTorchDtype(*kind);
    if (!ref.element)
      return Unsupported("its storage is a torch." + *kind + "Storage, which is not supported");
  }
  if (!graph_.Is(parts[2], NodeKind::kText) || !graph_.Is(parts[4], NodeKind::kInt) ||
      graph_.Int(parts[4]) < 0) {
    return Malformed("its storage's key or count is wrong");
  }
  Storage storage;
  storage.width = ref.element ? ElementBytes(*ref.element) : 1;
  storage.count = static_cast<std::uint64_t>(graph_.Int(parts[4]));
  const auto bytes = CheckedMul(storage.width, storage.count);
  if (!bytes) return Malformed("its storage's size overflows 64 bits");
  ref.end = *bytes;
  // In the legacy stream a storage can be part of another; offset and count are in elements.
  if (parts.size() > 5 && graph_.Is(parts[5], NodeKind::kTuple)) {
    const auto part = graph_.Items(parts[5]);
    if (part.size() != 3 || !graph_.Is(part[1], NodeKind::kInt) ||
        !graph_.Is(part[2], NodeKind::kInt) || graph_.Int(part[1]) < 0 || graph_.Int(part[2]) < 0) {
      return Malformed("its storage's part is not (key, offset, count)");
    }
    const auto offset = static_cast<std::uint64_t>(graph_.Int(part[1]));
    const auto count = static_cast<std::uint64_t>(graph_.Int(part[2]));
    if (offset > storage.count || count > storage.count - offset) {
      return InvalidData("its storage is a part that lies outside the whole");
    }
    ref.first = offset * storage.width;
    ref.end = ref.first + count * storage.width;
  }
  ZT_ASSIGN_OR_RETURN(ref.storage, AddStorage(std::move(storage), parts[2]));
  return ref;
}

// The number of a storage, on whose size and dtype all tensors must agree. Many tensors may share
// the text of a key, which is hashed once.
StatusOr<std::uint32_t> TensorReader::AddStorage(Storage storage, NodeId key) {
  const auto next = static_cast<std::uint32_t>(storages_.size());
  const auto [known, unseen] = by_key_node_.emplace(key, next);
  if (unseen) known->second = by_key_.emplace(graph_.Text(key), next).first->second;
  if (known->second == next) {
    storage.key = graph_.Text(key);
    storages_.push_back(std::move(storage));
  } else if (const Storage& old = storages_[known->second];
             old.width * old.count != storage.width * storage.count) {
    return InvalidData("storage " + Quote(old.key) + " is said to have " +
                       std::to_string(old.width * old.count) + " bytes and " +
                       std::to_string(storage.width * storage.count));
  }
  return known->second;
}

// Reads a tensor's view of its storage, and checks it against the storage's size.
Status TensorReader::ReadView(const Arguments& args, StorageView& view) {
  ZT_ASSIGN_OR_RETURN(StorageRef ref, ReadStorage(args.nodes[args.storage]));
  if (args.dtype) {
    ZT_ASSIGN_OR_RETURN(ref.element, ReadDtype(graph_, args.nodes[*args.dtype]));
  }
  if (!ref.element) return Malformed("neither its storage nor the call has a dtype");
  view.storage = ref.storage;
  view.window = ref.end;
  view.element = *ref.element;
  ZT_ASSIGN_OR_RETURN(view.shape, ReadSizes(args.nodes[args.size]));
  ZT_ASSIGN_OR_RETURN(view.strides, ReadSizes(args.nodes[args.stride]));
  if (view.shape.size() != view.strides.size()) {
    return Malformed("its shape and its strides differ in length");
  }
  const NodeId offset = args.nodes[args.offset];
  if (!graph_.Is(offset, NodeKind::kInt) || graph_.Int(offset) < 0) {
    return Malformed("its offset is not a whole number from 0 up");
  }
  const std::uint64_t width = ElementBytes(view.element), first = ref.first;
  std::optional<std::uint64_t> end = static_cast<std::uint64_t>(graph_.Int(offset)), last = end;
  bool empty = false;
  for (std::size_t k = 0; k < view.shape.size(); ++k) {
    if (view.shape[k] == 0) empty = true;
    if (view.shape[k] < 2 || !last) continue;
    const auto reach = CheckedMul(view.shape[k] - 1, view.strides[k]);
    last = reach ? CheckedAdd(*last, *reach) : std::nullopt;
  }
  if (empty) {
    view.first = 0;
    return OkStatus();
  }
  if (last) end = CheckedAdd(*last, 1);
  if (last && end) end = CheckedMul(*end, width);
  if (last && end) end = CheckedAdd(*end, first);
  if (!last || !end || *end > view.window) {
    return InvalidData("shape " + ToString(view.shape) + " with strides " + ToString(view.strides) +
                       " from element " + std::to_string(graph_.Int(offset)) +
                       " reaches beyond its storage of " + std::to_string(view.window - first) +
                       " bytes");
  }
  view.first = first + static_cast<std::uint64_t>(graph_.Int(offset)) * width;
  return OkStatus();
}

// Flags that mean that the stored values are not the tensor's values.
Status TensorReader::MetadataProblem(NodeId metadata) const {
  if (!graph_.Is(metadata, NodeKind::kDict)) return OkStatus();
  const auto items = graph_.Items(metadata);
  // Many tensors may share the metadata: a long one would be searched for each.
  if (items.size() > 2 * kMostMetadata) return Unsupported("its metadata has too many members");
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (!graph_.Is(items[i], NodeKind::kText)) continue;
    const std::string_view key = graph_.Text(items[i]);
    const bool set = !graph_.Is(items[i + 1], NodeKind::kBool) || graph_.Int(items[i + 1]) != 0;
    if ((key == "conj" || key == "neg") && set) {
      return Unsupported("its " + std::string(key) +
                         " bit is set: the stored values are not its own; save it with resolve_" +
                         std::string(key) + "()");
    }
  }
  return OkStatus();
}

StatusOr<Tensor> TensorReader::ReadDense(const Arguments& args) {
  Tensor tensor;
  if (args.hooks && holds_[args.nodes[*args.hooks]]) return Unsupported("its hooks hold tensors");
  ZT_RETURN_IF_ERROR(ReadView(args, tensor.values));
  tensor.shape = tensor.values.shape;
  if (args.metadata && args.nodes.size() > *args.metadata) {
    tensor.problem = MetadataProblem(args.nodes[*args.metadata]);
  }
  if (args.qscheme) {
    tensor.problem = Unsupported(
        "it is quantized, and its scales lie outside its bytes; save it dequantized "
        "(dequantize())");
  }
  return tensor;
}

StatusOr<Tensor> TensorReader::ReadMeta(std::span<const NodeId> args) {
  if (args.size() < 2) return Malformed("arguments are missing");
  Tensor tensor;
  ZT_ASSIGN_OR_RETURN(tensor.values.element, ReadDtype(graph_, args[0]));
  ZT_ASSIGN_OR_RETURN(tensor.shape, ReadSizes(args[1]));
  tensor.values.shape = tensor.shape;
  tensor.problem = Unsupported("it is on the meta device: it has no values");
  return tensor;
}

StatusOr<StorageView> TensorReader::ReadPart(NodeId id, std::string_view what, int depth) {
  ZT_ASSIGN_OR_RETURN(std::optional<Tensor> part, Read(id, depth + 1));
  if (!part || part->layout != Layout::kDense || !part->problem.ok()) {
    return Malformed("its " + std::string(what) + " are not a dense tensor");
  }
  return std::move(part->values);
}

// (layout, (indices, values, size[, coalesced])) or (layout, (pointers, indices, values, size)).
StatusOr<Tensor> TensorReader::ReadSparse(std::span<const NodeId> args, bool csr_only, int depth) {
  if (args.size() < 2 || !graph_.Is(args[1], NodeKind::kTuple)) {
    return Malformed("arguments are missing");
  }
  NodeId layout = args[0];
  if (graph_.Is(layout, NodeKind::kCall) && graph_.Items(graph_.args(layout)).size() == 1 &&
      graph_.IsGlobal(graph_.callable(layout), "torch.serialization._get_layout")) {
    layout = graph_.Items(graph_.args(layout))[0];
  }
  const auto is_layout = [&](std::string_view known) {
    return graph_.Is(layout, NodeKind::kText) ? graph_.Text(layout) == known
                                              : graph_.IsGlobal(layout, known);
  };
  const auto parts = graph_.Items(args[1]);
  Tensor tensor;
  if (is_layout("torch.sparse_coo") && !csr_only) {
    if (parts.size() < 3) return Malformed("parts are missing");
    tensor.layout = Layout::kCoo;
    ZT_ASSIGN_OR_RETURN(tensor.indices, ReadPart(parts[0], "indices", depth));
    ZT_ASSIGN_OR_RETURN(tensor.values, ReadPart(parts[1], "values", depth));
    ZT_ASSIGN_OR_RETURN(tensor.shape, ReadSizes(parts[2]));
  } else if (is_layout("torch.sparse_csr") || (is_layout("torch.sparse_csc") && !csr_only)) {
    if (parts.size() < 4) return Malformed("parts are missing");
    tensor.layout = is_layout("torch.sparse_csr") ? Layout::kCsr : Layout::kCsc;
    ZT_ASSIGN_OR_RETURN(tensor.pointers, ReadPart(parts[0], "pointers", depth));
    ZT_ASSIGN_OR_RETURN(tensor.indices, ReadPart(parts[1], "indices", depth));
    ZT_ASSIGN_OR_RETURN(tensor.values, ReadPart(parts[2], "values", depth));
    ZT_ASSIGN_OR_RETURN(tensor.shape, ReadSizes(parts[3]));
  } else {
    const std::string name =
        graph_.Is(layout, NodeKind::kText) ? Quote(graph_.Text(layout).substr(0, kMostOfName)) + " "
        : graph_.Is(layout, NodeKind::kGlobal) ? Quote(graph_.GlobalName(layout)) + " "
                                               : std::string();
    return Unsupported("its layout " + name +
                       "is not supported; save it dense or with to_sparse_csr()");
  }
  return tensor;
}

// _rebuild_from_type_v2(function, type, args, state) calls the function for a subclass of Tensor:
// replaces it by the function and its arguments, if these are the bytes of an ordinary tensor.
Status TensorReader::Unwrap(NodeId& callable, NodeId& tuple, NodeId& state) const {
  const bool v2 = graph_.IsGlobal(callable, "torch._tensor._rebuild_from_type_v2");
  if (!v2 && !graph_.IsGlobal(callable, "torch._tensor._rebuild_from_type")) return OkStatus();
  const auto args = graph_.Items(tuple);
  if (args.size() != 4 || !graph_.Is(args[2], NodeKind::kTuple)) {
    return Malformed("arguments are missing");
  }
  // Other functions make wrappers, whose values are computed of other tensors.
  if (!graph_.IsOneOf(args[1], {"torch.Tensor", "torch._tensor.Tensor",
                                "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer"}) &&
      !graph_.IsOneOf(args[0],
                      {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
                       "torch._utils._rebuild_tensor_v3", "torch._utils._rebuild_parameter"})) {
    return OkStatus();
  }
  callable = args[0];
  tuple = args[2];
  state = args[3];
  return OkStatus();
}

StatusOr<std::optional<Tensor>> TensorReader::Read(NodeId id, int depth) {
  if (depth > kMaxWrappers) return Unsupported("it is wrapped more than eight times");
  if (!graph_.Is(id, NodeKind::kCall)) return std::optional<Tensor>();
  if (IsNumpyArray(graph_, id)) return ReadArray(id);
  if (IsBytesObject(graph_, id)) return ReadBytes(id);
  NodeId callable = graph_.callable(id), tuple = graph_.args(id), state = graph_.state(id);
  ZT_RETURN_IF_ERROR(Unwrap(callable, tuple, state));
  const auto args = graph_.Items(tuple);
  if (args.size() == 4 && graph_.IsGlobal(callable, "torch._tensor._rebuild_from_type_v2")) {
    ZT_ASSIGN_OR_RETURN(std::optional<Tensor> part, ReadRank(args[1], args[3], depth));
    if (part || !graph_.Is(args[1], NodeKind::kGlobal)) return part;
    return Unsupported("its class " + Quote(graph_.GlobalName(args[1]).substr(0, kMostOfName)) +
                       " computes its values of other tensors, and no code is run: load it in "
                       "Python and save its dequantize(), or full_tensor() if it is spread over "
                       "ranks");
  }
  const bool with_state = graph_.IsGlobal(callable, "torch._utils._rebuild_parameter_with_state");
  ZT_ASSIGN_OR_RETURN(std::optional<Tensor> tensor, Rebuild(callable, args, depth));
  if (!tensor) return tensor;
  if (with_state && args.size() > 3) state = args[3];
  if (state != Graph::kNoNode) tensor->state = state;
  if (tensor->state != Graph::kNoNode && holds_[tensor->state]) {
    return Unsupported("attributes that were set on it hold tensors; save these beside it");
  }
  return tensor;
}

// The tensor that a function of torch makes of its arguments; nothing if it makes none.
StatusOr<std::optional<Tensor>> TensorReader::Rebuild(NodeId callable, std::span<const NodeId> args,
                                                      int depth) {
  const auto is = [&](std::string_view name) {
    return graph_.IsGlobal(callable, "torch._utils._rebuild_" + std::string(name));
  };
  const auto dense = [&](const Arguments& each, std::size_t least) -> StatusOr<Tensor> {
    if (args.size() < least) return Malformed("arguments are missing");
    return ReadDense(each);
  };
  StatusOr<Tensor> tensor = Tensor{};
  if (is("tensor")) {
    tensor = dense({.nodes = args}, 4);
  } else if (is("tensor_v2")) {
    tensor = dense({.nodes = args, .hooks = 5, .metadata = 6}, 6);
  } else if (is("tensor_v3")) {
    tensor = dense({.nodes = args, .hooks = 5, .dtype = 6, .metadata = 7}, 7);
  } else if (is("qtensor")) {
    tensor = dense({.nodes = args, .qscheme = 4}, 5);
  } else if (is("parameter") || is("parameter_with_state")) {
    if (args.size() < 3) return Malformed("arguments are missing");
    if (args.size() > 4) return Malformed("there are too many arguments");
    if (holds_[args[1]] || holds_[args[2]]) return Unsupported("its hooks hold tensors");
    return Read(args[0], depth + 1);
  } else if (is("sparse_tensor") || is("sparse_csr_tensor")) {
    tensor = ReadSparse(args, is("sparse_csr_tensor"), depth);
  } else if (is("meta_tensor_no_storage")) {
    tensor = ReadMeta(args);
  } else {
    return std::optional<Tensor>();
  }
  if (!tensor.ok()) return tensor.status();
  return std::optional<Tensor>(*std::move(tensor));
}

}  // namespace zt::torch::internal
