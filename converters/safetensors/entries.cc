// zt.convert.safetensors — parses the JSON of a header, entry by entry.
// A plain unit, because simdjson's header and the module zt.std cannot be used in the same unit.
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/name_table.h"
#include "core/status_macros.h"

import zt.convert.safetensors;
import zt.core;

namespace zt::safetensors::internal {
namespace {

namespace ondemand = simdjson::ondemand;
static_assert(kPadding >= simdjson::SIMDJSON_PADDING);

Status NotJson(simdjson::error_code error) {
  if (error == simdjson::MEMALLOC) return OutOfMemory();
  return InvalidData(std::string("the header is not JSON: ") + simdjson::error_message(error));
}

// Stores the value in `number` if it is an unsigned integer; -0 counts as 0.
bool IsUnsigned(simdjson::simdjson_result<ondemand::value> value, std::uint64_t& number) {
  if (value.get_uint64().get(number) == simdjson::SUCCESS) return true;
  std::int64_t zero;
  number = 0;
  return value.get_int64().get(zero) == simdjson::SUCCESS && zero == 0;
}

// The fields of a tensor's entry.
enum class FieldKind { kDtype, kShape, kRange, kUnknown };
constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};

// The kind of a field. Known names are compared in place; only others are copied, to `name`.
FieldKind KindOf(ondemand::field& field, std::string_view& name) {
  for (std::size_t i = 0; i < kFieldNames.size(); ++i) {
    if (field.key() == kFieldNames[i]) return static_cast<FieldKind>(i);
  }
  if (field.unescaped_key().get(name) != simdjson::SUCCESS) name = {};
  const auto known = std::find(kFieldNames.begin(), kFieldNames.end(), name);
  return static_cast<FieldKind>(known - kFieldNames.begin());
}

Status ParseShape(ondemand::value& value, std::vector<std::uint64_t>& shape) {
  shape.clear();
  ondemand::array dims;
  if (value.get_array().get(dims) != simdjson::SUCCESS) return InvalidData("shape is not an array");
  for (auto dim : dims) {
    std::uint64_t number;
    if (!IsUnsigned(dim, number)) return InvalidData("a dimension is not an unsigned integer");
    shape.push_back(number);
  }
  return OkStatus();
}

Status ParseRange(ondemand::value& value, TensorEntry& entry) {
  std::array<std::uint64_t, 2> pair{};
  std::size_t count = 0;
  bool unsigned_numbers = true;
  ondemand::array numbers;
  if (value.get_array().get(numbers) != simdjson::SUCCESS) {
    return InvalidData("data_offsets is not a pair");
  }
  for (auto number : numbers) {
    std::uint64_t ignored;
    unsigned_numbers &= IsUnsigned(number, count < pair.size() ? pair[count] : ignored);
    ++count;
  }
  if (count != pair.size()) return InvalidData("data_offsets is not a pair");
  if (!unsigned_numbers) return InvalidData("data_offsets is not an unsigned integer");
  entry.begin = pair[0];
  entry.end = pair[1];
  return OkStatus();
}

// Checks that a value is JSON, of which nothing is kept.
simdjson::error_code PassOver(ondemand::value value, std::size_t depth) {
  if (depth == 0) return simdjson::DEPTH_ERROR;
  ondemand::json_type type;
  if (const auto error = value.type().get(type)) return error;
  if (type == ondemand::json_type::object) {
    ondemand::object fields;
    if (const auto error = value.get_object().get(fields)) return error;
    for (auto each : fields) {
      ondemand::field field;
      if (const auto error = std::move(each).get(field)) return error;
      if (const auto error = field.unescaped_key().error()) return error;
      if (const auto error = PassOver(field.value(), depth - 1)) return error;
    }
    return simdjson::SUCCESS;
  }
  if (type == ondemand::json_type::array) {
    ondemand::array values;
    if (const auto error = value.get_array().get(values)) return error;
    for (auto each : values) {
      ondemand::value item;
      if (const auto error = std::move(each).get(item)) return error;
      if (const auto error = PassOver(item, depth - 1)) return error;
    }
    return simdjson::SUCCESS;
  }
  if (type == ondemand::json_type::string) return value.get_string().error();
  if (type == ondemand::json_type::number) return value.get_number().error();
  if (type == ondemand::json_type::boolean) return value.get_bool().error();
  bool none = false;
  const auto error = value.is_null().get(none);
  return error != simdjson::SUCCESS || none ? error : simdjson::N_ATOM_ERROR;
}

// Parses the fields of an entry. `shape` owns its dimensions. Fields that the reference library
// passes over are passed over.
Status ParseEntry(ondemand::value& value, TensorEntry& entry, std::vector<std::uint64_t>& shape) {
  ondemand::object fields;
  if (value.get_object().get(fields) != simdjson::SUCCESS) {
    return InvalidData("it is not a JSON object");
  }
  bool has_dtype = false, has_shape = false, has_range = false;
  for (auto each : fields) {
    ondemand::field field;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    std::string_view name;
    switch (KindOf(field, name)) {
      case FieldKind::kDtype:
        if (std::exchange(has_dtype, true)) return InvalidData("dtype occurs twice");
        if (field.value().get_string().get(entry.dtype) != simdjson::SUCCESS) {
          return InvalidData("dtype is not a string");
        }
        break;
      case FieldKind::kShape:
        if (std::exchange(has_shape, true)) return InvalidData("shape occurs twice");
        ZT_RETURN_IF_ERROR(ParseShape(field.value(), shape));
        break;
      case FieldKind::kRange:
        if (std::exchange(has_range, true)) return InvalidData("data_offsets occurs twice");
        ZT_RETURN_IF_ERROR(ParseRange(field.value(), entry));
        break;
      case FieldKind::kUnknown:
        if (const auto error = PassOver(field.value(), simdjson::DEFAULT_MAX_DEPTH))
          return NotJson(error);
        break;
    }
  }
  entry.shape = shape;
  if (has_dtype && has_shape && has_range) return OkStatus();
  return InvalidData(std::string(!has_dtype   ? "dtype"
                                 : !has_shape ? "shape"
                                              : "data_offsets") +
                     " is missing");
}

Status ParseMetadata(ondemand::value& entry, EntryTaker& taker) {
  ondemand::object members;
  if (entry.get_object().get(members) != simdjson::SUCCESS) {
    return InvalidData("__metadata__ is not a JSON object");
  }
  std::unordered_set<std::string_view, zt::internal::NameHash> keys;
  for (auto each : members) {
    ondemand::field field;
    std::string_view key, text;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(key)) return NotJson(error);
    if (field.value().get_string().get(text) != simdjson::SUCCESS) {
      return InvalidData("__metadata__ " + Quote(key) + " is not a string");
    }
    if (!keys.insert(key).second)
      return InvalidData("__metadata__ " + Quote(key) + " occurs twice");
    taker.TakeMetadata(key, text);
  }
  return OkStatus();
}

simdjson::padded_string_view Padded(std::string_view text) {
  return simdjson::padded_string_view(text.data(), text.size(), text.size() + kPadding);
}

}  // namespace

StatusOr<Metadata> ParseEntries(std::string_view text, EntryTaker& taker) {
  ondemand::parser parser;
  std::vector<std::uint64_t> shape;
  Metadata metadata = Metadata::kNone;
  ondemand::document document;
  ondemand::object members;
  if (const auto error = parser.iterate(Padded(text)).get(document)) return NotJson(error);
  if (document.get_object().get(members) != simdjson::SUCCESS) {
    return InvalidData("the header is not a JSON object");
  }
  for (auto each : members) {
    ondemand::field field;
    TensorEntry entry;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(entry.name)) return NotJson(error);
    if (entry.name == "__metadata__") {
      if (metadata != Metadata::kNone)
        return InvalidData("key " + Quote(entry.name) + " occurs twice");
      bool null = false;
      if (field.value().is_null().get(null) == simdjson::SUCCESS && null) {
        metadata = Metadata::kNull;
        continue;
      }
      metadata = Metadata::kMap;
      ZT_RETURN_IF_ERROR(ParseMetadata(field.value(), taker));
      continue;
    }
    Status status = ParseEntry(field.value(), entry, shape);
    if (status.ok()) status = taker.TakeEntry(entry);
    ZT_RETURN_IF_ERROR(WithTensor(status, entry.name));
  }
  const bool at_end = document.current_location().error() == simdjson::OUT_OF_BOUNDS;
  if (!at_end) return NotJson(simdjson::TRAILING_CONTENT);
  return metadata;
}

StatusOr<std::vector<SavedOffsets>> ParseShardingInfo(std::string_view text) {
  namespace dom = simdjson::dom;
  const Status wrong =
      InvalidData("__metadata__ " + Quote(kShardingInfo) + " does not say where its tensors begin");
  dom::parser parser;
  dom::object tensors;
  if (parser.parse(text.data(), text.size()).get_object().get(tensors) != simdjson::SUCCESS) {
    return wrong;
  }
  std::vector<SavedOffsets> all;
  for (const auto& [name, entry] : tensors) {
    dom::array numbers;
    if (entry["saved_offsets"].get_array().get(numbers) != simdjson::SUCCESS) return wrong;
    SavedOffsets& tensor = all.emplace_back(SavedOffsets{std::string(name), {}});
    for (const dom::element number : numbers) {
      std::uint64_t offset;
      if (number.get_uint64().get(offset) != simdjson::SUCCESS) return wrong;
      tensor.offsets.push_back(offset);
    }
  }
  return all;
}

Status FindJsonFault(std::string_view text) {
  simdjson::dom::parser parser;
  const simdjson::error_code error = parser.parse(Padded(text)).error();
  if (error == simdjson::SUCCESS) return OkStatus();
  const std::size_t end = text.find_last_not_of('\0') + 1;
  if (end == text.size() || parser.parse(Padded(text.substr(0, end))).error() != simdjson::SUCCESS)
    return NotJson(error);
  return InvalidData("the header is padded with " + std::to_string(text.size() - end) +
                     " zero bytes, where safetensors has blanks; write it again, or replace them");
}

}  // namespace zt::safetensors::internal
