// Any bytes as a .zt file of any version, opened as an input: what opens, reads
// without outgrowing it.
#include "fuzz.h"

import zt.core;
import zt.fuzz.accept;
import zt.reader;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto open = [&] { return zt::OpenZt(zt::MemoryBytes(FuzzBytes(data, size), "input")); };
  const auto source = open();
  if (!source.ok()) return 0;
  FuzzUse<zt::ComponentId>(**source);
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
