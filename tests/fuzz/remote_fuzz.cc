// Any bytes as what a server says: XML of S3, JSON of the Hub and of credentials, heads, redirects.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz.h"

import zt.core;
import zt.remote;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace zt::remote::internal;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto range = ParseContentRange(text)) {
    ZT_FUZZ_CHECK(range->first <= range->last && range->last < range->total);
  }
  const auto document = ParseXml(text);
  ZT_FUZZ_CHECK(document.members.size() + document.rows.size() <= size);
  (void)XmlText(text, "Code");
  ZT_FUZZ_CHECK(XmlRoot(text).size() <= size);
  ZT_FUZZ_CHECK(PercentDecoded(text).size() <= size);
  const auto values = JsonStrings(text, {"AccessKeyId", "sha"});
  ZT_FUZZ_CHECK(values.empty() || values.size() == 2);
  std::vector<std::pair<std::string, std::uint64_t>> files;
  (void)JsonTree(text, files);
  if (const auto page = ParseListPage(text); page.ok()) {
    ZT_FUZZ_CHECK(page->keys.size() + page->prefixes.size() <= size);
  }
  HttpHead head;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    TakeHeadLine(rest.substr(0, end), head);
    rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
  }
  (void)RetrySeconds(head);
  ZT_FUZZ_CHECK(NextPage(head).size() <= size);
  // What was parsed is the same when it is written and parsed again.
  if (const auto url = ParseUrl(text); url.ok()) {
    const auto again = ParseUrl(url->text());
    ZT_FUZZ_CHECK(again.ok() && again->text() == url->text());
  }
  (void)ParseTime(std::string(text));
  return 0;
}
