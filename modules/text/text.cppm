// zt.text — words and numbers in sentences for people, and attribute values as JSON.
export module zt.text;

import zt.std;
import zt.core;

export namespace zt {

// Escapes control characters, line breaks, what is not seen and bytes that are not UTF-8 (\n, \x1b,
// \u202e), so that a terminal prints `text` and does nothing else.
std::string Printable(std::string_view text);

// Splits "a b" into "a" and "b".
std::vector<std::string_view> Words(std::string_view text);
// "a, b and c", with `last` for "and".
template <typename Texts>
std::string Joined(const Texts& words, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    out += words[i];
  }
  return out;
}
// "1 tensor", "2 tensors".
std::string Counted(std::uint64_t count, std::string_view noun);
// For people: "1.50 GiB".
std::string HumanBytes(std::uint64_t bytes);

// Appends a value as JSON: byte strings as {"$bytes": hexadecimal}, NaN as {"$double": "nan"}. It
// makes text directly, because a tree of JSON values takes ten times the memory of its text and
// aborts the program if memory runs out. It stops within the value once `out` has more than `most`
// bytes.
void AppendJson(const Value& value, std::string& out, std::size_t most = std::string::npos);
// The same for attributes.
void AppendJson(const Value::Map& map, std::string& out, std::size_t most = std::string::npos);
// The value of which AppendJson made this JSON: the inverse. kInvalidArgument if one of those objects
// has a text that is not hexadecimal, or no such number.
StatusOr<Value> FromJson(const Value& json);
// JSON text in which all that Printable escapes is escaped.
std::string EscapeUnseen(std::string_view json);

}  // namespace zt
