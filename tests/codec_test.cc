// zt.compress:codec — a codec of our own in the table, through writer, reader and verification.
#include "testing.h"

import zt;

namespace zt {
namespace {

// Every frame is its content with the bits flipped and one byte of checksum; no trailer. The
// parameters carry the width of an element, which the checksum begins with.
class Flip final : public Codec {
 public:
  explicit Flip(std::string name = "test.flip") : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  std::uint64_t max_ratio() const override { return 1; }
  CodecParameters Parameters(const ElementType& element, std::uint64_t frame_bytes) const override {
    CodecParameters parameters;
    parameters.width = static_cast<std::uint8_t>(ByteWidth(element.dtype));
    parameters.frame_content = static_cast<std::uint32_t>(frame_bytes);
    return parameters;
  }
  std::size_t Bound(std::size_t content) const override { return content + 1; }

  class Encoder final : public FrameEncoder {
   public:
    StatusOr<std::size_t> Encode(const CodecParameters&, std::span<const std::byte> in,
                                 std::span<std::byte> out) const override {
      std::transform(in.begin(), in.end(), out.begin(), [](std::byte b) { return ~b; });
      out[in.size()] = Sum(in);
      return in.size() + 1;
    }
  };
  std::unique_ptr<FrameEncoder> MakeEncoder(const ZstdOptions&) const override {
    return std::make_unique<Encoder>();
  }
  // The sizes of the frames' contents, four bytes each, and how many there are.
  std::vector<std::byte> Trailer(std::span<const Frame> frames) const override {
    Bytes out;
    for (const Frame& frame : frames) Append32(out, frame.content_bytes);
    Append32(out, static_cast<std::uint32_t>(frames.size()));
    return out;
  }
  std::uint64_t TrailerBytes(std::uint64_t frames) const override { return 4 * frames + 4; }

  StatusOr<std::optional<std::vector<Frame>>> ReadFrames(const StreamReader& read,
                                                         std::uint64_t stream_bytes,
                                                         std::uint64_t) const override {
    Bytes last(4);
    if (auto status = read(stream_bytes - 4, last); !status.ok()) return status;
    Bytes sizes(4 * Get32(last.data()));
    if (sizes.size() + 4 > stream_bytes)
      return InvalidData("the trailer is longer than the stream");
    if (auto status = read(stream_bytes - 4 - sizes.size(), sizes); !status.ok()) return status;
    std::vector<Frame> frames;
    Frame next;
    for (std::size_t at = 0; at < sizes.size(); at += 4) {
      next.content_bytes = Get32(sizes.data() + at);
      next.bytes = next.content_bytes + 1;
      frames.push_back(next);
      next.offset += next.bytes;
      next.content_offset += next.content_bytes;
    }
    return std::optional(std::move(frames));
  }
  Status DecodeFrame(const CodecParameters&, std::span<const std::byte> in,
                     std::span<std::byte> out) const override {
    if (in.size() != out.size() + 1) return InvalidData("a frame has another size");
    std::transform(in.begin(), in.end() - 1, out.begin(), [](std::byte b) { return ~b; });
    return in.back() == Sum(out) ? OkStatus() : InvalidData("a frame's checksum is wrong");
  }
  std::unique_ptr<StreamDecoder> OpenStream(const CodecParameters&, StreamReader, std::uint64_t,
                                            std::uint64_t) const override {
    return nullptr;  // every stream has a trailer
  }

 private:
  static std::byte Sum(std::span<const std::byte> bytes) {
    unsigned sum = 0;
    for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
    return static_cast<std::byte>(sum);
  }
  static void Append32(Bytes& out, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  static std::uint32_t Get32(const std::byte* from) {
    std::uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(from[i]);
    return value;
  }

  const std::string name_;
};

Encoding FlipEncoding() {
  static const Encoding encoding = *RegisterCodec(std::make_unique<Flip>());
  return encoding;
}

Bytes Sample(std::size_t size) {
  std::mt19937 random(7);
  Bytes out(size);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(Codecs, TheTable) {
  EXPECT_EQ(FindCodec(Encoding::kRaw), nullptr);
  EXPECT_EQ(Name(Encoding::kRaw), "raw");
  EXPECT_EQ(ParseEncoding("raw"), Encoding::kRaw);
  EXPECT_EQ(FindCodec(Encoding::kZstd)->name(), "zstd");
  EXPECT_EQ(ParseEncoding("zstd"), Encoding::kZstd);
  EXPECT_EQ(ParseEncoding("Zstd"), std::nullopt);
  EXPECT_EQ(ParseEncoding(Name(FlipEncoding())), FlipEncoding());
  EXPECT_EQ(FindCodec(static_cast<Encoding>(255)), nullptr);
  EXPECT_EQ(RegisterCodec(std::make_unique<Flip>()).status().code(), StatusCode::kInvalidArgument);
}

// In a process of its own: a codec stays in the table.
TEST(CodecsDeathTest, AFullTableTakesNoMore) {
  const auto fill = [] {
    std::size_t taken = 0;
    Status status;
    for (; taken < 100 && status.ok(); ++taken)
      status = RegisterCodec(std::make_unique<Flip>("test." + std::to_string(taken))).status();
    std::cerr << taken << " " << Why(status);
    std::_Exit(taken < 100 ? 0 : 1);
  };
  EXPECT_EXIT(fill(), testing::ExitedWithCode(0), "1[0-9] the table of codecs is full");
}

TEST(Codecs, OneOfOurOwnGoesThroughWriterReaderAndVerify) {
  const Bytes content = Sample(100001 * 2);
  Bytes file;
  auto writer = *Writer::Create(
      MemorySink(file), {.storage = {Compression::kAlways, DigestKind::kSha256, FlipEncoding()},
                         .zstd = {.frame_bytes = 4096},
                         .threads = 2});
  ASSERT_OK(writer->Add("a", {100001}, {DType::kBF16, ""}, content));
  ASSERT_OK(writer->Finish());

  auto reader = *Reader::Open(MemoryBytes(file, "memory"));
  const StoredComponent& stored = reader->component({0, 0});
  EXPECT_EQ(stored.encoding, FlipEncoding());
  EXPECT_EQ(stored.length, content.size() + 49 + 4 * 49 + 4);
  EXPECT_EQ(reader->FindAccess({0, 0})->frame_bytes, 4096u);
  Bytes out(content.size());
  ASSERT_OK(reader->Read({0, 0}, 0, out));
  EXPECT_EQ(out, content);
  out.resize(5000);
  ASSERT_OK(reader->Read({0, 0}, 4000, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), content.begin() + 4000));
  EXPECT_TRUE(Verify(*reader)->problems.empty());

  Bytes damaged = file;
  damaged[stored.offset + 10] ^= std::byte{1};
  reader = *Reader::Open(MemoryBytes(damaged, "memory"));
  const auto report = *Verify(*reader, {.threads = 2});
  ASSERT_EQ(report.problems.size(), 2u);
  EXPECT_THAT(report.problems[0].message, HasSubstr("the digest is sha256:"));
  EXPECT_EQ(report.problems[1].message, "a frame's checksum is wrong");
}

TEST(Codecs, AFileCannotClaimMoreThanTheCodecYields) {
  Bytes file;
  auto writer = *Writer::Create(
      MemorySink(file), {.storage = {Compression::kAlways, DigestKind::kNone, FlipEncoding()}});
  const auto bytes = Sample(1000);  // must stay until Finish
  ASSERT_OK(writer->Add("a", {1000}, {DType::kU8, ""}, bytes));
  ASSERT_OK(writer->Finish());
  Manifest manifest = *writer->manifest();
  manifest.objects[0].shape = {3000};
  manifest.objects[0].components[0].decoded_bytes = 3000;
  EXPECT_EQ(Why(CheckLayout(manifest, file.size())),
            "tensor 'a': its decoded size 3000 is more than 1009 bytes of test.flip can yield");
}

}  // namespace
}  // namespace zt
