// zt.convert.onnx:model — reads protobuf's wire format, the subset that onnx.proto3 needs,
// from files of any size.
module;

#include "core/status_macros.h"

module zt.convert.onnx;

import zt.std;
import :model;
import zt.core;
import zt.source;

namespace zt::onnx::internal {
namespace {

constexpr std::uint64_t kMaxText = std::uint64_t{1} << 20;
constexpr std::uint64_t kBuffer = std::uint64_t{64} << 10;  // size of a read
// Limits: a field can take two bytes of the file, and a hundred times as much memory. Models
// stay far below them.
constexpr std::size_t kMaxTensors = std::size_t{1} << 18;
constexpr std::size_t kMaxMetadata = std::size_t{1} << 18;
constexpr std::size_t kMaxPairs = 64;  // known keys: location, offset, length, checksum
// Numbers that are not packed take one range each.
constexpr std::size_t kMaxRanges = std::size_t{1} << 22;
constexpr int kMaxDepth = 64;  // nesting of graphs within nodes
// Limit on the bytes of a function's name, which is prefixed to the names of its tensors.
constexpr std::size_t kMaxPrefix = 256;

Status Damaged(std::uint64_t at, std::string_view what) {
  return InvalidData("the model is damaged at byte " + std::to_string(at) + ": " +
                     std::string(what));
}

// Reads messages field by field through a buffer; skipped bytes are not read.
class Cursor {
 public:
  explicit Cursor(ByteSource& bytes) : bytes_(bytes), size_(*bytes.size()) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t size() const { return size_; }
  void SkipTo(std::uint64_t at) { at_ = at; }

  StatusOr<std::uint8_t> Byte() {
    if (at_ >= size_) return Damaged(at_, "it ends within a field; the file is truncated");
    if (at_ < begin_ || at_ >= begin_ + buffer_.size()) {
      buffer_.resize(std::min(kBuffer, size_ - at_));
      begin_ = at_;
      ZT_RETURN_IF_ERROR(bytes_.ReadAt(at_, buffer_));
    }
    return std::to_integer<std::uint8_t>(buffer_[at_++ - begin_]);
  }
  StatusOr<std::uint64_t> Varint(std::uint64_t end) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ >= end) return Damaged(at_, "a number reaches beyond its message");
      ZT_ASSIGN_OR_RETURN(const std::uint8_t byte, Byte());
      if (shift < 64) value |= std::uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return Damaged(at_, "a number has more than ten bytes");
  }
  // Reads a string. Does not restore the position.
  StatusOr<std::string> ReadString(const FileRange& range) {
    constexpr std::size_t kShort = 256;  // up to this size, reads through the buffer
    if (range.length > kMaxText) return Damaged(range.offset, "a text is longer than 1 MiB");
    std::string text(range.length, '\0');
    if (text.size() <= kShort) {
      at_ = range.offset;
      for (char& letter : text) {
        ZT_ASSIGN_OR_RETURN(const std::uint8_t byte, Byte());
        letter = static_cast<char>(byte);
      }
      return text;
    }
    ZT_RETURN_IF_ERROR(bytes_.ReadAt(range.offset, std::as_writable_bytes(std::span(text))));
    return text;
  }

 private:
  ByteSource& bytes_;
  const std::uint64_t size_;
  std::uint64_t at_ = 0, begin_ = 0;
  std::vector<std::byte> buffer_;
};

Status TooMany(std::string_view what, std::uint64_t most) {
  return Unsupported("it has more than " + std::to_string(most) + " " + std::string(what));
}

struct Field {
  std::uint64_t number = 0;
  int wire = 0;             // 0: a varint, 1: 8 bytes, 2: length-delimited, 5: 4 bytes
  std::uint64_t value = 0;  // value of a varint
  FileRange range;          // the content, without tag and length
};

// Reads the next field of a message that ends at `end`, and skips its content.
StatusOr<Field> Next(Cursor& cursor, std::uint64_t end) {
  const std::uint64_t begin = cursor.at();
  ZT_ASSIGN_OR_RETURN(const std::uint64_t tag, cursor.Varint(end));
  Field field;
  field.number = tag >> 3;
  field.wire = static_cast<int>(tag & 7);
  if (field.number == 0) return Damaged(begin, "a field has the number 0");
  std::uint64_t length = 0;
  std::uint64_t offset = cursor.at();
  switch (field.wire) {
    case 0: {
      ZT_ASSIGN_OR_RETURN(field.value, cursor.Varint(end));
      length = cursor.at() - offset;
      break;
    }
    case 1:
      length = 8;
      break;
    case 2: {
      ZT_ASSIGN_OR_RETURN(length, cursor.Varint(end));
      offset = cursor.at();
      break;
    }
    case 5:
      length = 4;
      break;
    default:
      return Damaged(begin, "a field has a wire type that protobuf does not have");
  }
  if (length > end - offset) return Damaged(begin, "a field reaches beyond its message");
  field.range = {offset, length};
  cursor.SkipTo(offset + length);
  return field;
}

// Calls f(field) for each field of the message in `range`.
template <typename Function>
Status ForEachField(Cursor& cursor, const FileRange& range, Function f) {
  const std::uint64_t end = range.offset + range.length;
  cursor.SkipTo(range.offset);
  while (cursor.at() < end) {
    ZT_ASSIGN_OR_RETURN(const Field field, Next(cursor, end));
    const std::uint64_t after = cursor.at();
    ZT_RETURN_IF_ERROR(f(field));
    cursor.SkipTo(after);
  }
  return OkStatus();
}

StatusOr<std::pair<std::string, std::string>> ReadPair(Cursor& cursor, const FileRange& range) {
  std::pair<std::string, std::string> pair;
  ZT_RETURN_IF_ERROR(ForEachField(cursor, range, [&](const Field& field) -> Status {
    if (field.wire != 2 || field.number > 2) return OkStatus();
    ZT_ASSIGN_OR_RETURN((field.number == 1 ? pair.first : pair.second),
                        cursor.ReadString(field.range));
    return OkStatus();
  }));
  return pair;
}

Status AddDims(Cursor& cursor, const Field& field, TensorProto& tensor) {
  const std::uint64_t end = field.range.offset + field.range.length;
  cursor.SkipTo(field.range.offset);
  while (cursor.at() < end) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t dim, cursor.Varint(end));
    if (tensor.dims.size() == kMaxRank) return Unsupported("it has more than 64 dimensions");
    tensor.negative_dim |= dim > ~std::uint64_t{0} / 2;
    tensor.dims.push_back(dim);
  }
  return OkStatus();
}

Status AddField(Cursor& cursor, const Field& field, TensorProto& tensor) {
  const auto numbers = [&](std::vector<FileRange>& into) -> Status {
    tensor.mixed |= tensor.number_field != 0 && tensor.number_field != field.number;
    tensor.number_field = field.number;
    if (field.range.length == 0) return OkStatus();
    if (into.size() == kMaxRanges) return TooMany("stretches of numbers in a tensor", kMaxRanges);
    into.push_back(field.range);
    return OkStatus();
  };
  switch (field.number) {
    case 1:  // dims
      return AddDims(cursor, field, tensor);
    case 2:  // data_type
      tensor.type = field.value;
      break;
    case 4:   // float_data
    case 10:  // double_data
      return numbers(tensor.fixed);
    case 5:   // int32_data
    case 7:   // int64_data
    case 11:  // uint64_data
      return numbers(tensor.varints);
    case 8: {  // name
      ZT_ASSIGN_OR_RETURN(tensor.name, cursor.ReadString(field.range));
      break;
    }
    case 9:  // raw_data
      tensor.raw = field.range;
      break;
    case 13: {  // external_data
      if (tensor.external.size() == kMaxPairs)
        return TooMany("entries of external data in a tensor", kMaxPairs);
      ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor, field.range));
      tensor.external.push_back(std::move(pair));
      break;
    }
    case 14:  // data_location
      tensor.location = field.value;
      break;
    default:
      break;
  }
  return OkStatus();
}

Status ReadTensor(Cursor& cursor, const FileRange& range, TensorProto& tensor) {
  return ForEachField(cursor, range,
                      [&](const Field& field) { return AddField(cursor, field, tensor); });
}

// Reads a SparseTensorProto: its values, which carry the name, and its dims.
// Indices are not needed.
Status ReadSparse(Cursor& cursor, const FileRange& range, TensorProto& tensor) {
  tensor.sparse = true;
  return ForEachField(cursor, range, [&](const Field& field) -> Status {
    if (field.number == 3) return AddDims(cursor, field, tensor);
    if (field.number != 1 || field.wire != 2) return OkStatus();
    TensorProto values;
    ZT_RETURN_IF_ERROR(ReadTensor(cursor, field.range, values));
    tensor.name = std::move(values.name);
    return OkStatus();
  });
}

// Reads graphs and everything in them. Each byte is read at most twice: a node's type and outputs
// may follow its attributes.
class GraphReader {
 public:
  GraphReader(Cursor& cursor, Model& model) : cursor_(cursor), model_(model) {}

  // Reads a GraphProto: its nodes, initializers and sparse initializers are fields 1, 5 and 15.
  Status Graph(const FileRange& range, int depth) {
    if (depth > kMaxDepth) {
      return Unsupported("its graphs nest deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    const std::uint64_t graph = model_.graphs++;
    return ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (field.wire != 2) return OkStatus();
      if (field.number == 1) return Node(field.range, graph, depth);
      if (field.number == 5) return Add(field.range, graph, false, nullptr);
      if (field.number == 15) return Add(field.range, graph, true, nullptr);
      return OkStatus();
    });
  }
  // Reads a FunctionProto. Its tensors have a namespace of their own: the function's
  // name is their prefix.
  Status Function(const FileRange& range) {
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (field.number != 1 || field.wire != 2) return OkStatus();
      ZT_ASSIGN_OR_RETURN(prefix_, cursor_.ReadString(field.range));
      return OkStatus();
    }));
    if (prefix_.size() > kMaxPrefix) {
      return Unsupported("a function's name is longer than " + std::to_string(kMaxPrefix) +
                         " bytes");
    }
    if (!prefix_.empty()) prefix_ += '/';
    const std::uint64_t graph = model_.graphs++;
    const Status status = ForEachField(cursor_, range, [&](const Field& field) {
      if (field.wire != 2) return OkStatus();
      if (field.number == 7) return Node(field.range, graph, 0);
      // Default values of the function's attributes.
      const std::string* unnamed = nullptr;
      return field.number == 11 ? Attribute(field.range, unnamed, true, graph, 0) : OkStatus();
    });
    prefix_.clear();
    return status;
  }

 private:
  Status Node(const FileRange& range, std::uint64_t graph, int depth) {
    std::string output, type, domain;
    bool named = false, attributes = false;
    ZT_RETURN_IF_ERROR(ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (field.wire != 2) return OkStatus();
      attributes |= field.number == 5;
      std::string* const into = field.number == 2 && !named ? &output
                                : field.number == 4         ? &type
                                : field.number == 7         ? &domain
                                                            : nullptr;
      if (into == nullptr) return OkStatus();
      named |= field.number == 2;
      ZT_ASSIGN_OR_RETURN(*into, cursor_.ReadString(field.range));
      return OkStatus();
    }));
    if (!attributes) return OkStatus();
    const bool standard = domain.empty() || domain == "ai.onnx";
    const bool constant = standard && type == "Constant" && !output.empty();
    // The single element that ConstantOfShape repeats is no weight.
    const bool counted = !(standard && type == "ConstantOfShape");
    const std::string* name = constant ? &output : nullptr;  // null once a tensor has got it
    return ForEachField(cursor_, range, [&](const Field& field) {
      if (field.number != 5 || field.wire != 2) return OkStatus();
      return Attribute(field.range, name, counted, graph, depth);
    });
  }

  // Reads an AttributeProto. Fields 5 and 22 are a tensor and a sparse tensor, 10 and 23 lists of
  // these, 6 is a graph, 11 a list of graphs. The first tensor of a Constant node gets `name`; a
  // valid Constant has only one.
  Status Attribute(const FileRange& range, const std::string*& name, bool counted,
                   std::uint64_t graph, int depth) {
    return ForEachField(cursor_, range, [&](const Field& field) -> Status {
      if (name != nullptr && (field.number == 7 || field.number == 8)) {
        ++model_.others;  // value_floats or value_ints of a Constant: reported, not converted
        name = nullptr;
        return OkStatus();
      }
      if (field.wire != 2) return OkStatus();
      switch (field.number) {
        case 5:
        case 22:
          if (name != nullptr) {
            return Add(field.range, graph, field.number == 22, std::exchange(name, nullptr));
          }
          [[fallthrough]];
        case 10:
        case 23:
          model_.others += counted;
          return OkStatus();
        case 6:
        case 11:
          return Graph(field.range, depth + 1);
        default:
          return OkStatus();
      }
    });
  }

  // If `name` is not null, it replaces the tensor's own name.
  Status Add(const FileRange& range, std::uint64_t graph, bool sparse, const std::string* name) {
    if (model_.tensors.size() == kMaxTensors) return TooMany("tensors", kMaxTensors);
    TensorProto tensor;
    ZT_RETURN_IF_ERROR(sparse ? ReadSparse(cursor_, range, tensor)
                              : ReadTensor(cursor_, range, tensor));
    if (name != nullptr) tensor.name = *name;
    tensor.name.insert(0, prefix_);
    tensor.graph = graph;
    model_.tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  Cursor& cursor_;
  Model& model_;
  std::string prefix_;  // prefix of the current function
};

StatusOr<bool> SameBytes(ByteSource& bytes, const FileRange& a, const FileRange& b) {
  if (a.length != b.length) return false;
  std::vector<std::byte> ours(std::min(a.length, kBuffer)), theirs(ours.size());
  for (std::uint64_t at = 0; at < a.length; at += ours.size()) {
    const std::uint64_t size = std::min<std::uint64_t>(ours.size(), a.length - at);
    ZT_RETURN_IF_ERROR(bytes.ReadAt(a.offset + at, std::span(ours).first(size)));
    ZT_RETURN_IF_ERROR(bytes.ReadAt(b.offset + at, std::span(theirs).first(size)));
    if (!std::equal(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(size),
                    theirs.begin())) {
      return false;
    }
  }
  return true;
}

// Compares range by range: lists that are split differently compare unequal, even if their
// bytes are equal. No known writer splits them in two ways.
StatusOr<bool> SameBytes(ByteSource& bytes, const std::vector<FileRange>& a,
                         const std::vector<FileRange>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ZT_ASSIGN_OR_RETURN(const bool same, SameBytes(bytes, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

}  // namespace

StatusOr<bool> SameTensor(ByteSource& bytes, const TensorProto& a, const TensorProto& b) {
  if (a.sparse || b.sparse || a.type != b.type || a.dims != b.dims || a.location != b.location ||
      a.external != b.external || a.raw.has_value() != b.raw.has_value() ||
      a.number_field != b.number_field) {
    return false;
  }
  if (a.raw) {
    ZT_ASSIGN_OR_RETURN(const bool same, SameBytes(bytes, *a.raw, *b.raw));
    if (!same) return false;
  }
  ZT_ASSIGN_OR_RETURN(const bool fixed, SameBytes(bytes, a.fixed, b.fixed));
  if (!fixed) return false;
  return SameBytes(bytes, a.varints, b.varints);
}

StatusOr<Model> ReadModel(ByteSource& bytes) {
  Cursor cursor(bytes);
  Model model;
  GraphReader graphs(cursor, model);
  ZT_RETURN_IF_ERROR(ForEachField(cursor, {0, cursor.size()}, [&](const Field& field) -> Status {
    if (field.wire != 2) return OkStatus();
    if (field.number == 7) {
      model.has_graph = true;
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
      if (model.metadata.size() == kMaxMetadata)
        return TooMany("entries of metadata", kMaxMetadata);
      ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor, field.range));
      model.metadata.push_back(std::move(pair));
    }
    return OkStatus();
  }));
  return model;
}

StatusOr<std::vector<std::uint64_t>> ReadVarints(ByteSource& bytes,
                                                 const std::vector<FileRange>& ranges,
                                                 std::uint64_t count) {
  Cursor cursor(bytes);
  std::vector<std::uint64_t> numbers;
  for (const FileRange& range : ranges) {
    const std::uint64_t end = range.offset + range.length;
    cursor.SkipTo(range.offset);
    while (cursor.at() < end) {
      ZT_ASSIGN_OR_RETURN(const std::uint64_t number, cursor.Varint(end));
      if (numbers.size() == count)
        return InvalidData("it has more than " + std::to_string(count) + " elements");
      numbers.push_back(number);
    }
  }
  if (numbers.size() != count) {
    return InvalidData("it has " + std::to_string(numbers.size()) + " elements, its shape needs " +
                       std::to_string(count));
  }
  return numbers;
}

}  // namespace zt::onnx::internal
