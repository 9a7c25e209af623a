// Any bytes as an .npy array: what opens, serves every byte it declares.
#include "fuzz.h"

import zt.convert.npy;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  zt::InputOptions options = {.void_type = zt::ParseElementType("bf16")};
  options.memory_limit = 4096;  // Fortran order in several passes
  const auto open = [&] {
    return zt::OpenNpy(zt::MemoryBytes(FuzzBytes(data, size), "input"), "array", options);
  };
  const auto source = open();
  if (!source.ok()) return 0;
  for (const zt::Object& object : (*source)->objects()) {
    for (const zt::Component& component : object.components) {
      ZT_FUZZ_CHECK(component.bytes <= size);
    }
  }
  ZT_FUZZ_CHECK(FuzzReadAll<zt::ComponentId>(**source, kFuzzReadLimit));
  (void)(*source)->Finish().ok();
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
