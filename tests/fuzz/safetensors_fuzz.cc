// Any bytes as a safetensors file: what opens, serves every byte it declares.
#include "fuzz.h"

import zt.convert.safetensors;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto open = [&] {
    return zt::OpenSafetensors(zt::MemoryBytes(FuzzBytes(data, size), "input"));
  };
  const auto source = open();
  if (!source.ok()) return 0;
  std::vector<std::byte> piece(std::size_t{1} << 16);
  const std::vector<zt::Object>& objects = (*source)->objects();
  for (std::uint32_t object = 0; object < objects.size(); ++object) {
    ZT_FUZZ_CHECK(zt::ValidateObject(objects[object]).ok());
    for (std::uint32_t component = 0; component < objects[object].components.size(); ++component) {
      const std::uint64_t bytes = objects[object].components[component].bytes;
      ZT_FUZZ_CHECK(bytes <= size);
      for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
        const std::size_t count = std::min<std::uint64_t>(bytes - at, piece.size());
        ZT_FUZZ_CHECK((*source)->Read({object, component}, at, std::span(piece).first(count)).ok());
      }
    }
  }
  ZT_FUZZ_CHECK((*source)->Finish().ok());
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
