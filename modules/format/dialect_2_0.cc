// zt.format:dialect — version 2.0: the manifest is a blob whose hash is in the footer; digests
// cover decoded bytes.
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
// Never change this: existing files depend on it.
constexpr ContainerTraits kTraits = {.version = SpecVersion::k2_0,
                                     .text = "2.0",
                                     .header_magic = kMagic,
                                     .footer_magic = kMagic,
                                     .alignment = 4096,
                                     .placement = 65536,
                                     .writable = true,
                                     .free_padding = true,
                                     .manifest_is_blob = true,
                                     .digests_decoded = true,
                                     .digest = DigestKind::kXxh3,
                                     .max_frame_bytes = std::uint64_t{16} << 20,
                                     .canonical = true,
                                     .equal_frames = true,
                                     .shard_table = true,
                                     .unique_indices = true,
                                     .files = true,
                                     .u32_indices = true};
constexpr std::uint64_t kFooterVersion = 2;
constexpr std::size_t kFooterBytes = 40;  // 2.0 §2.3

// The name of an encoding in a part; empty if the version has none.
std::string_view NameOf(Encoding encoding) {
  if (encoding == Encoding::kZstd) return kSeekableV2;
  return encoding == Encoding::kPlanes ? kPlanesName : std::string_view();
}

// Fails if a value inside `levels` containers nests too deep.
Status CheckValue(const Value& value, std::size_t levels) {
  const Value::Array* const array = value.AsArray();
  const Value::Map* const map = value.AsMap();
  if (array == nullptr && map == nullptr) return OkStatus();
  if (levels == kMaxNestingV2) {
    return InvalidArgument(
        "the attributes nest deeper than version 2.0 allows: 32 levels from the "
        "manifest's root");
  }
  if (array != nullptr) {
    for (const Value& each : *array) ZT_RETURN_IF_ERROR(CheckValue(each, levels + 1));
    return OkStatus();
  }
  for (const auto& [key, member] : *map) ZT_RETURN_IF_ERROR(CheckValue(member, levels + 1));
  return OkStatus();
}

Status CheckAttributesV2(const Value::Map& attributes, std::size_t levels) {
  ZT_RETURN_IF_ERROR(CheckAttributes(attributes, levels));
  for (const auto& [key, value] : attributes) {
    ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckNameV2("the attribute", key)));
    if (auto status = CheckValue(value, levels + 1); !status.ok()) {
      return Annotate(status, Quote(key));
    }
  }
  return OkStatus();
}

class DialectOf20 final : public Dialect {
 public:
  DialectOf20() : Dialect(kTraits) {}

  StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                           std::uint64_t file_bytes) const override;
  StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const override {
    return DecodeV2(bytes);
  }
  Status Cite(const Status& status, std::string_view section) const override {
    return InSection(status, section);
  }

  Status CheckEncoding(Encoding encoding) const override {
    if (encoding == Encoding::kRaw || !NameOf(encoding).empty()) return OkStatus();
    return InvalidArgument(Named() + " has no encoding " + Quote(Name(encoding)));
  }
  Status CheckDigest(DigestKind kind) const override {
    if (kind != DigestKind::kCrc32c) return OkStatus();
    return InvalidArgument(Named() + " has no digest crc32c; it has xxh3 and sha256");
  }
  Status CheckName(std::string_view name) const override;
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
  // Converts an object to 2.0; fails if that cannot hold it.
  StatusOr<Object> Say(Object object) const;
};

StatusOr<Trailer> DialectOf20::Locate(std::span<const std::byte> tail,
                                      std::uint64_t file_bytes) const {
  if (file_bytes < kMagic.size() + kFooterBytes || tail.size() < kFooterBytes) {
    return BrokenV2(
        "2.1", "it has " + std::to_string(file_bytes) + " bytes, fewer than the smallest .zt file");
  }
  using zt::internal::LoadLittle;
  const std::span<const std::byte> footer = tail.last(kFooterBytes);
  if (!IsMagic(footer.last(kMagic.size()), kMagic)) {
    return BrokenV2("2.3", "no magic at the end: the file is truncated, or something follows it");
  }
  const std::uint64_t version = LoadLittle(footer.data() + 24, 4);
  if (version != kFooterVersion) {
    return InSection(Unsupported("the footer says version " + std::to_string(version) +
                                 "; version 2 can be read"),
                     "2.3");
  }
  Trailer trailer;
  trailer.family = SpecVersion::k2_0;
  trailer.manifest_offset = LoadLittle(footer.data(), 8);
  trailer.manifest_bytes = LoadLittle(footer.data() + 8, 8);
  trailer.manifest_hash = LoadLittle(footer.data() + 16, 8);
  trailer.data_end = file_bytes - kFooterBytes;
  if (trailer.manifest_bytes == 0) {
    if (trailer.manifest_offset == 0 && *trailer.manifest_hash == 0) return trailer;
    return BrokenV2("2.3", "the footer has an offset or a hash of a manifest, and no length");
  }
  if (trailer.manifest_bytes > kMaxManifestBytes) {
    return BrokenV2(
        "3.1", "the manifest size " + std::to_string(trailer.manifest_bytes) + " exceeds 1 GiB");
  }
  ZT_RETURN_IF_ERROR(
      Annotate(CheckBlobRange(trailer.manifest_offset, trailer.manifest_bytes, trailer.data_end),
               "manifest"));
  return trailer;
}

Status DialectOf20::CheckShard(const StoredShard& shard) const {
  ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckShardNameV2(shard.name)));
  return AsInvalidArgument(CheckDigestV2(shard.digest));
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
      cbor::AppendMember(*out, "size", shards[i].bytes);
      cbor::AppendMember(*out, "digest", shards[i].digest);
    }
  }
  cbor::AppendText(*out, "objects");
  cbor::AppendMapHead(*out, entries);
  return OkStatus();
}

Status DialectOf20::CheckName(std::string_view name) const {
  return AsInvalidArgument(CheckNameV2("the name", name));
}

StatusOr<Object> DialectOf20::Say(Object object) const {
  ZT_RETURN_IF_ERROR(CheckName(object.name));
  for (const Component& component : object.components) {
    ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckNameV2("the component", component.role)));
    if (!IsUtf8(component.element.type)) return InvalidArgument("a type is not valid UTF-8");
  }
  ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckShapeV2(object.shape)));
  ZT_ASSIGN_OR_RETURN(Object said, ToV2(std::move(object)));
  ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckShapeV2(said.shape)));
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
  for (std::size_t i = 0; i < said.components.size(); ++i) {
    const StoredComponent& stored = object.components[i];
    if (stored.encoding != Encoding::kPlanes) continue;
    *values += CountValues(PlanesToV2(stored.parameters, said.components[i].element));
  }
  return AppendEntryV2(said, object.components, shards, out);
}

Status AppendPart(const ElementType& element, const StoredComponent& stored,
                  std::span<const StoredShard> shards, Bytes* out) {
  ZT_RETURN_IF_ERROR(Dialect20().CheckEncoding(stored.encoding));
  if (stored.big_endian) return InvalidArgument("version 2.0 has no big-endian data");
  const bool encoded = stored.encoding != Encoding::kRaw;
  if (stored.decoded_bytes == kUnknownSize) return InvalidArgument("its decoded size is not known");
  if (!encoded && stored.decoded_bytes != stored.length) {
    return InvalidArgument("raw data has two sizes: " + std::to_string(stored.length) + " and " +
                           std::to_string(stored.decoded_bytes));
  }
  if (!stored.digest.empty()) ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckDigestV2(stored.digest)));
  // Our own field, which other readers ignore.
  Value::Map planes;
  if (stored.encoding == Encoding::kPlanes) planes = PlanesToV2(stored.parameters, element);
  // Sorted: blob, type, dtype, shard, digest, planes, encoding, decoded_length.
  cbor::AppendMapHead(*out, 2 + !element.type.empty() + (stored.shard != 0) +
                                !stored.digest.empty() + !planes.empty() +
                                2 * std::size_t{encoded});
  cbor::AppendText(*out, "blob");
  cbor::AppendArrayHead(*out, 2);
  cbor::AppendUint(*out, stored.offset);
  cbor::AppendUint(*out, stored.length);
  if (!element.type.empty()) cbor::AppendMember(*out, "type", element.type);
  cbor::AppendMember(*out, "dtype", Name(element.dtype));
  if (stored.shard != 0) cbor::AppendMember(*out, "shard", shards[stored.shard - 1].name);
  if (!stored.digest.empty()) cbor::AppendMember(*out, "digest", stored.digest);
  if (!planes.empty()) {
    cbor::AppendText(*out, "planes");
    ZT_RETURN_IF_ERROR(AppendMap(planes, 1, out));
  }
  if (encoded) {
    cbor::AppendMember(*out, "encoding", NameOf(stored.encoding));
    cbor::AppendMember(*out, "decoded_length", stored.decoded_bytes);
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

Status AppendEntryV2(const Object& said, std::span<const StoredComponent> stored,
                     std::span<const StoredShard> shards, Bytes* out) {
  cbor::AppendText(*out, said.name);
  // Sorted: parts, shape, layout, attributes.
  cbor::AppendMapHead(*out, 3 + !said.attributes.empty());
  InlinedVector<std::string_view, 4> roles;
  for (const Component& component : said.components) roles.push_back(component.role);
  ZT_ASSIGN_OR_RETURN(const auto order, KeyOrder(roles));
  cbor::AppendText(*out, "parts");
  cbor::AppendMapHead(*out, order.size());
  for (const std::size_t i : order) {
    cbor::AppendText(*out, roles[i]);
    ZT_RETURN_IF_ERROR(
        WithComponent(AppendPart(said.components[i].element, stored[i], shards, out), roles[i]));
  }
  AppendShape(said.shape, out);
  cbor::AppendMember(*out, "layout", said.format);
  return AppendAttributes(said.attributes, kObjectDepth, out);
}

const Dialect& Dialect20() {
  static const DialectOf20 dialect;
  return dialect;
}

}  // namespace zt::format::internal
