// zt.compress: frames and the seek table, read back by libzstd's own decoder, and
// lies told to ours.
#define ZSTD_STATIC_LINKING_ONLY
#include <sys/resource.h>
#include <zstd.h>

#include "testing.h"

import zt.compress;
import zt.core;

namespace zt {
namespace {

const Codec& Zstd() { return *FindCodec(Encoding::kZstd); }

// Words of few values: compressible, and different for each seed.
Bytes Sample(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random() % 7 * 3);
  return out;
}

Bytes CompressFrame(std::span<const std::byte> in, const ZstdOptions& options = {}) {
  Bytes out(Zstd().Bound(in.size()));
  const auto size = Zstd().MakeEncoder(options)->Encode({}, in, out);
  EXPECT_OK(size);
  out.resize(size.ok() ? *size : 0);
  return out;
}

struct Stream {
  Bytes bytes;
  std::vector<Frame> frames;
};

Stream Encode(std::span<const std::byte> content, std::size_t frame,
              const ZstdOptions& options = {}) {
  Stream stream;
  for (std::size_t at = 0; at < content.size(); at += frame) {
    const auto piece = content.subspan(at, std::min(frame, content.size() - at));
    const Bytes encoded = CompressFrame(piece, options);
    stream.frames.push_back({stream.bytes.size(), at, static_cast<std::uint32_t>(encoded.size()),
                             static_cast<std::uint32_t>(piece.size())});
    stream.bytes.insert(stream.bytes.end(), encoded.begin(), encoded.end());
  }
  const Bytes table = Zstd().Trailer(stream.frames);
  stream.bytes.insert(stream.bytes.end(), table.begin(), table.end());
  return stream;
}

// libzstd's streaming decoder; nothing where it finds fault.
std::optional<Bytes> DecodeByLibrary(std::span<const std::byte> stream) {
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  Bytes out, buffer(ZSTD_DStreamOutSize());
  ZSTD_inBuffer in{stream.data(), stream.size(), 0};
  std::size_t left = 1;
  bool good = true;
  while (good && in.pos < in.size) {
    ZSTD_outBuffer target{buffer.data(), buffer.size(), 0};
    left = ZSTD_decompressStream(context, &target, &in);
    good = !ZSTD_isError(left);
    out.insert(out.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(target.pos));
  }
  ZSTD_freeDCtx(context);
  if (!good || left != 0) return std::nullopt;
  return out;
}

StreamReader From(const Bytes& stream) {
  return [&stream](std::uint64_t offset, std::span<std::byte> out) {
    if (offset > stream.size() || out.size() > stream.size() - offset)
      return InvalidData("beyond the stream");
    if (!out.empty()) std::memcpy(out.data(), stream.data() + offset, out.size());
    return OkStatus();
  };
}

// Ours, in pieces of `step`.
StatusOr<Bytes> DecodeAll(const Bytes& stream, std::size_t content, std::size_t step = 1000) {
  const auto decoder = Zstd().OpenStream({}, From(stream), stream.size(), content);
  Bytes out(content);
  for (std::size_t at = 0; at < content; at += step) {
    const Status status = decoder->Read(std::span(out).subspan(at, std::min(step, content - at)));
    if (!status.ok()) return status;
  }
  const Status status = decoder->Finish();
  if (!status.ok()) return status;
  return out;
}

void Put32(Bytes& bytes, std::size_t at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

TEST(ZstdOptions, Limits) {
  for (const int level : {1, 19, -1, ZSTD_minCLevel()})
    EXPECT_OK(Validate({.level = level})) << level;
  for (const int level : {0, 20, 22, ZSTD_minCLevel() - 1}) {
    EXPECT_EQ(Validate({.level = level}).code(), StatusCode::kInvalidArgument) << level;
  }
  for (const std::uint64_t bytes : {1024ull, 1ull << 30})
    EXPECT_OK(Validate({.frame_bytes = bytes}));
  for (const std::uint64_t bytes : {0ull, 1023ull, (1ull << 30) + 1}) {
    EXPECT_FALSE(Validate({.frame_bytes = bytes}).ok()) << bytes;
  }
}

TEST(ZstdEncoder, FramesCarryTheirSizeAndAChecksum) {
  for (const std::size_t size : {0u, 1u, 1000u, 300000u}) {
    const Bytes frame = CompressFrame(Sample(size));
    ZSTD_frameHeader header;
    ASSERT_EQ(ZSTD_getFrameHeader(&header, frame.data(), frame.size()), 0u);
    EXPECT_EQ(header.frameContentSize, size);
    EXPECT_EQ(header.checksumFlag, 1u);
    EXPECT_LE(frame.size(), Zstd().Bound(size));
  }
}

TEST(ZstdEncoder, EveryLevelReadsBackThroughTheLibrary) {
  const Bytes content = Sample(200000);
  for (const int level : {-100, -5, -1, 1, 3, 6, 12, 19}) {
    const Stream stream = Encode(content, 65536, {.level = level});
    EXPECT_EQ(DecodeByLibrary(stream.bytes), content) << level;
  }
  const Stream stream = Encode(content, 65536, {.huffman = true});
  EXPECT_EQ(DecodeByLibrary(stream.bytes), content);
}

// Random order, skewed values: there are no matches to find, all the gain there is is the
// entropy coder's.
TEST(ZstdEncoder, HuffmanGainsOnSkewedLiterals) {
  std::mt19937 random(5);
  Bytes content(1 << 20);
  std::geometric_distribution<int> values(0.3);
  for (std::byte& byte : content) byte = static_cast<std::byte>(values(random));
  const std::size_t huffman = CompressFrame(content, {.huffman = true}).size();
  EXPECT_LT(huffman, content.size() * 42 / 100);
  EXPECT_GT(CompressFrame(content, {.level = ZSTD_minCLevel()}).size(), content.size() * 99 / 100);
}

TEST(ZstdEncoder, TheSameBytesWhateverTheThreadAndWhatCameBefore) {
  const ZstdOptions options{.level = 3};
  std::vector<Bytes> contents, want;
  for (unsigned i = 0; i < 12; ++i) {
    contents.push_back(Sample(1000 + 17000 * i, i));
    want.push_back(CompressFrame(contents.back(), options));
  }
  const auto encoder = Zstd().MakeEncoder(options);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 60; ++i) {
        const unsigned k = (i * (2 * t + 1)) % 12;
        Bytes out(Zstd().Bound(contents[k].size()));
        const auto size = Must(encoder->Encode({}, contents[k], out));
        out.resize(size);
        ASSERT_EQ(out, want[k]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ZstdEncoder, TooLittleRoomIsAnError) {
  Bytes out(4);
  EXPECT_FALSE(Zstd().MakeEncoder({})->Encode({}, Sample(1000), out).ok());
}

// The layout of contrib/seekable_format, byte by byte.
TEST(SeekTable, GoldenBytes) {
  EXPECT_EQ(ToHex(Zstd().Trailer({})),
            "5e2a4d18"
            "09000000"
            "00000000"
            "00"
            "b1ea928f");
  const std::vector<Frame> frames = {{0, 0, 0x1234, 0x400000},
                                     {0x1234, 0x400000, 0xabcdef01, 0x10}};
  EXPECT_EQ(ToHex(Zstd().Trailer(frames)),
            "5e2a4d18"
            "19000000"
            "34120000"
            "00004000"
            "01efcdab"
            "10000000"
            "02000000"
            "00"
            "b1ea928f");
  EXPECT_EQ(Zstd().Trailer(frames).size(), Zstd().TrailerBytes(2));
  EXPECT_EQ(DecodeByLibrary(Zstd().Trailer(frames)), Bytes());  // a skippable frame to any decoder
}

TEST(SeekTable, IsReadBack) {
  const Bytes content = Sample(10000);
  const Stream stream = Encode(content, 3000);
  const auto table = Zstd().ReadFrames(From(stream.bytes), stream.bytes.size(), content.size());
  ASSERT_TRUE(table.ok() && table->has_value());
  ASSERT_EQ((*table)->size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((**table)[i].offset, stream.frames[i].offset);
    EXPECT_EQ((**table)[i].content_offset, stream.frames[i].content_offset);
    EXPECT_EQ((**table)[i].bytes, stream.frames[i].bytes);
    EXPECT_EQ((**table)[i].content_bytes, stream.frames[i].content_bytes);
  }
}

TEST(SeekTable, ChecksumsInTheTableAreSkipped) {
  const Bytes content = Sample(100);
  Bytes stream = CompressFrame(content);
  const auto frame = static_cast<std::uint32_t>(stream.size());
  stream.resize(frame + 29);
  Put32(stream, frame, 0x184D2A5E);
  Put32(stream, frame + 4, 21);
  Put32(stream, frame + 8, frame);
  Put32(stream, frame + 12, 100);
  Put32(stream, frame + 16, 0xdeadbeef);
  Put32(stream, frame + 20, 1);
  stream[frame + 24] = std::byte{0x80};
  Put32(stream, frame + 25, 0x8F92EAB1);
  const auto table = Zstd().ReadFrames(From(stream), stream.size(), 100);
  ASSERT_TRUE(table.ok() && table->has_value());
  EXPECT_EQ((**table)[0].bytes, frame);
}

TEST(SeekTable, AbsentWhereTheEndIsNone) {
  const Bytes content = Sample(5000);
  const Bytes frame = CompressFrame(content);
  EXPECT_FALSE(Zstd().ReadFrames(From(frame), frame.size(), content.size())->has_value());
  const Bytes tiny(5);
  EXPECT_FALSE(Zstd().ReadFrames(From(tiny), tiny.size(), 0)->has_value());
  // The footer's magic by chance: the table it would make does not begin as one.
  Bytes chance = frame;
  const Bytes footer = Zstd().Trailer({});
  chance.insert(chance.end(), footer.end() - 9, footer.end());
  EXPECT_FALSE(Zstd().ReadFrames(From(chance), chance.size(), content.size())->has_value());
}

TEST(SeekTable, LiesAreFoundOut) {
  const Bytes content = Sample(10000);
  const Stream stream = Encode(content, 3000);
  const std::size_t begin = stream.bytes.size() - Zstd().TrailerBytes(4);
  for (const std::size_t field : {8u, 12u, 16u, 36u}) {  // sizes of frames
    Bytes lie = stream.bytes;
    lie[begin + field] ^= std::byte{1};
    EXPECT_THAT(Zstd().ReadFrames(From(lie), lie.size(), content.size()),
                Fails(StatusCode::kDataLoss, HasSubstr("seek table")))
        << field;
  }
  EXPECT_EQ(Zstd()
                .ReadFrames(From(stream.bytes), stream.bytes.size(), content.size() + 1)
                .status()
                .code(),
            StatusCode::kDataLoss);
  // More frames than there is room for: nothing is allocated for them.
  Bytes crowded(900);
  const Bytes table = Zstd().Trailer(std::vector<Frame>(113));
  crowded.insert(crowded.end(), table.begin(), table.end());
  EXPECT_THAT(Zstd().ReadFrames(From(crowded), crowded.size(), 0),
              Fails(StatusCode::kDataLoss, HasSubstr("113 frames, which do not fit into 900")));
  // A count that the stream cannot hold is no table; nothing is allocated for it.
  for (const std::uint32_t count : {5u, 0x7fffffffu, 0xffffffffu}) {
    Bytes lie = stream.bytes;
    Put32(lie, lie.size() - 9, count);
    const auto table = Zstd().ReadFrames(From(lie), lie.size(), content.size());
    EXPECT_TRUE(table.ok() && !table->has_value()) << count;
  }
}

TEST(SeekTable, AReadErrorIsNoAbsence) {
  const StreamReader broken = [](std::uint64_t, std::span<std::byte>) { return IoError("broken"); };
  EXPECT_EQ(Zstd().ReadFrames(broken, 1000, 0).status().code(), StatusCode::kUnavailable);
}

TEST(ZstdFrame, OneWholeFrameAndNothingElse) {
  const Bytes content = Sample(5000);
  const Bytes frame = CompressFrame(content);
  Bytes out(content.size());
  ASSERT_OK(Zstd().DecodeFrame({}, frame, out));
  EXPECT_EQ(out, content);

  Bytes two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  Bytes twice(2 * content.size());
  EXPECT_THAT(Why(Zstd().DecodeFrame({}, two, twice)), HasSubstr("seek table does not match"));
  EXPECT_EQ(Zstd().DecodeFrame({}, std::span(frame).first(frame.size() - 1), out).code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(Zstd().DecodeFrame({}, {}, out).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Zstd().DecodeFrame({}, frame, std::span(out).first(4999)).code(),
            StatusCode::kDataLoss);
  Bytes larger(5001);
  EXPECT_THAT(Why(Zstd().DecodeFrame({}, frame, larger)),
              HasSubstr("yields 5000 bytes, 5001 were declared"));
}

TEST(ZstdFrame, EveryFlippedByteIsNoticed) {
  const Bytes content = Sample(3000);
  const Bytes frame = CompressFrame(content);
  for (std::size_t i = 0; i < frame.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      Bytes bad = frame;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      Bytes out(content.size());
      const Status status = Zstd().DecodeFrame({}, bad, out);
      // A reserved or redundant bit of the frame's header may not matter; then the content is
      // right all the same.
      EXPECT_TRUE(status.code() == StatusCode::kDataLoss || out == content) << i << " bit " << bit;
    }
  }
  Bytes out(content.size());
  EXPECT_OK(Zstd().DecodeFrame({}, frame, out)) << "a context spoilt by an error was used again";
}

TEST(ZstdStream, ReadsInPiecesOfAnySize) {
  const Bytes content = Sample(20000);
  const Stream stream = Encode(content, 3000);
  for (const std::size_t step : {1u, 7u, 2999u, 3000u, 3001u, 20000u}) {
    const auto out = Must(DecodeAll(stream.bytes, content.size(), step));
    EXPECT_EQ(out, content) << step;
  }
}

TEST(ZstdStream, SkippableFramesAnywhere) {
  const Bytes content = Sample(2000);
  const Bytes frame = CompressFrame(content);
  const Bytes skip = Zstd().Trailer({});
  Bytes stream = skip;
  for (const Bytes* part : {&frame, &skip, &skip})
    stream.insert(stream.end(), part->begin(), part->end());
  EXPECT_EQ(*DecodeAll(stream, content.size()), content);
  EXPECT_TRUE(DecodeAll(skip, 0)->empty());
}

TEST(ZstdStream, FramesWithoutTheirSize) {
  const Bytes content = Sample(500000);
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  Bytes stream(ZSTD_compressBound(content.size()));
  stream.resize(
      ZSTD_compress2(context, stream.data(), stream.size(), content.data(), content.size()));
  ZSTD_freeCCtx(context);
  EXPECT_EQ(*DecodeAll(stream, content.size()), content);
}

TEST(ZstdStream, TooLittleTooMuchAndCutShort) {
  const Bytes content = Sample(5000);
  const Bytes frame = CompressFrame(content);
  EXPECT_THAT(Why(DecodeAll(frame, 5001)), HasSubstr("yields 5000 bytes, 5001 were declared"));
  EXPECT_THAT(Why(DecodeAll(frame, 4999)), HasSubstr("more than the 4999 bytes declared"));
  EXPECT_THAT(Why(DecodeAll(frame, 0)), HasSubstr("more than the 0 bytes declared"));
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(DecodeAll(cut, content.size()).status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(ZstdStream, TrailingGarbage) {
  const Bytes content = Sample(5000);
  for (const std::size_t extra : {1u, 2u, 3u, 4u, 5u, 100u}) {
    for (const std::byte value : {std::byte{0}, std::byte{0x28}, std::byte{0xff}}) {
      Bytes stream = CompressFrame(content);
      stream.insert(stream.end(), extra, value);
      EXPECT_EQ(DecodeAll(stream, content.size()).status().code(), StatusCode::kDataLoss) << extra;
    }
  }
}

TEST(ZstdStream, AReadErrorPassesThrough) {
  const auto decoder = Zstd().OpenStream(
      {}, [](std::uint64_t, std::span<std::byte>) { return IoError("broken"); }, 100, 10);
  Bytes out(10);
  EXPECT_EQ(decoder->Read(out).code(), StatusCode::kUnavailable);
}

// A frame header with the given window, then one empty last block.
Bytes FrameWithWindow(int log) {
  Bytes frame(10);
  Put32(frame, 0, ZSTD_MAGICNUMBER);
  frame[4] = std::byte{0};  // no content size, no checksum, a window descriptor
  frame[5] = static_cast<std::byte>((log - 10) << 3);
  frame[6] = std::byte{3};  // last block, RLE of...
  frame[7] = std::byte{0};
  frame[8] = std::byte{0};  // ...no bytes
  frame[9] = std::byte{'x'};
  return frame;
}

TEST(ZstdStream, WindowsUpTo2To27) {
  EXPECT_OK(DecodeAll(FrameWithWindow(27), 0));
  EXPECT_THAT(DecodeAll(FrameWithWindow(28), 0), Fails(StatusCode::kDataLoss, HasSubstr("memory")));
  EXPECT_OK(Zstd().DecodeFrame({}, FrameWithWindow(27), {}));
  EXPECT_THAT(Zstd().DecodeFrame({}, FrameWithWindow(28), {}),
              Fails(StatusCode::kDataLoss, HasSubstr("memory")));
}

// Content sizes that nothing backs: the decoders allocate what is asked of them, not what
// a header claims.
TEST(ZstdStream, AClaimedSizeIsNotAllocated) {
  Bytes frame(16);
  Put32(frame, 0, ZSTD_MAGICNUMBER);
  frame[4] = std::byte{0xc0};            // eight bytes of content size, a window
  frame[5] = std::byte{(20 - 10) << 3};  // of 1 MiB
  Put32(frame, 6, 0);
  Put32(frame, 10, 1u << 18);  // 2^50 bytes of content
  frame[14] = std::byte{1};    // an empty last block
  struct rusage before, after;
  ::getrusage(RUSAGE_SELF, &before);
  const auto decoder = Zstd().OpenStream({}, From(frame), frame.size(), std::uint64_t{1} << 50);
  Bytes out(1000);
  EXPECT_EQ(decoder->Read(out).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Zstd().DecodeFrame({}, frame, out).code(), StatusCode::kDataLoss);
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10);  // KiB
}

}  // namespace
}  // namespace zt
