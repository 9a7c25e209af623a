// zt.convert.composite — a model's config.json without its quantization.
module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;

namespace zt::composite::internal {
namespace {

// A key as it is compared: characters of ASCII may be written as \u0041.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const std::string_view digits = text.substr(i).starts_with("\\u") ? text.substr(i + 2, 4) : "";
    const char* const end = digits.data() + digits.size();
    if (digits.size() == 4 && std::from_chars(digits.data(), end, code, 16).ptr == end &&
        code < 0x80) {
      out += static_cast<char>(code);
      i += 5;
    } else {
      out += text[i];
      if (text[i] == '\\' && i + 1 < text.size()) out += text[++i];
    }
  }
  return out;
}

std::size_t AfterString(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\' ? 1 : 0;
  return at + 1;
}

std::size_t AfterValue(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (depth == 0 && (c == ',' || c == '}')) break;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    at = c == '"' ? AfterString(text, at) : at + 1;
  }
  return std::min(at, text.find_last_not_of(" \t\r\n", at - 1) + 1);
}

bool IsQuantization(const JsonMember& member) {
  return std::ranges::find(kQuantMembers, member.key) != std::end(kQuantMembers) ||
         member.key == "expert_dtype";
}
bool IsPart(const JsonMember& member) {
  return member.key.ends_with("_config") && !IsQuantization(member) && member.value[0] == '{';
}
bool HasQuantization(std::string_view text, int depth) {
  return depth >= 0 && std::ranges::any_of(MembersOf(text), [&](const JsonMember& member) {
           return IsQuantization(member) ||
                  (IsPart(member) && HasQuantization(member.value, depth - 1));
         });
}

// `adds`: an object without a type gets one. `all`: the quantization is of all parts.
std::string Rewritten(std::string_view text, std::string_view dtype, bool adds, bool all,
                      int depth) {
  const std::vector<JsonMember> members = MembersOf(text);
  all = all || std::ranges::any_of(members, IsQuantization);
  const auto is_type = [](const JsonMember& member) {
    return member.key == "torch_dtype" || member.key == "dtype";
  };
  const std::string type = "\"" + std::string(dtype) + "\"";
  // Where there is no type, the first member on quantization becomes it.
  const std::size_t first =
      static_cast<std::size_t>(std::ranges::find_if(members, IsQuantization) - members.begin());
  adds = adds && std::ranges::none_of(members, is_type);
  const std::size_t becomes = adds ? first : members.size();
  const auto stays = [&](std::size_t i) { return i == becomes || !IsQuantization(members[i]); };
  std::size_t last = members.size();  // of those that stay, by number
  while (last > 0 && !stays(last - 1)) --last;
  std::string out;
  std::size_t done = 0;
  const auto copy = [&](std::size_t end) {
    out += text.substr(done, end - done);
    done = end;
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    const JsonMember& member = members[i];
    if (i == 0 && adds && first == members.size()) {
      copy(member.begin);
      out += "\"torch_dtype\": " + type + ", ";
    }
    if (i == becomes) {
      copy(member.begin);
      out += "\"torch_dtype\": " + type;
      done = member.end;
    } else if (is_type(member)) {
      copy(member.at);
      out += type;
      done = member.end;
    } else if (depth > 0 && IsPart(member) && (all || HasQuantization(member.value, depth - 1))) {
      copy(member.at);
      out += Rewritten(member.value, dtype, false, all, depth - 1);
      done = member.end;
    } else if (IsQuantization(member) && i < last) {
      copy(member.begin);
      done = members[i + 1].begin;
    }
  }
  // The comma before what goes at the end goes with it.
  if (last < members.size()) {
    if (last > 0) copy(members[last - 1].end);
    if (last == 0) copy(members[0].begin);
    done = members.back().end;
  }
  return out.append(text.substr(done));
}

}  // namespace

std::vector<JsonMember> MembersOf(std::string_view text) {
  std::vector<JsonMember> out;
  std::size_t at = text.find('{');
  while ((at = text.find_first_of("\"}", at)) < text.size() && text[at] == '"') {
    JsonMember member;
    member.begin = at;
    at = AfterString(text, at);
    member.key = Unescaped(text.substr(member.begin + 1, at - member.begin - 2));
    member.at = text.find_first_not_of(" \t\r\n", text.find(':', at) + 1);
    at = member.end = AfterValue(text, member.at);
    member.value = text.substr(member.at, member.end - member.at);
    out.push_back(std::move(member));
  }
  return out;
}

std::string Unquantized(const std::string& text, std::string_view dtype) {
  return Rewritten(text, dtype, true, !HasQuantization(text, kMostParts), kMostParts);
}

}  // namespace zt::composite::internal
