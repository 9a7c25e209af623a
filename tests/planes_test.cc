// zt.compress:planes — kernels against a scalar twin on every CPU target, and frames read back by
// libzstd's decoder.
#include <zstd.h>

#include "compress/huffman.h"
#include "compress/literals.h"
#include "convert_reference.h"
#include "target_iteration.h"
#include "testing.h"

import zt.compress;
import zt.core;

namespace zt {
namespace {

using compress::internal::MergePlanes;
using compress::internal::PlanesFrameBound;
using compress::internal::SplitPlanes;

const Codec& Planes() { return *FindCodec(Encoding::kPlanes); }

CodecParameters LayoutFor(std::size_t width, bool rotate, std::size_t group,
                          std::size_t chunk = 0) {
  CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(width);
  layout.rotate = rotate ? 1 : 0;
  layout.group = static_cast<std::uint32_t>(group);
  layout.frame_content = static_cast<std::uint32_t>(chunk);
  return layout;
}

// The profile's two steps, a bit at a time.
Bytes Split(std::span<const std::byte> in, const CodecParameters& layout) {
  Bytes out;
  for (std::size_t at = 0; at < in.size(); at += layout.group) {
    const auto group = in.subspan(at, std::min<std::size_t>(layout.group, in.size() - at));
    std::vector<std::uint64_t> elements;
    for (std::size_t i = 0; i < group.size(); i += layout.width) {
      std::uint64_t element = 0;
      for (std::size_t b = layout.width; b-- > 0;) {
        element = element << 8 | static_cast<std::uint64_t>(group[i + b]);
      }
      const unsigned bits = 8 * layout.width;
      if (layout.rotate) element = element << 1 | element >> (bits - 1);
      elements.push_back(element);
    }
    for (std::size_t p = layout.width; p-- > 0;) {
      for (const std::uint64_t element : elements) {
        out.push_back(static_cast<std::byte>(element >> (8 * p)));
      }
    }
  }
  return out;
}

TEST(Planes, KernelsAtAnyLengthAndAlignment) {
  ForEachTarget([] {
    for (const std::uint32_t width : {2u, 4u, 8u}) {
      for (const bool rotate : {false, true}) {
        for (std::size_t count = 0; count <= 200; ++count) {
          for (const std::size_t group : {count + 1, count / 2 + 1, std::size_t{64}}) {
            const CodecParameters layout = LayoutFor(width, rotate, group * width);
            const std::size_t size = count * width, offset = 1 + count % 7;
            const Bytes in = RandomBytes(size, static_cast<unsigned>(count));
            const Bytes wanted = Split(in, layout);
            Bytes room(offset + size + 70, std::byte{0x11}), expected = room;
            std::copy(wanted.begin(), wanted.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>(offset));
            SplitPlanes(in, std::span(room).subspan(offset, size), layout);
            ASSERT_EQ(room, expected) << width << " bytes, " << count << " in " << group;
            Bytes back(room.size(), std::byte{0x22}), original = back;
            std::copy(in.begin(), in.end(), original.begin() + static_cast<std::ptrdiff_t>(offset));
            MergePlanes(wanted, std::span(back).subspan(offset, size), layout);
            ASSERT_EQ(back, original) << width << " bytes, " << count << " in " << group;
          }
        }
      }
    }
  });
}

// Above the size whose results are stored past the caches, at alignments that allow it
// and that do not.
TEST(Planes, LargeResultsAreTheSame) {
  const std::size_t size = (std::size_t{13} << 20) + 24;
  const Bytes in = RandomBytes(size, 3);
  for (const std::uint32_t width : {2u, 4u, 8u}) {
    const CodecParameters layout = LayoutFor(width, true, std::uint64_t{width} << 17);
    const Bytes wanted = Split(in, layout);
    ForEachTarget([&] {
      for (const std::size_t offset : {0u, 3u}) {
        Bytes room(size + 128);
        const std::size_t begin = 64 - reinterpret_cast<std::uintptr_t>(room.data()) % 64 + offset;
        const auto out = std::span(room).subspan(begin, size);
        SplitPlanes(in, out, layout);
        ASSERT_EQ(std::memcmp(out.data(), wanted.data(), size), 0) << width << " " << offset;
        MergePlanes(wanted, out, layout);
        ASSERT_EQ(std::memcmp(out.data(), in.data(), size), 0) << width << " " << offset;
      }
    });
  }
}

Bytes FrameOf(std::span<const std::byte> in, const CodecParameters& layout) {
  Bytes out(PlanesFrameBound(in.size(), layout));
  const auto size = Planes().MakeEncoder({})->Encode(layout, in, out);
  EXPECT_OK(size);
  out.resize(size.ok() ? *size : 0);
  return out;
}

// What any zstd decoder makes of a frame: content size and checksum are there, and checked.
Bytes Decoded(const Bytes& frame) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  EXPECT_LT(size, 1u << 30);
  EXPECT_NE(static_cast<unsigned>(frame[4]) & 4, 0u) << "no checksum";
  Bytes out(size + 1);
  const std::size_t got = ZSTD_decompress(out.data(), out.size(), frame.data(), frame.size());
  EXPECT_FALSE(ZSTD_isError(got)) << ZSTD_getErrorName(got);
  out.resize(ZSTD_isError(got) ? 0 : got);
  return out;
}

CodecParameters LayoutOf(const char* type, std::uint64_t frame = std::uint64_t{4} << 20) {
  return FindCodec(Encoding::kPlanes)->Parameters(*ParseElementType(type), frame);
}

// Normally distributed, of the type's bytes; bf16 is cut off, f16 is rounded.
Bytes Normal(const char* type, std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.02);
  Bytes out;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = normal(random);
    const auto single = static_cast<float>(value);
    std::uint64_t bits = 0;
    std::size_t width = 2;
    if (std::string_view(type) == "f64") {
      std::memcpy(&bits, &value, width = 8);
    } else if (std::string_view(type) == "f16") {
      bits = reference::FromValue(reference::kFormats[2], single, false).bits;
    } else {
      std::uint32_t word;
      std::memcpy(&word, &single, 4);
      if (std::string_view(type) == "bf16") word >>= 16;
      bits = word;
      width = std::string_view(type) == "bf16" ? 2 : 4;
    }
    for (std::size_t b = 0; b < width; ++b) out.push_back(static_cast<std::byte>(bits >> (8 * b)));
  }
  return out;
}

double Share(const Bytes& frame, const Bytes& in) {
  return static_cast<double>(frame.size()) / static_cast<double>(in.size());
}

TEST(Planes, FramesHoldThePlanesAndAreSmall) {
  const struct {
    const char* type;
    double most;
  } cases[] = {{"bf16", 0.668}, {"f16", 0.855}, {"f32", 0.838}, {"f64", 0.95}};
  for (const auto& each : cases) {
    const CodecParameters layout = LayoutOf(each.type);
    const Bytes in = Normal(each.type, (4 << 20) / layout.width);
    const Bytes frame = FrameOf(in, layout);
    EXPECT_EQ(Decoded(frame), Split(in, layout)) << each.type;
    EXPECT_LT(Share(frame, in), each.most) << each.type;
  }
}

TEST(Planes, EveryLengthOfAFrame) {
  for (const char* type : {"bf16", "f32", "f64"}) {
    CodecParameters layout = LayoutOf(type);
    for (const std::uint32_t group :
         {layout.group, std::uint32_t{layout.width}, std::uint32_t{512}}) {
      layout.group = group;
      for (std::size_t count = 0; count < 700; count += count < 40 ? 1 : 61) {
        const Bytes in = Normal(type, count);
        const Bytes frame = FrameOf(in, layout);
        EXPECT_EQ(Decoded(frame), Split(in, layout)) << type << " " << count << " in " << group;
      }
    }
  }
  for (const std::size_t count : {32767u, 32768u, 32895u, 32896u, 65537u, 131073u, 262145u}) {
    const Bytes in = Normal("bf16", count);
    EXPECT_EQ(Decoded(FrameOf(in, LayoutOf("bf16"))), Split(in, LayoutOf("bf16"))) << count;
  }
  // A plane of more than one block: groups as large as chunks.
  CodecParameters wide = LayoutOf("bf16");
  wide.group = wide.frame_content;
  const Bytes in = Normal("bf16", 400000);
  EXPECT_EQ(Decoded(FrameOf(in, wide)), Split(in, wide));
  EXPECT_LT(Share(FrameOf(in, wide), in), 0.668);
}

TEST(Planes, ConstantAndSparsePlanesShrink) {
  const CodecParameters layout = LayoutOf("f32");
  // f32 that holds bf16 values: two planes are zero, a third is noise.
  Bytes in = Normal("f32", 1 << 20);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (i % 4 < 2) in[i] = std::byte{0};
  }
  Bytes frame = FrameOf(in, layout);
  EXPECT_EQ(Decoded(frame), Split(in, layout));
  EXPECT_LT(Share(frame, in), 0.335);
  // All zero.
  std::fill(in.begin(), in.end(), std::byte{0});
  frame = FrameOf(in, layout);
  EXPECT_EQ(Decoded(frame), Split(in, layout));
  EXPECT_LT(frame.size(), 300u);
  // One weight of ten is left.
  const CodecParameters narrow = LayoutOf("bf16");
  Bytes pruned = Normal("bf16", 1 << 20);
  std::mt19937 random(5);
  for (std::size_t i = 0; i < pruned.size(); i += 2) {
    if (random() % 10 != 0) pruned[i] = pruned[i + 1] = std::byte{0};
  }
  frame = FrameOf(pruned, narrow);
  EXPECT_EQ(Decoded(frame), Split(pruned, narrow));
  EXPECT_LT(Share(frame, pruned), 0.25);
  // Whole stretches are zero: less than a bit for each byte.
  for (std::size_t i = 100000; i < pruned.size(); ++i) pruned[i] = std::byte{0};
  frame = FrameOf(pruned, narrow);
  EXPECT_EQ(Decoded(frame), Split(pruned, narrow));
  EXPECT_LT(Share(frame, pruned), 0.02);
  // Noise is passed on as it is.
  const Bytes noise = RandomBytes(1 << 20, 9);
  EXPECT_EQ(FrameOf(noise, narrow).size(), noise.size() + 3 * 8 + 9 + 4);
}

// Few values or many, deep trees and flat ones: whichever coder takes the plane, zstd's
// decoder reads it.
TEST(Planes, PlanesOfManyDistributions) {
  std::mt19937 random(11);
  for (int round = 0; round < 120; ++round) {
    const std::size_t count = round % 4 == 0 ? 131072 : 4000 + random() % 120000;
    const unsigned values = 2 + random() % (round % 5 == 0 ? 250 : 60);
    const unsigned least = random() % (257 - values);
    std::vector<double> weights(values);
    double weight = 1;
    const double ratio = 0.4 + static_cast<double>(random() % 600) / 1000;
    for (double& each : weights) {
      each = round % 3 == 0 ? 1 + random() % 1000 : weight;
      weight = weight * ratio + 1e-9;
    }
    std::discrete_distribution<unsigned> draw(weights.begin(), weights.end());
    Bytes in = RandomBytes(2 * count, static_cast<unsigned>(round));
    for (std::size_t i = 0; i < count; ++i)
      in[2 * i + 1] = static_cast<std::byte>(least + draw(random));
    const CodecParameters layout = LayoutFor(2, false, 2 * 131072);
    const Bytes frame = FrameOf(in, layout);
    ASSERT_EQ(Decoded(frame), Split(in, layout)) << round;
    if (values < 60) EXPECT_LT(Share(frame, in), 0.9) << round;
  }
}

// A block as the only one of a frame, by zstd's own decoder; empty where zstd refuses it.
Bytes ByZstd(std::span<const std::byte> body, std::size_t content) {
  Bytes frame = {std::byte{0x28}, std::byte{0xb5}, std::byte{0x2f}, std::byte{0xfd},
                 std::byte{0xa0}};
  const auto put = [&](std::size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) frame.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  put(content, 4);
  put(body.size() << 3 | 2 << 1 | 1, 3);
  frame.insert(frame.end(), body.begin(), body.end());
  Bytes out(content);
  if (ZSTD_decompress(out.data(), content, frame.data(), frame.size()) != content) out.clear();
  return out;
}

// Blocks of our coder are decoded by our decoder, and not left to zstd's; damaged ones are refused
// or as zstd has them.
TEST(Planes, OurDecoderOfLiterals) {
  std::mt19937 random(12);
  compress_huffman::LiteralsCoder coder;
  compress_huffman::LiteralsDecoder decoder;
  int coded = 0, damaged_alike = 0, damaged_refused = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = round % 3 == 0 ? 131072 : 4096 + random() % 9000;
    const unsigned values = 2 + random() % 90, least = random() % (129 - values);
    std::vector<double> weights(values);
    const double ratio = 0.05 + static_cast<double>(random() % 950) / 1000;
    double weight = 1;
    for (double& each : weights) each = weight = std::max(weight * ratio, 1e-7);
    std::shuffle(weights.begin(), weights.end(), random);
    std::discrete_distribution<unsigned> draw(weights.begin(), weights.end());
    Bytes in(count), out(count);
    for (std::byte& b : in) b = static_cast<std::byte>(least + draw(random));
    const auto block = coder.Code(in);
    if (block.empty()) continue;
    ++coded;
    Bytes body(block.begin(), block.end());
    const auto literals = zstd::FindLiterals(body);
    ASSERT_TRUE(literals && literals->bytes == count) << round;
    ForEachTarget([&] {
      std::fill(out.begin(), out.end(), std::byte{0xee});
      ASSERT_TRUE(decoder.Decode(body, *literals, out)) << round;
      ASSERT_EQ(out, in) << round;
    });
    for (int i = 0; i < 20; ++i) {
      Bytes damaged = body;
      const std::size_t at = i % 2 == 0 ? random() % damaged.size() : random() % 80;
      damaged[at] ^= static_cast<std::byte>(1u << random() % 8);
      const auto found = zstd::FindLiterals(damaged);
      if (!found || found->repeated || found->bytes == 0) continue;
      out.assign(found->bytes, std::byte{0});
      if (decoder.Decode(damaged, *found, out)) {
        ASSERT_EQ(out, ByZstd(damaged, found->bytes)) << round << " damaged at " << at;
        ++damaged_alike;
      } else {
        ++damaged_refused;
      }
      out.resize(count);
    }
  }
  EXPECT_GT(coded, 250);
  EXPECT_GT(damaged_alike, 100);
  EXPECT_GT(damaged_refused, 100);
}

TEST(Planes, LiteralsWithoutATreeAreLeftToZstd) {
  const Bytes body = {std::byte{0x0a}, std::byte{0x10}, std::byte{0}, std::byte{0}, std::byte{0}};
  const auto literals = zstd::FindLiterals(body);
  ASSERT_TRUE(literals && literals->bytes == 256);
  Bytes out(256);
  EXPECT_FALSE(compress_huffman::LiteralsDecoder().Decode(body, *literals, out));
}

TEST(Planes, TheSameBytesOnEveryTargetAndThread) {
  const CodecParameters layout = LayoutOf("bf16");
  const Bytes in = Normal("bf16", 300001);
  const Bytes wanted = FrameOf(in, layout);
  ForEachTarget([&] { EXPECT_EQ(FrameOf(in, layout), wanted); });
  const auto encoder = Planes().MakeEncoder({});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        Bytes out(PlanesFrameBound(in.size(), layout));
        const auto size = Must(encoder->Encode(layout, in, out));
        out.resize(size);
        ASSERT_EQ(out, wanted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Planes, LayoutsThatAreWritten) {
  const std::uint32_t kib = 1 << 10, mib = 1 << 20;
  EXPECT_EQ(LayoutOf("bf16"), LayoutFor(2, true, 256 * kib, 4 * mib));
  EXPECT_EQ(LayoutOf("f64"), LayoutFor(8, true, mib, 4 * mib));
  EXPECT_EQ(LayoutOf("complex64"), LayoutFor(4, true, 512 * kib, 4 * mib));
  EXPECT_EQ(LayoutOf("f32", 64 * mib), LayoutFor(4, true, 512 * kib, 16 * mib));
  EXPECT_EQ(LayoutOf("f32", 100 * kib + 3), LayoutFor(4, true, 100 * kib, 100 * kib));
  EXPECT_EQ(LayoutOf("bf16", 5 * mib + 1000), LayoutFor(2, true, 256 * kib, 5 * mib));
  EXPECT_EQ(LayoutOf("f64", kib), LayoutFor(8, true, 2 * kib, 2 * kib));
  for (const char* type : {"i32", "u8", "bool", "f8_e4m3fn", "f4_e2m1"}) {
    EXPECT_EQ(LayoutOf(type), CodecParameters{}) << type;
  }
}

// The codec's own bound holds for every layout it writes, and its streams are read by
// range or in order.
TEST(Planes, TheCodecReadsWhatItWrites) {
  const Codec& codec = *FindCodec(Encoding::kPlanes);
  const auto encoder = codec.MakeEncoder({});
  for (const char* type : {"bf16", "f16", "f32", "f64"}) {
    for (const std::uint64_t frame : {1024u, 100000u, 1u << 20}) {
      const CodecParameters layout = LayoutOf(type, frame);
      const Bytes in = Normal(type, 150001);
      Bytes stream;
      std::vector<Frame> frames;
      for (std::size_t at = 0; at < in.size(); at += layout.frame_content) {
        const auto chunk =
            std::span(in).subspan(at, std::min<std::size_t>(layout.frame_content, in.size() - at));
        Bytes out(codec.Bound(chunk.size()));
        const auto size = Must(encoder->Encode(layout, chunk, out));
        out.resize(size);
        frames.push_back({stream.size(), at, static_cast<std::uint32_t>(out.size()),
                          static_cast<std::uint32_t>(chunk.size())});
        Bytes back(chunk.size());
        ASSERT_OK(codec.DecodeFrame(layout, out, back));
        ASSERT_EQ(std::memcmp(back.data(), chunk.data(), back.size()), 0) << type << " " << frame;
        stream.insert(stream.end(), out.begin(), out.end());
      }
      const Bytes trailer = codec.Trailer(frames);
      EXPECT_EQ(trailer.size(), codec.TrailerBytes(frames.size()));
      stream.insert(stream.end(), trailer.begin(), trailer.end());
      const StreamReader read = [&](std::uint64_t offset, std::span<std::byte> out) {
        std::copy_n(stream.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
        return OkStatus();
      };
      const auto table = codec.ReadFrames(read, stream.size(), in.size());
      ASSERT_TRUE(table.ok() && table->has_value());
      EXPECT_EQ((*table)->size(), frames.size());
      const auto decoder = codec.OpenStream(layout, read, stream.size(), in.size());
      Bytes back(in.size());
      for (std::size_t at = 0, step = 1; at < back.size();
           at += step, step = step * 3 % 70001 + 1) {
        step = std::min(step, back.size() - at);
        ASSERT_OK(decoder->Read(std::span(back).subspan(at, step)));
      }
      EXPECT_OK(decoder->Finish());
      EXPECT_EQ(back, in) << type << " " << frame;
      std::byte more;
      EXPECT_FALSE(decoder->Read(std::span(&more, 1)).ok());
    }
  }
}

// What the codec makes of a frame must be what zstd's decoder makes of it, then merged.
void ExpectAsZstd(const Bytes& frame, const CodecParameters& layout, std::size_t content,
                  const std::string& what) {
  Bytes planes(content), wanted(content), got(content);
  const bool whole = ZSTD_findFrameCompressedSize(frame.data(), frame.size()) == frame.size();
  const bool good =
      whole && ZSTD_decompress(planes.data(), content, frame.data(), frame.size()) == content;
  const Status status = Planes().DecodeFrame(layout, frame, got);
  ASSERT_EQ(status.ok(), good) << what << ": " << Why(status);
  if (!good) return;
  MergePlanes(planes, wanted, layout);
  ASSERT_EQ(got, wanted) << what;
}

TEST(Planes, FramesOfOtherEncodersAreDecoded) {
  for (const char* type : {"bf16", "f32", "f64"}) {
    for (const std::size_t count : {0u, 1u, 300u, 70000u, 300001u}) {
      CodecParameters layout = LayoutOf(type);
      for (const std::uint32_t group :
           {layout.group, 8 * layout.width + 0u, layout.frame_content}) {
        layout.group = group;
        const Bytes in = Normal(type, count), planes = Split(in, layout);
        for (const int level : {-5, 1, 3, 19}) {
          if (level == 19 && count > 70000) continue;  // takes its time
          Bytes frame(ZSTD_compressBound(planes.size()));
          frame.resize(
              ZSTD_compress(frame.data(), frame.size(), planes.data(), planes.size(), level));
          Bytes got(in.size());
          ASSERT_OK(Planes().DecodeFrame(layout, frame, got)) << type << " " << count;
          ASSERT_EQ(got, in) << type << " " << count << " level " << level;
        }
      }
    }
  }
}

TEST(Planes, DamageIsFoundWhereZstdFindsIt) {
  std::mt19937 random(7);
  for (const char* type : {"bf16", "f32"}) {
    CodecParameters layout = LayoutOf(type);
    layout.group = 3000 * layout.width;
    layout.frame_content = 0;
    const Bytes in = Normal(type, 10000), whole = FrameOf(in, layout);
    for (std::size_t i = 0; i < whole.size(); i += i < 64 ? 1 : 1 + random() % 20) {
      Bytes frame = whole;
      frame[i] ^= static_cast<std::byte>(1u << random() % 8);
      ExpectAsZstd(frame, layout, in.size(), "byte " + std::to_string(i));
      frame = whole;
      frame.resize(i);
      ExpectAsZstd(frame, layout, in.size(), "cut at " + std::to_string(i));
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    ExpectAsZstd(longer, layout, in.size(), "a byte more");
    ExpectAsZstd(whole, layout, in.size() - layout.width, "another size");
    ExpectAsZstd(whole, layout, in.size() + layout.width, "another size");
  }
}

TEST(Planes, WrongSizesAreRefused) {
  const CodecParameters layout = LayoutOf("f32");
  const auto encoder = Planes().MakeEncoder({});
  Bytes out(100);
  const Bytes in(40);
  EXPECT_THAT(Why(encoder->Encode(layout, std::span(in).first(39), out)),
              HasSubstr("whole elements"));
  EXPECT_FALSE(encoder->Encode(layout, in, std::span(out).first(50)).ok());
}

TEST(Planes, AStreamThatEndsWithinAnElementIsRefused) {
  const Bytes in = RandomBytes(94, 1);
  Bytes stream(ZSTD_compressBound(in.size()));
  stream.resize(ZSTD_compress(stream.data(), stream.size(), in.data(), in.size(), 1));
  const StreamReader read = [&](std::uint64_t offset, std::span<std::byte> to) {
    std::memcpy(to.data(), stream.data() + offset, to.size());
    return OkStatus();
  };
  for (const std::uint64_t content : {std::uint64_t{94}, kUnknownSize}) {
    Bytes out(94);
    const auto decoder = Planes().OpenStream(LayoutOf("f32"), read, stream.size(), content);
    EXPECT_EQ(Why(decoder->Read(out)), "byte planes end within an element");
  }
}

TEST(Planes, LayoutsThatBreakTheProfileAreRefused) {
  struct Case {
    CodecParameters layout;
    const char* says;
  };
  const Case cases[] = {
      {LayoutFor(2, true, 3), "'group' is 3, not a multiple of the 2 bytes of an element"},
      {LayoutFor(4, true, 6), "'group' is 6, not a multiple of the 4 bytes of an element"},
      {LayoutFor(2, true, 0), "'group' is 0, not a multiple of the 2 bytes of an element"},
      {LayoutFor(3, true, 96), "elements of 3 bytes have no planes; those of 2, 4 and 8 have"},
      {LayoutFor(1, true, 64), "elements of 1 bytes have no planes; those of 2, 4 and 8 have"},
      {LayoutFor(0, true, 64), "elements of 0 bytes have no planes; those of 2, 4 and 8 have"},
      {LayoutFor(4, true, 64, 100), "'chunk' is 100, not a multiple of 'group', 64"},
  };
  const Bytes in = RandomBytes(96, 1), frame = FrameOf(in, LayoutOf("f32"));
  Bytes out(4096);
  for (const Case& each : cases) {
    EXPECT_THAT(Planes().MakeEncoder({})->Encode(each.layout, in, out),
                Fails(StatusCode::kInvalidArgument, each.says));
    EXPECT_THAT(Planes().DecodeFrame(each.layout, frame, std::span(out).first(96)),
                Fails(StatusCode::kDataLoss, each.says));
    const StreamReader read = [&](std::uint64_t offset, std::span<std::byte> to) {
      std::memcpy(to.data(), frame.data() + offset, to.size());
      return OkStatus();
    };
    const auto stream = Planes().OpenStream(each.layout, read, frame.size(), 96);
    EXPECT_EQ(Why(stream->Read(std::span(out).first(96))), each.says);
  }
  CodecParameters twice = LayoutOf("f32");
  twice.rotate = 2;
  EXPECT_EQ(Why(CheckPlaneLayout(twice)), "'rotate' is 2, neither 0 nor 1");
}

}  // namespace
}  // namespace zt
