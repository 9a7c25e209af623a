// zt.convert.composite — finds and reads a checkpoint's quantization configuration.
module;

#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;
import zt.source;

namespace zt {

// The first of `members` that the JSON object `text` has, or the whole object if `members` is
// empty; nullopt if it has none of them.
extern "C++" StatusOr<std::optional<Value::Map>> ParseQuantConfig(
    std::string_view text, std::span<const std::string_view> members);  // config_json.cc

namespace {

namespace fs = std::filesystem;

using composite::internal::kMostConfigBytes;

StatusOr<std::optional<Value::Map>> ReadConfig(Store& store, const fs::path& path) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, store.Open(path.string()));
  ZT_ASSIGN_OR_RETURN(const std::string text, ReadAll(*bytes, kMostConfigBytes));
  return composite::internal::QuantConfigIn(path.filename().string(), text);
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

StatusOr<QuantConfig> FindInFolder(const fs::path& folder, const InputOptions& options) {
  for (const std::string_view name : kQuantConfigFiles) {
    const fs::path path = folder / name;
    if (!options.store->IsFile(path.string())) continue;
    ZT_RETURN_IF_ERROR(
        WithFile(CheckStaysInside(folder.string(), std::string(name), options), path.string()));
    auto content = ReadConfig(*options.store, path);
    if (!content.ok()) return WithFile(content.status(), path.string());
    if (*content) return QuantConfig{std::string(name), **std::move(content), path.string()};
  }
  return QuantConfig{};
}

}  // namespace

StatusOr<std::optional<Value::Map>> composite::internal::QuantConfigIn(std::string_view name,
                                                                       std::string_view text) {
  static constexpr std::string_view kOfModel[] = {"quantization_config", "compression_config"};
  static constexpr std::string_view kOfModelOpt[] = {"quantization"};
  if (name == "config.json") return ParseQuantConfig(text, kOfModel);
  if (name == "hf_quant_config.json") return ParseQuantConfig(text, kOfModelOpt);
  return ParseQuantConfig(text, {});
}

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

StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs,
                                      const InputOptions& options) {
  QuantConfig found;
  for (const std::string& input : inputs) {
    if (input == "-") continue;
    ZT_ASSIGN_OR_RETURN(QuantConfig config, FindInFolder(FolderOf(*options.store, input), options));
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
