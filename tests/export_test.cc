// zt.convert.layout and the plans of safetensors, npy and npz: exact bytes, exact errors,
// order, cancelling.
#include "testing.h"

import zt.convert.layout;
import zt.convert.npy;
import zt.convert.safetensors;
import zt.core;
import zt.sink;
import zt.source;

namespace zt {
namespace {

std::uint64_t Little(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

Object Dense(std::string name, Shape shape, std::string_view type) {
  return *DenseObject(std::move(name), std::move(shape), *ParseElementType(type));
}

std::string Write(TensorSource& source, const FileLayout& layout, unsigned threads = 1) {
  Bytes out;
  const auto sink = MemorySink(out);
  EXPECT_OK(WriteLayout(source, layout, *sink, {.threads = threads}));
  EXPECT_OK(sink->Finish(layout.bytes));
  EXPECT_EQ(out.size(), layout.bytes);
  return ToText(out);
}

// Declares what it is told to, and reads as the byte 'x'.
class FakeSource : public TensorSource {
 public:
  explicit FakeSource(std::vector<Object> objects) {
    objects_ = std::move(objects);
    SetFile("fake");
  }
  std::string_view format() const override { return "fake"; }
  bool seekable() const override { return seekable_; }
  bool sequential(ComponentId) const override { return !seekable_; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    if (id.object == fail_object_ && offset >= fail_offset_) return InvalidData("it is damaged");
    std::memset(out.data(), 'x', out.size());
    bytes_read_ += out.size();
    return OkStatus();
  }
  std::optional<Identity> identity(ComponentId id) const override {
    if (!tied_) return std::nullopt;
    const std::uint64_t bytes = objects_[id.object].components[0].bytes;
    return Identity{this, bytes, bytes};
  }

  bool seekable_ = true;
  std::uint32_t fail_object_ = ~0u;
  std::uint64_t fail_offset_ = 0;
  bool tied_ = false;  // objects of one size have the same bytes
  std::atomic<std::uint64_t> bytes_read_ = 0;
};

class FailingSink final : public Sink {
 public:
  const std::string& name() const override { return name_; }
  Status Append(Pieces) override { return IoError("no room"); }
  void Expect(std::uint64_t bytes) override { expected = bytes; }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override {}

  std::uint64_t expected = 0;

 private:
  std::string name_ = "sink";
};

TEST(Safetensors, BytesAreThoseOfTheReferenceWriter) {
  MemorySource source;
  ASSERT_OK(source.Add(Dense("b", {2}, "u8"), {BytesOf("bb")}));
  ASSERT_OK(source.Add(Dense("a", {}, "f32"), {BytesOf("aaaa")}));
  const std::vector<std::pair<std::string, std::string>> metadata = {{"k\n", "\"v\"\x01"}};
  const auto layout = Must(PlanSafetensors(source, Indices(source.objects().size()), metadata));
  const std::string header = R"({"__metadata__":{"k\n":"\"v\"\u0001"},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  std::string want(8, '\0');
  want[0] = static_cast<char>(padded.size());
  ASSERT_LT(padded.size(), 256u);
  EXPECT_EQ(Write(source, layout), want + padded + "aaaabb");
  EXPECT_TRUE(layout.warnings.empty());
}

TEST(Safetensors, NothingIsAFileToo) {
  MemorySource source;
  const auto layout = Must(PlanSafetensors(source, {}, {}));
  EXPECT_EQ(Write(source, layout), std::string("\x08\0\0\0\0\0\0\0", 8) + "{}      ");
  const auto with_metadata = Must(PlanSafetensors(source, {}, SafetensorsMetadata()));
  EXPECT_EQ(Write(source, with_metadata),
            std::string("\x18\0\0\0\0\0\0\0", 8) + R"({"__metadata__":{}}     )");
}

TEST(Safetensors, PackedTypesStateTheirLogicalShape) {
  Object object = Dense("p", {2, 1}, "f4_e2m1");
  object.attributes = {{"logical_shape", Value::Array{Value(2u), Value(2u)}}};
  FakeSource source({object, Dense("q", {3}, "f6_e2m3")});
  const auto layout = Must(PlanSafetensors(source, Indices(source.objects().size()), {}));
  const std::string out = Write(source, layout);
  EXPECT_NE(out.find(R"("p":{"dtype":"F4","shape":[2,2],"data_offsets":[3,5]})"), out.npos) << out;
  EXPECT_NE(out.find(R"("q":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]})"), out.npos)
      << out;

  object.attributes = {{"logical_shape", Value::Array{Value(5u)}}};
  FakeSource wrong({object});
  EXPECT_EQ(Why(PlanSafetensors(wrong, Indices(wrong.objects().size()), {})),
            "tensor 'p': shape [5] of f4_e2m1 does not fit its 2 bytes");
}

TEST(Safetensors, RefusesByName) {
  const auto refusal = [](Object object) {
    FakeSource source({std::move(object)});
    const auto layout = PlanSafetensors(source, Indices(source.objects().size()), {});
    EXPECT_EQ(layout.status().code(), StatusCode::kUnimplemented);
    return Why(layout);
  };
  EXPECT_EQ(refusal(Dense("c", {1}, "complex128")),
            "tensor 'c': safetensors has no type for complex128");
  EXPECT_EQ(refusal(Dense("__metadata__", {1}, "u8")),
            "tensor '__metadata__': safetensors reserves this name");
  Object group = Dense("g", {1}, "u8");
  group.format = "quantized_group";
  EXPECT_EQ(refusal(group),
            "tensor 'g': format 'quantized_group' cannot be written to safetensors");
}

TEST(Safetensors, WarnsOfAttributes) {
  Object object = Dense("t", {1}, "u8");
  object.attributes = {{"note", Value("x")}};
  FakeSource source({object});
  EXPECT_EQ(PlanSafetensors(source, Indices(source.objects().size()), {})->warnings,
            std::vector<std::string>{
                "safetensors does not keep the attributes of 1 tensors, 't' the first"});
}

TEST(Npz, SmallArchiveToTheByte) {
  MemorySource source;
  ASSERT_OK(source.Add(Dense("a", {3}, "u8"), {BytesOf("abc")}));
  const std::uint32_t only[] = {0};
  const std::string npy = Write(source, *PlanNpy(source, 0));
  ASSERT_EQ(npy.size(), 131u);
  const auto layout = Must(PlanNpz(source, only));
  const std::string out = Write(source, layout);
  EXPECT_EQ(out.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ(Little(out, 6, 2), 8u);  // the CRC follows
  EXPECT_EQ(Little(out, 14, 4), 0u);
  EXPECT_EQ(Little(out, 18, 4), 131u);
  EXPECT_EQ(Little(out, 22, 4), 131u);
  EXPECT_EQ(out.substr(30, 5), "a.npy");
  EXPECT_EQ(out.substr(35, 131), npy);
  EXPECT_EQ(out.substr(166, 4), "PK\x07\x08");
  const std::uint64_t crc = Little(out, 170, 4);
  EXPECT_NE(crc, 0u);
  EXPECT_EQ(out.substr(182, 4), "PK\x01\x02");
  EXPECT_EQ(Little(out, 182 + 16, 4), crc);
  EXPECT_EQ(out.substr(182 + 51, 4), "PK\x05\x06");
  EXPECT_EQ(Little(out, 233 + 10, 2), 1u);
  EXPECT_EQ(Little(out, 233 + 16, 4), 182u);
  EXPECT_EQ(out.size(), 233u + 22u);
}

TEST(Npz, Zip64WhereAnEntryOrAnOffsetNeedsIt) {
  const std::uint64_t huge = std::uint64_t{5} << 30;
  FakeSource source({Dense("a", {huge}, "u8"), Dense("b", {1}, "u8")});
  const auto layout = Must(PlanNpz(source, Indices(source.objects().size())));
  const std::string head = ToText(layout.pieces[0].before);
  EXPECT_EQ(Little(head, 4, 2), 45u);
  EXPECT_EQ(Little(head, 18, 4), 0xffffffffu);
  EXPECT_EQ(Little(head, 22, 4), 0xffffffffu);
  EXPECT_EQ(Little(head, 28, 2), 20u);
  EXPECT_EQ(Little(head, 35, 2), 1u);
  EXPECT_EQ(Little(head, 39, 8), huge + 128);
  EXPECT_EQ(Little(head, 47, 8), huge + 128);
  const std::string descriptor = ToText(layout.trailer->AfterPiece(0, 1));
  ASSERT_EQ(descriptor.size(), 24u);
  EXPECT_EQ(Little(descriptor, 8, 8), huge + 128);
  EXPECT_EQ(layout.trailer->AfterPiece(1, 2).size(), 16u);
  const std::string end = ToText(layout.trailer->End());
  // Two records, the first with both sizes, the second with its offset; then both ends.
  ASSERT_EQ(end.size(), (46u + 5 + 20) + (46u + 5 + 12) + 56 + 20 + 22);
  EXPECT_EQ(Little(end, 71 + 46 + 5 + 4, 8), head.size() + huge + 24);
  EXPECT_EQ(end.substr(134, 4), "PK\x06\x06");
  EXPECT_EQ(Little(end, end.size() - 6, 4), 0xffffffffu);
  EXPECT_EQ(layout.bytes,
            head.size() + huge + 24 + layout.pieces[1].before.size() + 1 + 16 + end.size());
}

TEST(Npz, RefusesByName) {
  FakeSource nul({Dense(std::string("a\0b", 3), {1}, "u8")});
  EXPECT_EQ(Why(PlanNpz(nul, Indices(nul.objects().size()))),
            "tensor 'a\\x00b': a zip archive's names cannot hold a NUL");
  Object sparse = Dense("s", {1, 1}, "f32");
  sparse.format = "sparse_coo";
  FakeSource two({Dense("d", {1}, "u8"), sparse});
  EXPECT_EQ(Why(PlanNpz(two, Indices(two.objects().size()))),
            "tensor 's': an .npz holds one sparse matrix and nothing else; name it alone, or write "
            "to a folder");
  EXPECT_EQ(
      Why(PlanNpy(two, 1)),
      "tensor 's': format 'sparse_coo' is not an array; a sparse matrix is an .npz of its own");
}

TEST(Layout, ManyPiecesInOrderForAnyThreads) {
  std::vector<Object> objects;
  for (std::uint64_t i = 0; i < 700; ++i)
    objects.push_back(Dense("t" + std::to_string(i), {i * i % 977}, "u8"));
  objects.push_back(Dense("big", {(9 << 20) + 5}, "u8"));
  FakeSource source(std::move(objects));
  const auto layout = Must(PlanNpz(source, Indices(source.objects().size())));
  EXPECT_EQ(Write(source, *PlanNpz(source, Indices(source.objects().size())), 1),
            Write(source, layout, 3));
}

TEST(Layout, ABlobOfSeveralTensorsIsReadOnce) {
  FakeSource source({Dense("a", {5 << 20}, "u8"), Dense("b", {300}, "u8"),
                     Dense("c", {5 << 20}, "u8"), Dense("d", {300}, "u8")});
  const auto layout = Must(PlanNpz(source, Indices(source.objects().size())));
  const std::string want = Write(source, *PlanNpz(source, Indices(source.objects().size())));
  source.tied_ = true;
  for (const unsigned threads : {1u, 3u}) {
    source.bytes_read_ = 0;
    EXPECT_EQ(Write(source, *PlanNpz(source, Indices(source.objects().size())), threads), want);
    EXPECT_EQ(source.bytes_read_, (5u << 20) + 300);
  }
  // What is kept is bounded: with less memory it is read again.
  source.bytes_read_ = 0;
  const auto sink = DiscardSink();
  EXPECT_OK(WriteLayout(source, layout, *sink, {.memory_bytes = 16 << 20}));
  EXPECT_EQ(source.bytes_read_, 2 * (5u << 20) + 300);
}

TEST(Layout, ErrorsNameFileAndTensor) {
  FakeSource source({Dense("a", {8}, "u8"), Dense("b", {9 << 20}, "u8")});
  source.fail_object_ = 1;
  source.fail_offset_ = 8 << 20;
  const auto layout = Must(PlanSafetensors(source, Indices(source.objects().size()), {}));
  for (const unsigned threads : {1u, 3u}) {
    const auto sink = DiscardSink();
    EXPECT_EQ(Why(WriteLayout(source, layout, *sink, {.threads = threads})),
              "fake: tensor 'b': it is damaged");
  }
  FailingSink sink;
  source.fail_object_ = ~0u;
  EXPECT_EQ(Why(WriteLayout(source, layout, sink)), "sink: no room");
}

TEST(Layout, APipeIsReadInItsOrderOrNotAtAll) {
  FakeSource source({Dense("a", {1}, "u8"), Dense("b", {1}, "f64")});
  source.seekable_ = false;
  const auto reordered = Must(PlanSafetensors(source, Indices(source.objects().size()), {}));
  const auto sink = DiscardSink();
  EXPECT_EQ(WriteLayout(source, reordered, *sink).code(), StatusCode::kUnimplemented);
  FileLayout twice;
  twice.bytes = 5;
  twice.pieces.push_back({.source = {1, 0}, .offset = 4, .bytes = 3});
  twice.pieces.push_back({.source = {1, 0}, .offset = 6, .bytes = 2});
  EXPECT_EQ(WriteLayout(source, twice, *sink).code(), StatusCode::kUnimplemented);
  EXPECT_EQ(
      Write(source, *PlanNpz(source, Indices(source.objects().size())), 3).substr(35 + 128, 1),
      "x");
}

TEST(Layout, TheSinkLearnsTheSizeBeforeTheFirstByte) {
  FakeSource source({Dense("a", {100}, "u8")});
  FailingSink sink;
  const auto layout = Must(PlanNpy(source, 0));
  EXPECT_FALSE(WriteLayout(source, layout, sink, {.threads = 1}).ok());
  EXPECT_EQ(sink.expected, layout.bytes);
}

TEST(Layout, Cancelled) {
  FakeSource source({Dense("a", {100 << 20}, "u8")});
  std::atomic<bool> cancelled = true;
  const auto sink = DiscardSink();
  const auto layout = Must(PlanNpy(source, 0));
  EXPECT_EQ(WriteLayout(source, layout, *sink, {.threads = 2, .cancelled = &cancelled}).code(),
            StatusCode::kCancelled);
}

}  // namespace
}  // namespace zt
