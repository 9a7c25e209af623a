// zt.convert.torch:contents — walks a checkpoint's tree: names tensors, and turns
// values into attributes.
module;

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
// A shared value is named once for each path to it. Limit on the bytes of names and attributes:
// kFreeWork plus kWorkPerByte for each byte of the pickle, at most kMaxWork.
constexpr std::uint64_t kFreeWork = std::uint64_t{4} << 20;
constexpr std::uint64_t kWorkPerByte = 64;
// Cost of each byte of a text, which is copied several times on its way to the file.
constexpr std::uint64_t kTextWork = 16;
constexpr std::uint64_t kMaxWork = std::uint64_t{1} << 30;

class Walk {
 public:
  Walk(const Graph& graph, std::uint64_t memory_limit)
      : graph_(graph),
        holds_(graph.HoldersOf([&](NodeId id) {
          return graph.Is(id, NodeKind::kPersistent) || IsNumericArray(graph, id);
        })),
        tensors_(graph, holds_, contents_.storages, memory_limit / 2) {
    budget_ = std::min(kMaxWork, kFreeWork + kWorkPerByte * graph.size());
  }

  StatusOr<Contents> Run(std::string_view stem) {
    const NodeId root = graph_.root();
    ZT_ASSIGN_OR_RETURN(std::optional<Tensor> whole, tensors_.Read(root));
    if (whole) {
      whole->name = stem;
      contents_.tensors.push_back(*std::move(whole));
    } else if (!IsContainer(root) && !holds_[root]) {
      contents_.warnings.push_back(
          "it holds " + std::string(KindName(root)) +
          ", neither a tensor nor a dict or list of tensors: nothing is kept");
    } else {
      ZT_RETURN_IF_ERROR(Visit(root, 0));
    }
    std::unordered_set<std::string_view, zt::internal::NameHash> names;
    for (const Tensor& tensor : contents_.tensors) {
      if (!names.insert(tensor.name).second) {
        return Unsupported("two tensors would be named " + Quote(tensor.name));
      }
    }
    DropTwins();
    return std::move(contents_);
  }

 private:
  // Removes duplicate attributes: keys must be unique, but "a.b" may be one key or two nested keys.
  void DropTwins() {
    std::unordered_set<std::string, zt::internal::NameHash> keys;
    Value::Map unique;
    for (Value::Member& member : contents_.attributes) {
      if (member.first.empty() || !IsUtf8(member.first)) {
        contents_.left_out.Add(Quote(member.first) + " (its path is not a valid name)");
      } else if (!keys.insert(member.first).second) {
        contents_.left_out.Add(Quote(member.first) + " (a second tensor has the same path)");
      } else {
        unique.push_back(std::move(member));
      }
    }
    contents_.attributes = std::move(unique);
  }

  Status Spend(std::uint64_t work) {
    if (work > budget_) {
      return Unsupported("its values are shared so often that their names would take more than " +
                         std::to_string(kWorkPerByte) + " times its size");
    }
    budget_ -= work;
    return OkStatus();
  }
  std::string Here() const { return path_.empty() ? std::string("the whole") : Quote(path_); }

  // Visits a member or element of the current value.
  Status Enter(std::string_view key, NodeId value, int depth) {
    const std::size_t length = path_.size();
    if (depth > 0) path_ += '.';
    path_ += key;
    const Status status = Visit(value, depth + 1);
    path_.resize(length);
    return status;
  }

  Status Visit(NodeId id, int depth) {
    ZT_RETURN_IF_ERROR(Spend(1 + path_.size()));
    if (depth > kMaxDepth) {
      return Unsupported(Here() + " nests deeper than " + std::to_string(kMaxDepth) +
                         " levels, or holds itself");
    }
    if (!holds_[id] && depth > 0) {
      if (const auto value = Plain(id, 0)) {
        contents_.attributes.emplace_back(path_, *value);
        return OkStatus();
      }
    }
    switch (graph_.kind(id)) {
      case NodeKind::kDict:
        if (depth > 0 && graph_.Items(id).empty()) LeaveOut(" (an empty dict)");
        return VisitPairs(graph_.Items(id), depth);
      case NodeKind::kTuple:
      case NodeKind::kList:
      case NodeKind::kSet:
        return VisitElements(graph_.Items(id), depth);
      case NodeKind::kCall:
        return VisitCall(id, depth);
      case NodeKind::kPersistent:
        return ListProblem("storage", "it is a storage without a tensor; save a tensor of it",
                           depth);
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

  Status VisitElements(std::span<const NodeId> items, int depth) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      ZT_RETURN_IF_ERROR(Enter(std::to_string(i), items[i], depth));
    }
    return OkStatus();
  }

  // As in Python, the last of equal keys wins and takes the position of the first. The number 1 and
  // the text '1' are different keys with one name: both are visited.
  Status VisitPairs(std::span<const NodeId> items, int depth) {
    std::vector<std::pair<std::string, NodeId>> members;
    std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> texts, numbers;
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
      auto& seen = graph_.Is(items[i], NodeKind::kText) ? texts : numbers;
      const auto [place, fresh] = seen.emplace(members.back().first, members.size() - 1);
      if (!fresh) {
        members[place->second].second = items[i + 1];
        members.pop_back();
      }
    }
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
      status = ListProblem("member", "its key is neither text nor a whole number", depth + 1);
    } else {
      LeaveOut(" (its key is neither text nor a whole number)");
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
      default:
        return std::nullopt;
    }
  }

  Status VisitCall(NodeId id, int depth) {
    auto tensor = tensors_.Read(id);
    if (tensor.status().code() == StatusCode::kUnimplemented) {
      return ListProblem("tensor", std::string(tensor.status().message()), depth);
    }
    if (!tensor.ok()) return WithTensor(tensor.status(), path_);
    if (*tensor) {
      ZT_RETURN_IF_ERROR(Spend(sizeof(Tensor)));
      (*tensor)->name = path_;
      contents_.tensors.push_back(**std::move(tensor));
      return OkStatus();
    }
    const NodeId callable = graph_.callable(id);
    const auto args = graph_.Items(graph_.args(id));
    const NodeId state = graph_.state(id);
    const bool plain_state = state == Graph::kNoNode || !holds_[state];
    if (plain_state && IsDictClass(callable)) {
      LeaveOutState(id);
      return VisitDictCall(id, args, depth);
    }
    if (plain_state && IsListClass(callable) && args.size() == 1) {
      return VisitElements(graph_.Items(args[0]), depth);
    }
    const std::string name = graph_.Is(callable, NodeKind::kGlobal) ? graph_.GlobalName(callable)
                                                                    : "another object's result";
    ZT_RETURN_IF_ERROR(Spend(2 * name.size()));
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
    return ListProblem(
        name,
        "it is an object of " + Quote(name) +
            " and holds tensors; no code is run to make it: load it in Python and save "
            "its state_dict()",
        depth);
  }
  // Lists the current object as one that cannot be converted, so that it can be excluded. An
  // error if it is the root.
  Status ListProblem(std::string_view what, std::string_view why, int depth) {
    if (depth == 0) return Unsupported(why);
    Tensor& tensor = contents_.tensors.emplace_back();
    tensor.name = path_;
    tensor.foreign = IsUtf8(what) ? what : "object";
    tensor.problem = why;
    return Spend(sizeof(Tensor) + path_.size() + what.size() + why.size());
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
    return graph_.IsOneOf(
        callable, {"builtins.set", "__builtin__.set", "builtins.frozenset", "__builtin__.frozenset",
                   "builtins.list", "__builtin__.list", "torch.Size"});
  }
  // Functions that make tensors without a storage in the container.
  bool RebuildsTensor(std::string_view name) const {
    return name.starts_with("torch._utils._rebuild_") ||
           name.starts_with("torch._tensor._rebuild_") || name == "torch.storage._load_from_bytes";
  }

  // Visits the items passed to the class, then those added later.
  Status VisitDictCall(NodeId id, std::span<const NodeId> args, int depth) {
    std::vector<NodeId> pairs;
    if (!args.empty() && !graph_.IsGlobal(graph_.callable(id), "collections.defaultdict")) {
      const bool dict = graph_.Is(args[0], NodeKind::kDict);
      for (const NodeId item : graph_.Items(args[0])) {
        if (dict) {
          pairs.push_back(item);
          continue;
        }
        const auto pair = graph_.Items(item);  // OrderedDict([[key, value], ...])
        if (pair.size() != 2)
          return InvalidData(Here() + " is a dict with items that are not pairs");
        pairs.insert(pairs.end(), pair.begin(), pair.end());
      }
      ZT_RETURN_IF_ERROR(Spend(pairs.size()));
    }
    const auto items = graph_.Items(id);
    if (!items.empty() && !graph_.has_pairs(id)) {
      return InvalidData(Here() + " is a dict to which a list was added");
    }
    if (depth > 0 && pairs.empty() && items.empty()) LeaveOut(" (an empty dict)");
    if (pairs.empty()) return VisitPairs(items, depth);
    pairs.insert(pairs.end(), items.begin(), items.end());
    return VisitPairs(pairs, depth);
  }

  // A number, text, bool or None, or a list of these; nothing for other values.
  std::optional<Value> Plain(NodeId id, int depth) {
    if (depth > kMaxDepth) return std::nullopt;
    switch (graph_.kind(id)) {
      case NodeKind::kNone:
        return Value();
      case NodeKind::kBool:
        return Value(graph_.Int(id) != 0);
      case NodeKind::kInt:
        return Value(graph_.Int(id));
      case NodeKind::kDouble:
        return Value(graph_.Double(id));
      case NodeKind::kText: {
        const std::string_view text = graph_.Text(id);
        if (!Spend(kTextWork * text.size()).ok() || !IsUtf8(text)) return std::nullopt;
        return Value(text);
      }
      case NodeKind::kCall:
        if (!graph_.IsGlobal(graph_.callable(id), "torch.Size")) return tensors_.ReadScalar(id);
        if (graph_.Items(graph_.args(id)).size() != 1) return std::nullopt;
        return Plain(graph_.Items(graph_.args(id))[0], depth + 1);
      case NodeKind::kTuple:
      case NodeKind::kList: {
        Value::Array array;
        for (const NodeId item : graph_.Items(id)) {
          if (!Spend(sizeof(Value)).ok()) return std::nullopt;
          std::optional<Value> value = Plain(item, depth + 1);
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
  const std::vector<bool> holds_;
  Contents contents_;
  TensorReader tensors_;
  std::string path_;
  std::uint64_t budget_ = 0;
};

}  // namespace

StatusOr<Contents> ReadContents(const Graph& graph, std::string_view stem,
                                std::uint64_t memory_limit) {
  return Walk(graph, memory_limit).Run(stem);
}

}  // namespace zt::torch::internal
