// zt.convert.torch:pickle — the machine that reads a pickle's opcodes (Python's Lib/pickletools.py describes them).
module;

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
constexpr std::size_t kMaxLine = 4096;  // of a class or function's name

Status Damaged(std::uint64_t at, std::string_view what) {
  return InvalidData("the pickle is damaged at byte " + std::to_string(at) + ": " +
                     std::string(what));
}

}  // namespace

// Executes one pickle. Each opcode takes constant time beside the bytes it reads and the items it moves, and each item
// is moved once.
class Machine {
 public:
  Machine(ByteSource& source, std::uint64_t offset, const PickleLimits& limits)
      : source_(source), offset_(offset), limits_(limits) {
    small_.fill(Graph::kNoNode);
  }

  StatusOr<Graph> Run() {
    ZT_ASSIGN_OR_RETURN(const std::uint8_t first, Byte());
    if (first != 0x80) {
      return Unsupported("it is no pickle of protocol 2 to 5; save it again with torch.save");
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
      ZT_RETURN_IF_ERROR(Step(opcode));
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

  // Makes `count` bytes from the position on available.
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
    // A length that a pipe's pickle states is believed a piece at a time.
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
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value |= std::to_integer<std::uint64_t>(graph_.bytes_[position_ + i]) << (8 * i);
    }
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
  void Push(NodeId id) { stack_.push_back(id); }
  void PushInt(std::int64_t value) {
    if (value < 0 || value >= 256)
      return Push(Make(NodeKind::kInt, 0, 0, static_cast<std::uint64_t>(value)));
    NodeId& id = small_[static_cast<std::size_t>(value)];
    if (id == Graph::kNoNode) id = Make(NodeKind::kInt, 0, 0, static_cast<std::uint64_t>(value));
    Push(id);
  }
  // One node for each of None, False and True.
  void PushOnly(NodeKind kind, bool value) {
    NodeId& id = small_[256 + (kind == NodeKind::kNone ? 2 : value)];
    if (id == Graph::kNoNode) id = Make(kind, 0, 0, value);
    Push(id);
  }
  // The next `length` bytes, left where they are.
  StatusOr<NodeId> Stretch(NodeKind kind, std::uint64_t length) {
    ZT_RETURN_IF_ERROR(Need(length));
    const NodeId id = Make(kind, static_cast<std::uint32_t>(length), 0, position_);
    position_ += length;
    return id;
  }
  Status PushStretch(NodeKind kind, std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t length, Number(width));
    ZT_ASSIGN_OR_RETURN(const NodeId id, Stretch(kind, length));
    Push(id);
    return OkStatus();
  }
  Status PushLong(std::size_t width) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t length, Number(width));
    if (length > 8) {
      ZT_ASSIGN_OR_RETURN(const NodeId id, Stretch(NodeKind::kBigInt, length));
      Push(id);
      return OkStatus();
    }
    ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(length));
    const int spare = static_cast<int>(64 - 8 * length);
    PushInt(length == 0 ? 0 : static_cast<std::int64_t>(raw << spare) >> spare);
    return OkStatus();
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

  // The stack has `count` values above the innermost mark.
  Status Have(std::size_t count) const {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    return stack_.size() - floor >= count ? OkStatus() : Damaged(at_, "a value is missing");
  }
  NodeId Pop() {
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // Removes the innermost mark; where the values above it begin.
  StatusOr<std::size_t> TakeMark() {
    if (marks_.empty()) return Damaged(at_, "a mark is missing");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  // The topmost values from `begin` on as a tuple in their place.
  void FoldTuple(std::size_t begin) {
    const auto first = static_cast<std::uint32_t>(graph_.pool_.size());
    graph_.pool_.insert(graph_.pool_.end(), stack_.begin() + static_cast<std::ptrdiff_t>(begin),
                        stack_.end());
    const auto count = static_cast<std::uint32_t>(stack_.size() - begin);
    stack_.resize(begin);
    Push(Make(NodeKind::kTuple, first, count));
  }
  void FoldList(NodeKind kind, std::size_t begin) {
    const NodeId id = Make(kind, kNoList);
    Move(id, begin);
    Push(id);
  }
  // Appends the topmost values from `begin` on to what `target` holds, and takes them off the stack.
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

  // APPEND, APPENDS, ADDITEMS, SETITEM, SETITEMS: the values from `begin` on go to the one below.
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
      return Damaged(at_, "what is added to can hold nothing");
    }
    Move(target, begin);
    return OkStatus();
  }
  Status AddMarked(bool pairs) {
    ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
    return AddItems(begin, pairs);
  }

  // ---- the memo ----

  Status Put(std::uint64_t index) {
    ZT_RETURN_IF_ERROR(Have(1));
    // Picklers number from 0 on without gaps.
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
    Push(memo_[index]);
    return OkStatus();
  }

  // ---- globals and calls ----

  Status PushGlobal(NodeId module, NodeId name) {
    if (!graph_.Is(module, NodeKind::kText) || !graph_.Is(name, NodeKind::kText)) {
      return Damaged(at_, "a class or function is named by something that is no text");
    }
    if (graph_.Text(module).size() > kMaxLine || graph_.Text(name).size() > kMaxLine) {
      return Damaged(at_, "a name is longer than 4096 bytes");
    }
    Push(Make(NodeKind::kGlobal, module, name));
    return OkStatus();
  }
  // Callable and arguments from the stack. `extra` keyword arguments are kept with the others.
  Status PushCall(bool extra) {
    ZT_RETURN_IF_ERROR(Have(extra ? 3 : 2));
    if (extra) FoldTuple(stack_.size() - 2);
    const NodeId args = Pop(), callable = Pop();
    if (!graph_.Is(args, NodeKind::kTuple)) return Damaged(at_, "a call's arguments are no tuple");
    Push(Make(NodeKind::kCall, callable, args,
              std::uint64_t{Graph::kNoNode} << 32 | std::uint64_t{kNoList}));
    return OkStatus();
  }
  Status Build() {
    ZT_RETURN_IF_ERROR(Have(2));
    const NodeId state = Pop();
    Graph::Node& node = graph_.nodes_[stack_.back()];
    if (node.kind != NodeKind::kCall) return Damaged(at_, "a state is set on what can have none");
    if (node.value >> 32 != Graph::kNoNode) return Damaged(at_, "a state is set twice");
    node.value = std::uint64_t{state} << 32 | static_cast<std::uint32_t>(node.value);
    return OkStatus();
  }

  Status Step(std::uint8_t opcode);
  Status StepCall(std::uint8_t opcode);
  Status StepValue(std::uint8_t opcode);
  Status StepContainer(std::uint8_t opcode);
  Status Refuse(std::uint8_t opcode) const;

  ByteSource& source_;
  const std::uint64_t offset_;
  const PickleLimits limits_;
  Graph graph_;
  std::uint64_t position_ = 0;  // in graph_.bytes_
  std::uint64_t at_ = 0;        // of the opcode, for messages
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  // each the stack's size where it was set
  std::vector<NodeId> memo_;
  std::uint64_t memo_count_ = 0;   // numbers given out by MEMOIZE so far
  std::array<NodeId, 259> small_;  // integers 0 to 255, False, True, None
};

Status Machine::Step(std::uint8_t opcode) {
  switch (opcode) {
    case '(':  // MARK
      marks_.push_back(stack_.size());
      return OkStatus();
    case '0':  // POP, which takes a mark too
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
        return OkStatus();
      }
      ZT_RETURN_IF_ERROR(Have(1));
      stack_.pop_back();
      return OkStatus();
    case '1': {  // POP_MARK
      ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
      stack_.resize(begin);
      return OkStatus();
    }
    case '2':  // DUP
      ZT_RETURN_IF_ERROR(Have(1));
      Push(stack_.back());
      return OkStatus();
    case 0x80: {  // PROTO
      ZT_ASSIGN_OR_RETURN(const std::uint8_t protocol, Byte());
      return protocol <= 5 ? OkStatus() : Damaged(at_, "the protocol is unknown");
    }
    case 0x95:  // FRAME: how much to read ahead
      return Number(8).status();
    case 'q':  // BINPUT
      return PutNumbered(1);
    case 'r':  // LONG_BINPUT
      return PutNumbered(4);
    case 0x94:  // MEMOIZE
      return Put(memo_count_);
    case 'h':  // BINGET
      return Get(1);
    case 'j':  // LONG_BINGET
      return Get(4);
    default:
      return StepCall(opcode);
  }
}

Status Machine::StepCall(std::uint8_t opcode) {
  switch (opcode) {
    case 'c': {  // GLOBAL
      ZT_ASSIGN_OR_RETURN(const NodeId module, Line());
      ZT_ASSIGN_OR_RETURN(const NodeId name, Line());
      return PushGlobal(module, name);
    }
    case 0x93: {  // STACK_GLOBAL
      ZT_RETURN_IF_ERROR(Have(2));
      const NodeId name = Pop(), module = Pop();
      return PushGlobal(module, name);
    }
    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      return PushCall(false);
    case 0x92:  // NEWOBJ_EX
      return PushCall(true);
    case 'b':  // BUILD
      return Build();
    case 'Q': {  // BINPERSID
      ZT_RETURN_IF_ERROR(Have(1));
      const NodeId identifier = Pop();
      Push(Make(NodeKind::kPersistent, identifier));
      return OkStatus();
    }
    default:
      return StepValue(opcode);
  }
}

Status Machine::StepValue(std::uint8_t opcode) {
  switch (opcode) {
    case 'N':  // NONE
      PushOnly(NodeKind::kNone, false);
      return OkStatus();
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      PushOnly(NodeKind::kBool, opcode == 0x88);
      return OkStatus();
    case 'J': {  // BININT
      ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(4));
      PushInt(static_cast<std::int32_t>(static_cast<std::uint32_t>(raw)));
      return OkStatus();
    }
    case 'K':    // BININT1
    case 'M': {  // BININT2
      ZT_ASSIGN_OR_RETURN(const std::uint64_t raw, Number(opcode == 'K' ? 1 : 2));
      PushInt(static_cast<std::int64_t>(raw));
      return OkStatus();
    }
    case 0x8a:  // LONG1
      return PushLong(1);
    case 0x8b:  // LONG4
      return PushLong(4);
    case 'G': {  // BINFLOAT, big-endian
      ZT_ASSIGN_OR_RETURN(std::uint64_t raw, Number(8));
      std::uint64_t value = 0;
      for (int i = 0; i < 8; ++i, raw >>= 8) value = value << 8 | (raw & 0xff);
      Push(Make(NodeKind::kDouble, 0, 0, value));
      return OkStatus();
    }
    case 0x8c:  // SHORT_BINUNICODE
    case 'U':   // SHORT_BINSTRING
      return PushStretch(NodeKind::kText, 1);
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      return PushStretch(NodeKind::kText, 4);
    case 0x8d:  // BINUNICODE8
      return PushStretch(NodeKind::kText, 8);
    case 'C':  // SHORT_BINBYTES
      return PushStretch(NodeKind::kBytes, 1);
    case 'B':  // BINBYTES
      return PushStretch(NodeKind::kBytes, 4);
    case 0x8e:  // BINBYTES8
    case 0x96:  // BYTEARRAY8
      return PushStretch(NodeKind::kBytes, 8);
    default:
      return StepContainer(opcode);
  }
}

Status Machine::StepContainer(std::uint8_t opcode) {
  switch (opcode) {
    case ')':  // EMPTY_TUPLE
      FoldTuple(stack_.size());
      return OkStatus();
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      ZT_RETURN_IF_ERROR(Have(opcode - 0x84u));
      FoldTuple(stack_.size() - (opcode - 0x84u));
      return OkStatus();
    case ']':  // EMPTY_LIST
      FoldList(NodeKind::kList, stack_.size());
      return OkStatus();
    case '}':  // EMPTY_DICT
      FoldList(NodeKind::kDict, stack_.size());
      return OkStatus();
    case 0x8f:  // EMPTY_SET
      FoldList(NodeKind::kSet, stack_.size());
      return OkStatus();
    case 't':     // TUPLE
    case 'l':     // LIST
    case 'd':     // DICT
    case 0x91: {  // FROZENSET
      ZT_ASSIGN_OR_RETURN(const std::size_t begin, TakeMark());
      if (opcode == 'd' && (stack_.size() - begin) % 2 != 0) {
        return Damaged(at_, "a key lacks its value");
      }
      if (opcode == 't') {
        FoldTuple(begin);
      } else {
        FoldList(opcode == 'l'   ? NodeKind::kList
                 : opcode == 'd' ? NodeKind::kDict
                                 : NodeKind::kSet,
                 begin);
      }
      return OkStatus();
    }
    case 'a':  // APPEND
      ZT_RETURN_IF_ERROR(Have(2));
      return AddItems(stack_.size() - 1, false);
    case 's':  // SETITEM
      ZT_RETURN_IF_ERROR(Have(3));
      return AddItems(stack_.size() - 2, true);
    case 'e':   // APPENDS
    case 0x90:  // ADDITEMS
      return AddMarked(false);
    case 'u':  // SETITEMS
      return AddMarked(true);
    default:
      return Refuse(opcode);
  }
}

// Why an opcode is not read.
Status Machine::Refuse(std::uint8_t opcode) const {
  switch (opcode) {
    case 'I':
    case 'L':
    case 'F':
    case 'S':
    case 'V':
    case 'P':
    case 'p':
    case 'g':
    case 'i':
    case 'o':
      return Unsupported("the pickle holds opcodes of protocol 0; save it again with torch.save");
    case 0x82:
    case 0x83:
    case 0x84:
      return Unsupported(
          "the pickle refers to the registry of extensions of the program that wrote it");
    case 0x97:
    case 0x98:
      return Unsupported("the pickle keeps buffers outside itself");
    default:
      return Damaged(at_, "opcode " + std::to_string(opcode) + " is unknown");
  }
}

StatusOr<Graph> Graph::Read(ByteSource& bytes, std::uint64_t offset, const PickleLimits& limits) {
  return Machine(bytes, offset, limits).Run();
}

}  // namespace zt::torch::internal
