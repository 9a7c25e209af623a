// zt.capi — attributes from JSON.
module zt.capi;

import zt.std;
import zt;

namespace zt::capi {
namespace {

using Json = nlohmann::ordered_json;

std::optional<Value::Bytes> FromHex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  Value::Bytes out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const char* const end = text.data() + i + 2;
    const auto read = std::from_chars(text.data() + i, end, value, 16);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
    out.push_back(static_cast<std::byte>(value));
  }
  return out;
}

// Parses the objects that stand for values that JSON lacks; nullopt for an ordinary object.
StatusOr<std::optional<Value>> Special(const Json& json) {
  if (json.size() != 1 || !json.begin()->is_string()) return std::optional<Value>();
  const std::string& key = json.begin().key();
  const std::string& text = json.begin()->get_ref<const std::string&>();
  if (key == "$bytes") {
    auto bytes = FromHex(text);
    if (!bytes) return InvalidArgument("$bytes is not hexadecimal");
    return std::optional(Value(*std::move(bytes)));
  }
  if (key == "$double") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (text == "nan") return std::optional(Value(std::numeric_limits<double>::quiet_NaN()));
    if (text == "inf") return std::optional(Value(kInfinity));
    if (text == "-inf") return std::optional(Value(-kInfinity));
    return InvalidArgument("$double is not nan, inf or -inf");
  }
  return std::optional<Value>();
}

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
  auto special = Special(json);
  if (!special.ok()) return special.status();
  if (*special) return **std::move(special);
  auto map = ToMap(json, depth);
  if (!map.ok()) return map.status();
  // A map that only looks like one of those objects has one more '$'.
  if (map->size() == 1) {
    std::string& key = map->front().first;
    const std::size_t dollars = std::min(key.find_first_not_of('$'), key.size());
    const std::string_view bare = std::string_view(key).substr(dollars);
    if (dollars > 1 && (bare == "bytes" || bare == "double")) key.erase(0, 1);
  }
  return Value(*std::move(map));
}

}  // namespace

StatusOr<Value::Map> ParseAttributes(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (!json.is_object()) return InvalidArgument("attributes are not a JSON object");
  return ToMap(json, 0);
}

}  // namespace zt::capi
