// Any bytes as an .npz archive, sparse ones included: opening and reading neither crash nor
// outgrow the input.
#include "fuzz.h"

import zt.convert.npy;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  zt::InputOptions options = {.memory_limit = std::uint64_t{1} << 20};
  for (const bool keep_sparse : {false, true}) {
    options.keep_sparse = keep_sparse;
    const auto open = [&] {
      return zt::OpenNpz(zt::MemoryBytes(FuzzBytes(data, size), "input"), "stem", options);
    };
    const auto source = open();
    if (!source.ok()) continue;
    FuzzUse<zt::ComponentId>(**source);
    zt::CheckAccepted(open, kFuzzReadLimit);
  }
  return 0;
}
