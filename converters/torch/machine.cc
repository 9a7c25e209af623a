// zt.convert.torch:pickle — the machine that interprets a pickle's opcodes (described in Python's
// Lib/pickletools.py).
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :pickle;
import zt.core;
import zt.source;

namespace zt::torch::internal {
namespace {

constexpr std::uint32_t kNoList = ~std::uint32_t{0};
constexpr std::size_t kReadAhead = std::size_t{64} << 10;
// Limit on the name of a class or function.
constexpr std::size_t kMaxLine = 4096;

Status Damaged(std::uint64_t at, std::string_view what) {
  return InvalidData("the pickle is damaged at byte " + std::to_string(at) + ": " +
                     std::string(what));
}

}  // namespace

// Interprets one pickle. Each opcode takes constant time, plus the bytes that it reads and the
// items that it moves. Each item is moved once.
class Machine {
 public:
  Machine(ByteSource& source, std::uint64_t offset, const PickleLimits& limits)
      : source_(source), offset_(offset), limits_(limits) {
    small_.fill(Graph::kNoNode);
  }

  StatusOr<Graph> Run() {
    ZT_ASSIGN_OR_RETURN(const std::uint8_t first, Byte());
    if (first != 0x80) {
      return Unsupported("it is not a pickle of protocol 2 to 5; save it again with torch.save");
    }
    ZT_ASSIGN_OR_RETURN(const std::uint8_t protocol, Byte());
    if (protocol < 2 || protocol > 5) {
      return Unsupported("pickles of protocol " + std::to_string(protocol) +
                         " are not supported (2 to 5 are)");
    }
    for (;;) {
      at_ = position_;
      ZT_ASSIGN_OR_RETURN(const std::uint8_t opcode, Byte());
      if (opcode == '.') break;
      ZT_RETURN_IF_ERROR(kSteps[opcode] == nullptr ? Refuse(opcode) : kSteps[opcode](*this));
      if (graph_.nodes_.size() > limits_.nodes) {
        return Unsupported("the pickle describes more than " + std::to_string(limits_.nodes) +
                           " values");
      }
    }
    if (!marks_.empty() || stack_.size() != 1) {
      return Damaged(at_, "it ends with " + std::to_string(stack_.size()) + " values, not one");
    }
    graph_.root_ = stack_.back();
    graph_.size_ = position_;
    graph_.bytes_.resize(position_);
    return std::move(graph_);
  }

 private:
  // ---- bytes ----

  // Makes `count` bytes available at the current position.
  Status Need(std::uint64_t count) {
    std::vector<std::byte>& bytes = graph_.bytes_;
    if (bytes.size() - position_ >= count) return OkStatus();
    const std::uint64_t missing = count - (bytes.size() - position_);
    std::uint64_t wanted = missing;
    const std::uint64_t from = offset_ + bytes.size();
    if (const std::optional<std::uint64_t> size = source_.size()) {
      if (from > *size || missing > *size - from) {
        return Damaged(at_, "its bytes end before it does; the file is truncated");
      }
      if (!source_.sequential()) {
        wanted = std::max(missing, std::min<std::uint64_t>(*size - from, kReadAhead));
      }
    }
    if (count > limits_.bytes || bytes.size() + missing > limits_.bytes) {
      return Unsupported("the pickle is larger than " + std::to_string(limits_.bytes) + " bytes");
    }
    // The length may be forged: a pipe is read in steps, so that memory grows only
    // with bytes received.
    while (wanted > 0) {
      const auto step = std::min<std::uint64_t>(wanted, std::uint64_t{1} << 20);
      const std::size_t old = bytes.size();
      bytes.resize(old + step);
      ZT_RETURN_IF_ERROR(source_.ReadAt(
          offset_ + old, std::span(bytes).subspan(old, static_cast<std::size_t>(step))));
      wanted -= step;
    }
    return OkStatus();
  }

  StatusOr<std::uint64_t> Number(std::size_t width) {
    ZT_RETURN_IF_ERROR(Need(width));
    const std::uint64_t value = zt::internal::LoadLittle(graph_.bytes_.data() + position_, width);
    position_ += width;
    return value;
  }
  StatusOr<std::uint8_t> Byte() {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t value, Number(1));
    return static_cast<std::uint8_t>(value);
  }

  // ---- nodes ----

  NodeId Make(NodeKind kind, std::uint32_t a = 0, std::uint32_t b = 0, std::uint64_t value = 0) {
    graph_.nodes_.push_back({kind, false, a, b, value});
    return static_cast<NodeId>(graph_.nodes_.size() - 1);
  }
  Status Push(NodeId id) {
    stack_.push_back(id);
    return OkStatus();
  }
  Status PushInt(std::int64_t value) {
    if (value < 0 || value >= 256)
      return Push(Make(NodeKind::kInt, 0, 0, static_cast<std::uint64_t>(value)));
    NodeId& id = small_[static_cast<std::size_t>(value)];
    if (id == Graph::kNoNode) id = Make(NodeKind::kInt, 0, 0, static_cast<std::uint64_t>(value));
    return Push(id);
  }
  Status PushUnsigned(std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t value, Number(width));
    return PushInt(static_cast<std::int64_t>(value));
  }
  Status PushInt32() {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(4));
    return PushInt(static_cast<std::int32_t>(static_cast<std::uint32_t>(raw)));
  }
  // Big-endian.
  Status PushDouble() {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(8));
    return Push(Make(NodeKind::kDouble, 0, 0, __builtin_bswap64(raw)));
  }
  // None, False and True have one node each.
  Status PushOnly(NodeKind kind, bool value = false) {
    NodeId& id = small_[256 + (kind == NodeKind::kNone ? 2 : value)];
    if (id == Graph::kNoNode) id = Make(kind, 0, 0, value);
    return Push(id);
  }
  // A node for the next `length` bytes, which are not copied.
  StatusOr<NodeId> AddSpan(NodeKind kind, std::uint64_t length) {
    ZT_RETURN_IF_ERROR(Need(length));
    const NodeId id = Make(kind, static_cast<std::uint32_t>(length), 0, position_);
    position_ += length;
    return id;
  }
  Status PushSpan(NodeKind kind, std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t length, Number(width));
    ZT_ASSIGN_OR_RETURN(const NodeId id, AddSpan(kind, length));
    return Push(id);
  }
  Status PushLong(std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t length, Number(width));
    if (length > 8) {
      ZT_ASSIGN_OR_RETURN(const NodeId id, AddSpan(NodeKind::kBigInt, length));
      return Push(id);
    }
    ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(length));
    const int spare = static_cast<int>(64 - 8 * length);
    return PushInt(length == 0 ? 0 : static_cast<std::int64_t>(raw << spare) >> spare);
  }
  StatusOr<NodeId> Line() {
    const std::uint64_t begin = position_;
    for (;;) {
      ZT_ASSIGN_OR_RETURN(const std::uint8_t byte, Byte());
      if (byte == '\n') break;
      if (position_ - begin > kMaxLine) return Damaged(at_, "a name is longer than 4096 bytes");
    }
    return Make(NodeKind::kText, static_cast<std::uint32_t>(position_ - begin - 1), 0, begin);
  }

  // ---- the stack ----

  // Checks that the stack has `count` values above the innermost mark.
  Status Have(std::size_t count) const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() - floor >= count ? OkStatus() : Damaged(at_, "a value is missing");
  }
  NodeId Pop() {
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // Removes the innermost mark. Returns the index of the first value above it.
  StatusOr<std::size_t> TakeMark() {
    if (marks_.empty()) return Damaged(at_, "a mark is missing");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  Status Mark() {
    marks_.push_back(stack_.size());
    return OkStatus();
  }
  // POP: removes a mark if one is on top.
  Status Drop() {
    if (!marks_.empty() && marks_.back() == stack_.size()) return TakeMark().status();
    ZT_RETURN_IF_ERROR(Have(1));
    stack_.pop_back();
    return OkStatus();
  }
  Status DropMarked() {
    ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
    stack_.resize(begin);
    return OkStatus();
  }
  Status Duplicate() {
    ZT_RETURN_IF_ERROR(Have(1));
    return Push(stack_.back());
  }
  // Replaces the top `count` values (FoldMarked: those above the innermost mark) by a container.
  Status FoldTop(std::size_t count) {
    ZT_RETURN_IF_ERROR(Have(count));
    return FoldTuple(stack_.size() - count);
  }
  Status FoldMarked(NodeKind kind) {
    ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
    if (kind == NodeKind::kTuple) return FoldTuple(begin);
    if (kind == NodeKind::kDict && (stack_.size() - begin) % 2 != 0)
      return Damaged(at_, "a key lacks its value");
    return FoldList(kind, begin);
  }
  Status FoldEmpty(NodeKind kind) { return FoldList(kind, stack_.size()); }
  Status FoldTuple(std::size_t begin) {
    const auto first = static_cast<std::uint32_t>(graph_.pool_.size());
    graph_.pool_.insert(graph_.pool_.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin),
                        stack_.end());
    const auto count = static_cast<std::uint32_t>(stack_.size() - begin);
    stack_.resize(begin);
    return Push(Make(NodeKind::kTuple, first, count));
  }
  Status FoldList(NodeKind kind, std::size_t begin) {
    const NodeId id = Make(kind, kNoList);
    Move(id, begin);
    return Push(id);
  }
  // Pops the values from `begin` on, and appends them to the items of `target`.
  void Move(NodeId target, std::size_t begin) {
    if (begin < stack_.size()) {
      std::vector<NodeId>& list = ListOf(target);
      list.insert(list.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    }
    stack_.resize(begin);
  }
  std::vector<NodeId>& ListOf(NodeId id) {
    Graph::Node& node = graph_.nodes_[id];
    const bool call = node.kind == NodeKind::kCall;
    std::uint32_t list = call ? static_cast<std::uint32_t>(node.value) : node.a;
    if (list == kNoList) {
      list = static_cast<std::uint32_t>(graph_.lists_.size());
      graph_.lists_.emplace_back();
      if (call) {
        node.value = (node.value & ~std::uint64_t{kNoList}) | list;
      } else {
        node.a = list;
      }
    }
    return graph_.lists_[list];
  }

  // APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: adds the values from `begin` on to
  // the value below them.
  Status AddItems(std::size_t begin, bool pairs) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (begin <= floor) return Damaged(at_, "there is nothing to add to");
    if (pairs && (stack_.size() - begin) % 2 != 0) return Damaged(at_, "a key lacks its value");
    const NodeId target = stack_[begin - 1];
    Graph::Node& node = graph_.nodes_[target];
    const bool grows = pairs ? node.kind == NodeKind::kDict
                             : node.kind == NodeKind::kList || node.kind == NodeKind::kSet;
    if (node.kind == NodeKind::kCall) {
      const bool fresh = static_cast<std::uint32_t>(node.value) == kNoList;
      if (!fresh && node.pairs != pairs) return Damaged(at_, "it is a list and a dict at once");
      node.pairs = pairs;
    } else if (!grows) {
      return Damaged(at_, "items are added to a value that cannot hold any");
    }
    Move(target, begin);
    return OkStatus();
  }
  Status AddTop(std::size_t count, bool pairs) {
    ZT_RETURN_IF_ERROR(Have(1 + count));
    return AddItems(stack_.size() - count, pairs);
  }
  Status AddMarked(bool pairs) {
    ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
    return AddItems(begin, pairs);
  }

  // ---- the memo ----

  Status Put(std::uint64_t index) {
    ZT_RETURN_IF_ERROR(Have(1));
    // Picklers number memo entries from 0 without gaps.
    if (index > 4 * position_ + 1024) return Damaged(at_, "a memo number is out of order");
    if (index >= memo_.size())
      memo_.resize(std::max<std::size_t>(index + 1, memo_.size()), Graph::kNoNode);
    memo_[index] = stack_.back();
    memo_count_ = std::max(memo_count_, index + 1);
    return OkStatus();
  }
  Status PutNumbered(std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t index, Number(width));
    return Put(index);
  }
  Status Get(std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t index, Number(width));
    if (index >= memo_.size() || memo_[index] == Graph::kNoNode) {
      return Damaged(at_, "the memo has no number " + std::to_string(index));
    }
    return Push(memo_[index]);
  }

  // ---- globals and calls ----

  Status PushGlobal(NodeId module, NodeId name) {
    if (!graph_.Is(module, NodeKind::kText) || !graph_.Is(name, NodeKind::kText)) {
      return Damaged(at_, "the name of a class or function is not text");
    }
    if (graph_.Text(module).size() > kMaxLine || graph_.Text(name).size() > kMaxLine) {
      return Damaged(at_, "a name is longer than 4096 bytes");
    }
    return Push(Make(NodeKind::kGlobal, module, name));
  }
  Status PushGlobalLines() {
    ZT_ASSIGN_OR_RETURN(const NodeId module, Line());
    ZT_ASSIGN_OR_RETURN(const NodeId name, Line());
    return PushGlobal(module, name);
  }
  Status PushGlobalTop() {
    ZT_RETURN_IF_ERROR(Have(2));
    const NodeId name = Pop(), module = Pop();
    return PushGlobal(module, name);
  }
  Status PushPersistent() {
    ZT_RETURN_IF_ERROR(Have(1));
    const NodeId identifier = Pop();
    return Push(Make(NodeKind::kPersistent, identifier));
  }
  // Pops a callable and its arguments. `extra`: keyword arguments are appended to the arguments.
  Status PushCall(bool extra) {
    ZT_RETURN_IF_ERROR(Have(extra ? 3 : 2));
    if (extra) ZT_RETURN_IF_ERROR(FoldTuple(stack_.size() - 2));
    const NodeId args = Pop(), callable = Pop();
    if (!graph_.Is(args, NodeKind::kTuple))
      return Damaged(at_, "a call's arguments are not a tuple");
    return Push(Make(NodeKind::kCall, callable, args,
                     std::uint64_t{Graph::kNoNode} << 32 | std::uint64_t{kNoList}));
  }
  Status Build() {
    ZT_RETURN_IF_ERROR(Have(2));
    const NodeId state = Pop();
    Graph::Node& node = graph_.nodes_[stack_.back()];
    if (node.kind != NodeKind::kCall)
      return Damaged(at_, "a state is set on a value that cannot have one");
    if (node.value >> 32 != Graph::kNoNode) return Damaged(at_, "a state is set twice");
    node.value = std::uint64_t{state} << 32 | static_cast<std::uint32_t>(node.value);
    return OkStatus();
  }

  Status CheckProtocol() {
    ZT_ASSIGN_OR_RETURN(const std::uint8_t protocol, Byte());
    return protocol <= 5 ? OkStatus() : Damaged(at_, "the protocol is unknown");
  }
  Status Refuse(std::uint8_t opcode) const;

  // The function for each opcode; null if the opcode is refused.
  using Step = Status (*)(Machine&);
  static const std::array<Step, 256> kSteps;

  ByteSource& source_;
  const std::uint64_t offset_;
  const PickleLimits limits_;
  Graph graph_;
  std::uint64_t position_ = 0;  // in graph_.bytes_
  std::uint64_t at_ = 0;        // position of the current opcode, for messages
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  // the stack's size at each mark
  std::vector<NodeId> memo_;
  std::uint64_t memo_count_ = 0;   // for MEMOIZE
  std::array<NodeId, 259> small_;  // integers 0 to 255, False, True, None
};

const std::array<Machine::Step, 256> Machine::kSteps = [] {
  std::array<Step, 256> steps{};
  steps[0x80] = [](Machine& m) { return m.CheckProtocol(); };                   // PROTO
  steps[0x95] = [](Machine& m) { return m.Number(8).status(); };                // FRAME
  steps['('] = [](Machine& m) { return m.Mark(); };                             // MARK
  steps['0'] = [](Machine& m) { return m.Drop(); };                             // POP
  steps['1'] = [](Machine& m) { return m.DropMarked(); };                       // POP_MARK
  steps['2'] = [](Machine& m) { return m.Duplicate(); };                        // DUP
  steps['q'] = [](Machine& m) { return m.PutNumbered(1); };                     // BINPUT
  steps['r'] = [](Machine& m) { return m.PutNumbered(4); };                     // LONG_BINPUT
  steps[0x94] = [](Machine& m) { return m.Put(m.memo_count_); };                // MEMOIZE
  steps['h'] = [](Machine& m) { return m.Get(1); };                             // BINGET
  steps['j'] = [](Machine& m) { return m.Get(4); };                             // LONG_BINGET
  steps['c'] = [](Machine& m) { return m.PushGlobalLines(); };                  // GLOBAL
  steps[0x93] = [](Machine& m) { return m.PushGlobalTop(); };                   // STACK_GLOBAL
  steps['R'] = [](Machine& m) { return m.PushCall(false); };                    // REDUCE
  steps[0x81] = [](Machine& m) { return m.PushCall(false); };                   // NEWOBJ
  steps[0x92] = [](Machine& m) { return m.PushCall(true); };                    // NEWOBJ_EX
  steps['b'] = [](Machine& m) { return m.Build(); };                            // BUILD
  steps['Q'] = [](Machine& m) { return m.PushPersistent(); };                   // BINPERSID
  steps['N'] = [](Machine& m) { return m.PushOnly(NodeKind::kNone); };          // NONE
  steps[0x88] = [](Machine& m) { return m.PushOnly(NodeKind::kBool, true); };   // NEWTRUE
  steps[0x89] = [](Machine& m) { return m.PushOnly(NodeKind::kBool, false); };  // NEWFALSE
  steps['J'] = [](Machine& m) { return m.PushInt32(); };                        // BININT
  steps['K'] = [](Machine& m) { return m.PushUnsigned(1); };                    // BININT1
  steps['M'] = [](Machine& m) { return m.PushUnsigned(2); };                    // BININT2
  steps[0x8a] = [](Machine& m) { return m.PushLong(1); };                       // LONG1
  steps[0x8b] = [](Machine& m) { return m.PushLong(4); };                       // LONG4
  steps['G'] = [](Machine& m) { return m.PushDouble(); };                       // BINFLOAT
  steps[0x8c] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 1); };      // SHORT_BINUNICODE
  steps['U'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 1); };       // SHORT_BINSTRING
  steps['X'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 4); };       // BINUNICODE
  steps['T'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 4); };       // BINSTRING
  steps[0x8d] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 8); };      // BINUNICODE8
  steps['C'] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 1); };      // SHORT_BINBYTES
  steps['B'] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 4); };      // BINBYTES
  steps[0x8e] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 8); };     // BINBYTES8
  steps[0x96] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 8); };     // BYTEARRAY8
  steps[')'] = [](Machine& m) { return m.FoldTop(0); };                         // EMPTY_TUPLE
  steps[0x85] = [](Machine& m) { return m.FoldTop(1); };                        // TUPLE1
  steps[0x86] = [](Machine& m) { return m.FoldTop(2); };                        // TUPLE2
  steps[0x87] = [](Machine& m) { return m.FoldTop(3); };                        // TUPLE3
  steps[']'] = [](Machine& m) { return m.FoldEmpty(NodeKind::kList); };         // EMPTY_LIST
  steps['}'] = [](Machine& m) { return m.FoldEmpty(NodeKind::kDict); };         // EMPTY_DICT
  steps[0x8f] = [](Machine& m) { return m.FoldEmpty(NodeKind::kSet); };         // EMPTY_SET
  steps['t'] = [](Machine& m) { return m.FoldMarked(NodeKind::kTuple); };       // TUPLE
  steps['l'] = [](Machine& m) { return m.FoldMarked(NodeKind::kList); };        // LIST
  steps['d'] = [](Machine& m) { return m.FoldMarked(NodeKind::kDict); };        // DICT
  steps[0x91] = [](Machine& m) { return m.FoldMarked(NodeKind::kSet); };        // FROZENSET
  steps['a'] = [](Machine& m) { return m.AddTop(1, false); };                   // APPEND
  steps['s'] = [](Machine& m) { return m.AddTop(2, true); };                    // SETITEM
  steps['e'] = [](Machine& m) { return m.AddMarked(false); };                   // APPENDS
  steps[0x90] = [](Machine& m) { return m.AddMarked(false); };                  // ADDITEMS
  steps['u'] = [](Machine& m) { return m.AddMarked(true); };                    // SETITEMS
  return steps;
}();

// The error for an opcode that is not supported.
Status Machine::Refuse(std::uint8_t opcode) const {
  if (std::string_view("ILFSVPpgio").find(static_cast<char>(opcode)) != std::string_view::npos)
    return Unsupported("the pickle holds opcodes of protocol 0; save it again with torch.save");
  if (opcode >= 0x82 && opcode <= 0x84) {
    return Unsupported(
        "the pickle refers to the registry of extensions of the program that wrote it");
  }
  if (opcode == 0x97 || opcode == 0x98)
    return Unsupported("the pickle keeps buffers outside itself");
  return Damaged(at_, "opcode " + std::to_string(opcode) + " is unknown");
}

StatusOr<Graph> Graph::Read(ByteSource& bytes, std::uint64_t offset, const PickleLimits& limits) {
  return Machine(bytes, offset, limits).Run();
}

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

bool Graph::IsOneOf(NodeId id, std::initializer_list<std::string_view> names) const {
  return std::ranges::any_of(names, [&](std::string_view name) { return IsGlobal(id, name); });
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
  // Reverse edges: the parents of node n are parents[first[n]] to parents[first[n + 1] - 1].
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
