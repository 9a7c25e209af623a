// Any bytes as a .zt file: opening, verifying and reading every component neither crash nor
// outgrow the input.
#include "fuzz.h"

import zt.core;
import zt.format;
import zt.reader;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const zt::StatusOr<std::unique_ptr<zt::Reader>> reader =
      zt::Reader::Open(zt::MemoryBytes(FuzzBytes(data, size), "input"));
  if (!reader.ok()) return 0;
  (void)zt::Verify(**reader).ok();
  std::vector<std::byte> piece(std::size_t{1} << 16);
  const zt::Manifest& manifest = (*reader)->manifest();
  for (std::uint32_t object = 0; object < manifest.objects.size(); ++object) {
    const auto& components = manifest.objects[object].components;
    for (std::uint32_t component = 0; component < components.size(); ++component) {
      // The first bytes and the last: what a hostile size would make costly is all the rest.
      const std::uint64_t bytes = components[component].decoded_bytes;
      if (bytes == zt::kUnknownSize) continue;
      const std::size_t count = std::min<std::uint64_t>(bytes, piece.size());
      const zt::ComponentId id = {object, component};
      (void)(*reader)->Read(id, 0, std::span(piece).first(count)).ok();
      if (bytes <= (std::uint64_t{1} << 20)) {
        (void)(*reader)->Read(id, bytes - count, std::span(piece).first(count)).ok();
      }
    }
  }
  return 0;
}
