// zt.reader — indices of any integer type, read as u64.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import zt.core;
import zt.source;

namespace zt::reader::internal {

Status ReadWideIndices(const Reader& reader, ComponentId stored, std::uint64_t offset,
                       std::span<std::byte> out) {
  const DType dtype = reader.component(stored).element.dtype;
  const std::size_t width = ByteWidth(dtype);
  const std::size_t count = out.size() / kIndexBytes;
  // The narrow integers are read to the end of `out`, so that widening from the front never
  // overwrites integers that are still needed.
  const std::span<std::byte> narrow = out.last(count * width);
  ZT_RETURN_IF_ERROR(reader.Read(stored, offset / kIndexBytes * width, narrow));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t index = zt::internal::LoadLittle(narrow.data() + i * width, width);
    if (IsSignedInt(dtype) && (index >> (8 * width - 1)) != 0) {
      return InvalidData("index " + std::to_string(offset / kIndexBytes + i) + " is negative");
    }
    zt::internal::StoreLittle(index, kIndexBytes, out.data() + i * kIndexBytes);
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
