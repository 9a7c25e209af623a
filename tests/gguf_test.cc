// GGUF: what a correct reader finds in files of gguf-py and llama-quantize, and the way
// back to the byte.
#include "testing.h"

import zt.core;
import zt.format;
import zt.sink;
import zt.source;
import zt.convert.gguf;
import zt.convert.layout;

namespace zt {
namespace {

std::string GgufPath(const std::string& name) { return DataPath("gguf/" + name); }

std::string TempPath(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string folder = ::testing::TempDir() + "/gguf_" + test->name();
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

std::unique_ptr<TensorSource> MustOpen(const std::string& name) {
  return Must(OpenGguf(Must(OpenFile(GgufPath(name)))));
}

Status OpenBytes(std::span<const std::byte> bytes) {
  auto source = OpenGguf(MemoryBytes(bytes, "memory"));
  if (!source.ok()) return source.status();
  for (std::uint32_t i = 0; i < (*source)->objects().size(); ++i) {
    const Object& object = (*source)->objects()[i];
    if (auto status = ValidateObject(object); !status.ok()) return status;
    Bytes data(object.components[0].bytes);
    if (auto status = (*source)->Read({i, 0}, 0, data); !status.ok()) return status;
  }
  return OkStatus();
}

std::optional<std::uint32_t> Find(const TensorSource& source, std::string_view name) {
  for (std::uint32_t i = 0; i < source.objects().size(); ++i) {
    if (source.objects()[i].name == name) return i;
  }
  return std::nullopt;
}

Bytes ReadTensor(TensorSource& source, std::uint32_t i) {
  Bytes out(source.objects()[i].components[0].bytes);
  EXPECT_OK(source.Read({i, 0}, 0, out));
  return out;
}

const Value& Gguf(const TensorSource& source, std::string_view key) {
  return *FindMember(*FindMember(source.attributes(), "gguf")->AsMap(), key);
}

// The value of a metadata key: its type and value.
std::pair<std::string, Value> Kv(const TensorSource& source, std::string_view key) {
  for (const Value& entry : *Gguf(source, "kv").AsArray()) {
    const Value::Array& parts = *entry.AsArray();
    if (*parts[0].AsString() == key) return {*parts[1].AsString(), parts[2]};
  }
  ADD_FAILURE() << "no key " << key;
  return {};
}

// Declarations without bytes.
class Declared final : public TensorSource {
 public:
  Declared(Value::Map attributes, std::vector<Object> objects) {
    attributes_ = std::move(attributes);
    objects_ = std::move(objects);
  }
  std::string_view format() const override { return "declared"; }
  Status Read(ComponentId, std::uint64_t, std::span<std::byte>) override {
    return FailedPrecondition("there are no bytes");
  }
};

StatusOr<FileLayout> Plan(const TensorSource& source) {
  return PlanGguf(source, Indices(source.objects().size()));
}
StatusOr<FileLayout> Plan(Value::Map attributes, std::vector<Object> objects) {
  return Plan(Declared(std::move(attributes), std::move(objects)));
}

// The root attributes of a file with this metadata and nothing else recorded.
Value::Map RecordWith(Value::Array kv, std::uint64_t alignment = 32) {
  return {{"gguf", Value(Value::Map{{"version", Value(std::uint64_t{3})},
                                    {"byte_order", Value("little")},
                                    {"alignment", Value(alignment)},
                                    {"kv", Value(std::move(kv))},
                                    {"tensors", Value(Value::Array())}})}};
}
Value Pair(std::string_view key, std::string_view type, Value value) {
  return Value(Value::Array{Value(key), Value(type), std::move(value)});
}

// What precedes the first tensor, without padding.
const Bytes& Header(const FileLayout& layout) {
  return layout.pieces.empty() ? layout.end : layout.pieces.front().before;
}

// The GGUF that PlanGguf makes of the source, streamed front to back.
Bytes WriteBack(TensorSource& source) {
  auto layout = Plan(source);
  EXPECT_OK(layout);
  if (!layout.ok()) return {};
  Bytes out;
  const auto sink = MemorySink(out);
  EXPECT_OK(WriteLayout(source, *layout, *sink));
  EXPECT_EQ(out.size(), layout->bytes);
  return out;
}

// ---- what others wrote --------------------------------------------------------------------------

TEST(Gguf, BothByteOrdersGiveTheSameTensors) {
  auto little = MustOpen("kinds.gguf"), big = MustOpen("kinds_big.gguf");
  ASSERT_EQ(little->objects().size(), 4u);
  ASSERT_EQ(big->objects().size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(little->objects()[i].name, big->objects()[i].name);
    EXPECT_EQ(ReadTensor(*little, i), ReadTensor(*big, i));
  }
  EXPECT_EQ(Gguf(*little, "kv"), Gguf(*big, "kv"));
  EXPECT_EQ(*Gguf(*little, "byte_order").AsString(), "little");
  EXPECT_EQ(*Gguf(*big, "byte_order").AsString(), "big");
}

TEST(Gguf, MetadataKeepsOrderTypesAndValues) {
  auto source = MustOpen("kinds.gguf");
  std::vector<std::string> keys;
  for (const Value& entry : *Gguf(*source, "kv").AsArray()) {
    keys.push_back(*(*entry.AsArray())[0].AsString());
  }
  EXPECT_THAT(keys, ElementsAre("general.architecture", "general.alignment", "v.u8", "v.i8",
                                "v.u16", "v.i16", "v.u32", "v.i32", "v.u64", "v.i64", "v.f32",
                                "v.f32nan", "v.f64", "v.f64nan", "v.true", "v.false", "v.str",
                                "a.str", "a.i32", "a.f32", "a.bool", "a.bytes"));
  using P = std::pair<std::string, Value>;
  EXPECT_EQ(Kv(*source, "v.u8"), (P{"u8", Value(std::uint64_t{255})}));
  EXPECT_EQ(Kv(*source, "v.i8"), (P{"i8", Value(std::int64_t{-128})}));
  EXPECT_EQ(Kv(*source, "v.i32"), (P{"i32", Value(std::int64_t{-2147483648})}));
  EXPECT_EQ(Kv(*source, "v.u64"), (P{"u64", Value(~std::uint64_t{0})}));
  EXPECT_EQ(Kv(*source, "v.i64"), (P{"i64", Value(std::numeric_limits<std::int64_t>::min())}));
  EXPECT_TRUE(std::signbit(*Kv(*source, "v.f32").second.AsDouble()));
  EXPECT_EQ(Kv(*source, "v.f32nan"),
            (P{"f32",
               Value(Value::Bytes{std::byte{0}, std::byte{0}, std::byte{0xc0}, std::byte{0x7f}})}));
  EXPECT_EQ(Kv(*source, "v.f64").second, Value(1e300));
  EXPECT_EQ(Kv(*source, "v.f64nan").second.AsBytes()->size(), 8u);
  EXPECT_EQ(Kv(*source, "v.true"), (P{"bool", Value(true)}));
  EXPECT_EQ(Kv(*source, "v.str"), (P{"string", Value("na\u00efve \u2713")}));
  EXPECT_EQ(
      Kv(*source, "a.str"),
      (P{"array", Value(Value::Array{Value("string"),
                                     Value(Value::Array{Value("x"), Value(""), Value("yy")})})}));
  EXPECT_EQ(Kv(*source, "a.f32").second,
            Value(Value::Array{Value("f32"), Value(Value::Array{Value(0.5), Value(-1.25)})}));
  const Value long_array = Kv(*source, "a.i32").second;
  EXPECT_EQ(*(*long_array.AsArray())[0].AsString(), "i32");
  const Value::Bytes& numbers = *(*long_array.AsArray())[1].AsBytes();
  ASSERT_EQ(numbers.size(), 400u);
  for (int i = 0; i < 100; ++i) {
    std::int32_t v;
    std::memcpy(&v, numbers.data() + 4 * i, 4);
    EXPECT_EQ(Little(v), i - 50);
  }
}

TEST(Gguf, ObjectsComeInFileOrderAndRecordTheHeaders) {
  auto source = MustOpen("little.gguf");
  ASSERT_EQ(source->objects().size(), 4u);
  EXPECT_EQ(source->objects()[0].name, "tok.weight");
  EXPECT_EQ(source->objects()[3].name, "q8");
  const auto first = source->extent({0, 0}), second = source->extent({1, 0});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->offset, 0x1e0u);
  EXPECT_EQ(first->length, 512u);
  EXPECT_EQ(second->offset, 0x1e0u + 512u);
  const Value::Array& tensors = *Gguf(*source, "tensors").AsArray();
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[1], Value(Value::Array{Value("b"), Value("f16")}));
}

TEST(Gguf, RangesOfBigEndianTensorsNeedNotBeWhole) {
  auto source = MustOpen("big.gguf");
  const auto i = Find(*source, "tok.weight");
  ASSERT_TRUE(i.has_value());
  const Bytes whole = ReadTensor(*source, *i);
  for (std::size_t at = 0; at < 12; ++at) {
    for (std::size_t size = 0; size < 20; ++size) {
      Bytes part(size);
      ASSERT_OK(source->Read({*i, 0}, at, part));
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(at)))
          << at << " " << size;
    }
  }
  Bytes beyond(8);
  EXPECT_EQ(source->Read({*i, 0}, whole.size() - 4, beyond).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(source->extent({*i, 0}).has_value());
}

// ---- the way back -------------------------------------------------------------------------------

TEST(Gguf, HeadersOfEitherByteOrderAndVersionEncodeAsParsed) {
  for (const char* name : {"big.gguf", "kinds_big.gguf", "kinds.gguf"}) {
    SCOPED_TRACE(name);
    const Bytes file = ReadBytes(GgufPath(name));
    auto header = ParseGgufHeader(file, file.size());
    ASSERT_TRUE(header.ok() && header->has_value());
    auto encoded = Must(EncodeGgufHeader(**header));
    EXPECT_EQ(encoded.size(), (*header)->header_bytes);
    EXPECT_TRUE(std::equal(encoded.begin(), encoded.end(), file.begin()));
    for (const std::uint32_t version : {1u, 2u}) {
      (*header)->version = version;
      auto other = Must(EncodeGgufHeader(**header));
      // Offsets are relative, so any data section will do.
      other.resize(other.size() + file.size());
      auto again = ParseGgufHeader(other, other.size());
      ASSERT_TRUE(again.ok() && again->has_value()) << Why(again);
      EXPECT_EQ((*again)->version, version);
      EXPECT_EQ((*again)->kv.size(), (*header)->kv.size());
      ASSERT_EQ((*again)->tensors.size(), (*header)->tensors.size());
      for (std::size_t i = 0; i < (*again)->tensors.size(); ++i) {
        EXPECT_EQ((*again)->tensors[i].name, (*header)->tensors[i].name);
        EXPECT_EQ((*again)->tensors[i].shape, (*header)->tensors[i].shape);
        EXPECT_EQ((*again)->tensors[i].offset, (*header)->tensors[i].offset);
      }
    }
  }
}

TEST(Gguf, EndsThatAreNotUsual) {
  Bytes file = ReadBytes(GgufPath("kinds.gguf"));
  auto header = ParseGgufHeader(file, file.size());
  ASSERT_TRUE(header.ok() && header->has_value());
  EXPECT_FALSE((*header)->scattered);
  std::uint64_t end = 0;
  for (const GgufTensor& tensor : (*header)->tensors) {
    end = std::max(end, (*header)->data_offset + tensor.offset + tensor.bytes);
  }
  const Bytes usual = file;
  for (const std::uint64_t size : {end, end + 1, (end + 63) / 64 * 64, end + 100}) {
    file.resize(size);
    auto source = Must(OpenGguf(MemoryBytes(file, "memory")));
    EXPECT_TRUE(WriteBack(*source) == usual) << size;
    if (size < end + 100) {
      EXPECT_TRUE(source->warnings().empty());
    } else {
      EXPECT_THAT(source->warnings(), ElementsAre("100 bytes after the last tensor are ignored"));
    }
  }
}

TEST(Gguf, OldVersionsAndMagicsAreWrittenAsTheyAreToday) {
  const Bytes usual = ReadBytes(GgufPath("kinds.gguf"));
  auto header = Must(ParseGgufHeader(usual, usual.size()));
  const std::uint64_t data = header->data_offset;
  for (const std::uint32_t version : {1u, 2u, 3u}) {
    header->version = version;
    header->swapped_magic = version == 3;
    Bytes file = Must(EncodeGgufHeader(*header));
    file.resize(header->Align(file.size()));
    file.insert(file.end(), usual.begin() + static_cast<std::ptrdiff_t>(data), usual.end());
    auto source = Must(OpenGguf(MemoryBytes(file, "memory")));
    EXPECT_EQ(source->warnings().size(), version == 2 ? 0u : 1u);
    Bytes want = usual;
    want[4] = version == 2 ? std::byte{2} : std::byte{3};
    EXPECT_TRUE(WriteBack(*source) == want) << version;
  }
}

TEST(Gguf, BigEndianBlocksOfOddSizesAreSwappedInEveryRange) {
  // Larger than a range that is read at once, of blocks that do not divide it.
  constexpr std::uint64_t kBlocks = 30'000;
  GgufHeader header;
  header.big_endian = true;
  header.tensors.push_back(
      {"t", *FindGgmlType("q6_k"), {kBlocks, 256}, 0, kBlocks * FindGgmlType("q6_k")->bytes});
  Bytes file = *EncodeGgufHeader(header);
  file.resize((file.size() + 31) / 32 * 32);
  for (std::uint64_t i = 0; i < header.tensors[0].bytes; ++i) {
    file.push_back(static_cast<std::byte>(i * 7 + i / 251));
  }
  file.resize((file.size() + 31) / 32 * 32);
  auto source = Must(OpenGguf(MemoryBytes(file, "memory")));
  EXPECT_TRUE(WriteBack(*source) == file);
}

TEST(Gguf, ChangedTensorsAreLaidOutAnew) {
  auto source = MustOpen("quants.gguf");
  std::vector<Object> objects = source->objects();
  objects.erase(objects.begin());
  Object& converted = objects[0];
  converted = *DenseObject(converted.name, converted.shape, {DType::kF32, ""});
  auto layout = Must(Plan(source->attributes(), objects));
  Bytes file = Header(layout);
  file.resize(layout.bytes);
  auto header = ParseGgufHeader(file, file.size());
  ASSERT_TRUE(header.ok() && header->has_value()) << Why(header);
  ASSERT_EQ((*header)->tensors.size(), objects.size());
  EXPECT_EQ((*header)->kv, *Gguf(*source, "kv").AsArray());
  std::uint64_t at = Header(layout).size();
  for (const LayoutPiece& piece : layout.pieces) {
    at += piece.zeros;
    EXPECT_EQ(at % 32, 0u);
    at += piece.bytes;
  }
  EXPECT_EQ(layout.bytes, at + layout.end_zeros);
}

TEST(Gguf, ObjectsOfOtherOriginNeedATypeOfGguf) {
  std::vector<Object> objects = {*DenseObject("a", {3, 5}, {DType::kBF16, ""}),
                                 *DenseObject("b", {}, {DType::kI64, ""})};
  auto layout = Must(Plan({}, objects));
  ASSERT_EQ(layout.pieces.size(), 2u);
  Bytes file = Header(layout);
  file.resize(layout.bytes);
  EXPECT_OK(OpenBytes(file));
  objects.push_back(*DenseObject("c", {4}, {DType::kU8, ""}));
  EXPECT_THAT(Plan({}, objects), Fails(StatusCode::kUnimplemented,
                                       "tensor 'c': GGUF has no type for u8; convert it to one of "
                                       "f64 f32 f16 bf16 i64 i32 i16 i8"));
  objects[2] = *DenseObject("d", {1, 1, 1, 1, 1}, {DType::kF32, ""});
  EXPECT_THAT(Why(Plan({}, objects)),
              HasSubstr("tensor 'd': shape [1, 1, 1, 1, 1] has more than 4 dimensions"));
  objects[2] = *DenseObject("d", {1, 1, 1, 1}, {DType::kF32, ""});
  EXPECT_OK(Plan({}, objects));
}

TEST(Gguf, MalformedRecordIsAnError) {
  auto source = MustOpen("little.gguf");
  const Value::Map record = *FindMember(source->attributes(), "gguf")->AsMap();
  for (const char* key : {"version", "byte_order", "alignment", "kv", "tensors"}) {
    for (const Value& bad : {Value(), Value("x"), Value(Value::Array{Value(std::uint64_t{1})})}) {
      Value::Map broken = record;
      SetMember(broken, key, bad);
      EXPECT_EQ(Plan({{"gguf", Value(broken)}}, source->objects()).status().code(),
                StatusCode::kDataLoss)
          << key;
    }
  }
  const Value name("a"), number(std::uint64_t{1});
  const auto status_of = [&](Value::Array entry) {
    Value::Map changed = record;
    SetMember(changed, "tensors", Value(Value::Array{Value(std::move(entry))}));
    return Plan({{"gguf", Value(changed)}}, source->objects()).status();
  };
  for (const Value::Array& entry : {Value::Array{}, {name}, {number, name}, {name, number}}) {
    EXPECT_THAT(status_of(entry),
                Fails(StatusCode::kDataLoss,
                      HasSubstr("an entry of 'tensors' is not a list of name and type")));
  }
  EXPECT_OK(status_of({name, Value("f32")}));
  EXPECT_OK(status_of({name, Value("f32"), number}));  // what later versions may add
}

TEST(Gguf, MetadataThatOurReaderRefusesIsNotWritten) {
  const std::vector<Object> objects = {*DenseObject("a", {16}, {DType::kF32, ""})};
  const auto error = [&](Value::Array kv, std::uint64_t alignment = 32) {
    auto layout = Plan(RecordWith(std::move(kv), alignment), objects);
    EXPECT_EQ(layout.status().code(), StatusCode::kDataLoss);
    return Why(layout);
  };
  const std::string damaged = "the GGUF file to be written would be damaged: ";
  const Value one(std::uint64_t{1});
  EXPECT_EQ(error({Pair("a", "u8", one), Pair("a", "u8", one)}),
            damaged + "key 'a': it occurs twice");
  EXPECT_EQ(error({Pair("", "u8", one)}), damaged + "key-value pair 0 has an empty key");
  EXPECT_EQ(error({Pair("general.alignment", "u32", Value(std::uint64_t{3}))}),
            "root attribute 'gguf': its alignment is 32, its metadata says 3");
  EXPECT_EQ(error({Pair("general.alignment", "u64", Value(std::uint64_t{32}))}),
            damaged + "key 'general.alignment': it is not a u32");
  EXPECT_EQ(
      error({}, 64),
      "root attribute 'gguf': its alignment is 64, its metadata says nothing, which means 32");
  EXPECT_EQ(error({Pair("general.alignment", "u32", Value(std::uint64_t{32}))}, 64),
            "root attribute 'gguf': its alignment is 64, its metadata says 32");
  EXPECT_EQ(error({Pair("a", "f32", Value(1e308))}),
            "root attribute 'gguf': metadata pair 0: a float is out of its type's range");
  EXPECT_EQ(
      error({Pair("a", "u8", Value(std::uint64_t{300}))}),
      "root attribute 'gguf': metadata pair 0: an integer is missing or out of its type's range");
  EXPECT_OK(
      Plan(RecordWith({Pair("a", "f32", Value(3.4e38)), Pair("b", "f64", Value(1e308))}), objects));
}

TEST(Gguf, KeysOfASplitSetAreKeptOnlyForAllItsTensors) {
  const std::vector<Object> two = {*DenseObject("a", {2}, {DType::kF32, ""}),
                                   *DenseObject("b", {2}, {DType::kF32, ""})};
  const Value::Map record = RecordWith({Pair("split.no", "u16", Value(std::uint64_t{0})),
                                        Pair("split.count", "u16", Value(std::uint64_t{2})),
                                        Pair("split.tensors.count", "i32", Value(std::uint64_t{2})),
                                        Pair("k", "bool", Value(true))});
  for (const std::size_t tensors : {2u, 1u}) {
    auto layout =
        Must(Plan(record, {two.begin(), two.begin() + static_cast<std::ptrdiff_t>(tensors)}));
    Bytes file = Header(layout);
    file.resize(layout.bytes);
    EXPECT_OK(OpenBytes(file));
    auto header = ParseGgufHeader(file, file.size());
    EXPECT_EQ((*header)->kv.size(), tensors == 2 ? 4u : 1u);
  }
}

TEST(Gguf, FileTypeIsThatOfTheTensorsOnceNoBlocksAreLeft) {
  auto source = MustOpen("quants.gguf");
  Value::Map record = *FindMember(source->attributes(), "gguf")->AsMap();
  Value::Array kv = *FindMember(record, "kv")->AsArray();
  std::erase_if(kv, [](const Value& e) { return (*e.AsArray())[0] == Value("general.file_type"); });
  kv.push_back(Pair("general.file_type", "u32", Value(std::uint64_t{2})));
  SetMember(record, "kv", Value(kv));
  const auto file_type = [&](std::optional<DType> type) -> Value {
    std::vector<Object> objects = source->objects();
    for (Object& object : objects) {
      if (type) object = *DenseObject(object.name, object.shape, {*type, ""});
    }
    auto layout = Must(Plan({{"gguf", Value(record)}}, objects));
    auto header = ParseGgufHeader(Header(layout), layout.bytes);
    const auto& pairs = (*header)->kv;
    return *(*pairs.back().AsArray())[0].AsString() == "general.file_type"
               ? (*pairs.back().AsArray())[2]
               : Value();
  };
  EXPECT_EQ(file_type(std::nullopt), Value(std::uint64_t{2}));
  EXPECT_EQ(file_type(DType::kF32), Value(std::uint64_t{0}));
  EXPECT_EQ(file_type(DType::kF16), Value(std::uint64_t{1}));
  EXPECT_EQ(file_type(DType::kBF16), Value(std::uint64_t{32}));
  EXPECT_EQ(file_type(DType::kF64), Value());  // which has no number
}

// ---- split sets ---------------------------------------------------------------------------------

std::string Shard(int i) { return "split-0000" + std::to_string(i) + "-of-00003.gguf"; }

TEST(GgufSet, AnyShardOpensTheSet) {
  for (int shard = 1; shard <= 3; ++shard) {
    auto source = Must(OpenGgufSet(GgufPath(Shard(shard))));
    ASSERT_EQ(source->objects().size(), 5u);
    for (std::uint32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(source->objects()[i].name, "t." + std::to_string(i));
      const Bytes data = ReadTensor(*source, i);
      float values[4];
      ASSERT_EQ(data.size(), sizeof values);
      std::memcpy(values, data.data(), sizeof values);
      EXPECT_EQ(Little(values[3]), 10.0f * static_cast<float>(i) + 3);
      EXPECT_EQ(source->file({i, 0}), GgufPath(Shard(static_cast<int>(i) / 2 + 1)));
    }
    for (const Value& entry : *Gguf(*source, "kv").AsArray()) {
      EXPECT_THAT(*(*entry.AsArray())[0].AsString(), ::testing::Not(HasSubstr("split.")));
    }
    EXPECT_EQ(Kv(*source, "general.name").second, Value("set"));
    // Merged, it can be written as one file.
    const Bytes whole = WriteBack(*source);
    auto merged = Must(OpenGguf(MemoryBytes(whole, "memory")));
    EXPECT_EQ(merged->objects().size(), 5u);
  }
}

class BrokenSet : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 1; i <= 3; ++i) {
      shards_.push_back(ReadBytes(GgufPath(Shard(i))));
      WriteFile(TempPath(Shard(i)), shards_.back());
    }
  }
  std::string Error(int shard = 1) {
    auto source = OpenGgufSet(TempPath(Shard(shard)));
    EXPECT_FALSE(source.ok());
    return source.ok() ? "" : Why(source);
  }
  std::vector<Bytes> shards_;
};

TEST_F(BrokenSet, MissingShardIsNamed) {
  std::filesystem::remove(TempPath(Shard(2)));
  EXPECT_EQ(Error(3), "shard 2 of 3, split-00002-of-00003.gguf: it is missing");
}

TEST_F(BrokenSet, ShardOfAnotherNumberIsNamed) {
  WriteFile(TempPath(Shard(2)), shards_[2]);
  EXPECT_EQ(Error(), "split-00002-of-00003.gguf: split.no is 2, its name asks for 1");
}

TEST_F(BrokenSet, DuplicateTensorIsNamed) {
  Bytes& third = shards_[2];
  const std::string_view name = "t.4";
  auto at = std::search(third.begin(), third.end(), reinterpret_cast<const std::byte*>(name.data()),
                        reinterpret_cast<const std::byte*>(name.data() + 3));
  ASSERT_NE(at, third.end());
  at[2] = std::byte{'0'};
  WriteFile(TempPath(Shard(3)), third);
  EXPECT_EQ(Error(2),
            "tensor 't.0': it is in both split-00001-of-00003.gguf and split-00003-of-00003.gguf");
}

TEST_F(BrokenSet, OneShardAloneIsRefused) {
  const std::string path = TempPath("alone.gguf");
  WriteFile(path, shards_[1]);
  EXPECT_EQ(
      Why(OpenGgufSet(path)),
      "it is shard 2 of 3 of a split set, but its name is not NAME-00001-of-0000N.gguf, so the "
      "others cannot be found");
  EXPECT_THAT(Why(OpenBytes(shards_[1])),
              HasSubstr("it is shard 2 of 3 of a split set, which holds only 2 of its tensors"));
  EXPECT_OK(OpenGgufSet(path, {.allow_single_shard = true}));
}

}  // namespace
}  // namespace zt
