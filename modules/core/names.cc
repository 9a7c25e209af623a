// zt.core:names — tells URLs from paths.
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

}  // namespace zt
