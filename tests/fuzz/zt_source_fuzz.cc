// Any bytes as a .zt file of any version, opened as an input: what opens, reads without outgrowing it.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fuzz.h"

import zt.convert.zt;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto open = [&] { return zt::OpenZt(zt::MemoryBytes(FuzzBytes(data, size), "input")); };
  const zt::StatusOr<std::unique_ptr<zt::TensorSource>> source = open();
  if (!source.ok()) return 0;
  (void)FuzzReadAll<zt::ComponentId>(**source, kFuzzReadLimit);
  (void)(*source)->Finish().ok();
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
