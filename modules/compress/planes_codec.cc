// zt.compress — the row of byte planes in the table of codecs: zstd's frames and seek table, the content transformed.
module;

#include "core/status_macros.h"

module zt.compress;

import zt.std;
import :codec;
import :planes;
import zt.core;

namespace zt::compress::internal {
namespace {

// Elements of a group: each of its planes is a zstd block of the largest size.
constexpr std::uint64_t kGroupElements = 128 << 10;
// Chunks are whole multiples of this many elements, and so of the blocks of every ggml type.
constexpr std::uint64_t kLeastElements = 256;

// Group by group: chunks are whole groups, so that only the stream's last one may be shorter.
class PlanesStream final : public StreamDecoder {
 public:
  PlanesStream(const CodecParameters& parameters, StreamReader read, std::uint64_t stream_bytes,
               std::uint64_t content_bytes)
      : parameters_(parameters),
        left_(content_bytes),
        stream_(OpenZstdStream(std::move(read), stream_bytes, content_bytes)) {}

  Status Read(std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const std::size_t got, ReadSome(out));
    if (got == out.size()) return OkStatus();
    return InvalidData("the stream of byte planes yields fewer bytes than were declared");
  }

  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(CheckPlaneLayout(parameters_));
    std::size_t done = 0;
    while (done < out.size()) {
      if (position_ == elements_.size()) {
        ZT_RETURN_IF_ERROR(NextGroup());
        if (elements_.empty()) break;
      }
      const std::size_t take = std::min(out.size() - done, elements_.size() - position_);
      std::memcpy(out.data() + done, elements_.data() + position_, take);
      done += take;
      position_ += take;
    }
    return done;
  }

  Status Finish() override { return stream_->Finish(); }

 private:
  // No further than the declared content: how long a group is decides where its planes begin, and Finish of the stream
  // finds what lies behind.
  Status NextGroup() {
    planes_.resize(std::min<std::uint64_t>(parameters_.group, left_));
    position_ = 0;
    ZT_ASSIGN_OR_RETURN(const std::size_t got, stream_->ReadSome(planes_));
    left_ -= got;
    if (got % parameters_.width != 0) return InvalidData("byte planes end within an element");
    elements_.resize(got);
    MergePlanes(std::span(planes_).first(got), elements_, parameters_);
    return OkStatus();
  }

  CodecParameters parameters_;
  std::uint64_t left_;  // of the content; kUnknownSize never runs out
  std::unique_ptr<StreamDecoder> stream_;
  std::vector<std::byte> planes_, elements_;  // of the group under way
  std::size_t position_ = 0;                  // in elements_
};

class Planes final : public SeekableZstd {
 public:
  std::string_view name() const override { return kPlanesName; }

  CodecParameters Parameters(const ElementType& element, std::uint64_t frame_bytes) const override {
    const auto width = static_cast<std::uint32_t>(ByteWidth(element.dtype));
    if (!IsFloat(element.dtype) || width < 2) return {};
    const std::uint64_t least = kLeastElements * width, full = kGroupElements * width;
    const std::uint64_t wanted = std::clamp<std::uint64_t>(frame_bytes, least, kMaxPlaneChunk);
    const std::uint64_t unit = wanted < full ? least : full;
    CodecParameters parameters;
    parameters.chunk = static_cast<std::uint32_t>(wanted / unit * unit);
    parameters.group = static_cast<std::uint32_t>(std::min<std::uint64_t>(full, parameters.chunk));
    parameters.width = static_cast<std::uint8_t>(width);
    parameters.rotate = 1;
    return parameters;
  }

  // Of what Parameters gives: no frame of it has more blocks.
  std::size_t Bound(std::size_t content) const override {
    CodecParameters smallest;
    smallest.width = 8;
    smallest.group = static_cast<std::uint32_t>(kGroupElements * 8);
    return PlanesFrameBound(content, smallest);
  }
  std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions&) const override {
    return MakePlanesEncoder();
  }

  Status DecodeFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                     std::span<std::byte> out) const override {
    return DecodePlanesFrame(parameters, in, out);
  }

  std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters& parameters, StreamReader read,
                                            std::uint64_t stream_bytes,
                                            std::uint64_t content_bytes) const override {
    return std::make_unique<PlanesStream>(parameters, std::move(read), stream_bytes, content_bytes);
  }
};

}  // namespace

const Codec& PlanesCodec() {
  static const Codec* const codec = new Planes;
  return *codec;
}

}  // namespace zt::compress::internal
