// zt.core: types, checked sizes, declarations, status text.
#include "testing.h"

import zt.core;

namespace zt {
namespace {

TEST(DType, NamesAndWidthsAreTheSpecs) {
  const std::vector<std::pair<std::string, std::size_t>> spec = {
      {"f64", 8}, {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"i64", 8}, {"i32", 4}, {"i16", 2},
      {"i8", 1},  {"u64", 8}, {"u32", 4}, {"u16", 2},  {"u8", 1},  {"bool", 1}};
  ASSERT_EQ(spec.size(), static_cast<std::size_t>(kDTypeCount));
  for (const auto& [name, width] : spec) {
    const auto dtype = ParseDType(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(Name(*dtype), name);
    EXPECT_EQ(ByteWidth(*dtype), width) << name;
  }
  EXPECT_FALSE(ParseDType("F32"));
  EXPECT_FALSE(ParseDType(""));
  EXPECT_FALSE(ParseDType("f8_e5m2"));
}

TEST(ElementType, LogicalNamesCarryTheirStorage) {
  EXPECT_EQ(ParseElementType("complex64")->dtype, DType::kF32);
  EXPECT_EQ(ParseElementType("f8_e4m3fn")->dtype, DType::kU8);
  EXPECT_EQ(ParseElementType("bf16")->type, "");
  EXPECT_FALSE(ParseElementType("f8"));
}

TEST(InternedString, IsItsTextWhetherItIsListedOrNot) {
  const std::string long_name = "org.example.a_format_of_ones_own/1";
  for (const std::string& text : {std::string(), std::string("dense"), long_name}) {
    InternedString word = text;
    const InternedString copy = word;
    InternedString moved = std::move(word);
    EXPECT_EQ(copy, moved);
    EXPECT_EQ(copy, text);
    EXPECT_EQ(copy.str(), text);
    EXPECT_EQ("a " + copy + " b", "a " + text + " b");
    moved = "coo";
    EXPECT_EQ(moved, "coo");
    EXPECT_EQ(copy, text);
    moved = copy;
    EXPECT_EQ(moved, text);
    EXPECT_EQ(copy.empty(), text.empty());
  }
  EXPECT_EQ(sizeof(InternedString), 8u);  // a million tensors have three each
}

TEST(Names, LowerAndTrimmed) {
  EXPECT_EQ(Lower("AZaz@[\xc4\xe4"), "azaz@[\xc4\xe4");
  EXPECT_EQ(Trimmed(" \t\r\n a b \v\f"), "a b");
  EXPECT_EQ(Trimmed(" \ta ", " "), "\ta");
  EXPECT_EQ(Trimmed("   "), "");
  EXPECT_EQ(Trimmed(""), "");
}

TEST(Shape, CountsAndOverflow) {
  EXPECT_EQ(ElementCount({}), 1u);
  EXPECT_EQ(ElementCount(Shape{3, 4}), 12u);
  const std::uint64_t huge = std::uint64_t{1} << 63;
  EXPECT_EQ(ElementCount(Shape{huge, 2}), std::nullopt);
  EXPECT_EQ(ElementCount(Shape{huge, 2, 0}), 0u);
  EXPECT_EQ(DenseBytes(Shape{huge}, {DType::kF32, ""}), std::nullopt);
  EXPECT_EQ(DenseBytes(Shape{3}, {DType::kF64, "complex128"}), 48u);
  EXPECT_EQ(ToString(Shape{4096, 768}), "[4096, 768]");
}

TEST(ValidateObject, DenseSizeFollowsFromShape) {
  auto object = Must(DenseObject("w", {2, 3}, {DType::kF32, ""}));
  EXPECT_OK(ValidateObject(object));
  object.components[0].bytes = 25;
  EXPECT_THAT(Why(ValidateObject(object)), HasSubstr("needs 24"));
}

TEST(ValidateObject, SparseComponentsMustAgree) {
  Object csr{"m",
             "sparse_csr",
             {4, 5},
             {},
             {{"values", {DType::kF32, ""}, 12},
              {"indices", {DType::kU64, ""}, 24},
              {"indptr", {DType::kU64, ""}, 40}}};
  EXPECT_OK(ValidateObject(csr));
  csr.components[1].bytes = 16;
  EXPECT_FALSE(ValidateObject(csr).ok());
  csr.components.pop_back();
  EXPECT_THAT(Why(ValidateObject(csr)), HasSubstr("needs a component 'indptr'"));
}

TEST(ValidateObject, SaysWhatAFormatDoesNotHave) {
  const auto error = [](const Object& object) { return Why(ValidateObject(object)); };
  const Object csr{"m",
                   "sparse_csr",
                   {4, 5},
                   {},
                   {{"values", {DType::kF32, "complex64"}, 24},
                    {"indices", {DType::kU64, ""}, 24},
                    {"indptr", {DType::kU64, ""}, 40}}};
  EXPECT_EQ(error(csr), "");
  Object object = csr;
  object.components[0].bytes = 20;
  EXPECT_EQ(error(object), "component 'values' holds half a complex number");
  object = csr;
  object.shape = {4, 5, 1};
  EXPECT_EQ(error(object), "sparse_csr has shape [4, 5, 1], two dimensions are needed");
  object = csr;
  object.components.push_back({"diagonal", {DType::kU64, ""}, 8});
  EXPECT_EQ(error(object), "sparse_csr has no component 'diagonal'");
  object = csr;
  object.components[0].element.dtype = DType::kF64;
  EXPECT_EQ(error(object), "type complex64 is stored as f32, not as f64");
  object = csr;
  object.shape.assign(kMaxRank + 1, 1);
  EXPECT_EQ(error(object),
            "rank " + std::to_string(kMaxRank + 1) + " exceeds " + std::to_string(kMaxRank));
}

TEST(ValidateObject, RefusesBadNamesAndRoles) {
  auto object = *DenseObject("w", {1}, {DType::kU8, ""});
  object.name = "\xff";
  EXPECT_FALSE(ValidateObject(object).ok());
  object.name = "";  // safetensors and the reference write such names
  EXPECT_OK(ValidateObject(object));
  object.name = "w";
  object.format = "mine/1";
  object.components.push_back(object.components[0]);
  EXPECT_THAT(Why(ValidateObject(object)), HasSubstr("twice"));
  object.components.clear();
  EXPECT_EQ(Why(ValidateObject(object)), "there is no component");
}

TEST(Status, ItsPlaceIsDataAndPrintedOnOneLine) {
  const Status fact = InvalidData("it is short");
  const Status status = WithFile(WithTensor(WithComponent(fact, "data"), "a\nb'"), "f.zt");
  EXPECT_EQ(Message(status), "f.zt: tensor 'a\\nb\\'': component 'data': it is short");
  EXPECT_EQ(status.message(), "it is short");
  EXPECT_EQ(FileOf(status), "f.zt");
  EXPECT_EQ(TensorOf(status), "a\nb'");
  EXPECT_EQ(ComponentOf(status), "data");
  EXPECT_EQ(FileOf(fact), std::nullopt);
  EXPECT_EQ(TensorOf(OkStatus()), std::nullopt);
  EXPECT_EQ(ExitStatus(status), 4);
  EXPECT_EQ(Message(WithTensor(fact, "")), "tensor '': it is short");
  EXPECT_EQ(Message(WithFile(fact, "")), "it is short");
  EXPECT_TRUE(WithFile(OkStatus(), "x").ok());
}

TEST(Status, TheInnermostPlaceStays) {
  const Status inner = WithFile(WithTensor(WithRule(InvalidData("f"), "zTensor 2.0 §5"), "a"), "1");
  const Status status = WithFile(WithTensor(WithRule(inner, "zTensor 2.0 §2"), "b"), "2");
  EXPECT_EQ(Message(status), "1: tensor 'a': f (zTensor 2.0 §5)");
  EXPECT_EQ(Fact(status), "f (zTensor 2.0 §5)");
  EXPECT_EQ(status.message(), "f");
}

TEST(Status, ContextGoesBeforeTheFactOrBeforeTheTensor) {
  const Status fact = Annotate(InvalidData("f"), "header");
  EXPECT_EQ(fact.message(), "header: f");
  const Status status = Annotate(WithTensor(fact, "a"), "manifest");
  EXPECT_EQ(Message(WithFile(Annotate(status, "shard"), "d")),
            "d: shard: manifest: tensor 'a': header: f");
  EXPECT_EQ(Fact(status), "header: f");
  EXPECT_TRUE(Annotate(OkStatus(), "x").ok());
}

TEST(StatusTest, KeepsAdviceApartFromTheFact) {
  const Status one = WithAdvice(InvalidData("f"), Advice::kMemory);
  const Status two = WithFile(WithAdvice(WithAdvice(one, Advice::kExclude), Advice::kMemory), "a");
  EXPECT_EQ(AdviceOf(WithFact(two, "g")), (std::vector{Advice::kMemory, Advice::kExclude}));
  EXPECT_EQ(Message(two), "a: f");
  EXPECT_EQ(AdviceName(Advice::kVoidDtype), "void_dtype");
  EXPECT_TRUE(WithAdvice(OkStatus(), Advice::kExclude).ok());
  EXPECT_EQ(AdviceOf(WithAdvice(WithAdvice(InvalidData("g"), Advice::kShards), two)),
            (std::vector{Advice::kShards, Advice::kMemory, Advice::kExclude}));
  EXPECT_TRUE(AdviceOf(OkStatus()).empty());
}

TEST(Status, OtherWordsAndCodesKeepThePlace) {
  const Status status = WithFile(WithTensor(InvalidData("f"), "a"), "d");
  EXPECT_EQ(Message(WithFact(status, "g")), "d: tensor 'a': g");
  EXPECT_EQ(WithFact(status, "g").code(), StatusCode::kDataLoss);
  EXPECT_EQ(Message(AsInvalidArgument(status)), Message(status));
  EXPECT_EQ(AsInvalidArgument(status).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WithCode(status, StatusCode::kUnimplemented).code(), StatusCode::kUnimplemented);
}

TEST(NameList, TellsTwentyAndCountsTheRest) {
  NameList names;
  EXPECT_TRUE(names.empty());
  EXPECT_EQ(names.ToString(), "");
  names.Add("a");
  EXPECT_EQ(names.ToString(), "a");
  names.Add("b");
  EXPECT_FALSE(names.empty());
  EXPECT_EQ(names.ToString(), "a, b");
  for (int i = 2; i < 20; ++i) names.Add("c");
  EXPECT_EQ(names.ToString().substr(names.ToString().size() - 7), "c, c, c");
  for (int i = 0; i < 3; ++i) names.Add("d");
  EXPECT_EQ(names.ToString().substr(names.ToString().size() - 15), "c, c and 3 more");
}

TEST(Status, ALongNameIsCutAfterACharacter) {
  for (std::size_t before = 0; before < 8; ++before) {
    for (const std::string_view character : {"x", "é", "路", "\U0001f600"}) {
      std::string name(before, 'a');
      while (name.size() < 1000) name += character;
      const std::string quoted = Quote(name);
      EXPECT_TRUE(IsUtf8(quoted)) << before << character;
      EXPECT_TRUE(quoted.ends_with("...'")) << quoted;
      EXPECT_TRUE(name.starts_with(quoted.substr(1, quoted.size() - 5))) << quoted;
      EXPECT_LT(quoted.size(), 310u);
    }
  }
  EXPECT_LT(Quote(std::string(5000, '\x80')).size(), 310u);  // no characters at all
  EXPECT_EQ(Quote(std::string(300, 'a')), "'" + std::string(300, 'a') + "'");
}

TEST(Status, ARepeatedNameIsCutAfterACharacter) {
  // A character, and what it takes in JSON.
  constexpr std::pair<std::string_view, std::size_t> kCharacters[] = {
      {"x", 1},    {"\"", 2}, {"\\", 2}, {"\x01", 6},
      {"\x7f", 6}, {"é", 2},  {"路", 3}, {"\U0001f600", 4}};
  for (std::size_t before = 0; before < 13; ++before) {
    for (const auto& [character, taken] : kCharacters) {
      const std::string ahead(before, 'a');
      const auto of = [&](std::size_t count) {
        std::string name = ahead;
        while (count-- > 0) name += character;
        return name;
      };
      const std::size_t most = (256 - before) / taken;
      EXPECT_EQ(Repeated(of(most)), of(most)) << before << character;
      EXPECT_EQ(Repeated(of(most + 1)), of(most) + "...") << before << character;
      EXPECT_EQ(Repeated(of(5000)), of(most) + "...") << before << character;
    }
  }
  EXPECT_LE(Repeated(std::string(5000, '\x80')).size(), 259u);  // no characters at all
  EXPECT_EQ(Repeated(""), "");
}

TEST(Utf8, AcceptsAndRefuses) {
  EXPECT_TRUE(IsUtf8("ünïcødé/路径"));
  EXPECT_FALSE(IsUtf8("\xc0\x80"));
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));
  EXPECT_FALSE(IsUtf8("\xe8\xb7"));
}

TEST(Utf8, EscapesWhatIsNotUtf8AlonePythonsWay) {
  EXPECT_EQ(EscapeUnlessUtf8("ünïcødé/路径"), "ünïcødé/路径");
  EXPECT_EQ(EscapeUnlessUtf8("caf\xe9/路"), "caf\\xe9/路");
  EXPECT_EQ(EscapeUnlessUtf8("a\xed\xa0\xbd\xed\xbf\xbfz"), "a\\ud83d\\udfffz");
  EXPECT_EQ(EscapeUnlessUtf8("\xed\xa0"), "\\xed\\xa0");
  EXPECT_EQ(EscapeUnlessUtf8("\xed\xe0\x80\xc0\x80\xe8\xb7"),
            "\\xed\\xe0\\x80\\xc0\\x80\\xe8\\xb7");
  EXPECT_TRUE(IsUtf8(EscapeUnlessUtf8(std::string(100, '\xf4'))));
}

TEST(Value, IntegersHaveOneForm) {
  EXPECT_EQ(Value(std::int64_t{5}), Value(std::uint64_t{5}));
  EXPECT_EQ(Value(-1).kind(), Value::Kind::kInt);
  Value::Map map;
  SetMember(map, "k", 1);
  SetMember(map, "k", "two");
  ASSERT_EQ(map.size(), 1u);
  EXPECT_EQ(*FindMember(map, "k")->AsString(), "two");
}

TEST(Value, CopiesShareWhatIsLarge) {
  const Value array(Value::Array{1, "two", Value::Array{}});
  const Value bytes(Value::Bytes(3));
  const Value map(Value::Map{{"k", array}});
  EXPECT_EQ(Value(array).AsArray(), array.AsArray());
  EXPECT_EQ(Value(bytes).AsBytes(), bytes.AsBytes());
  EXPECT_EQ(Value(map).AsMap(), map.AsMap());
  EXPECT_EQ(FindMember(*map.AsMap(), "k")->AsArray(), array.AsArray());
  // Equal by content, not by what is shared.
  EXPECT_EQ(array, Value(Value::Array{1, "two", Value::Array{}}));
  EXPECT_FALSE(array == Value(Value::Array{1, "two", Value::Array{0}}));
  EXPECT_EQ(bytes, Value(Value::Bytes(3)));
  EXPECT_FALSE(bytes == Value(Value::Bytes(2)));
  EXPECT_FALSE(map == Value(Value::Map{{"k", 1}}));
  const Value nan(Value::Array{std::nan("")});
  EXPECT_FALSE(nan == nan);
}

TEST(Value, EmptyOnesAreOfTheirKind) {
  const Value array(Value::Array{}), bytes(Value::Bytes{}), map(Value::Map{});
  ASSERT_NE(array.AsArray(), nullptr);
  ASSERT_NE(bytes.AsBytes(), nullptr);
  ASSERT_NE(map.AsMap(), nullptr);
  EXPECT_TRUE(array.AsArray()->empty() && bytes.AsBytes()->empty() && map.AsMap()->empty());
  EXPECT_EQ(array.AsMap(), nullptr);
  EXPECT_EQ(array, Value(Value::Array{}));
  EXPECT_FALSE(array == map);
  EXPECT_FALSE(array == Value());
}

TEST(Value, AMapIsTakenWhereNoCopySharesIt) {
  const Value::Map members = {{"k", Value::Array{1}}, {"a key longer than a short string", 2}};
  Value alone(members);
  const Value::Member* const first = alone.AsMap()->data();
  const Value::Map taken = std::move(alone).TakeMap();
  EXPECT_EQ(taken.data(), first);
  EXPECT_EQ(taken, members);
  Value shared(members);
  const Value copy = shared;
  EXPECT_EQ(std::move(shared).TakeMap(), members);
  EXPECT_EQ(*copy.AsMap(), members);
  EXPECT_TRUE(Value(1).TakeMap().empty());
  EXPECT_TRUE(Value(Value::Map{}).TakeMap().empty());
}

}  // namespace
}  // namespace zt
