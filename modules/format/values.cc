// zt.format — encodes and decodes attribute values as CBOR.
module;

#include "core/name_table.h"
#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import zt.core;

namespace zt {

namespace cbor = format_cbor;

namespace format::internal {
namespace {

// A head may claim any count, and heads nest: vectors reserve at most this much and grow with the
// items that are there.
constexpr std::size_t kMaxReserve = 64;

StatusOr<Value> FromItem(cbor::Reader& reader, const cbor::Item& item, std::size_t depth,
                         std::size_t* budget);

StatusOr<Value> NextValue(cbor::Reader& reader, std::size_t depth, std::size_t* budget) {
  return FromItem(reader, reader.Next(), depth, budget);
}

StatusOr<Value> ReadArray(cbor::Reader& reader, const cbor::Item& head, std::size_t depth,
                          std::size_t* budget) {
  Value::Array array;
  cbor::Container container = cbor::Open(head);
  array.reserve(std::min<std::uint64_t>(container.left, kMaxReserve));
  while (reader.More(container)) {
    ZT_ASSIGN_OR_RETURN(Value value, NextValue(reader, depth - 1, budget));
    array.push_back(std::move(value));
  }
  return Value(std::move(array));
}

StatusOr<Value> ReadMap(cbor::Reader& reader, const cbor::Item& head, std::size_t depth,
                        std::size_t* budget) {
  Value::Map map;
  cbor::Container container = cbor::Open(head);
  map.reserve(std::min<std::uint64_t>(container.left, kMaxReserve));
  while (reader.More(container)) {
    const cbor::Item key = reader.Next();
    if (key.kind == cbor::Kind::kError) return InvalidData(reader.error());
    if (key.kind != cbor::Kind::kText) {
      return InvalidData("a map key is " + std::string(cbor::Describe(key.kind)) +
                         ", only text can be a key");
    }
    if (!IsUtf8(key.text)) return InvalidData("a map key is not valid UTF-8");
    std::string name(key.text);
    auto value = NextValue(reader, depth - 1, budget);
    if (!value.ok()) return Annotate(value.status(), Quote(name));
    map.emplace_back(std::move(name), *std::move(value));
  }
  const auto key_of = [&map](std::size_t i) { return std::string_view(map[i].first); };
  if (const auto twice = zt::internal::FindTwice(map.size(), key_of)) {
    return InvalidData("key " + Quote(key_of(twice->again)) + " occurs twice");
  }
  return Value(std::move(map));
}

StatusOr<Value> FromItem(cbor::Reader& reader, const cbor::Item& item, std::size_t depth,
                         std::size_t* budget) {
  if (*budget == 0) {
    return InvalidData("the attributes hold more than " + std::to_string(kMaxAttributeValues) +
                       " values");
  }
  --*budget;
  switch (item.kind) {
    case cbor::Kind::kError:
      return InvalidData(reader.error());
    case cbor::Kind::kUint:
      return Value(item.value);
    case cbor::Kind::kNegative:
      if (item.value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Unsupported("an integer is below -2^63");
      }
      return Value(-1 - static_cast<std::int64_t>(item.value));
    case cbor::Kind::kBytes: {
      const auto* data = reinterpret_cast<const std::byte*>(item.text.data());
      return Value(Value::Bytes(data, data + item.text.size()));
    }
    case cbor::Kind::kText:
      if (!IsUtf8(item.text)) return InvalidData("text is not valid UTF-8");
      return Value(item.text);
    case cbor::Kind::kBool:
      return Value(item.value != 0);
    case cbor::Kind::kNull:
      return Value();
    case cbor::Kind::kDouble:
      return Value(item.number);
    case cbor::Kind::kUndefined:
      return Unsupported("the CBOR value 'undefined' cannot be kept");
    case cbor::Kind::kSimple:
      return Unsupported("the CBOR simple value " + std::to_string(item.value) + " cannot be kept");
    case cbor::Kind::kTag:
      return Unsupported("a value with CBOR tag " + std::to_string(item.value) + " cannot be kept");
    case cbor::Kind::kArray:
    case cbor::Kind::kMap:
      if (depth == 0) {
        return InvalidData("the CBOR nests deeper than " + std::to_string(kMaxNesting) + " levels");
      }
      return item.kind == cbor::Kind::kArray ? ReadArray(reader, item, depth, budget)
                                             : ReadMap(reader, item, depth, budget);
  }
  return InvalidData("the CBOR is malformed");
}

void Count(const Value& value, std::uint64_t* count) {
  ++*count;
  if (const Value::Array* array = value.AsArray()) {
    for (const Value& each : *array) {
      if (*count > kMaxAttributeValues) return;
      Count(each, count);
    }
  } else if (const Value::Map* map = value.AsMap()) {
    for (const Value::Member& member : *map) {
      if (*count > kMaxAttributeValues) return;
      Count(member.second, count);
    }
  }
}

Status TooDeep() {
  return InvalidArgument("the attributes nest deeper than " + std::to_string(kMaxNesting) +
                         " levels");
}

}  // namespace

std::uint64_t CountValues(const Value::Map& attributes) {
  if (attributes.empty()) return 0;
  std::uint64_t count = 1;
  for (const Value::Member& member : attributes) {
    if (count > kMaxAttributeValues) break;
    Count(member.second, &count);
  }
  return count;
}

Status TooManyValues() {
  return Unsupported("the attributes hold more than " + std::to_string(kMaxAttributeValues) +
                     " values, which no reader would accept");
}

StatusOr<Value> ReadValue(std::span<const std::byte> bytes, std::size_t* position,
                          std::size_t depth, std::size_t* budget) {
  cbor::Reader reader(bytes, *position);
  auto value = NextValue(reader, depth, budget);
  *position = reader.position();
  return value;
}

Status AppendValue(const Value& value, std::size_t depth, cbor::Buffer* out) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      cbor::AppendNull(*out);
      return OkStatus();
    case Value::Kind::kBool:
      cbor::AppendBool(*out, *value.AsBool());
      return OkStatus();
    case Value::Kind::kUint:
      cbor::AppendUint(*out, *value.AsUint());
      return OkStatus();
    case Value::Kind::kInt:
      cbor::AppendNegative(*out, static_cast<std::uint64_t>(-1 - *value.AsInt()));
      return OkStatus();
    case Value::Kind::kDouble:
      cbor::AppendDouble(*out, *value.AsDouble());
      return OkStatus();
    case Value::Kind::kString:
      if (!IsUtf8(*value.AsString())) return InvalidArgument("text is not valid UTF-8");
      cbor::AppendText(*out, *value.AsString());
      return OkStatus();
    case Value::Kind::kBytes:
      cbor::AppendBytes(*out, *value.AsBytes());
      return OkStatus();
    case Value::Kind::kArray:
    case Value::Kind::kMap:
      break;
  }
  if (const Value::Map* map = value.AsMap()) return AppendMap(*map, depth, out);
  if (depth == 0) return TooDeep();
  const Value::Array& array = *value.AsArray();
  cbor::AppendArrayHead(*out, array.size());
  for (const Value& item : array) ZT_RETURN_IF_ERROR(AppendValue(item, depth - 1, out));
  return OkStatus();
}

Status AppendMap(const Value::Map& map, std::size_t depth, cbor::Buffer* out) {
  if (depth == 0) return TooDeep();
  std::vector<const Value::Member*> members;
  members.reserve(map.size());
  for (const Value::Member& member : map) {
    if (!IsUtf8(member.first)) return InvalidArgument("a map key is not valid UTF-8");
    members.push_back(&member);
  }
  std::sort(members.begin(), members.end(), [](const Value::Member* a, const Value::Member* b) {
    return cbor::KeyLess(a->first, b->first);
  });
  cbor::AppendMapHead(*out, members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& [key, member] = *members[i];
    if (i > 0 && members[i - 1]->first == key) {
      return InvalidArgument("key " + Quote(key) + " occurs twice");
    }
    cbor::AppendText(*out, key);
    if (auto status = AppendValue(member, depth - 1, out); !status.ok()) {
      return Annotate(status, Quote(key));
    }
  }
  return OkStatus();
}

}  // namespace format::internal

Status AttributeBudget::Take(const Value::Map& attributes) {
  const std::uint64_t count = format::internal::CountValues(attributes);
  if (count > left_) return format::internal::TooManyValues();
  left_ -= count;
  return OkStatus();
}

StatusOr<Value> DecodeCbor(std::span<const std::byte> bytes) {
  std::size_t position = 0, budget = kMaxAttributeValues;
  ZT_ASSIGN_OR_RETURN(Value value,
                      format::internal::ReadValue(bytes, &position, kMaxNesting, &budget));
  if (position != bytes.size()) {
    return InvalidData(std::to_string(bytes.size() - position) + " bytes follow the CBOR value");
  }
  return value;
}

StatusOr<std::vector<std::byte>> EncodeCbor(const Value& value) {
  cbor::Buffer out;
  ZT_RETURN_IF_ERROR(format::internal::AppendValue(value, kMaxNesting, &out));
  return std::vector<std::byte>(out.begin(), out.end());
}

}  // namespace zt
