// zt.convert.composite — finds and reads a checkpoint's quantization configuration.
module;

#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;
import zt.core;
import zt.source;

namespace zt {

namespace {

namespace fs = std::filesystem;

using composite::internal::kMostConfigBytes;

StatusOr<std::optional<Value::Map>> ReadConfig(Store& store, const fs::path& path) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, store.Open(path.string()));
  ZT_ASSIGN_OR_RETURN(const std::string text, ReadAll(*bytes, kMostConfigBytes));
  return composite::internal::QuantConfigIn(path.filename().string(), text);
}

// The folder itself, or the folder of a file.
StatusOr<fs::path> FolderOf(Store& store, const std::string& input) {
  fs::path folder = input;
  ZT_ASSIGN_OR_RETURN(const bool is_folder, WithFile(store.IsFolder(input), input));
  if (is_folder) {
    if (!folder.has_filename()) folder = folder.parent_path();  // "model/"
    return folder;
  }
  folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

StatusOr<QuantConfig> FindInFolder(const fs::path& folder, const InputOptions& options) {
  QuantConfig found;
  for (const std::string_view name : kQuantConfigFiles) {
    const fs::path path = folder / name;
    ZT_ASSIGN_OR_RETURN(const bool there,
                        WithFile(options.store->IsFile(path.string()), path.string()));
    if (!there) continue;
    ZT_RETURN_IF_ERROR(
        WithFile(CheckStaysInside(folder.string(), std::string(name), options), path.string()));
    auto content = ReadConfig(*options.store, path);
    if (!content.ok()) return WithFile(content.status(), path.string());
    if (!*content) continue;
    QuantConfig config = {std::string(name), **std::move(content), path.string()};
    if (found.file.empty()) {
      found = std::move(config);
    } else {
      ZT_RETURN_IF_ERROR(WithFile(composite::internal::CheckAgree({found.file, found.content},
                                                                  {config.file, config.content}),
                                  path.string()));
    }
  }
  return found;
}

using composite::internal::JsonMember;

// The member of this name; nullopt if there is none, or null.
StatusOr<std::optional<Value::Map>> MapIn(std::span<const JsonMember> members,
                                          std::string_view key) {
  const auto found = std::ranges::find(members, key, &JsonMember::key);
  if (found == members.end()) return std::optional<Value::Map>();
  if (std::ranges::count(members, key, &JsonMember::key) > 1)
    return InvalidData("member " + Quote(key) + " occurs twice");
  if (found->value == "null") return std::optional<Value::Map>();
  if (found->value[0] != '{') return InvalidData(std::string(key) + " is not a JSON object");
  ZT_ASSIGN_OR_RETURN(Value::Map map, ParseJsonObject(found->value));
  return std::optional(std::move(map));
}

// The configuration in an object of config.json, or in one within it for a part of the model
// ("text_config"). kDataLoss if two parts have different ones. Only that is parsed: other members
// may be what a Value cannot hold.
StatusOr<std::optional<Value::Map>> ConfigIn(std::string_view text, int depth) {
  const std::vector<JsonMember> members = composite::internal::MembersOf(text);
  for (const std::string_view key : composite::internal::kQuantMembers) {
    ZT_ASSIGN_OR_RETURN(auto own, MapIn(members, key));
    if (own) return own;
  }
  std::optional<Value::Map> found;
  std::string of;
  for (const JsonMember& member : members) {
    if (depth == 0 || member.value[0] != '{' || !member.key.ends_with("_config")) continue;
    ZT_ASSIGN_OR_RETURN(auto within, ConfigIn(member.value, depth - 1));
    if (!within) continue;
    if (found && !(*found == *within))
      return InvalidData(of + " and " + member.key + " have different quantizations");
    found = std::move(within);
    of = member.key;
  }
  return found;
}

// What two files may both say, by one name.
struct Said {
  std::string_view what;
  std::optional<std::string> value;
};
std::array<Said, 5> SaidIn(const Value::Map& config) {
  using composite::internal::FindInteger;
  using composite::internal::FindString;
  const auto number = [&](std::string_view a, std::string_view b) -> std::optional<std::string> {
    auto found = FindInteger(config, a);
    if (!found) found = FindInteger(config, b);
    if (!found) return std::nullopt;
    return std::to_string(*found);
  };
  const std::string method = composite::internal::MethodOf(config);
  std::optional<std::string> format = FindString(config, "checkpoint_format");
  if (method == "gptq" && !format) format = FindString(config, "format").value_or("gptq");
  return {{{"the method", method.empty() ? std::nullopt : std::optional(method)},
           {"bits", number("bits", "w_bit")},
           {"group_size", number("group_size", "q_group_size")},
           {"checkpoint_format", std::move(format)},
           {"quant_algo", FindString(config, "quant_algo")}}};
}

}  // namespace

Status composite::internal::CheckAgree(const Configuration& first, const Configuration& second) {
  const auto a = SaidIn(first.content), b = SaidIn(second.content);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].value || !b[i].value || *a[i].value == *b[i].value) continue;
    return InvalidData(second.file + " says " + std::string(a[i].what) + " " + Quote(*b[i].value) +
                       ", and " + first.file + " " + Quote(*a[i].value));
  }
  return OkStatus();
}

StatusOr<std::optional<Value::Map>> composite::internal::QuantConfigIn(std::string_view name,
                                                                       std::string_view text) {
  ZT_RETURN_IF_ERROR(CheckJsonObject(text));
  if (name == "config.json") return ConfigIn(text, kMostParts);
  if (name == "hf_quant_config.json") return MapIn(MembersOf(text), "quantization");
  ZT_ASSIGN_OR_RETURN(Value::Map map, ParseJsonObject(text));
  return std::optional(std::move(map));
}

StatusOr<std::vector<std::vector<std::string>>> SplitByFolder(std::span<const std::string> inputs,
                                                              Store& store) {
  std::vector<std::vector<std::string>> out;
  std::map<std::string, std::size_t> place;  // folder -> index in `out`
  for (const std::string& input : inputs) {
    fs::path folder = input;
    if (!IsStandardInput(input)) {
      ZT_ASSIGN_OR_RETURN(folder, FolderOf(store, input));
    }
    const auto [held, fresh] = place.emplace(folder.lexically_normal().string(), out.size());
    if (fresh) out.emplace_back();
    out[held->second].push_back(input);
  }
  return out;
}

StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs,
                                      const InputOptions& options) {
  QuantConfig found;
  for (const std::string& input : inputs) {
    if (IsStandardInput(input)) continue;
    ZT_ASSIGN_OR_RETURN(const fs::path folder, FolderOf(*options.store, input));
    ZT_ASSIGN_OR_RETURN(QuantConfig config, FindInFolder(folder, options));
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
