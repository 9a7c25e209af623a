// Any bytes as what a server says: XML of S3, JSON of the Hub and of credentials, fields of a head.
#include <cstddef>
#include <cstdint>
#include <functional>
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
  std::size_t begun = 0, ended = 0;
  const bool good = ScanXml(
      text, [&](std::string_view name, const std::string&) { begun += name.size() < size; },
      [&](std::string_view) { ++ended; });
  ZT_FUZZ_CHECK(!good || begun <= ended);
  (void)XmlText(text, "Code");
  ZT_FUZZ_CHECK(XmlRoot(text).size() <= size);
  ZT_FUZZ_CHECK(PercentDecoded(text).size() <= size);
  ZT_FUZZ_CHECK(NextPage(text).size() <= size);
  constexpr std::string_view kNames[] = {"AccessKeyId", "sha"};
  std::vector<std::string> values;
  if (JsonStrings(text, kNames, values)) ZT_FUZZ_CHECK(values.size() == std::size(kNames));
  std::vector<std::pair<std::string, std::uint64_t>> files;
  (void)JsonTree(text, files);
  return 0;
}
