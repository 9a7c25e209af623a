// zt.format:dialect — version 0.1.0: an array of entries with one blob each.
module;

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

// Nesting depth of an entry's fields: array, entry.
constexpr std::size_t kEntryDepth = 2;
// The least size of an entry, which limits the count that a head can claim.
constexpr std::size_t kLeastEntryBytes = 48;

constexpr std::string_view kMagic = "ZTEN0001";
// Never change this: existing files depend on it.
constexpr ContainerTraits kTraits = {.version = SpecVersion::k0_1,
                                     .text = "0.1.0",
                                     .header_magic = kMagic,
                                     .footer_magic = "",
                                     .alignment = 64,
                                     .placement = 64,
                                     .writable = true,
                                     .mixed_sparse = true,
                                     .loose_bools = true,
                                     .free_padding = true};

// The known fields of an entry. Those up to the encoding are required.
enum EntryField : std::size_t {
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
constexpr std::string_view kEntryFields[] = {"name",   "offset",          "size",
                                             "dtype",  "shape",           "encoding",
                                             "layout", "data_endianness", "checksum"};
// True if a custom field cannot have this name.
bool IsReserved(std::string_view key) {
  return std::find(std::begin(kEntryFields), std::end(kEntryFields), key) != std::end(kEntryFields);
}

class Decoder01 : private FieldReader {
 public:
  Decoder01(const Dialect& dialect, std::span<const std::byte> bytes)
      : FieldReader(bytes, kMaxAttributeValues), dialect_(dialect) {}

  StatusOr<Manifest> Decode() {
    ZT_RETURN_IF_ERROR(DecodeIndex());
    ZT_RETURN_IF_ERROR(CheckEnd());
    ZT_RETURN_IF_ERROR(CheckNames(manifest_));
    return std::move(manifest_);
  }

 private:
  Status DecodeIndex();
  Status DecodeEntry(StoredObject& object);
  Status DecodeCustom(std::string name, StoredObject& object);
  Status DecodeField(std::size_t field, StoredObject& object, StoredComponent& component);

  const Dialect& dialect_;
  Manifest manifest_;
};

Status Decoder01::DecodeIndex() {
  manifest_.version = SpecVersion::k0_1;
  const cbor::Item head = reader_.Next();
  if (head.kind != cbor::Kind::kArray) return Expected(head, "index", "an array");
  cbor::Container array = cbor::Open(head);
  manifest_.objects.reserve(
      std::min<std::uint64_t>(array.left, reader_.remaining() / kLeastEntryBytes));
  while (reader_.More(array)) {
    StoredObject& object = manifest_.objects.emplace_back();
    if (auto status = DecodeEntry(object); !status.ok()) {
      if (!object.name.empty()) return WithTensor(status, object.name);
      return Annotate(status, "entry " + std::to_string(manifest_.objects.size() - 1));
    }
  }
  return OkStatus();
}

Status Decoder01::DecodeEntry(StoredObject& object) {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("entry", &map));
  StoredComponent& component = object.components.emplace_back();
  component.role = "data";
  FieldSet fields(kEntryFields);
  std::size_t warnings = manifest_.warnings.size();
  while (reader_.More(map)) {
    std::string_view key;
    ZT_RETURN_IF_ERROR(ReadKey(&key));
    std::size_t field;
    ZT_RETURN_IF_ERROR(fields.Add(key, &field));
    if (field < std::size(kEntryFields)) {
      ZT_RETURN_IF_ERROR(DecodeField(field, object, component));
    } else {
      ZT_RETURN_IF_ERROR(DecodeCustom(std::string(key), object));
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kEncoding + 1));
  for (; warnings < manifest_.warnings.size(); ++warnings) {
    manifest_.warnings[warnings].insert(0, TensorContext(object.name) + ": ");
  }
  if (component.big_endian && component.encoding != Encoding::kRaw &&
      ByteWidth(component.element.dtype) > 1) {
    return Unsupported("data_endianness 'big' on " + std::string(Name(component.encoding)) +
                       " data, for which 0.1.0 gives it no meaning");
  }
  if (component.big_endian && object.format != "dense" && ByteWidth(component.element.dtype) > 1) {
    component.undecodable = "it is sparse with data_endianness 'big', which 0.1.0 does not define";
  }
  component.decoded_bytes =
      component.encoding == Encoding::kRaw ? component.length : SizeFromShape(object, component);
  return OkStatus();
}

// Parsers must ignore custom fields that they do not understand (0.1 §4), including those that an
// attribute cannot hold.
Status Decoder01::DecodeCustom(std::string name, StoredObject& object) {
  const std::size_t at = reader_.position();
  auto value = ReadAttribute(name, kEntryDepth);
  if (value.ok()) {
    object.attributes.emplace_back(std::move(name), *std::move(value));
    return OkStatus();
  }
  reader_.Rewind(at);
  ZT_RETURN_IF_ERROR(SkipValue(kEntryDepth));
  manifest_.warnings.push_back("a custom field is ignored: " + Message(value.status()));
  return OkStatus();
}

// Reads the value of one of kEntryFields.
Status Decoder01::DecodeField(std::size_t field, StoredObject& object, StoredComponent& component) {
  switch (field) {
    case kName:
      return ReadText("name", &object.name);
    case kOffset:
      return ReadUint("offset", &component.offset);
    case kSize:
      return ReadUint("size", &component.length);
    case kDtype:
      return ReadDtype(dialect_, StatusCode::kUnimplemented, &component.element);
    case kShape:
      return ReadShape(&object.shape);
    case kEncoding:
      return ReadEncoding(StatusCode::kUnimplemented, &component.encoding);
    case kLayout:
      ZT_RETURN_IF_ERROR(ReadText("layout", &object.format));
      return object.format.empty() ? InvalidData("'layout' is empty") : OkStatus();
    case kEndian: {
      std::string text;
      ZT_RETURN_IF_ERROR(ReadOptionalText("data_endianness", &text));
      if (!text.empty() && text != "little" && text != "big") {
        return InvalidData("data_endianness " + Quote(text) + " is neither 'little' nor 'big'");
      }
      component.big_endian = text == "big";
      return OkStatus();
    }
    default:  // kChecksum
      return ReadDigest("checksum", &component.digest);
  }
}

// Checks an entry's requirements other than the names of dtypes: one component, and attributes that
// are custom fields.
Status CheckEntry(std::string_view format, std::size_t components, std::string_view role,
                  const Value::Map& attributes) {
  const bool sparse = format == "sparse" || format == "sparsecoo" || format == "sparsecsr";
  if (format != "dense" && !sparse) {
    return InvalidArgument("version 0.1.0 has no format " + Quote(format));
  }
  if (components != 1 || role != "data") {
    return InvalidArgument("version 0.1.0 has one component 'data' in each object");
  }
  for (const auto& [key, value] : attributes) {
    if (IsReserved(key)) {
      return InvalidArgument("attribute " + Quote(key) +
                             " has the name of a field of version 0.1.0");
    }
  }
  return OkStatus();
}

class DialectOf01 final : public Dialect {
 public:
  DialectOf01() : Dialect(kTraits) {}

  StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                           std::uint64_t file_bytes) const override {
    return LocateBySize(SpecVersion::k0_1, "", tail, file_bytes);
  }
  StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const override {
    return Decoder01(*this, bytes).Decode();
  }
  std::optional<ElementType> ParseElement(std::string_view dtype) const override {
    return ParseLongName(dtype);
  }

  Status CheckObject(const Object& object, Encoding encoding, std::string_view) const override;
  Status CheckRoot(const Value::Map& attributes) const override {
    if (attributes.empty()) return OkStatus();
    return WithAdvice(InvalidArgument(Named() + " has no attributes of the whole file, there is " +
                                      Quote(attributes[0].first)),
                      Advice::kMetadata);
  }
  Status AppendEntry(const StoredObject& object, std::span<const StoredShard>, Bytes* out,
                     std::size_t* name_at, std::uint64_t* values) const override;
  bool SortsEntries() const override { return false; }
  Status AppendHead(std::size_t entries, const Value::Map&, std::span<const StoredShard>,
                    Bytes* out) const override {
    cbor::AppendArrayHead(*out, entries);
    return OkStatus();
  }
  Status AppendTail(const Value::Map&, Bytes*) const override { return OkStatus(); }
  std::vector<std::byte> Footer(std::uint64_t, ManifestParts manifest) const override {
    return SizeFooter(BytesOf(manifest), "");
  }

 private:
  Status CheckElement(const ElementType& element) const {
    if (LongName(element)) return OkStatus();
    return InvalidArgument(Named() + " has no type " + Quote(Name(element)));
  }
};

Status DialectOf01::CheckObject(const Object& object, Encoding encoding, std::string_view) const {
  ZT_RETURN_IF_ERROR(CheckEntry(object.format, object.components.size(), object.components[0].role,
                                object.attributes));
  ZT_RETURN_IF_ERROR(CheckEncoding(encoding));
  for (const Component& component : object.components) {
    if (!IsUtf8(component.element.type)) return InvalidArgument("a type is not valid UTF-8");
    ZT_RETURN_IF_ERROR(CheckElement(component.element));
  }
  return CheckAttributes(object.attributes, kEntryDepth - 1);
}

Status DialectOf01::AppendEntry(const StoredObject& object, std::span<const StoredShard>,
                                Bytes* out, std::size_t* name_at, std::uint64_t* values) const {
  *values = CountValues(object.attributes);
  ZT_RETURN_IF_ERROR(CheckTexts(object));
  const StoredComponent& component = object.components[0];
  ZT_RETURN_IF_ERROR(
      CheckEntry(object.format, object.components.size(), component.role, object.attributes));
  ZT_RETURN_IF_ERROR(CheckEncoding(component.encoding));
  ZT_RETURN_IF_ERROR(CheckElement(component.element));
  if (component.encoding != Encoding::kRaw && component.big_endian) {
    return InvalidArgument(std::string(Name(component.encoding)) + " data cannot be big-endian");
  }
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(CheckDigestText(component.digest));

  std::vector<std::string> keys;
  std::vector<Bytes> fields;  // encoded, in the order of `keys`
  const auto add = [&](std::string_view key, const Value& value) -> Status {
    Bytes bytes;
    ZT_RETURN_IF_ERROR(AppendValue(value, kMaxNesting - kEntryDepth, &bytes));
    keys.emplace_back(key);
    fields.push_back(std::move(bytes));
    return OkStatus();
  };
  Value::Array shape(object.shape.begin(), object.shape.end());
  ZT_RETURN_IF_ERROR(add("name", object.name));
  ZT_RETURN_IF_ERROR(add("offset", component.offset));
  ZT_RETURN_IF_ERROR(add("size", component.length));
  ZT_RETURN_IF_ERROR(add("dtype", *LongName(component.element)));
  ZT_RETURN_IF_ERROR(add("shape", std::move(shape)));
  ZT_RETURN_IF_ERROR(add("encoding", Name(component.encoding)));
  ZT_RETURN_IF_ERROR(add("layout", object.format));
  if (component.big_endian) ZT_RETURN_IF_ERROR(add("data_endianness", "big"));
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(add("checksum", component.digest));
  for (const auto& [key, value] : object.attributes) {
    if (!IsUtf8(key)) return InvalidArgument("an attribute's name is not valid UTF-8");
    if (auto status = add(key, value); !status.ok()) return Annotate(status, Quote(key));
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  ZT_ASSIGN_OR_RETURN(const auto order, KeyOrder(views));
  cbor::AppendMapHead(*out, order.size());
  for (const std::size_t i : order) {
    cbor::AppendText(*out, keys[i]);
    if (keys[i] == "name") *name_at = out->size();
    out->insert(out->end(), fields[i].begin(), fields[i].end());
  }
  return OkStatus();
}

}  // namespace

const Dialect& Dialect01() {
  static const DialectOf01 dialect;
  return dialect;
}

}  // namespace zt::format::internal
