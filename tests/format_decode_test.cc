// zt.format: what a decoder accepts, and the words with which it refuses.
#include "format_testing.h"

import zt.compress;
import zt.core;
import zt.format;

namespace zt {
namespace {

using namespace testing_format;

StatusOr<Manifest> Decode(std::string_view cbor, SpecVersion family = SpecVersion::k1_2) {
  return DecodeManifest(ToBytes(cbor), family);
}

// A 1.x root of one object "t" with these fields.
std::string Root(const std::string& object, std::string_view version = "1.2.0") {
  return Map("version", Text(version), "objects", Map("t", object));
}
std::string DenseObjectCbor(const std::string& component) {
  return Map(
      {"shape", Array(Uint(3)), "format", Text("dense"), "components", Map("data", component)});
}
const std::string kGoodComponent = Map("dtype", Text("u8"), "offset", Uint(64), "length", Uint(3));

TEST(DecodeManifest, VersionPolicy) {
  const std::string object = DenseObjectCbor(kGoodComponent);
  EXPECT_EQ(Decode(Root(object, "1.3.7"))->version, SpecVersion::k1_2);
  EXPECT_EQ(Decode(Root(object, "1.3.7"))->version_text, "1.3.7");
  EXPECT_EQ(Decode(Root(object, "1.1"))->version, SpecVersion::k1_1);
  EXPECT_THAT(Decode(Root(object, "2.0")),
              Fails(StatusCode::kUnimplemented,
                    "manifest: the file is of version 2.0; in a container of 1.x, versions up to "
                    "1.x can be read"));
  EXPECT_EQ(Why(Decode(Root(object, "x"))), "manifest: version 'x' is not of the form 1.2.0");
  EXPECT_FALSE(Decode(Root(object, "1")).ok());
  EXPECT_FALSE(Decode(Root(object, "0.1.0")).ok());
  EXPECT_FALSE(Decode(Root(object, "1.99999999999")).ok());
}

TEST(DecodeManifest, VersionMayComeLast) {
  const auto manifest = Must(Decode(Map("objects", Map("t", DenseObjectCbor(kGoodComponent)),
                                        "later", Array(Uint(1)), "version", Text("1.2.0"))));
  EXPECT_EQ(manifest.objects[0].components[0].offset, 64u);
}

TEST(DecodeManifest, NullStandsForAnAbsentField) {
  const std::string null = "\xf6";
  const auto manifest = Must(Decode(
      Root(Map("shape", Array(Uint(3)), "format", Text("dense"), "attributes", null, "components",
               Map("data", Map("dtype", Text("u8"), "type", null, "offset", Uint(64), "length",
                               Uint(3), "uncompressed_length", null, "digest", null))))));
  EXPECT_EQ(manifest.objects[0].components[0].digest, "");
}

TEST(DecodeManifest, RefusesByName) {
  const auto component = [](std::initializer_list<std::string> fields) {
    return Root(DenseObjectCbor(Map(fields)));
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Root(Map("shape", Array(Uint(3)), "format", Text("dense"), "components", Map({}))),
       "manifest: tensor 't': there is no component"},
      {Root(Map("shape", Array("\xf9\x42\x00"), "format", Text("dense"))),
       "manifest: tensor 't': 'shape' is "},
      {Root(Map("shape", Array("\x20"))),
       "manifest: tensor 't': 'shape' is an integer, an "
       "unsigned integer is needed"},
      {component({"dtype", Text("u8"), "offset", Uint(64)}),
       "manifest: tensor 't': component 'data': field 'length' is missing"},
      {component({"offset", Uint(64), "length", Uint(3)}),
       "manifest: tensor 't': component 'data': field 'dtype' is missing"},
      {component({"dtype", Text("u8"), "offset", Uint(64), "length", Uint(3), "digest", Text("x")}),
       "manifest: tensor 't': component 'data': digest 'x' is not of the form algorithm:value"},
      {component({"x", Uint(1), "y", Uint(1), "x", Uint(2), "dtype", Text("u8"), "offset", Uint(64),
                  "length", Uint(3)}),
       "manifest: tensor 't': component 'data': field 'x' occurs twice"},
      {component({"dtype", Text("u8"), "offset", Uint(64), "length", Uint(3), "uncompressed_length",
                  Uint(4)}),
       "manifest: tensor 't': component 'data': 'uncompressed_length' is 4 where 'length' of the "
       "raw data is 3"},
      {Map("version", Text("1.2.0"), "objects", Map("\xff", DenseObjectCbor(kGoodComponent))),
       "manifest: a map key is not valid UTF-8"},
      {Map("version", Text("1.2.0"), "objects",
           Map("t", DenseObjectCbor(kGoodComponent), "t", DenseObjectCbor(kGoodComponent))),
       "manifest: tensor 't' occurs twice"},
      {Map("version", Text("1.2.0"), "attributes", Map("a", "\xc1\x01"), "objects", Map({})),
       "manifest: 'attributes': 'a': a value with CBOR tag 1 cannot be kept"},
      {Map("version", Text("1.2.0"), "attributes", "\xa1\x01\x02", "objects", Map({})),
       "manifest: 'attributes': a map key is an integer, only text can be a key"},
      {Map("version", Text("1.2.0"), "version", Text("1.2.0"), "objects", Map({})),
       "manifest: field 'version' occurs twice"},
      {Uint(1), "manifest: 'manifest' is an integer, a map is needed"}};
  for (const auto& [cbor, message] : cases) {
    const auto manifest = Decode(cbor);
    ASSERT_FALSE(manifest.ok()) << message;
    EXPECT_THAT(Why(manifest), ::testing::StartsWith(message));
  }
}

TEST(DecodeManifest, RankEndsAt64) {
  const auto with_rank = [](std::size_t rank) {
    std::string shape = Head(4, rank);
    for (std::size_t i = 0; i < rank; ++i) shape += Uint(1);
    return Decode(Root(
        Map("shape", shape, "format", Text("dense"), "components", Map("data", kGoodComponent))));
  };
  EXPECT_OK(with_rank(64));
  EXPECT_EQ(Why(with_rank(65)), "manifest: tensor 't': the rank exceeds 64");
}

TEST(DecodeManifest, UnknownFieldsAreSkippedWithinTheNesting) {
  const auto nested = [](std::size_t depth) {
    return Decode(Map("version", Text("1.2.0"), "objects", Map({}), "x",
                      std::string(depth, '\x81') + "\xc1\x01"));
  };
  EXPECT_OK(nested(62));
  EXPECT_THAT(Why(nested(63)), HasSubstr("the CBOR nests too deeply"));
  EXPECT_FALSE(nested(100000).ok());
}

TEST(DecodeManifest, DtypesOf11) {
  const auto decode = [](std::string_view dtype) {
    return Decode(
        Root(DenseObjectCbor(Map("dtype", Text(dtype), "offset", Uint(64), "length", Uint(3))),
             "1.1.0"));
  };
  EXPECT_EQ(decode("f8_e4m3")->objects[0].components[0].element,
            (ElementType{DType::kU8, "f8_e4m3fn"}));
  EXPECT_EQ(decode("f8_e5m2")->objects[0].components[0].element,
            (ElementType{DType::kU8, "f8_e5m2"}));
  EXPECT_EQ(decode("complex64")->objects[0].components[0].element,
            (ElementType{DType::kF32, "complex64"}));
  EXPECT_EQ(decode("complex128")->objects[0].components[0].element,
            (ElementType{DType::kF64, "complex128"}));
  EXPECT_FALSE(decode("float32").ok());
}

TEST(DecodeManifest, Entries01) {
  const auto entry = [](std::string_view dtype, std::initializer_list<std::string> more) {
    std::string map = Map("name", Text("t"), "offset", Uint(64), "size", Uint(4), "dtype",
                          Text(dtype), "shape", Array(Uint(1)), "encoding", Text("zstd"));
    map[0] = static_cast<char>(map[0] + more.size() / 2);
    return Decode(Array(map + Map(more).substr(1)), SpecVersion::k0_1);
  };
  EXPECT_OK(entry("float32", {}));
  EXPECT_EQ(entry("float32", {"layout", Text("sparse"), "sparse_format", Text("csr")})
                ->objects[0]
                .components[0]
                .decoded_bytes,
            kUnknownSize);
  EXPECT_THAT(entry("float8", {}),
              Fails(StatusCode::kUnimplemented,
                    "manifest: tensor 't': dtype 'float8' is not a dtype of version 0.1.0"));
  EXPECT_EQ(entry("float32", {"data_endianness", Text("big")}).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_OK(entry("uint8", {"data_endianness", Text("big")}));
  EXPECT_THAT(Why(entry("float32", {"data_endianness", Text("middle")})),
              HasSubstr("data_endianness 'middle' is neither 'little' nor 'big'"));
  EXPECT_THAT(Why(entry("float32", {"x", Uint(1), "x", Uint(1)})),
              HasSubstr("field 'x' occurs twice"));
  EXPECT_EQ(Why(Decode(Array(Map("name", Text("t"))), SpecVersion::k0_1)),
            "manifest: tensor 't': field 'offset' is missing");
  EXPECT_EQ(Why(Decode(Array(Map({})), SpecVersion::k0_1)),
            "manifest: entry 0: field 'name' is missing");
}

}  // namespace
}  // namespace zt
