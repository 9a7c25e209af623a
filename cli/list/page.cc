// zt.cli:listing — the page: puts what `inspect --json` prints into the HTML that shows it.
module;

#include "cli/list/page.h"

module zt.cli;

import zt.std;
import :listing;

namespace zt::cli::internal {

std::string PageText(std::string_view json) {
  constexpr std::string_view kData = "type=\"application/json\">";
  constexpr std::string_view kText = kPage;
  static_assert(kText.find(kData) != kText.npos);
  constexpr std::size_t kBegin = kText.find(kData) + kData.size();
  std::string out(kText.substr(0, kBegin));
  out.reserve(kText.size() + json.size() + json.size() / 64);
  for (const char c : json) {  // only strings contain '<': no name can end the script element
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out.append(kText.substr(kBegin));
}

}  // namespace zt::cli::internal
