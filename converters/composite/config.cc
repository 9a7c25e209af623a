// zt.convert.composite — finds and reads a checkpoint's quantization configuration.
module;

#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import zt.core;
import zt.source;

namespace zt {

// The first of `members` that the JSON object `text` has, or the whole object if `members` is
// empty; nullopt if it has none of them.
extern "C++" StatusOr<std::optional<Value::Map>> ParseQuantConfig(
    std::string_view text, std::span<const std::string_view> members);  // config_json.cc

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
// Reads the configuration from one file: the first of `members` that exists, or the whole file if
// `members` is empty.
StatusOr<std::optional<Value::Map>> ReadConfig(Store& store, const fs::path& path,
                                               std::span<const std::string_view> members) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, store.Open(path.string()));
  ZT_ASSIGN_OR_RETURN(const std::string text, ReadAll(*bytes, kMaxConfigBytes));
  return ParseQuantConfig(text, members);
}

// The folder itself, or the folder of a file.
fs::path FolderOf(Store& store, const std::string& input) {
  fs::path folder = input;
  if (store.IsFolder(input)) {
    if (!folder.has_filename()) folder = folder.parent_path();  // "model/"
    return folder;
  }
  folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

StatusOr<QuantConfig> FindInFolder(Store& store, const fs::path& folder) {
  static constexpr std::array<std::string_view, 2> kMembers = {"quantization_config",
                                                               "compression_config"};
  static constexpr std::array<std::string_view, 3> kFiles = {"config.json", "quantize_config.json",
                                                             "quant_config.json"};
  for (const std::string_view name : kFiles) {
    const fs::path path = folder / name;
    if (!store.IsFile(path.string())) continue;
    auto content = ReadConfig(store, path,
                              name == "config.json" ? std::span<const std::string_view>(kMembers)
                                                    : std::span<const std::string_view>());
    if (!content.ok()) return WithFile(content.status(), path.string());
    if (*content) return QuantConfig{std::string(name), **std::move(content), path.string()};
  }
  return QuantConfig{};
}

}  // namespace

std::vector<std::vector<std::string>> SplitByFolder(std::span<const std::string> inputs,
                                                    Store& store) {
  std::vector<std::vector<std::string>> out;
  std::map<std::string, std::size_t> place;  // folder -> index in `out`
  for (const std::string& input : inputs) {
    const std::string folder =
        input == "-" ? input : FolderOf(store, input).lexically_normal().string();
    const auto [held, fresh] = place.emplace(folder, out.size());
    if (fresh) out.emplace_back();
    out[held->second].push_back(input);
  }
  return out;
}

StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs, Store& store) {
  QuantConfig found;
  for (const std::string& input : inputs) {
    if (input == "-") continue;
    ZT_ASSIGN_OR_RETURN(QuantConfig config, FindInFolder(store, FolderOf(store, input)));
    if (config.file.empty()) continue;
    if (!found.file.empty() && !(found.content == config.content)) {
      return WithFile(
          InvalidData("the quantization configuration differs from that of another input"), input);
    }
    found = std::move(config);
  }
  return found;
}

}  // namespace zt
