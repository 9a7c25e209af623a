// zt.compress — codecs, and zstd: its frames and the seek table that ends a compressed component.
export module zt.compress;

import zt.std;
export import :codec;
export import :planes;
import zt.core;

export namespace zt {

// A compressed component is a stream in the zstd seekable format (contrib/seekable_format in zstd's sources):
// frames of frame_bytes of content each (the last may be shorter), every one with its content size and checksum,
// then one skippable frame that holds the seek table. Any zstd decoder reads it; ours reads it by frame.

// kInvalidArgument where a field is out of its range, saying which.
Status Validate(const ZstdOptions& options);

// The version of libzstd in use, "1.5.4". A literal.
std::string_view ZstdVersion();

// The largest window a decoder has to accept (zstd's own default limit).
inline constexpr int kMaxWindowLog = 27;

// The most bytes a frame of `content` bytes can take.
std::size_t FrameBound(std::size_t content);

// Compresses one frame after another. Thread-safe: contexts are pooled.
class FrameCompressor {
 public:
  explicit FrameCompressor(const ZstdOptions& options);  // options must be valid
  ~FrameCompressor();
  FrameCompressor(const FrameCompressor&) = delete;
  FrameCompressor& operator=(const FrameCompressor&) = delete;

  // Writes one frame of `in` to `out` (at least FrameBound(in.size()) bytes); its size. The same input and options
  // give the same bytes, whichever thread calls.
  StatusOr<std::size_t> Compress(std::span<const std::byte> in, std::span<std::byte> out) const;

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

// The skippable frame that ends the stream; `frames` in order. 17 bytes and 8 for each frame.
std::vector<std::byte> SeekTable(std::span<const Frame> frames);
// Its size in bytes.
inline std::uint64_t SeekTableBytes(std::uint64_t frames) { return 17 + 8 * frames; }

// The frames by the seek table at the end of a stream of `stream_bytes`; nothing where there is none. kDataLoss
// where a table contradicts the stream's length or `content_bytes` (unless that is kUnknownSize).
StatusOr<std::optional<std::vector<Frame>>> ReadSeekTable(const StreamReader& read,
                                                          std::uint64_t stream_bytes,
                                                          std::uint64_t content_bytes);

// Decodes whole frames. Thread-safe: contexts are pooled.
class FrameDecompressor {
 public:
  FrameDecompressor();
  ~FrameDecompressor();
  FrameDecompressor(const FrameDecompressor&) = delete;
  FrameDecompressor& operator=(const FrameDecompressor&) = delete;

  // Decodes the one frame in `in` to exactly out.size() bytes; kDataLoss otherwise. The frame's checksum, where it
  // has one, is checked.
  Status Decompress(std::span<const std::byte> in, std::span<std::byte> out) const;

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

// Decodes any zstd stream in order (frames and skippable frames, content sizes unknown) with bounded memory.
class StreamDecompressor final : public StreamDecoder {
 public:
  // `stream_bytes` are read in pieces through `read`; the content must be exactly `content_bytes`, which may be
  // kUnknownSize for ReadSome.
  StreamDecompressor(StreamReader read, std::uint64_t stream_bytes, std::uint64_t content_bytes);
  ~StreamDecompressor() override;
  StreamDecompressor(const StreamDecompressor&) = delete;
  StreamDecompressor& operator=(const StreamDecompressor&) = delete;

  // The next out.size() bytes of content; kDataLoss where the stream yields fewer.
  Status Read(std::span<std::byte> out) override;
  // As Read, but the stream may end first: the bytes of content there were. kDataLoss where it is cut short.
  StatusOr<std::size_t> ReadSome(std::span<std::byte> out) override;
  // After the last byte of content: the stream must end here, whole.
  Status Finish() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zt
