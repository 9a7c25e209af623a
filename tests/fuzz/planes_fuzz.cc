// Byte planes: any bytes come back from planes and from frames as they were, and any bytes taken
// for a stream are decoded or refused, the same by frame and in order.
#include "fuzz.h"

import zt.compress;
import zt.core;

namespace {

using Bytes = std::vector<std::byte>;

void RoundTrip(const zt::CodecParameters& layout, std::span<const std::byte> in) {
  in = in.first(in.size() / layout.width * layout.width);
  Bytes planes(in.size()), back(in.size());
  zt::compress::internal::SplitPlanes(in, planes, layout);
  zt::compress::internal::MergePlanes(planes, back, layout);
  ZT_FUZZ_CHECK(std::equal(in.begin(), in.end(), back.begin()));

  const zt::Codec& codec = *zt::FindCodec(zt::Encoding::kPlanes);
  Bytes frame(zt::compress::internal::PlanesFrameBound(in.size(), layout));
  const auto size = codec.MakeEncoder({})->Encode(layout, in, frame);
  ZT_FUZZ_CHECK(size.ok());
  ZT_FUZZ_CHECK(codec.DecodeFrame(layout, std::span(frame).first(*size), back).ok());
  ZT_FUZZ_CHECK(std::equal(in.begin(), in.end(), back.begin()));
}

void Decode(const zt::CodecParameters& layout, std::span<const std::byte> stream,
            std::uint64_t content) {
  const zt::Codec& codec = *zt::FindCodec(zt::Encoding::kPlanes);
  const zt::StreamReader read = [&](std::uint64_t offset, std::span<std::byte> out) {
    ZT_FUZZ_CHECK(offset <= stream.size() && out.size() <= stream.size() - offset);
    std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return zt::OkStatus();
  };
  Bytes whole(content);
  const auto decoder = codec.OpenStream(layout, read, stream.size(), content);
  const bool good = decoder->Read(whole).ok() && decoder->Finish().ok();
  const auto table = codec.ReadFrames(read, stream.size(), content);
  if (!good || !table.ok() || !table->has_value()) return;
  if (!zt::CheckFrames(layout, **table).ok()) return;
  Bytes by_frame(content);
  for (const zt::Frame& frame : **table) {
    const auto out = std::span(by_frame).subspan(frame.content_offset, frame.content_bytes);
    if (!codec.DecodeFrame(layout, stream.subspan(frame.offset, frame.bytes), out).ok()) return;
  }
  ZT_FUZZ_CHECK(by_frame == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  zt::CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(2 << (data[0] % 3));
  layout.rotate = data[0] >> 7;
  layout.group = layout.width * (1u + data[1]);
  layout.frame_content = layout.group * (1u + data[2]);
  const std::span<const std::byte> rest = FuzzBytes(data + 4, size - 4);
  RoundTrip(layout, rest);
  Decode(layout, rest, std::uint64_t{data[3]} * layout.width);
  return 0;
}
