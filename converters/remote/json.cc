// zt.remote — the JSON of credentials and of the Hub. A plain unit, because the header of simdjson
// and the module zt.std cannot be used in the same unit.
#include <simdjson.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::remote::internal {

namespace dom = simdjson::dom;

bool JsonStrings(std::string_view text, std::span<const std::string_view> names,
                 std::vector<std::string>& values) {
  dom::parser parser;
  dom::object members;
  if (parser.parse(text.data(), text.size()).get_object().get(members) != simdjson::SUCCESS)
    return false;
  values.assign(names.size(), "");
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string_view value;
    std::uint64_t number = 0;
    const simdjson::simdjson_result<dom::element> member =
        members.at_pointer("/" + std::string(names[i]));
    if (member.get_string().get(value) == simdjson::SUCCESS) values[i] = value;
    if (member.get_uint64().get(number) == simdjson::SUCCESS) values[i] = std::to_string(number);
  }
  return true;
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
