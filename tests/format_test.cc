// zt.format: the container's constants, CBOR values, manifests of every version, the corpus.
#include "format_testing.h"
#include "testing.h"

import zt.compress;
import zt.core;
import zt.format;

namespace zt {
namespace {

using namespace testing_format;

// As a reader does, without any byte of the blobs.
StatusOr<Manifest> ReadManifest(std::span<const std::byte> file) {
  const auto head = file.first(std::min<std::size_t>(8, file.size()));
  const auto tail = file.last(std::min<std::size_t>(16, file.size()));
  auto trailer = LocateManifest(head, tail, file.size());
  if (!trailer.ok()) return trailer.status();
  auto manifest = DecodeManifest(file.subspan(trailer->manifest_offset, trailer->manifest_bytes),
                                 trailer->family);
  if (!manifest.ok()) return manifest.status();
  if (auto status = CheckLayout(*manifest, trailer->manifest_offset); !status.ok()) return status;
  return manifest;
}

StatusOr<Manifest> Decode(std::string_view cbor, SpecVersion family = SpecVersion::k1_2) {
  return DecodeManifest(ToBytes(cbor), family);
}

// ---- constants: never change these, files in the world depend on them ---------------------------

TEST(Constants, AreTheSpecs) {
  EXPECT_EQ(kMaxManifestBytes, 1073741824u);
  EXPECT_EQ(kMaxNesting, 64u);
  EXPECT_EQ(kMaxRank, 64u);
  for (const SpecVersion v :
       {SpecVersion::k0_1, SpecVersion::k1_0, SpecVersion::k1_1, SpecVersion::k1_2}) {
    EXPECT_EQ(Traits(v).version, v);
    EXPECT_EQ(Traits(v).alignment, 64u);
    EXPECT_EQ(Traits(v).header_magic, v == SpecVersion::k0_1 ? "ZTEN0001" : "ZTEN1000");
    EXPECT_EQ(Traits(v).writable, v != SpecVersion::k1_0);
  }
  EXPECT_EQ(Traits(SpecVersion::k0_1).footer_magic, "");
  EXPECT_EQ(Traits(SpecVersion::k1_0).footer_magic, "");
  EXPECT_EQ(Traits(SpecVersion::k1_1).footer_magic, "ZTEN1000");
  EXPECT_EQ(Traits(SpecVersion::k1_2).footer_magic, "ZTEN1000");
  EXPECT_EQ(Traits(SpecVersion::k1_1).text, "1.1.0");
  EXPECT_EQ(Traits(SpecVersion::k1_2).text, "1.2.0");
}

TEST(Constants, FooterBytes) {
  EXPECT_EQ(ToHex(EncodeFooter(0, Bytes(0x0102), SpecVersion::k1_2)),
            "02010000000000005a54454e31303030");
  EXPECT_EQ(ToHex(EncodeFooter(0, Bytes(1), SpecVersion::k0_1)), "0100000000000000");
}

TEST(Constants, VersionNames) {
  EXPECT_EQ(ParseSpecVersion("1.2"), SpecVersion::k1_2);
  EXPECT_EQ(ParseSpecVersion("1.2.0"), SpecVersion::k1_2);
  EXPECT_EQ(ParseSpecVersion("1.1"), SpecVersion::k1_1);
  EXPECT_EQ(ParseSpecVersion("0.1"), SpecVersion::k0_1);
  EXPECT_EQ(ParseSpecVersion("2.0"), SpecVersion::k2_0);
  EXPECT_EQ(ParseSpecVersion("3.0"), std::nullopt);
  EXPECT_EQ(ParseSpecVersion(""), std::nullopt);
}

// The smallest files of §7 of 0.1.0 and of 1.2, byte for byte.
TEST(Golden, EmptyFiles) {
  const auto old = Must(EncodeManifest({}, SpecVersion::k0_1));
  EXPECT_EQ("ZTEN0001" + ToText(old) + ToText(EncodeFooter(0, old, SpecVersion::k0_1)),
            ReadFile(DataPath("zt/w010_empty.zt")));
  const auto now = Must(EncodeManifest({}, SpecVersion::k1_2));
  EXPECT_EQ(ToHex(now), "a2676f626a65637473a06776657273696f6e65312e322e30");
  const auto next = Must(EncodeManifest({}, SpecVersion::k2_0));
  const ContainerTraits& traits = Traits(SpecVersion::k2_0);
  EXPECT_EQ(std::string(traits.header_magic) + std::string(traits.placement - 8, '\0') +
                ToText(next) + ToText(EncodeFooter(traits.placement, next, SpecVersion::k2_0)),
            ReadFile(DataPath("zt2/s7-3.zt")));
}

Manifest SmallManifest() {
  Manifest manifest;
  manifest.attributes = {{"license", "MIT"}};
  manifest.objects = {
      {"w",
       "dense",
       {2, 3},
       {{"b", 1}, {"a", -2}},
       {{"data", {DType::kF32, ""}, 64, 24, Encoding::kRaw, 24, ""}}},
      {"a",
       "dense",
       {300},
       {},
       {{"data", {DType::kU8, "f8_e4m3fn"}, 128, 13, Encoding::kZstd, 300, "crc32c:0x0000ABCD"}}}};
  return manifest;
}

TEST(Golden, ManifestBytes) {
  const auto bytes = Must(EncodeManifest(SmallManifest(), SpecVersion::k1_2));
  const std::string u300 = std::string("\x19\x01\x2c", 3);
  const std::string expected = Map(
      "objects",
      Map("a",
          Map("shape", Array(u300), "format", Text("dense"), "components",
              Map("data", Map("type", Text("f8_e4m3fn"), "dtype", Text("u8"), "digest",
                              Text("crc32c:0x0000ABCD"), "length", Uint(13), "offset", Uint(128),
                              "encoding", Text("zstd"), "uncompressed_length", u300))),
          "w",
          Map("shape", Array(Uint(2), Uint(3)), "format", Text("dense"), "attributes",
              Map("a", "\x21", "b", Uint(1)), "components",
              Map("data", Map("dtype", Text("f32"), "length", Uint(24), "offset", Uint(64))))),
      "version", Text("1.2.0"), "attributes", Map("license", Text("MIT")));
  EXPECT_EQ(ToHex(bytes), ToHex(ToBytes(expected)));
}

TEST(Golden, Manifest11SpellsTheTypeAsDtype) {
  const auto bytes = Must(EncodeManifest(SmallManifest(), SpecVersion::k1_1));
  const std::string text = ToText(bytes);
  EXPECT_THAT(text, HasSubstr(Text("dtype") + Text("f8_e4m3") + Text("digest")));
  EXPECT_THAT(text, HasSubstr(Text("version") + Text("1.1.0")));
  EXPECT_EQ(text.find("uncompressed_length"), std::string::npos);
  const auto back = Must(DecodeManifest(bytes, SpecVersion::k1_2));
  EXPECT_EQ(back.objects[0].components[0].element, (ElementType{DType::kU8, "f8_e4m3fn"}));
  EXPECT_EQ(back.objects[0].components[0].decoded_bytes, 300u);  // from the shape
}

TEST(Golden, Index01) {
  Manifest manifest;
  manifest.objects = {
      {"w",
       "dense",
       {2},
       {{"note", "x"}},
       {{"data", {DType::kBF16, ""}, 64, 4, Encoding::kRaw, 4, "crc32c:0x00000001", true}}}};
  const auto bytes = Must(EncodeManifest(manifest, SpecVersion::k0_1));
  const std::string expected = Array(
      Map("name", Text("w"), "note", Text("x"), "size", Uint(4), "dtype", Text("bfloat16"), "shape",
          Array(Uint(2)), "layout", Text("dense"), "offset", Uint(64), "checksum",
          Text("crc32c:0x00000001"), "encoding", Text("raw"), "data_endianness", Text("big")));
  EXPECT_EQ(ToHex(bytes), ToHex(ToBytes(expected)));
}

// ---- CBOR values --------------------------------------------------------------------------------

TEST(Cbor, ShortestForms) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Value, std::string>> cases = {
      {Value(0), "00"},
      {Value(23), "17"},
      {Value(24), "1818"},
      {Value(256), "190100"},
      {Value(65536), "1a00010000"},
      {Value(std::uint64_t{1} << 32), "1b0000000100000000"},
      {Value(std::numeric_limits<std::uint64_t>::max()), "1bffffffffffffffff"},
      {Value(-1), "20"},
      {Value(-257), "390100"},
      {Value(std::numeric_limits<std::int64_t>::min()), "3b7fffffffffffffff"},
      {Value(true), "f5"},
      {Value(false), "f4"},
      {Value(), "f6"},
      {Value(0.0), "f90000"},
      {Value(-0.0), "f98000"},
      {Value(1.5), "f93e00"},
      {Value(65504.0), "f97bff"},
      {Value(65536.0), "fa47800000"},
      {Value(5.960464477539063e-08), "f90001"},
      {Value(2.9802322387695312e-08), "fa33000000"},
      {Value(6.097555160522461e-05), "f903ff"},
      {Value(100000.0), "fa47c35000"},
      {Value(1.1), "fb3ff199999999999a"},
      {Value(1e300), "fb7e37e43c8800759c"},
      {Value(3.4028235677973366e38), "fb47effffff0000000"},
      {Value(inf), "f97c00"},
      {Value(-inf), "f9fc00"},
      {Value("ü"), "62c3bc"},
      {Value(Value::Bytes{std::byte{1}}), "4101"},
      {Value(Value::Array{1, "a"}), "82016161"},
      {Value(Value::Map{{"aa", 1}, {"b", 2}}), "a261620262616101"}};
  for (const auto& [value, hex] : cases) {
    const auto bytes = Must(EncodeCbor(value));
    EXPECT_EQ(ToHex(bytes), hex);
    if (value.AsMap() != nullptr) continue;
    const auto back = Must(DecodeCbor(bytes));
    EXPECT_EQ(back, value) << hex;
  }
  EXPECT_EQ(ToHex(*EncodeCbor(Value(std::nan("7")))), "f97e00");
  EXPECT_TRUE(std::isnan(*DecodeCbor(Hex("fb7ff8000000000001"))->AsDouble()));
}

TEST(Cbor, IndefiniteAndLongFormsAreRead) {
  EXPECT_EQ(*DecodeCbor(Hex("9f 01 9f ff ff")), Value(Value::Array{1, Value::Array{}}));
  EXPECT_EQ(*DecodeCbor(Hex("bf 61 61 01 ff")), Value(Value::Map{{"a", 1}}));
  EXPECT_EQ(*DecodeCbor(Hex("7f 61 61 60 62 62 63 ff")), Value("abc"));
  EXPECT_EQ(*DecodeCbor(Hex("5f 41 01 41 02 ff")), Value(Value::Bytes{std::byte{1}, std::byte{2}}));
  EXPECT_EQ(*DecodeCbor(Hex("1b 00 00 00 00 00 00 00 01")), Value(1));
}

TEST(Cbor, RefusesWhatItMust) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "the CBOR ends early at byte 0"},
      {"82 01", "the CBOR ends early at byte 2"},
      {"ff", "a CBOR break is out of place at byte 0"},
      {"82 01 ff", "a CBOR break is out of place at byte 2"},
      {"bf 61 61 ff", "'a': a CBOR break is out of place at byte 3"},
      {"1c", "the CBOR is malformed at byte 0"},
      {"fc", "the CBOR is malformed at byte 0"},
      {"f8 18", "the CBOR is malformed at byte 0"},
      {"01 02", "1 bytes follow the CBOR value"},
      {"61 ff", "text is not valid UTF-8"},
      {"a1 61 ff 01", "a map key is not valid UTF-8"},
      {"a1 01 02", "a map key is an integer, only text can be a key"},
      {"a2 61 61 01 61 61 02", "key 'a' occurs twice"},
      {"c1 01", "a value with CBOR tag 1 cannot be kept"},
      {"f7", "the CBOR value 'undefined' cannot be kept"},
      {"e0", "the CBOR simple value 0 cannot be kept"},
      {"f3", "the CBOR simple value 19 cannot be kept"},
      {"81 f8 63", "the CBOR simple value 99 cannot be kept"},
      {"f8 1f", "the CBOR is malformed at byte 0"},
      {"81 f8", "the CBOR is malformed at byte 1"},
      {"3b ff ff ff ff ff ff ff ff", "an integer is below -2^63"},
      {"7f 41 61 ff", "a CBOR string's chunk is malformed at byte 1"},
      {"7f 7f 61 61 ff ff", "a CBOR string's chunk is malformed at byte 1"},
      {"7b ff ff ff ff ff ff ff ff 61", "the CBOR ends early at byte 0"},
      {"5a ff ff ff ff 61", "the CBOR ends early at byte 0"},
      {"9b ff ff ff ff ff ff ff ff 01", "the CBOR ends early at byte 10"},
      {"bb 10 00 00 00 00 00 00 00", "the CBOR ends early at byte 9"}};
  for (const auto& [hex, message] : cases) {
    const auto value = DecodeCbor(Hex(hex));
    ASSERT_FALSE(value.ok()) << hex;
    EXPECT_EQ(Why(value), message) << hex;
  }
}

TEST(Cbor, NestingEndsAt64) {
  const auto nested = [](std::size_t depth) {
    return DecodeCbor(ToBytes(std::string(depth, '\x81') + '\x01'));
  };
  EXPECT_OK(nested(64));
  EXPECT_EQ(Why(nested(65)), "the CBOR nests deeper than 64 levels");
  EXPECT_FALSE(nested(1000000).ok());
  Value value;
  for (int i = 0; i < 64; ++i) value = Value(Value::Array{value});
  EXPECT_OK(EncodeCbor(value));
  EXPECT_FALSE(EncodeCbor(Value(Value::Array{value})).ok());
}

TEST(Cbor, EncodingRefusesKeysTwiceAndBadText) {
  EXPECT_EQ(Why(EncodeCbor(Value(Value::Map{{"k", 1}, {"k", 2}}))), "key 'k' occurs twice");
  EXPECT_EQ(Why(EncodeCbor(Value("\xff"))), "text is not valid UTF-8");
  EXPECT_EQ(Why(EncodeCbor(Value(Value::Map{{"\xff", 1}}))), "a map key is not valid UTF-8");
}

// Heads that claim more than there is must not be believed when reserving.
TEST(Cbor, HostileCountsDoNotAllocate) {
  std::string nested;
  for (int i = 0; i < 60; ++i) nested += std::string("\x9b\x0f\xff\xff\xff\xff\xff\xff\xff", 9);
  EXPECT_FALSE(DecodeCbor(ToBytes(nested)).ok());
  const std::string huge = std::string("\xbb\x0f\xff\xff\xff\xff\xff\xff\xff", 9);
  EXPECT_FALSE(
      Decode(Map("version", Text("1.2.0")).substr(1).insert(0, "\xa2") + Text("objects") + huge)
          .ok());
  EXPECT_FALSE(Decode("\x9b\x0f\xff\xff\xff\xff\xff\xff\xff", SpecVersion::k0_1).ok());
}

// ---- the corpus ---------------------------------------------------------------------------------

TEST(Corpus, ErrorsNameTheTensorAndTheRule) {
  const std::map<std::string, std::string> expected = {
      {"align_32.zt", "tensor 't': offset 96 is not a multiple of 64"},
      {"cbor_float_offset.zt",
       "manifest: tensor 't': component 'data': 'offset' is a float, an unsigned integer is "
       "needed"},
      {"cbor_key_bytes.zt", "manifest: a map key is a byte string, only text can be a key"},
      {"cbor_objects_array.zt", "manifest: 'objects' is an array, a map is needed"},
      {"cbor_trailing_bytes.zt", "manifest: 3 bytes follow the CBOR value"},
      {"csr_i64.zt", "tensor 's': component 'indices': it is of dtype i64, indices are u64"},
      {"csr_missing_indptr.zt", "tensor 's': sparse_csr needs a component 'indptr'"},
      {"digest_crc_0x_nonhex.zt",
       "manifest: tensor 't': component 'data': digest 'crc32c:0xZZ' holds no crc32c value in "
       "hexadecimal"},
      {"dtype_f8_e5m2.zt",
       "manifest: tensor 't': component 'data': dtype 'f8_e5m2' is not a dtype of version 1.2.0"},
      {"dup_component_role.zt", "manifest: tensor 't': component 'data' occurs twice"},
      {"dup_field.zt", "manifest: tensor 't': component 'data': field 'offset' occurs twice"},
      {"encoding_lz4.zt",
       "manifest: tensor 't': component 'data': encoding 'lz4' is neither 'raw' nor 'zstd'"},
      {"format_missing.zt", "manifest: tensor 't': field 'format' is missing"},
      {"header_magic_bad.zt",
       "neither ZTEN1000 nor ZTEN0001 nor the magic of 2.0 at the start: this is not a .zt file"},
      {"in_magic_offset0.zt", "tensor 'a': blob at 0 lies in the header"},
      {"msize_2GB.zt", "the manifest size 2147483648 exceeds 1 GiB"},
      {"objects_missing.zt", "manifest: field 'objects' is missing"},
      {"offset_plus_length_overflow.zt",
       "tensor 'a': blob at 18446744073709551552 of 64 bytes reaches past the data, which ends at "
       "112"},
      {"overlap_partial.zt",
       "tensor 'b': blob at 64 overlaps that of tensor 'a', which ends at 112"},
      {"trailing_after_footer.zt",
       "no ZTEN1000 at the end: the file is truncated, or something follows it"},
      {"version_9.9.zt",
       "manifest: the file is of version 9.9.9; in a container of 1.x, versions up to 1.x can be "
       "read"},
      {"version_int.zt", "manifest: 'version' is an integer, text is needed"},
      {"zstd_no_uncompressed_length.zt",
       "manifest: tensor 't': component 'data' is zstd and has no 'uncompressed_length'"},
      {"zstd_ul_33GB.zt",
       "tensor 't': its decoded size 35433480192 is more than 61 bytes of zstd can yield"}};
  for (const auto& [name, message] : expected) {
    EXPECT_EQ(Why(ReadManifest(ReadBytes(DataPath("corpus/" + name)))), message) << name;
  }
}

// ---- files of the reference writers -------------------------------------------------------------

TEST(Reference, Dialect10) {
  const auto manifest = Must(ReadManifest(ReadBytes(DataPath("zt/w101.zt"))));
  EXPECT_EQ(manifest.version, SpecVersion::k1_0);
  EXPECT_EQ(manifest.version_text, "1.0");
  ASSERT_EQ(manifest.objects.size(), 3u);
  const StoredObject& csr = manifest.objects[0];
  EXPECT_EQ(csr.name, "csr");
  ASSERT_EQ(csr.components.size(), 3u);
  EXPECT_EQ(csr.components[0].role, "indices");
  EXPECT_EQ(csr.components[0].element.dtype, DType::kU64);
  EXPECT_EQ(csr.components[2].element.dtype, DType::kF32);
  EXPECT_EQ(manifest.objects[1].components[0].digest, "crc32c:0x0F75ED6C");
  EXPECT_EQ(manifest.objects[2].components[0].encoding, Encoding::kZstd);
  EXPECT_EQ(manifest.objects[2].components[0].decoded_bytes, 48u);
}

TEST(Reference, Old01Details) {
  const auto manifest = Must(ReadManifest(ReadBytes(DataPath("zt/w010.zt"))));
  EXPECT_EQ(manifest.version_text, "");
  for (const StoredObject& object : manifest.objects) {
    EXPECT_EQ(object.components[0].big_endian, object.name == "raw_be") << object.name;
    if (object.name == "custom") {
      EXPECT_EQ(Value(object.attributes), Value(Value::Map{{"n", 7}, {"note", "custom"}}));
    } else {
      EXPECT_TRUE(object.attributes.empty());
    }
  }
  const auto sparse = Must(ReadManifest(ReadBytes(DataPath("zt/w010_sparse.zt"))));
  EXPECT_EQ(sparse.objects[0].format, "sparsecoo");
  EXPECT_EQ(sparse.objects[0].shape, (Shape{5, 4}));
  EXPECT_EQ(sparse.objects[0].components[0].decoded_bytes, 80u);
  const auto custom = Must(ReadManifest(ReadBytes(DataPath("corpus/legacy_custom.zt"))));
  EXPECT_EQ(Value(custom.objects[0].attributes),
            Value(Value::Map{{"sparse_format", "csr"}, {"x", Value::Array{1}}}));
}

// ---- shards -------------------------------------------------------------------------------------

TEST(Shards, AreThoseOfAVersionThatHasThem) {
  const StoredShard good = {
      .name = "00001-of-00002", .bytes = 8, .digest = "xxh3:0123456789abcdef"};
  ManifestEncoder older(SpecVersion::k1_2);
  EXPECT_THAT(older.AddShard(good),
              Fails(StatusCode::kInvalidArgument, HasSubstr("version 1.2.0 has no shards")));
  ManifestEncoder encoder(SpecVersion::k2_0);
  for (const std::string& name : {std::string(), std::string(".a"), std::string("a/b"),
                                  std::string("\xc3\xa4"), std::string(65, 'a')}) {
    StoredShard bad = good;
    bad.name = name;
    EXPECT_EQ(encoder.AddShard(bad).code(), StatusCode::kInvalidArgument) << name;
  }
  for (const std::string& digest : {"", "xxh3:0123456789ABCDEF", "crc32c:0x00000000"}) {
    StoredShard bad = good;
    bad.digest = digest;
    EXPECT_FALSE(encoder.AddShard(bad).ok()) << digest;
  }
  StoredComponent component;
  component.role = "data";
  component.element = {DType::kU8, ""};
  component.offset = 4096;
  component.length = component.decoded_bytes = 4;
  component.shard = 1;
  StoredObject object;
  object.name = "a";
  object.shape = {4};
  object.components.push_back(component);
  EXPECT_EQ(encoder.Add(object).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(encoder.AddShard(good));
  ASSERT_OK(encoder.Add(object));
  const auto once = Must(encoder.Finish({}));
  // {"shards": {"00001-of-00002": {"size": 8, "digest": ...}}, "objects": ...}: keys by length.
  EXPECT_EQ(ToHex(once.Joined()).substr(0, 80),
            "a266736861726473a16e30303030312d6f662d3030303032a26473697a6508666469676573747578");
  ASSERT_OK(encoder.AddShard(good));
  EXPECT_FALSE(encoder.Finish({}).ok());  // a name twice
}

}  // namespace
}  // namespace zt
