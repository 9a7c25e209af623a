// zt.compress — the zstd codec: encodes and decodes frames and the seek table.
module;

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "core/little_endian.h"
#include "core/status_macros.h"

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
    // By default zstd chooses the match finder of levels 5 to 12 by the processor's instructions,
    // and with it the bytes of small frames.
    bool ok = set(ZSTD_c_contentSizeFlag, 1) && set(ZSTD_c_checksumFlag, 1) &&
              set(ZSTD_c_useRowMatchFinder, ZSTD_ps_enable);
    if (options_.huffman) {
      // The fastest match finder, at the least effort, with literal compression forced on (negative
      // levels store literals raw): only the entropy stage remains.
      ok = ok && set(ZSTD_c_compressionLevel, ZSTD_minCLevel()) &&
           set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    } else {
      ok = ok && set(ZSTD_c_compressionLevel, options_.level);
    }
    if (!ok) context.reset();
    return context;
  }

  const ZstdOptions options_;
  mutable zt::internal::ObjectPool<Context> idle_;
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

// An RLE block takes 4 bytes and decodes to the maximum block size, 128 KiB: no zstd
// stream expands more.
std::uint64_t SeekableZstd::max_ratio() const { return 32768; }

std::uint64_t SeekableZstd::TrailerBytes(std::uint64_t frames) const { return 17 + 8 * frames; }

std::vector<std::byte> SeekableZstd::Trailer(std::span<const Frame> frames) const {
  std::vector<std::byte> out;
  out.reserve(TrailerBytes(frames.size()));
  Put32(out, 0x184D2A5E);  // a skippable frame, with the magic number of the seekable format
  Put32(out, static_cast<std::uint32_t>(8 * frames.size() + 9));
  for (const Frame& frame : frames) {
    Put32(out, frame.bytes);
    Put32(out, frame.content_bytes);
  }
  Put32(out, static_cast<std::uint32_t>(frames.size()));
  out.push_back(std::byte{0});  // descriptor: no checksums in the table, as each frame has its own
  Put32(out, 0x8F92EAB1);
  return out;
}

const Codec& ZstdCodec() {
  static const Codec* const codec = new Zstd;
  return *codec;
}

namespace {

// The largest window that we accept (zstd's default limit).
constexpr int kMaxWindowLog = 27;
// The smallest that counts as a frame: a skippable one.
constexpr std::uint64_t kLeastFrame = 8;
// How many entries of a seek table are read with one call.
constexpr std::uint64_t kEntriesAtOnce = 32 << 10;

std::uint32_t Get32(const std::byte* p) {
  return static_cast<std::uint32_t>(zt::internal::LoadLittle(p, 4));
}

Status ZstdError(std::size_t code) {
  return InvalidData(std::string("the zstd stream is damaged: ") + ZSTD_getErrorName(code));
}

using DContext = std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)>;

DContext MakeDContext() {
  DContext context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (context != nullptr) {
    ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }
  return context;
}

}  // namespace

StatusOr<std::optional<std::vector<Frame>>> SeekableZstd::ReadFrames(
    const StreamReader& read, std::uint64_t stream_bytes, std::uint64_t content_bytes) const {
  if (stream_bytes < TrailerBytes(0)) return std::nullopt;
  std::array<std::byte, 9> footer;
  ZT_RETURN_IF_ERROR(read(stream_bytes - footer.size(), footer));
  if (Get32(footer.data() + 5) != 0x8F92EAB1) return std::nullopt;
  const std::uint64_t count = Get32(footer.data());
  const auto descriptor = static_cast<unsigned>(footer[4]);
  const std::uint64_t entry = descriptor & 0x80 ? 12 : 8;
  const std::uint64_t table = 17 + entry * count;
  // no seek table: the magic is a coincidence
  if (table > stream_bytes || (descriptor & 0x7c) != 0) return std::nullopt;
  const std::uint64_t begin = stream_bytes - table;
  // A table may be as large as the frames: it is read in pieces, the first with its header.
  std::vector<std::byte> bytes(8 + std::min(count, kEntriesAtOnce) * entry);
  ZT_RETURN_IF_ERROR(read(begin, bytes));
  if (Get32(bytes.data()) != 0x184D2A5E || Get32(bytes.data() + 4) != table - 8) {
    return std::nullopt;
  }
  if (count > begin / kLeastFrame) {
    return InvalidData("the zstd seek table has " + std::to_string(count) +
                       " frames, which do not fit into " + std::to_string(begin) + " bytes");
  }
  bytes.erase(bytes.begin(), bytes.begin() + 8);
  std::vector<Frame> frames;
  frames.reserve(count);
  Frame next;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = i % kEntriesAtOnce;
    if (i > 0 && at == 0) {
      bytes.resize(std::min(count - i, kEntriesAtOnce) * entry);
      ZT_RETURN_IF_ERROR(read(begin + 8 + i * entry, bytes));
    }
    next.bytes = Get32(bytes.data() + at * entry);
    next.content_bytes = Get32(bytes.data() + at * entry + 4);
    frames.push_back(next);
    next.offset += next.bytes;
    next.content_offset += next.content_bytes;
  }
  const bool known = content_bytes != kUnknownSize;
  if (next.offset != stream_bytes - table || (known && next.content_offset != content_bytes)) {
    return InvalidData("the zstd seek table has " + std::to_string(next.offset) + " bytes for " +
                       std::to_string(next.content_offset) + ", the stream has " +
                       std::to_string(stream_bytes - table) +
                       (known ? " for " + std::to_string(content_bytes) : ""));
  }
  return frames;
}

namespace {

Status OtherSize(std::uint64_t size, std::uint64_t declared) {
  return InvalidData("a zstd frame yields " + std::to_string(size) + " bytes, " +
                     std::to_string(declared) + " were declared");
}

// Checks what can be told of a frame of `content` bytes without decoding it. False if it does not say
// its size.
StatusOr<bool> CheckHeader(std::span<const std::byte> in, std::uint64_t content) {
  // `in` must be exactly one frame: a seek table with wrong offsets must not pass.
  const std::size_t frame = ZSTD_findFrameCompressedSize(in.data(), in.size());
  if (ZSTD_isError(frame)) return ZstdError(frame);
  if (frame != in.size()) return InvalidData("the zstd seek table does not match the frames");
  ZSTD_frameHeader header;
  if (const std::size_t failed = ZSTD_getFrameHeader(&header, in.data(), in.size()))
    return ZstdError(failed);
  const bool skipped = header.frameType == ZSTD_skippableFrame;
  const std::uint64_t stated = skipped ? 0 : header.frameContentSize;
  const bool sized = stated != ZSTD_CONTENTSIZE_UNKNOWN;
  if (sized && stated != content) return OtherSize(stated, content);
  if (skipped) return sized;
  // ZSTD_decompressDCtx ignores the limit, which the other decoder has.
  if (header.windowSize > std::max(std::uint64_t{1} << kMaxWindowLog, content)) {
    return InvalidData("the zstd stream takes too much memory for decoding: its window has " +
                       std::to_string(header.windowSize) + " bytes");
  }
  if (header.dictID != 0) return InvalidData("the zstd stream needs a dictionary");
  return sized;
}

}  // namespace

Status SeekableZstd::CheckFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                                std::uint64_t content) const {
  ZT_ASSIGN_OR_RETURN(const bool sized, CheckHeader(in, content));
  if (sized) return OkStatus();
  std::vector<std::byte> decoded(content);
  return DecodeFrame(parameters, in, decoded);
}

Status DecodeZstdFrame(std::span<const std::byte> in, std::span<std::byte> out) {
  static auto* const contexts = new zt::internal::ObjectPool<DContext>;
  ZT_RETURN_IF_ERROR(CheckHeader(in, out.size()).status());
  auto held = contexts->Take();
  DContext context = held ? *std::move(held) : MakeDContext();
  if (context == nullptr) return IoError("cannot make a zstd context: out of memory");
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
  if (ZSTD_isError(size)) return ZstdError(size);
  contexts->Give(std::move(context));
  return size == out.size() ? OkStatus() : OtherSize(size, out.size());
}

namespace {

// Decodes any zstd stream (frames of unknown content size, skippable frames) in steps.
class ZstdStream final : public StreamDecoder {
 public:
  ZstdStream(StreamReader read, std::uint64_t stream_bytes, std::uint64_t content_bytes)
      : read_(std::move(read)), stream_bytes_(stream_bytes), content_bytes_(content_bytes) {}

  Status Read(std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const std::size_t filled, Fill(out));
    if (filled == out.size()) return OkStatus();
    return InvalidData("the zstd stream yields " + std::to_string(produced_) + " bytes, " +
                       std::to_string(content_bytes_) + " were declared");
  }

  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const std::size_t filled, Fill(out));
    if (filled < out.size() && !at_frame_end_) {
      return InvalidData("the zstd stream is cut short");
    }
    return filled;
  }

  Status Finish() override {
    if (context_ == nullptr) return IoError("cannot make a zstd context: out of memory");
    std::byte extra;
    while (true) {
      ZT_RETURN_IF_ERROR(Refill());
      const bool drained = Drained();
      if (drained && at_frame_end_) return OkStatus();
      ZSTD_outBuffer target{&extra, 1, 0};
      const std::size_t before_in = in_.pos;
      const std::size_t left = ZSTD_decompressStream(context_.get(), &target, &in_);
      if (ZSTD_isError(left)) return ZstdError(left);
      at_frame_end_ = left == 0;
      if (target.pos != 0) {
        return InvalidData("the zstd stream yields more than the " +
                           std::to_string(content_bytes_) + " bytes declared");
      }
      if (drained && !at_frame_end_ && in_.pos == before_in) {
        return InvalidData("the zstd stream is cut short");
      }
    }
  }

 private:
  Status Refill() {
    if (in_.pos < in_.size || fetched_ == stream_bytes_) return OkStatus();
    const auto take = std::min<std::uint64_t>(stream_bytes_ - fetched_, 256 << 10);
    buffer_.resize(take);
    ZT_RETURN_IF_ERROR(read_(fetched_, buffer_));
    fetched_ += take;
    in_ = {buffer_.data(), buffer_.size(), 0};
    return OkStatus();
  }

  bool Drained() const { return in_.pos == in_.size && fetched_ == stream_bytes_; }

  // Fills `out`, or as much of it as the stream has.
  StatusOr<std::size_t> Fill(std::span<std::byte> out) {
    if (context_ == nullptr) return IoError("cannot make a zstd context: out of memory");
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos < target.size) {
      ZT_RETURN_IF_ERROR(Refill());
      if (at_frame_end_ && Drained()) break;
      const std::size_t before_in = in_.pos, before_out = target.pos;
      const std::size_t left = ZSTD_decompressStream(context_.get(), &target, &in_);
      if (ZSTD_isError(left)) return ZstdError(left);
      at_frame_end_ = left == 0;
      if (in_.pos == before_in && target.pos == before_out && fetched_ == stream_bytes_) break;
    }
    produced_ += target.pos;
    return target.pos;
  }

  StreamReader read_;
  std::uint64_t stream_bytes_, content_bytes_;
  std::uint64_t fetched_ = 0;   // bytes of the stream
  std::uint64_t produced_ = 0;  // bytes of the content
  bool at_frame_end_ = false;
  std::vector<std::byte> buffer_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  DContext context_ = MakeDContext();
};

}  // namespace

std::unique_ptr<StreamDecoder> OpenZstdStream(StreamReader read, std::uint64_t stream_bytes,
                                              std::uint64_t content_bytes) {
  return std::make_unique<ZstdStream>(std::move(read), stream_bytes, content_bytes);
}

}  // namespace zt::compress::internal