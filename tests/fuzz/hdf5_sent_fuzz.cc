// Any bytes as what the process that runs libhdf5 sends, which a forged file may have taken over:
// they are no index, or a source that reads only what lies in the file.
#include "fuzz.h"

import zt.convert.hdf5;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = FuzzBytes(data, size);
  const std::string_view sent(reinterpret_cast<const char*>(data), size);
  const auto open = [&] {
    return zt::hdf5::internal::OpenSent(sent, zt::MemoryBytes(bytes, "input"),
                                        std::uint64_t{1} << 20);
  };
  const auto source = open();
  if (!source.ok()) return 0;
  FuzzUse<zt::ComponentId>(**source);
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
