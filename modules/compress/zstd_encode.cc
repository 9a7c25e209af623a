// zt.compress — frames and seek tables, out.
module;

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "core/little_endian.h"

module zt.compress;

import zt.std;

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

std::size_t FrameBound(std::size_t content) { return ZSTD_compressBound(content); }

struct FrameCompressor::Pool {
  using Context = std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)>;

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
    if (options.huffman) {
      // The fastest match finder there is, told to search next to nothing, with literal compression forced on
      // (negative levels store literals raw): what remains is the entropy stage.
      ok = ok && set(ZSTD_c_compressionLevel, ZSTD_minCLevel()) &&
           set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    } else {
      ok = ok && set(ZSTD_c_compressionLevel, options.level);
    }
    if (!ok) context.reset();
    return context;
  }
  ZstdOptions options;
  internal::Idle<Context> idle;
};

FrameCompressor::FrameCompressor(const ZstdOptions& options) : pool_(std::make_unique<Pool>()) {
  pool_->options = options;
}
FrameCompressor::~FrameCompressor() = default;

StatusOr<std::size_t> FrameCompressor::Compress(std::span<const std::byte> in,
                                                std::span<std::byte> out) const {
  auto held = pool_->idle.Take();
  auto context = held ? *std::move(held) : pool_->Make();
  if (context == nullptr) return IoError("cannot make a zstd context: out of memory");
  const std::size_t size =
      ZSTD_compress2(context.get(), out.data(), out.size(), in.data(), in.size());
  if (ZSTD_isError(size)) return IoError(std::string("zstd: ") + ZSTD_getErrorName(size));
  pool_->idle.Give(std::move(context));
  return size;
}

namespace {
void Put32(std::vector<std::byte>& out, std::uint32_t value) {
  out.resize(out.size() + 4);
  internal::StoreLittle(value, 4, &out[out.size() - 4]);
}
}  // namespace

std::vector<std::byte> SeekTable(std::span<const Frame> frames) {
  std::vector<std::byte> out;
  out.reserve(SeekTableBytes(frames.size()));
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

}  // namespace zt
