// zt.core:names — tells URLs from paths; case and blanks of words.
module zt.core;

import zt.std;

namespace zt {

bool IsUrl(std::string_view path) {
  const std::size_t end = path.find("://");
  if (end == path.npos || end == 0 || !std::isalpha(static_cast<unsigned char>(path[0])))
    return false;
  return std::ranges::all_of(path.substr(0, end), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '-' || c == '.';
  });
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string_view Trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace zt
