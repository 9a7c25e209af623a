// zt.compress:planes — decodes frames of byte planes block by block, and merges planes while
// they are in the cache.
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

namespace zt::compress::internal {
namespace {

constexpr std::size_t kMaxPlanes = 8;
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kSpare = 2 * zstd::kMaxBlockBytes + 256;
enum BlockType : unsigned { kRawBlock = 0, kRepeatedBlock = 1, kCompressedBlock = 2 };

// Pooled decoding state.
struct DecodeContext {
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> zstd{ZSTD_createDCtx(), &ZSTD_freeDCtx};
  compress_huffman::LiteralsDecoder literals;
  std::vector<std::byte> alone;   // a block, as a frame of its own
  std::vector<std::byte> planes;  // planes of one group that are not read from the input
};

// Decodes one frame of independent blocks, as our encoder writes them. Fails on all others, and on
// damaged frames, which zstd's own decoder then handles.
class FrameMerger {
 public:
  FrameMerger(DecodeContext& context, std::span<const std::byte> in, std::span<std::byte> out,
              const CodecParameters& layout)
      : context_(context), in_(in), out_(out), layout_(layout) {}

  // True if all of `in` was one such frame, of out.size() bytes, with a correct checksum.
  bool Run() {
    ZSTD_frameHeader header;
    if (ZSTD_getFrameHeader(&header, in_.data(), in_.size()) != 0 ||
        header.frameType != ZSTD_frame || header.checksumFlag == 0 || header.dictID != 0 ||
        header.frameContentSize != out_.size()) {
      return false;
    }
    at_ = header.headerSize;
    XXH64_reset(&sum_, 0);
    for (std::size_t done = 0; done < out_.size();) {
      const std::size_t bytes = std::min<std::size_t>(layout_.group, out_.size() - done);
      if (!Group(out_.subspan(done, bytes))) return false;
      done += bytes;
    }
    return last_ && in_.size() - at_ == kChecksumBytes &&
           zt::internal::LoadLittle(in_.data() + at_, kChecksumBytes) ==
               (XXH64_digest(&sum_) & 0xffffffff);
  }

 private:
  bool Group(std::span<std::byte> out) {
    const std::size_t plane = out.size() / layout_.width;
    if (context_.planes.size() < out.size() + kSpare) context_.planes.resize(out.size() + kSpare);
    std::array<const std::uint8_t*, kMaxPlanes> planes;
    for (std::size_t p = 0; p < layout_.width; ++p) {
      const std::byte* const bytes = Plane(std::span(context_.planes).subspan(p * plane, plane));
      if (bytes == nullptr) return false;
      XXH64_update(&sum_, bytes, plane);
      planes[p] = reinterpret_cast<const std::uint8_t*>(bytes);
    }
    kernel::MergePlanes(planes.data(), reinterpret_cast<std::uint8_t*>(out.data()), plane,
                        layout_.width, layout_.rotate != 0, false);
    return true;
  }

  // The bytes of the next plane: in `room`, or in the input if a single raw block holds it. Null if
  // a block is unknown.
  const std::byte* Plane(std::span<std::byte> room) {
    for (std::size_t done = 0; done < room.size();) {
      if (last_ || in_.size() - at_ < zstd::kBlockHeaderBytes) return nullptr;
      const std::uint64_t head =
          zt::internal::LoadLittle(in_.data() + at_, zstd::kBlockHeaderBytes);
      last_ = (head & 1) != 0;
      const unsigned type = head >> 1 & 3;
      const std::size_t size = head >> 3, left = room.size() - done;
      const std::size_t stored = type == kRepeatedBlock ? 1 : size;
      if (in_.size() - at_ - zstd::kBlockHeaderBytes < stored) return nullptr;
      const auto whole = in_.subspan(at_, zstd::kBlockHeaderBytes + stored);
      const auto body = whole.subspan(zstd::kBlockHeaderBytes);
      at_ += whole.size();
      std::size_t content = size;
      if (type == kCompressedBlock) {
        const auto literals = zstd::FindLiterals(body);
        if (size > zstd::kMaxBlockBytes || !literals || literals->bytes > left) return nullptr;
        content = literals->bytes;
        const auto to = room.subspan(done, content);
        if (literals->repeated) {
          std::memset(to.data(), static_cast<int>(*literals->repeated), content);
        } else if (!context_.literals.Decode(body, *literals, to) && !Literals(body, to)) {
          return nullptr;
        }
      } else if (content > left || content > zstd::kMaxBlockBytes) {
        return nullptr;
      } else if (type == kRawBlock) {
        if (content == room.size()) return body.data();
        std::memcpy(room.data() + done, body.data(), content);
      } else if (type == kRepeatedBlock) {
        std::memset(room.data() + done, static_cast<int>(body[0]), content);
      } else {
        return nullptr;
      }
      if (content == 0) return nullptr;  // not written by our encoder; the loop would not end
      done += content;
    }
    return room.data();
  }

  // Decodes a block with zstd as the only block of a frame: magic, a header with the
  // content's size, the block.
  bool Literals(std::span<const std::byte> body, std::span<std::byte> out) {
    constexpr std::size_t kHeader = 4 + 1 + 4;
    constexpr std::byte kFourByteSizeOneSegment{0xa0};
    std::vector<std::byte>& frame = context_.alone;
    const std::size_t bytes = kHeader + zstd::kBlockHeaderBytes + body.size();
    if (frame.size() < bytes) frame.resize(bytes);
    zt::internal::StoreLittle(ZSTD_MAGICNUMBER, 4, frame.data());
    frame[4] = kFourByteSizeOneSegment;
    zt::internal::StoreLittle(out.size(), 4, &frame[5]);
    zt::internal::StoreLittle(body.size() << 3 | kCompressedBlock << 1 | 1, zstd::kBlockHeaderBytes,
                              &frame[kHeader]);
    std::memcpy(&frame[kHeader + zstd::kBlockHeaderBytes], body.data(), body.size());
    // Offers zstd more room than needed, as with it zstd copies literals once instead of twice. The
    // rest of `planes` is not decoded yet.
    const auto room =
        static_cast<std::size_t>(context_.planes.data() + context_.planes.size() - out.data());
    return ZSTD_decompressDCtx(context_.zstd.get(), out.data(), room, frame.data(), bytes) ==
           out.size();
  }

  DecodeContext& context_;
  const std::span<const std::byte> in_;
  const std::span<std::byte> out_;
  const CodecParameters& layout_;
  std::size_t at_ = 0;  // offset in in_
  bool last_ = false;   // the frame's last block was read
  XXH64_state_t sum_;
};

}  // namespace

Status DecodePlanesFrame(const CodecParameters& layout, std::span<const std::byte> in,
                         std::span<std::byte> out) {
  static auto* const contexts = new zt::internal::ObjectPool<std::unique_ptr<DecodeContext>>;
  static auto* const contents = new zt::internal::ObjectPool<std::vector<std::byte>>;
  ZT_RETURN_IF_ERROR(CheckPlaneLayout(layout));
  if (out.size() % layout.width != 0) {
    return InvalidData("a frame of byte planes ends within an element");
  }
  auto context = contexts->Take().value_or(nullptr);
  if (context == nullptr) context = std::make_unique<DecodeContext>();
  const bool done = context->zstd != nullptr && FrameMerger(*context, in, out, layout).Run();
  contexts->Give(std::move(context));
  if (done) return OkStatus();
  std::vector<std::byte> planes = contents->Take().value_or(std::vector<std::byte>());
  if (planes.size() < out.size()) planes.resize(out.size());
  const std::span<std::byte> content = std::span(planes).first(out.size());
  const Status status = DecodeZstdFrame(in, content);
  if (status.ok()) MergePlanes(content, out, layout);
  contents->Give(std::move(planes));
  return status;
}

}  // namespace zt::compress::internal
