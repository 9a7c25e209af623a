// Any bytes as an ONNX model: opening and reading neither crash nor outgrow the input.
#include "fuzz.h"

import zt.convert.onnx;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = FuzzBytes(data, size);
  (void)zt::LooksLikeOnnx(bytes);
  // External data would be in files: a model without a path has none.
  const auto open = [&] { return zt::OpenOnnx(zt::MemoryBytes(bytes, "input"), ""); };
  const auto source = open();
  if (!source.ok()) return 0;
  std::uint64_t served = 0;
  for (std::uint32_t o = 0; o < (*source)->objects().size(); ++o) {
    if (!(*source)->CheckReadable(o).ok()) continue;
    for (const zt::Component& component : (*source)->objects()[o].components)
      served += component.bytes;
  }
  // A number of one byte becomes eight, and a place in a sparse tensor one for each dimension.
  ZT_FUZZ_CHECK(served / 512 <= size);
  FuzzUse<zt::ComponentId>(**source);
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
