// zt.convert.composite: grouping and its inverse through the library, hostile
// declarations included.
#include "testing.h"

import zt.convert.composite;
import zt.core;
import zt.source;

namespace zt {
namespace {

QuantConfig ConfigOf(const std::string& name) {
  const std::vector<std::string> inputs = {std::string(ZT_TEST_DATA) + "/" + name};
  return Must(FindQuantConfig(inputs));
}

TEST(FindQuantConfig, KeepsTheContentInItsOrder) {
  const QuantConfig config = ConfigOf("gptq");
  EXPECT_EQ(config.file, "config.json");
  EXPECT_EQ(config.content, (Value::Map{{"quant_method", "gptq"},
                                        {"bits", 4},
                                        {"group_size", 32},
                                        {"desc_act", false},
                                        {"sym", false}}));
}

TEST(FindQuantConfig, InputsThatDisagree) {
  const std::vector<std::string> inputs = {std::string(ZT_TEST_DATA) + "/gptq",
                                           std::string(ZT_TEST_DATA) + "/awq"};
  ASSERT_THAT(FindQuantConfig(inputs),
              Fails(StatusCode::kDataLoss, HasSubstr("differs from that of another input")));
}

// Tensors of zeros, in memory.
class Zeros {
 public:
  Zeros& Add(const std::string& name, Shape shape, DType dtype, Value::Map attributes = {}) {
    auto object = Must(DenseObject(name, std::move(shape), {dtype, ""}));
    object.attributes = std::move(attributes);
    const std::size_t size = object.components[0].bytes;
    EXPECT_OK(source_->Add(std::move(object), {std::span(bytes_).first(size)}));
    return *this;
  }
  std::unique_ptr<MemorySource>& source() { return source_; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 16);
  std::unique_ptr<MemorySource> source_ = std::make_unique<MemorySource>();
};

QuantConfig Gptq() {
  return {"config.json", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}}};
}

TEST(GroupQuantized, StandsWhereTheFirstOfItsTensorsStood) {
  Zeros zeros;
  zeros.Add("first", {1}, DType::kF32)
      .Add("m.scales", {1, 8}, DType::kF16)
      .Add("second", {1}, DType::kF32)
      .Add("m.qzeros", {1, 1}, DType::kI32)
      .Add("m.qweight", {2, 8}, DType::kI32)
      .Add("m.bias", {8}, DType::kF16);
  auto grouped = Must(GroupQuantized(std::move(zeros.source()), Gptq()));
  std::vector<std::string> names;
  for (const Object& object : grouped->objects()) names.push_back(object.name);
  EXPECT_THAT(names, ElementsAre("first", "m", "second", "m.bias"));
  EXPECT_EQ(grouped->objects()[1].shape, (Shape{16, 8}));
  EXPECT_EQ(grouped->objects()[1].components[0].role, "packed_weight");
}

TEST(GroupQuantized, TensorsWithAttributesStay) {
  Zeros zeros;
  zeros.Add("m.scales", {1, 8}, DType::kF16)
      .Add("m.qzeros", {1, 1}, DType::kI32, {{"note", "kept"}})
      .Add("m.qweight", {2, 8}, DType::kI32);
  auto grouped = Must(GroupQuantized(std::move(zeros.source()), Gptq()));
  EXPECT_EQ(grouped->objects().size(), 3U);
  EXPECT_THAT(
      grouped->warnings(),
      ElementsAre(
          "module 'm' stays as separate tensors: tensor 'm.qzeros' is not a plain dense tensor"));
}

TEST(GroupQuantized, EmptyAndOddShapesStay) {
  Zeros zeros;
  zeros.Add("a.qweight", {0, 8}, DType::kI32)
      .Add("b.qweight", {2, 8, 1}, DType::kI32)
      .Add("c.qweight", {2, 7}, DType::kI32)
      .Add("c.scales", {1, 7}, DType::kF16)
      .Add("c.qzeros", {1, 1}, DType::kI32)
      .Add(".qweight", {2, 8}, DType::kI32)
      .Add("qweight", {2, 8}, DType::kI32);
  auto grouped = Must(GroupQuantized(std::move(zeros.source()), Gptq()));
  EXPECT_EQ(grouped->objects().size(), 7U);
  EXPECT_THAT(grouped->warnings(),
              ElementsAre(HasSubstr("'a.qweight' has shape [0, 8]"),
                          HasSubstr("'b.qweight' has shape [2, 8, 1]"),
                          HasSubstr("'c.qzeros' of shape [1, 1] cannot hold 7 codes a row")));
  EXPECT_EQ(FindMember(grouped->attributes(), kQuantConfigAttribute), nullptr);
}

TEST(GroupQuantized, AnAttributeOfItsNameIsNotReplaced) {
  Zeros zeros;
  zeros.Add("m.scales", {1, 8}, DType::kF16)
      .Add("m.qzeros", {1, 1}, DType::kI32)
      .Add("m.qweight", {2, 8}, DType::kI32);
  zeros.source()->SetAttributes({{"quantization_config", "mine"}});
  auto grouped = Must(GroupQuantized(std::move(zeros.source()), Gptq()));
  EXPECT_EQ(grouped->objects().size(), 3U);
  EXPECT_THAT(
      grouped->warnings(),
      ElementsAre(
          "1 quantized module stays as separate tensors ('m'): config.json: the input has another "
          "attribute 'quantization_config'"));
}

// The modules of tensors that lie in this order, codes of i8 and the others of f32.
std::vector<std::string_view> ModulesOf(std::span<const char* const> codes,
                                        std::span<const char* const> others) {
  static std::vector<Object> held;
  held.clear();
  std::vector<const Object*> objects;
  for (const char* name : codes) held.push_back(Must(DenseObject(name, {1}, {DType::kI8})));
  for (const char* name : others) held.push_back(Must(DenseObject(name, {1}, {DType::kF32})));
  for (const Object& each : held) objects.push_back(&each);
  return QuantizedModulesOf(objects);
}

TEST(QuantizedModulesOf, HoldCodesAndScales) {
  using Names = std::vector<const char*>;
  const std::pair<Names, Names> kModules[] = {
      {{"a.m.weight"}, {"a.m.scale", "a.m.bias"}},                         // DeepSeek V4
      {{"a.m.weight"}, {"a.m.weight_scale_inv", "a.m.input_zero_point"}},  // DeepSeek V3
      {{"a.m.weight", "a.m.weight_format"}, {"a.m.SCB"}},                  // bitsandbytes
      {{"a.m.weight", "a.m.weight.quant_state.bitsandbytes__nf4"}, {"a.m.weight.absmax"}},
      {{"a.m.blocks"}, {"a.m.scales"}},                                          // gpt-oss
      {{"a.m.up_blocks"}, {"a.m.up_scales", "a.m.down"}},                        //
      {{"a.m.qweight", "a.m.qzeros", "a.m.g_idx"}, {"a.m.scales"}},              // GPTQ, AWQ
      {{"a.m.weight"}, {"a.m.scales", "a.m.biases"}},                            // MLX
      {{"a.m.weight"}, {"a.m.weight_scale", "a.m.pre_quant_scale"}},             // ModelOpt
      {{"a.m.weight._data"}, {"a.m.weight._scale", "a.m.output_scale"}},         // quanto
      {{"a.m._weight_qdata"}, {"a.m._weight_scale", "a.m._weight_zero_point"}},  // torchao
      {{"a.m.W_q"}, {"a.m.scale", "a.m.zero"}},                                  // HQQ
      {{"a.m.weight"}, {"a.m.weight_scales"}},                                   // EETQ
      {{"a.m.weight"}, {"a.m.qscale_weight", "a.m.qscale_act"}}};                // Mistral
  for (const auto& [codes, others] : kModules)
    EXPECT_THAT(ModulesOf(codes, others), ::testing::Each("a.m")) << others[0];
  const std::pair<Names, Names> kNone[] = {{{}, {"norm.scale", "norm.bias", "norm.weight"}},
                                           {{"scale", "weight"}, {"weight_scale"}},
                                           {{".weight"}, {".weight_scale"}},
                                           {{"a.b.weight"}, {"a.scale", "a.c.scale"}},
                                           {{"a.position_ids"}, {"a.weight"}}};
  for (const auto& [codes, others] : kNone)
    EXPECT_THAT(ModulesOf(codes, others), ::testing::Each("")) << others[0];
}

TEST(GroupQuantized, WithoutModulesNothingIsSaid) {
  Zeros zeros;
  zeros.Add("w", {4}, DType::kF32);
  auto grouped = Must(GroupQuantized(std::move(zeros.source()), QuantConfig{}));
  EXPECT_THAT(grouped->warnings(), ElementsAre());
}

// ---- Ungroup on what others may have written ----------------------------------------------------

Value Entry(std::string_view name, std::string_view dtype, Value shape) {
  return Value::Map{{"name", name}, {"dtype", dtype}, {"shape", std::move(shape)}};
}

Value Dims(std::uint64_t a, std::uint64_t b) { return Value::Array{a, b}; }

class UngroupTest : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<TensorSource>> Run(std::optional<Value> recorded) {
    auto source = std::make_unique<MemorySource>();
    Object object;
    object.name = "m";
    object.format = "quantized_group";
    object.shape = {16, 8};
    object.components = {{"packed_weight", {DType::kI32, ""}, 64},
                         {"scales", {DType::kF16, ""}, 16}};
    if (recorded) object.attributes.emplace_back("source_tensors", *std::move(recorded));
    EXPECT_OK(source->Add(object, {std::span(bytes_).first(64), std::span(bytes_).first(16)}));
    auto other = DenseObject("other", {4}, {DType::kF32, ""});
    EXPECT_OK(source->Add(*std::move(other), {std::span(bytes_).first(16)}));
    return Ungroup(std::move(source));
  }
  void Refuses(Value recorded, const std::string& why) {
    ASSERT_THAT(Run(std::move(recorded)), Fails(StatusCode::kDataLoss, HasSubstr(why))) << why;
  }
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

TEST_F(UngroupTest, GroupsOfOthersStay) {
  const auto result = Must(Run(std::nullopt));
  EXPECT_EQ(result->objects().size(), 2U);
  EXPECT_EQ(result->objects()[0].format, "quantized_group");
}

TEST_F(UngroupTest, TakesApart) {
  const auto result =
      Must(Run(Value::Map{{"scales", Entry("m.scales", "f16", Dims(1, 8))},
                          {"packed_weight", Entry("m.qweight", "i32", Dims(2, 8))}}));
  ASSERT_EQ(result->objects().size(), 3U);
  EXPECT_EQ(result->objects()[0].name, "m.qweight");
  EXPECT_EQ(result->objects()[1].shape, (Shape{1, 8}));
}

TEST_F(UngroupTest, RefusesWhatContradictsItself) {
  const Value scales = Entry("m.scales", "f16", Dims(1, 8));
  const Value weight = Entry("m.qweight", "i32", Dims(2, 8));
  const auto with = [&](Value entry) {
    return Value::Map{{"packed_weight", std::move(entry)}, {"scales", scales}};
  };
  Refuses("x", "tensor 'm': attribute 'source_tensors' does not have one entry for each component");
  Refuses(Value::Map{{"packed_weight", weight}}, "does not have one entry for each component");
  Refuses(Value::Map{{"packed_weight", weight}, {"zeros", scales}},
          "component 'scales' has no entry");
  Refuses(with(4), "component 'packed_weight': its entry is not a map");
  const Value name("m.qweight"), type("i32"), shape(Dims(2, 8));
  for (const Value::Map& entry :
       {Value::Map{{"name", name}}, Value::Map{{"name", name}, {"dtype", type}},
        Value::Map{{"name", name}, {"shape", shape}}, Value::Map{{"dtype", type}, {"shape", shape}},
        Value::Map{{"name", name}, {"dtype", type}, {"shape", Value(4)}}}) {
    Refuses(with(entry), "lacks a name, dtype or shape");
  }
  Refuses(with(Entry("m.qweight", "f32", Dims(2, 8))), "its entry says f32, it is i32");
  Refuses(with(Entry("m.qweight", "i32", Dims(2, 9))),
          "it has 64 bytes, shape [2, 9] of its entry needs 72");
  Refuses(with(Entry("m.qweight", "i32", Dims(~0ULL, ~0ULL))), "overflows 64 bits");
  Refuses(with(Entry("m.qweight", "i32", Value::Array{-2, -8})), "a dimension that is not a u64");
  Refuses(with(Entry("m.qweight", "i32", Value::Array(65, Value(1)))), "rank 65 exceeds 64");
  Refuses(with(Entry("other", "i32", Dims(2, 8))), "tensor 'other' occurs twice");
}

}  // namespace
}  // namespace zt
