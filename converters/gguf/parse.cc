// zt.convert.gguf:header — parser, with memory limited by the size of the file, and encoder.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import :model;
import zt.core;
import zt.transform;

namespace zt {
using namespace gguf::internal;
namespace {

constexpr int kMaxArrayNesting = 8;
// Limit on nested arrays: an array within an array can take twelve bytes of a file, and hundreds of
// bytes of memory. No known writer nests them.
constexpr std::uint64_t kMaxNestedArrays = std::uint64_t{1} << 16;

// Stops at the first error, or at the end of `head`.
class Parser {
 public:
  Parser(std::span<const std::byte> head, std::optional<std::uint64_t> file_bytes, Values values)
      : head_(head), file_bytes_(file_bytes), keep_(values == Values::kKept) {}

  StatusOr<std::optional<GgufHeader>> Run() {
    if (Preamble() && Metadata() && Tensors()) Layout();
    if (!status_.ok()) return status_;
    if (more_) return std::optional<GgufHeader>();
    return std::optional<GgufHeader>(std::move(out_));
  }

 private:
  bool Fail(const Status& status) {
    if (status_.ok()) status_ = status;
    return false;
  }
  bool Fail(std::string_view what) { return Fail(InvalidData(what)); }

  // Limit on the bytes of this file's header.
  std::uint64_t Limit() const {
    return std::min(file_bytes_.value_or(kGgufMaxHeader), kGgufMaxHeader);
  }

  // True if `head` has `count` more bytes. If not, the caller must supply more; it is an error if
  // the file has no more.
  bool Need(std::uint64_t count) {
    if (count <= head_.size() - pos_) return true;
    const std::uint64_t limit = Limit();
    if (pos_ > limit || count > limit - pos_) {
      if (limit == kGgufMaxHeader) {
        return Fail(Unsupported(Where() + "the header is larger than " +
                                std::to_string(kGgufMaxHeader) + " bytes"));
      }
      return Fail(Where() + "the header is truncated: " + std::to_string(count) + " bytes from " +
                  std::to_string(pos_) + " are needed, the file has " + std::to_string(limit));
    }
    more_ = true;
    return false;
  }
  // Checks that `count` items of at least `least` bytes each fit into the remainder of the file.
  bool NeedItems(std::uint64_t count, std::uint64_t least, std::string_view what) {
    const auto bytes = CheckedMul(count, least);
    const std::uint64_t limit = Limit();
    if (!bytes || pos_ > limit || *bytes > limit - pos_) {
      return Fail(Where() + std::to_string(count) + " " + std::string(what) +
                  " are declared, more than the file can hold");
    }
    return Need(*bytes);
  }

  std::string Where() const {
    if (label_.empty()) return "";
    return std::string(label_) + " " + Quote(name_) + ": ";
  }

  // Reads an unsigned integer of `width` bytes.
  template <typename T>
  bool Read(T* out, std::size_t width = sizeof(T)) {
    if (!Need(width)) return false;
    std::uint64_t value = zt::internal::LoadLittle(head_.data() + pos_, width);
    if (out_.big_endian) value = __builtin_bswap64(value) >> (64 - 8 * width);
    *out = static_cast<T>(value);
    pos_ += width;
    return true;
  }
  bool ReadCount(std::uint64_t* out) { return Read(out, CountWidth()); }
  bool ReadText(std::string_view* out) {
    std::uint64_t length;
    if (!ReadCount(&length) || !Need(length)) return false;
    *out = {reinterpret_cast<const char*>(head_.data() + pos_), static_cast<std::size_t>(length)};
    pos_ += length;
    return true;
  }
  // Width of a count or length in bytes.
  std::size_t CountWidth() const { return out_.version == 1 ? 4 : 8; }

  bool Preamble();
  bool Metadata();
  bool Tensors();
  bool TensorInfo(GgufTensor& tensor);
  bool Layout();
  bool ReadValue(KvType type, int depth, Value* out);
  bool ReadArray(int depth, Value* out);
  bool ReadNumber(KvType type, Value* out);
  bool Note(std::string_view key, KvType type, const Value& value);

  std::span<const std::byte> head_;
  std::optional<std::uint64_t> file_bytes_;
  const bool keep_;  // whether values are kept
  std::uint64_t pos_ = 0;
  bool more_ = false;
  Status status_;
  GgufHeader out_;
  std::uint64_t tensor_count_ = 0, kv_count_ = 0, nested_arrays_ = 0;
  std::string_view label_, name_;  // what is being parsed, for messages
};

bool Parser::Preamble() {
  char magic[4];
  if (!Need(8)) return false;
  std::memcpy(magic, head_.data(), 4);
  const std::string_view text(magic, 4);
  if (text != "GGUF" && text != "FUGG") return Fail("it does not begin with GGUF");
  out_.swapped_magic = text == "FUGG";
  pos_ = 4;
  std::uint32_t version;
  if (!Read(&version)) return false;
  // Versions are below 65536, so 16 zero bits at the low end mean the other byte order.
  if (version != 0 && (version & 0xffff) == 0) {
    out_.big_endian = true;
    version = __builtin_bswap32(version);
  }
  if (version < 1 || version > 3) {
    return Fail(
        Unsupported("GGUF version " + std::to_string(version) + " is not known; 1, 2 and 3 are"));
  }
  out_.version = version;
  return ReadCount(&tensor_count_) && ReadCount(&kv_count_);
}

bool Parser::ReadNumber(KvType type, Value* out) {
  const std::size_t width = KvWidth(type);
  if (!Need(width)) return false;
  std::array<std::byte, 8> buffer;
  const std::span<std::byte> bytes = std::span(buffer).first(width);
  std::ranges::copy(head_.subspan(pos_, width), bytes.begin());
  pos_ += width;
  if (out_.big_endian) std::ranges::reverse(bytes);
  if (type == KvType::kBool && bytes[0] > std::byte{1}) {
    return Fail(Where() + "a bool is " + std::to_string(std::to_integer<int>(bytes[0])) +
                ", not 0 or 1");
  }
  *out = LoadNumber(type, bytes);
  return true;
}

bool Parser::ReadArray(int depth, Value* out) {
  if (depth > kMaxArrayNesting) {
    return Fail(Unsupported(Where() + "arrays are nested more than " +
                            std::to_string(kMaxArrayNesting) + " deep"));
  }
  if (depth > 1 && ++nested_arrays_ > kMaxNestedArrays) {
    return Fail(Unsupported("the metadata has more than " + std::to_string(kMaxNestedArrays) +
                            " arrays within arrays"));
  }
  std::uint32_t raw;
  std::uint64_t count;
  if (!Read(&raw) || !ReadCount(&count)) return false;
  const auto type = ParseKvType(raw);
  if (!type) {
    return Fail(Unsupported(Where() + "value type " + std::to_string(raw) + " is not known"));
  }
  const std::size_t width = KvWidth(*type);
  const std::uint64_t least = width != 0                 ? width
                              : *type == KvType::kString ? CountWidth()
                                                         : 4 + CountWidth();
  if (!NeedItems(count, least, "array elements")) return false;
  Value items;
  if (width != 0 && KeepAsBytes(*type, count)) {
    Value::Bytes bytes(head_.begin() + static_cast<std::ptrdiff_t>(pos_),
                       head_.begin() + static_cast<std::ptrdiff_t>(pos_ + count * width));
    pos_ += count * width;
    if (out_.big_endian) SwapBytes(bytes, width);
    if (*type == KvType::kBool) {
      for (const std::byte b : bytes) {
        if (b > std::byte{1}) return Fail(Where() + "a bool is neither 0 nor 1");
      }
    }
    items = Value(std::move(bytes));
  } else {
    Value::Array list;
    // Each nested array could claim as many elements as the file can hold, so reserve few.
    if (keep_) list.reserve(*type == KvType::kArray ? std::min<std::uint64_t>(count, 64) : count);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!keep_) list.clear();
      if (!ReadValue(*type, depth, &list.emplace_back())) return false;
    }
    items = Value(std::move(list));
  }
  Value::Array pair;
  pair.reserve(2);
  pair.emplace_back(KvName(*type));
  pair.push_back(std::move(items));
  *out = Value(std::move(pair));
  return true;
}

bool Parser::ReadValue(KvType type, int depth, Value* out) {
  if (type == KvType::kArray) return ReadArray(depth + 1, out);
  if (type != KvType::kString) return ReadNumber(type, out);
  std::string_view text;
  if (!ReadText(&text)) return false;
  *out = TextValue(text);
  return true;
}

// Keeps the values that the parser and split sets need.
bool Parser::Note(std::string_view key, KvType type, const Value& value) {
  const bool alignment = key == "general.alignment";
  std::optional<std::uint64_t>* split = key == "split.no"              ? &out_.split_no
                                        : key == "split.count"         ? &out_.split_count
                                        : key == "split.tensors.count" ? &out_.split_tensors
                                                                       : nullptr;
  if (!alignment && split == nullptr) return true;
  if (alignment ? type != KvType::kU32 : !IsInteger(type) || value.AsUint() == nullptr) {
    return Fail(Where() + (alignment ? "it is not a u32" : "it is not a count"));
  }
  if (split != nullptr) {
    *split = *value.AsUint();
    return true;
  }
  out_.alignment = *value.AsUint();
  if (!std::has_single_bit(out_.alignment) || out_.alignment > kGgufMaxAlignment) {
    return Fail(Where() + std::to_string(out_.alignment) + " is not a power of two up to " +
                std::to_string(kGgufMaxAlignment));
  }
  return true;
}

bool Parser::Metadata() {
  const std::uint64_t least = CountWidth() + 4 + 1;
  if (!NeedItems(kv_count_, least, "key-value pairs")) return false;
  if (kv_count_ > kGgufMaxPairs) {
    return Fail(Unsupported("it has " + std::to_string(kv_count_) + " key-value pairs, more than " +
                            std::to_string(kGgufMaxPairs)));
  }
  if (keep_) out_.kv.reserve(kv_count_);
  std::unordered_set<std::string_view, zt::internal::NameHash> seen;
  for (std::uint64_t i = 0; i < kv_count_; ++i) {
    label_ = "after key";
    std::string_view key;
    if (!ReadText(&key)) return false;
    label_ = "key";
    name_ = key;
    if (key.empty()) return Fail("key-value pair " + std::to_string(i) + " has an empty key");
    if (!seen.insert(key).second) return Fail(Where() + "it occurs twice");
    std::uint32_t raw;
    if (!Read(&raw)) return false;
    const auto type = ParseKvType(raw);
    if (!type) {
      return Fail(Unsupported(Where() + "value type " + std::to_string(raw) + " is not known"));
    }
    Value::Array entry;
    entry.reserve(3);
    entry.push_back(TextValue(key));
    entry.emplace_back(KvName(*type));
    if (!ReadValue(*type, 0, &entry.emplace_back())) return false;
    if (!Note(key, *type, entry.back())) return false;
    if (keep_) out_.kv.emplace_back(std::move(entry));
  }
  return true;
}

bool Parser::TensorInfo(GgufTensor& tensor) {
  std::uint32_t dims, type;
  if (!Read(&dims)) return false;
  if (dims > kGgufMostDims) {
    return Fail(Unsupported(std::to_string(dims) + " dimensions, at most " +
                            std::to_string(kGgufMostDims) + " are known"));
  }
  tensor.shape.resize(dims);
  for (std::uint32_t i = 0; i < dims; ++i) {
    if (!ReadCount(&tensor.shape[dims - 1 - i])) return false;
  }
  if (!Read(&type) || !Read(&tensor.offset)) return false;
  if (tensor.offset % out_.alignment != 0) {
    return Fail("offset " + std::to_string(tensor.offset) + " is not a multiple of " +
                std::to_string(out_.alignment));
  }
  auto found = FindGgmlType(type);
  if (!found.ok()) {
    tensor.type = {.id = type, .name = {}, .plain = std::nullopt};
    tensor.unsupported = found.status();
    return true;
  }
  tensor.type = *found;
  const std::uint64_t row = dims == 0 ? 1 : tensor.shape.back();
  if (row % tensor.type.elems != 0) {
    return Fail("rows of " + std::to_string(row) + " elements are not whole " +
                std::string(tensor.type.name) + " blocks of " + std::to_string(tensor.type.elems));
  }
  const auto count = ElementCount(tensor.shape);
  const auto bytes =
      count ? CheckedMul(*count / tensor.type.elems, tensor.type.bytes) : std::nullopt;
  if (!bytes) return Fail("shape " + ToString(tensor.shape) + " overflows 64 bits");
  tensor.bytes = *bytes;
  return true;
}

bool Parser::Tensors() {
  const std::uint64_t least = CountWidth() + 4 + 4 + 8;
  label_ = {};
  if (!NeedItems(tensor_count_, least, "tensors")) return false;
  out_.tensors.reserve(tensor_count_);
  std::unordered_set<std::string_view, zt::internal::NameHash> seen;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    if (i > 0) label_ = "after tensor";
    std::string_view name;
    if (!ReadText(&name)) return false;
    label_ = {};
    name_ = name;
    if (name.empty()) return Fail("tensor " + std::to_string(i) + " has an empty name");
    if (!IsUtf8(name)) return Fail(WithTensor(InvalidData("the name is not valid UTF-8"), name));
    if (!seen.insert(name).second) {
      return Fail(WithTensor(InvalidData("it is declared twice"), name));
    }
    GgufTensor& tensor = out_.tensors.emplace_back();
    tensor.name = name;
    if (!TensorInfo(tensor)) {
      status_ = WithTensor(status_, name);
      return false;
    }
  }
  out_.header_bytes = pos_;
  out_.data_offset = out_.Align(pos_);
  return true;
}

// Checks that every tensor lies within the file, and that no two overlap.
bool Parser::Layout() {
  std::vector<GgufTensor*> order;
  order.reserve(out_.tensors.size());
  std::optional<std::uint64_t> follows = 0;  // unknown after a tensor of unknown size
  for (GgufTensor& tensor : out_.tensors) {
    const auto end = CheckedAdd(tensor.offset, tensor.bytes);
    const auto absolute = end ? CheckedAdd(*end, out_.data_offset) : std::nullopt;
    const bool placed = tensor.bytes > 0 || !tensor.unsupported.ok();
    if (placed && (!absolute || (file_bytes_ && *absolute > *file_bytes_))) {
      return Fail(WithTensor(
          InvalidData(std::to_string(tensor.bytes) + " bytes at offset " +
                      std::to_string(tensor.offset) +
                      " of the data section lie beyond the end of the file" +
                      (file_bytes_ ? " (" + std::to_string(*file_bytes_) + " bytes)" : "")),
          tensor.name));
    }
    if (placed) order.push_back(&tensor);
    out_.scattered = out_.scattered || (follows && tensor.offset != *follows);
    follows = tensor.unsupported.ok() ? std::optional(out_.Align(*end)) : std::nullopt;
  }
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes) {
      return Fail(TensorContext(order[i]->name) + " overlaps " + TensorContext(order[i - 1]->name));
    }
  }
  // For listings: the size of a tensor of unknown type is at most the distance to the next tensor.
  std::uint64_t next = file_bytes_.value_or(0);
  next = next > out_.data_offset ? next - out_.data_offset : 0;
  for (std::size_t i = order.size(); i > 0; --i) {
    GgufTensor& tensor = *order[i - 1];
    if (!tensor.unsupported.ok() && next > tensor.offset) tensor.bytes = next - tensor.offset;
    next = tensor.offset;
  }
  return true;
}

}  // namespace

StatusOr<std::optional<GgufHeader>> gguf::internal::ParseHeader(
    std::span<const std::byte> head, std::optional<std::uint64_t> file_bytes, Values values) {
  return Parser(head, file_bytes, values).Run();
}

StatusOr<std::optional<GgufHeader>> ParseGgufHeader(std::span<const std::byte> head,
                                                    std::optional<std::uint64_t> file_bytes) {
  return ParseHeader(head, file_bytes, Values::kKept);
}

using namespace gguf::internal;
namespace {

class Encoder {
 public:
  Encoder(const GgufHeader& header, std::span<const Value* const> pairs)
      : header_(header), pairs_(pairs) {}

  StatusOr<std::vector<std::byte>> Run() {
    Raw(header_.swapped_magic ? "FUGG" : "GGUF");
    Put(header_.version, 4);
    ZT_RETURN_IF_ERROR(PutCount(header_.tensors.size()));
    ZT_RETURN_IF_ERROR(PutCount(pairs_.size()));
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      ZT_RETURN_IF_ERROR(Annotate(EncodePair(*pairs_[i]), "metadata pair " + std::to_string(i)));
    }
    for (const GgufTensor& tensor : header_.tensors) {
      ZT_RETURN_IF_ERROR(WithTensor(Tensor(tensor), tensor.name));
    }
    return std::move(out_);
  }

 private:
  void Raw(std::string_view text) { Raw(std::as_bytes(std::span(text))); }
  void Raw(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

  // Writes an integer of `width` bytes.
  void Put(std::uint64_t value, std::size_t width) {
    std::array<std::byte, 8> bytes;
    zt::internal::StoreLittle(value, width, bytes.data());
    if (header_.big_endian) std::ranges::reverse(std::span(bytes).first(width));
    Raw(std::span(bytes).first(width));
  }
  Status PutCount(std::uint64_t count) {
    if (header_.version == 1 && count > std::numeric_limits<std::uint32_t>::max())
      return Unsupported(std::to_string(count) + " does not fit version 1 of GGUF");
    Put(count, header_.version == 1 ? 4 : 8);
    return OkStatus();
  }
  Status PutSized(std::span<const std::byte> bytes) {
    ZT_RETURN_IF_ERROR(PutCount(bytes.size()));
    Raw(bytes);
    return OkStatus();
  }
  Status PutText(const Value& value) {
    if (const std::string* text = value.AsString())
      return PutSized(std::as_bytes(std::span(*text)));
    if (const Value::Bytes* bytes = value.AsBytes()) return PutSized(*bytes);
    return InvalidData("a string is neither text nor bytes");
  }

  Status PutValue(KvType type, const Value& value);
  Status PutArray(const Value& pair);
  Status EncodePair(const Value& entry);
  Status Tensor(const GgufTensor& tensor);

  const GgufHeader& header_;
  const std::span<const Value* const> pairs_;
  std::vector<std::byte> out_;
};

Status Encoder::PutValue(KvType type, const Value& value) {
  if (type == KvType::kString) return PutText(value);
  if (type == KvType::kArray) return PutArray(value);
  ZT_ASSIGN_OR_RETURN(const std::uint64_t number, StoreNumber(type, value));
  Put(number, KvWidth(type));
  return OkStatus();
}

Status Encoder::PutArray(const Value& pair) {
  const Value::Array* parts = pair.AsArray();
  if (parts == nullptr || parts->size() != 2 || (*parts)[0].AsString() == nullptr) {
    return InvalidData("an array is not a pair of element type and values");
  }
  const auto type = ParseKvType(*(*parts)[0].AsString());
  if (!type) return InvalidData("element type " + Quote(*(*parts)[0].AsString()));
  Put(static_cast<std::uint32_t>(*type), 4);
  if (const Value::Array* list = (*parts)[1].AsArray()) {
    ZT_RETURN_IF_ERROR(PutCount(list->size()));
    for (const Value& value : *list) ZT_RETURN_IF_ERROR(PutValue(*type, value));
    return OkStatus();
  }
  const Value::Bytes* bytes = (*parts)[1].AsBytes();
  const std::size_t width = KvWidth(*type);
  if (bytes == nullptr || width == 0 || bytes->size() % width != 0) {
    return InvalidData("an array's values are neither a list nor whole elements");
  }
  ZT_RETURN_IF_ERROR(PutCount(bytes->size() / width));
  const auto at = static_cast<std::ptrdiff_t>(out_.size());
  Raw(*bytes);
  if (header_.big_endian) SwapBytes(std::span(out_).subspan(static_cast<std::size_t>(at)), width);
  return OkStatus();
}

Status Encoder::EncodePair(const Value& entry) {
  const Value::Array* parts = entry.AsArray();
  if (parts == nullptr || parts->size() != 3 || (*parts)[1].AsString() == nullptr) {
    return InvalidData("it is not a list of key, type and value");
  }
  const auto type = ParseKvType(*(*parts)[1].AsString());
  if (!type) return InvalidData("value type " + Quote(*(*parts)[1].AsString()));
  ZT_RETURN_IF_ERROR(PutText((*parts)[0]));
  Put(static_cast<std::uint32_t>(*type), 4);
  return PutValue(*type, (*parts)[2]);
}

Status Encoder::Tensor(const GgufTensor& tensor) {
  ZT_RETURN_IF_ERROR(PutSized(std::as_bytes(std::span(tensor.name))));
  Put(tensor.shape.size(), 4);
  for (std::size_t i = tensor.shape.size(); i > 0; --i) {
    ZT_RETURN_IF_ERROR(PutCount(tensor.shape[i - 1]));
  }
  Put(tensor.type.id, 4);
  Put(tensor.offset, 8);
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<std::byte>> gguf::internal::EncodeHeader(const GgufHeader& header,
                                                              std::span<const Value* const> pairs) {
  return Encoder(header, pairs).Run();
}

StatusOr<std::vector<std::byte>> EncodeGgufHeader(const GgufHeader& header) {
  std::vector<const Value*> pairs;
  for (const Value& pair : header.kv) pairs.push_back(&pair);
  return EncodeHeader(header, pairs);
}

}  // namespace zt
