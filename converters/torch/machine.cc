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

constexpr std::size_t kReadAhead = std::size_t{64} << 10;
// Bytes of an array from this size on are left in the source.
constexpr std::uint64_t kLeastFar = kReadAhead;
// Memory charged for a byte that is read (it may be an opcode that grows stack and memo), for a
// node, and for an element of a node. Includes the copy while a vector grows.
constexpr std::uint64_t kByteCost = 8, kNodeCost = 40, kElementCost = 12;
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
  Machine(ByteSource& source, std::uint64_t offset, Allowance& allowance)
      : source_(source), allowance_(allowance) {
    graph_.offset_ = offset;
    shared_.fill(Graph::kNoNode);
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
      at_ = position_ + skipped_;
      ZT_ASSIGN_OR_RETURN(const std::uint8_t opcode, Byte());
      if (opcode == '.') break;
      ZT_RETURN_IF_ERROR(kSteps[opcode] == nullptr ? Refuse(opcode) : kSteps[opcode](*this));
      ZT_RETURN_IF_ERROR(Charge());
    }
    if (!marks_.empty() || stack_.size() != 1) {
      return Damaged(at_, "it ends with " + std::to_string(stack_.size()) + " values, not one");
    }
    graph_.root_ = stack_.back();
    graph_.size_ = position_ + skipped_;
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
    const std::uint64_t from = graph_.offset_ + skipped_ + bytes.size();
    if (const std::optional<std::uint64_t> size = source_.size()) {
      if (from > *size || missing > *size - from) {
        return Damaged(at_, "its bytes end before it does; the file is truncated");
      }
      if (!source_.sequential()) {
        wanted = std::max(missing, std::min<std::uint64_t>(*size - from, kReadAhead));
      }
    }
    // The length may be forged: a pipe is read in steps, so that memory grows only
    // with bytes received.
    while (wanted > 0) {
      const auto step = std::min<std::uint64_t>(wanted, std::uint64_t{1} << 20);
      const std::size_t old = bytes.size();
      if (!source_.size()) allowance_.Grow(step);
      ZT_RETURN_IF_ERROR(allowance_.Spend(kByteCost * step));
      bytes.resize(old + step);
      ZT_RETURN_IF_ERROR(
          source_.ReadAt(graph_.offset_ + skipped_ + old,
                         std::span(bytes).subspan(old, static_cast<std::size_t>(step))));
      wanted -= step;
    }
    return OkStatus();
  }
  // Charges for the nodes and elements made since it was called before.
  Status Charge() {
    const std::uint64_t cost =
        kNodeCost * graph_.nodes_.size() + kElementCost * graph_.pool_.size();
    return allowance_.Spend(cost - std::exchange(charged_, cost));
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
    const auto bits = static_cast<std::uint64_t>(value);
    if (bits < kFalse) return PushShared(bits, NodeKind::kInt, bits);
    return Push(Make(NodeKind::kInt, 0, 0, bits));
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
  // None, False, True and the empty tuple have one node each, as small integers do.
  Status PushShared(std::size_t place, NodeKind kind, std::uint64_t value = 0) {
    NodeId& id = shared_[place];
    if (id == Graph::kNoNode) id = Make(kind, 0, 0, value);
    return Push(id);
  }
  // A node for the next `length` bytes, which are not copied.
  StatusOr<NodeId> AddSpan(NodeKind kind, std::uint64_t length) {
    if (length >= kLeastFar && !source_.sequential()) {
      // Protocol 2 has no bytes: it has the call _codecs.encode(text, 'latin1').
      const bool encoded = kind == NodeKind::kText && !stack_.empty() &&
                           graph_.IsGlobal(stack_.back(), "_codecs.encode");
      if (kind == NodeKind::kBytes || encoded) return LeaveFar(length, encoded);
    }
    ZT_RETURN_IF_ERROR(Need(length));
    if (length > ~std::uint32_t{0}) return Unsupported("the pickle holds a text of 4 GiB");
    const NodeId id = Make(kind, static_cast<std::uint32_t>(length), 0, position_);
    position_ += length;
    return id;
  }
  StatusOr<NodeId> LeaveFar(std::uint64_t length, bool latin1) {
    const std::uint64_t from = graph_.offset_ + skipped_ + position_;
    if (from > *source_.size() || length > *source_.size() - from) {
      return Damaged(at_, "its bytes end before it does; the file is truncated");
    }
    const NodeId id = Make(NodeKind::kFar, 0, 0, graph_.far_.size());
    graph_.nodes_[id].flag = latin1;
    skipped_ += length;
    graph_.far_.push_back({{from, length}, position_, skipped_});
    graph_.bytes_.resize(position_);  // what was read ahead
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
  // Python 2 wrote integers of more than 32 bits in decimal.
  Status PushDecimal() {
    ZT_ASSIGN_OR_RETURN(const NodeId line, Line());
    const std::string_view digits = graph_.Text(line);
    graph_.nodes_.pop_back();
    if (digits == "00" || digits == "01") {
      return PushShared(digits == "01" ? kTrue : kFalse, NodeKind::kBool, digits == "01");
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      return Damaged(at_, "a number is not one of at most 64 bits");
    }
    return PushInt(value);
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
    if (begin == stack_.size()) return PushShared(kEmptyTuple, NodeKind::kTuple);
    return FoldList(NodeKind::kTuple, begin);
  }
  Status FoldList(NodeKind kind, std::size_t begin) {
    const NodeId id = Make(kind);
    Move(id, begin);
    return Push(id);
  }
  // Pops the values from `begin` on, and appends them to the items of `target`. What is at the end
  // of the pool grows there; what is not moves to the end, with room for as many items again.
  void Move(NodeId target, std::size_t begin) {
    std::vector<NodeId>& pool = graph_.pool_;
    const auto count = static_cast<std::uint32_t>(stack_.size() - begin);
    Graph::Node& node = graph_.nodes_[target];
    if (node.b + count > node.value) {
      if (node.b == 0 || node.a + node.value != pool.size()) {
        const auto first = static_cast<std::uint32_t>(pool.size());
        pool.resize(pool.size() + 2 * std::size_t{node.b});
        std::copy_n(pool.begin() + node.a, node.b, pool.begin() + first);
        node.a = first;
        node.value = 2 * std::uint64_t{node.b};
      }
      const std::uint64_t needed = std::max<std::uint64_t>(node.value, node.b + count);
      pool.resize(node.a + needed);
      node.value = needed;
    }
    std::copy(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end(),
              pool.begin() + node.a + node.b);
    node.b += count;
    stack_.resize(begin);
  }

  // APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: adds the values from `begin` on to
  // the value below them.
  Status AddItems(std::size_t begin, bool pairs) {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    if (begin <= floor) return Damaged(at_, "there is nothing to add to");
    if (pairs && (stack_.size() - begin) % 2 != 0) return Damaged(at_, "a key lacks its value");
    NodeId target = stack_[begin - 1];
    const NodeKind kind = graph_.nodes_[target].kind;
    if (kind == NodeKind::kCall) {
      ZT_ASSIGN_OR_RETURN(target, ItemsOfCall(target, pairs));
    } else if (pairs ? kind != NodeKind::kDict
                     : kind != NodeKind::kList && kind != NodeKind::kSet) {
      return Damaged(at_, "items are added to a value that cannot hold any");
    }
    Move(target, begin);
    return OkStatus();
  }
  // The list of the items that are added to a call's result.
  StatusOr<NodeId> ItemsOfCall(NodeId call, bool pairs) {
    auto items = static_cast<NodeId>(graph_.nodes_[call].value);
    if (items == Graph::kNoNode) {
      items = Make(NodeKind::kList);
      Graph::Node& node = graph_.nodes_[call];
      node.value = (node.value & ~std::uint64_t{Graph::kNoNode}) | items;
      node.flag = pairs;
    } else if (graph_.nodes_[call].flag != pairs) {
      return Damaged(at_, "it is a list and a dict at once");
    }
    return items;
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
    // Picklers number memo entries from 0, each with an opcode.
    if (index > position_) return Damaged(at_, "a memo number is out of order");
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
                     std::uint64_t{Graph::kNoNode} << 32 | Graph::kNoNode));
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
  Allowance& allowance_;
  Graph graph_;
  std::uint64_t position_ = 0;  // in graph_.bytes_
  std::uint64_t skipped_ = 0;   // bytes of graph_.far_
  std::uint64_t charged_ = 0;   // for nodes and elements
  std::uint64_t at_ = 0;        // position of the current opcode, for messages
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  // the stack's size at each mark
  std::vector<NodeId> memo_;
  std::uint64_t memo_count_ = 0;  // for MEMOIZE
  // The nodes of integers 0 to 255, then of these.
  static constexpr std::size_t kFalse = 256, kTrue = 257, kNone = 258, kEmptyTuple = 259;
  std::array<NodeId, 260> shared_;
};

const std::array<Machine::Step, 256> Machine::kSteps = [] {
  std::array<Step, 256> steps{};
  steps[0x80] = [](Machine& m) { return m.CheckProtocol(); };                        // PROTO
  steps[0x95] = [](Machine& m) { return m.Number(8).status(); };                     // FRAME
  steps['('] = [](Machine& m) { return m.Mark(); };                                  // MARK
  steps['0'] = [](Machine& m) { return m.Drop(); };                                  // POP
  steps['1'] = [](Machine& m) { return m.DropMarked(); };                            // POP_MARK
  steps['2'] = [](Machine& m) { return m.Duplicate(); };                             // DUP
  steps['q'] = [](Machine& m) { return m.PutNumbered(1); };                          // BINPUT
  steps['r'] = [](Machine& m) { return m.PutNumbered(4); };                          // LONG_BINPUT
  steps[0x94] = [](Machine& m) { return m.Put(m.memo_count_); };                     // MEMOIZE
  steps['h'] = [](Machine& m) { return m.Get(1); };                                  // BINGET
  steps['j'] = [](Machine& m) { return m.Get(4); };                                  // LONG_BINGET
  steps['c'] = [](Machine& m) { return m.PushGlobalLines(); };                       // GLOBAL
  steps[0x93] = [](Machine& m) { return m.PushGlobalTop(); };                        // STACK_GLOBAL
  steps['R'] = [](Machine& m) { return m.PushCall(false); };                         // REDUCE
  steps[0x81] = [](Machine& m) { return m.PushCall(false); };                        // NEWOBJ
  steps[0x92] = [](Machine& m) { return m.PushCall(true); };                         // NEWOBJ_EX
  steps['b'] = [](Machine& m) { return m.Build(); };                                 // BUILD
  steps['Q'] = [](Machine& m) { return m.PushPersistent(); };                        // BINPERSID
  steps['N'] = [](Machine& m) { return m.PushShared(kNone, NodeKind::kNone); };      // NONE
  steps[0x88] = [](Machine& m) { return m.PushShared(kTrue, NodeKind::kBool, 1); };  // NEWTRUE
  steps[0x89] = [](Machine& m) { return m.PushShared(kFalse, NodeKind::kBool); };    // NEWFALSE
  steps['I'] = [](Machine& m) { return m.PushDecimal(); };                           // INT
  steps['J'] = [](Machine& m) { return m.PushInt32(); };                             // BININT
  steps['K'] = [](Machine& m) { return m.PushUnsigned(1); };                         // BININT1
  steps['M'] = [](Machine& m) { return m.PushUnsigned(2); };                         // BININT2
  steps[0x8a] = [](Machine& m) { return m.PushLong(1); };                            // LONG1
  steps[0x8b] = [](Machine& m) { return m.PushLong(4); };                            // LONG4
  steps['G'] = [](Machine& m) { return m.PushDouble(); };                            // BINFLOAT
  steps[0x8c] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 1); };   // SHORT_BINUNICODE
  steps['U'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 1); };    // SHORT_BINSTRING
  steps['X'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 4); };    // BINUNICODE
  steps['T'] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 4); };    // BINSTRING
  steps[0x8d] = [](Machine& m) { return m.PushSpan(NodeKind::kText, 8); };   // BINUNICODE8
  steps['C'] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 1); };   // SHORT_BINBYTES
  steps['B'] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 4); };   // BINBYTES
  steps[0x8e] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 8); };  // BINBYTES8
  steps[0x96] = [](Machine& m) { return m.PushSpan(NodeKind::kBytes, 8); };  // BYTEARRAY8
  steps[')'] = [](Machine& m) { return m.FoldTop(0); };                      // EMPTY_TUPLE
  steps[0x85] = [](Machine& m) { return m.FoldTop(1); };                     // TUPLE1
  steps[0x86] = [](Machine& m) { return m.FoldTop(2); };                     // TUPLE2
  steps[0x87] = [](Machine& m) { return m.FoldTop(3); };                     // TUPLE3
  steps[']'] = [](Machine& m) { return m.FoldEmpty(NodeKind::kList); };      // EMPTY_LIST
  steps['}'] = [](Machine& m) { return m.FoldEmpty(NodeKind::kDict); };      // EMPTY_DICT
  steps[0x8f] = [](Machine& m) { return m.FoldEmpty(NodeKind::kSet); };      // EMPTY_SET
  steps['t'] = [](Machine& m) { return m.FoldMarked(NodeKind::kTuple); };    // TUPLE
  steps['l'] = [](Machine& m) { return m.FoldMarked(NodeKind::kList); };     // LIST
  steps['d'] = [](Machine& m) { return m.FoldMarked(NodeKind::kDict); };     // DICT
  steps[0x91] = [](Machine& m) { return m.FoldMarked(NodeKind::kSet); };     // FROZENSET
  steps['a'] = [](Machine& m) { return m.AddTop(1, false); };                // APPEND
  steps['s'] = [](Machine& m) { return m.AddTop(2, true); };                 // SETITEM
  steps['e'] = [](Machine& m) { return m.AddMarked(false); };                // APPENDS
  steps[0x90] = [](Machine& m) { return m.AddMarked(false); };               // ADDITEMS
  steps['u'] = [](Machine& m) { return m.AddMarked(true); };                 // SETITEMS
  return steps;
}();

// The error for an opcode that is not supported.
Status Machine::Refuse(std::uint8_t opcode) const {
  if (std::string_view("LFSVPpgio").find(static_cast<char>(opcode)) != std::string_view::npos)
    return Unsupported("the pickle holds opcodes of protocol 0; save it again with torch.save");
  if (opcode >= 0x82 && opcode <= 0x84) {
    return Unsupported(
        "the pickle refers to the registry of extensions of the program that wrote it");
  }
  if (opcode == 0x97 || opcode == 0x98)
    return Unsupported("the pickle keeps buffers outside itself");
  return Damaged(at_, "opcode " + std::to_string(opcode) + " is unknown");
}

StatusOr<Graph> Graph::Read(ByteSource& bytes, std::uint64_t offset, Allowance& allowance) {
  return Machine(bytes, offset, allowance).Run();
}

}  // namespace zt::torch::internal
