// zt.compress:codec — the interface of codecs, and the table of codecs.
export module zt.compress:codec;

import zt.std;
import zt.core;

export namespace zt {

// How the bytes of a component are stored. Each value but kRaw is a row of the table of codecs;
// zt.format decides how a version of the container spells it.
enum class Encoding : std::uint8_t {
  kRaw,     // unchanged; has no codec
  kZstd,    // zstd frames and a seek table
  kPlanes,  // the same, of floats split into byte planes (docs/PLANES.md)
};

// The properties of a component that codecs need. Fields that a codec does not need are zero.
struct CodecParameters {
  // Bytes of content in each frame but the last; 0 if frames may differ.
  std::uint32_t frame_content = 0;
  std::uint32_t group = 0;  // bytes of content that are transformed together
  std::uint8_t width = 0;   // bytes of an element
  std::uint8_t rotate = 0;  // bits by which elements are rotated
  auto operator<=>(const CodecParameters&) const = default;  // an arbitrary order
};

// Options of the zstd encoder. Streams have the zstd seekable format (contrib/seekable_format
// in zstd's sources).
struct ZstdOptions {
  int level = 1;  // 1 to 19, or negative for faster
  // No matches, only Huffman-coded literals: most of the gain on weights, at less cost.
  bool huffman = false;
  std::uint64_t frame_bytes = std::uint64_t{4} << 20;  // content of a frame: 1 KiB to 1 GiB
};

// One frame of a stored stream. Offsets and sizes are in bytes.
struct Frame {
  std::uint64_t offset = 0;          // of the frame in the stream
  std::uint64_t content_offset = 0;  // of its content in the whole content
  std::uint32_t bytes = 0;           // size of the frame
  std::uint32_t content_bytes = 0;   // size of its content
};

// kDataLoss unless each frame has parameters.frame_content bytes of content; the last may have
// fewer.
Status CheckFrames(const CodecParameters& parameters, std::span<const Frame> frames);

// Reads `out.size()` bytes of a stored stream at `offset`.
using StreamReader = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Encodes frames. Thread-safe.
class FrameEncoder {
 public:
  virtual ~FrameEncoder() = default;
  // Encodes `in` as one frame into `out`, which has at least Codec::Bound(in.size()) bytes,
  // and returns the frame's size. Equal input, parameters and options give equal bytes on any
  // thread and any processor. kInvalidArgument for invalid parameters, which
  // Codec::Parameters never returns.
  virtual StatusOr<std::size_t> Encode(const CodecParameters& parameters,
                                       std::span<const std::byte> in,
                                       std::span<std::byte> out) const = 0;
};

// Decodes a stored stream in order, in bounded memory. Not thread-safe.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  // Reads the next out.size() bytes of content. kDataLoss if the stream has fewer.
  virtual Status Read(std::span<std::byte> out) = 0;
  // As Read, but the stream may end earlier; returns the number of bytes of content. kDataLoss if
  // the stream is truncated.
  virtual StatusOr<std::size_t> ReadSome(std::span<std::byte> out) = 0;
  // Called after the last byte of content: kDataLoss unless the stream ends here, complete.
  virtual Status Finish() = 0;
};

// An encoding of stored bytes: a stream of frames, each decodable by itself, and a trailer with
// their positions. Thread-safe; lives as long as the process.
class Codec {
 public:
  virtual ~Codec() = default;
  // The value of `encoding` in a 1.x manifest, and the name in messages: "zstd".
  virtual std::string_view name() const = 0;
  // Limit on the expansion ratio of any stream.
  virtual std::uint64_t max_ratio() const = 0;
  // The parameters for encoding a component of this type in frames of about `frame_bytes` of
  // content. All zero if the codec needs none, or (kPlanes) does not help for the type.
  virtual CodecParameters Parameters(const ElementType& element, std::uint64_t frame_bytes) const;

  // The maximum size of a frame with `content` bytes of content.
  virtual std::size_t Bound(std::size_t content) const = 0;
  // False for parameters of others whose frames may take more than Bound: what is encoded with them
  // is encoded anew, with Parameters.
  virtual bool IsBounded(const CodecParameters& parameters) const;
  // `options` must be valid.
  virtual std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions& options) const = 0;
  // The trailer of a stream with these `frames`, which are in order; and its size for
  // this number of frames.
  virtual std::vector<std::byte> Trailer(std::span<const Frame> frames) const = 0;
  virtual std::uint64_t TrailerBytes(std::uint64_t frames) const = 0;

  // The frames of a stream of `stream_bytes`, from its trailer; nullopt if it has none.
  // kDataLoss if the trailer contradicts the stream's length or `content_bytes` (unless
  // that is kUnknownSize).
  virtual StatusOr<std::optional<std::vector<Frame>>> ReadFrames(
      const StreamReader& read, std::uint64_t stream_bytes, std::uint64_t content_bytes) const = 0;
  // Decodes the frame `in` to exactly out.size() bytes; kDataLoss if its content has another size.
  // Verifies the frame's own checksum, if it has one.
  virtual Status DecodeFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                             std::span<std::byte> out) const = 0;
  // What can be told about the frame `in` without decoding it: kDataLoss if DecodeFrame to `content`
  // bytes would find another frame, or none. A frame that does not say its size is decoded.
  virtual Status CheckFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                            std::uint64_t content) const;
  // Makes a decoder for a whole stream, with or without a trailer. `content_bytes` may be
  // kUnknownSize if only ReadSome is called.
  virtual std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters& parameters,
                                                    StreamReader read, std::uint64_t stream_bytes,
                                                    std::uint64_t content_bytes) const = 0;
};

// The codec of an encoding; null for kRaw and for unknown values.
const Codec* FindCodec(Encoding encoding);
// "raw", or the name of the codec.
std::string_view Name(Encoding encoding);
// The encoding of that name; nullopt if there is none.
std::optional<Encoding> ParseEncoding(std::string_view name);
// Every encoding that has a codec.
std::vector<Encoding> Encodings();

// Adds a codec to the table, for programs that bring their own: readers and writers of this process
// then know its name. Other programs cannot read files that use it. Call it before any file is
// opened. At most 16 codecs fit; kInvalidArgument if the name is taken or the table is full.
StatusOr<Encoding> RegisterCodec(std::unique_ptr<const Codec> codec);

}  // namespace zt

// Shared by the implementation units, not exported.
namespace zt::compress::internal {

// Base of codecs whose streams are zstd frames followed by a seek table: a skippable frame of 17
// bytes plus 8 for each frame.
class SeekableZstd : public Codec {
 public:
  std::uint64_t max_ratio() const override;
  std::vector<std::byte> Trailer(std::span<const Frame> frames) const override;
  std::uint64_t TrailerBytes(std::uint64_t frames) const override;
  StatusOr<std::optional<std::vector<Frame>>> ReadFrames(
      const StreamReader& read, std::uint64_t stream_bytes,
      std::uint64_t content_bytes) const override;
  Status CheckFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                    std::uint64_t content) const override;
};

// Codec::DecodeFrame and OpenStream of zstd, which byte planes use too. Contexts are pooled.
Status DecodeZstdFrame(std::span<const std::byte> in, std::span<std::byte> out);
std::unique_ptr<StreamDecoder> OpenZstdStream(StreamReader read, std::uint64_t stream_bytes,
                                              std::uint64_t content_bytes);

// The built-in rows of the table, each in a file of its own.
const Codec& ZstdCodec();
const Codec& PlanesCodec();

}  // namespace zt::compress::internal
