// zt.convert.torch:contents — what a checkpoint's pickle says: storages, tensors as views of them, and values; and the
// calls in it that make tensors.
module;

#include "core/name_table.h"

module zt.convert.torch:contents;

import zt.std;
import :pickle;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// Bytes that tensors are views of. They lie in the container under `key`.
struct Storage {
  std::string key;
  std::uint64_t width = 1;            // bytes of an element as the container counts them
  std::uint64_t count = 0;            // such elements
  std::shared_ptr<ByteSource> bytes;  // of a numpy array, which lay in the pickle; else null
  bool big_endian = false;            // of `bytes`
};

// Elements of a storage, as a tensor looks at them.
struct StorageView {
  std::uint32_t storage = 0;  // index into Contents::storages
  std::uint64_t first = 0;    // byte of the first element in the storage
  std::uint64_t window = 0;   // bytes of the storage from its beginning that the view may reach
  ElementType element;
  Shape shape;
  Shape strides;  // in elements
};

enum class Layout : std::uint8_t { kDense, kCoo, kCsr };

// One tensor: a view, or the views that make up a sparse one.
struct Tensor {
  std::string name;
  Layout layout = Layout::kDense;
  Shape shape;
  StorageView values;             // of a dense tensor the whole of it
  StorageView indices, pointers;  // of a sparse one; a coo tensor's `indices` are its coordinates
  std::string problem;            // why it can be listed but not converted; empty where it can
  std::string foreign;            // the class of an object that is no tensor, but holds some
};

// All of a checkpoint.
struct Contents {
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;        // in the order of the tree
  Value::Map attributes;              // numbers, texts, flags, and lists of these
  NameList left_out;                  // what became neither, with the reason
  std::vector<std::string> warnings;  // whole sentences
};

// What the graph describes, each tensor and value under its path in the tree. A tensor that is the whole tree is named
// `stem`. Errors name the path. Arrays that lie in the pickle itself are held in memory, half of `memory_limit` at most.
StatusOr<Contents> ReadContents(const Graph& graph, std::string_view stem,
                                std::uint64_t memory_limit);

// The bytes a dense array of these elements takes for each element of its shape.
std::uint64_t WidthOf(const ElementType& element);

// ---- calls that make tensors -----------------------------------------------------------------------------------

// True where the call `id` makes an array of numpy's.
bool IsNumpyArray(const Graph& graph, NodeId id);
// Of a dtype that tensors have, or one like it that is not supported; not an array of texts, objects or dates.
bool IsNumericArray(const Graph& graph, NodeId id);

// The element type that the global "torch.NAME" is; kUnimplemented where zTensor has none.
StatusOr<ElementType> ReadDtype(const Graph& graph, NodeId id);

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
  // What a persistent node refers to: a storage, or bytes of one.
  struct StorageRef {
    std::uint32_t storage = 0;           // index into Contents::storages
    std::optional<ElementType> element;  // nothing for bytes without a type
    std::uint64_t first = 0, end = 0;    // bytes of the storage
  };
  // kUnimplemented for what is no storage.
  StatusOr<StorageRef> ReadStorage(NodeId id);

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
  // The texts are the graph's.
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_key_;
  std::unordered_map<NodeId, std::uint32_t> by_key_node_;
  std::uint64_t room_;
  // Of arrays: twice the node that has the bytes, and 1 more where they are big-endian.
  std::unordered_map<std::uint64_t, std::uint32_t> arrays_;
};

}  // namespace zt::torch::internal
