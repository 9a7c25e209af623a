// Any bytes as a PyTorch checkpoint, archive or legacy stream: opening and reading neither crash nor outgrow the input.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fuzz.h"

import zt.convert.torch;
import zt.core;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  zt::InputOptions options;
  options.memory_limit = std::uint64_t{1} << 20;
  const zt::StatusOr<std::unique_ptr<zt::TensorSource>> source =
      zt::OpenTorch(zt::MemoryBytes(FuzzBytes(data, size), "input"), "stem", options);
  if (!source.ok()) return 0;
  (void)FuzzReadAll<zt::ComponentId>(**source, kFuzzReadLimit);
  (void)(*source)->Finish().ok();
  return 0;
}
