// zt.compress:planes — the codec of byte planes: zstd frames and seek table with transformed
// content; assembles frames block by block.
module;

#define XXH_STATIC_LINKING_ONLY  // for a state on the stack
#define ZSTD_STATIC_LINKING_ONLY
#include <xxhash.h>
#include <zstd.h>

#include "compress/huffman.h"
#include "compress/literals.h"
#include "compress/planes_kernel.h"
#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.compress;

import zt.std;
import :codec;
import :planes;
import zt.core;

namespace zt {

Status CheckPlaneLayout(const CodecParameters& layout) {
  const std::string width = std::to_string(layout.width);
  if (layout.width != 2 && layout.width != 4 && layout.width != 8) {
    return InvalidData("elements of " + width + " bytes have no planes; those of 2, 4 and 8 have");
  }
  if (layout.rotate > 1) {
    return InvalidData("'rotate' is " + std::to_string(layout.rotate) + ", neither 0 nor 1");
  }
  if (layout.group == 0 || layout.group % layout.width != 0) {
    return InvalidData("'group' is " + std::to_string(layout.group) + ", not a multiple of the " +
                       width + " bytes of an element");
  }
  if (layout.frame_content % layout.group == 0) return OkStatus();
  return InvalidData("'chunk' is " + std::to_string(layout.frame_content) +
                     ", not a multiple of 'group', " + std::to_string(layout.group));
}

}  // namespace zt

namespace zt::compress::internal {
namespace {

using zstd::kBlockHeaderBytes;
constexpr std::size_t kBlock = zstd::kMaxBlockBytes;
// For planes in which one value prevails: small blocks are more likely to consist
// of that value alone.
constexpr std::size_t kSmallBlock = 8 << 10;
constexpr std::size_t kSmallest = 64;  // zstd does not compress fewer literals

enum BlockType : unsigned { kRawBlock = 0, kCompressedBlock = 2 };

const std::uint8_t* Octets(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
std::uint8_t* Octets(std::byte* p) { return reinterpret_cast<std::uint8_t*>(p); }

// A cursor for writing. The caller has reserved enough room (PlanesFrameBound).
struct Out {
  std::byte* at;

  void Little(std::uint64_t value, std::size_t bytes) {
    zt::internal::StoreLittle(value, bytes, at);
    at += bytes;
  }
  void Bytes(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    at += bytes.size();
  }
  void BlockHeader(BlockType type, std::size_t size, bool last) {
    Little(size << 3 | static_cast<std::size_t>(type) << 1 | (last ? 1u : 0u), kBlockHeaderBytes);
  }
};

// Writes the magic number, and the content's size in the smallest form. The window
// is the whole content.
void FrameHeader(std::size_t content, Out& out) {
  out.Little(ZSTD_MAGICNUMBER, 4);
  constexpr unsigned kSingleSegment = 0x20, kChecksum = 0x04;
  const unsigned form = content < 256 ? 0 : content < 65536 + 256 ? 1 : 2;
  out.Little(form << 6 | kSingleSegment | kChecksum, 1);
  out.Little(form == 1 ? content - 256 : content, std::size_t{1} << form);
}

// The probability that two bytes of the block are equal, in units of 1/256 of that of noise: 256
// for noise, 65536 if all bytes are equal. Samples a line of 64 bytes in each 2 KiB; integer
// arithmetic, so that the result is the same on any machine.
std::uint64_t Collisions(std::span<const std::byte> block) {
  constexpr std::size_t kLine = 64, kEach = 2048;
  std::array<std::array<std::uint32_t, 256>, 2> counts{};
  std::uint64_t sampled = 0;
  const std::size_t step = block.size() <= 2 * kEach ? kLine : kEach;
  for (std::size_t i = 0; i + kLine <= block.size(); i += step, sampled += kLine) {
    for (std::size_t j = i; j < i + kLine; j += 2) {
      ++counts[0][static_cast<std::size_t>(block[j])];
      ++counts[1][static_cast<std::size_t>(block[j + 1])];
    }
  }
  std::uint64_t pairs = 0;
  for (std::size_t v = 0; v < 256; ++v) {
    const std::uint64_t count = std::uint64_t{counts[0][v]} + counts[1][v];
    pairs += count * (count - (count > 0 ? 1 : 0));
  }
  return sampled == 0 ? 65536 : pairs * 65536 / (sampled * (sampled - 1));
}

// From which collisions on a block is coded, and by which part it must shrink.
struct Effort {
  std::uint64_t worth_coding;
  std::size_t least_part;
};
// Noise has 256, and mantissas of weights reach 270: coding those costs time for little.
constexpr Effort kFast = {320, 32};
constexpr Effort kThorough = {260, 256};
// From here on one value makes up most of the block: three quarters, if other values are rare.
constexpr std::uint64_t kOnePrevails = 36864;

bool OneValue(std::span<const std::byte> block) {
  return std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0;
}

using CContext = std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)>;

// State reused from frame to frame.
struct Worker {
  Worker() : context(ZSTD_createCCtx(), &ZSTD_freeCCtx), frame(ZSTD_compressBound(kBlock)) {
    if (context == nullptr) return;
    const auto set = [&](ZSTD_cParameter parameter, int value) {
      return !ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value));
    };
    // As ZstdOptions::huffman: no match search, Huffman-coded literals. Header and
    // checksum are discarded.
    const bool ok = set(ZSTD_c_contentSizeFlag, 0) && set(ZSTD_c_checksumFlag, 0) &&
                    set(ZSTD_c_compressionLevel, ZSTD_minCLevel()) &&
                    set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    if (!ok) context.reset();
  }

  // Huffman-codes the block: returns the body of a compressed block, or nothing unless it
  // shrinks by at least this part.
  std::span<const std::byte> Coded(std::span<const std::byte> block, std::size_t part) {
    std::span<const std::byte> body = few_values.Code(block);
    if (body.empty()) body = CodedByZstd(block);
    return body.size() + block.size() / part < block.size() ? body : std::span<const std::byte>();
  }

  // The same with zstd: the body of a compressed block of literals, or nothing.
  std::span<const std::byte> CodedByZstd(std::span<const std::byte> block) {
    const std::size_t size =
        ZSTD_compress2(context.get(), frame.data(), frame.size(), block.data(), block.size());
    if (ZSTD_isError(size)) return {};
    const std::size_t header = ZSTD_frameHeaderSize(frame.data(), size);
    if (ZSTD_isError(header) || header + kBlockHeaderBytes > size) return {};
    const std::span<const std::byte> body =
        std::span<const std::byte>(frame).first(size).subspan(header + kBlockHeaderBytes);
    const std::uint64_t head = zt::internal::LoadLittle(&frame[header], kBlockHeaderBytes);
    const bool whole = (head & 1) != 0 && (head >> 1 & 3) == kCompressedBlock;
    if (!whole || head >> 3 != body.size() || !zstd::FindLiterals(body)) return {};
    return body;
  }

  CContext context;
  compress_huffman::LiteralsCoder few_values;
  std::vector<std::byte> frame;   // one block, as encoded by zstd
  std::vector<std::byte> planes;  // planes of one group
};

void PutBlock(Worker& worker, const Effort& effort, std::span<const std::byte> block, bool last,
              Out& out) {
  if (block.size() >= kSmallest) {
    if (OneValue(block)) {
      // Literals of one repeated value. An RLE block would be up to four bytes shorter, but
      // decoders before 1.4.4 refuse a frame that begins with one.
      constexpr unsigned kRepeated = 1, kLongForm = 3, kNoSequences = 0;
      out.BlockHeader(kCompressedBlock, 5, last);
      out.Little(block.size() << 4 | kLongForm << 2 | kRepeated, 3);
      out.Bytes(block.first(1));
      out.Little(kNoSequences, 1);
      return;
    }
    const std::uint64_t collisions = Collisions(block);
    if (collisions >= kOnePrevails && block.size() > kSmallBlock) {
      for (std::size_t i = 0; i < block.size(); i += kSmallBlock) {
        const auto piece = block.subspan(i, std::min(kSmallBlock, block.size() - i));
        PutBlock(worker, effort, piece, last && i + piece.size() == block.size(), out);
      }
      return;
    }
    if (collisions >= effort.worth_coding) {
      const std::span<const std::byte> body = worker.Coded(block, effort.least_part);
      if (!body.empty()) {
        out.BlockHeader(kCompressedBlock, body.size(), last);
        out.Bytes(body);
        return;
      }
    }
  }
  out.BlockHeader(kRawBlock, block.size(), last);
  out.Bytes(block);
}

}  // namespace

void SplitPlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout) {
  const bool streamed = in.size() >= kernel::kStreamedPlanes;
  for (std::size_t at = 0; at < in.size(); at += layout.group) {
    const std::size_t bytes = std::min<std::size_t>(layout.group, in.size() - at);
    kernel::SplitPlanes(Octets(in.data() + at), Octets(out.data() + at), bytes / layout.width,
                        layout.width, layout.rotate != 0, streamed);
  }
  if (streamed) kernel::FlushPlanes();
}

void MergePlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout) {
  const bool streamed = in.size() >= kernel::kStreamedPlanes;
  for (std::size_t at = 0; at < in.size(); at += layout.group) {
    const std::size_t bytes = std::min<std::size_t>(layout.group, in.size() - at);
    std::array<const std::uint8_t*, 8> planes;
    for (std::size_t p = 0; p < layout.width; ++p) {
      planes[p] = Octets(in.data() + at) + p * (bytes / layout.width);
    }
    kernel::MergePlanes(planes.data(), Octets(out.data() + at), bytes / layout.width, layout.width,
                        layout.rotate != 0, streamed);
  }
  if (streamed) kernel::FlushPlanes();
}

std::size_t PlanesFrameBound(std::size_t content, const CodecParameters& layout) {
  const std::size_t groups = (content + layout.group - 1) / layout.group;
  const std::size_t blocks = groups * layout.width + content / kSmallBlock + 1;
  return 32 + content + kBlockHeaderBytes * blocks;
}

namespace {

zt::internal::ObjectPool<std::unique_ptr<Worker>>& Workers() {
  static auto* const workers = new zt::internal::ObjectPool<std::unique_ptr<Worker>>;
  return *workers;
}

StatusOr<std::unique_ptr<Worker>> TakeWorker() {
  auto worker = Workers().Take().value_or(nullptr);
  if (worker == nullptr) worker = std::make_unique<Worker>();
  if (worker->context == nullptr) return IoError("cannot make a zstd context: out of memory");
  return worker;
}

// Encodes pieces of content as the blocks of one frame, each by its own bytes: a single value is
// stored once, noise is stored raw, all else is Huffman-coded.
class FrameMaker {
 public:
  FrameMaker(Worker& worker, const Effort& effort, std::size_t content, std::byte* out)
      : worker_(worker), effort_(effort), left_(content), begin_(out), out_{out} {
    FrameHeader(content, out_);
    XXH64_reset(&sum_, 0);
    if (content == 0) out_.BlockHeader(kRawBlock, 0, true);
  }
  // Blocks do not cross the end of a piece.
  void Add(std::span<const std::byte> piece) {
    XXH64_update(&sum_, piece.data(), piece.size());
    for (std::size_t i = 0; i < piece.size(); i += kBlock) {
      const auto block = piece.subspan(i, std::min(kBlock, piece.size() - i));
      left_ -= block.size();
      PutBlock(worker_, effort_, block, left_ == 0, out_);
    }
  }
  // The size of the frame.
  std::size_t Finish() {
    out_.Little(XXH64_digest(&sum_) & 0xffffffff, 4);
    return static_cast<std::size_t>(out_.at - begin_);
  }

 private:
  Worker& worker_;
  const Effort& effort_;
  std::size_t left_;
  std::byte* const begin_;
  Out out_;
  XXH64_state_t sum_;
};

// Encodes each frame from one chunk, split into planes.
class PlanesEncoder final : public FrameEncoder {
 public:
  StatusOr<std::size_t> Encode(const CodecParameters& layout, std::span<const std::byte> in,
                               std::span<std::byte> out) const override {
    ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckPlaneLayout(layout)));
    if (in.size() % layout.width != 0 || out.size() < PlanesFrameBound(in.size(), layout)) {
      return InvalidArgument("byte planes are made of whole elements, with room for the frame");
    }
    ZT_ASSIGN_OR_RETURN(auto worker, TakeWorker());
    worker->planes.resize(std::max<std::size_t>(worker->planes.size(),
                                                std::min<std::size_t>(layout.group, in.size())));
    FrameMaker frame(*worker, kFast, in.size(), out.data());
    for (std::size_t at = 0; at < in.size(); at += layout.group) {
      const auto group = in.subspan(at, std::min<std::size_t>(layout.group, in.size() - at));
      const auto planes = std::span(worker->planes).first(group.size());
      SplitPlanes(group, planes, layout);
      const std::size_t plane = group.size() / layout.width;
      for (std::size_t i = 0; i < planes.size(); i += plane) frame.Add(planes.subspan(i, plane));
    }
    const std::size_t size = frame.Finish();
    Workers().Give(std::move(worker));
    return size;
  }
};

// Elements of a group: each plane of a full group is a zstd block of the maximum size.
constexpr std::uint64_t kGroupElements = 128 << 10;
// Chunks are multiples of this many elements, and so of the blocks of all ggml types.
constexpr std::uint64_t kLeastElements = 256;

// Decodes group by group: chunks are whole groups, so only the last group of the
// stream may be shorter.
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
  // Reads at most the declared content: the size of the last group determines where its planes
  // begin. Finish of the inner stream reports any excess.
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
  std::uint64_t left_;  // remaining content; kUnknownSize never reaches 0
  std::unique_ptr<StreamDecoder> stream_;
  std::vector<std::byte> planes_, elements_;  // of the current group
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
    parameters.frame_content = static_cast<std::uint32_t>(wanted / unit * unit);
    parameters.group =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(full, parameters.frame_content));
    parameters.width = static_cast<std::uint8_t>(width);
    parameters.rotate = 1;
    return parameters;
  }

  // For the results of Parameters: none of those has frames of more blocks.
  std::size_t Bound(std::size_t content) const override {
    CodecParameters smallest;
    smallest.width = 8;
    smallest.group = static_cast<std::uint32_t>(kGroupElements * 8);
    return PlanesFrameBound(content, smallest);
  }
  bool IsBounded(const CodecParameters& parameters) const override {
    const std::size_t content = parameters.frame_content;
    return PlanesFrameBound(content, parameters) <= Bound(content);
  }
  std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions&) const override {
    return std::make_unique<PlanesEncoder>();
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

std::size_t PiecesFrameBound(std::size_t content, std::size_t pieces) {
  return 32 + content + kBlockHeaderBytes * (pieces + content / kSmallBlock + 1);
}

StatusOr<std::size_t> EncodePieces(std::span<const std::byte> content,
                                   std::span<const std::size_t> pieces, std::span<std::byte> out) {
  ZT_ASSIGN_OR_RETURN(auto worker, TakeWorker());
  FrameMaker frame(*worker, kThorough, content.size(), out.data());
  std::size_t at = 0;
  for (const std::size_t piece : pieces) {
    frame.Add(content.subspan(at, piece));
    at += piece;
  }
  const std::size_t size = frame.Finish();
  Workers().Give(std::move(worker));
  return size;
}

const Codec& PlanesCodec() {
  static const Codec* const codec = new Planes;
  return *codec;
}

}  // namespace zt::compress::internal