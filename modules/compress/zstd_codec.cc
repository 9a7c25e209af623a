// zt.compress — the row of zstd in the table of codecs: frames with a seek table behind them.
module zt.compress;

import zt.std;
import :codec;
import zt.core;

namespace zt::compress::internal {
namespace {

class ZstdEncoder final : public FrameEncoder {
 public:
  explicit ZstdEncoder(const ZstdOptions& options) : compressor_(options) {}
  StatusOr<std::size_t> Encode(const CodecParameters&, std::span<const std::byte> in,
                               std::span<std::byte> out) const override {
    return compressor_.Compress(in, out);
  }

 private:
  FrameCompressor compressor_;
};

class Zstd final : public SeekableZstd {
 public:
  std::string_view name() const override { return "zstd"; }

  std::size_t Bound(std::size_t content) const override { return FrameBound(content); }
  std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions& options) const override {
    return std::make_unique<ZstdEncoder>(options);
  }

  Status DecodeFrame(const CodecParameters&, std::span<const std::byte> in,
                     std::span<std::byte> out) const override {
    return frames_.Decompress(in, out);
  }
  std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters&, StreamReader read,
                                            std::uint64_t stream_bytes,
                                            std::uint64_t content_bytes) const override {
    return std::make_unique<StreamDecompressor>(std::move(read), stream_bytes, content_bytes);
  }

 private:
  FrameDecompressor frames_;
};

}  // namespace

// An RLE block of 4 bytes yields the largest block, 128 KiB: no zstd stream expands by more.
std::uint64_t SeekableZstd::max_ratio() const { return 32768; }

std::vector<std::byte> SeekableZstd::Trailer(std::span<const Frame> frames) const {
  return SeekTable(frames);
}

std::uint64_t SeekableZstd::TrailerBytes(std::uint64_t frames) const {
  return SeekTableBytes(frames);
}

StatusOr<std::optional<std::vector<Frame>>> SeekableZstd::ReadFrames(
    const StreamReader& read, std::uint64_t stream_bytes, std::uint64_t content_bytes) const {
  return ReadSeekTable(read, stream_bytes, content_bytes);
}

const Codec& ZstdCodec() {
  static const Codec* const codec = new Zstd;
  return *codec;
}

}  // namespace zt::compress::internal
