// Any bytes as an .npz archive, sparse ones included: opening and reading neither crash nor outgrow the input.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "fuzz.h"

import zt.convert.npy;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  zt::InputOptions options;
  options.memory_limit = std::uint64_t{1} << 20;
  for (const bool keep_sparse : {false, true}) {
    options.keep_sparse = keep_sparse;
    const auto open = [&] {
      return zt::OpenNpz(zt::MemoryBytes(FuzzBytes(data, size), "input"), "stem", options);
    };
    const zt::StatusOr<std::unique_ptr<zt::TensorSource>> source = open();
    if (!source.ok()) continue;
    (void)FuzzReadAll<zt::ComponentId>(**source, kFuzzReadLimit);
    (void)(*source)->Finish().ok();
    zt::CheckAccepted(open, kFuzzReadLimit);
  }
  return 0;
}
