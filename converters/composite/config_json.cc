// zt.convert.composite — parses the JSON of configurations and states. Numbers are those of the text
// on every host; simdjson's are not where the first byte of a word is its highest.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import zt.core;

namespace zt {
namespace {

// A manifest may have 64 levels of nesting; the attribute is at the third.
constexpr std::size_t kMaxConfigDepth = 32;
constexpr std::size_t kMaxDepth = 1024;

// Takes the events of nlohmann's parser, and makes a map of them. Each returns false after a problem.
class Builder {
 public:
  explicit Builder(bool keeps) : keeps_(keeps) {}

  bool null() { return Add(Value()); }
  bool boolean(bool value) { return Add(Value(value)); }
  bool number_integer(std::int64_t value) { return Add(Value(value)); }
  bool number_unsigned(std::uint64_t value) {
    const bool fits = value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    return Add(fits ? Value(static_cast<std::int64_t>(value)) : Value(value));
  }
  bool number_float(double value, const std::string&) { return Add(Value(value)); }
  bool string(std::string& value) { return Add(Value(std::move(value))); }
  bool binary(nlohmann::ordered_json::binary_t&) { return false; }
  bool start_object(std::size_t) { return Begin(true); }
  bool start_array(std::size_t) { return Begin(false); }
  bool key(std::string& name) {
    if (!keeps_) return true;
    if (!open_.back().keys.insert(name).second)
      return Fail(InvalidData("member " + Quote(name) + " occurs twice"));
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) return Add(Value(std::move(done.map)));
    whole_ = std::move(done.map);
    return true;
  }
  bool end_array() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return Add(Value(std::move(done.array)));
  }
  template <class Error>
  bool parse_error(std::size_t at, const std::string&, const Error&) {
    return Fail(InvalidData("it is not JSON: byte " + std::to_string(at) + " is wrong"));
  }

  const Status& status() const { return status_; }
  Value::Map TakeWhole() { return std::move(whole_); }

 private:
  struct Open {
    bool is_object = false;
    Value::Map map = {};
    Value::Array array = {};
    std::unordered_set<std::string, zt::internal::NameHash, std::equal_to<>> keys = {};
    std::string key = {};
  };

  bool Fail(Status status) {
    status_ = std::move(status);
    return false;
  }
  bool Begin(bool is_object) {
    if (open_.empty() && !is_object) return Fail(InvalidData("it is not a JSON object"));
    if (keeps_ && open_.size() == kMaxConfigDepth)
      return Fail(
          InvalidData("it nests deeper than " + std::to_string(kMaxConfigDepth) + " levels"));
    if (open_.size() == kMaxDepth) return Fail(InvalidData("it is not JSON: it nests too deep"));
    open_.push_back({is_object});
    return true;
  }
  bool Add(Value value) {
    if (open_.empty()) return Fail(InvalidData("it is not a JSON object"));
    Open& open = open_.back();
    if (!keeps_) return true;
    if (open.is_object) {
      open.map.emplace_back(std::move(open.key), std::move(value));
    } else {
      open.array.push_back(std::move(value));
    }
    return true;
  }

  const bool keeps_;
  std::vector<Open> open_;
  Value::Map whole_;
  Status status_;
};

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

StatusOr<Value::Map> Parse(std::string_view text, bool keeps) {
  Builder builder(keeps);
  if (nlohmann::ordered_json::sax_parse(text, &builder)) return builder.TakeWhole();
  Builder other(keeps);
  if (nlohmann::ordered_json::sax_parse(WithoutNan(text), &other)) return other.TakeWhole();
  return builder.status();
}

}  // namespace

StatusOr<Value::Map> ParseJsonObject(std::string_view text) { return Parse(text, true); }

Status CheckJsonObject(std::string_view text) { return Parse(text, false).status(); }

}  // namespace zt
