// zt.cli:formats — the file of each format that holds tensors of a source: what extract writes.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :formats;
import :output;
import zt;
import zt.convert.gguf;
import zt.convert.layout;
import zt.convert.npy;
import zt.convert.safetensors;

namespace zt::cli::internal {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 5); ++i) {
    out += (i == 0 ? "" : ", ") + Quote(names[i]);
  }
  return names.size() > 5 ? out + " and " + std::to_string(names.size() - 5) + " more" : out;
}

}  // namespace

// Root attributes become __metadata__, which holds only text: what is not text becomes JSON.
StatusOr<FileLayout> PlanSafetensorsFile(const TensorSource& source,
                                         const std::vector<std::uint32_t>& selected) {
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> as_json;
  for (const auto& [key, value] : source.attributes()) {
    if (key == kEmptyMetadata && value == Value(Value::Map{})) continue;
    if (const std::string* text = value.AsString()) {
      metadata.emplace_back(key, *text);
    } else {
      AppendJson(value, metadata.emplace_back(key, "").second);
      as_json.push_back(key);
    }
  }
  ZT_ASSIGN_OR_RETURN(
      FileLayout layout,
      PlanSafetensors(source, selected,
                      source.attributes().empty() ? std::nullopt
                                                  : std::optional<SafetensorsMetadata>(metadata)));
  if (!as_json.empty()) {
    layout.warnings.push_back("safetensors' metadata is text: " + Listed(as_json) + " become JSON");
  }
  return layout;
}

StatusOr<FileLayout> PlanGgufFile(const TensorSource& source,
                                  const std::vector<std::uint32_t>& selected) {
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanGguf(source, selected));
  std::vector<std::string> lost;
  for (const auto& [key, value] : source.attributes()) {
    if (key != "gguf") lost.push_back(key);
  }
  if (!lost.empty())
    layout.warnings.push_back("GGUF does not keep root attributes: " + Listed(lost));
  return layout;
}

std::vector<std::string> NumpyLosses(const TensorSource& source,
                                     const std::vector<std::uint32_t>& selected) {
  std::vector<std::string> losses = NpyLosses(source, selected);
  std::vector<std::string> keys;
  for (const auto& [key, value] : source.attributes()) keys.push_back(key);
  if (!keys.empty()) losses.push_back("numpy's files do not keep root attributes: " + Listed(keys));
  return losses;
}

StatusOr<FileLayout> PlanNpzFile(const TensorSource& source,
                                 const std::vector<std::uint32_t>& selected) {
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanNpz(source, selected));
  layout.warnings = NumpyLosses(source, selected);
  return layout;
}

StatusOr<FileLayout> PlanNpyFile(const TensorSource& source,
                                 const std::vector<std::uint32_t>& selected) {
  if (selected.size() != 1) {
    return InvalidArgument("an .npy file holds one tensor, there are " +
                           std::to_string(selected.size()) +
                           "; name one, or write to a folder or .npz");
  }
  ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanNpy(source, selected[0]));
  layout.warnings = NumpyLosses(source, selected);
  return layout;
}

}  // namespace zt::cli::internal
