// zt.format — the table of versions, and functions that delegate to the version's dialect.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :dialect;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt {

namespace {

using format::internal::Dialect;

// The dialects that find a file's manifest, by the magic at its start. 1.2's also finds those of
// 1.0 and 1.1.
const std::array<const Dialect*, 3>& Finders() {
  static const std::array<const Dialect*, 3> kFinders = {
      &format::internal::DialectOf(SpecVersion::k1_2),
      &format::internal::DialectOf(SpecVersion::k0_1),
      &format::internal::DialectOf(SpecVersion::k2_0)};
  return kFinders;
}

const Dialect* FinderOf(std::span<const std::byte> head) {
  for (const Dialect* dialect : Finders()) {
    if (format::internal::IsMagic(head, dialect->traits().header_magic)) return dialect;
  }
  return nullptr;
}

}  // namespace

const Dialect& format::internal::DialectOf(SpecVersion version) {
  switch (version) {
    case SpecVersion::k0_1:
      return Dialect01();
    case SpecVersion::k1_0:
    case SpecVersion::k1_1:
    case SpecVersion::k1_2:
      break;
    case SpecVersion::k2_0:
      return Dialect20();
  }
  return Dialect1x(version);
}

const ContainerTraits& Traits(SpecVersion version) {
  return format::internal::DialectOf(version).traits();
}

std::optional<SpecVersion> ParseSpecVersion(std::string_view text) {
  if (text == "0.1" || text == "0.1.0") return SpecVersion::k0_1;
  if (text == "1.0" || text == "1.0.0") return SpecVersion::k1_0;
  if (text == "1.1" || text == "1.1.0") return SpecVersion::k1_1;
  if (text == "1.2" || text == "1.2.0") return SpecVersion::k1_2;
  if (text == "2.0" || text == "2.0.0") return SpecVersion::k2_0;
  return std::nullopt;
}

bool LooksLikeZt(std::span<const std::byte> head) { return FinderOf(head) != nullptr; }

StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes) {
  const Dialect* const dialect = FinderOf(head);
  if (dialect == nullptr) {
    return InvalidData(
        "neither ZTEN1000 nor ZTEN0001 nor the magic of 2.0 at the start: this is not a .zt file");
  }
  return dialect->Locate(tail, file_bytes);
}

StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family) {
  if (bytes.size() > kMaxManifestBytes) return InvalidData("the manifest exceeds 1 GiB");
  auto manifest = format::internal::DialectOf(family).Decode(bytes);
  if (!manifest.ok()) return Annotate(manifest.status(), "manifest");
  return manifest;
}

StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, const Trailer& trailer) {
  if (trailer.manifest_hash && *trailer.manifest_hash != Xxh3(bytes)) {
    return InvalidData("the manifest does not match its XXH3 in the footer: the file is damaged");
  }
  ZT_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(bytes, trailer.family));
  if (Traits(manifest.version).manifest_is_blob) {
    manifest.offset = trailer.manifest_offset;
    manifest.bytes = trailer.manifest_bytes;
  }
  return manifest;
}

Status CheckLayout(const Manifest& manifest, std::uint64_t data_end) {
  return format::internal::DialectOf(manifest.version).CheckLayout(manifest, data_end);
}

Status CheckEncoding(Encoding encoding, SpecVersion version) {
  return format::internal::DialectOf(version).CheckEncoding(encoding);
}

Status CheckDigest(DigestKind kind, SpecVersion version) {
  return format::internal::DialectOf(version).CheckDigest(kind);
}

std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset, ManifestParts manifest,
                                    SpecVersion version) {
  return format::internal::DialectOf(version).Footer(manifest_offset, manifest);
}

std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset,
                                    std::span<const std::byte> manifest, SpecVersion version) {
  return EncodeFooter(manifest_offset, ManifestParts(&manifest, 1), version);
}

Object Declare(const StoredObject& stored) {
  Object object = DeclareWithoutAttributes(stored);
  object.attributes = stored.attributes;
  return object;
}

Object DeclareWithoutAttributes(const StoredObject& stored) {
  Object object;
  object.name = stored.name;
  object.format = stored.format;
  object.shape = stored.shape;
  object.components.reserve(stored.components.size());
  for (const StoredComponent& component : stored.components) {
    object.components.push_back({component.role, component.element, component.decoded_bytes});
  }
  return object;
}

}  // namespace zt
