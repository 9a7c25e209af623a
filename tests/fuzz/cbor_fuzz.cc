// Any bytes as one CBOR value: what decodes, encodes to a value that is equal and to bytes
// that are stable.
#include "fuzz.h"

import zt.core;
import zt.format;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const zt::StatusOr<zt::Value> value = zt::DecodeCbor(FuzzBytes(data, size));
  if (!value.ok()) return 0;
  const zt::StatusOr<std::vector<std::byte>> encoded = zt::EncodeCbor(*value);
  ZT_FUZZ_CHECK(encoded.ok());
  const zt::StatusOr<zt::Value> again = zt::DecodeCbor(*encoded);
  ZT_FUZZ_CHECK(again.ok());
  const zt::StatusOr<std::vector<std::byte>> twice = zt::EncodeCbor(*again);
  ZT_FUZZ_CHECK(twice.ok() && *twice == *encoded);
  return 0;
}
