// zt.text — escapes, words, sizes, JSON.
module;

#include <utf8proc.h>

#include "core/status_macros.h"

module zt.text;

import zt.std;
import zt.core;

namespace zt {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHex[] = "0123456789abcdef";

// The length and code point of the UTF-8 sequence at the start of a text. The length is 0 if it is
// not UTF-8.
struct Decoded {
  std::size_t length = 0;
  std::uint32_t point = 0;
};

Decoded Decode(std::string_view text) {
  utf8proc_int32_t point = 0;
  const auto length = ::utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                         static_cast<utf8proc_ssize_t>(text.size()), &point);
  if (length <= 0) return {};
  return {static_cast<std::size_t>(length), static_cast<std::uint32_t>(point)};
}

// False for control characters, line breaks, and what formats text or is not seen itself: marks of
// direction, joiners, the byte order mark, tags, variation selectors, fillers, spaces but one.
bool IsHarmless(std::uint32_t point) {
  constexpr std::uint32_t kBlankBraille = 0x2800;
  if (point == ' ') return true;
  // What Unicode keeps for more of the kind has no property yet.
  if (point == 0x2065 || (point >= 0xfff0 && point <= 0xfff8) || point >> 12 == 0xe0) return false;
  const auto* const property = ::utf8proc_get_property(static_cast<utf8proc_int32_t>(point));
  const int category = property->category;
  return category != UTF8PROC_CATEGORY_CC && category != UTF8PROC_CATEGORY_CF &&
         category != UTF8PROC_CATEGORY_ZS && category != UTF8PROC_CATEGORY_ZL &&
         category != UTF8PROC_CATEGORY_ZP && property->ignorable == 0 && point != kBlankBraille;
}

void AppendHex(std::string& out, std::uint32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[value >> shift & 15];
}

// A string of JSON. Bytes that are not UTF-8 become replacement characters.
std::string Quoted(std::string_view text) {
  return EscapeUnseen(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Appends an object for a value that JSON has no number for.
void AppendNonFinite(double value, std::string& out) {
  const char* const text = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  out += std::string("{\"$double\":\"") + text + "\"}";
}

// Appends a map. One within a value that looks like the object of a byte string or of a number that
// JSON lacks, or like one that was changed so, gets one more '$'.
void AppendMap(const Value::Map& map, std::string& out, std::size_t most, bool within) {
  out += '{';
  std::string_view between;
  for (const auto& [key, value] : map) {
    if (out.size() > most) return;
    const std::string_view bare =
        std::string_view(key).substr(std::min(key.find_first_not_of('$'), key.size()));
    const bool looks = within && map.size() == 1 && bare.size() < key.size() &&
                       (bare == "bytes" || bare == "double");
    out += between;
    out += Quoted((looks ? "$" : "") + key) + ":";
    AppendJson(value, out, most);
    between = ",";
  }
  out += '}';
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = Decode(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (next.length == 0) {
      out += "\\x";
      AppendHex(out, byte, 2);
    } else if (IsHarmless(next.point)) {
      out += text.substr(0, next.length);
    } else if (byte == '\n') {
      out += "\\n";
    } else {
      out += next.length == 1 ? "\\x" : next.length < 4 ? "\\u" : "\\U";
      AppendHex(out, next.point, next.length == 1 ? 2 : next.length < 4 ? 4 : 8);
    }
    text.remove_prefix(std::max<std::size_t>(next.length, 1));
  }
  return out;
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
  }
  return words;
}

std::string Counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string HumanBytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

// They occur only within strings, in which JSON allows an escape; from U+10000 on, a pair of
// surrogates.
std::string EscapeUnseen(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x7f) {
      ++at;
      continue;
    }
    const Decoded next = Decode(text.substr(at));
    if (!IsHarmless(next.point)) {
      out.append(text, copied, at - copied);
      const bool halves = next.point > 0xffff;
      if (halves) {
        out += "\\u";
        AppendHex(out, 0xd7c0 + (next.point >> 10), 4);
      }
      out += "\\u";
      AppendHex(out, halves ? 0xdc00 + (next.point & 0x3ff) : next.point, 4);
      copied = at + next.length;
    }
    at += std::max<std::size_t>(next.length, 1);
  }
  out.append(text, copied);
  return out;
}

void AppendJson(const Value& value, std::string& out, std::size_t most) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      out += "null";
      return;
    case Value::Kind::kBool:
      out += *value.AsBool() ? "true" : "false";
      return;
    case Value::Kind::kUint:
      out += std::to_string(*value.AsUint());
      return;
    case Value::Kind::kInt:
      out += std::to_string(*value.AsInt());
      return;
    case Value::Kind::kDouble:
      if (!std::isfinite(*value.AsDouble())) return AppendNonFinite(*value.AsDouble(), out);
      out += Json(*value.AsDouble()).dump();
      return;
    case Value::Kind::kString:
      out += Quoted(std::string_view(*value.AsString()).substr(0, most));
      return;
    case Value::Kind::kBytes: {
      out += "{\"$bytes\":\"";
      for (const std::byte byte : *value.AsBytes()) {
        if (out.size() > most) return;
        AppendHex(out, static_cast<std::uint32_t>(byte), 2);
      }
      out += "\"}";
      return;
    }
    case Value::Kind::kArray: {
      out += '[';
      std::string_view between;
      for (const Value& each : *value.AsArray()) {
        if (out.size() > most) return;
        out += between;
        AppendJson(each, out, most);
        between = ",";
      }
      out += ']';
      return;
    }
    case Value::Kind::kMap:
      return AppendMap(*value.AsMap(), out, most, true);
  }
}

void AppendJson(const Value::Map& map, std::string& out, std::size_t most) {
  AppendMap(map, out, most, false);
}

namespace {

// What {"$bytes": ...} or {"$double": ...} stands for; nullopt for other maps.
StatusOr<std::optional<Value>> Wrapped(const Value::Map& map) {
  const std::string* const text = map.size() == 1 ? map[0].second.AsString() : nullptr;
  if (text == nullptr) return std::nullopt;
  if (map[0].first == "$double") {
    if (*text != "nan" && *text != "inf" && *text != "-inf")
      return InvalidArgument("$double is not nan, inf or -inf");
    return Value(std::strtod(text->c_str(), nullptr));
  }
  if (map[0].first != "$bytes") return std::nullopt;
  const Status wrong = InvalidArgument("$bytes is not hexadecimal");
  if (text->size() % 2 != 0) return wrong;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < text->size(); i += 2) {
    unsigned byte = 0;
    const char* const end = text->data() + i + 2;
    if (std::from_chars(text->data() + i, end, byte, 16).ptr != end) return wrong;
    bytes.push_back(static_cast<std::byte>(byte));
  }
  return Value(std::move(bytes));
}

}  // namespace

StatusOr<Value> FromJson(const Value& json) {
  if (const Value::Array* const array = json.AsArray()) {
    Value::Array out;
    for (const Value& each : *array) {
      ZT_ASSIGN_OR_RETURN(Value value, FromJson(each));
      out.push_back(std::move(value));
    }
    return Value(std::move(out));
  }
  const Value::Map* const map = json.AsMap();
  if (map == nullptr) return json;
  ZT_ASSIGN_OR_RETURN(auto wrapped, Wrapped(*map));
  if (wrapped) return *std::move(wrapped);
  Value::Map out;
  for (const auto& [key, value] : *map) {
    // Of what only looks like one AppendJson has added a '$'.
    const std::string bare = key.substr(std::min(key.find_first_not_of('$'), key.size()));
    const bool more =
        map->size() == 1 && key.starts_with("$$") && (bare == "bytes" || bare == "double");
    ZT_ASSIGN_OR_RETURN(Value inner, FromJson(value));
    out.emplace_back(more ? key.substr(1) : key, std::move(inner));
  }
  return Value(std::move(out));
}

}  // namespace zt
