// zt.writer: what is stored is validated by the rules that readers have, whatever stages, plans and
// streams made of it.
#include "testing.h"

import zt;

namespace zt {
namespace {

// Makes each chunk a part of what it was.
class CutStage final : public Stage {
 public:
  explicit CutStage(std::function<std::size_t(const Chunk&)> keep) : keep_(std::move(keep)) {}
  Status Process(Chunk& chunk) override {
    const std::size_t kept = keep_(chunk);
    Buffer out = chunk.pool->Take(kept);
    if (kept > 0) std::memcpy(out.bytes().data(), chunk.bytes().data(), kept);
    chunk.Replace(std::move(out));
    return OkStatus();
  }

 private:
  std::function<std::size_t(const Chunk&)> keep_;
};

std::shared_ptr<Stage> Halve() {
  return std::make_shared<CutStage>([](const Chunk& c) { return c.bytes().size() / 8 * 4; });
}

// The error of writing, or what verification says of the file: "" where it is good.
std::string Outcome(const WriterOptions& options, const std::function<Status(Writer&)>& write,
                    Bytes* file = nullptr) {
  Bytes own;
  if (file == nullptr) file = &own;
  auto writer = Writer::Create(MemorySink(*file), options);
  if (!writer.ok()) return Why(writer);
  Status status = write(**writer);
  if (status.ok()) status = (*writer)->Finish();
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << Why(status);
    EXPECT_TRUE(file->empty());
    return Why(status);
  }
  const auto reader = Reader::Open(MemoryBytes(*file, "file"));
  if (!reader.ok()) return "the reader: " + Why(reader);
  const auto report = Verify(**reader, {.threads = 1});
  if (!report.ok()) return "verify: " + Why(report);
  return report->problems.empty() ? "" : "verify: " + report->problems[0].message;
}

WriterOptions Of(SpecVersion spec, std::vector<std::shared_ptr<Stage>> stages = {}) {
  return {.spec = spec, .threads = 2, .stages = std::move(stages)};
}

// An object that is begun, fed, and given another first dimension and attributes in the end.
struct Streamed {
  Object object;
  std::vector<Bytes> components;
  std::vector<Storage> storage = {};
  std::optional<std::uint64_t> leading = {};
  Value::Map attributes = {};

  Status operator()(Writer& writer) const {
    auto begun = writer.Begin(object, storage);
    if (!begun.ok()) return begun.status();
    ObjectWriter& open = **begun;
    Status status;
    for (std::size_t c = 0; c < components.size() && status.ok(); ++c) {
      if (c > 0) status = open.NextComponent();
      if (status.ok()) status = open.Append(components[c]);
    }
    for (const auto& [key, value] : attributes) {
      if (status.ok()) status = open.SetAttribute(key, value);
    }
    if (status.ok() && leading) status = open.SetLeadingDimension(*leading);
    return status.ok() ? open.Finish() : status;
  }
};

constexpr SpecVersion kSpecs[] = {SpecVersion::k1_1, SpecVersion::k1_2, SpecVersion::k2_0};

TEST(Validation, OfSizesThatAStageHasChanged) {
  Streamed floats{.object = {.name = "t", .shape = {1000}, .components = {{"data", {DType::kF32}}}},
                  .components = {Bytes(4000)}};
  for (const SpecVersion spec : kSpecs) {
    floats.leading.reset();
    EXPECT_EQ(Outcome(Of(spec, {Halve()}), floats),
              "tensor 't': data has 2000 bytes, shape [1000] of f32 needs 4000");
    floats.leading = 500;
    EXPECT_EQ(Outcome(Of(spec, {Halve()}), floats), "");
  }
}

TEST(Validation, OfFramesThatAStageHasChanged) {
  Streamed floats{.object = {.name = "t",
                             .format = "example.x/1",
                             .shape = {1},
                             .components = {{"data", {DType::kF32}}}},
                  .components = {Bytes(3000)}};
  const auto later = std::make_shared<CutStage>(
      [](const Chunk& c) { return c.first ? c.bytes().size() : std::size_t{0}; });
  const auto all = std::make_shared<CutStage>([](const Chunk&) { return std::size_t{0}; });
  const auto middle = std::make_shared<CutStage>(
      [](const Chunk& c) { return c.first || c.last ? c.bytes().size() : c.bytes().size() / 2; });
  for (const SpecVersion spec : kSpecs) {
    for (const Compression compression : {Compression::kIfGain, Compression::kAlways}) {
      floats.storage = {{.compression = compression}};
      WriterOptions options = Of(spec, {later});
      options.zstd.frame_bytes = 1024;
      Bytes file;
      EXPECT_EQ(Outcome(options, floats, &file), "");
      const auto reader = *Reader::Open(MemoryBytes(file, "file"));
      EXPECT_EQ(*reader->DecodedBytes({0, 0}), 1024u);
      options.stages = {all};
      EXPECT_EQ(Outcome(options, floats), "");
      options.stages = {middle};
      EXPECT_EQ(Outcome(options, floats),
                spec == SpecVersion::k2_0
                    ? "tensor 't': frame 1 has 512 bytes of content, the first has 1024 (zTensor "
                      "2.0 §5.3)"
                    : "");
    }
  }
  floats.object.format = "dense";
  floats.object.shape = {0};
  floats.components = {Bytes(3 << 20)};
  floats.storage = {{.compression = Compression::kAlways, .encoding = Encoding::kPlanes}};
  for (const SpecVersion spec : {SpecVersion::k1_2, SpecVersion::k2_0}) {
    WriterOptions options = Of(spec, {Halve()});
    options.zstd.frame_bytes = 1 << 20;
    floats.leading = 3 << 17;
    EXPECT_EQ(Outcome(options, floats),
              "tensor 't': a frame has 524288 bytes of content, 'chunk' is 1048576");
  }
}

Object Csr(std::uint64_t rows, bool known) {
  return {.name = "m",
          .format = "sparse_csr",
          .shape = {rows, 3},
          .components = {{"values", {DType::kF32}, known ? 12 : kUnknownSize},
                         {"indices", {DType::kU64}, known ? 24 : kUnknownSize},
                         {"indptr", {DType::kU64}}}};
}

TEST(Validation, OfSparseObjectsOfUnknownSize) {
  for (const SpecVersion spec : kSpecs) {
    const auto csr = [&](const std::vector<std::uint64_t>& indices,
                         const std::vector<std::uint64_t>& pointers) {
      return Outcome(Of(spec),
                     Streamed{.object = Csr(2, false),
                              .components = {Bytes(12), Words(indices), Words(pointers)}});
    };
    EXPECT_EQ(csr({2, 0, 1}, {0, 1, 3}), "");
    EXPECT_EQ(csr({2, 0, 99}, {0, 1, 3}),
              "tensor 'm': component 'indices': index 2 is 99, beyond the dimension of 3");
    EXPECT_EQ(csr({2, 0, 1}, {0, 1, 1}),
              "tensor 'm': component 'indptr': the last row pointer is 1, there are 3 indices");
    const bool unique = spec == SpecVersion::k2_0;
    EXPECT_EQ(csr({2, 1, 0}, {0, 1, 3}),
              unique
                  ? "tensor 'm': index 2 is not more than the one before in its row (zTensor 2.0 "
                    "§5.2, zt.sparse_csr/1)"
                  : "");
    const auto coo = [&](const std::vector<std::uint64_t>& coords, bool coords_first,
                         std::uint64_t memory) {
      Streamed object{
          .object = {.name = "m",
                     .format = "sparse_coo",
                     .shape = {4, 5},
                     .components = {{"values", {DType::kF32}}, {"coords", {DType::kU64}}}},
          .components = {Bytes(coords.size() * 2), Words(coords)}};
      if (coords_first) {
        std::swap(object.object.components[0], object.object.components[1]);
        std::swap(object.components[0], object.components[1]);
      }
      WriterOptions options = Of(spec);
      options.memory_bytes = memory;
      Bytes file;
      auto writer = Writer::Create(MemorySink(file), options);
      if (memory != 0) {  // the other error is no kInvalidArgument
        Status status = object(**writer);
        if (status.ok()) status = (*writer)->Finish();
        return Why(status);
      }
      return Outcome(options, object);
    };
    for (const bool first : {false, true}) {
      EXPECT_EQ(coo({3, 0, 4, 4}, first, 0), "");
      EXPECT_EQ(coo({0, 4, 3, 4}, first, 0),
                "tensor 'm': component 'coords': index 1 is 4, beyond the dimension of 4");
      EXPECT_EQ(coo({1, 1, 2, 2}, first, 0),
                unique ? "tensor 'm': two elements name cell 7 in C order (zTensor 2.0 §5.2, "
                         "zt.sparse_coo/1)"
                       : "");
      EXPECT_EQ(coo(std::vector<std::uint64_t>(20'000), first, 1 << 16),
                "tensor 'm': component 'coords': checking coordinates whose number is not declared "
                "takes more than 65536 bytes of memory; allow more");
    }
  }
}

TEST(Validation, TakesTheFirstDimensionThatIsSetInTheEnd) {
  for (const SpecVersion spec : kSpecs) {
    for (const bool known : {false, true}) {
      for (const std::uint64_t rows : {0, 2, 1000}) {
        EXPECT_EQ(Outcome(Of(spec),
                          Streamed{.object = Csr(rows, known),
                                   .components = {Bytes(12), Words({2, 0, 1}), Words({0, 1, 3})},
                                   .leading = 2}),
                  "");
      }
    }
  }
}

TEST(Validation, OfTheLastHalfByteOfPackedElements) {
  const Bytes bad = {std::byte{0x21}, std::byte{0xf5}}, good = {std::byte{0x21}, std::byte{5}};
  const Value::Map odd = {{"logical_shape", Value(Value::Array{Value(3)})}};
  const std::string says =
      "tensor 't': the last byte of an odd number of f4_e2m1 is 245, its high half is not 0";
  for (const SpecVersion spec : {SpecVersion::k1_2, SpecVersion::k2_0}) {
    for (const std::uint64_t bytes : {std::uint64_t{2}, kUnknownSize}) {
      for (const bool later : {false, true}) {
        Streamed packed{.object = {.name = "t",
                                   .shape = {2},
                                   .attributes = later ? Value::Map() : odd,
                                   .components = {{"data", {DType::kU8, "f4_e2m1"}, bytes}}},
                        .components = {bad},
                        .attributes = later ? odd : Value::Map()};
        EXPECT_EQ(Outcome(Of(spec), packed), says);
        packed.components = {good};
        EXPECT_EQ(Outcome(Of(spec), packed), "");
      }
    }
    // Values of three elements share two bytes.
    Streamed coo{
        .object = {.name = "t",
                   .format = "sparse_coo",
                   .shape = {9},
                   .components = {{"coords", {DType::kU64}}, {"values", {DType::kU8, "f4_e2m1"}}}},
        .components = {Words({1, 3, 2}), good}};
    EXPECT_EQ(Outcome(Of(spec), coo), "");
    coo.components[1] = bad;
    EXPECT_EQ(Outcome(Of(spec), coo),
              "tensor 't': component 'values': the last byte of an odd number of f4_e2m1 is 245, "
              "its high half is not 0");
  }
}

// What a plan says after it was edited by hand.
std::string OfEdited(SpecVersion spec, MemorySource& source,
                     const std::function<void(Plan&)>& edit) {
  Plan plan = *MakePlan(source, {.spec = spec});
  edit(plan);
  Bytes file;
  auto writer = *Writer::Create(MemorySink(file), Of(spec));
  Status status = writer->AddSource(source, plan);
  if (status.ok()) status = writer->Finish();
  return Why(status);
}

TEST(Validation, OfPlansThatWereEdited) {
  const Bytes a(40), b(80, std::byte{1});
  for (const SpecVersion spec : kSpecs) {
    MemorySource source;
    ASSERT_OK(source.Add(*DenseObject("a", {10}, {DType::kF32}), {a}));
    ASSERT_OK(source.Add(*DenseObject("b", {20}, {DType::kF32}), {b}));
    EXPECT_EQ(OfEdited(spec, source,
                       [](Plan& plan) { plan.objects[1].components[0].shared_with = {0, 0}; }),
              "tensor 'b': component 'data' has 40 bytes, not the declared 80; its bytes are "
              "those of tensor 'a'");
    EXPECT_EQ(OfEdited(spec, source,
                       [](Plan& plan) {
                         auto object = std::make_shared<Object>(*plan.objects[1].object);
                         object->shape = {21};
                         plan.objects[1].object = object;
                       }),
              "tensor 'b': data has 80 bytes, shape [21] of f32 needs 84");
  }
  // Four elements on a line, and two in a plane: cell 5 twice.
  const Bytes coords = Words({0, 0, 5, 5}), two(2), four(4);
  const auto coo = [](std::string name, Shape shape, std::uint64_t elements) {
    return Object{
        .name = std::move(name),
        .format = "sparse_coo",
        .shape = std::move(shape),
        .components = {{"values", {DType::kU8}, elements}, {"coords", {DType::kU64}, 32}}};
  };
  const auto share = [](Plan& plan) { plan.objects[1].components[1].shared_with = {0, 1}; };
  for (const SpecVersion spec : kSpecs) {
    MemorySource source;
    ASSERT_OK(source.Add(DenseObject("d", {4}, {DType::kU64}).value(), {coords}));
    ASSERT_OK(source.Add(coo("m", {1, 9}, 2), {two, coords}));
    EXPECT_EQ(OfEdited(spec, source,
                       [](Plan& plan) { plan.objects[1].components[1].shared_with = {0, 0}; }),
              spec == SpecVersion::k2_0
                  ? "tensor 'm': two elements name cell 5 in C order (zTensor "
                    "2.0 §5.2, zt.sparse_coo/1)"
                  : "");
    MemorySource both;
    const Bytes other = Words({0, 1, 5, 6});
    ASSERT_OK(both.Add(coo("k", {9, 9}, 2), {two, other}));
    ASSERT_OK(both.Add(coo("l", {9}, 4), {four, other}));
    EXPECT_EQ(OfEdited(spec, both, share), "");
  }
}

}  // namespace
}  // namespace zt
