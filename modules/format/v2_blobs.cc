// zt.format:v2 — where 2.0's manifest and blobs lie (§2.3, §2.4, §3.6).
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.format;

import zt.std;
import :v2;
import zt.compress;
import zt.core;

namespace zt::format::internal {
namespace {

constexpr std::uint64_t kLeastFileBytes = kHeaderBytesV2 + kFooterBytesV2;
constexpr std::uint32_t kVersion = 2;
constexpr std::string_view kSpecName = "zTensor 2.0 §";

constexpr std::uint32_t kManifest = ~std::uint32_t{0};  // in place of an object's number

struct Blob {
  std::uint32_t shard;
  std::uint64_t offset, length;
  std::uint32_t object, component;
};

std::string Where(const Manifest& manifest, const Blob& blob) {
  if (blob.object == kManifest) return "the manifest";
  const StoredObject& object = manifest.objects[blob.object];
  std::string where = TensorContext(object.name);
  if (object.components.size() > 1) {
    where += " component " + Quote(object.components[blob.component].role);
  }
  return where;
}

Status CheckPlace(std::uint64_t offset, std::uint64_t length, std::uint64_t data_end) {
  if (offset % kFloorV2 != 0 || offset < kFloorV2) {
    return BrokenV2("2.4",
                    "offset " + std::to_string(offset) + " is no multiple of 4096 from 4096 up");
  }
  const auto end = CheckedAdd(offset, length);
  if (end && *end <= data_end) return OkStatus();
  return BrokenV2("2.4", "blob at " + std::to_string(offset) + " of " + std::to_string(length) +
                             " bytes reaches past the data, which ends at " +
                             std::to_string(data_end));
}

Status CheckStream(const StoredComponent& component) {
  if (component.encoding == Encoding::kRaw || !component.undecodable.empty()) return OkStatus();
  const Codec& codec = *FindCodec(component.encoding);
  if (component.length > 0 && component.decoded_bytes / codec.max_ratio() <= component.length) {
    return OkStatus();
  }
  return BrokenV2("5.3", "'decoded_length' " + std::to_string(component.decoded_bytes) +
                             " is more than " + std::to_string(component.length) + " bytes of " +
                             std::string(codec.name()) + " can yield");
}

// Blobs may be shared whole, as tied weights are, but not in part.
Status CheckDisjointV2(const Manifest& manifest, std::vector<Blob>& blobs) {
  std::sort(blobs.begin(), blobs.end(), [](const Blob& a, const Blob& b) {
    return std::tie(a.shard, a.offset, a.length, a.object, a.component) <
           std::tie(b.shard, b.offset, b.length, b.object, b.component);
  });
  for (std::size_t i = 1, first = 0; i < blobs.size(); ++i) {
    const Blob& before = blobs[first];
    const Blob& blob = blobs[i];
    const bool same = blob.shard == before.shard;
    if (same && blob.offset == before.offset && blob.length == before.length) continue;
    if (same && blob.offset < before.offset + before.length) {
      return BrokenV2("2.4", Where(manifest, blob) + ": blob at " + std::to_string(blob.offset) +
                                 " overlaps that of " + Where(manifest, before) +
                                 ", which ends at " +
                                 std::to_string(before.offset + before.length));
    }
    first = i;
  }
  return OkStatus();
}

}  // namespace

Status BrokenV2(std::string_view section, std::string_view what) {
  return InSection(InvalidData(what), section);
}

Status InSection(const Status& status, std::string_view section) {
  if (status.ok() || Message(status).find(kSpecName) != std::string_view::npos) return status;
  return MakeStatus(status.code(), std::string(Message(status)) + " (" + std::string(kSpecName) +
                                       std::string(section) + ")");
}

StatusOr<Trailer> LocateV2(std::span<const std::byte> tail, std::uint64_t file_bytes) {
  if (file_bytes < kLeastFileBytes || tail.size() < kFooterBytesV2) {
    return BrokenV2(
        "2.1", "it has " + std::to_string(file_bytes) + " bytes, fewer than the smallest .zt file");
  }
  using zt::internal::LoadLittle;
  const std::byte* footer = tail.last(kFooterBytesV2).data();
  constexpr unsigned char kMagic[] = {0x89, 'Z', 'T', '2', 0x0d, 0x0a, 0x1a, 0x0a};
  if (std::memcmp(footer + 32, kMagic, sizeof kMagic) != 0) {
    return BrokenV2("2.3", "no magic at the end: the file is truncated, or something follows it");
  }
  const std::uint64_t version = LoadLittle(footer + 24, 4);
  if (version != kVersion) {
    return InSection(Unsupported("the footer says version " + std::to_string(version) +
                                 "; version 2 can be read"),
                     "2.3");
  }
  Trailer trailer;
  trailer.family = SpecVersion::k2_0;
  trailer.manifest_offset = LoadLittle(footer, 8);
  trailer.manifest_bytes = LoadLittle(footer + 8, 8);
  trailer.manifest_hash = LoadLittle(footer + 16, 8);
  trailer.data_end = file_bytes - kFooterBytesV2;
  if (trailer.manifest_bytes == 0) {
    if (trailer.manifest_offset == 0 && *trailer.manifest_hash == 0) return trailer;
    return BrokenV2("2.3", "the footer has an offset or a hash of a manifest, and no length");
  }
  if (trailer.manifest_bytes > kMaxManifestBytes) {
    return BrokenV2(
        "3.1", "the manifest size " + std::to_string(trailer.manifest_bytes) + " exceeds 1 GiB");
  }
  ZT_RETURN_IF_ERROR(Annotate(
      CheckPlace(trailer.manifest_offset, trailer.manifest_bytes, trailer.data_end), "manifest"));
  return trailer;
}

Status CheckBlobsV2(const Manifest& manifest, std::uint64_t data_end) {
  std::vector<Blob> blobs;
  blobs.reserve(manifest.objects.size() + 1);
  blobs.push_back({0, manifest.offset, manifest.bytes, kManifest, 0});
  for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
    const StoredObject& object = manifest.objects[i];
    for (std::size_t j = 0; j < object.components.size(); ++j) {
      const StoredComponent& part = object.components[j];
      std::uint64_t end = data_end;
      if (part.shard > 0) {
        const std::uint64_t bytes = manifest.shards[part.shard - 1].bytes;
        end = bytes - std::min<std::uint64_t>(bytes, kFooterBytesV2);
      }
      Status status = CheckPlace(part.offset, part.length, end);
      if (status.ok()) status = CheckStream(part);
      if (!status.ok()) {
        if (object.components.size() > 1)
          status = Annotate(status, "component " + Quote(part.role));
        return Annotate(status, TensorContext(object.name));
      }
      if (part.length == 0) continue;
      blobs.push_back({part.shard, part.offset, part.length, static_cast<std::uint32_t>(i),
                       static_cast<std::uint32_t>(j)});
    }
  }
  return CheckDisjointV2(manifest, blobs);
}

}  // namespace zt::format::internal
