// Any bytes as a PyTorch checkpoint, archive or legacy stream: opening and reading neither crash
// nor outgrow the input.
#include "fuzz.h"

import zt.convert.torch;
import zt.core;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto source = zt::OpenTorch(zt::MemoryBytes(FuzzBytes(data, size), "input"), "stem",
                                    {.memory_limit = std::uint64_t{1} << 20});
  if (!source.ok()) return 0;
  FuzzUse<zt::ComponentId>(**source);
  return 0;
}
