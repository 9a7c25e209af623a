// zt.convert.torch:contents — walks a checkpoint's tree: names tensors, and turns
// values into attributes.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import zt.core;

namespace zt::torch::internal {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kMaxValueDepth = 60;  // the attributes of a .zt file nest 64 levels at most
// A shared value is named once for each path to it. What is charged for a tensor, an attribute and
// an element of one, which are copied on their way to the file, and for each byte of a text.
constexpr std::uint64_t kTensorCost = 2048, kAttributeCost = 256, kElementCost = 80, kTextCost = 8;
// What is charged as printed of an element, and more of a large integer and of a float.
constexpr std::uint64_t kElementPrinted = 8, kLargePrinted = 14, kFloatPrinted = 18;
constexpr std::uint64_t kSparseParts = 3;  // the lines that name a sparse tensor

// The class that a persistent node stands for: a stream keeps those of modules with their source.
// kNoNode if it stands for none.
NodeId ModuleClass(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kPersistent)) return Graph::kNoNode;
  const auto parts = graph.Items(graph.identifier(id));
  const bool module = parts.size() > 1 && graph.Is(parts[0], NodeKind::kText) &&
                      graph.Text(parts[0]) == "module" && graph.Is(parts[1], NodeKind::kGlobal);
  return module ? parts[1] : Graph::kNoNode;
}

constexpr std::string_view kTooLong = " (it is too long, written out, or takes too much memory)";

class Walk {
 public:
  Walk(const Graph& graph, const PickleSource& from, Allowance& allowance)
      : graph_(graph),
        allowance_(allowance),
        holds_(graph.HoldersOf([&](NodeId id) {
          return (graph.Is(id, NodeKind::kPersistent) &&
                  ModuleClass(graph, id) == Graph::kNoNode) ||
                 IsNumericArray(graph, id) || IsBytesObject(graph, id);
        })),
        tensors_(graph, holds_, contents_.storages, from.file, from.room),
        other_(graph.HoldersOf([&](NodeId id) { return IsOther(id); },
                               [&](NodeId parent, NodeId child) {
                                 return !graph.Is(parent, NodeKind::kCall) ||
                                        (IsSize(parent) && child == graph.args(parent));
                               })) {
    contents_.left_out = from.left_out;
    open_.resize(graph.node_count());
  }

  StatusOr<Contents> Run(const PickleSource& from) {
    const NodeId root = graph_.root();
    if (from.root == Root::kMember) {
      path_ = from.stem;
      ZT_RETURN_IF_ERROR(Visit(root, 1));
    } else {
      ZT_RETURN_IF_ERROR(RunRoot(root, from.stem));
    }
    ZT_RETURN_IF_ERROR(NameApart());
    DropTwins();
    if (from.root == Root::kCheckpoint) containers_.AddTo(contents_);
    return std::move(contents_);
  }

 private:
  Status RunRoot(NodeId root, std::string_view stem) {
    path_ = stem;
    ZT_ASSIGN_OR_RETURN(std::optional<Tensor> whole, tensors_.Read(root));
    if (whole) return AddTensor(*std::move(whole));
    path_.clear();
    if (IsContainer(root) || holds_[root]) return Visit(root, 0);
    contents_.warnings.push_back(
        "it holds " + std::string(KindName(root)) +
        ", neither a tensor nor a dict or list of tensors: nothing is kept");
    return OkStatus();
  }

  // Names of tensors must be valid and unique, but keys need not be UTF-8, and "a.b" may be one key
  // or two nested keys. What has no name of its own gets one by which it can be left out.
  Status NameApart() {
    TensorNames names;
    for (Tensor& tensor : contents_.tensors) {
      if (!IsUtf8(tensor.name)) {
        tensor.name = EscapeUnlessUtf8(tensor.name);
        Condemn(tensor, Unsupported("its name is not valid UTF-8, as with a lone surrogate; give "
                                    "it another key"));
      }
      const std::string own = std::exchange(tensor.name, names.Take(tensor.name));
      if (tensor.name == own) continue;
      ZT_RETURN_IF_ERROR(Spend(own.size()));
      ZT_RETURN_IF_ERROR(Print(own, 2));
      Condemn(tensor, TwinProblem(own));
    }
    return OkStatus();
  }
  // Makes a tensor one that cannot be converted.
  void Condemn(Tensor& tensor, Status why) {
    if (tensor.problem.ok()) tensor.problem = std::move(why);
  }

  // Removes duplicate attributes, as NameApart says.
  void DropTwins() {
    std::unordered_set<std::string_view, zt::internal::NameHash> keys;
    keys.reserve(contents_.attributes.size());
    std::vector<bool> unique;
    for (const Value::Member& member : contents_.attributes) {
      unique.push_back(false);
      if (member.first.empty() || !IsUtf8(member.first)) {
        contents_.left_out.Add(Quote(member.first) + " (its path is not a valid name)");
      } else if (!keys.insert(member.first).second) {
        contents_.left_out.Add(Quote(member.first) + " (a second value has the same path)");
      } else {
        unique.back() = true;
      }
    }
    std::size_t at = 0;
    std::erase_if(contents_.attributes, [&](const Value::Member&) { return !unique[at++]; });
  }

  // Notes that the current path is that of a container.
  void Note(Value kind, std::size_t elements = 0) {
    if (module_) return;
    const bool affordable = AffordText(kAttributeCost + kElementCost * elements, path_) &&
                            Afford(0, kElementPrinted * (1 + elements));
    if (affordable && IsUtf8(path_)) {
      containers_.Add(path_, std::move(kind));
    } else {
      containers_.Drop();
    }
  }

  Status Spend(std::uint64_t bytes) { return allowance_.Spend(bytes); }
  Status Print(std::string_view text, std::uint64_t times = 1) {
    return allowance_.PrintName(times * Allowance::Printed(text));
  }
  // For Plain; false, and long_, if that is too much.
  bool Afford(std::uint64_t bytes, std::uint64_t printed) {
    long_ = !allowance_.SpendOnValue(bytes, printed);
    return !long_;
  }
  bool AffordText(std::uint64_t bytes, std::string_view text) {
    long_ = !allowance_.SpendOnText(bytes + kTextCost * text.size(), text);
    return !long_;
  }
  std::string Here() const { return path_.empty() ? std::string("the whole") : Quote(path_); }

  // Visits a member or element of the current value.
  Status Enter(std::string_view key, NodeId value, int depth) {
    const std::size_t length = path_.size(), inside = containers_.inside;
    if (depth > 0) path_ += '.';
    path_ += key;
    const Status status = Visit(value, depth + 1);
    path_.resize(length);
    containers_.inside = inside;
    return status;
  }

  Status Visit(NodeId id, int depth) {
    ZT_RETURN_IF_ERROR(Spend(1 + path_.size()));
    if (open_[id]) {
      LeaveOut(" (it holds itself)");
      return OkStatus();
    }
    if (depth > kMaxDepth) {
      const std::string why = "it nests deeper than " + std::to_string(kMaxDepth) + " levels";
      if (holds_[id]) return ListProblem("member", Unsupported(why), depth);
      LeaveOut(" (" + why + ")");
      return OkStatus();
    }
    if (depth > 0) {
      auto value = Plain(path_, id);
      if (value) {
        if (graph_.Is(id, NodeKind::kTuple)) {
          Note("tuple");
        } else {
          containers_.Count();
        }
        contents_.attributes.emplace_back(path_, *std::move(value));
        return OkStatus();
      }
      if (!other_[id]) {
        LeaveOut(long_ ? std::string(kTooLong)
                       : " (it nests deeper than " + std::to_string(kMaxValueDepth) +
                             " levels, or holds itself)");
        return OkStatus();
      }
    }
    open_[id] = true;
    const Status status = VisitParts(id, depth);
    open_[id] = false;
    return status;
  }
  Status VisitParts(NodeId id, int depth) {
    switch (graph_.kind(id)) {
      case NodeKind::kDict:
        if (depth > 0 && graph_.Items(id).empty()) LeaveOut(" (an empty dict)");
        return VisitPairs(graph_.Items(id), depth);
      case NodeKind::kTuple:
        return VisitElements(graph_.Items(id), depth, "tuple");
      case NodeKind::kList:
      case NodeKind::kSet:
        return VisitElements(graph_.Items(id), depth);
      case NodeKind::kCall:
        return VisitCall(id, depth);
      case NodeKind::kPersistent:
        if (holds_[id]) {
          return ListProblem("storage",
                             Unsupported("it is a storage without a tensor; save a tensor of it"),
                             depth);
        }
        LeaveOut("");
        return OkStatus();
      case NodeKind::kBigInt:
        LeaveOut(" (a number of more than 64 bits)");
        return OkStatus();
      default:
        LeaveOut("");
        return OkStatus();
    }
  }
  bool IsContainer(NodeId id) const {
    const NodeKind kind = graph_.kind(id);
    return kind == NodeKind::kDict || kind == NodeKind::kTuple || kind == NodeKind::kList ||
           kind == NodeKind::kSet || kind == NodeKind::kCall;
  }

  Status VisitElements(std::span<const NodeId> items, int depth, std::string_view kind = "list") {
    Note(kind);
    for (std::size_t i = 0; i < items.size(); ++i) {
      ZT_RETURN_IF_ERROR(Enter(std::to_string(i), items[i], depth));
    }
    return OkStatus();
  }

  // As in Python, the last of equal keys wins and takes the position of the first. The number 1 and
  // the text '1' are different keys with one name, as are a class and its name: both are visited.
  Status VisitPairs(std::span<const NodeId> items, int depth) {
    std::vector<std::pair<std::string, NodeId>> members;
    std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> texts, others;
    members.reserve(items.size() / 2);
    texts.reserve(items.size() / 2);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      const std::optional<std::string> key = Key(items[i]);
      if (!key) {
        ZT_RETURN_IF_ERROR(LeaveOutMember(items[i], items[i + 1], i / 2, depth));
        continue;
      }
      ZT_RETURN_IF_ERROR(Spend(key->size()));
      // no reallocation, so the views of its texts stay valid
      members.emplace_back(*key, items[i + 1]);
      auto& seen = graph_.Is(items[i], NodeKind::kText) ? texts : others;
      const auto [place, fresh] = seen.emplace(members.back().first, members.size() - 1);
      if (!fresh) {
        members[place->second].second = items[i + 1];
        members.pop_back();
      }
    }
    Value::Array whole;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph_.Is(items[i], NodeKind::kInt)) whole.emplace_back(graph_.Int(items[i]));
    }
    const std::size_t numbered = whole.size();
    Note(whole.empty() ? Value("dict") : Value(std::move(whole)), numbered);
    for (const auto& [key, value] : members) ZT_RETURN_IF_ERROR(Enter(key, value, depth));
    return OkStatus();
  }
  // Leaves out a member whose key is no name; `place` is its index in the dict.
  Status LeaveOutMember(NodeId key, NodeId value, std::size_t place, int depth) {
    const std::size_t length = path_.size();
    ZT_RETURN_IF_ERROR(Spend(1 + length));
    path_ += (depth > 0 ? ".(key " : "(key ") + std::to_string(place) + ")";
    Status status = OkStatus();
    if (holds_[key] || holds_[value]) {
      status =
          ListProblem("member",
                      Unsupported("its key is neither text, a whole number nor a class; give it "
                                  "another key"),
                      depth + 1);
    } else {
      LeaveOut(" (its key is neither text, a whole number nor a class)");
    }
    path_.resize(length);
    return status;
  }
  std::optional<std::string> Key(NodeId id) const {
    switch (graph_.kind(id)) {
      case NodeKind::kText:
        return std::string(graph_.Text(id));
      case NodeKind::kInt:
        return std::to_string(graph_.Int(id));
      case NodeKind::kGlobal:
        return graph_.GlobalName(id);
      default:
        return std::nullopt;
    }
  }

  Status VisitCall(NodeId id, int depth) {
    auto tensor = tensors_.Read(id);
    if (tensor.status().code() == StatusCode::kUnimplemented) {
      return ListProblem("tensor", tensor.status(), depth);
    }
    if (!tensor.ok()) return WithTensor(tensor.status(), path_);
    if (*tensor) return AddTensor(**std::move(tensor));
    const NodeId module = ModuleClass(graph_, graph_.callable(id));
    const NodeId callable = module == Graph::kNoNode ? graph_.callable(id) : module;
    const auto args = graph_.Items(graph_.args(id));
    const NodeId state = graph_.state(id);
    const bool plain_state = state == Graph::kNoNode || !holds_[state];
    if (plain_state && IsDictClass(callable)) {
      LeaveOutState(id);
      return VisitDictCall(id, depth);
    }
    if (plain_state && IsListClass(callable) && args.size() == 1) {
      return VisitElements(graph_.Items(args[0]), depth);
    }
    const std::string name = graph_.Is(callable, NodeKind::kGlobal) ? graph_.GlobalName(callable)
                                                                    : "another object's result";
    ZT_RETURN_IF_ERROR(Spend(2 * name.size()));
    if (IsModule(graph_, id)) return VisitModule(id, depth);
    // A user's class derived from dict or list holds the items added to it.
    if (plain_state && !holds_[graph_.args(id)] && holds_[id] && !graph_.Items(id).empty()) {
      LeaveOutState(id);
      return graph_.has_pairs(id) ? VisitPairs(graph_.Items(id), depth)
                                  : VisitElements(graph_.Items(id), depth);
    }
    if (!holds_[id] && !RebuildsTensor(name)) {
      LeaveOut(" (" + name + ")");
      return OkStatus();
    }
    if (IsPacked(name)) {
      return ListProblem(name,
                         Unsupported("it is an object of " + Quote(name) +
                                     ", the packed weights of a quantized layer; save the model as "
                                     "it was before it was quantized"),
                         depth);
    }
    return ListProblem(
        name,
        Unsupported("it is an object of " + Quote(name) +
                    " and holds tensors; no code is run to make it: load it in Python and save "
                    "its state_dict()"),
        depth);
  }
  Status VisitModule(NodeId id, int depth) {
    constexpr std::string_view kNote =
        "it holds a whole module: its tensors are kept as its state_dict() names them, and nothing "
        "else of it";
    if (std::ranges::find(contents_.warnings, kNote) == contents_.warnings.end())
      contents_.warnings.emplace_back(kNote);
    const auto module = ReadModule(graph_, id, holds_);
    if (!module.ok())
      return InvalidData(Here() + " has parts of which one " + Fact(module.status()));
    const std::string prefix = path_ + (path_.empty() ? "" : ".");
    for (const std::string_view name : module->others) {
      contents_.left_out.Add(contents_.left_out.is_full() ? ""
                                                          : Quote(prefix + std::string(name)) +
                                                                " (an attribute of a module)");
    }
    ZT_RETURN_IF_ERROR(Spend(module->pairs.size()));
    Note("dict");  // the whole of it is one state_dict()
    const bool outer = std::exchange(module_, true);
    const Status status = VisitPairs(module->pairs, depth);
    module_ = outer;
    return status;
  }
  Status AddTensor(Tensor tensor) {
    ZT_RETURN_IF_ERROR(Spend(kTensorCost + kTextCost * path_.size()));
    ZT_RETURN_IF_ERROR(Print(path_, tensor.layout == Layout::kDense ? 1 : kSparseParts));
    tensor.name = path_;
    if (tensor.state != Graph::kNoNode) ZT_RETURN_IF_ERROR(AddAttributes(tensor));
    containers_.Count();
    contents_.tensors.push_back(std::move(tensor));
    return OkStatus();
  }
  // Python keeps a dict of the attributes that were set on an object; for a class with slots, a
  // pair of that (or None) and of the slots.
  Status AddAttributes(Tensor& tensor) {
    const NodeId state = tensor.state;
    const auto parts = graph_.Is(state, NodeKind::kTuple) ? graph_.Items(state)
                                                          : std::span<const NodeId>(&state, 1);
    std::unordered_map<std::string, std::size_t, zt::internal::NameHash> places;  // by key
    for (const NodeId part : parts) {
      const auto items =
          graph_.Is(part, NodeKind::kDict) ? graph_.Items(part) : std::span<const NodeId>();
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const std::string key = Key(items[i]).value_or("(an attribute without a name)");
        ZT_RETURN_IF_ERROR(Spend(1 + path_.size() + key.size()));
        auto value = Plain(key, items[i + 1]);
        if (!value || !IsUtf8(key)) {
          const bool cut = long_ && !other_[items[i + 1]];
          // There may be as many for each tensor.
          contents_.left_out.Add(contents_.left_out.is_full()
                                     ? ""
                                     : Quote(path_ + "." + key) + std::string(cut ? kTooLong : ""));
        } else if (const auto [known, fresh] = places.emplace(key, tensor.attributes.size());
                   fresh) {
          tensor.attributes.emplace_back(key, *std::move(value));
        } else {
          tensor.attributes[known->second].second = *std::move(value);
        }
      }
    }
    return OkStatus();
  }
  // Lists the current object as one that cannot be converted, so that it can be excluded. An
  // error if it is the root.
  Status ListProblem(std::string_view what, const Status& why, int depth) {
    if (depth == 0) return why;
    containers_.Count();
    Tensor& tensor = contents_.tensors.emplace_back();
    tensor.name = path_;
    tensor.foreign = IsUtf8(what) ? what : "object";
    tensor.problem = why;
    const std::string_view fact(why.message().data(), why.message().size());
    for (const std::string_view text : {std::string_view(path_), what, fact}) {
      ZT_RETURN_IF_ERROR(Print(text));
    }
    return Spend(kTensorCost + kTextCost * (path_.size() + what.size() + fact.size()));
  }
  // A dict's own attributes are not part of its contents, and are left out. No message for
  // `_metadata`, which every state_dict has: it holds the versions of modules, with which torch
  // loads older files into newer modules, and no tensor needs it.
  void LeaveOutState(NodeId id) {
    const NodeId state = graph_.state(id);
    if (state == Graph::kNoNode || !graph_.Is(state, NodeKind::kDict)) return;
    const auto items = graph_.Items(state);
    if (items.empty()) return;
    const bool text = graph_.Is(items[0], NodeKind::kText);
    if (text && items.size() == 2 && graph_.Text(items[0]) == "_metadata") return;
    constexpr std::size_t kMost = 64;  // limit on the bytes of a key in a message
    contents_.left_out.Add(
        "attributes of " + Here() +
        (text ? " (" + Quote(graph_.Text(items[0]).substr(0, kMost)) : std::string(" (one")) +
        (items.size() > 2 ? " and others)" : ")"));
  }
  bool IsDictClass(NodeId callable) const {
    return graph_.IsOneOf(callable, {"collections.OrderedDict", "collections.defaultdict",
                                     "collections.Counter", "builtins.dict", "__builtin__.dict"});
  }
  // Classes whose call takes their elements as argument.
  bool IsListClass(NodeId callable) const {
    return graph_.IsOneOf(callable, {"builtins.set", "__builtin__.set", "builtins.frozenset",
                                     "__builtin__.frozenset", "builtins.list", "__builtin__.list",
                                     "builtins.tuple", "__builtin__.tuple", "torch.Size"});
  }
  Status VisitDictCall(NodeId id, int depth) {
    const auto pairs = PairsOf(graph_, id);
    if (!pairs.ok()) return InvalidData(Here() + " " + Fact(pairs.status()));
    ZT_RETURN_IF_ERROR(Spend(pairs->size()));
    if (depth > 0 && pairs->empty()) LeaveOut(" (an empty dict)");
    return VisitPairs(*pairs, depth);
  }

  bool IsSize(NodeId call) const { return graph_.IsGlobal(graph_.callable(call), "torch.Size"); }
  // True for a value that is neither a number, text, bool or None, nor a list, which may hold some.
  bool IsOther(NodeId id) const {
    switch (graph_.kind(id)) {
      case NodeKind::kNone:
      case NodeKind::kBool:
      case NodeKind::kInt:
      case NodeKind::kDouble:
      case NodeKind::kTuple:
      case NodeKind::kList:
        return false;
      case NodeKind::kBigInt:  // of 9 bytes, little-endian and signed: up to 2^64 - 1
        return graph_.Text(id).size() != 9 || graph_.Text(id)[8] != 0;
      case NodeKind::kText:
        return !IsUtf8(graph_.Text(id));
      case NodeKind::kCall:
        if (IsSize(id)) return graph_.Items(graph_.args(id)).size() != 1;
        return !tensors_.ReadScalar(id);
      default:
        return true;
    }
  }

  // A number, text, bool or None, or a list of these; nothing for other values, or with long_ set.
  std::optional<Value> Plain(std::string_view key, NodeId id) {
    long_ = false;
    if (other_[id] || !AffordText(kAttributeCost, key)) return std::nullopt;
    return Build(id, 0);
  }
  // The value, in which nothing is other; nothing if it nests too deep.
  std::optional<Value> Build(NodeId id, int depth) {
    if (depth > kMaxValueDepth) return std::nullopt;
    switch (graph_.kind(id)) {
      case NodeKind::kNone:
        return Value();
      case NodeKind::kBool:
        return Value(graph_.Int(id) != 0);
      case NodeKind::kInt: {
        const std::int64_t value = graph_.Int(id);
        const bool small = value > -1'000'000 && value < 1'000'000;
        if (!small && !Afford(0, kLargePrinted)) return std::nullopt;
        return Value(value);
      }
      case NodeKind::kBigInt:
        if (!Afford(0, kLargePrinted)) return std::nullopt;
        return Value(zt::internal::LoadLittle(std::as_bytes(std::span(graph_.Text(id))).data(), 8));
      case NodeKind::kDouble:
        if (!Afford(0, kFloatPrinted)) return std::nullopt;
        return Value(graph_.Double(id));
      case NodeKind::kText: {
        const std::string_view text = graph_.Text(id);
        return AffordText(0, text) ? std::optional(Value(text)) : std::nullopt;
      }
      case NodeKind::kCall:
        if (!IsSize(id)) return Afford(0, kFloatPrinted) ? tensors_.ReadScalar(id) : std::nullopt;
        return Build(graph_.Items(graph_.args(id))[0], depth + 1);
      case NodeKind::kTuple:
      case NodeKind::kList: {
        const auto items = graph_.Items(id);
        if (!Afford(kElementCost * (1 + items.size()), kElementPrinted * items.size())) {
          return std::nullopt;
        }
        Value::Array array;
        array.reserve(items.size());
        for (const NodeId item : items) {
          std::optional<Value> value = Build(item, depth + 1);
          if (!value) return std::nullopt;
          array.push_back(*std::move(value));
        }
        return Value(std::move(array));
      }
      default:
        return std::nullopt;
    }
  }

  void LeaveOut(std::string_view why) { contents_.left_out.Add(Here() + std::string(why)); }
  // The name of the type of a value that is no container, for messages.
  std::string_view KindName(NodeId id) const {
    switch (graph_.kind(id)) {
      case NodeKind::kNone:
        return "None";
      case NodeKind::kBool:
        return "a flag";
      case NodeKind::kInt:
      case NodeKind::kBigInt:
      case NodeKind::kDouble:
        return "a number";
      case NodeKind::kText:
        return "a text";
      default:
        return "one value";
    }
  }

  const Graph& graph_;
  Allowance& allowance_;
  const std::vector<bool> holds_;
  Contents contents_;
  TensorReader tensors_;
  const std::vector<bool> other_;  // by node: an IsOther() is in it
  std::vector<bool> open_;         // by node: it is visited, so what it holds is in it
  std::string path_;
  Containers containers_;
  bool module_ = false;  // the current value is a module, or in one
  bool long_ = false;    // the value that Plain tried last takes more than is allowed
};

}  // namespace

std::string TensorNames::Take(std::string name) {
  if (taken_.emplace(name, 1).second) return name;
  std::string other;
  do {
    other = name + " (" + std::to_string(++taken_[name]) + ")";
  } while (!taken_.emplace(other, 1).second);
  return other;
}

Status TwinProblem(std::string_view own) {
  return Unsupported("another tensor is named " + Quote(own) + "; give one of them another key");
}

StatusOr<Contents> ReadContents(const Graph& graph, const PickleSource& from,
                                Allowance& allowance) {
  return Walk(graph, from, allowance).Run(from);
}

}  // namespace zt::torch::internal
