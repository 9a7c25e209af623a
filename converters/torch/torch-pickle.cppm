// zt.convert.torch:pickle — a pickle as a graph of nodes. Nothing is executed and no
// name is looked up.
module zt.convert.torch:pickle;

import zt.std;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// Index of a node in its graph.
using NodeId = std::uint32_t;

enum class NodeKind : std::uint8_t {
  kNone,
  kBool,
  kInt,     // fits 64 bits
  kBigInt,  // needs more than 64 bits: little-endian bytes
  kDouble,
  kText,
  kBytes,
  kGlobal,  // a class or function, by module and name; only compared
  kTuple,
  kList,
  kSet,
  kDict,
  kCall,        // a call of a class or function with its arguments
  kPersistent,  // an object outside the pickle: in torch's files a storage
};

// Limits on the memory that a hostile pickle can make us allocate; large
// checkpoints stay within them.
struct PickleLimits {
  std::uint64_t bytes = std::uint64_t{256} << 20;
  std::uint64_t nodes = std::uint64_t{32} << 20;
};

// The contents of a pickle. Nodes refer to each other, so a shared value is stored once. Lists,
// dicts and the state of calls can form cycles.
class Graph {
 public:
  // Reads one pickle of protocol 2 to 5 at `offset`. Reads no byte past its end from a sequential
  // source. kDataLoss if no pickler could have written it; kUnimplemented for opcodes that torch's
  // files never contain, and for a pickle beyond the limits.
  static StatusOr<Graph> Read(ByteSource& bytes, std::uint64_t offset,
                              const PickleLimits& limits = {});

  // The node of the pickled object.
  inline NodeId root() const { return root_; }
  // The pickle's size in bytes.
  inline std::uint64_t size() const { return size_; }
  inline std::size_t node_count() const { return nodes_.size(); }

  inline NodeKind kind(NodeId id) const { return nodes_[id].kind; }
  inline bool Is(NodeId id, NodeKind kind) const { return nodes_[id].kind == kind; }
  // For kBool and kInt.
  inline std::int64_t Int(NodeId id) const { return static_cast<std::int64_t>(nodes_[id].value); }
  double Double(NodeId id) const;
  // For kText, kBytes and kBigInt; valid while the graph lives.
  std::string_view Text(NodeId id) const;
  // For kGlobal: "module.name".
  std::string GlobalName(NodeId id) const;
  // True if `id` is the global "module.name".
  bool IsGlobal(NodeId id, std::string_view name) const;
  bool IsOneOf(NodeId id, std::initializer_list<std::string_view> names) const;
  // Elements of a kTuple, kList or kSet; alternating keys and values of a kDict; for a kCall, the
  // items added after the call (see has_pairs()).
  std::span<const NodeId> Items(NodeId id) const;
  // True if a kCall's items alternate between keys and values.
  inline bool has_pairs(NodeId id) const { return nodes_[id].pairs; }

  // For kCall: the class or function, the tuple of arguments, and the state set later (or kNoNode).
  inline NodeId callable(NodeId id) const { return nodes_[id].a; }
  inline NodeId args(NodeId id) const { return nodes_[id].b; }
  NodeId state(NodeId id) const;
  // For kPersistent: its identifier.
  inline NodeId identifier(NodeId id) const { return nodes_[id].a; }

  // For each node: true if a node for which `holds` returns true can be reached from it. Linear in
  // the size of the graph.
  std::vector<bool> HoldersOf(const std::function<bool(NodeId)>& holds) const;

  static constexpr NodeId kNoNode = ~NodeId{0};

 private:
  friend class Machine;

  struct Node {
    NodeKind kind = NodeKind::kNone;
    bool pairs = false;  // for kCall: see has_pairs()
    std::uint32_t a = 0, b = 0;
    std::uint64_t value = 0;  // for kCall: the state in the upper half; else a number or an offset
  };
  // Calls f(child) for each node that `id` refers to.
  template <typename Function>
  void ForEachChild(NodeId id, Function f) const;

  std::vector<std::byte> bytes_;  // the pickle; strings are views of it
  std::vector<Node> nodes_;
  std::vector<NodeId> pool_;  // elements of tuples
  // containers that can grow: lists, sets, dicts, items of calls
  std::vector<std::vector<NodeId>> lists_;
  NodeId root_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace zt::torch::internal
