// zt.convert.safetensors — the JSON of a header, entry by entry.
#include "safetensors/entries.h"

#include <simdjson.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/name_table.h"

namespace zt::safetensors {
namespace {

namespace ondemand = simdjson::ondemand;
static_assert(kPadding >= simdjson::SIMDJSON_PADDING);

using MaybeFault = std::optional<Fault>;

Fault NotJson(simdjson::error_code error) {
  if (error == simdjson::MEMALLOC) return {.before = "out of memory", .memory = true};
  return {.before = std::string("the header is not JSON: ") + simdjson::error_message(error)};
}

Fault Twice(std::string_view key) {
  return {.before = "key ", .quoted = std::string(key), .after = " is there twice"};
}

// Puts an unsigned integer into `number`, if it is one; -0 is.
bool IsUnsigned(simdjson::simdjson_result<ondemand::value> value, std::uint64_t& number) {
  if (value.get_uint64().get(number) == simdjson::SUCCESS) return true;
  std::int64_t zero;
  number = 0;
  return value.get_int64().get(zero) == simdjson::SUCCESS && zero == 0;
}

// The field of a tensor's entry. Those that are known are compared where they lie; only others are copied.
std::string_view FieldName(ondemand::field& field) {
  for (const std::string_view known : {"dtype", "shape", "data_offsets"}) {
    if (field.key() == known) return known;
  }
  std::string_view name;
  return field.unescaped_key().get(name) == simdjson::SUCCESS ? name : std::string_view();
}

MaybeFault ParseShape(ondemand::value& value, std::vector<std::uint64_t>& shape) {
  shape.clear();
  ondemand::array dims;
  if (value.get_array().get(dims) != simdjson::SUCCESS) return Fault{"shape is not an array"};
  for (auto dim : dims) {
    std::uint64_t number;
    if (!IsUnsigned(dim, number)) return Fault{"a dimension is not an unsigned integer"};
    shape.push_back(number);
  }
  return std::nullopt;
}

MaybeFault ParseRange(ondemand::value& value, Entry& entry) {
  std::array<std::uint64_t, 2> pair{};
  std::size_t count = 0;
  bool unsigned_numbers = true;
  ondemand::array numbers;
  if (value.get_array().get(numbers) != simdjson::SUCCESS) {
    return Fault{"data_offsets is not a pair"};
  }
  for (auto number : numbers) {
    std::uint64_t ignored;
    unsigned_numbers &= IsUnsigned(number, count < pair.size() ? pair[count] : ignored);
    ++count;
  }
  if (count != pair.size()) return Fault{"data_offsets is not a pair"};
  if (!unsigned_numbers) return Fault{"data_offsets is not an unsigned integer"};
  entry.begin = pair[0];
  entry.end = pair[1];
  return std::nullopt;
}

// The entry's fields; `shape` keeps its dimensions.
MaybeFault ParseEntry(ondemand::value& value, Entry& entry, std::vector<std::uint64_t>& shape) {
  ondemand::object fields;
  if (value.get_object().get(fields) != simdjson::SUCCESS) {
    return Fault{"it is not a JSON object"};
  }
  bool has_dtype = false, has_shape = false, has_range = false;
  for (auto each : fields) {
    ondemand::field field;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    const std::string_view key = FieldName(field);
    MaybeFault fault;
    if (key == "dtype") {
      if (std::exchange(has_dtype, true)) return Fault{"dtype is there twice"};
      if (field.value().get_string().get(entry.dtype) != simdjson::SUCCESS) {
        return Fault{"dtype is not a string"};
      }
    } else if (key == "shape") {
      if (std::exchange(has_shape, true)) return Fault{"shape is there twice"};
      fault = ParseShape(field.value(), shape);
    } else if (key == "data_offsets") {
      if (std::exchange(has_range, true)) return Fault{"data_offsets is there twice"};
      fault = ParseRange(field.value(), entry);
    } else {
      return Fault{.before = "unknown field ", .quoted = std::string(key)};
    }
    if (fault) return fault;
  }
  entry.shape = shape;
  if (has_dtype && has_shape && has_range) return std::nullopt;
  return Fault{std::string(!has_dtype   ? "dtype"
                           : !has_shape ? "shape"
                                        : "data_offsets") +
               " is missing"};
}

MaybeFault ParseMetadata(ondemand::value& entry, EntryTaker& taker) {
  ondemand::object members;
  if (entry.get_object().get(members) != simdjson::SUCCESS) {
    return Fault{"__metadata__ is not a JSON object"};
  }
  const auto of_key = [](std::string_view key, std::string_view after) {
    return Fault{.before = "__metadata__ ", .quoted = std::string(key), .after = after};
  };
  std::unordered_set<std::string_view, internal::NameHash> keys;
  for (auto each : members) {
    ondemand::field field;
    std::string_view key, text;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(key)) return NotJson(error);
    if (field.value().get_string().get(text) != simdjson::SUCCESS) {
      return of_key(key, " is not a string");
    }
    if (!keys.insert(key).second) return of_key(key, " is there twice");
    if (!taker.TakeMetadata(key, text)) return std::nullopt;
  }
  return std::nullopt;
}

simdjson::padded_string_view Padded(std::string_view text) {
  return simdjson::padded_string_view(text.data(), text.size(), text.size() + kPadding);
}

}  // namespace

struct EntryParser::Json {
  ondemand::parser parser;
  std::vector<std::uint64_t> shape;
};

EntryParser::EntryParser() : json_(new Json) {}
EntryParser::~EntryParser() { delete json_; }

MaybeFault EntryParser::Parse(std::string_view text, EntryTaker& taker) {
  ondemand::document document;
  ondemand::object members;
  if (const auto error = json_->parser.iterate(Padded(text)).get(document)) return NotJson(error);
  if (document.get_object().get(members) != simdjson::SUCCESS) {
    return Fault{"the header is not a JSON object"};
  }
  for (auto each : members) {
    ondemand::field field;
    Entry entry;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(entry.name)) return NotJson(error);
    if (entry.name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return Twice(entry.name);
      if (auto fault = ParseMetadata(field.value(), taker)) return fault;
      continue;
    }
    if (auto fault = ParseEntry(field.value(), entry, json_->shape)) {
      fault->tensor = std::string(entry.name);
      return fault;
    }
    if (!taker.TakeEntry(entry)) return std::nullopt;
  }
  const bool at_end = document.current_location().error() == simdjson::OUT_OF_BOUNDS;
  return at_end ? std::nullopt : MaybeFault(NotJson(simdjson::TRAILING_CONTENT));
}

MaybeFault FindJsonFault(std::string_view text) {
  simdjson::dom::parser parser;
  const simdjson::error_code error = parser.parse(Padded(text)).error();
  return error == simdjson::SUCCESS ? std::nullopt : MaybeFault(NotJson(error));
}

}  // namespace zt::safetensors
