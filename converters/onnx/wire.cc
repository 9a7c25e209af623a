// zt.convert.onnx:model — protobuf's wire format, as far as onnx.proto3 needs it, in files of any size.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.onnx;

import :model;
import zt.core;
import zt.source;

namespace zt::onnx::internal {
namespace {

constexpr std::uint64_t kMaxText = std::uint64_t{1} << 20;
constexpr std::uint64_t kBuffer = std::uint64_t{64} << 10;  // read at once
// A field takes two bytes of the file at least, and a hundred times as many in memory. No model has so many.
constexpr std::size_t kMaxTensors = std::size_t{1} << 18;
constexpr std::size_t kMaxMetadata = std::size_t{1} << 18;
constexpr std::size_t kMaxPairs = 64;  // location, offset, length, checksum are known
// Of numbers that are not packed, each is a stretch of its own.
constexpr std::size_t kMaxStretches = std::size_t{1} << 22;

Status Damaged(std::uint64_t at, std::string_view what) {
  return InvalidData("the model is damaged at byte " + std::to_string(at) + ": " +
                     std::string(what));
}

// What is read of a message: fields one after the other, through a buffer that skips what is not read.
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
  StatusOr<std::string> Text(const Stretch& stretch) {
    if (stretch.length > kMaxText) return Damaged(stretch.offset, "a text is longer than 1 MiB");
    std::string text(stretch.length, '\0');
    ZT_RETURN_IF_ERROR(bytes_.ReadAt(stretch.offset, std::as_writable_bytes(std::span(text))));
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
  int wire = 0;             // 0: a varint, 1: 8 bytes, 2: a stretch, 5: 4 bytes
  std::uint64_t value = 0;  // of a varint
  Stretch stretch;          // its bytes, without tag and length
};

// The next field of a message that ends at `end`, read over.
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
      return Damaged(begin, "a field is of a kind that protobuf lacks");
  }
  if (length > end - offset) return Damaged(begin, "a field reaches beyond its message");
  field.stretch = {offset, length};
  cursor.SkipTo(offset + length);
  return field;
}

// Calls f(field) for every field of the message in `stretch`.
template <typename Function>
Status ForEachField(Cursor& cursor, const Stretch& stretch, Function f) {
  const std::uint64_t end = stretch.offset + stretch.length;
  cursor.SkipTo(stretch.offset);
  while (cursor.at() < end) {
    ZT_ASSIGN_OR_RETURN(const Field field, Next(cursor, end));
    const std::uint64_t after = cursor.at();
    ZT_RETURN_IF_ERROR(f(field));
    cursor.SkipTo(after);
  }
  return OkStatus();
}

StatusOr<std::pair<std::string, std::string>> ReadPair(Cursor& cursor, const Stretch& stretch) {
  std::pair<std::string, std::string> pair;
  ZT_RETURN_IF_ERROR(ForEachField(cursor, stretch, [&](const Field& field) -> Status {
    if (field.wire != 2 || field.number > 2) return OkStatus();
    ZT_ASSIGN_OR_RETURN((field.number == 1 ? pair.first : pair.second), cursor.Text(field.stretch));
    return OkStatus();
  }));
  return pair;
}

Status AddDims(Cursor& cursor, const Field& field, TensorProto& tensor) {
  const std::uint64_t end = field.stretch.offset + field.stretch.length;
  cursor.SkipTo(field.stretch.offset);
  while (cursor.at() < end) {
    ZT_ASSIGN_OR_RETURN(const std::uint64_t dim, cursor.Varint(end));
    if (tensor.dims.size() == kMaxRank) return Unsupported("it has more than 64 dimensions");
    tensor.negative_dim |= dim > ~std::uint64_t{0} / 2;
    tensor.dims.push_back(dim);
  }
  return OkStatus();
}

Status AddField(Cursor& cursor, const Field& field, TensorProto& tensor) {
  const auto numbers = [&](std::vector<Stretch>& into) -> Status {
    tensor.mixed |= tensor.number_field != 0 && tensor.number_field != field.number;
    tensor.number_field = field.number;
    if (field.stretch.length == 0) return OkStatus();
    if (into.size() == kMaxStretches)
      return TooMany("stretches of numbers in a tensor", kMaxStretches);
    into.push_back(field.stretch);
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
      ZT_ASSIGN_OR_RETURN(tensor.name, cursor.Text(field.stretch));
      break;
    }
    case 9:  // raw_data
      tensor.raw = field.stretch;
      break;
    case 13: {  // external_data
      if (tensor.external.size() == kMaxPairs)
        return TooMany("entries of external data in a tensor", kMaxPairs);
      ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor, field.stretch));
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

Status ReadGraph(Cursor& cursor, const Stretch& stretch, Model& model) {
  return ForEachField(cursor, stretch, [&](const Field& field) -> Status {
    if (field.number == 15) ++model.sparse;
    if (field.number != 5 || field.wire != 2) return OkStatus();
    if (model.tensors.size() == kMaxTensors) return TooMany("initializers", kMaxTensors);
    TensorProto tensor;
    ZT_RETURN_IF_ERROR(ForEachField(cursor, field.stretch, [&](const Field& member) {
      return AddField(cursor, member, tensor);
    }));
    model.tensors.push_back(std::move(tensor));
    return OkStatus();
  });
}

}  // namespace

StatusOr<Model> ReadModel(ByteSource& bytes) {
  Cursor cursor(bytes);
  Model model;
  ZT_RETURN_IF_ERROR(ForEachField(cursor, {0, cursor.size()}, [&](const Field& field) -> Status {
    if (field.number == 7 && field.wire == 2) {
      model.has_graph = true;
      return ReadGraph(cursor, field.stretch, model);
    }
    if (field.number == 14 && field.wire == 2) {
      if (model.metadata.size() == kMaxMetadata)
        return TooMany("entries of metadata", kMaxMetadata);
      ZT_ASSIGN_OR_RETURN(auto pair, ReadPair(cursor, field.stretch));
      model.metadata.push_back(std::move(pair));
    }
    return OkStatus();
  }));
  return model;
}

StatusOr<std::vector<std::uint64_t>> ReadVarints(ByteSource& bytes,
                                                 const std::vector<Stretch>& stretches,
                                                 std::uint64_t count) {
  Cursor cursor(bytes);
  std::vector<std::uint64_t> numbers;
  for (const Stretch& stretch : stretches) {
    const std::uint64_t end = stretch.offset + stretch.length;
    cursor.SkipTo(stretch.offset);
    while (cursor.at() < end) {
      ZT_ASSIGN_OR_RETURN(const std::uint64_t number, cursor.Varint(end));
      if (numbers.size() == count)
        return InvalidData("it has more than " + std::to_string(count) + " elements");
      numbers.push_back(number);
    }
  }
  if (numbers.size() != count) {
    return InvalidData("it has " + std::to_string(numbers.size()) +
                       " elements, its shape asks for " + std::to_string(count));
  }
  return numbers;
}

}  // namespace zt::onnx::internal
