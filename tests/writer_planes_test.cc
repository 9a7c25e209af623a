// zt.writer: byte planes asked for by component, streamed without a size, and under a second name.
#include "testing.h"

import zt;

namespace zt {
namespace {

Bytes Weights(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.02f);
  Bytes out(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    std::uint32_t bits;
    std::memcpy(&bits, &value, 4);
    for (std::size_t b = 0; b < 4; ++b) out[4 * i + b] = static_cast<std::byte>(bits >> (8 * b));
  }
  return out;
}

const Storage kPlanes = {.compression = Compression::kAlways, .encoding = Encoding::kPlanes};

struct Written {
  std::unique_ptr<Reader> reader;
  Bytes Read(const char* name) const {
    const ComponentId id{*reader->Find(name), 0};
    Bytes out(*reader->DecodedBytes(id));
    EXPECT_OK(reader->Read(id, 0, out));
    return out;
  }
  const StoredComponent& Stored(const char* name) const {
    return reader->component({*reader->Find(name), 0});
  }
};

Object Dense(const char* name, std::uint64_t count, DType dtype = DType::kF32) {
  return *DenseObject(name, {count}, {dtype, ""});
}

TEST(WriterPlanes, ByComponentStreamedAndAliased) {
  const Bytes weights = Weights(1'500'000);
  auto memory = std::make_shared<Bytes>();
  auto writer = *Writer::Create(MemorySink(*memory));
  Object marked = Dense("marked", 1000);
  marked.attributes = {{"planes", "of my own"}};
  ASSERT_OK(writer->Add(Dense("a", 1'500'000), {weights}, {kPlanes}));
  ASSERT_OK(
      writer->Add(Dense("whole", 1000, DType::kI32), {std::span(weights).first(4000)}, {kPlanes}));
  ASSERT_OK(writer->Add(std::move(marked), {std::span(weights).first(4000)}, {kPlanes}));
  Object streamed = Dense("streamed", 1'500'000);
  streamed.components[0].bytes = kUnknownSize;
  auto object = Must(writer->Begin(std::move(streamed), {kPlanes}));
  for (std::size_t at = 0; at < weights.size(); at += 70'001) {
    const std::size_t take = std::min<std::size_t>(70'001, weights.size() - at);
    ASSERT_OK(object->Append(std::span(weights).subspan(at, take)));
  }
  ASSERT_OK(object->Finish());
  ASSERT_OK(writer->AddAlias("tied", "a"));
  ASSERT_OK(writer->Finish());

  Written file{*Reader::Open(MemoryBytes(*memory, "memory"))};
  for (const char* name : {"a", "streamed", "tied"}) {
    EXPECT_EQ(file.Stored(name).encoding, Encoding::kPlanes) << name;
    EXPECT_EQ(file.Stored(name).element, (ElementType{DType::kF32, ""})) << name;
    EXPECT_LT(file.Stored(name).length, weights.size() * 84 / 100) << name;
    EXPECT_EQ(file.Read(name), weights) << name;
    EXPECT_EQ(file.reader->manifest().objects[*file.reader->Find(name)].format, "dense");
  }
  EXPECT_EQ(file.Stored("tied").offset, file.Stored("a").offset);
  // Integers gain nothing from planes, and an attribute of that name leaves no room for
  // the profile's own.
  for (const char* name : {"whole", "marked"}) {
    EXPECT_EQ(file.Stored(name).encoding, Encoding::kZstd) << name;
  }
  // Ranges decode the frames they touch: a byte of the second frame is changed, the first
  // is read as it was.
  const std::uint64_t second = file.Stored("a").offset + 4'000'000;
  (*memory)[second] ^= std::byte{1};
  Bytes part(1000);
  const ComponentId id{*file.reader->Find("a"), 0};
  auto changed = *Reader::Open(MemoryBytes(*memory, "memory"));
  EXPECT_OK(changed->Read(id, 3'000'001, part));
  EXPECT_EQ(std::memcmp(part.data(), weights.data() + 3'000'001, part.size()), 0);
  EXPECT_FALSE(changed->Read(id, 4'500'000, part).ok());
}

TEST(WriterPlanes, OtherVersionsRefuseThem) {
  const Bytes weights = Weights(100);
  auto memory = std::make_shared<Bytes>();
  auto writer = *Writer::Create(MemorySink(*memory), {.spec = SpecVersion::k1_1});
  EXPECT_THAT(
      writer->Add(Dense("a", 100), {weights}, {kPlanes}),
      Fails(StatusCode::kInvalidArgument, HasSubstr("version 1.1.0 has no ztstream.planes/1")));
}

}  // namespace
}  // namespace zt
