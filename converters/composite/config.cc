// zt.convert.composite — finding and reading a checkpoint's quantization configuration.
module;

#include <simdjson.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.core;
import zt.source;

namespace zt {
namespace {

namespace dom = simdjson::dom;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
// A manifest may nest to 64 levels, and the attribute itself lies three levels deep.
constexpr int kMaxConfigDepth = 32;

StatusOr<Value> ToValue(const dom::element& element, int depth);

StatusOr<Value::Map> ToMap(const dom::object& object, int depth) {
  Value::Map map;
  std::unordered_set<std::string_view, zt::internal::NameHash> keys;
  for (const auto& [key, value] : object) {
    if (!keys.insert(key).second) return InvalidData("member " + Quote(key) + " is there twice");
    ZT_ASSIGN_OR_RETURN(Value member, ToValue(value, depth));
    map.emplace_back(std::string(key), std::move(member));
  }
  return map;
}

StatusOr<Value> ToValue(const dom::element& element, int depth) {
  if (depth == 0)
    return InvalidData("it nests deeper than " + std::to_string(kMaxConfigDepth) + " levels");
  switch (element.type()) {
    case dom::element_type::OBJECT: {
      ZT_ASSIGN_OR_RETURN(Value::Map map, ToMap(element.get_object().value_unsafe(), depth - 1));
      return Value(std::move(map));
    }
    case dom::element_type::ARRAY: {
      Value::Array array;
      for (const dom::element each : element.get_array().value_unsafe()) {
        ZT_ASSIGN_OR_RETURN(Value value, ToValue(each, depth - 1));
        array.push_back(std::move(value));
      }
      return Value(std::move(array));
    }
    case dom::element_type::STRING:
      return Value(std::string(element.get_string().value_unsafe()));
    case dom::element_type::INT64:
      return Value(std::int64_t{element.get_int64().value_unsafe()});
    case dom::element_type::UINT64:
      return Value(std::uint64_t{element.get_uint64().value_unsafe()});
    case dom::element_type::DOUBLE:
      return Value(element.get_double().value_unsafe());
    case dom::element_type::BOOL:
      return Value(element.get_bool().value_unsafe());
    case dom::element_type::NULL_VALUE:
      return Value();
  }
  return InvalidData("a value is of no known kind");
}

// Reads the configuration from one file: the first of `members` that is there, or the whole file if `members` is empty.
StatusOr<std::optional<Value::Map>> ReadConfig(const fs::path& path,
                                               std::span<const std::string_view> members) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, OpenFile(path.string()));
  const std::uint64_t size = bytes->size().value_or(kMaxConfigBytes + 1);
  if (size > kMaxConfigBytes) return InvalidData("it is larger than 16 MiB");
  std::string text(size, '\0');
  ZT_RETURN_IF_ERROR(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))));
  dom::parser parser;
  const simdjson::padded_string json(text);
  dom::element root;
  if (const auto error = parser.parse(json).get(root); error != simdjson::SUCCESS) {
    return InvalidData(std::string("it is not JSON: ") + simdjson::error_message(error));
  }
  dom::object object;
  if (root.get_object().get(object) != simdjson::SUCCESS)
    return InvalidData("it is not a JSON object");
  if (!members.empty()) {
    bool found = false;
    for (const std::string_view member : members) {
      dom::element value;
      if (object.at_key(member).get(value) != simdjson::SUCCESS || value.is_null()) continue;
      if (value.get_object().get(object) != simdjson::SUCCESS) {
        return InvalidData(std::string(member) + " is not a JSON object");
      }
      found = true;
      break;
    }
    if (!found) return std::optional<Value::Map>();
  }
  ZT_ASSIGN_OR_RETURN(Value::Map map, ToMap(object, kMaxConfigDepth));
  return std::optional(std::move(map));
}

// The folder that an input is or lies in.
fs::path FolderOf(const std::string& input) {
  std::error_code error;
  fs::path folder = input;
  if (fs::is_directory(folder, error)) {
    if (!folder.has_filename()) folder = folder.parent_path();  // "model/"
    return folder;
  }
  folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

StatusOr<QuantConfig> FindInFolder(const fs::path& folder) {
  static constexpr std::array<std::string_view, 2> kMembers = {"quantization_config",
                                                               "compression_config"};
  static constexpr std::array<std::string_view, 3> kFiles = {"config.json", "quantize_config.json",
                                                             "quant_config.json"};
  for (const std::string_view name : kFiles) {
    const fs::path path = folder / name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    auto content =
        ReadConfig(path, name == "config.json" ? std::span<const std::string_view>(kMembers)
                                               : std::span<const std::string_view>());
    if (!content.ok()) return Annotate(content.status(), path.string());
    if (*content) return QuantConfig{std::string(name), **std::move(content)};
  }
  return QuantConfig{};
}

}  // namespace

std::vector<std::vector<std::string>> SplitByFolder(std::span<const std::string> inputs) {
  std::vector<std::vector<std::string>> out;
  std::map<std::string, std::size_t> place;  // folder -> index in `out`
  for (const std::string& input : inputs) {
    const std::string folder = input == "-" ? input : FolderOf(input).lexically_normal().string();
    const auto [held, fresh] = place.emplace(folder, out.size());
    if (fresh) out.emplace_back();
    out[held->second].push_back(input);
  }
  return out;
}

StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs) {
  QuantConfig found;
  for (const std::string& input : inputs) {
    if (input == "-") continue;
    ZT_ASSIGN_OR_RETURN(QuantConfig config, FindInFolder(FolderOf(input)));
    if (config.file.empty()) continue;
    if (!found.file.empty() && !(found.content == config.content)) {
      return InvalidData(input +
                         ": the quantization configuration differs from that of another input");
    }
    found = std::move(config);
  }
  return found;
}

}  // namespace zt
