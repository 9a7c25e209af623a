// zt.format:files — bodies. Paths are compared as utf8proc folds them.
module;

#include <utf8proc.h>

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :files;
import :model;
import zt.core;

namespace zt {
namespace {

constexpr std::size_t kMaxPathBytes = 1009;  // with the prefix it is a name of 2.0
constexpr std::size_t kMaxSegmentBytes = 255;
constexpr std::size_t kMaxDepth = 16;
// Characters that Windows forbids in names, besides control characters and '/'.
constexpr std::string_view kForbidden = "\\:<>\"|?*";
constexpr std::string_view kSafetensors = "safetensors";

Status Refuse(std::string_view path, const std::string& rule) {
  return InvalidData("path " + Quote(path.substr(0, 128)) + ": " + rule);
}

// Control characters, in text that is UTF-8: U+0000 to U+001F, U+007F to U+009F, and those that make
// a name look like another: marks of direction, and what has no width but joiners.
bool HasControl(std::string_view text) {
  while (!text.empty()) {
    utf8proc_int32_t point = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &point);
    const utf8proc_category_t category = utf8proc_category(point);
    const bool joiner = point == 0x200c || point == 0x200d;
    if (category == UTF8PROC_CATEGORY_CC || (category == UTF8PROC_CATEGORY_CF && !joiner))
      return true;
    text.remove_prefix(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(length, 1)));
  }
  return false;
}

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

// A name that stands for a device on Windows, whatever suffix it has.
bool IsDeviceName(std::string_view segment) {
  std::string_view stem = segment.substr(0, segment.find('.'));
  while (stem.ends_with(' ')) stem.remove_suffix(1);
  const std::string name = Upper(stem);
  for (const std::string_view device : {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}) {
    if (name == device) return true;
  }
  if (!name.starts_with("COM") && !name.starts_with("LPT")) return false;
  const std::string_view digit = std::string_view(name).substr(3);
  return (digit.size() == 1 && digit[0] >= '0' && digit[0] <= '9') || digit == "\u00b9" ||
         digit == "\u00b2" || digit == "\u00b3";
}

// The problem of one segment of a path; empty if there is none.
std::string WrongInSegment(std::string_view segment) {
  if (segment.empty()) return "a segment is empty";
  if (segment == "." || segment == "..") return "a segment is " + Quote(segment);
  if (segment.size() > kMaxSegmentBytes) return "a segment has more than 255 bytes";
  if (segment.ends_with('.') || segment.ends_with(' ')) {
    return "a segment ends in a dot or a blank, which Windows drops";
  }
  if (IsDeviceName(segment)) return "a segment is the name of a device on Windows";
  return {};
}

// The form in which paths are compared: case-folded, in Normalization Form C.
std::string Folded(std::string_view path) {
  utf8proc_uint8_t* folded = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(path.data()),
      static_cast<utf8proc_ssize_t>(path.size()), &folded,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_CASEFOLD));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(folded, &std::free);
  if (size < 0) return std::string(path);
  return {reinterpret_cast<const char*>(folded), static_cast<std::size_t>(size)};
}

bool IsOne(const Value* value) {
  return value != nullptr && value->AsUint() != nullptr && *value->AsUint() == 1;
}

bool IsFileOf(std::string_view format, const Value::Map& attributes) {
  if (format == kFileFormat) return true;
  return format == "dense" && !attributes.empty() &&
         IsOne(FindMember(attributes, kDenseFileAttribute));
}

// The text of a member of an entry of kFolderAttribute; empty if it is missing.
std::string TextOf(const Value& entry, std::string_view key) {
  const Value* const text = FindMember(*entry.AsMap(), key);
  return text == nullptr ? std::string() : *text->AsString();
}

Status CheckWeightFile(const Value& entry) {
  const auto member = [map = entry.AsMap()](std::string_view key) {
    return map == nullptr ? nullptr : FindMember(*map, key);
  };
  const auto is_text = [](const Value* value) {
    return value == nullptr || value->AsString() != nullptr;
  };
  const Value* const path = member("path");
  const Value* const kind = member("kind");
  const Value* const header = member("header");
  if (path == nullptr || !is_text(path) || kind == nullptr || *kind != Value(kSafetensors))
    return InvalidData("an entry has no path and kind 'safetensors'");
  if ((header != nullptr && header->AsBytes() == nullptr) || !is_text(member("prefix")) ||
      !is_text(member("from"))) {
    return InvalidData(
        "an entry has a header that is no bytes, or a prefix or an origin that is no text");
  }
  const std::string prefix = TextOf(entry, "prefix");
  if (prefix.empty() || prefix.find('/') == prefix.size() - 1) return OkStatus();
  return InvalidData("the prefix " + Quote(prefix) + " does not end in its one '/'");
}

}  // namespace

Status CheckFilePath(std::string_view path) {
  if (path.empty()) return Refuse(path, "it is empty");
  if (!IsUtf8(path)) return Refuse(path, "it is not valid UTF-8");
  if (path.size() > kMaxPathBytes) return Refuse(path, "it has more than 1009 bytes");
  if (HasControl(path)) return Refuse(path, "it holds a control character");
  if (const auto at = path.find_first_of(kForbidden); at != path.npos) {
    return Refuse(path, "it holds " + Quote(path.substr(at, 1)));
  }
  if (path.starts_with('/')) return Refuse(path, "it is absolute");
  if (path.ends_with('/')) return Refuse(path, "it ends in '/'");
  std::string_view left = path;
  for (std::size_t depth = 1; !left.empty(); ++depth) {
    if (depth > kMaxDepth) return Refuse(path, "it has more than 16 segments");
    const std::string_view segment = left.substr(0, left.find('/'));
    if (const std::string wrong = WrongInSegment(segment); !wrong.empty()) {
      return Refuse(path, wrong);
    }
    left.remove_prefix(std::min(left.size(), segment.size() + 1));
  }
  if (IsNormalized(path)) return OkStatus();
  return Refuse(path, "it is not in Unicode Normalization Form C");
}

Status FilePaths::Add(std::string_view path) {
  ZT_RETURN_IF_ERROR(CheckFilePath(path));
  const std::string text(path);
  const std::string folded = Folded(path);
  if (const auto folder = folders_.find(folded); folder != folders_.end()) {
    return Refuse(path, "it is a folder of " + Quote(folder->second));
  }
  for (auto at = folded.find('/'); at != folded.npos; at = folded.find('/', at + 1)) {
    if (const auto file = files_.find(folded.substr(0, at)); file != files_.end()) {
      return Refuse(path, "it lies below " + Quote(file->second) + ", which is a file");
    }
    folders_.emplace(folded.substr(0, at), text);
  }
  const auto [found, fresh] = files_.emplace(folded, text);
  if (!fresh) {
    return Refuse(path, found->second == text
                            ? std::string("it occurs twice")
                            : "it differs from " + Quote(found->second) + " only in case");
  }
  if (files_.size() <= kMaxFiles) return OkStatus();
  return Refuse(path, "there are more than 100000 files");
}

bool IsFile(const Object& object) { return IsFileOf(object.format, object.attributes); }
bool IsFile(const StoredObject& object) { return IsFileOf(object.format, object.attributes); }

Status CheckFile(const Object& object) {
  const auto broken = [](const std::string& rule) {
    return InvalidData(std::string(kFileFormat) + ": " + rule);
  };
  if (object.components.size() != 1 || object.components[0].role != "data") {
    return broken("a file has one component, 'data'");
  }
  const Component& data = object.components[0];
  if (data.element != ElementType{DType::kU8, ""}) {
    return broken("its component is " + std::string(Name(data.element)) + ", not u8");
  }
  if (object.shape.size() != 1) {
    return broken("its shape is " + ToString(object.shape) + ", not one number of bytes");
  }
  if (data.bytes != kUnknownSize && data.bytes != object.shape[0]) {
    return broken("its shape is " + ToString(object.shape) + ", and it has " +
                  std::to_string(data.bytes) + " bytes");
  }
  const Value* const executable = FindMember(object.attributes, "executable");
  if (executable != nullptr && executable->AsBool() == nullptr) {
    return broken("'executable' is neither true nor false");
  }
  const Value* const path = FindMember(object.attributes, "path");
  if (path == nullptr || path->AsString() == nullptr) {
    return broken("the attribute 'path' is missing, or no text");
  }
  return Annotate(CheckFilePath(*path->AsString()), kFileFormat);
}

Object FileObject(const std::string& path, std::uint64_t bytes, bool executable) {
  Object object;
  object.name = std::string(kFileNamePrefix) + path;
  object.format = kFileFormat;
  object.shape = {bytes};
  object.attributes = {{"path", path}};
  if (executable) object.attributes.emplace_back("executable", true);
  object.components.push_back({"data", {DType::kU8, ""}, bytes});
  return object;
}

FileEntry FileEntryOf(const Object& object, std::uint32_t index) {
  const Value* const executable = FindMember(object.attributes, "executable");
  return {.object = index,
          .path = *FindMember(object.attributes, "path")->AsString(),
          .bytes = object.shape[0],
          .executable = executable != nullptr && *executable->AsBool()};
}

StatusOr<std::vector<FileEntry>> ListFiles(std::span<const Object> objects) {
  std::vector<FileEntry> files;
  FilePaths paths;
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    if (!IsFile(objects[i])) continue;
    Status status = CheckFile(objects[i]);
    if (status.ok()) {
      files.push_back(FileEntryOf(objects[i], i));
      status = paths.Add(files.back().path);
    }
    ZT_RETURN_IF_ERROR(WithTensor(status, objects[i].name));
  }
  return files;
}

std::vector<FileEntry> ListFiles(const Manifest& manifest) {
  std::vector<FileEntry> files;
  for (std::uint32_t i = 0; i < manifest.objects.size(); ++i) {
    if (!IsFile(manifest.objects[i])) continue;
    files.push_back(FileEntryOf(Declare(manifest.objects[i]), i));
  }
  return files;
}

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

Status CheckWeightFiles(const Value::Map& attributes, FilePaths& paths) {
  const Value* const value = FindMember(attributes, kFolderAttribute);
  if (value == nullptr) return OkStatus();
  const auto check = [&]() -> Status {
    if (value->AsArray() == nullptr) return InvalidData("it is not an array");
    for (const Value& entry : *value->AsArray()) {
      ZT_RETURN_IF_ERROR(CheckWeightFile(entry));
      ZT_RETURN_IF_ERROR(paths.Add(TextOf(entry, "path")));
    }
    return OkStatus();
  };
  return Annotate(check(), "attribute " + Quote(kFolderAttribute));
}

StatusOr<std::vector<WeightFile>> FindWeightFiles(const Value::Map& attributes,
                                                  std::span<const FileEntry> files) {
  FilePaths paths;
  for (const FileEntry& file : files) ZT_RETURN_IF_ERROR(paths.Add(file.path));
  ZT_RETURN_IF_ERROR(CheckWeightFiles(attributes, paths));
  std::vector<WeightFile> found;
  const Value* const value = FindMember(attributes, kFolderAttribute);
  if (value == nullptr) return found;
  for (const Value& entry : *value->AsArray()) {
    const Value* const header = FindMember(*entry.AsMap(), "header");
    found.push_back({TextOf(entry, "path"), TextOf(entry, "prefix"),
                     header == nullptr ? Value::Bytes() : *header->AsBytes(),
                     TextOf(entry, "from")});
  }
  return found;
}

}  // namespace zt
