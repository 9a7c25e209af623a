// zt.format — the model into a manifest's CBOR, and what a version can say.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.compress;
import zt.core;

namespace zt {
namespace {

namespace cbor = format_cbor;
namespace internal = format::internal;

using Bytes = std::vector<std::byte>;

// Containers that hold the attributes map itself: the root; root, objects, object; array, entry.
constexpr std::size_t kRootDepth = 1;
constexpr std::size_t kObjectDepth = 3;
constexpr std::size_t kEntryDepth = 2;

std::string VersionName(SpecVersion version) {
  return "version " + std::string(Traits(version).text);
}

Status CheckAttributes(const Value::Map& attributes, std::size_t depth) {
  if (attributes.empty()) return OkStatus();
  Bytes scratch;
  ZT_RETURN_IF_ERROR(
      Annotate(internal::AppendMap(attributes, kMaxNesting - depth, &scratch), "attributes"));
  return AttributeBudget().Take(attributes);
}

Status AppendAttributes(const Value::Map& attributes, std::size_t depth, Bytes* out) {
  if (attributes.empty()) return OkStatus();
  cbor::AppendText(*out, "attributes");
  return Annotate(internal::AppendMap(attributes, kMaxNesting - depth, out), "attributes");
}

// `order` in the order of deterministic map keys; fails where a key occurs twice.
template <typename Item, typename Key>
StatusOr<std::vector<const Item*>> SortedByKey(const std::vector<Item>& items, Key key) {
  std::vector<const Item*> sorted;
  sorted.reserve(items.size());
  for (const Item& item : items) sorted.push_back(&item);
  std::sort(sorted.begin(), sorted.end(),
            [key](const Item* a, const Item* b) { return cbor::KeyLess((*a).*key, (*b).*key); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if ((*sorted[i - 1]).*key == (*sorted[i]).*key) {
      return InvalidArgument(Quote((*sorted[i]).*key) + " occurs twice");
    }
  }
  return sorted;
}

void AppendShape(const Shape& shape, Bytes* out) {
  cbor::AppendText(*out, "shape");
  cbor::AppendArrayHead(*out, shape.size());
  for (const std::uint64_t dim : shape) cbor::AppendUint(*out, dim);
}

Status CheckComponent(std::string_view format, std::string_view role, const ElementType& element,
                      SpecVersion version) {
  if (!internal::Spell(element, version)) {
    return InvalidArgument(VersionName(version) + " has no type " + Quote(Name(element)));
  }
  if (version == SpecVersion::k1_2 && internal::IsIndexRole(format, role) &&
      element != ElementType{DType::kU64, ""}) {
    return InvalidArgument("component " + Quote(role) + " is " + std::string(Name(element)) +
                           ", version 1.2.0 has u64 indices only");
  }
  return OkStatus();
}

// What 0.1.0 asks beyond the spelling of dtypes: one component, and attributes that are custom fields.
Status CheckObject01(std::string_view format, std::size_t components, std::string_view role,
                     const Value::Map& attributes) {
  const bool sparse = format == "sparse" || format == "sparsecoo" || format == "sparsecsr";
  if (format != "dense" && !sparse) {
    return InvalidArgument("version 0.1.0 has no format " + Quote(format));
  }
  if (components != 1 || role != "data") {
    return InvalidArgument("version 0.1.0 has one component 'data' in each object");
  }
  for (const auto& [key, value] : attributes) {
    if (internal::IsReservedField01(key)) {
      return InvalidArgument("attribute " + Quote(key) +
                             " has the name of a field of version 0.1.0");
    }
  }
  return OkStatus();
}

Status CheckWritable(SpecVersion version) {
  if (Traits(version).writable) return OkStatus();
  return InvalidArgument(VersionName(version) + " can be read, not written");
}

Status AppendComponent(const StoredObject& object, const StoredComponent& component,
                       SpecVersion version, Bytes* out) {
  ZT_RETURN_IF_ERROR(CheckComponent(object.format, component.role, component.element, version));
  if (component.big_endian) {
    return InvalidArgument(VersionName(version) + " has no big-endian data");
  }
  const bool encoded = component.encoding != Encoding::kRaw;
  const bool has_type = version == SpecVersion::k1_2 && !component.element.type.empty();
  const bool has_size = version == SpecVersion::k1_2 && encoded;
  if (has_size && component.decoded_bytes == kUnknownSize) {
    return InvalidArgument(std::string(Name(component.encoding)) + " data needs its decoded size");
  }
  if (!encoded && component.decoded_bytes != component.length) {
    return InvalidArgument("raw data has two sizes: " + std::to_string(component.length) + " and " +
                           std::to_string(component.decoded_bytes));
  }
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(internal::CheckDigestForm(component.digest));
  // Sorted: type, dtype, digest, length, offset, encoding, uncompressed_length.
  cbor::AppendMapHead(*out, 3 + has_type + !component.digest.empty() + encoded + has_size);
  if (has_type) {
    cbor::AppendText(*out, "type");
    cbor::AppendText(*out, component.element.type);
  }
  cbor::AppendText(*out, "dtype");
  cbor::AppendText(*out, *internal::Spell(component.element, version));
  if (!component.digest.empty()) {
    cbor::AppendText(*out, "digest");
    cbor::AppendText(*out, component.digest);
  }
  cbor::AppendText(*out, "length");
  cbor::AppendUint(*out, component.length);
  cbor::AppendText(*out, "offset");
  cbor::AppendUint(*out, component.offset);
  if (encoded) {
    cbor::AppendText(*out, "encoding");
    cbor::AppendText(*out, Name(component.encoding));
  }
  if (has_size) {
    cbor::AppendText(*out, "uncompressed_length");
    cbor::AppendUint(*out, component.decoded_bytes);
  }
  return OkStatus();
}

Status CheckTexts(const StoredObject& object) {
  if (!IsUtf8(object.name)) return InvalidArgument("the name is not valid UTF-8");
  if (object.format.empty()) return InvalidArgument("the format is empty");
  if (!IsUtf8(object.format)) return InvalidArgument("the format is not valid UTF-8");
  if (object.shape.size() > kMaxRank) {
    return InvalidArgument("the rank exceeds " + std::to_string(kMaxRank));
  }
  if (object.components.empty()) return InvalidArgument("there is no component");
  for (const StoredComponent& component : object.components) {
    if (!IsUtf8(component.role) || !IsUtf8(component.element.type) || !IsUtf8(component.digest)) {
      return InvalidArgument("a component's role, type or digest is not valid UTF-8");
    }
  }
  return OkStatus();
}

Status AppendObject(const StoredObject& object, SpecVersion version, Bytes* out) {
  ZT_RETURN_IF_ERROR(CheckTexts(object));
  // Sorted: shape, format, attributes, components.
  cbor::AppendMapHead(*out, 3 + !object.attributes.empty());
  AppendShape(object.shape, out);
  cbor::AppendText(*out, "format");
  cbor::AppendText(*out, object.format);
  ZT_RETURN_IF_ERROR(AppendAttributes(object.attributes, kObjectDepth, out));
  ZT_ASSIGN_OR_RETURN(const auto components,
                      SortedByKey(object.components, &StoredComponent::role));
  cbor::AppendText(*out, "components");
  cbor::AppendMapHead(*out, components.size());
  for (const StoredComponent* component : components) {
    cbor::AppendText(*out, component->role);
    if (auto status = AppendComponent(object, *component, version, out); !status.ok()) {
      return Annotate(status, "component " + Quote(component->role));
    }
  }
  return OkStatus();
}

// One field of a 0.1.0 entry, already encoded.
using Field = std::pair<std::string, Bytes>;

// Appends the entry without the name's text, which belongs at `*name_at`.
Status AppendEntry01(const StoredObject& object, Bytes* out, std::size_t* name_at) {
  ZT_RETURN_IF_ERROR(CheckTexts(object));
  const StoredComponent& component = object.components[0];
  ZT_RETURN_IF_ERROR(
      CheckObject01(object.format, object.components.size(), component.role, object.attributes));
  ZT_RETURN_IF_ERROR(
      CheckComponent(object.format, component.role, component.element, SpecVersion::k0_1));
  if (component.encoding != Encoding::kRaw && component.big_endian) {
    return InvalidArgument(std::string(Name(component.encoding)) + " data cannot be big-endian");
  }
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(internal::CheckDigestForm(component.digest));

  std::vector<Field> fields;
  const auto add = [&fields](std::string_view key, const Value& value) -> Status {
    Bytes bytes;
    ZT_RETURN_IF_ERROR(internal::AppendValue(value, kMaxNesting - kEntryDepth, &bytes));
    fields.emplace_back(std::string(key), std::move(bytes));
    return OkStatus();
  };
  Value::Array shape(object.shape.begin(), object.shape.end());
  fields.emplace_back("name", Bytes());
  ZT_RETURN_IF_ERROR(add("offset", component.offset));
  ZT_RETURN_IF_ERROR(add("size", component.length));
  ZT_RETURN_IF_ERROR(add("dtype", *internal::Spell(component.element, SpecVersion::k0_1)));
  ZT_RETURN_IF_ERROR(add("shape", std::move(shape)));
  ZT_RETURN_IF_ERROR(add("encoding", Name(component.encoding)));
  ZT_RETURN_IF_ERROR(add("layout", object.format));
  if (component.big_endian) ZT_RETURN_IF_ERROR(add("data_endianness", "big"));
  if (!component.digest.empty()) ZT_RETURN_IF_ERROR(add("checksum", component.digest));
  for (const auto& [key, value] : object.attributes) {
    if (!IsUtf8(key)) return InvalidArgument("an attribute's name is not valid UTF-8");
    if (auto status = add(key, value); !status.ok()) return Annotate(status, Quote(key));
  }
  ZT_ASSIGN_OR_RETURN(const auto sorted, SortedByKey(fields, &Field::first));
  cbor::AppendMapHead(*out, sorted.size());
  for (const Field* field : sorted) {
    cbor::AppendText(*out, field->first);
    if (field->first == "name") *name_at = out->size();
    out->insert(out->end(), field->second.begin(), field->second.end());
  }
  return OkStatus();
}

// The least bytes of a block: a manifest that grows is never copied.
constexpr std::size_t kBlockBytes = 256 << 10;

Status TooLarge(std::uint64_t bytes) {
  return InvalidArgument("the manifest has " + std::to_string(bytes) +
                         " bytes or more, the limit is 1 GiB");
}

}  // namespace

Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version) {
  (void)digest_algorithm;  // the set of algorithms is open in every version
  ZT_RETURN_IF_ERROR(CheckWritable(version));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  if (!IsUtf8(object.format)) return InvalidArgument("the format is not valid UTF-8");
  if (version == SpecVersion::k0_1) {
    ZT_RETURN_IF_ERROR(CheckObject01(object.format, object.components.size(),
                                     object.components[0].role, object.attributes));
  }
  if (encoding == Encoding::kPlanes) {
    ZT_RETURN_IF_ERROR(internal::CheckPlanes(object.format, object.components.size(),
                                             object.components[0].role, object.attributes,
                                             version));
  }
  ZT_RETURN_IF_ERROR(internal::CheckRoles(object, version));
  for (const Component& component : object.components) {
    if (!IsUtf8(component.element.type)) return InvalidArgument("a type is not valid UTF-8");
    ZT_RETURN_IF_ERROR(CheckComponent(object.format, component.role, component.element, version));
  }
  return CheckAttributes(object.attributes,
                         version == SpecVersion::k0_1 ? kEntryDepth - 1 : kObjectDepth);
}

Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version) {
  ZT_RETURN_IF_ERROR(CheckWritable(version));
  if (version == SpecVersion::k0_1 && !root_attributes.empty()) {
    return InvalidArgument("version 0.1.0 has no attributes of the whole file, there is " +
                           Quote(root_attributes[0].first) + "; --no-metadata leaves them out");
  }
  return CheckAttributes(root_attributes, kRootDepth);
}

ManifestEncoder::ManifestEncoder(SpecVersion version) : version_(version) {}

Status ManifestEncoder::Add(const StoredObject& object) {
  ZT_RETURN_IF_ERROR(CheckWritable(version_));
  if (internal::HasPlanes(object)) {
    ZT_ASSIGN_OR_RETURN(const StoredObject planes, internal::ToPlanes(object, version_));
    return Add(planes);
  }
  Bytes& out = RoomyBlock();
  Entry entry;
  entry.block = static_cast<std::uint32_t>(blocks_.size() - 1);
  entry.name = static_cast<std::uint32_t>(out.size());
  const auto name = std::as_bytes(std::span(object.name));
  out.insert(out.end(), name.begin(), name.end());
  entry.head = static_cast<std::uint32_t>(out.size());
  std::size_t name_at = out.size();
  auto status = version_ == SpecVersion::k0_1 ? AppendEntry01(object, &out, &name_at)
                                              : AppendObject(object, version_, &out);
  const std::uint64_t size = out.size() - entry.name;
  if (status.ok() && bytes_ + size > kMaxManifestBytes) status = TooLarge(bytes_ + size);
  const std::uint64_t values = status.ok() ? internal::CountValues(object.attributes) : 0;
  if (status.ok() && values_ + values > kMaxAttributeValues) status = internal::TooManyValues();
  if (!status.ok()) {
    out.resize(entry.name);
    return status;
  }
  entry.tail = static_cast<std::uint32_t>(name_at);
  entry.end = static_cast<std::uint32_t>(out.size());
  bytes_ += size;
  values_ += values;
  entry.values = static_cast<std::uint32_t>(values);
  entries_.push_back(entry);
  return OkStatus();
}

void ManifestEncoder::AddAlias(std::string name, std::size_t index) {
  aliases_.push_back({std::move(name), index});
}

Bytes& ManifestEncoder::RoomyBlock() {
  if (blocks_.empty() || blocks_.back().size() >= kBlockBytes) {
    blocks_.emplace_back().reserve(kBlockBytes + kBlockBytes / 16);
  }
  return blocks_.back();
}

std::span<const std::byte> ManifestEncoder::Part(const Entry& entry, std::uint32_t begin,
                                                 std::uint32_t end) const {
  return std::span(blocks_[entry.block]).subspan(begin, end - begin);
}

// The names in the order of their entries; of 1.x that of deterministic map keys, by length and then by bytes. Fails
// where one occurs twice.
StatusOr<std::vector<ManifestEncoder::Line>> ManifestEncoder::Lines() const {
  std::vector<Line> lines;
  lines.reserve(entries_.size() + aliases_.size());
  for (const Entry& entry : entries_) {
    const auto name = Part(entry, entry.name, entry.head);
    lines.push_back({{reinterpret_cast<const char*>(name.data()), name.size()}, &entry});
  }
  for (const Alias& alias : aliases_) lines.push_back({alias.name, &entries_[alias.index]});

  // Names of one length are mostly in order already: sources list them so.
  std::map<std::size_t, std::vector<Line>> by_length;
  for (const Line& line : lines) by_length[line.name.size()].push_back(line);
  if (version_ != SpecVersion::k0_1) lines.clear();
  for (auto& [length, group] : by_length) {
    const auto less = [](const Line& a, const Line& b) { return a.name < b.name; };
    if (!std::is_sorted(group.begin(), group.end(), less)) {
      std::sort(group.begin(), group.end(), less);
    }
    for (std::size_t i = 1; i < group.size(); ++i) {
      if (group[i - 1].name == group[i].name) {
        return InvalidArgument(Quote(group[i].name) + " occurs twice");
      }
    }
    if (version_ != SpecVersion::k0_1) lines.insert(lines.end(), group.begin(), group.end());
  }
  return lines;
}

StatusOr<std::vector<std::byte>> ManifestEncoder::Finish(const Value::Map& attributes) const {
  ZT_RETURN_IF_ERROR(CheckExpressible(attributes, version_));
  ZT_ASSIGN_OR_RETURN(const std::vector<Line> lines, Lines());
  std::uint64_t bytes = 0;  // but for some heads and the root
  std::uint64_t values = internal::CountValues(attributes);
  for (const Line& line : lines) {
    values += line.entry->values;
    if (values > kMaxAttributeValues) return internal::TooManyValues();
    bytes += line.name.size() + line.entry->end - line.entry->head;
    if (bytes > kMaxManifestBytes) return TooLarge(bytes);
  }
  Bytes out;
  out.reserve(bytes + lines.size() * 2 + 4096);
  const bool array = version_ == SpecVersion::k0_1;
  if (array) {
    cbor::AppendArrayHead(out, lines.size());
  } else {  // sorted: objects, version, attributes
    cbor::AppendMapHead(out, 2 + !attributes.empty());
    cbor::AppendText(out, "objects");
    cbor::AppendMapHead(out, lines.size());
  }
  for (const auto& [name, entry] : lines) {
    const auto head = Part(*entry, entry->head, entry->tail);
    const auto tail = Part(*entry, entry->tail, entry->end);
    out.insert(out.end(), head.begin(), head.end());
    cbor::AppendText(out, name);
    out.insert(out.end(), tail.begin(), tail.end());
  }
  if (!array) {
    cbor::AppendText(out, "version");
    cbor::AppendText(out, Traits(version_).text);
    ZT_RETURN_IF_ERROR(AppendAttributes(attributes, kRootDepth, &out));
  }
  if (out.size() > kMaxManifestBytes) return TooLarge(out.size());
  return out;
}

StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version) {
  ManifestEncoder encoder(version);
  for (const StoredObject& object : manifest.objects) {
    ZT_RETURN_IF_ERROR(AnnotateTensor(encoder.Add(object), object.name));
  }
  return encoder.Finish(manifest.attributes);
}

}  // namespace zt
