// zt.compress — the row of zstd in the table of codecs: frames and the seek table behind them, out.
module;

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "core/little_endian.h"

module zt.compress;

import zt.std;
import :codec;
import zt.core;

namespace zt {

Status Validate(const ZstdOptions& options) {
  if (options.level < ZSTD_minCLevel() || options.level > 19 || options.level == 0) {
    return InvalidArgument("zstd level " + std::to_string(options.level) +
                           " is not among 1 to 19 and the negative levels down to " +
                           std::to_string(ZSTD_minCLevel()));
  }
  if (options.frame_bytes < 1024 || options.frame_bytes > (std::uint64_t{1} << 30)) {
    return InvalidArgument("a frame must hold 1 KiB to 1 GiB");
  }
  return OkStatus();
}

std::string_view ZstdVersion() { return ZSTD_versionString(); }

}  // namespace zt

namespace zt::compress::internal {
namespace {

using Context = std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)>;

// Contexts are pooled.
class ZstdEncoder final : public FrameEncoder {
 public:
  explicit ZstdEncoder(const ZstdOptions& options) : options_(options) {}

  StatusOr<std::size_t> Encode(const CodecParameters&, std::span<const std::byte> in,
                               std::span<std::byte> out) const override {
    auto held = idle_.Take();
    auto context = held ? *std::move(held) : Make();
    if (context == nullptr) return IoError("cannot make a zstd context: out of memory");
    const std::size_t size =
        ZSTD_compress2(context.get(), out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(size)) return IoError(std::string("zstd: ") + ZSTD_getErrorName(size));
    idle_.Give(std::move(context));
    return size;
  }

 private:
  Context Make() const {
    Context context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
    if (context == nullptr) return context;
    const auto set = [&](ZSTD_cParameter parameter, int value) {
      return !ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value));
    };
    // Left to itself zstd chooses the match finder of levels 5 to 12 by the instructions of the machine, and with it
    // the bytes of small frames.
    bool ok = set(ZSTD_c_contentSizeFlag, 1) && set(ZSTD_c_checksumFlag, 1) &&
              set(ZSTD_c_useRowMatchFinder, ZSTD_ps_enable);
    if (options_.huffman) {
      // The fastest match finder there is, told to search next to nothing, with literal compression forced on
      // (negative levels store literals raw): what remains is the entropy stage.
      ok = ok && set(ZSTD_c_compressionLevel, ZSTD_minCLevel()) &&
           set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    } else {
      ok = ok && set(ZSTD_c_compressionLevel, options_.level);
    }
    if (!ok) context.reset();
    return context;
  }

  const ZstdOptions options_;
  mutable zt::internal::Idle<Context> idle_;
};

class Zstd final : public SeekableZstd {
 public:
  std::string_view name() const override { return "zstd"; }
  std::size_t Bound(std::size_t content) const override { return ZSTD_compressBound(content); }
  std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions& options) const override {
    return std::make_unique<ZstdEncoder>(options);
  }
  Status DecodeFrame(const CodecParameters&, std::span<const std::byte> in,
                     std::span<std::byte> out) const override {
    return DecodeZstdFrame(in, out);
  }
  std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters&, StreamReader read,
                                            std::uint64_t stream_bytes,
                                            std::uint64_t content_bytes) const override {
    return OpenZstdStream(std::move(read), stream_bytes, content_bytes);
  }
};

void Put32(std::vector<std::byte>& out, std::uint32_t value) {
  out.resize(out.size() + 4);
  zt::internal::StoreLittle(value, 4, &out[out.size() - 4]);
}

}  // namespace

// An RLE block of 4 bytes yields the largest block, 128 KiB: no zstd stream expands by more.
std::uint64_t SeekableZstd::max_ratio() const { return 32768; }

std::uint64_t SeekableZstd::TrailerBytes(std::uint64_t frames) const { return 17 + 8 * frames; }

std::vector<std::byte> SeekableZstd::Trailer(std::span<const Frame> frames) const {
  std::vector<std::byte> out;
  out.reserve(TrailerBytes(frames.size()));
  Put32(out, 0x184D2A5E);  // skippable frame, the seekable format's own magic
  Put32(out, static_cast<std::uint32_t>(8 * frames.size() + 9));
  for (const Frame& frame : frames) {
    Put32(out, frame.bytes);
    Put32(out, frame.content_bytes);
  }
  Put32(out, static_cast<std::uint32_t>(frames.size()));
  out.push_back(std::byte{0});  // descriptor: no checksums here, each frame has its own
  Put32(out, 0x8F92EAB1);
  return out;
}

const Codec& ZstdCodec() {
  static const Codec* const codec = new Zstd;
  return *codec;
}

}  // namespace zt::compress::internal
