// zt.convert.torch:pickle — a pickle as a graph of nodes. Nothing is executed and no
// name is looked up.
module;

#include "core/name_table.h"

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
  kFar,     // bytes of a numpy array that were left in the source: see Graph::PlaceOf
  kGlobal,  // a class or function, by module and name; only compared
  kTuple,
  kList,
  kSet,
  kDict,
  kCall,        // a call of a class or function with its arguments
  kPersistent,  // an object outside the pickle: in torch's files a storage
};

// The memory that everything read from one file may take: kPerByte for each of the file's bytes,
// and what is left of a share that the files of a checkpoint have in common. Charges are what an
// object takes until it is written, copies and freed memory included, so that they are charged
// once and never given back.
class Allowance {
 public:
  static constexpr std::uint64_t kPerByte = 64;
  static constexpr std::uint64_t kShared = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kMost = std::uint64_t{4} << 30;  // for the bytes of one file
  // Likewise for the names that commands print, and as much for values: texts and numbers.
  static constexpr std::uint64_t kPrintedPerByte = 12;
  static constexpr std::uint64_t kPrintedShared = std::uint64_t{64} << 10;

  // What remains of the shares.
  struct Shared {
    std::uint64_t bytes = kShared, names = kPrintedShared, values = kPrintedShared;
  };

  Allowance(std::uint64_t file_bytes, std::shared_ptr<Shared> shared);
  // kUnimplemented once it is used up.
  Status Spend(std::uint64_t bytes);
  // As Spend, for a name that is printed.
  Status PrintName(std::uint64_t bytes);
  // As Spend, for a value that may be left out, and for the bytes of it that are printed. False, and
  // nothing is spent, if one of the two does not fit. Values leave a quarter of kShared to tensors.
  bool SpendOnValue(std::uint64_t bytes, std::uint64_t printed);
  // The same for a text. If it is too long, its length is spent as printed: that was counted.
  bool SpendOnText(std::uint64_t bytes, std::string_view text);
  // The bytes that a text takes in JSON at most.
  static std::uint64_t Printed(std::string_view text);
  // `bytes` more have come from a pipe, whose size is not known.
  void Grow(std::uint64_t bytes);

 private:
  std::uint64_t granted_ = 0;             // for the bytes of the file
  std::uint64_t left_ = 0;                // of granted_
  std::uint64_t names_ = 0, values_ = 0;  // what may be printed of each
  std::shared_ptr<Shared> shared_;
};

// The contents of a pickle. Nodes refer to each other, so a shared value is stored once. Lists,
// dicts and the state of calls can form cycles.
class Graph {
 public:
  // Reads one pickle of protocol 2 to 5 at `offset`. Reads no byte past its end from a sequential
  // source. kDataLoss if no pickler could have written it; kUnimplemented for opcodes that torch's
  // files never contain, and for a pickle beyond the allowance.
  static StatusOr<Graph> Read(ByteSource& bytes, std::uint64_t offset, Allowance& allowance);

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
  // Where a value of kText, kBytes or kFar lies in the source.
  struct Place {
    std::uint64_t offset = 0, size = 0;
  };
  Place PlaceOf(NodeId id) const;
  // For kFar: its bytes are text in UTF-8, whose characters are the array's bytes.
  inline bool is_latin1(NodeId id) const { return nodes_[id].flag; }
  // For kGlobal: "module.name".
  std::string GlobalName(NodeId id) const;
  // True if `id` is the global "module.name".
  bool IsGlobal(NodeId id, std::string_view name) const;
  bool IsOneOf(NodeId id, std::initializer_list<std::string_view> names) const;
  // Elements of a kTuple, kList or kSet; alternating keys and values of a kDict; for a kCall, the
  // items added after the call (see has_pairs()).
  std::span<const NodeId> Items(NodeId id) const;
  // True if a kCall's items alternate between keys and values.
  inline bool has_pairs(NodeId id) const { return nodes_[id].flag; }

  // For kCall: the class or function, the tuple of arguments, and the state set later (or kNoNode).
  inline NodeId callable(NodeId id) const { return nodes_[id].a; }
  inline NodeId args(NodeId id) const { return nodes_[id].b; }
  NodeId state(NodeId id) const;
  // True for a kCall of the class or function "module.name".
  bool IsCallOf(NodeId id, std::string_view name) const;
  // A member of an object's state, which is a dict, or for a class with slots a tuple of dicts;
  // kNoNode if there is none (as of kNoNode), or not among the first kMostMembers: many objects may
  // share one state.
  NodeId Member(NodeId object, std::string_view name) const;
  static constexpr std::size_t kMostMembers = 64;
  // For kPersistent: its identifier.
  inline NodeId identifier(NodeId id) const { return nodes_[id].a; }

  // For each node: true if a node for which `wanted` returns true can be reached from it, by edges
  // for which `through(parent, child)` does. Linear in the size of the graph.
  std::vector<bool> HoldersOf(
      const std::function<bool(NodeId)>& wanted,
      const std::function<bool(NodeId, NodeId)>& through = [](NodeId, NodeId) {
        return true;
      }) const;

  static constexpr NodeId kNoNode = ~NodeId{0};

 private:
  friend class Machine;

  struct Node {
    NodeKind kind = NodeKind::kNone;
    bool flag = false;  // see has_pairs() and is_latin1()
    // For values with elements: the first of them in pool_ and their number; for kCall: the
    // callable and its arguments. For kText and kBytes: `a` is the size.
    std::uint32_t a = 0, b = 0;
    // A number, an offset in bytes_, or the elements that pool_ has room for. For kCall: the state
    // in the upper half, a kList of the items added to it in the lower. For kFar: the index in
    // far_.
    std::uint64_t value = 0;
  };
  // Bytes that were left in the source, and where in bytes_ they would be.
  struct Far {
    Place place;
    std::uint64_t at = 0;
    std::uint64_t skipped = 0;  // bytes of these and of those before
  };
  // Calls f(child) for each node that `id` refers to.
  template <typename Function>
  void ForEachChild(NodeId id, Function f) const;

  std::uint64_t offset_ = 0;      // of the pickle in the source
  std::vector<std::byte> bytes_;  // the pickle without far_; strings are views of it
  std::vector<Far> far_;          // in the order of the source
  std::vector<Node> nodes_;
  std::vector<NodeId> pool_;  // elements of tuples, lists, sets and dicts
  NodeId root_ = 0;
  std::uint64_t size_ = 0;
};

// Numbers texts; equal texts get equal numbers. A text that many nodes share is hashed once.
class Texts {
 public:
  explicit Texts(const Graph& graph) : graph_(graph) {}
  inline std::uint32_t Number(NodeId text) {
    const auto [known, fresh] = by_node_.emplace(text, 0);
    if (fresh) {
      const auto next = static_cast<std::uint32_t>(by_text_.size());
      known->second = by_text_.emplace(graph_.Text(text), next).first->second;
    }
    return known->second;
  }

 private:
  const Graph& graph_;
  std::unordered_map<NodeId, std::uint32_t> by_node_;
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_text_;
};

}  // namespace zt::torch::internal
