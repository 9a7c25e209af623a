// zt.convert.gguf:header — parsing, bounded by what the file can hold.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.transform;
import :kv;

namespace zt {
using namespace gguf::internal;
namespace {

constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr int kMaxArrayNesting = 8;
// Arrays within arrays take twelve bytes of a file at least, and hundreds of memory. Nobody is known to write any.
constexpr std::uint64_t kMaxNestedArrays = std::uint64_t{1} << 16;

// Stops at the first error, or when `head` ends before the header does.
class Parser {
 public:
  Parser(std::span<const std::byte> head, std::optional<std::uint64_t> file_bytes)
      : head_(head), file_bytes_(file_bytes) {}

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

  // True if `head` has `count` more bytes. Otherwise the caller is to give more, or, if the file has no more, it fails.
  bool Need(std::uint64_t count) {
    if (count <= head_.size() - pos_) return true;
    const std::uint64_t limit =
        file_bytes_ ? std::min(*file_bytes_, kGgufMaxHeader) : kGgufMaxHeader;
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
  // `count` items of at least `least` bytes each must fit into what is left of the file.
  bool NeedItems(std::uint64_t count, std::uint64_t least, std::string_view what) {
    const auto bytes = CheckedMul(count, least);
    const std::uint64_t limit =
        file_bytes_ ? std::min(*file_bytes_, kGgufMaxHeader) : kGgufMaxHeader;
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

  template <typename T>
  bool Read(T* out) {
    if (!Need(sizeof(T))) return false;
    std::memcpy(out, head_.data() + pos_, sizeof(T));
    if (out_.big_endian != (std::endian::native == std::endian::big)) {
      auto* bytes = reinterpret_cast<std::byte*>(out);
      std::reverse(bytes, bytes + sizeof(T));
    }
    pos_ += sizeof(T);
    return true;
  }
  // A count or length: 32 bits in version 1.
  bool ReadCount(std::uint64_t* out) {
    if (out_.version != 1) return Read(out);
    std::uint32_t narrow;
    if (!Read(&narrow)) return false;
    *out = narrow;
    return true;
  }
  bool ReadText(std::string_view* out) {
    std::uint64_t length;
    if (!ReadCount(&length) || !Need(length)) return false;
    *out = {reinterpret_cast<const char*>(head_.data() + pos_), static_cast<std::size_t>(length)};
    pos_ += length;
    return true;
  }
  std::uint64_t CountWidth() const { return out_.version == 1 ? 4 : 8; }

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
  std::uint64_t pos_ = 0;
  bool more_ = false;
  Status status_;
  GgufHeader out_;
  std::uint64_t tensor_count_ = 0, kv_count_ = 0, nested_arrays_ = 0;
  std::string_view label_, name_;  // what is being read, for messages
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
  // A version has always fitted 16 bits, so low bits of zero mean the other byte order.
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
  const auto number = [&]<typename T>(T v) {
    if (!Read(&v)) return false;
    if constexpr (std::is_floating_point_v<T>) {
      *out = FloatValue(v);
    } else if constexpr (std::is_signed_v<T>) {
      *out = Value(std::int64_t{v});
    } else {
      *out = Value(std::uint64_t{v});
    }
    return true;
  };
  switch (type) {
    case KvType::kU8:
      return number(std::uint8_t{});
    case KvType::kI8:
      return number(std::int8_t{});
    case KvType::kU16:
      return number(std::uint16_t{});
    case KvType::kI16:
      return number(std::int16_t{});
    case KvType::kU32:
      return number(std::uint32_t{});
    case KvType::kI32:
      return number(std::int32_t{});
    case KvType::kU64:
      return number(std::uint64_t{});
    case KvType::kI64:
      return number(std::int64_t{});
    case KvType::kF32:
      return number(float{});
    case KvType::kF64:
      return number(double{});
    default: {
      std::uint8_t flag;
      if (!Read(&flag)) return false;
      if (flag > 1) return Fail(Where() + "a bool is " + std::to_string(flag) + ", not 0 or 1");
      *out = Value(flag == 1);
      return true;
    }
  }
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
    // Nested arrays may each claim as many more as the file could hold.
    list.reserve(*type == KvType::kArray ? std::min<std::uint64_t>(count, 64) : count);
    for (std::uint64_t i = 0; i < count; ++i) {
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

// Keeps what the rest of the parser and the split sets need to know.
bool Parser::Note(std::string_view key, KvType type, const Value& value) {
  const bool alignment = key == "general.alignment";
  std::optional<std::uint64_t>* split = key == "split.no"              ? &out_.split_no
                                        : key == "split.count"         ? &out_.split_count
                                        : key == "split.tensors.count" ? &out_.split_tensors
                                                                       : nullptr;
  if (!alignment && split == nullptr) return true;
  const bool integer = type != KvType::kArray && type != KvType::kBool && type != KvType::kF32 &&
                       type != KvType::kF64 && type != KvType::kString;
  if (alignment ? type != KvType::kU32 : !integer || value.AsUint() == nullptr) {
    return Fail(Where() + (alignment ? "it is not a u32" : "it is not a count"));
  }
  if (split != nullptr) {
    *split = *value.AsUint();
    return true;
  }
  out_.alignment = *value.AsUint();
  if (!std::has_single_bit(out_.alignment) || out_.alignment > kMaxAlignment) {
    return Fail(Where() + std::to_string(out_.alignment) + " is not a power of two up to " +
                std::to_string(kMaxAlignment));
  }
  return true;
}

bool Parser::Metadata() {
  const std::uint64_t least = CountWidth() + 4 + 1;
  if (!NeedItems(kv_count_, least, "key-value pairs")) return false;
  out_.kv.reserve(kv_count_);
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
    out_.kv.emplace_back(std::move(entry));
  }
  return true;
}

bool Parser::TensorInfo(GgufTensor& tensor) {
  std::uint32_t dims, type;
  if (!Read(&dims)) return false;
  if (dims > kGgufMaxDims) {
    return Fail(Unsupported(std::to_string(dims) + " dimensions, at most " +
                            std::to_string(kGgufMaxDims) + " are known"));
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

// Every tensor must lie within the file, and no two over the same bytes.
bool Parser::Layout() {
  std::vector<GgufTensor*> order;
  order.reserve(out_.tensors.size());
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
  }
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes) {
      return Fail(TensorContext(order[i]->name) + " overlaps " + TensorContext(order[i - 1]->name));
    }
  }
  // What a tensor of unknown type has at most, for listings.
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

StatusOr<std::optional<GgufHeader>> ParseGgufHeader(std::span<const std::byte> head,
                                                    std::optional<std::uint64_t> file_bytes) {
  return Parser(head, file_bytes).Run();
}

}  // namespace zt
