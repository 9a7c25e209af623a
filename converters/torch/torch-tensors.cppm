// zt.convert.torch:tensors — calls in a pickle that make tensors.
module;

#include "core/name_table.h"

module zt.convert.torch:tensors;

import zt.std;
import :contents;
import :pickle;
import zt.core;

namespace zt::torch::internal {

// True where the call `id` makes an array of numpy's.
bool IsNumpyArray(const Graph& graph, NodeId id);
// Of a dtype that tensors have, or one like it that is not supported; not an array of texts, objects or dates.
bool IsNumericArray(const Graph& graph, NodeId id);

// Recognises the calls that make tensors, and collects the storages they view. The graph has to outlive it.
class TensorReader {
 public:
  // `room` bounds the bytes of arrays that are held in memory.
  TensorReader(const Graph& graph, const std::vector<bool>& holds, std::vector<Storage>& storages,
               std::uint64_t room = 0)
      : graph_(graph), holds_(holds), storages_(storages), room_(room) {}

  // The tensor that the call `id` makes, without its name; nothing where the call makes none.
  StatusOr<std::optional<Tensor>> Read(NodeId id, int depth = 0);
  // The number that a call of numpy's makes, np.float64(2.5); nothing where it makes none.
  std::optional<Value> ReadScalar(NodeId id) const;
  // The elements of torch.Size, a tuple or a list; kDataLoss for anything but numbers from 0 on.
  StatusOr<Shape> ReadSizes(NodeId id) const;
  // The storage that the persistent node is; kUnimplemented for what is none.
  StatusOr<std::uint32_t> ReadStorage(NodeId id, ElementType& element, bool& typed,
                                      std::uint64_t& first, std::uint64_t& window);

 private:
  // What a rebuilding function is given, by place.
  struct Arguments {
    std::span<const NodeId> nodes;
    std::size_t storage = 0, offset = 1, size = 2, stride = 3;
    std::optional<std::size_t> hooks = std::nullopt, dtype = std::nullopt, metadata = std::nullopt,
                               qscheme = std::nullopt;
  };
  StatusOr<std::uint32_t> AddStorage(Storage storage, NodeId key);
  Status Unwrap(NodeId& callable, NodeId& tuple) const;
  StatusOr<Tensor> ReadDense(const Arguments& args);
  Status ReadView(const Arguments& args, StorageView& view);
  StatusOr<Tensor> ReadSparse(std::span<const NodeId> args, bool csr_only, int depth);
  StatusOr<Tensor> ReadMeta(std::span<const NodeId> args);
  StatusOr<std::optional<Tensor>> ReadArray(NodeId id);
  StatusOr<std::uint32_t> HoldArray(NodeId id, bool big_endian, std::uint64_t size);
  StatusOr<StorageView> ReadPart(NodeId id, std::string_view what, int depth);
  std::string MetadataProblem(NodeId metadata) const;

  const Graph& graph_;
  const std::vector<bool>& holds_;
  std::vector<Storage>& storages_;
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash>
      by_key_;  // the texts are the graph's
  std::unordered_map<NodeId, std::uint32_t> by_key_node_;
  std::uint64_t room_;
  // Of arrays: twice the node that has the bytes, and 1 more where they are big-endian.
  std::unordered_map<std::uint64_t, std::uint32_t> arrays_;
};

}  // namespace zt::torch::internal
