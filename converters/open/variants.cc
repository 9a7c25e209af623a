// zt.open:files — which of a folder's files hold its weights, by their variants.
module zt.open;

import zt.std;
import :files;
import :formats;
import zt.convert.shards;
import zt.core;
import zt.source;
import zt.text;

namespace zt::open::internal {
namespace {

// True if a file of PyTorch has the name of a checkpoint: *.bin is a name of other data, too.
bool IsNamedLikeTorch(const std::string& name) {
  return name.find("pytorch_model") != name.npos || name.ends_with(".json");
}

// The variants that the name of a file has: one, or none.
std::vector<std::string> VariantsIn(const FolderFiles& files, std::span<const std::string> names) {
  return VariantsOf(names, Words(files.format->suffixes)[0]);
}

// The files of a format in `found`; null if there are none.
const FolderFiles* FilesOf(const std::vector<FolderFiles>& found, std::string_view format) {
  const auto files = std::ranges::find_if(
      found, [&](const FolderFiles& each) { return each.format->name == format; });
  return files == found.end() ? nullptr : &*files;
}

}  // namespace

bool HasVariant(const FolderFiles& files, const std::string& variant) {
  const std::string_view suffix = Words(files.format->suffixes)[0];
  return std::ranges::any_of(
      files.names, [&](const std::string& name) { return IsOfVariant(name, suffix, variant); });
}

bool HoldsWeights(const FolderFiles& files) {
  return std::ranges::any_of(files.names, IsNamedLikeTorch);
}

bool IsTorchMeant(const std::vector<FolderFiles>& found) {
  const FolderFiles *const safetensors = FilesOf(found, "safetensors"), *const torch =
                                                                            FilesOf(found, "torch");
  if (safetensors == nullptr || torch == nullptr) return false;
  const auto is_variant = [](const FolderFiles& files, const std::string& name) {
    return !VariantsIn(files, {&name, 1}).empty();
  };
  return std::ranges::all_of(
             safetensors->names,
             [&](const std::string& name) { return is_variant(*safetensors, name); }) &&
         std::ranges::any_of(torch->names, [&](const std::string& name) {
           return IsNamedLikeTorch(name) && !is_variant(*torch, name);
         });
}

void WarnOfOtherFormat(const std::vector<FolderFiles>& found, std::string_view format,
                       TensorSource& source) {
  const FolderFiles* const read = FilesOf(found, format);
  const FolderFiles* const other = FilesOf(found, format == "torch" ? "safetensors" : "torch");
  if (read == nullptr || other == nullptr || (format != "torch" && format != "safetensors")) return;
  const auto known = VariantsIn(*read, read->names);
  NameList names;
  for (const std::string& name : other->names) {
    if (format == "safetensors" && !IsNamedLikeTorch(name)) continue;
    for (const std::string& variant : VariantsIn(*other, {&name, 1})) {
      if (std::ranges::find(known, variant) == known.end()) names.Add(name);
    }
  }
  if (names.empty()) return;
  source.AddWarning("other variants of the weights are not read: " + names.ToString(),
                    Advice::kVariant);
}

}  // namespace zt::open::internal
