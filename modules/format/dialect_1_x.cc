// zt.format:dialect — versions 1.0 to 1.2: a map of objects with components.
module;

#include "core/name_table.h"
#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import :fields;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt::format::internal {

namespace cbor = format_cbor;

namespace {

// The least size of an object, which limits the count that a head can claim.
constexpr std::size_t kLeastObjectBytes = 48;

constexpr std::string_view kMagic = "ZTEN1000";
// Never change these: existing files depend on them.
constexpr ContainerTraits kTraits[] = {
    {.version = SpecVersion::k1_0,
     .text = "1.0",
     .header_magic = kMagic,
     .footer_magic = "",
     .alignment = 64,
     .placement = 64,
     .writable = false},
    {.version = SpecVersion::k1_1,
     .text = "1.1.0",
     .header_magic = kMagic,
     .footer_magic = kMagic,
     .alignment = 64,
     .placement = 64,
     .writable = true},
    {.version = SpecVersion::k1_2,
     .text = "1.2.0",
     .header_magic = kMagic,
     .footer_magic = kMagic,
     .alignment = 64,
     .placement = 64,
     .writable = true,
     .files = true},
};

// The types that 1.1 writes in `dtype` and 1.2 in `type`.
struct Dtype11 {
  std::string_view text;
  std::string_view type;
};
constexpr Dtype11 kDtypes11[] = {{"f8_e4m3", "f8_e4m3fn"},
                                 {"f8_e5m2", "f8_e5m2"},
                                 {"complex64", "complex64"},
                                 {"complex128", "complex128"}};

class Decoder1x : private FieldReader {
 public:
  // `family` is k1_0 if the file has no magic at its end.
  Decoder1x(std::span<const std::byte> bytes, SpecVersion family)
      : FieldReader(bytes, kMaxAttributeValues), family_(family) {}

  StatusOr<Manifest> Decode() {
    ZT_RETURN_IF_ERROR(DecodeRoot());
    ZT_RETURN_IF_ERROR(CheckEnd());
    ZT_RETURN_IF_ERROR(CheckNames(manifest_));
    return std::move(manifest_);
  }

 private:
  Status DecodeRoot();
  Status SetVersion(std::string_view text);
  Status DecodeObjects();
  Status DecodeObject(StoredObject& object);
  Status DecodeComponents(StoredObject& object);
  Status DecodeComponent(StoredComponent& component);
  const Dialect& Row() const { return Dialect1x(manifest_.version); }
  bool Is1_2() const { return manifest_.version == SpecVersion::k1_2; }
  bool Is1_0() const { return manifest_.version == SpecVersion::k1_0; }

  SpecVersion family_;
  Manifest manifest_;
};

Status Decoder1x::SetVersion(std::string_view text) {
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
                       "; in a container of 1.x, versions up to 1.x can be read");
  }
  if (major_number < 1) return InvalidData("version " + Quote(text) + " has no such container");
  manifest_.version_text = text;
  // A later minor version adds only optional fields: it is read as the latest known one.
  manifest_.version = minor_number == 0   ? SpecVersion::k1_0
                      : minor_number == 1 ? SpecVersion::k1_1
                                          : SpecVersion::k1_2;
  if (family_ == SpecVersion::k1_0 && manifest_.version != SpecVersion::k1_0) {
    return InvalidData("no ZTEN1000 at the end: the file is truncated");
  }
  return OkStatus();
}

Status Decoder1x::DecodeRoot() {
  enum : std::size_t { kVersion, kAttributes, kObjects, kTensors };
  constexpr std::string_view kNames[] = {"version", "attributes", "objects", "tensors"};
  cbor::Container root;
  ZT_RETURN_IF_ERROR(OpenMap("manifest", &root));
  FieldSet fields(kNames);
  // The fields may come in any order, but the spelling of dtypes depends on the version. Objects
  // that come first, as in deterministic CBOR, are read as the latest version's, and again if the
  // version turns out to be another.
  std::optional<std::size_t> objects_at, tensors_at;
  std::size_t spent = 0;  // the part of the budget that objects took
  while (reader_.More(root)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(ReadField(fields, 1, &field));
    if (field == kVersion) {
      std::string_view text;
      ZT_RETURN_IF_ERROR(ReadText("version", &text));
      ZT_RETURN_IF_ERROR(SetVersion(text));
      if (!Is1_2()) {  // they are read again, and counted once
        manifest_.objects.clear();
        budget_ += spent;
      }
    } else if (field == kAttributes) {
      ZT_RETURN_IF_ERROR(ReadAttributes(1, &manifest_.attributes));
    } else if (field == kObjects || field == kTensors) {
      const std::size_t at = reader_.position(), budget = budget_;
      (field == kObjects ? objects_at : tensors_at) = at;
      if (field == kObjects && !Is1_0() && DecodeObjects().ok()) {
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
  const std::size_t objects = Is1_0() ? kTensors : kObjects;
  if (!fields.Has(objects)) {
    return InvalidData("field " + Quote(kNames[objects]) + " is missing");
  }
  if (!manifest_.objects.empty()) return OkStatus();
  const std::size_t end = reader_.position();
  reader_.Rewind(Is1_0() ? *tensors_at : *objects_at);
  ZT_RETURN_IF_ERROR(DecodeObjects());
  reader_.Rewind(end);
  return OkStatus();
}

Status Decoder1x::DecodeObjects() {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap(Is1_0() ? "tensors" : "objects", &map));
  manifest_.objects.reserve(
      std::min<std::uint64_t>(map.left, reader_.remaining() / kLeastObjectBytes));
  while (reader_.More(map)) {
    std::string_view key;
    ZT_RETURN_IF_ERROR(ReadKey(&key));
    StoredObject& object = manifest_.objects.emplace_back();
    object.name = key;
    ZT_RETURN_IF_ERROR(WithTensor(DecodeObject(object), object.name));
  }
  return OkStatus();
}

Status Decoder1x::DecodeObject(StoredObject& object) {
  enum : std::size_t { kShape, kFormat, kComponents, kAttributes, kDtype };
  constexpr std::string_view kNames[] = {"shape", "format", "components", "attributes", "dtype"};
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("object", &map));
  // 1.0 has one dtype here for all components.
  FieldSet fields{std::span(kNames).first(Is1_0() ? 5 : 4)};
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
        ZT_RETURN_IF_ERROR(ReadDtype(Row(), StatusCode::kDataLoss, &element));
        break;
      default:  // unknown, and skipped
        break;
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kComponents + 1));
  if (Is1_0() && !fields.Has(kDtype)) return InvalidData("field 'dtype' is missing");
  for (StoredComponent& component : object.components) {
    if (Is1_0()) {
      const bool index = IsIndexRole(object.format, component.role);
      component.element = index ? ElementType{DType::kU64, ""} : element;
    }
    if (component.encoding == Encoding::kRaw) {
      component.decoded_bytes = component.length;
    } else if (component.decoded_bytes == kUnknownSize) {
      if (Is1_2()) {
        return InvalidData("component " + Quote(component.role) + " is " +
                           std::string(Name(component.encoding)) +
                           " and has no 'uncompressed_length'");
      }
      component.decoded_bytes = SizeFromShape(object, component);
    }
  }
  return Is1_2() ? FromPlanes(object) : OkStatus();
}

Status Decoder1x::DecodeComponents(StoredObject& object) {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("components", &map));
  while (reader_.More(map)) {
    std::string_view role;
    ZT_RETURN_IF_ERROR(ReadKey(&role));
    StoredComponent& component = object.components.emplace_back();
    component.role = role;
    ZT_RETURN_IF_ERROR(WithComponent(DecodeComponent(component), component.role));
  }
  if (object.components.empty()) return InvalidData("there is no component");
  const auto role_of = [&](std::size_t i) { return std::string_view(object.components[i].role); };
  if (const auto twice = zt::internal::FindTwice(object.components.size(), role_of)) {
    return InvalidData("component " + Quote(role_of(twice->again)) + " occurs twice");
  }
  return OkStatus();
}

Status Decoder1x::DecodeComponent(StoredComponent& component) {
  enum : std::size_t { kOffset, kLength, kUncompressed, kEncoding, kDigest, kDtype, kType };
  constexpr std::string_view kNames[] = {
      "offset", "length", "uncompressed_length", "encoding", "digest", "dtype", "type"};
  constexpr std::size_t kDepth = kObjectDepth + 2;
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("component", &map));
  FieldSet fields{std::span(kNames).first(Is1_0() ? 5 : 7)};
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
        const std::size_t at = reader_.position();
        if (reader_.Next().kind == cbor::Kind::kNull) break;
        reader_.Rewind(at);
        ZT_RETURN_IF_ERROR(ReadDecodedSize("uncompressed_length", &component.decoded_bytes));
        break;
      }
      case kEncoding:
        ZT_RETURN_IF_ERROR(ReadEncoding(StatusCode::kDataLoss, &component.encoding));
        break;
      case kDigest:
        ZT_RETURN_IF_ERROR(ReadDigest("digest", &component.digest));
        break;
      case kDtype:
        ZT_RETURN_IF_ERROR(ReadDtype(Row(), StatusCode::kDataLoss, &component.element));
        break;
      case kType:
        ZT_RETURN_IF_ERROR(ReadOptionalText("type", &type));
        break;
      default:  // unknown, and skipped
        break;
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kLength + 1));
  if (!Is1_0() && !fields.Has(kDtype)) return InvalidData("field 'dtype' is missing");
  // A logical type equal to the dtype adds nothing.
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

class DialectOf1x final : public Dialect {
 public:
  explicit DialectOf1x(const ContainerTraits& traits) : Dialect(traits) {}

  StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                           std::uint64_t file_bytes) const override {
    const bool footer = tail.size() >= kMagic.size() && IsMagic(tail.last(kMagic.size()), kMagic);
    return LocateBySize(footer ? SpecVersion::k1_2 : SpecVersion::k1_0, footer ? kMagic : "", tail,
                        file_bytes);
  }
  StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const override {
    return Decoder1x(bytes, traits().version).Decode();
  }
  Status CheckStored(const StoredObject& object, const StoredComponent& component) const override;
  Status CheckComplete(const Object& object) const override;
  std::optional<ElementType> ParseElement(std::string_view dtype) const override;

  Status CheckEncoding(Encoding encoding) const override {
    return is_1_2() ? OkStatus() : Dialect::CheckEncoding(encoding);
  }
  Status CheckObject(const Object& object, Encoding encoding, std::string_view) const override;
  Status AppendEntry(const StoredObject& object, std::span<const StoredShard>, Bytes* out,
                     std::size_t* name_at, std::uint64_t* values) const override {
    *name_at = out->size();
    cbor::AppendText(*out, object.name);
    if (!HasPlanes(object)) return AppendObject(object, out, values);
    ZT_RETURN_IF_ERROR(CheckEncoding(Encoding::kPlanes));
    ZT_ASSIGN_OR_RETURN(const StoredObject planes, ToPlanes(object));
    return AppendObject(planes, out, values);
  }
  Status AppendHead(std::size_t entries, const Value::Map& attributes, std::span<const StoredShard>,
                    Bytes* out) const override {
    cbor::AppendMapHead(*out, 2 + !attributes.empty());  // sorted: objects, version, attributes
    cbor::AppendText(*out, "objects");
    cbor::AppendMapHead(*out, entries);
    return OkStatus();
  }
  Status AppendTail(const Value::Map& attributes, Bytes* out) const override {
    cbor::AppendMember(*out, "version", traits().text);
    return AppendAttributes(attributes, kRootDepth, out);
  }
  std::vector<std::byte> Footer(std::uint64_t, ManifestParts manifest) const override {
    return SizeFooter(BytesOf(manifest), traits().footer_magic);
  }

 private:
  bool is_1_2() const { return traits().version == SpecVersion::k1_2; }
  // The `dtype` of an element. In 1.2 a separate field has the `type`.
  std::optional<std::string_view> Spell(const ElementType& element) const;
  Status CheckComponent(std::string_view format, std::string_view role,
                        const ElementType& element) const;
  Status AppendComponent(const StoredObject& object, const StoredComponent& component,
                         Bytes* out) const;
  Status AppendObject(const StoredObject& object, Bytes* out, std::uint64_t* values) const;
};

Status DialectOf1x::CheckStored(const StoredObject& object,
                                const StoredComponent& component) const {
  if (!is_1_2()) return Dialect::CheckStored(object, component);
  if (!IsIndexRole(object.format, component.role) ||
      component.element == ElementType{DType::kU64, ""}) {
    return OkStatus();
  }
  return InvalidData("it is of dtype " + std::string(Name(component.element)) +
                     ", indices are u64");
}

Status DialectOf1x::CheckComplete(const Object& object) const {
  if (traits().version != SpecVersion::k1_1 || object.format != "quantized_group")
    return OkStatus();
  for (const Component& component : object.components) {
    if (component.role == "zeros") return OkStatus();
  }
  return InvalidData("component 'zeros' is missing, which version 1.1.0 requires");
}

std::optional<ElementType> DialectOf1x::ParseElement(std::string_view dtype) const {
  if (traits().version == SpecVersion::k1_0) return ParseLongName(dtype);
  if (auto element = Dialect::ParseElement(dtype); element || is_1_2()) return element;
  for (const Dtype11& row : kDtypes11) {
    if (row.text == dtype) {
      return ElementType{FindLogicalType(row.type)->storage, std::string(row.type)};
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> DialectOf1x::Spell(const ElementType& element) const {
  if (is_1_2() || element.type.empty()) return Name(element.dtype);
  for (const Dtype11& row : kDtypes11) {
    if (row.type == element.type) return row.text;
  }
  return std::nullopt;
}

Status DialectOf1x::CheckComponent(std::string_view format, std::string_view role,
                                   const ElementType& element) const {
  if (!Spell(element)) return InvalidArgument(Named() + " has no type " + Quote(Name(element)));
  if (is_1_2() && IsIndexRole(format, role) && element != ElementType{DType::kU64, ""}) {
    return InvalidArgument("component " + Quote(role) + " is " + std::string(Name(element)) +
                           ", version 1.2.0 has u64 indices only");
  }
  return OkStatus();
}

Status DialectOf1x::CheckObject(const Object& object, Encoding encoding, std::string_view) const {
  ZT_RETURN_IF_ERROR(CheckEncoding(encoding));
  // 1.2 uses this format for dense tensors in byte planes.
  if (is_1_2() && object.format == kPlanesName) {
    return InvalidArgument(Named() + " keeps the format " + Quote(object.format) + " for itself");
  }
  if (encoding == Encoding::kPlanes) {
    ZT_RETURN_IF_ERROR(CheckPlanes(object.format, object.components.size(),
                                   object.components[0].role, object.attributes));
  }
  if (!CheckComplete(object).ok()) {
    return InvalidArgument(Named() + " requires a component 'zeros' in quantized_group");
  }
  for (const Component& component : object.components) {
    if (!IsUtf8(component.element.type)) return InvalidArgument("a type is not valid UTF-8");
    ZT_RETURN_IF_ERROR(CheckComponent(object.format, component.role, component.element));
  }
  return CheckAttributes(object.attributes, kObjectDepth);
}

Status DialectOf1x::AppendComponent(const StoredObject& object, const StoredComponent& component,
                                    Bytes* out) const {
  ZT_RETURN_IF_ERROR(CheckComponent(object.format, component.role, component.element));
  ZT_RETURN_IF_ERROR(CheckEncoding(component.encoding));
  if (component.big_endian) {
    return InvalidArgument(Named() + " has no big-endian data");
  }
  const bool encoded = component.encoding != Encoding::kRaw;
  const bool has_type = is_1_2() && !component.element.type.empty();
  const bool has_size = is_1_2() && encoded;
  if (has_size && component.decoded_bytes == kUnknownSize) {
    return InvalidArgument(std::string(Name(component.encoding)) + " data needs its decoded size");
  }
  if (!encoded && component.decoded_bytes != component.length) {
    return InvalidArgument("raw data has two sizes: " + std::to_string(component.length) + " and " +
                           std::to_string(component.decoded_bytes));
  }
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(CheckDigestText(component.digest));
  // Sorted: type, dtype, digest, length, offset, encoding, uncompressed_length.
  cbor::AppendMapHead(*out, 3 + has_type + !component.digest.empty() + encoded + has_size);
  if (has_type) cbor::AppendMember(*out, "type", component.element.type);
  cbor::AppendMember(*out, "dtype", *Spell(component.element));
  if (!component.digest.empty()) cbor::AppendMember(*out, "digest", component.digest);
  cbor::AppendMember(*out, "length", component.length);
  cbor::AppendMember(*out, "offset", component.offset);
  if (encoded) cbor::AppendMember(*out, "encoding", Name(component.encoding));
  if (has_size) cbor::AppendMember(*out, "uncompressed_length", component.decoded_bytes);
  return OkStatus();
}

Status DialectOf1x::AppendObject(const StoredObject& object, Bytes* out,
                                 std::uint64_t* values) const {
  *values = CountValues(object.attributes);
  ZT_RETURN_IF_ERROR(CheckTexts(object));
  // Sorted: shape, format, attributes, components.
  cbor::AppendMapHead(*out, 3 + !object.attributes.empty());
  AppendShape(object.shape, out);
  cbor::AppendMember(*out, "format", object.format);
  ZT_RETURN_IF_ERROR(AppendAttributes(object.attributes, kObjectDepth, out));
  InlinedVector<std::string_view, 4> roles;
  for (const StoredComponent& component : object.components) roles.push_back(component.role);
  ZT_ASSIGN_OR_RETURN(const auto order, KeyOrder(roles));
  cbor::AppendText(*out, "components");
  cbor::AppendMapHead(*out, order.size());
  for (const std::size_t i : order) {
    cbor::AppendText(*out, roles[i]);
    ZT_RETURN_IF_ERROR(WithComponent(AppendComponent(object, object.components[i], out), roles[i]));
  }
  return OkStatus();
}

}  // namespace

const Dialect& Dialect1x(SpecVersion version) {
  static const DialectOf1x dialects[] = {DialectOf1x(kTraits[0]), DialectOf1x(kTraits[1]),
                                         DialectOf1x(kTraits[2])};
  return dialects[version == SpecVersion::k1_0 ? 0 : version == SpecVersion::k1_1 ? 1 : 2];
}

}  // namespace zt::format::internal
