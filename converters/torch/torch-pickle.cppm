// zt.convert.torch:pickle — a pickle as a graph of nodes. Nothing is executed and no name is looked up.
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
  kInt,     // 64 bits
  kBigInt,  // an integer of more bits, as its little-endian bytes
  kDouble,
  kText,
  kBytes,
  kGlobal,  // a class or function, by module and name; only ever compared
  kTuple,
  kList,
  kSet,
  kDict,
  kCall,        // what a class or function would have made of its arguments
  kPersistent,  // what the container keeps outside the pickle: in torch's files a storage
};

// Limits that keep a hostile pickle from taking more memory than a large checkpoint needs.
struct PickleLimits {
  std::uint64_t bytes = std::uint64_t{256} << 20;
  std::uint64_t nodes = std::uint64_t{32} << 20;
};

// What a pickle describes. Nodes refer to each other, so a value that is shared is held once; through lists, dicts
// and the state of calls they may form cycles.
class Graph {
 public:
  // Reads one pickle of protocol 2 to 5 that begins at `offset`, and no byte beyond it from a sequential source.
  // kDataLoss for what no pickler writes, kUnimplemented for opcodes that torch's files never hold and for a pickle
  // beyond the limits.
  static StatusOr<Graph> Read(ByteSource& bytes, std::uint64_t offset,
                              const PickleLimits& limits = {});

  // What the pickle is as a whole.
  inline NodeId root() const { return root_; }
  // Bytes it took in the source.
  inline std::uint64_t size() const { return size_; }
  inline std::size_t node_count() const { return nodes_.size(); }

  inline NodeKind kind(NodeId id) const { return nodes_[id].kind; }
  inline bool Is(NodeId id, NodeKind kind) const { return nodes_[id].kind == kind; }
  // Of kBool and kInt.
  inline std::int64_t Int(NodeId id) const { return static_cast<std::int64_t>(nodes_[id].value); }
  double Double(NodeId id) const;
  // Of kText, kBytes and kBigInt; valid as long as the graph.
  std::string_view Text(NodeId id) const;
  // Of kGlobal: "module.name".
  std::string GlobalName(NodeId id) const;
  // True where `id` is the global "module.name".
  bool IsGlobal(NodeId id, std::string_view name) const;
  bool IsOneOf(NodeId id, std::initializer_list<std::string_view> names) const;
  // Elements of kTuple, kList and kSet; keys and values by turns of kDict; what was added to a kCall after it was
  // made, see has_pairs().
  std::span<const NodeId> Items(NodeId id) const;
  // True where a kCall's items are keys and values by turns.
  inline bool has_pairs(NodeId id) const { return nodes_[id].pairs; }

  // Of kCall: the class or function, a tuple, and the state set later (or kNoNode).
  inline NodeId callable(NodeId id) const { return nodes_[id].a; }
  inline NodeId args(NodeId id) const { return nodes_[id].b; }
  NodeId state(NodeId id) const;
  // Of kPersistent: its identifier.
  inline NodeId identifier(NodeId id) const { return nodes_[id].a; }

  // For each node, whether one that `holds` says yes to can be reached from it. Linear in the size of the graph.
  std::vector<bool> HoldersOf(const std::function<bool(NodeId)>& holds) const;

  static constexpr NodeId kNoNode = ~NodeId{0};

 private:
  friend class Machine;

  struct Node {
    NodeKind kind = NodeKind::kNone;
    bool pairs = false;  // of kCall
    std::uint32_t a = 0, b = 0;
    std::uint64_t value = 0;  // of kCall: the state in the upper half, else a number or an offset
  };
  // Calls f(child) for every node that `id` refers to.
  template <typename Function>
  void ForEachChild(NodeId id, Function f) const;

  std::vector<std::byte> bytes_;  // of the pickle; texts lie in it
  std::vector<Node> nodes_;
  std::vector<NodeId> pool_;                // the elements of tuples
  std::vector<std::vector<NodeId>> lists_;  // what can grow: lists, sets, dicts, items of calls
  NodeId root_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace zt::torch::internal
