// Any bytes after the head of a legacy PyTorch stream: the checkpoint's pickle, the list of
// storages and their bytes.
#include "fuzz.h"

import zt.convert.torch;
import zt.core;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The magic number, the protocol 1001, and an empty description of the system.
  constexpr std::string_view kHead(
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.", 25);
  std::string bytes(kHead);
  bytes.append(reinterpret_cast<const char*>(data), size);
  const auto source = zt::OpenTorch(zt::MemoryBytes(std::as_bytes(std::span(bytes)), "input"),
                                    "stem", {.memory_limit = std::uint64_t{1} << 20});
  if (!source.ok()) return 0;
  FuzzUse<zt::ComponentId>(**source);
  return 0;
}
