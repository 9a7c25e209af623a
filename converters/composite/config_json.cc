// zt.convert.composite — parses the JSON of a quantization configuration. A plain unit, because
// simdjson's header and the module zt.std cannot be used in the same unit.
#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/name_table.h"
#include "core/status_macros.h"

import zt.core;

namespace zt {

StatusOr<Value::Map> ParseJsonObject(std::string_view text);
Status CheckJsonObject(std::string_view text);

namespace {

namespace dom = simdjson::dom;

// A manifest may have 64 levels of nesting; the attribute is at the third.
constexpr int kMaxConfigDepth = 32;

StatusOr<Value> ToValue(const dom::element& element, int depth);

StatusOr<Value::Map> ToMap(const dom::object& object, int depth) {
  Value::Map map;
  std::unordered_set<std::string_view, zt::internal::NameHash> keys;
  for (const auto& [key, value] : object) {
    if (!keys.insert(key).second) return InvalidData("member " + Quote(key) + " occurs twice");
    ZT_ASSIGN_OR_RETURN(Value member, ToValue(value, depth));
    map.emplace_back(std::string(key), std::move(member));
  }
  return map;
}

StatusOr<Value> ToValue(const dom::element& element, int depth) {
  if (depth == 0)
    return InvalidData("it nests deeper than " + std::to_string(kMaxConfigDepth) + " levels");
  switch (element.type()) {
    case dom::element_type::OBJECT: {
      ZT_ASSIGN_OR_RETURN(Value::Map map, ToMap(element.get_object().value_unsafe(), depth - 1));
      return Value(std::move(map));
    }
    case dom::element_type::ARRAY: {
      Value::Array array;
      for (const dom::element each : element.get_array().value_unsafe()) {
        ZT_ASSIGN_OR_RETURN(Value value, ToValue(each, depth - 1));
        array.push_back(std::move(value));
      }
      return Value(std::move(array));
    }
    case dom::element_type::STRING:
      return Value(std::string(element.get_string().value_unsafe()));
    case dom::element_type::INT64:
      return Value(std::int64_t{element.get_int64().value_unsafe()});
    case dom::element_type::UINT64:
      return Value(std::uint64_t{element.get_uint64().value_unsafe()});
    case dom::element_type::DOUBLE:
      return Value(element.get_double().value_unsafe());
    case dom::element_type::BOOL:
      return Value(element.get_bool().value_unsafe());
    case dom::element_type::NULL_VALUE:
      return Value();
  }
  return InvalidData("a value has an unknown type");
}

// The text with null for each of the numbers NaN and Infinity, which Python writes.
std::string WithoutNan(std::string_view text) {
  std::string out;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    const auto number = [&](std::string_view name) { return !quoted && rest.starts_with(name); };
    if (quoted && rest.size() > 1 && rest[0] == '\\') {
      out += rest.substr(0, 2);
      ++i;
      continue;
    }
    if (rest[0] == '"') quoted = !quoted;
    const std::size_t size = number("NaN")         ? 3
                             : number("Infinity")  ? 8
                             : number("-Infinity") ? 9
                                                   : 0;
    if (size > 0) {
      out += "null";
      i += size - 1;
    } else {
      out += rest[0];
    }
  }
  return out;
}

StatusOr<dom::object> ParseObject(dom::parser& parser, std::string_view text) {
  dom::element root;
  auto error = parser.parse(simdjson::padded_string(text)).get(root);
  if (error != simdjson::SUCCESS &&
      parser.parse(simdjson::padded_string(WithoutNan(text))).get(root) == simdjson::SUCCESS)
    error = simdjson::SUCCESS;
  if (error != simdjson::SUCCESS)
    return InvalidData(std::string("it is not JSON: ") + simdjson::error_message(error));
  dom::object object;
  if (root.get_object().get(object) != simdjson::SUCCESS)
    return InvalidData("it is not a JSON object");
  return object;
}

}  // namespace

StatusOr<Value::Map> ParseJsonObject(std::string_view text) {
  dom::parser parser;
  ZT_ASSIGN_OR_RETURN(const dom::object object, ParseObject(parser, text));
  return ToMap(object, kMaxConfigDepth);
}

Status CheckJsonObject(std::string_view text) {
  dom::parser parser;
  return ParseObject(parser, text).status();
}

}  // namespace zt
