// Any bytes as a GGUF file: a header that parses is encoded back as it was, and every
// tensor can be read.
#include "fuzz.h"

import zt.convert.gguf;
import zt.core;
import zt.fuzz.accept;
import zt.source;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = FuzzBytes(data, size);
  const zt::StatusOr<std::optional<zt::GgufHeader>> header = zt::ParseGgufHeader(bytes, size);
  if (header.ok() && header->has_value()) {
    ZT_FUZZ_CHECK((*header)->header_bytes <= size);
    const zt::StatusOr<std::vector<std::byte>> encoded = zt::EncodeGgufHeader(**header);
    if (encoded.ok()) {
      const auto again = zt::ParseGgufHeader(*encoded, std::nullopt);
      ZT_FUZZ_CHECK(again.ok() && again->has_value());
      ZT_FUZZ_CHECK((*again)->tensors.size() == (*header)->tensors.size());
      ZT_FUZZ_CHECK((*again)->kv == (*header)->kv);
    }
  }
  const auto open = [&] {
    return zt::OpenGguf(zt::MemoryBytes(bytes, "input"), {.allow_single_shard = true});
  };
  const auto source = open();
  if (!source.ok()) return 0;
  for (const zt::Object& object : (*source)->objects()) {
    for (const zt::Component& component : object.components) {
      ZT_FUZZ_CHECK(component.bytes <= size);
    }
  }
  FuzzUse<zt::ComponentId>(**source);
  zt::CheckAccepted(open, kFuzzReadLimit);
  return 0;
}
