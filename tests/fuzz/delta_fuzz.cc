// Chunks of deltas: any bytes come back from what they differ by from any others, and any bytes
// taken for a frame's content are applied or refused.
#include "fuzz.h"

import zt.compress;
import zt.core;

namespace {

using Bytes = std::vector<std::byte>;

constexpr std::string_view kTypes[] = {"bf16", "f16", "f32", "f64",       "u8",
                                       "i16",  "i32", "i64", "f8_e4m3fn", "f8_e5m2"};

void RoundTrip(const zt::ElementType& type, std::span<const std::byte> old,
               std::span<const std::byte> fresh) {
  Bytes frame(zt::DeltaBound(old.size()));
  const auto chunk = zt::EncodeDelta(type, old, fresh, frame);
  ZT_FUZZ_CHECK(chunk.ok());
  frame.resize(chunk->frame);
  ZT_FUZZ_CHECK(zt::CheckDelta(type, *chunk, frame, old.size()).ok());
  Bytes made(old.begin(), old.end());
  ZT_FUZZ_CHECK(zt::ApplyDelta(type, *chunk, frame, made).ok());
  ZT_FUZZ_CHECK(std::equal(made.begin(), made.end(), fresh.begin()));
}

void Apply(const zt::ElementType& type, std::span<const std::byte> old,
           std::span<const std::byte> content) {
  const zt::Codec& codec = *zt::FindCodec(zt::Encoding::kZstd);
  Bytes frame(codec.Bound(content.size()));
  const auto size = codec.MakeEncoder({})->Encode({}, content, frame);
  ZT_FUZZ_CHECK(size.ok());
  frame.resize(*size);
  zt::DeltaChunk chunk;
  chunk.kind = zt::DeltaKind::kDifferences;
  chunk.frame = static_cast<std::uint32_t>(frame.size());
  chunk.content = static_cast<std::uint32_t>(content.size());
  Bytes made(old.begin(), old.end());
  const bool applied = zt::ApplyDelta(type, chunk, frame, made).ok();
  const bool sound = zt::CheckDelta(type, chunk, frame, old.size()).ok();
  ZT_FUZZ_CHECK(sound || !applied);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const zt::ElementType type = *zt::ParseElementType(kTypes[data[0] % std::size(kTypes)]);
  const std::size_t width = zt::ByteWidth(type.dtype);
  const std::span<const std::byte> rest = FuzzBytes(data + 2, size - 2);
  const std::size_t half = rest.size() / 2 / width * width;
  RoundTrip(type, rest.first(half), rest.subspan(half, half));
  const std::size_t base = std::min(rest.size(), data[1] * width);
  Apply(type, rest.first(base / width * width), rest.subspan(base));
  return 0;
}
