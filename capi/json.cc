// zt.capi — attributes from JSON.
module;

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;
import zt.text;

namespace zt::capi {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<Value> ToValue(const Json& json, std::size_t depth);

StatusOr<Value::Map> ToMap(const Json& json, std::size_t depth) {
  Value::Map map;
  for (auto member = json.begin(); member != json.end(); ++member) {
    auto value = ToValue(*member, depth + 1);
    if (!value.ok()) return value.status();
    map.emplace_back(member.key(), *std::move(value));
  }
  return map;
}

StatusOr<Value> ToValue(const Json& json, std::size_t depth) {
  if (depth > kMaxNesting) return InvalidArgument("attributes are nested too deeply");
  if (json.is_null()) return Value();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_number_unsigned()) return Value(json.get<std::uint64_t>());
  if (json.is_number_integer()) return Value(json.get<std::int64_t>());
  if (json.is_number()) return Value(json.get<double>());
  if (json.is_string()) return Value(json.get_ref<const std::string&>());
  if (json.is_array()) {
    Value::Array array;
    array.reserve(json.size());
    for (const Json& each : json) {
      auto value = ToValue(each, depth + 1);
      if (!value.ok()) return value.status();
      array.push_back(*std::move(value));
    }
    return Value(std::move(array));
  }
  auto map = ToMap(json, depth);
  if (!map.ok()) return map.status();
  return Value(*std::move(map));
}

}  // namespace

StatusOr<Value::Map> ParseAttributes(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return InvalidArgument("attributes are not a JSON object");
  ZT_ASSIGN_OR_RETURN(Value::Map map, ToMap(json, 0));
  for (auto& [key, value] : map) {
    ZT_ASSIGN_OR_RETURN(value, FromJson(value));
  }
  return map;
}

}  // namespace zt::capi
