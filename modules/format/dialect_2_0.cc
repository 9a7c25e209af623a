// zt.format:dialect — version 2.0: a manifest that is a blob, guarded by the footer; digests over decoded bytes.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import :v2;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt::format::internal {

namespace cbor = format_cbor;

namespace {

constexpr std::string_view kMagic = "\x89ZT2\r\n\x1a\n";
// Never change this: files in the world depend on it.
constexpr ContainerTraits kTraits = {.version = SpecVersion::k2_0,
                                     .text = "2.0",
                                     .header_magic = kMagic,
                                     .footer_magic = kMagic,
                                     .alignment = 4096,
                                     .placement = 65536,
                                     .writable = true,
                                     .manifest_is_blob = true,
                                     .digests_decoded = true,
                                     .digest = DigestKind::kXxh3,
                                     .max_frame_bytes = std::uint64_t{16} << 20,
                                     .canonical = true,
                                     .equal_frames = true,
                                     .shard_table = true,
                                     .unique_indices = true,
                                     .u32_indices = true};
constexpr std::uint64_t kFooterVersion = 2;

constexpr std::size_t kMostLevels = 32;       // of maps and arrays, the root included (2.0 §3.1)
constexpr std::size_t kMostShardName = 64;    // 2.0 §7.1
constexpr std::size_t kMostNameBytes = 1024;  // 2.0 §3.5

// The name an encoding has in a part; empty where the version has none for it.
std::string_view NameOf(Encoding encoding) {
  if (encoding == Encoding::kZstd) return "zt.zstd-seekable/1";
  return encoding == Encoding::kPlanes ? kPlanesName : std::string_view();
}

Status CheckName(std::string_view what, std::string_view name) {
  const std::string begin = std::string(what) + " " + Quote(name);
  if (!IsUtf8(name)) return InvalidArgument(begin + " is not valid UTF-8");
  if (name.empty()) return InvalidArgument("version 2.0 has no empty names, " + begin + " is");
  if (name.size() > kMostNameBytes) {
    return InvalidArgument(begin + " has " + std::to_string(name.size()) +
                           " bytes, version 2.0 has names of at most 1024");
  }
  if (name.find('\0') != name.npos) {
    return InvalidArgument(begin + " holds U+0000, which version 2.0 does not allow");
  }
  return OkStatus();
}

// Whether a value that lies within `levels` containers nests no deeper than it may, and all its keys are names.
Status CheckValue(const Value& value, std::size_t levels) {
  const Value::Array* const array = value.AsArray();
  const Value::Map* const map = value.AsMap();
  if (array == nullptr && map == nullptr) return OkStatus();
  if (levels == kMostLevels) {
    return InvalidArgument(
        "the attributes nest deeper than version 2.0 allows: 32 levels from the "
        "manifest's root");
  }
  if (array != nullptr) {
    for (const Value& each : *array) ZT_RETURN_IF_ERROR(CheckValue(each, levels + 1));
    return OkStatus();
  }
  for (const auto& [key, member] : *map) {
    ZT_RETURN_IF_ERROR(CheckName("the key", key));
    ZT_RETURN_IF_ERROR(CheckValue(member, levels + 1));
  }
  return OkStatus();
}

Status CheckAttributesV2(const Value::Map& attributes, std::size_t levels) {
  ZT_RETURN_IF_ERROR(CheckAttributes(attributes, levels));
  for (const auto& [key, value] : attributes) {
    ZT_RETURN_IF_ERROR(CheckName("the attribute", key));
    if (auto status = CheckValue(value, levels + 1); !status.ok()) {
      return Annotate(status, Quote(key));
    }
  }
  return OkStatus();
}

// No product of leading dimensions may overflow, not even where another dimension is 0.
Status CheckShape(const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : shape) {
    const auto next = CheckedMul(count, dim);
    if (!next) return InvalidArgument("the dimensions of shape " + ToString(shape) + " overflow");
    count = *next;
  }
  return OkStatus();
}

// The part field `planes`.
Value::Map PlanesOf(const CodecParameters& parameters) {
  return {{"rotate", std::uint32_t{parameters.rotate}},
          {"group", parameters.group},
          {"chunk", parameters.chunk}};
}

Status CheckDigestText(std::string_view digest) {
  ZT_ASSIGN_OR_RETURN(const DigestText text, ParseDigest(digest));
  const bool known = text.kind == DigestKind::kXxh3 || text.kind == DigestKind::kSha256;
  if (known && text.canonical == digest) return OkStatus();
  return InvalidArgument("digest " + Quote(digest) +
                         " is none of version 2.0, which has xxh3 and sha256 in lower case");
}

class DialectOf20 final : public Dialect {
 public:
  DialectOf20() : Dialect(kTraits) {}

  StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                           std::uint64_t file_bytes) const override {
    return LocateV2(tail, file_bytes);
  }
  StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const override {
    return DecodeV2(bytes);
  }
  Status CheckLayout(const Manifest& manifest, std::uint64_t data_end) const override {
    return CheckBlobsV2(manifest, data_end);
  }

  Status CheckEncoding(Encoding encoding) const override {
    if (encoding == Encoding::kRaw || !NameOf(encoding).empty()) return OkStatus();
    return InvalidArgument(Named() + " has no encoding " + Quote(Name(encoding)));
  }
  Status CheckDigest(DigestKind kind) const override {
    if (kind != DigestKind::kCrc32c) return OkStatus();
    return InvalidArgument(Named() + " has no digest crc32c; it has xxh3 and sha256");
  }
  Status CheckObject(const Object& object, Encoding encoding,
                     std::string_view digest) const override;
  Status CheckRoot(const Value::Map& attributes) const override {
    return CheckAttributesV2(attributes, kRootDepth);
  }
  Status CheckShard(const StoredShard& shard) const override;
  Status AppendEntry(const StoredObject& object, std::span<const StoredShard> shards, Bytes* out,
                     std::size_t* name_at, std::uint64_t* values) const override;
  Status AppendHead(std::size_t entries, const Value::Map& attributes,
                    std::span<const StoredShard> shards, Bytes* out) const override;
  Status AppendTail(const Value::Map& attributes, Bytes* out) const override {
    return AppendAttributes(attributes, kRootDepth, out);
  }
  std::vector<std::byte> Footer(std::uint64_t offset, ManifestParts manifest) const override;

 private:
  // An object as the version says it, if it can.
  StatusOr<Object> Say(Object object) const;
  Status AppendPart(const ElementType& element, const StoredComponent& stored,
                    std::span<const StoredShard> shards, Bytes* out) const;
};

Status DialectOf20::CheckShard(const StoredShard& shard) const {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (shard.name.empty() || shard.name.size() > kMostShardName || shard.name[0] == '.' ||
      !std::ranges::all_of(shard.name, allowed)) {
    return InvalidArgument("the shard name " + Quote(shard.name) +
                           " is none of version 2.0, which has names of 1 to 64 letters, digits, "
                           "'.', '_' and '-' that do not begin with '.'");
  }
  return CheckDigestText(shard.digest);
}

Status DialectOf20::AppendHead(std::size_t entries, const Value::Map& attributes,
                               std::span<const StoredShard> shards, Bytes* out) const {
  // Sorted: shards, objects, attributes.
  cbor::AppendMapHead(*out, std::size_t{1} + !attributes.empty() + !shards.empty());
  if (!shards.empty()) {
    std::vector<std::string_view> names;
    names.reserve(shards.size());
    for (const StoredShard& shard : shards) names.push_back(shard.name);
    ZT_ASSIGN_OR_RETURN(const auto order, KeyOrder(names));
    cbor::AppendText(*out, "shards");
    cbor::AppendMapHead(*out, order.size());
    for (const std::size_t i : order) {
      cbor::AppendText(*out, names[i]);
      cbor::AppendMapHead(*out, 2);
      cbor::AppendText(*out, "size");
      cbor::AppendUint(*out, shards[i].bytes);
      cbor::AppendText(*out, "digest");
      cbor::AppendText(*out, shards[i].digest);
    }
  }
  cbor::AppendText(*out, "objects");
  cbor::AppendMapHead(*out, entries);
  return OkStatus();
}

StatusOr<Object> DialectOf20::Say(Object object) const {
  ZT_RETURN_IF_ERROR(CheckName("the name", object.name));
  for (const Component& component : object.components) {
    ZT_RETURN_IF_ERROR(CheckName("the component", component.role));
    if (!IsUtf8(component.element.type)) return InvalidArgument("a type is not valid UTF-8");
  }
  ZT_RETURN_IF_ERROR(CheckShape(object.shape));
  ZT_ASSIGN_OR_RETURN(Object said, ToV2(std::move(object)));
  ZT_RETURN_IF_ERROR(CheckShape(said.shape));
  ZT_RETURN_IF_ERROR(CheckAttributesV2(said.attributes, kObjectDepth));
  return said;
}

Status DialectOf20::CheckObject(const Object& object, Encoding encoding,
                                std::string_view digest) const {
  ZT_RETURN_IF_ERROR(CheckEncoding(encoding));
  if (const auto kind = ParseDigestKind(digest)) ZT_RETURN_IF_ERROR(CheckDigest(*kind));
  return Say(object).status();
}

Status DialectOf20::AppendEntry(const StoredObject& object, std::span<const StoredShard> shards,
                                Bytes* out, std::size_t* name_at, std::uint64_t* values) const {
  ZT_RETURN_IF_ERROR(CheckTexts(object));
  ZT_ASSIGN_OR_RETURN(const Object said, Say(Declare(object)));
  *values = CountValues(said.attributes);
  *name_at = out->size();
  cbor::AppendText(*out, object.name);
  // Sorted: parts, shape, layout, attributes.
  cbor::AppendMapHead(*out, 3 + !said.attributes.empty());
  InlinedVector<std::string_view, 4> roles;
  for (const Component& component : said.components) roles.push_back(component.role);
  ZT_ASSIGN_OR_RETURN(const auto order, KeyOrder(roles));
  cbor::AppendText(*out, "parts");
  cbor::AppendMapHead(*out, order.size());
  for (const std::size_t i : order) {
    cbor::AppendText(*out, roles[i]);
    const StoredComponent& stored = object.components[i];
    const Status status = AppendPart(said.components[i].element, stored, shards, out);
    if (!status.ok()) return Annotate(status, "component " + Quote(roles[i]));
    if (stored.encoding == Encoding::kPlanes) *values += CountValues(PlanesOf(stored.parameters));
  }
  AppendShape(said.shape, out);
  cbor::AppendText(*out, "layout");
  cbor::AppendText(*out, said.format);
  return AppendAttributes(said.attributes, kObjectDepth, out);
}

Status DialectOf20::AppendPart(const ElementType& element, const StoredComponent& stored,
                               std::span<const StoredShard> shards, Bytes* out) const {
  ZT_RETURN_IF_ERROR(CheckEncoding(stored.encoding));
  if (stored.big_endian) return InvalidArgument(Named() + " has no big-endian data");
  const bool encoded = stored.encoding != Encoding::kRaw;
  const bool planes = stored.encoding == Encoding::kPlanes;
  if (stored.decoded_bytes == kUnknownSize) return InvalidArgument("its decoded size is not known");
  if (!encoded && stored.decoded_bytes != stored.length) {
    return InvalidArgument("raw data has two sizes: " + std::to_string(stored.length) + " and " +
                           std::to_string(stored.decoded_bytes));
  }
  if (!stored.digest.empty()) ZT_RETURN_IF_ERROR(CheckDigestText(stored.digest));
  // Sorted: blob, type, dtype, shard, digest, planes, encoding, decoded_length.
  cbor::AppendMapHead(*out, 2 + !element.type.empty() + (stored.shard != 0) +
                                !stored.digest.empty() + planes + 2 * std::size_t{encoded});
  cbor::AppendText(*out, "blob");
  cbor::AppendArrayHead(*out, 2);
  cbor::AppendUint(*out, stored.offset);
  cbor::AppendUint(*out, stored.length);
  if (!element.type.empty()) {
    cbor::AppendText(*out, "type");
    cbor::AppendText(*out, element.type);
  }
  cbor::AppendText(*out, "dtype");
  cbor::AppendText(*out, Name(element.dtype));
  if (stored.shard != 0) {
    cbor::AppendText(*out, "shard");
    cbor::AppendText(*out, shards[stored.shard - 1].name);
  }
  if (!stored.digest.empty()) {
    cbor::AppendText(*out, "digest");
    cbor::AppendText(*out, stored.digest);
  }
  if (planes) {  // a field of ours, which other readers pass over
    cbor::AppendText(*out, "planes");
    ZT_RETURN_IF_ERROR(AppendMap(PlanesOf(stored.parameters), 1, out));
  }
  if (encoded) {
    cbor::AppendText(*out, "encoding");
    cbor::AppendText(*out, NameOf(stored.encoding));
    cbor::AppendText(*out, "decoded_length");
    cbor::AppendUint(*out, stored.decoded_bytes);
  }
  return OkStatus();
}

std::vector<std::byte> DialectOf20::Footer(std::uint64_t offset, ManifestParts manifest) const {
  std::vector<std::byte> out;
  const auto append = [&out](std::uint64_t value, std::size_t width) {
    out.resize(out.size() + width);
    zt::internal::StoreLittle(value, width, out.data() + out.size() - width);
  };
  append(offset, 8);
  append(BytesOf(manifest), 8);
  append(Xxh3(manifest), 8);
  append(kFooterVersion, 4);
  append(0, 4);  // reserved
  for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
  return out;
}

}  // namespace

const Dialect& Dialect20() {
  static const DialectOf20 dialect;
  return dialect;
}

}  // namespace zt::format::internal
