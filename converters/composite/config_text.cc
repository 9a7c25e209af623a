// zt.convert.composite — a model's config.json without its quantization.
module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;

namespace zt::composite::internal {
namespace {

struct Member {
  std::string_view key;
  std::size_t begin = 0, value = 0, end = 0;  // of the key's quote, the value, what follows it
};

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

// The members of the JSON object that `text` is.
std::vector<Member> MembersOf(std::string_view text) {
  std::vector<Member> out;
  std::size_t at = text.find('{');
  while ((at = text.find_first_of("\"}", at)) < text.size() && text[at] == '"') {
    Member member;
    member.begin = at;
    at = AfterString(text, at);
    member.key = text.substr(member.begin + 1, at - member.begin - 2);
    member.value = text.find_first_not_of(" \t\r\n", text.find(':', at) + 1);
    at = member.end = AfterValue(text, member.value);
    out.push_back(member);
  }
  return out;
}

bool IsQuantization(const Member& member) {
  return std::ranges::find(kQuantMembers, member.key) != std::end(kQuantMembers) ||
         member.key == "expert_dtype";
}
bool IsPart(std::string_view text, const Member& member) {
  return member.key.ends_with("_config") && !IsQuantization(member) && text[member.value] == '{';
}
bool HasQuantization(std::string_view text) {
  const std::vector<Member> members = MembersOf(text);
  return std::ranges::any_of(members, [&](const Member& member) {
    return IsQuantization(member) ||
           (IsPart(text, member) &&
            HasQuantization(text.substr(member.value, member.end - member.value)));
  });
}

// `adds`: an object without a type gets one.
std::string Rewritten(std::string_view text, std::string_view dtype, bool adds) {
  const std::vector<Member> members = MembersOf(text);
  const auto is_type = [](const Member& member) {
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
    const Member& member = members[i];
    const std::string_view value = text.substr(member.value, member.end - member.value);
    if (i == 0 && adds && first == members.size()) {
      copy(member.begin);
      out += "\"torch_dtype\": " + type + ", ";
    }
    if (i == becomes) {
      copy(member.begin);
      out += "\"torch_dtype\": " + type;
      done = member.end;
    } else if (is_type(member)) {
      copy(member.value);
      out += type;
      done = member.end;
    } else if (IsPart(text, member) && HasQuantization(value)) {
      copy(member.value);
      out += Rewritten(value, dtype, false);
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

std::string Unquantized(const std::string& text, std::string_view dtype) {
  return Rewritten(text, dtype, true);
}

}  // namespace zt::composite::internal
