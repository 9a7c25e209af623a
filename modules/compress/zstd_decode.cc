// zt.compress — seek tables, frames and streams, in.
module;

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.compress;

import zt.std;

namespace zt {

namespace {

std::uint32_t Get32(const std::byte* p) {
  return static_cast<std::uint32_t>(internal::LoadLittle(p, 4));
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

StatusOr<std::optional<std::vector<Frame>>> ReadSeekTable(const StreamReader& read,
                                                          std::uint64_t stream_bytes,
                                                          std::uint64_t content_bytes) {
  if (stream_bytes < SeekTableBytes(0)) return std::nullopt;
  std::array<std::byte, 9> footer;
  ZT_RETURN_IF_ERROR(read(stream_bytes - footer.size(), footer));
  if (Get32(footer.data() + 5) != 0x8F92EAB1) return std::nullopt;
  const std::uint64_t count = Get32(footer.data());
  const auto descriptor = static_cast<unsigned>(footer[4]);
  const std::uint64_t entry = descriptor & 0x80 ? 12 : 8;
  const std::uint64_t table = 17 + entry * count;
  if (table > stream_bytes || (descriptor & 0x7c) != 0) return std::nullopt;  // chance bytes
  std::vector<std::byte> bytes(table);
  ZT_RETURN_IF_ERROR(read(stream_bytes - table, bytes));
  if (Get32(bytes.data()) != 0x184D2A5E || Get32(bytes.data() + 4) != table - 8) {
    return std::nullopt;
  }
  std::vector<Frame> frames;
  frames.reserve(count);
  Frame next;
  for (std::uint64_t i = 0; i < count; ++i) {
    next.bytes = Get32(bytes.data() + 8 + i * entry);
    next.content_bytes = Get32(bytes.data() + 12 + i * entry);
    frames.push_back(next);
    next.offset += next.bytes;
    next.content_offset += next.content_bytes;
  }
  const bool known = content_bytes != kUnknownSize;
  if (next.offset != stream_bytes - table || (known && next.content_offset != content_bytes)) {
    return InvalidData("the zstd seek table speaks of " + std::to_string(next.offset) +
                       " bytes for " + std::to_string(next.content_offset) + ", the stream has " +
                       std::to_string(stream_bytes - table) +
                       (known ? " for " + std::to_string(content_bytes) : ""));
  }
  return frames;
}

struct FrameDecompressor::Pool {
  internal::Idle<DContext> contexts;
};

FrameDecompressor::FrameDecompressor() : pool_(std::make_unique<Pool>()) {}
FrameDecompressor::~FrameDecompressor() = default;

Status FrameDecompressor::Decompress(std::span<const std::byte> in,
                                     std::span<std::byte> out) const {
  // One frame, all of `in`: a table that points elsewhere must not pass.
  const std::size_t frame = ZSTD_findFrameCompressedSize(in.data(), in.size());
  if (ZSTD_isError(frame)) return ZstdError(frame);
  if (frame != in.size()) return InvalidData("the zstd seek table does not match the frames");
  auto held = pool_->contexts.Take();
  DContext context = held ? *std::move(held) : MakeDContext();
  if (context == nullptr) return IoError("cannot make a zstd context: out of memory");
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
  if (ZSTD_isError(size)) return ZstdError(size);
  pool_->contexts.Give(std::move(context));
  if (size != out.size()) {
    return InvalidData("a zstd frame yields " + std::to_string(size) + " bytes, " +
                       std::to_string(out.size()) + " were declared");
  }
  return OkStatus();
}

struct StreamDecompressor::State {
  StreamReader read;
  std::uint64_t stream_bytes, content_bytes;
  std::uint64_t fetched = 0;   // of the stream
  std::uint64_t produced = 0;  // of the content
  bool at_frame_end = false;
  std::vector<std::byte> buffer;
  ZSTD_inBuffer in{nullptr, 0, 0};
  DContext context = MakeDContext();

  Status Refill() {
    if (in.pos < in.size || fetched == stream_bytes) return OkStatus();
    const auto take = std::min<std::uint64_t>(stream_bytes - fetched, 256 << 10);
    buffer.resize(take);
    ZT_RETURN_IF_ERROR(read(fetched, buffer));
    fetched += take;
    in = {buffer.data(), buffer.size(), 0};
    return OkStatus();
  }

  bool Drained() const { return in.pos == in.size && fetched == stream_bytes; }

  // Fills `out` as far as the stream goes.
  StatusOr<std::size_t> Fill(std::span<std::byte> out) {
    if (context == nullptr) return IoError("cannot make a zstd context: out of memory");
    ZSTD_outBuffer target{out.data(), out.size(), 0};
    while (target.pos < target.size) {
      ZT_RETURN_IF_ERROR(Refill());
      if (at_frame_end && Drained()) break;
      const std::size_t before_in = in.pos, before_out = target.pos;
      const std::size_t left = ZSTD_decompressStream(context.get(), &target, &in);
      if (ZSTD_isError(left)) return ZstdError(left);
      at_frame_end = left == 0;
      if (in.pos == before_in && target.pos == before_out && fetched == stream_bytes) break;
    }
    produced += target.pos;
    return target.pos;
  }
};

StreamDecompressor::StreamDecompressor(StreamReader read, std::uint64_t stream_bytes,
                                       std::uint64_t content_bytes)
    : state_(std::make_unique<State>()) {
  state_->read = std::move(read);
  state_->stream_bytes = stream_bytes;
  state_->content_bytes = content_bytes;
}
StreamDecompressor::~StreamDecompressor() = default;

Status StreamDecompressor::Read(std::span<std::byte> out) {
  ZT_ASSIGN_OR_RETURN(const std::size_t filled, state_->Fill(out));
  if (filled == out.size()) return OkStatus();
  return InvalidData("the zstd stream yields " + std::to_string(state_->produced) + " bytes, " +
                     std::to_string(state_->content_bytes) + " were declared");
}

StatusOr<std::size_t> StreamDecompressor::ReadSome(std::span<std::byte> out) {
  ZT_ASSIGN_OR_RETURN(const std::size_t filled, state_->Fill(out));
  if (filled < out.size() && !state_->at_frame_end) {
    return InvalidData("the zstd stream is cut short");
  }
  return filled;
}

Status StreamDecompressor::Finish() {
  State& s = *state_;
  if (s.context == nullptr) return IoError("cannot make a zstd context: out of memory");
  std::byte extra;
  while (true) {
    ZT_RETURN_IF_ERROR(s.Refill());
    const bool drained = s.Drained();
    if (drained && s.at_frame_end) return OkStatus();
    ZSTD_outBuffer target{&extra, 1, 0};
    const std::size_t before_in = s.in.pos;
    const std::size_t left = ZSTD_decompressStream(s.context.get(), &target, &s.in);
    if (ZSTD_isError(left)) return ZstdError(left);
    s.at_frame_end = left == 0;
    if (target.pos != 0) {
      return InvalidData("the zstd stream yields more than the " + std::to_string(s.content_bytes) +
                         " bytes declared");
    }
    if (drained && !s.at_frame_end && s.in.pos == before_in) {
      return InvalidData("the zstd stream is cut short");
    }
  }
}

}  // namespace zt
