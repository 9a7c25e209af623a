// zt.format — a manifest's CBOR into the model, whatever the version.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import :fields;
import zt.compress;
import zt.core;

namespace zt {
namespace {

namespace cbor = format_cbor;
namespace internal = format::internal;
using internal::Fields;

// Containers around an object's own fields: root, objects, object. Its attributes may nest within
// the rest.
constexpr std::size_t kObjectDepth = 3;
// The shortest text an object or a 0.1.0 entry can have is longer; a head that claims more is not believed.
constexpr std::size_t kLeastObjectBytes = 48;

class Decoder : private internal::FieldReader {
 public:
  Decoder(std::span<const std::byte> bytes, SpecVersion family)
      : FieldReader(bytes, kMaxAttributeValues), family_(family) {}

  StatusOr<Manifest> Decode() {
    ZT_RETURN_IF_ERROR(family_ == SpecVersion::k0_1 ? DecodeIndex01() : DecodeRoot());
    if (reader_.remaining() != 0) {
      return InvalidData(std::to_string(reader_.remaining()) + " bytes follow the CBOR value");
    }
    std::vector<std::string_view> names;
    names.reserve(manifest_.objects.size());
    for (const StoredObject& object : manifest_.objects) names.push_back(object.name);
    if (const auto twice = internal::FindTwice(names)) {
      return InvalidData(TensorContext(*twice) + " occurs twice");
    }
    return std::move(manifest_);
  }

 private:
  // ---- the root, 1.x ----
  Status DecodeRoot();
  Status SetVersion(std::string_view text);
  Status DecodeObjects();
  Status DecodeObject(StoredObject& object);
  Status DecodeComponents(StoredObject& object);
  Status DecodeComponent(StoredComponent& component);
  bool IsDialect() const { return manifest_.version == SpecVersion::k1_0; }
  // ---- the index, 0.1.0 ----
  Status DecodeIndex01();
  Status DecodeEntry01(StoredObject& object);

  // ---- fields of both ----
  Status ReadEncoding(Encoding* encoding);
  Status ReadDtype(SpecVersion version, ElementType* element);

  SpecVersion family_;
  Manifest manifest_;
};

Status Decoder::ReadEncoding(Encoding* encoding) {
  std::string_view text;
  ZT_RETURN_IF_ERROR(ReadText("encoding", &text));
  const auto parsed = ParseEncoding(text);
  if (!parsed || *parsed == Encoding::kPlanes) {  // that is a format (see FromPlanes)
    return InvalidData("encoding " + Quote(text) + " is neither 'raw' nor 'zstd'");
  }
  *encoding = *parsed;
  return OkStatus();
}

Status Decoder::ReadDtype(SpecVersion version, ElementType* element) {
  std::string_view text;
  ZT_RETURN_IF_ERROR(ReadText("dtype", &text));
  auto parsed = internal::ParseSpelling(text, version);
  if (!parsed) {
    // 0.1.0 leaves the set open (§8), the others do not.
    return MakeStatus(
        version == SpecVersion::k0_1 ? StatusCode::kUnimplemented : StatusCode::kDataLoss,
        "dtype " + Quote(text) + " is none of version " + std::string(Traits(version).text));
  }
  element->dtype = parsed->dtype;
  if (!parsed->type.empty()) element->type = std::move(parsed->type);
  return OkStatus();
}

// ---- 1.x ----

Status Decoder::SetVersion(std::string_view text) {
  const std::size_t dot = text.find('.');
  const std::string_view major = text.substr(0, dot);
  std::string_view minor = dot == std::string_view::npos ? "" : text.substr(dot + 1);
  minor = minor.substr(0, minor.find('.'));
  const auto is_number = [](std::string_view s) {
    return !s.empty() && s.size() < 9 && s.find_first_not_of("0123456789") == s.npos;
  };
  if (!is_number(major) || !is_number(minor)) {
    return InvalidData("version " + Quote(text) + " is not of the form 1.2.0");
  }
  const int major_number = std::stoi(std::string(major)),
            minor_number = std::stoi(std::string(minor));
  if (major_number > 1) {
    return Unsupported("the file is of version " + std::string(text) +
                       "; versions up to 1.x can be read");
  }
  if (major_number < 1) return InvalidData("version " + Quote(text) + " has no such container");
  manifest_.version_text = text;
  // A later minor version adds optional fields only: it reads as the latest we know.
  manifest_.version = minor_number == 0   ? SpecVersion::k1_0
                      : minor_number == 1 ? SpecVersion::k1_1
                                          : SpecVersion::k1_2;
  if (family_ == SpecVersion::k1_0 && manifest_.version != SpecVersion::k1_0) {
    return InvalidData("no ZTEN1000 at the end: the file is truncated");
  }
  return OkStatus();
}

Status Decoder::DecodeRoot() {
  enum : std::size_t { kVersion, kAttributes, kObjects, kTensors };
  constexpr std::string_view kNames[] = {"version", "attributes", "objects", "tensors"};
  cbor::Container root;
  ZT_RETURN_IF_ERROR(OpenMap("manifest", &root));
  Fields fields(kNames);
  // The order of the fields is free, but how dtypes are spelled is the version's. Where the objects
  // come first, as in deterministic CBOR, they are read as the latest version's, and once more if
  // that was wrong.
  std::optional<std::size_t> objects_at, tensors_at;
  std::size_t spent = 0;  // of the budget, for objects that were read
  while (reader_.More(root)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(ReadField(fields, 1, &field));
    if (field == kVersion) {
      std::string_view text;
      ZT_RETURN_IF_ERROR(ReadText("version", &text));
      ZT_RETURN_IF_ERROR(SetVersion(text));
      if (manifest_.version != SpecVersion::k1_2) {  // they are read again, and counted once
        manifest_.objects.clear();
        budget_ += spent;
      }
    } else if (field == kAttributes) {
      ZT_RETURN_IF_ERROR(ReadAttributes(1, &manifest_.attributes));
    } else if (field == kObjects || field == kTensors) {
      const std::size_t at = reader_.position(), budget = budget_;
      (field == kObjects ? objects_at : tensors_at) = at;
      if (field == kObjects && !IsDialect() && DecodeObjects().ok()) {
        spent = budget - budget_;
        continue;
      }
      manifest_.objects.clear();
      budget_ = budget;
      reader_.Rewind(at);
      ZT_RETURN_IF_ERROR(SkipValue(1));
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kVersion + 1));
  const std::size_t objects = IsDialect() ? kTensors : kObjects;
  if (!fields.Has(objects)) {
    return InvalidData("field " + Quote(kNames[objects]) + " is missing");
  }
  if (!manifest_.objects.empty()) return OkStatus();
  const std::size_t end = reader_.position();
  reader_.Rewind(IsDialect() ? *tensors_at : *objects_at);
  ZT_RETURN_IF_ERROR(DecodeObjects());
  reader_.Rewind(end);
  return OkStatus();
}

Status Decoder::DecodeObjects() {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap(IsDialect() ? "tensors" : "objects", &map));
  manifest_.objects.reserve(
      std::min<std::uint64_t>(map.left, reader_.remaining() / kLeastObjectBytes));
  while (reader_.More(map)) {
    std::string_view key;
    ZT_RETURN_IF_ERROR(ReadKey(&key));
    StoredObject& object = manifest_.objects.emplace_back();
    object.name = key;
    if (auto status = DecodeObject(object); !status.ok()) {
      return Annotate(status, TensorContext(object.name));
    }
  }
  return OkStatus();
}

Status Decoder::DecodeObject(StoredObject& object) {
  enum : std::size_t { kShape, kFormat, kComponents, kAttributes, kDtype };
  constexpr std::string_view kNames[] = {"shape", "format", "components", "attributes", "dtype"};
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("object", &map));
  // 1.0 says the dtype here, once for all components.
  Fields fields(std::span(kNames).first(IsDialect() ? 5 : 4));
  ElementType element;
  while (reader_.More(map)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(ReadField(fields, kObjectDepth, &field));
    switch (field) {
      case kShape:
        ZT_RETURN_IF_ERROR(ReadShape(&object.shape));
        break;
      case kFormat:
        ZT_RETURN_IF_ERROR(ReadText("format", &object.format));
        break;
      case kComponents:
        ZT_RETURN_IF_ERROR(DecodeComponents(object));
        break;
      case kAttributes:
        ZT_RETURN_IF_ERROR(ReadAttributes(kObjectDepth, &object.attributes));
        break;
      case kDtype:
        ZT_RETURN_IF_ERROR(ReadDtype(SpecVersion::k1_0, &element));
        break;
      default:  // unknown, and skipped
        break;
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kComponents + 1));
  if (IsDialect() && !fields.Has(kDtype)) return InvalidData("field 'dtype' is missing");
  for (StoredComponent& component : object.components) {
    if (IsDialect()) {
      const bool index = internal::IsIndexRole(object.format, component.role);
      component.element = index ? ElementType{DType::kU64, ""} : element;
    }
    if (component.encoding == Encoding::kRaw) {
      component.decoded_bytes = component.length;
    } else if (component.decoded_bytes == kUnknownSize) {
      if (manifest_.version == SpecVersion::k1_2) {
        return InvalidData("component " + Quote(component.role) + " is " +
                           std::string(Name(component.encoding)) +
                           " and has no 'uncompressed_length'");
      }
      component.decoded_bytes = internal::SizeFromShape(object, component);
    }
  }
  return manifest_.version == SpecVersion::k1_2 ? internal::FromPlanes(object) : OkStatus();
}

Status Decoder::DecodeComponents(StoredObject& object) {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("components", &map));
  while (reader_.More(map)) {
    std::string_view role;
    ZT_RETURN_IF_ERROR(ReadKey(&role));
    StoredComponent& component = object.components.emplace_back();
    component.role = role;
    if (auto status = DecodeComponent(component); !status.ok()) {
      return Annotate(status, "component " + Quote(component.role));
    }
  }
  if (object.components.empty()) return InvalidData("there is no component");
  if (object.components.size() > 1) {
    std::vector<std::string_view> roles;
    roles.reserve(object.components.size());
    for (const StoredComponent& component : object.components) roles.push_back(component.role);
    if (const auto twice = internal::FindTwice(roles)) {
      return InvalidData("component " + Quote(*twice) + " occurs twice");
    }
  }
  return OkStatus();
}

Status Decoder::DecodeComponent(StoredComponent& component) {
  enum : std::size_t { kOffset, kLength, kUncompressed, kEncoding, kDigest, kDtype, kType };
  constexpr std::string_view kNames[] = {
      "offset", "length", "uncompressed_length", "encoding", "digest", "dtype", "type"};
  constexpr std::size_t kDepth = kObjectDepth + 2;
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("component", &map));
  Fields fields(std::span(kNames).first(IsDialect() ? 5 : 7));
  std::string type;
  component.decoded_bytes = kUnknownSize;
  while (reader_.More(map)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(ReadField(fields, kDepth, &field));
    switch (field) {
      case kOffset:
        ZT_RETURN_IF_ERROR(ReadUint("offset", &component.offset));
        break;
      case kLength:
        ZT_RETURN_IF_ERROR(ReadUint("length", &component.length));
        break;
      case kUncompressed: {
        const cbor::Item item = reader_.Next();
        if (item.kind == cbor::Kind::kUint) {
          component.decoded_bytes = item.value;
        } else if (item.kind != cbor::Kind::kNull) {
          return Expected(item, "uncompressed_length", "an unsigned integer");
        }
        break;
      }
      case kEncoding:
        ZT_RETURN_IF_ERROR(ReadEncoding(&component.encoding));
        break;
      case kDigest:
        ZT_RETURN_IF_ERROR(ReadDigest("digest", &component.digest));
        break;
      case kDtype:
        ZT_RETURN_IF_ERROR(ReadDtype(manifest_.version, &component.element));
        break;
      case kType:
        ZT_RETURN_IF_ERROR(ReadOptionalText("type", &type));
        break;
      default:  // unknown, and skipped
        break;
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kLength + 1));
  if (!IsDialect() && !fields.Has(kDtype)) return InvalidData("field 'dtype' is missing");
  // A logical type that only repeats the dtype says nothing.
  if (!type.empty() && type != Name(component.element.dtype)) {
    if (!component.element.type.empty() && component.element.type != type) {
      return InvalidData("type " + Quote(type) + " contradicts the dtype");
    }
    component.element.type = std::move(type);
  }
  if (component.encoding == Encoding::kRaw && component.decoded_bytes != kUnknownSize &&
      component.decoded_bytes != component.length) {
    return InvalidData("'uncompressed_length' is " + std::to_string(component.decoded_bytes) +
                       " where 'length' of the raw data is " + std::to_string(component.length));
  }
  return OkStatus();
}

// ---- 0.1.0 ----

Status Decoder::DecodeIndex01() {
  manifest_.version = SpecVersion::k0_1;
  const cbor::Item head = reader_.Next();
  if (head.kind != cbor::Kind::kArray) return Expected(head, "index", "an array");
  cbor::Container array = cbor::Open(head);
  manifest_.objects.reserve(
      std::min<std::uint64_t>(array.left, reader_.remaining() / kLeastObjectBytes));
  while (reader_.More(array)) {
    StoredObject& object = manifest_.objects.emplace_back();
    if (auto status = DecodeEntry01(object); !status.ok()) {
      return Annotate(status, object.name.empty()
                                  ? "entry " + std::to_string(manifest_.objects.size() - 1)
                                  : TensorContext(object.name));
    }
  }
  return OkStatus();
}

Status Decoder::DecodeEntry01(StoredObject& object) {
  enum : std::size_t {
    kName,
    kOffset,
    kSize,
    kDtype,
    kShape,
    kEncoding,
    kLayout,
    kEndian,
    kChecksum
  };
  constexpr std::string_view kNames[] = {"name",   "offset",          "size",
                                         "dtype",  "shape",           "encoding",
                                         "layout", "data_endianness", "checksum"};
  constexpr std::size_t kDepth = 2;
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("entry", &map));
  StoredComponent& component = object.components.emplace_back();
  component.role = "data";
  Fields fields(kNames);
  while (reader_.More(map)) {
    std::string_view key;
    ZT_RETURN_IF_ERROR(ReadKey(&key));
    std::size_t field;
    ZT_RETURN_IF_ERROR(fields.Add(key, &field));
    switch (field) {
      case kName:
        ZT_RETURN_IF_ERROR(ReadText("name", &object.name));
        break;
      case kOffset:
        ZT_RETURN_IF_ERROR(ReadUint("offset", &component.offset));
        break;
      case kSize:
        ZT_RETURN_IF_ERROR(ReadUint("size", &component.length));
        break;
      case kDtype:
        ZT_RETURN_IF_ERROR(ReadDtype(SpecVersion::k0_1, &component.element));
        break;
      case kShape:
        ZT_RETURN_IF_ERROR(ReadShape(&object.shape));
        break;
      case kEncoding:
        ZT_RETURN_IF_ERROR(ReadEncoding(&component.encoding));
        break;
      case kLayout:
        ZT_RETURN_IF_ERROR(ReadText("layout", &object.format));
        if (object.format.empty()) return InvalidData("'layout' is empty");
        break;
      case kEndian: {
        std::string text;
        ZT_RETURN_IF_ERROR(ReadOptionalText("data_endianness", &text));
        if (!text.empty() && text != "little" && text != "big") {
          return InvalidData("data_endianness " + Quote(text) + " is neither 'little' nor 'big'");
        }
        component.big_endian = text == "big";
        break;
      }
      case kChecksum:
        ZT_RETURN_IF_ERROR(ReadDigest("checksum", &component.digest));
        break;
      default: {  // a custom field
        std::string name(key);
        ZT_ASSIGN_OR_RETURN(Value value, ReadAttribute(name, kDepth));
        object.attributes.emplace_back(std::move(name), std::move(value));
      }
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kEncoding + 1));
  if (component.big_endian && component.encoding != Encoding::kRaw &&
      ByteWidth(component.element.dtype) > 1) {
    return Unsupported("data_endianness 'big' on " + std::string(Name(component.encoding)) +
                       " data, for which 0.1.0 gives it no meaning");
  }
  component.decoded_bytes = component.encoding == Encoding::kRaw
                                ? component.length
                                : internal::SizeFromShape(object, component);
  return OkStatus();
}

}  // namespace

StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family) {
  if (bytes.size() > kMaxManifestBytes) return InvalidData("the manifest exceeds 1 GiB");
  auto manifest = Decoder(bytes, family).Decode();
  if (!manifest.ok()) return Annotate(manifest.status(), "manifest");
  return manifest;
}

}  // namespace zt
