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
  if (path == nullptr || path->AsString() == nullptr || kind == nullptr ||
      *kind != Value(kSafetensors) || header == nullptr || header->AsBytes() == nullptr) {
    return InvalidData("an entry has no path, kind 'safetensors' and header");
  }
  return WeightFile{*path->AsString(), *header->AsBytes()};
}

}  // namespace

Value ToValue(std::span<const WeightFile> files) {
  Value::Array array;
  for (const WeightFile& file : files) {
    array.emplace_back(
        Value::Map{{"path", file.path}, {"kind", kSafetensors}, {"header", file.header}});
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
