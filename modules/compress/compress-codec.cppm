// zt.compress:codec — what an encoding of stored bytes is: one object for each, and the table of them.
export module zt.compress:codec;

import zt.std;
import zt.core;

export namespace zt {

// How the bytes of a component are stored. Each value but kRaw is a row of the table of codecs; how a version of the
// container spells it is decided by zt.format.
enum class Encoding : std::uint8_t {
  kRaw,     // as they are; it has no codec
  kZstd,    // zstd frames and a seek table
  kPlanes,  // the same of floats whose bytes were laid out as planes before (docs/PLANES.md)
};

// What a codec has to know of a component besides its bytes. A codec that needs none of it leaves it at zero.
struct CodecParameters {
  std::uint32_t chunk =
      0;  // bytes of content in each frame but the last; 0 where frames may differ
  std::uint32_t group = 0;  // bytes of content that are transformed together
  std::uint8_t width = 0;   // bytes of an element
  std::uint8_t rotate = 0;  // bits by which elements are rotated
  bool operator==(const CodecParameters&) const = default;
};

// What a caller chooses of an encoder. The frames of zstd are those of the zstd seekable format
// (contrib/seekable_format in zstd's sources).
struct ZstdOptions {
  int level = 1;  // 1 to 19, or negative for faster
  // No matches, literals Huffman-coded: most of the gain on weights, at less cost.
  bool huffman = false;
  std::uint64_t frame_bytes = std::uint64_t{4} << 20;  // content of one frame, 1 KiB to 1 GiB
};

// One frame of a stored stream. All in bytes.
struct Frame {
  std::uint64_t offset = 0;          // where it begins in the stream
  std::uint64_t content_offset = 0;  // where what it holds begins in the content
  std::uint32_t bytes = 0;           // of the frame
  std::uint32_t content_bytes = 0;   // of what it holds
};

// kDataLoss unless each frame has `chunk` bytes of content, as the parameters ask; the last one may have fewer.
Status CheckFrames(const CodecParameters& parameters, std::span<const Frame> frames);

// Reads `out.size()` bytes of a stored stream from `offset`.
using StreamReader = std::function<Status(std::uint64_t offset, std::span<std::byte> out)>;

// Encodes one frame after another. Thread-safe.
class FrameEncoder {
 public:
  virtual ~FrameEncoder() = default;
  // Writes one frame that holds `in` to `out`, which has at least Codec::Bound(in.size()) bytes, and returns its
  // size. The same input, parameters and options give the same bytes, whichever thread calls and whatever instructions
  // the machine has. kInvalidArgument for parameters that Codec::Parameters never gives, where they cannot be used.
  virtual StatusOr<std::size_t> Encode(const CodecParameters& parameters,
                                       std::span<const std::byte> in,
                                       std::span<std::byte> out) const = 0;
};

// Decodes a stored stream in order with bounded memory. Not thread-safe.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;
  // The next out.size() bytes of content. kDataLoss where the stream yields fewer.
  virtual Status Read(std::span<std::byte> out) = 0;
  // As Read, but the stream may end first; returns how many bytes of content there were. kDataLoss where the stream
  // is cut short.
  virtual StatusOr<std::size_t> ReadSome(std::span<std::byte> out) = 0;
  // Called after the last byte of content: the stream must end here, whole.
  virtual Status Finish() = 0;
};

// An encoding of stored bytes: a stream of frames, each decodable alone, and a trailer that says where they lie.
// Thread-safe; lives as long as the process.
class Codec {
 public:
  virtual ~Codec() = default;
  // The field `encoding` of a 1.x manifest, and the name in messages: "zstd".
  virtual std::string_view name() const = 0;
  // No stream yields more content than this many times its own length.
  virtual std::uint64_t max_ratio() const = 0;
  // What the codec has to know to encode a component of this type in frames of about `frame_bytes` of content. All
  // zero where it needs nothing; of kPlanes, where the type gains nothing from it.
  virtual CodecParameters Parameters(const ElementType& element, std::uint64_t frame_bytes) const;

  // The most bytes a frame of `content` bytes takes.
  virtual std::size_t Bound(std::size_t content) const = 0;
  // `options` must be valid.
  virtual std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions& options) const = 0;
  // What ends the stream after its `frames`, which are in order, and the size it has for so many frames.
  virtual std::vector<std::byte> Trailer(std::span<const Frame> frames) const = 0;
  virtual std::uint64_t TrailerBytes(std::uint64_t frames) const = 0;

  // The frames of a stream of `stream_bytes`, as its trailer says; nullopt where it has none. kDataLoss where the
  // trailer contradicts the stream's length or `content_bytes` (unless that is kUnknownSize).
  virtual StatusOr<std::optional<std::vector<Frame>>> ReadFrames(
      const StreamReader& read, std::uint64_t stream_bytes, std::uint64_t content_bytes) const = 0;
  // Decodes the one frame in `in` to exactly out.size() bytes; kDataLoss where it holds anything else. The frame's own
  // checksum, where it has one, is checked.
  virtual Status DecodeFrame(const CodecParameters& parameters, std::span<const std::byte> in,
                             std::span<std::byte> out) const = 0;
  // A decoder for the whole stream, with or without a trailer. `content_bytes` may be kUnknownSize for ReadSome.
  virtual std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters& parameters,
                                                    StreamReader read, std::uint64_t stream_bytes,
                                                    std::uint64_t content_bytes) const = 0;
};

// The codec of an encoding: null for kRaw and for a number that no codec has.
const Codec* FindCodec(Encoding encoding);
// "raw", or the name of the codec.
std::string_view Name(Encoding encoding);
// The encoding of that name; nullopt where there is none.
std::optional<Encoding> ParseEncoding(std::string_view name);
// Every encoding that has a codec.
std::vector<Encoding> Encodings();

// Adds a codec to the table, for programs that bring their own: readers and writers of this process then know its
// name. Files that use it can be read by nobody else. Call it before any file is opened; at most 16 codecs fit, and
// kInvalidArgument is returned where the name is taken or the table is full.
StatusOr<Encoding> RegisterCodec(std::unique_ptr<const Codec> codec);

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::compress::internal {

// What codecs have in common whose streams are zstd frames with a seek table behind them: a skippable frame of 17 bytes
// and 8 for each frame.
class SeekableZstd : public Codec {
 public:
  std::uint64_t max_ratio() const override;
  std::vector<std::byte> Trailer(std::span<const Frame> frames) const override;
  std::uint64_t TrailerBytes(std::uint64_t frames) const override;
  StatusOr<std::optional<std::vector<Frame>>> ReadFrames(
      const StreamReader& read, std::uint64_t stream_bytes,
      std::uint64_t content_bytes) const override;
};

// Codec::DecodeFrame and OpenStream of zstd; byte planes are in zstd's frames as well. Contexts are pooled.
Status DecodeZstdFrame(std::span<const std::byte> in, std::span<std::byte> out);
std::unique_ptr<StreamDecoder> OpenZstdStream(StreamReader read, std::uint64_t stream_bytes,
                                              std::uint64_t content_bytes);

// The table's own rows, each in a file of its own.
const Codec& ZstdCodec();
const Codec& PlanesCodec();

}  // namespace zt::compress::internal
