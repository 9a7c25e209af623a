// zt.convert.gguf:header — the header written from its model: the exact inverse of the parser.
module;

#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.transform;
import :kv;

namespace zt {
using namespace gguf::internal;
namespace {

class Encoder {
 public:
  explicit Encoder(const GgufHeader& header) : header_(header) {}

  StatusOr<std::vector<std::byte>> Run() {
    Raw(header_.swapped_magic ? "FUGG" : "GGUF");
    Put(header_.version);
    ZT_RETURN_IF_ERROR(PutCount(header_.tensors.size()));
    ZT_RETURN_IF_ERROR(PutCount(header_.kv.size()));
    for (std::size_t i = 0; i < header_.kv.size(); ++i) {
      ZT_RETURN_IF_ERROR(Annotate(Entry(header_.kv[i]), "metadata pair " + std::to_string(i)));
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

  template <typename T>
  void Put(T v) {
    std::array<std::byte, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &v, sizeof(T));
    if (header_.big_endian != (std::endian::native == std::endian::big)) {
      std::reverse(bytes.begin(), bytes.end());
    }
    Raw(bytes);
  }
  Status PutCount(std::uint64_t count) {
    if (header_.version != 1) {
      Put(count);
      return OkStatus();
    }
    if (count > std::numeric_limits<std::uint32_t>::max()) {
      return Unsupported(std::to_string(count) + " does not fit version 1 of GGUF");
    }
    Put(static_cast<std::uint32_t>(count));
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

  template <typename T>
  Status PutNumber(const Value& value);
  Status PutValue(KvType type, const Value& value);
  Status PutArray(const Value& pair);
  Status Entry(const Value& entry);
  Status Tensor(const GgufTensor& tensor);

  const GgufHeader& header_;
  std::vector<std::byte> out_;
};

template <typename T>
Status Encoder::PutNumber(const Value& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (const double* v = value.AsDouble()) {
      if (std::isfinite(*v) && std::abs(*v) > std::numeric_limits<T>::max()) {
        return InvalidData("a float is out of its type's range");
      }
      Put(static_cast<T>(*v));
      return OkStatus();
    }
    const Value::Bytes* nan = value.AsBytes();
    if (nan == nullptr || nan->size() != sizeof(T)) return InvalidData("a float is not a number");
    Value::Bytes bytes = *nan;
    if (header_.big_endian) std::reverse(bytes.begin(), bytes.end());
    Raw(bytes);
    return OkStatus();
  } else {
    if (const std::uint64_t* v = value.AsUint()) {
      if (*v <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())) {
        Put(static_cast<T>(*v));
        return OkStatus();
      }
    } else if (const std::int64_t* w = value.AsInt()) {
      if (std::is_signed_v<T> && *w >= static_cast<std::int64_t>(std::numeric_limits<T>::min())) {
        Put(static_cast<T>(*w));
        return OkStatus();
      }
    }
    return InvalidData("an integer is missing or out of its type's range");
  }
}

Status Encoder::PutValue(KvType type, const Value& value) {
  switch (type) {
    case KvType::kU8:
      return PutNumber<std::uint8_t>(value);
    case KvType::kI8:
      return PutNumber<std::int8_t>(value);
    case KvType::kU16:
      return PutNumber<std::uint16_t>(value);
    case KvType::kI16:
      return PutNumber<std::int16_t>(value);
    case KvType::kU32:
      return PutNumber<std::uint32_t>(value);
    case KvType::kI32:
      return PutNumber<std::int32_t>(value);
    case KvType::kU64:
      return PutNumber<std::uint64_t>(value);
    case KvType::kI64:
      return PutNumber<std::int64_t>(value);
    case KvType::kF32:
      return PutNumber<float>(value);
    case KvType::kF64:
      return PutNumber<double>(value);
    case KvType::kBool:
      if (value.AsBool() == nullptr) return InvalidData("a bool is neither true nor false");
      Put(static_cast<std::uint8_t>(*value.AsBool()));
      return OkStatus();
    case KvType::kString:
      return PutText(value);
    case KvType::kArray:
      return PutArray(value);
  }
  return InvalidData("unknown value type");
}

Status Encoder::PutArray(const Value& pair) {
  const Value::Array* parts = pair.AsArray();
  if (parts == nullptr || parts->size() != 2 || (*parts)[0].AsString() == nullptr) {
    return InvalidData("an array is not a pair of element type and values");
  }
  const auto type = ParseKvType(*(*parts)[0].AsString());
  if (!type) return InvalidData("element type " + Quote(*(*parts)[0].AsString()));
  Put(static_cast<std::uint32_t>(*type));
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

Status Encoder::Entry(const Value& entry) {
  const Value::Array* parts = entry.AsArray();
  if (parts == nullptr || parts->size() != 3 || (*parts)[1].AsString() == nullptr) {
    return InvalidData("it is not a list of key, type and value");
  }
  const auto type = ParseKvType(*(*parts)[1].AsString());
  if (!type) return InvalidData("value type " + Quote(*(*parts)[1].AsString()));
  ZT_RETURN_IF_ERROR(PutText((*parts)[0]));
  Put(static_cast<std::uint32_t>(*type));
  return PutValue(*type, (*parts)[2]);
}

Status Encoder::Tensor(const GgufTensor& tensor) {
  ZT_RETURN_IF_ERROR(PutSized(std::as_bytes(std::span(tensor.name))));
  Put(static_cast<std::uint32_t>(tensor.shape.size()));
  for (std::size_t i = tensor.shape.size(); i > 0; --i) {
    ZT_RETURN_IF_ERROR(PutCount(tensor.shape[i - 1]));
  }
  Put(tensor.type.id);
  Put(tensor.offset);
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<std::byte>> EncodeGgufHeader(const GgufHeader& header) {
  return Encoder(header).Run();
}

}  // namespace zt
