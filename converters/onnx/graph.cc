// zt.convert.onnx:model — finds the tensors of graphs, nodes and functions.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.onnx;

import zt.std;
import :model;
import :wire;
import zt.core;
import zt.source;

namespace zt::onnx::internal {
namespace {

// Limit: a tensor can take two bytes of the file, and a hundred times as much memory. Models stay
// far below it.
constexpr std::size_t kMaxTensors = std::size_t{1} << 18;
constexpr std::uint64_t kMaxText = std::uint64_t{64} << 20;
// Limit on the bytes of all names: kFreeNames plus kNamesPerByte for each byte of the file. The
// name of a node is part of the names of all its attributes.
constexpr std::uint64_t kFreeNames = std::uint64_t{256} << 10;
constexpr std::uint64_t kNamesPerByte = 4;
constexpr int kMaxDepth = 64;  // nesting of graphs within nodes
// Limit on the bytes of a function's name, which is prefixed to the names of its tensors.
constexpr std::size_t kMaxPrefix = 256;

// Numbers of AttributeProto.type.
enum AttributeType : std::uint64_t { kFloat = 1, kInt = 2, kString = 3, kFloats = 6, kInts = 7 };
// Numbers of TensorProto.data_type.
constexpr std::uint64_t kTypeF32 = 1, kTypeI64 = 7;

// Reads an entry of StringStringEntryProto; its text only if it is not longer than kMaxText.
StatusOr<std::pair<std::string, std::optional<std::string>>> ReadPair(Cursor& cursor,
                                                                      const FileRange& range) {
  std::pair<std::string, std::optional<std::string>> pair{"", ""};
  ZT_RETURN_IF_ERROR(ForEachField(cursor, range, [&](const Field& field) -> Status {
    if (field.wire != 2 || field.number > 2) return OkStatus();
    if (field.number == 1) {
      ZT_ASSIGN_OR_RETURN(pair.first, cursor.Name(field.range));
    } else if (field.range.length > kMaxText) {
      pair.second = std::nullopt;
    } else {
      cursor.SkipTo(field.range.offset);
      pair.second = std::string(field.range.length, '\0');
      return cursor.Bytes(std::as_writable_bytes(std::span(*pair.second)));
    }
    return OkStatus();
  }));
  return pair;
}

// Notes a field of typed data, which need not be of one kind with those before it.
void AddNumbers(const Field& field, bool varints, TensorProto& tensor) {
  Numbers& numbers = tensor.numbers;
  const Numbers one{.message = numbers.message,
                    .field = field.number,
                    .varints = varints,
                    .fields = 0,
                    .bytes = 0,
                    .first = {}};
  if (!one.Has(field)) return;
  if (numbers.field == 0) {
    numbers = one;
  } else if (numbers.field != field.number) {
    tensor.mixed = true;
  }
  if (field.range.length == 0) return;
  if (!varints && field.range.length % (field.number == 10 ? sizeof(double) : sizeof(float)) != 0)
    tensor.problem = InvalidData("a field of its numbers ends within a number");
  if (numbers.fields++ == 0) numbers.first = field.range;
  numbers.bytes += field.range.length;
}

// The position of a number in external_data.
void ReadPlace(std::string_view key, std::string_view text, std::uint64_t& place,
               TensorProto& tensor) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), place);
  if (error == std::errc() && end == text.data() + text.size()) return;
  tensor.problem =
      InvalidData("the " + std::string(key) + " of its external data is " + Quote(text));
}

class TensorReader {
 public:
  TensorReader(Cursor& cursor, TensorProto& tensor) : cursor_(cursor), tensor_(tensor) {}

  Status Read(const FileRange& range) {
    tensor_.numbers.message = range;
    return ForEachField(cursor_, range, [this](const Field& field) { return Take(field); });
  }
  // Reads a SparseTensorProto: its values, which carry the name, its indices and its dims.
  Status ReadSparse(const FileRange& range) {
    tensor_.sparse.resize(2);
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [this](const Field& field) -> Status {
      if (field.number == 3) return AddDims(field);
      if ((field.number != 1 && field.number != 2) || field.wire != 2) return OkStatus();
      return TensorReader(cursor_, tensor_.sparse[field.number - 1]).Read(field.range);
    }));
    tensor_.name = tensor_.sparse[0].name;
    return OkStatus();
  }

 private:
  Status AddDims(const Field& field) {
    if (field.wire != 0 && field.wire != 2) return OkStatus();
    cursor_.SkipTo(field.range.offset);
    while (cursor_.at() < field.range.end()) {
      ZT_ASSIGN_OR_RETURN(const std::uint64_t dim, cursor_.Varint(field.range.end()));
      if (tensor_.dims.size() == kMaxRank) {
        tensor_.problem = Unsupported("it has more than 64 dimensions");
        return OkStatus();
      }
      if (dim > ~std::uint64_t{0} / 2) tensor_.problem = InvalidData("a dimension is negative");
      tensor_.dims.push_back(dim);
    }
    return OkStatus();
  }

  Status AddExternal(const FileRange& range) {
    ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor_, range));
    const std::string& key = pair.first;
    std::string text = std::move(pair.second).value_or("");
    if (key == "location") tensor_.where.location = std::move(text);
    if (key == "offset") ReadPlace(key, text, tensor_.where.offset, tensor_);
    if (key == "length") ReadPlace(key, text, tensor_.where.length.emplace(0), tensor_);
    return OkStatus();
  }

  Status Take(const Field& field) {
    switch (field.number) {
      case 1:  // dims
        return AddDims(field);
      case 2:  // data_type
        if (field.wire == 0) tensor_.type = field.value;
        break;
      case 4:   // float_data
      case 10:  // double_data
        AddNumbers(field, false, tensor_);
        break;
      case 5:   // int32_data
      case 7:   // int64_data
      case 11:  // uint64_data
        AddNumbers(field, true, tensor_);
        break;
      case 8: {  // name
        if (field.wire != 2) break;
        ZT_ASSIGN_OR_RETURN(tensor_.name, cursor_.Name(field.range));
        break;
      }
      case 9:  // raw_data
        if (field.wire == 2) tensor_.raw = field.range;
        break;
      case 13:  // external_data
        return field.wire == 2 ? AddExternal(field.range) : OkStatus();
      case 14:  // data_location
        tensor_.external = field.wire == 0 && field.value == 1;
        break;
      default:
        break;
    }
    return OkStatus();
  }

  Cursor& cursor_;
  TensorProto& tensor_;
};

// Reads graphs and everything in them. Each byte is read at most three times: a node's type and
// outputs may follow its attributes, as an attribute's name may follow its tensors.
class GraphReader {
 public:
  GraphReader(Cursor& cursor, ModelTaker& taker)
      : cursor_(cursor), taker_(taker), budget_(kFreeNames + kNamesPerByte * cursor.size()) {}

  // Reads a GraphProto: its nodes, initializers and sparse initializers are fields 1, 5 and 15.
  Status Graph(const FileRange& range, int depth) {
    if (depth > kMaxDepth) {
      return Unsupported("its graphs nest deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    const std::uint64_t graph = graphs_++;
    return ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (field.wire != 2) return OkStatus();
      if (field.number == 1) return ReadNode(field.range, graph, depth);
      if (field.number == 5) return Add(field.range, graph, false, nullptr);
      if (field.number == 15) return Add(field.range, graph, true, nullptr);
      return OkStatus();
    });
  }
  // Reads a FunctionProto. Its tensors have a namespace of their own: the function's name is their
  // prefix, with its domain and its overload if others have that name.
  Status Function(const FileRange& range) {
    std::string name, domain, overload;
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [&](const Field& field) -> Status {
      std::string* const into = field.number == 1    ? &name
                                : field.number == 10 ? &domain
                                : field.number == 13 ? &overload
                                                     : nullptr;
      if (into == nullptr || field.wire != 2) return OkStatus();
      ZT_ASSIGN_OR_RETURN(*into, cursor_.Name(field.range));
      return OkStatus();
    }));
    if (name.size() + domain.size() + overload.size() > kMaxPrefix) {
      return Unsupported("a function's name is longer than " + std::to_string(kMaxPrefix) +
                         " bytes");
    }
    const bool known = !functions_.insert(name).second;
    if (known && !domain.empty()) name.insert(0, domain + ".");
    if (known && !functions_.insert(name).second) name += "." + overload;
    prefix_ = name.empty() ? "" : name + "/";
    const Node node{.label = "", .kind = Kind::kOther};
    const std::uint64_t graph = graphs_++;
    const Status status = ForEachField(cursor_, range, [&](const Field& field) {
      if (field.wire != 2) return OkStatus();
      if (field.number == 7) return ReadNode(field.range, graph, 0);
      // Default values of the function's attributes.
      return field.number == 11 ? Attribute(field.range, node, graph, 0) : OkStatus();
    });
    prefix_.clear();
    return status;
  }

 private:
  // Whose attributes are weights: of a Constant its value, of a node of machine learning also its
  // lists of numbers, of others their tensors. The one element that ConstantOfShape repeats is
  // none.
  enum class Kind { kConstant, kConstantOfShape, kLearning, kOther };
  struct Node {
    std::string label;  // the prefix of its attributes' names; of a Constant the name
    Kind kind = Kind::kOther;
  };
  // An AttributeProto without its values.
  struct AttributeProto {
    std::string name;
    std::uint64_t type = 0;
    bool refers = false;  // its value is that of an attribute of the function
    bool texts = false;
    bool tensors = false;  // it has fields with tensors
    TensorProto floats, ints;
    std::uint64_t count = 0;  // of the elements of `ints`
  };

  Status ReadNode(const FileRange& range, std::uint64_t graph, int depth) {
    std::string output, name, type, domain;
    bool attributes = false;
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (field.wire != 2) return OkStatus();
      attributes |= field.number == 5;
      std::string* const into = field.number == 2 && output.empty() ? &output
                                : field.number == 3                 ? &name
                                : field.number == 4                 ? &type
                                : field.number == 7                 ? &domain
                                                                    : nullptr;
      if (into == nullptr) return OkStatus();
      ZT_ASSIGN_OR_RETURN(*into, cursor_.Name(field.range));
      return OkStatus();
    }));
    if (!attributes) return OkStatus();
    const bool standard = domain.empty() || domain == "ai.onnx";
    Node node;
    const bool learning = domain == "ai.onnx.ml" || (standard && type == "TfIdfVectorizer");
    node.kind = standard && type == "Constant"          ? Kind::kConstant
                : standard && type == "ConstantOfShape" ? Kind::kConstantOfShape
                : learning                              ? Kind::kLearning
                                                        : Kind::kOther;
    node.label = !output.empty() ? std::move(output) : !name.empty() ? std::move(name) : type;
    if (node.kind != Kind::kConstant) node.label += '/';
    return ForEachField(cursor_, range, [&](const Field& field) {
      if (field.number != 5 || field.wire != 2) return OkStatus();
      return Attribute(field.range, node, graph, depth);
    });
  }

  // Reads an AttributeProto, and the graphs in it.
  Status Attribute(const FileRange& range, const Node& node, std::uint64_t graph, int depth) {
    AttributeProto attribute;
    const bool numbers = node.kind == Kind::kConstant || node.kind == Kind::kLearning;
    attribute.floats.numbers.message = attribute.ints.numbers.message = range;
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [&](const Field& field) -> Status {
      switch (field.number) {
        case 1: {
          if (field.wire != 2) return OkStatus();
          ZT_ASSIGN_OR_RETURN(attribute.name, cursor_.Name(field.range));
          return OkStatus();
        }
        case 20:
          if (field.wire == 0) attribute.type = field.value;
          return OkStatus();
        case 21:
          attribute.refers = field.range.length > 0;
          return OkStatus();
        case 4:
        case 9:
          attribute.texts = true;
          return OkStatus();
        case 5:
        case 10:
        case 22:
        case 23:
          attribute.tensors = true;
          return OkStatus();
        case 6:
        case 11:
          return field.wire == 2 ? Graph(field.range, depth + 1) : OkStatus();
        default:
          return numbers ? TakeNumbers(field, attribute) : OkStatus();
      }
    }));
    if (node.kind == Kind::kConstantOfShape || !(attribute.tensors || numbers)) return OkStatus();
    ZT_RETURN_IF_ERROR(Spend(node.label.size() + attribute.name.size()));
    const bool constant = node.kind == Kind::kConstant;
    const std::string name = constant ? node.label : node.label + attribute.name;
    if (attribute.tensors) ZT_RETURN_IF_ERROR(AddTensors(range, name, graph));
    if (!numbers) return OkStatus();
    if (attribute.texts && (constant || attribute.type != kString))
      taker_.TakeTexts(prefix_ + name);
    return AddNumbersOf(attribute, name, constant, graph);
  }

  Status TakeNumbers(const Field& field, AttributeProto& attribute) {
    if (field.number == 2 || field.number == 7) AddNumbers(field, false, attribute.floats);
    if (field.number != 3 && field.number != 8) return OkStatus();
    AddNumbers(field, true, attribute.ints);
    if (field.wire == 0) ++attribute.count;
    if (field.wire != 2) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const std::uint64_t count, cursor_.CountVarints(field.range));
    attribute.count += count;
    return OkStatus();
  }

  // Adds the tensors of an attribute: several are told apart by their number.
  Status AddTensors(const FileRange& range, const std::string& name, std::uint64_t graph) {
    std::uint64_t number = 0;
    return ForEachField(cursor_, range, [&](const Field& field) -> Status {
      const bool list = field.number == 10 || field.number == 23;
      const bool sparse = field.number == 22 || field.number == 23;
      if (field.wire != 2 || (field.number != 5 && !list && !sparse)) return OkStatus();
      const std::string each = list ? name + "/" + std::to_string(number++) : name;
      return Add(field.range, graph, sparse, &each);
    });
  }

  // Adds the lists of numbers of an attribute, of a Constant also a single number.
  Status AddNumbersOf(AttributeProto& attribute, const std::string& name, bool constant,
                      std::uint64_t graph) {
    const auto add = [&](TensorProto& tensor, std::uint64_t type, std::uint64_t count,
                         AttributeType one, AttributeType list) -> Status {
      const std::uint64_t field = tensor.numbers.field;  // 2 and 3 hold one number, 7 and 8 a list
      const bool here =
          attribute.type == 0 ? field != 0 : attribute.type == one || attribute.type == list;
      const bool is_list = attribute.type == 0 ? field >= 7 : attribute.type == list;
      if (!here || attribute.refers || !(is_list || constant)) return OkStatus();
      tensor.mixed |= field != 0 && is_list != (field >= 7);
      tensor.type = type;
      tensor.attribute = true;
      if (is_list) tensor.dims.push_back(count);
      return Pass(std::move(tensor), graph, name);
    };
    const std::uint64_t floats = attribute.floats.numbers.bytes / sizeof(float);
    ZT_RETURN_IF_ERROR(add(attribute.floats, kTypeF32, floats, kFloat, kFloats));
    return add(attribute.ints, kTypeI64, attribute.count, kInt, kInts);
  }

  // If `name` is not null, it replaces the tensor's own name.
  Status Add(const FileRange& range, std::uint64_t graph, bool sparse, const std::string* name) {
    TensorProto tensor;
    TensorReader reader(cursor_, tensor);
    ZT_RETURN_IF_ERROR(sparse ? reader.ReadSparse(range) : reader.Read(range));
    const std::string own = name == nullptr ? std::move(tensor.name) : *name;
    return Pass(std::move(tensor), graph, own);
  }

  Status Pass(TensorProto tensor, std::uint64_t graph, const std::string& name) {
    if (tensors_++ == kMaxTensors)
      return Unsupported("it has more than " + std::to_string(kMaxTensors) + " tensors");
    ZT_RETURN_IF_ERROR(Spend(prefix_.size() + name.size()));
    tensor.name = prefix_ + name;
    tensor.graph = graph;
    return taker_.TakeTensor(std::move(tensor));
  }

  Status Spend(std::uint64_t bytes) {
    if (bytes > budget_) {
      return Unsupported("the names of its tensors would take more than " +
                         std::to_string(kFreeNames >> 10) + " KiB and " +
                         std::to_string(kNamesPerByte) + " times its size");
    }
    budget_ -= bytes;
    return OkStatus();
  }

  Cursor& cursor_;
  ModelTaker& taker_;
  std::uint64_t budget_;  // bytes that names may still take
  std::string prefix_;    // prefix of the current function
  std::unordered_set<std::string, zt::internal::NameHash> functions_;  // their names
  std::uint64_t graphs_ = 0;
  std::size_t tensors_ = 0;
};

}  // namespace

StatusOr<bool> ReadModel(ByteSource& bytes, ModelTaker& taker) {
  Cursor cursor(bytes);
  GraphReader graphs(cursor, taker);
  bool has_graph = false;
  ZT_RETURN_IF_ERROR(ForEachField(cursor, {0, cursor.size()}, [&](const Field& field) -> Status {
    if (field.wire != 2) return OkStatus();
    if (field.number == 7) {
      has_graph = true;
      return graphs.Graph(field.range, 0);
    }
    if (field.number == 20) {  // training_info, which has two graphs
      return ForEachField(cursor, field.range, [&](const Field& part) {
        const bool graph = (part.number == 1 || part.number == 2) && part.wire == 2;
        return graph ? graphs.Graph(part.range, 0) : OkStatus();
      });
    }
    if (field.number == 25) return graphs.Function(field.range);
    if (field.number == 14) {
      ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor, field.range));
      taker.TakeMetadata(std::move(pair.first), std::move(pair.second));
    }
    return OkStatus();
  }));
  return has_graph;
}

}  // namespace zt::onnx::internal
