// zt.convert.composite — a model's config.json without its quantization.
module zt.convert.composite;

import zt.std;
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

}  // namespace

std::string Unquantized(const std::string& text, std::string_view dtype) {
  const std::vector<Member> members = MembersOf(text);
  const auto is_quantization = [](const Member& member) {
    return member.key == "quantization_config" || member.key == "compression_config" ||
           member.key == "expert_dtype";
  };
  const auto is_type = [](const Member& member) {
    return member.key == "torch_dtype" || member.key == "dtype";
  };
  const std::string type = "\"" + std::string(dtype) + "\"";
  // Where there is no type, the first member on quantization becomes it.
  const std::size_t becomes =
      std::ranges::any_of(members, is_type)
          ? members.size()
          : static_cast<std::size_t>(std::ranges::find_if(members, is_quantization) -
                                     members.begin());
  const auto stays = [&](std::size_t i) { return i == becomes || !is_quantization(members[i]); };
  std::size_t last = members.size();  // of those that stay, by number
  while (last > 0 && !stays(last - 1)) --last;
  std::string out;
  std::size_t done = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (i == becomes) {
      out += text.substr(done, member.begin - done) + "\"torch_dtype\": " + type;
      done = member.end;
    } else if (is_type(member)) {
      out += text.substr(done, member.value - done) + type;
      done = member.end;
    } else if (is_quantization(member) && i < last) {
      out += text.substr(done, member.begin - done);
      done = members[i + 1].begin;
    }
  }
  // The comma before what goes at the end goes with it.
  if (last > 0 && last < members.size()) {
    out += text.substr(done, members[last - 1].end - done);
    done = members.back().end;
  }
  return out + text.substr(done);
}

}  // namespace zt::composite::internal
