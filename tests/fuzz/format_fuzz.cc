// Any bytes as a .zt file's frame and manifest: what decodes and can be written, reads
// back as written.
#include "fuzz.h"

import zt.core;
import zt.format;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = FuzzBytes(data, size);
  const auto head = bytes.first(std::min<std::size_t>(size, 8));
  const auto tail = bytes.last(std::min<std::size_t>(size, 16));
  const zt::StatusOr<zt::Trailer> trailer = zt::LocateManifest(head, tail, size);
  if (!trailer.ok()) return 0;
  ZT_FUZZ_CHECK(trailer->manifest_offset <= size);
  ZT_FUZZ_CHECK(trailer->manifest_bytes <= size - trailer->manifest_offset);
  const auto manifest_bytes = bytes.subspan(trailer->manifest_offset, trailer->manifest_bytes);
  const zt::StatusOr<zt::Manifest> manifest = zt::DecodeManifest(manifest_bytes, trailer->family);
  if (!manifest.ok()) return 0;
  if (!zt::CheckLayout(*manifest, trailer->manifest_offset).ok()) return 0;
  for (const zt::StoredObject& object : manifest->objects) {
    for (const zt::StoredComponent& component : object.components) {
      ZT_FUZZ_CHECK(component.offset <= trailer->manifest_offset);
      ZT_FUZZ_CHECK(component.length <= trailer->manifest_offset - component.offset);
    }
  }
  if (!zt::Traits(manifest->version).writable) return 0;
  const zt::StatusOr<std::vector<std::byte>> encoded =
      zt::EncodeManifest(*manifest, manifest->version);
  if (!encoded.ok()) return 0;
  const zt::StatusOr<zt::Manifest> again = zt::DecodeManifest(*encoded, trailer->family);
  ZT_FUZZ_CHECK(again.ok());
  ZT_FUZZ_CHECK(again->objects.size() == manifest->objects.size());
  const zt::StatusOr<std::vector<std::byte>> twice = zt::EncodeManifest(*again, again->version);
  ZT_FUZZ_CHECK(twice.ok() && *twice == *encoded);
  return 0;
}
