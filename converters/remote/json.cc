// zt.remote — the JSON of credentials and of the Hub. A plain unit, because the header of simdjson
// and the module zt.std cannot be used in the same unit.
#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::remote::internal {

namespace dom = simdjson::dom;

std::vector<std::string> JsonStrings(std::string_view text,
                                     std::initializer_list<std::string_view> names) {
  dom::parser parser;
  dom::object members;
  if (parser.parse(text.data(), text.size()).get_object().get(members) != simdjson::SUCCESS)
    return {};
  std::vector<std::string> values;
  for (const std::string_view name : names) {
    std::string_view words;
    std::uint64_t number = 0;
    const auto member = members.at_pointer("/" + std::string(name));
    const bool is_text = member.get_string().get(words) == simdjson::SUCCESS;
    const bool is_number = member.get_uint64().get(number) == simdjson::SUCCESS;
    values.push_back(is_text ? std::string(words) : is_number ? std::to_string(number) : "");
  }
  return values;
}

bool JsonTree(std::string_view text, std::vector<std::pair<std::string, std::uint64_t>>& files) {
  dom::parser parser;
  dom::array entries;
  if (parser.parse(text.data(), text.size()).get_array().get(entries) != simdjson::SUCCESS)
    return false;
  for (const dom::element entry : entries) {
    std::string_view type, path;
    std::uint64_t size = 0;
    if (entry["type"].get_string().get(type) != simdjson::SUCCESS ||
        entry["path"].get_string().get(path) != simdjson::SUCCESS)
      return false;
    if (type != "file") continue;
    if (entry["size"].get_uint64().get(size) != simdjson::SUCCESS) return false;
    files.emplace_back(path, size);
  }
  return true;
}

}  // namespace zt::remote::internal
