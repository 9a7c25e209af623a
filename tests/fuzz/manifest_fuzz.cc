// Any bytes as a manifest of each family: what decodes and can be written, decodes to as
// many objects again.
#include "fuzz.h"

import zt.core;
import zt.format;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const zt::SpecVersion family : {zt::SpecVersion::k0_1, zt::SpecVersion::k1_2}) {
    const zt::StatusOr<zt::Manifest> manifest = zt::DecodeManifest(FuzzBytes(data, size), family);
    if (!manifest.ok()) continue;
    (void)zt::CheckLayout(*manifest, std::uint64_t{1} << 40).ok();
    for (const zt::StoredObject& object : manifest->objects) {
      (void)zt::ValidateObject(zt::Declare(object)).ok();
    }
    if (!zt::Traits(manifest->version).writable) continue;
    const zt::StatusOr<std::vector<std::byte>> encoded =
        zt::EncodeManifest(*manifest, manifest->version);
    if (!encoded.ok()) continue;
    const zt::StatusOr<zt::Manifest> again = zt::DecodeManifest(*encoded, family);
    if (!again.ok() && !zt::CheckLayout(*manifest, std::uint64_t{1} << 40).ok()) continue;
    ZT_FUZZ_CHECK(again.ok() && again->objects.size() == manifest->objects.size());
  }
  return 0;
}
