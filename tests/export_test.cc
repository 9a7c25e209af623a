// zt.convert.layout and the plans of safetensors, npy and npz: exact bytes, exact errors, order, cancelling.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

import zt.convert.layout;
import zt.convert.npy;
import zt.convert.safetensors;
import zt.core;
import zt.sink;
import zt.source;

namespace {

using Bytes = std::vector<std::byte>;

std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string Text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::uint64_t Little(std::string_view bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

zt::Object Dense(std::string name, zt::Shape shape, std::string_view type) {
  return *zt::DenseObject(std::move(name), std::move(shape), *zt::ParseElementType(type));
}

std::vector<std::uint32_t> All(const zt::TensorSource& source) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < source.objects().size(); ++i) all.push_back(i);
  return all;
}

std::string Write(zt::TensorSource& source, const zt::FileLayout& layout, unsigned threads = 1) {
  Bytes out;
  const auto sink = zt::MemorySink(out);
  const auto status = zt::WriteLayout(source, layout, *sink, {.threads = threads});
  EXPECT_TRUE(status.ok()) << zt::Message(status);
  EXPECT_TRUE(sink->Finish(layout.bytes).ok());
  EXPECT_EQ(out.size(), layout.bytes);
  return Text(out);
}

// Declares what it is told to, and reads as the byte 'x'.
class FakeSource : public zt::TensorSource {
 public:
  explicit FakeSource(std::vector<zt::Object> objects) {
    objects_ = std::move(objects);
    SetFile("fake");
  }
  std::string_view format() const override { return "fake"; }
  bool seekable() const override { return seekable_; }
  bool sequential(zt::ComponentId) const override { return !seekable_; }
  zt::Status Read(zt::ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    if (id.object == fail_object_ && offset >= fail_offset_)
      return zt::InvalidData("it is damaged");
    std::memset(out.data(), 'x', out.size());
    bytes_read_ += out.size();
    return zt::OkStatus();
  }
  std::optional<zt::Identity> identity(zt::ComponentId id) const override {
    if (!tied_) return std::nullopt;
    const std::uint64_t bytes = objects_[id.object].components[0].bytes;
    return zt::Identity{this, bytes, bytes};
  }

  bool seekable_ = true;
  std::uint32_t fail_object_ = ~0u;
  std::uint64_t fail_offset_ = 0;
  bool tied_ = false;  // objects of one size have the same bytes
  std::atomic<std::uint64_t> bytes_read_ = 0;
};

class FailingSink final : public zt::Sink {
 public:
  const std::string& name() const override { return name_; }
  zt::Status Append(zt::Pieces) override { return zt::IoError("no room"); }
  zt::Status Finish(std::uint64_t) override { return zt::OkStatus(); }
  void Abort() override {}

 private:
  std::string name_ = "sink";
};

TEST(Safetensors, BytesAreThoseOfTheReferenceWriter) {
  zt::MemorySource source;
  ASSERT_TRUE(source.Add(Dense("b", {2}, "u8"), {AsBytes("bb")}).ok());
  ASSERT_TRUE(source.Add(Dense("a", {}, "f32"), {AsBytes("aaaa")}).ok());
  const std::vector<std::pair<std::string, std::string>> metadata = {{"k\n", "\"v\"\x01"}};
  const auto layout = zt::PlanSafetensors(source, All(source), metadata);
  ASSERT_TRUE(layout.ok());
  const std::string header =
      R"({"__metadata__":{"k\n":"\"v\"\u0001"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  std::string want(8, '\0');
  want[0] = static_cast<char>(padded.size());
  ASSERT_LT(padded.size(), 256u);
  EXPECT_EQ(Write(source, *layout), want + padded + "aaaabb");
  EXPECT_TRUE(layout->warnings.empty());
}

TEST(Safetensors, NothingIsAFileToo) {
  zt::MemorySource source;
  const auto layout = zt::PlanSafetensors(source, {}, {});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(Write(source, *layout), std::string("\x08\0\0\0\0\0\0\0", 8) + "{}      ");
  const auto with_metadata = zt::PlanSafetensors(source, {}, zt::SafetensorsMetadata());
  ASSERT_TRUE(with_metadata.ok());
  EXPECT_EQ(Write(source, *with_metadata),
            std::string("\x18\0\0\0\0\0\0\0", 8) + R"({"__metadata__":{}}     )");
}

TEST(Safetensors, PackedTypesStateTheirLogicalShape) {
  zt::Object object = Dense("p", {2, 1}, "f4_e2m1");
  object.attributes = {{"logical_shape", zt::Value::Array{zt::Value(2u), zt::Value(2u)}}};
  FakeSource source({object, Dense("q", {3}, "f6_e2m3")});
  const auto layout = zt::PlanSafetensors(source, All(source), {});
  ASSERT_TRUE(layout.ok());
  const std::string out = Write(source, *layout);
  EXPECT_NE(out.find(R"("p":{"dtype":"F4","shape":[2,2],"data_offsets":[3,5]})"), out.npos) << out;
  EXPECT_NE(out.find(R"("q":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]})"), out.npos)
      << out;

  object.attributes = {{"logical_shape", zt::Value::Array{zt::Value(5u)}}};
  FakeSource wrong({object});
  EXPECT_EQ(zt::Message(zt::PlanSafetensors(wrong, All(wrong), {}).status()),
            "tensor 'p': shape [5] of f4_e2m1 does not fit its 2 bytes");
}

TEST(Safetensors, RefusesByName) {
  const auto refusal = [](zt::Object object) {
    FakeSource source({std::move(object)});
    const auto layout = zt::PlanSafetensors(source, All(source), {});
    EXPECT_EQ(layout.status().code(), zt::StatusCode::kUnimplemented);
    return std::string(zt::Message(layout.status()));
  };
  EXPECT_EQ(refusal(Dense("c", {1}, "complex128")),
            "tensor 'c': safetensors has no type for complex128");
  EXPECT_EQ(refusal(Dense("__metadata__", {1}, "u8")),
            "tensor '__metadata__': safetensors keeps this name for itself");
  zt::Object group = Dense("g", {1}, "u8");
  group.format = "quantized_group";
  EXPECT_EQ(refusal(group),
            "tensor 'g': format 'quantized_group' cannot be written to safetensors");
}

TEST(Safetensors, WarnsOfAttributes) {
  zt::Object object = Dense("t", {1}, "u8");
  object.attributes = {{"note", zt::Value("x")}};
  FakeSource source({object});
  EXPECT_EQ(zt::PlanSafetensors(source, All(source), {})->warnings,
            std::vector<std::string>{
                "safetensors does not keep the attributes of 1 tensors, 't' the first"});
}

TEST(Npz, SmallArchiveToTheByte) {
  zt::MemorySource source;
  ASSERT_TRUE(source.Add(Dense("a", {3}, "u8"), {AsBytes("abc")}).ok());
  const std::uint32_t only[] = {0};
  const std::string npy = Write(source, *zt::PlanNpy(source, 0));
  ASSERT_EQ(npy.size(), 131u);
  const auto layout = zt::PlanNpz(source, only);
  ASSERT_TRUE(layout.ok());
  const std::string out = Write(source, *layout);
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
  const auto layout = zt::PlanNpz(source, All(source));
  ASSERT_TRUE(layout.ok());
  const std::string head = Text(layout->pieces[0].before);
  EXPECT_EQ(Little(head, 4, 2), 45u);
  EXPECT_EQ(Little(head, 18, 4), 0xffffffffu);
  EXPECT_EQ(Little(head, 22, 4), 0xffffffffu);
  EXPECT_EQ(Little(head, 28, 2), 20u);
  EXPECT_EQ(Little(head, 35, 2), 1u);
  EXPECT_EQ(Little(head, 39, 8), huge + 128);
  EXPECT_EQ(Little(head, 47, 8), huge + 128);
  const std::string descriptor = Text(layout->trailer->AfterPiece(0, 1));
  ASSERT_EQ(descriptor.size(), 24u);
  EXPECT_EQ(Little(descriptor, 8, 8), huge + 128);
  EXPECT_EQ(layout->trailer->AfterPiece(1, 2).size(), 16u);
  const std::string end = Text(layout->trailer->End());
  // Two records, the first with both sizes, the second with its offset; then both ends.
  ASSERT_EQ(end.size(), (46u + 5 + 20) + (46u + 5 + 12) + 56 + 20 + 22);
  EXPECT_EQ(Little(end, 71 + 46 + 5 + 4, 8), head.size() + huge + 24);
  EXPECT_EQ(end.substr(134, 4), "PK\x06\x06");
  EXPECT_EQ(Little(end, end.size() - 6, 4), 0xffffffffu);
  EXPECT_EQ(layout->bytes,
            head.size() + huge + 24 + layout->pieces[1].before.size() + 1 + 16 + end.size());
}

TEST(Npz, RefusesByName) {
  FakeSource nul({Dense(std::string("a\0b", 3), {1}, "u8")});
  EXPECT_EQ(zt::Message(zt::PlanNpz(nul, All(nul)).status()),
            "tensor 'a\\x00b': a zip archive's names cannot hold a NUL");
  zt::Object sparse = Dense("s", {1, 1}, "f32");
  sparse.format = "sparse_coo";
  FakeSource two({Dense("d", {1}, "u8"), sparse});
  EXPECT_EQ(zt::Message(zt::PlanNpz(two, All(two)).status()),
            "tensor 's': an .npz holds one sparse matrix and nothing else; name it alone, or write "
            "to a folder");
  EXPECT_EQ(
      zt::Message(zt::PlanNpy(two, 1).status()),
      "tensor 's': format 'sparse_coo' is not an array; a sparse matrix is an .npz of its own");
}

TEST(Layout, ManyPiecesInOrderForAnyThreads) {
  std::vector<zt::Object> objects;
  for (std::uint64_t i = 0; i < 700; ++i)
    objects.push_back(Dense("t" + std::to_string(i), {i * i % 977}, "u8"));
  objects.push_back(Dense("big", {(9 << 20) + 5}, "u8"));
  FakeSource source(std::move(objects));
  const auto layout = zt::PlanNpz(source, All(source));
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(Write(source, *zt::PlanNpz(source, All(source)), 1), Write(source, *layout, 3));
}

TEST(Layout, ABlobOfSeveralTensorsIsReadOnce) {
  FakeSource source({Dense("a", {5 << 20}, "u8"), Dense("b", {300}, "u8"),
                     Dense("c", {5 << 20}, "u8"), Dense("d", {300}, "u8")});
  const auto layout = zt::PlanNpz(source, All(source));
  ASSERT_TRUE(layout.ok());
  const std::string want = Write(source, *zt::PlanNpz(source, All(source)));
  source.tied_ = true;
  for (const unsigned threads : {1u, 3u}) {
    source.bytes_read_ = 0;
    EXPECT_EQ(Write(source, *zt::PlanNpz(source, All(source)), threads), want);
    EXPECT_EQ(source.bytes_read_, (5u << 20) + 300);
  }
  // What is kept is bounded: with less memory it is read again.
  source.bytes_read_ = 0;
  const auto sink = zt::DiscardSink();
  EXPECT_TRUE(zt::WriteLayout(source, *layout, *sink, {.memory_bytes = 16 << 20}).ok());
  EXPECT_EQ(source.bytes_read_, 2 * (5u << 20) + 300);
}

TEST(Layout, ErrorsNameFileAndTensor) {
  FakeSource source({Dense("a", {8}, "u8"), Dense("b", {9 << 20}, "u8")});
  source.fail_object_ = 1;
  source.fail_offset_ = 8 << 20;
  const auto layout = zt::PlanSafetensors(source, All(source), {});
  ASSERT_TRUE(layout.ok());
  for (const unsigned threads : {1u, 3u}) {
    const auto sink = zt::DiscardSink();
    EXPECT_EQ(zt::Message(zt::WriteLayout(source, *layout, *sink, {.threads = threads})),
              "fake: tensor 'b': it is damaged");
  }
  FailingSink sink;
  source.fail_object_ = ~0u;
  EXPECT_EQ(zt::Message(zt::WriteLayout(source, *layout, sink)), "sink: no room");
}

TEST(Layout, APipeIsReadInItsOrderOrNotAtAll) {
  FakeSource source({Dense("a", {1}, "u8"), Dense("b", {1}, "f64")});
  source.seekable_ = false;
  const auto reordered = zt::PlanSafetensors(source, All(source), {});
  ASSERT_TRUE(reordered.ok());
  const auto sink = zt::DiscardSink();
  EXPECT_EQ(zt::WriteLayout(source, *reordered, *sink).code(), zt::StatusCode::kUnimplemented);
  EXPECT_EQ(Write(source, *zt::PlanNpz(source, All(source)), 3).substr(35 + 128, 1), "x");
}

TEST(Layout, Cancelled) {
  FakeSource source({Dense("a", {100 << 20}, "u8")});
  std::atomic<bool> cancelled = true;
  const auto sink = zt::DiscardSink();
  const auto layout = zt::PlanNpy(source, 0);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(zt::WriteLayout(source, *layout, *sink, {.threads = 2, .cancelled = &cancelled}).code(),
            zt::StatusCode::kCancelled);
}

}  // namespace
