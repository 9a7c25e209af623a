// zt.convert.torch:contents — the contents of a checkpoint's pickle: storages, tensors (views of
// storages), attributes; and the calls in the pickle that make tensors.
module;

#include "core/name_table.h"

module zt.convert.torch:contents;

import zt.std;
import :pickle;
import zt.convert.parts;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// Bytes that tensors view. The container keeps them under `key`.
struct Storage {
  std::string key;
  std::uint64_t width = 1;            // element size in bytes, as the container counts
  std::uint64_t count = 0;            // number of elements
  std::shared_ptr<ByteSource> bytes;  // holds a numpy array's bytes; else null
  std::uint64_t offset = 0;           // of the array in `bytes`
  bool big_endian = false;            // the array's byte order
};

// A view of a storage's elements.
struct StorageView {
  std::uint32_t storage = 0;  // index into Contents::storages
  std::uint64_t first = 0;    // offset of the first element in the storage, in bytes
  std::uint64_t window = 0;   // limit on the view's end: offset in the storage, in bytes
  ElementType element;
  Shape shape;
  Shape strides;  // in elements
};

enum class Layout : std::uint8_t { kDense, kCoo, kCsr, kCsc };

// One tensor: a view, or the views that make up a sparse one.
struct Tensor {
  std::string name;
  Layout layout = Layout::kDense;
  Shape shape;
  StorageView values;             // of a dense tensor: all of it
  StorageView indices;            // of a sparse tensor; those of COO are coordinates, of CSC rows
  StorageView pointers;           // of CSR and CSC
  NodeId state = Graph::kNoNode;  // attributes that were set on it
  Value::Map attributes;          // those of `state` that are numbers, texts, flags
  Status problem;                 // why it cannot be converted; OK if it can
  std::string foreign;            // class of an object that wraps tensors; cannot be converted
};

// The names of a checkpoint's tensors so far.
class TensorNames {
 public:
  // The name itself, or if another tensor has it one by which this one can be left out: "NAME (2)".
  std::string Take(std::string name);

 private:
  std::unordered_map<std::string, std::size_t, zt::internal::NameHash> taken_;
};
// Why a tensor that did not get its own name cannot be converted.
Status TwinProblem(std::string_view own);

// The contents of a checkpoint.
struct Contents {
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;        // in the order of the pickle's tree
  Value::Map attributes;              // numbers, strings, bools, and lists of these
  NameList left_out;                  // values that became neither tensor nor attribute, and why
  std::vector<std::string> warnings;  // full sentences
};

// The dicts, lists and tuples of a checkpoint, so that it can be read as it was: Python's load.
class Containers {
 public:
  // Adds the container at `path`, which lies in the current one and becomes that. `kind` is "dict",
  // "list", "tuple", or of a dict with whole numbers as keys these.
  void Add(std::string_view path, Value kind);
  // Counts a tensor or an attribute of the current container.
  void Count();
  // Forgets all, for good.
  void Drop();
  // Adds the attribute "ztstream.state", {"containers": {path: kind}}, unless there is only a dict of
  // tensors, or names do not tell what lies where: in {"a": {"b.c": 1, "b": {}}} "a.b.c" would be in
  // "a.b".
  void AddTo(Contents& contents);

  std::size_t inside = 0;  // the number of the current container

 private:
  struct Container {
    std::string path;
    Value kind;
    std::uint64_t inside = 0;  // tensors, attributes and containers that lie in it
  };
  std::vector<Container> list_;
  bool dropped_ = false;
};

// The role of a pickle's root in the checkpoint.
enum class Root : std::uint8_t {
  kCheckpoint,  // a tree, whose paths are names; or one tensor, named by the file
  kMember,      // a value of a tree, under the name of the member
};

// The origin of a pickle's values.
struct PickleSource {
  std::string_view stem;  // the name of the file or the member
  Root root = Root::kCheckpoint;
  // Serves numpy arrays. If null, at most `room` bytes of them are held in memory.
  std::shared_ptr<ByteSource> file = nullptr;
  std::uint64_t room = 0;
  NameList left_out = {};  // of the pickles before: see Contents
};

// Reads the contents from the graph. Tensors and attributes are named by their paths in the tree;
// if the root itself is a tensor, its name is the stem. Errors name the path.
StatusOr<Contents> ReadContents(const Graph& graph, const PickleSource& from, Allowance& allowance);

// ---- modules, and dicts -------------------------------------------------------------------------

// True for a call that makes a module of torch.nn, or an object of TorchScript.
bool IsModule(const Graph& graph, NodeId id);
// What a module's state_dict() has, under the same names: its parameters, buffers and modules; in
// TorchScript these are attributes among others. Members without tensors are passed over.
struct ModuleMembers {
  std::vector<NodeId> pairs;             // names and values
  std::vector<std::string_view> others;  // attributes that hold tensors, and are not in it
};
StatusOr<ModuleMembers> ReadModule(const Graph& graph, NodeId id, const std::vector<bool>& holds);
// The keys and values of a dict, or of a call that makes one: those passed to it, then those added.
// kDataLoss, of which "it" is the subject, if there are others.
StatusOr<std::vector<NodeId>> PairsOf(const Graph& graph, NodeId id);
// True for the classes of a quantized layer's packed weights, which code of torch unpacks.
bool IsPacked(std::string_view name);
// True for functions that make tensors.
bool RebuildsTensor(std::string_view name);

// ---- calls that make tensors --------------------------------------------------------------------

// True if the call `id` makes a numpy array.
bool IsNumpyArray(const Graph& graph, NodeId id);
// True if the array's dtype is numeric, supported or not; false for strings, objects and dates.
bool IsNumericArray(const Graph& graph, NodeId id);

// True for an io.BytesIO, as Transformer Engine keeps scales in (`_extra_state`).
bool IsBytesObject(const Graph& graph, NodeId id);

// The element type of the global "torch.NAME"; kUnimplemented if zTensor has none.
StatusOr<ElementType> ReadDtype(const Graph& graph, NodeId id);

// Recognizes the calls that make tensors, and collects the storages that they view. The
// graph must outlive it.
class TensorReader {
 public:
  // `file` holds the pickle, and serves its arrays; if it is null, their bytes are held in memory,
  // `room` of them together.
  TensorReader(const Graph& graph, const std::vector<bool>& holds, std::vector<Storage>& storages,
               std::shared_ptr<ByteSource> file = nullptr, std::uint64_t room = 0)
      : graph_(graph), holds_(holds), storages_(storages), file_(std::move(file)), room_(room) {}

  // The tensor made by the call `id`, without its name; nothing if it makes none.
  StatusOr<std::optional<Tensor>> Read(NodeId id, int depth = 0);
  // The number made by a numpy call such as np.float64(2.5); nothing if it makes none.
  std::optional<Value> ReadScalar(NodeId id) const;
  // The elements of a torch.Size, tuple or list; kDataLoss unless all are integers of at least 0.
  StatusOr<Shape> ReadSizes(NodeId id) const;
  // The target of a persistent node: a storage, or a byte range of one.
  struct StorageRef {
    std::uint32_t storage = 0;           // index into Contents::storages
    std::optional<ElementType> element;  // nothing for untyped bytes
    std::uint64_t first = 0, end = 0;    // byte range in the storage
  };
  // kUnimplemented if the node is no storage.
  StatusOr<StorageRef> ReadStorage(NodeId id);

 private:
  // The arguments of a rebuild function, and the position of each.
  struct Arguments {
    std::span<const NodeId> nodes;
    std::size_t storage = 0, offset = 1, size = 2, stride = 3;
    std::optional<std::size_t> hooks = std::nullopt, dtype = std::nullopt, metadata = std::nullopt,
                               qscheme = std::nullopt;
  };
  StatusOr<std::uint32_t> AddStorage(Storage storage, NodeId key);
  Status Unwrap(NodeId& callable, NodeId& tuple, NodeId& state) const;
  StatusOr<std::optional<Tensor>> Rebuild(NodeId callable, std::span<const NodeId> args, int depth);
  StatusOr<Tensor> ReadDense(const Arguments& args);
  Status ReadView(const Arguments& args, StorageView& view);
  StatusOr<Tensor> ReadSparse(std::span<const NodeId> args, bool csr_only, int depth);
  StatusOr<Tensor> ReadMeta(std::span<const NodeId> args);
  StatusOr<std::optional<Tensor>> ReadArray(NodeId id);
  StatusOr<std::optional<Tensor>> ReadBytes(NodeId id);
  StatusOr<std::uint32_t> AddArray(NodeId id, bool big_endian, std::uint64_t size);
  Status Permute(NodeId axes, StorageView& view) const;
  StatusOr<StorageView> ReadPart(NodeId id, std::string_view what, int depth);
  Status MetadataProblem(NodeId metadata) const;
  StatusOr<std::optional<Tensor>> ReadRank(NodeId type, NodeId state, int depth);
  StatusOr<std::optional<Tensor>> ReadDTensor(NodeId state, int depth);
  StatusOr<std::optional<Tensor>> ReadShardedTensor(NodeId state, int depth);
  StatusOr<std::optional<Tensor>> ReadLocal(NodeId id, const Part& part, std::string_view kind,
                                            int depth);
  StatusOr<Shape> ReadMesh(NodeId mesh) const;

  const Graph& graph_;
  const std::vector<bool>& holds_;
  std::vector<Storage>& storages_;
  // The keys are views of the graph's strings.
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_key_;
  std::unordered_map<NodeId, std::uint32_t> by_key_node_;
  const std::shared_ptr<ByteSource> file_;
  std::uint64_t room_;
  // Numpy arrays by 2 * (node of the bytes) + (1 if big-endian).
  std::unordered_map<std::uint64_t, std::uint32_t> arrays_;
};

}  // namespace zt::torch::internal
