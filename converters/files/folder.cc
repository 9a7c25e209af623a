// zt.convert.files — the attribute with the headers of the weight files.
module;

#include "core/status_macros.h"

module zt.convert.files;

import zt.std;
import zt.core;
import zt.format;

namespace zt {
namespace {

constexpr std::string_view kSafetensors = "safetensors";

StatusOr<WeightFile> OfValue(const Value& value) {
  const Value::Map* const map = value.AsMap();
  const auto member = [&](std::string_view key) {
    return map == nullptr ? nullptr : FindMember(*map, key);
  };
  const Value* const path = member("path");
  const Value* const kind = member("kind");
  const Value* const header = member("header");
  const Value* const prefix = member("prefix");
  const Value* const from = member("from");
  if (path == nullptr || path->AsString() == nullptr || kind == nullptr ||
      *kind != Value(kSafetensors)) {
    return InvalidData("an entry has no path and kind 'safetensors'");
  }
  if ((header != nullptr && header->AsBytes() == nullptr) ||
      (prefix != nullptr && prefix->AsString() == nullptr) ||
      (from != nullptr && from->AsString() == nullptr)) {
    return InvalidData(
        "an entry has a header that is no bytes, or a prefix or an origin that is no text");
  }
  WeightFile file{*path->AsString(), ""};
  if (from != nullptr) file.from = *from->AsString();
  if (prefix != nullptr) file.prefix = *prefix->AsString();
  if (!file.prefix.empty() && file.prefix.find('/') != file.prefix.size() - 1) {
    return InvalidData("the prefix " + Quote(file.prefix) + " does not end in its one '/'");
  }
  if (header != nullptr) file.header = *header->AsBytes();
  return file;
}

}  // namespace

Value ToValue(std::span<const WeightFile> files) {
  Value::Array array;
  for (const WeightFile& file : files) {
    Value::Map map;  // in the order of the manifest
    if (!file.from.empty()) map.emplace_back("from", file.from);
    map.emplace_back("kind", kSafetensors);
    map.emplace_back("path", file.path);
    if (!file.header.empty()) map.emplace_back("header", file.header);
    if (!file.prefix.empty()) map.emplace_back("prefix", file.prefix);
    array.emplace_back(std::move(map));
  }
  return array;
}

StatusOr<std::vector<WeightFile>> FindWeightFiles(const Value::Map& attributes,
                                                  std::span<const FileEntry> files) {
  std::vector<WeightFile> found;
  const Value* const value = FindMember(attributes, kFolderAttribute);
  if (value == nullptr) return found;
  const std::string what = "attribute " + Quote(kFolderAttribute);
  if (value->AsArray() == nullptr) return Annotate(InvalidData("it is not an array"), what);
  FilePaths paths;
  for (const FileEntry& file : files) ZT_RETURN_IF_ERROR(paths.Add(file.path));
  for (const Value& each : *value->AsArray()) {
    auto file = OfValue(each);
    if (!file.ok()) return Annotate(file.status(), what);
    ZT_RETURN_IF_ERROR(Annotate(paths.Add(file->path), what));
    found.push_back(*std::move(file));
  }
  return found;
}

}  // namespace zt
