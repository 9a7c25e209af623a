// zt.format: random manifests through every version, damaged ones, layouts, what a
// version can say, speed.
#include "format_testing.h"

import zt.compress;
import zt.core;
import zt.format;

namespace zt {
namespace {

using namespace testing_format;

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  std::uint64_t Below(std::uint64_t limit) { return engine_() % limit; }
  std::string Name() {
    static const char* const kParts[] = {"a", "layer", ".weight", "层", "/ü", "\"", "\\", "0"};
    std::string name = std::to_string(engine_());
    for (std::uint64_t i = Below(40); i > 0; --i) name += kParts[Below(8)];
    return name;
  }
  Value Attribute(int depth) {
    switch (Below(depth > 0 ? 9 : 7)) {
      case 0:
        return Value();
      case 1:
        return Value(Below(2) == 0);
      case 2:
        return Value(engine_() >> Below(64));
      case 3:
        return Value(-1 - static_cast<std::int64_t>(engine_() >> (1 + Below(62))));
      case 4:
        return Value(static_cast<double>(engine_()) / 7.0 * (Below(2) ? 1 : 1e-30));
      case 5:
        return Value(Name());
      case 6:
        return Value(ToBytes(Name()));
      case 7: {
        Value::Array array;
        for (std::uint64_t i = Below(5); i > 0; --i) array.push_back(Attribute(depth - 1));
        return Value(std::move(array));
      }
      default:
        return Value(Attributes(depth - 1, Below(4)));
    }
  }
  // Sorted as the encoder sorts, so that equality after a round trip is plain equality.
  Value::Map Attributes(int depth, std::uint64_t count) {
    Value::Map map;
    for (; count > 0; --count) map.emplace_back(Name(), Attribute(depth));
    std::sort(map.begin(), map.end(), [](const Value::Member& a, const Value::Member& b) {
      return a.first.size() != b.first.size() ? a.first.size() < b.first.size() : a.first < b.first;
    });
    return map;
  }
  StoredComponent Component(std::string role, std::uint64_t* offset) {
    static const char* const kTypes[] = {"f64",  "f32",     "bf16",      "i8",       "u64",
                                         "bool", "f8_e5m2", "complex64", "f8_e4m3fn"};
    StoredComponent component;
    component.role = std::move(role);
    component.element = *ParseElementType(kTypes[Below(9)]);
    component.offset = *offset;
    component.length = 1 + Below(1000);
    *offset += (component.length + 63) / 64 * 64;
    component.decoded_bytes = component.length;
    if (Below(3) == 0) {
      component.encoding = Encoding::kZstd;
      component.decoded_bytes = Below(10000);
    }
    if (Below(2) == 0) component.digest = "crc32c:0x00ABCDEF";
    return component;
  }
  Manifest MakeManifest() {
    Manifest manifest;
    manifest.version_text = "1.2.0";
    manifest.attributes = Attributes(3, Below(4));
    std::uint64_t offset = 64;
    for (std::uint64_t i = Below(30); i > 0; --i) {
      StoredObject object;
      object.name = Name();
      object.format = Below(2) ? "dense" : "mine/" + Name();
      for (std::uint64_t d = Below(5); d > 0; --d) object.shape.push_back(Below(100000));
      object.attributes = Attributes(2, Below(3));
      for (std::uint64_t c = 0; c <= Below(3); ++c) {
        object.components.push_back(Component(std::string(c + 1, 'r'), &offset));
      }
      manifest.objects.push_back(std::move(object));
    }
    std::sort(manifest.objects.begin(), manifest.objects.end(),
              [](const StoredObject& a, const StoredObject& b) {
                return a.name.size() != b.name.size() ? a.name.size() < b.name.size()
                                                      : a.name < b.name;
              });
    return manifest;
  }
  void Shuffle(Manifest& manifest) {
    std::shuffle(manifest.objects.begin(), manifest.objects.end(), engine_);
    for (StoredObject& object : manifest.objects) {
      std::shuffle(object.components.begin(), object.components.end(), engine_);
      std::shuffle(object.attributes.begin(), object.attributes.end(), engine_);
    }
    std::shuffle(manifest.attributes.begin(), manifest.attributes.end(), engine_);
  }

 private:
  std::mt19937_64 engine_;
};

void ExpectEqual(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.version, b.version);
  EXPECT_EQ(a.version_text, b.version_text);
  EXPECT_EQ(Value(a.attributes), Value(b.attributes));
  ASSERT_EQ(a.objects.size(), b.objects.size());
  for (std::size_t i = 0; i < a.objects.size(); ++i) {
    const StoredObject &x = a.objects[i], &y = b.objects[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.format, y.format);
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(Value(x.attributes), Value(y.attributes));
    ASSERT_EQ(x.components.size(), y.components.size());
    for (std::size_t j = 0; j < x.components.size(); ++j) {
      const StoredComponent &c = x.components[j], &d = y.components[j];
      EXPECT_EQ(c.role, d.role);
      EXPECT_EQ(c.element, d.element);
      EXPECT_EQ(c.offset, d.offset);
      EXPECT_EQ(c.length, d.length);
      EXPECT_EQ(c.encoding, d.encoding);
      EXPECT_EQ(c.decoded_bytes, d.decoded_bytes);
      EXPECT_EQ(c.digest, d.digest);
      EXPECT_EQ(c.big_endian, d.big_endian);
    }
  }
}

// With everything in one order, and without the text of the version.
Manifest Ordered(Manifest manifest) {
  const auto by = [](auto& items, auto key) {
    std::sort(items.begin(), items.end(),
              [key](const auto& a, const auto& b) { return a.*key < b.*key; });
  };
  manifest.version_text.clear();
  by(manifest.objects, &StoredObject::name);
  by(manifest.attributes, &Value::Member::first);
  for (StoredObject& object : manifest.objects) {
    by(object.components, &StoredComponent::role);
    by(object.attributes, &Value::Member::first);
  }
  return manifest;
}

TEST(RoundTrip, RandomManifests) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Manifest manifest = random.MakeManifest();
    const auto bytes = EncodeManifest(manifest, SpecVersion::k1_2);
    ASSERT_OK(bytes);
    const auto back = Must(DecodeManifest(*bytes, SpecVersion::k1_2));
    ExpectEqual(manifest, back);
    // The order in which things are given does not show in the bytes.
    random.Shuffle(manifest);
    EXPECT_EQ(*EncodeManifest(manifest, SpecVersion::k1_2), *bytes);
    EXPECT_EQ(*EncodeManifest(back, SpecVersion::k1_2), *bytes);
  }
}

TEST(RoundTrip, ReferenceFilesThroughTheirOwnVersion) {
  const std::pair<const char*, SpecVersion> files[] = {{"zt/w010.zt", SpecVersion::k0_1},
                                                       {"zt/w010_sparse.zt", SpecVersion::k0_1},
                                                       {"zt/w111.zt", SpecVersion::k1_1},
                                                       {"zt/w123.zt", SpecVersion::k1_2}};
  for (const auto& [path, version] : files) {
    const Bytes file = ReadBytes(DataPath(path));
    const auto trailer =
        LocateManifest(std::span(file).first(8), std::span(file).last(16), file.size());
    ASSERT_OK(trailer);
    const auto first =
        DecodeManifest(std::span(file).subspan(trailer->manifest_offset, trailer->manifest_bytes),
                       trailer->family);
    ASSERT_OK(first);
    const auto bytes = Must(EncodeManifest(*first, version));
    const auto second = Must(DecodeManifest(bytes, trailer->family));
    EXPECT_EQ(*EncodeManifest(second, version), bytes) << path;
    // All that the reference said is there again; what differs is the order, and the
    // version's last number.
    ExpectEqual(Ordered(*first), Ordered(second));
  }
}

// ---- damage: an error or a manifest, never a crash ----------------------------------------------

std::vector<std::pair<Bytes, SpecVersion>> SampleManifests() {
  std::vector<std::pair<Bytes, SpecVersion>> samples;
  for (const char* path : {"zt/w010.zt", "zt/w101.zt", "zt/w111.zt", "zt/w123.zt",
                           "corpus/cbor_indefinite.zt", "corpus/unknown_fields_everywhere.zt"}) {
    const Bytes file = ReadBytes(DataPath(path));
    const auto trailer =
        LocateManifest(std::span(file).first(8), std::span(file).last(16), file.size());
    const auto bytes = std::span(file).subspan(trailer->manifest_offset, trailer->manifest_bytes);
    samples.emplace_back(Bytes(bytes.begin(), bytes.end()), trailer->family);
  }
  return samples;
}

TEST(Damage, TruncatedManifestsAreRefused) {
  for (const auto& [bytes, family] : SampleManifests()) {
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // A copy of its own, so that a read beyond the end is seen.
      const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(DecodeManifest(part, family).ok()) << size;
    }
  }
}

TEST(Damage, TruncatedFilesAreRefused) {
  for (const char* path : {"zt/w111.zt", "zt/w123.zt"}) {
    const Bytes file = ReadBytes(DataPath(path));
    for (std::size_t size = 0; size < file.size(); ++size) {
      const auto part = std::span(file).first(size);
      const auto trailer = LocateManifest(part.first(std::min<std::size_t>(8, size)),
                                          part.last(std::min<std::size_t>(16, size)), size);
      if (!trailer.ok()) continue;
      EXPECT_FALSE(DecodeManifest(part.subspan(trailer->manifest_offset, trailer->manifest_bytes),
                                  trailer->family)
                       .ok())
          << path << " " << size;
    }
  }
}

TEST(Damage, FlippedBytesNeverCrash) {
  std::size_t accepted = 0, refused = 0;
  for (const auto& [bytes, family] : SampleManifests()) {
    Bytes copy = bytes;
    for (std::size_t at = 0; at < copy.size(); ++at) {
      for (const unsigned mask : {0x01u, 0x20u, 0x80u, 0xffu}) {
        copy[at] ^= static_cast<std::byte>(mask);
        const auto manifest = DecodeManifest(copy, family);
        if (manifest.ok()) {
          (void)CheckLayout(*manifest, 100000);
          (void)EncodeManifest(*manifest, SpecVersion::k1_2);
          ++accepted;
        } else {
          EXPECT_FALSE(Why(manifest).empty());
          ++refused;
        }
        copy[at] ^= static_cast<std::byte>(mask);
      }
    }
  }
  EXPECT_GT(accepted, 0u);
  EXPECT_GT(refused, accepted);
}

// ---- layout -------------------------------------------------------------------------------------

StoredObject Blob(std::string name, std::uint64_t offset, std::uint64_t length) {
  return {std::move(name),
          "dense",
          {length},
          {},
          {{"data", {DType::kU8, ""}, offset, length, Encoding::kRaw, length, ""}}};
}

TEST(CheckLayout, BlobsAreDisjointOrIdentical) {
  Manifest manifest;
  manifest.objects = {Blob("a", 64, 100), Blob("b", 192, 10), Blob("tied", 64, 100),
                      Blob("empty", 64, 0), Blob("empty end", 256, 0)};
  EXPECT_OK(CheckLayout(manifest, 256));
  EXPECT_EQ(Why(CheckLayout(manifest, 255)),
            "tensor 'empty end': blob at 256 of 0 bytes reaches past the data, which ends at 255");
  manifest.objects.push_back(Blob("inside", 128, 10));
  EXPECT_EQ(Why(CheckLayout(manifest, 256)),
            "tensor 'inside': blob at 128 overlaps that of tensor 'a', which ends at 164");
  manifest.objects.back() = Blob("longer", 64, 101);
  EXPECT_THAT(Why(CheckLayout(manifest, 256)), HasSubstr("overlaps"));
}

TEST(CheckLayout, ZstdSizes) {
  Manifest manifest;
  manifest.objects = {Blob("z", 64, 4 * 32768)};
  StoredComponent& data = manifest.objects[0].components[0];
  data.encoding = Encoding::kZstd;
  data.length = 4;
  EXPECT_OK(CheckLayout(manifest, 128));
  data.length = 3;
  EXPECT_EQ(Why(CheckLayout(manifest, 128)),
            "tensor 'z': its decoded size 131072 is more than 3 bytes of zstd can yield");
  data.length = 0;
  EXPECT_EQ(Why(CheckLayout(manifest, 128)), "tensor 'z': the zstd stream is empty");
}

TEST(CheckLayout, IndexDtypesOfTheVersion) {
  Manifest manifest;
  const auto component = [](std::string role, DType dtype, std::uint64_t offset,
                            std::uint64_t length) {
    return StoredComponent{std::move(role), {dtype, ""}, offset, length,
                           Encoding::kRaw,  length,      ""};
  };
  manifest.objects = {
      {"s",
       "sparse_csr",
       {2, 3},
       {},
       {component("values", DType::kF32, 64, 12), component("indices", DType::kI32, 128, 12),
        component("indptr", DType::kU16, 192, 6)}}};
  EXPECT_EQ(Why(CheckLayout(manifest, 256)),
            "tensor 's': component 'indices': it is of dtype i32, indices are u64");
  manifest.version = SpecVersion::k1_1;
  EXPECT_OK(CheckLayout(manifest, 256));
  manifest.objects[0].components[1].element.dtype = DType::kF32;
  EXPECT_EQ(Why(CheckLayout(manifest, 256)),
            "tensor 's': component 'indices': it is of dtype f32, indices are integers");
}

TEST(CheckLayout, GroupsAndOtherFormats) {
  Manifest manifest;
  const auto component = [](std::string role, DType dtype, std::uint64_t length) {
    return StoredComponent{std::move(role), {dtype, ""}, 64, length, Encoding::kRaw, length, ""};
  };
  manifest.objects = {
      {"q", "quantized_group", {8, 8}, {}, {component("packed_weight", DType::kI32, 32)}}};
  EXPECT_EQ(Why(CheckLayout(manifest, 128)),
            "tensor 'q': quantized_group needs a component 'scales'");
  manifest.objects[0].components.push_back(component("scales", DType::kF16, 32));
  EXPECT_OK(CheckLayout(manifest, 128));
  manifest.version = SpecVersion::k1_1;
  EXPECT_EQ(Why(CheckLayout(manifest, 128)),
            "tensor 'q': component 'zeros' is missing, which version 1.1.0 requires");
  manifest.objects[0].components.push_back(component("zeros", DType::kI32, 32));
  manifest.objects[0].components.push_back(component("g_idx", DType::kI32, 32));
  EXPECT_OK(CheckLayout(manifest, 128));
  for (StoredComponent& each : manifest.objects[0].components)
    each.length = each.decoded_bytes = 30;
  EXPECT_EQ(
      Why(CheckLayout(manifest, 128)),
      "tensor 'q': component 'packed_weight' has 30 bytes, not a whole number of i32 elements");
  manifest.objects[0].format = "anything/1";
  EXPECT_THAT(Why(CheckLayout(manifest, 128)), HasSubstr("not a whole number of i32 elements"));
}

// ---- what a version can say ---------------------------------------------------------------------

TEST(Expressible, TypesAndFormats) {
  const auto check = [](std::string_view type, SpecVersion version) {
    return CheckExpressible(*DenseObject("t", {2}, *ParseElementType(type)), Encoding::kRaw, "",
                            version);
  };
  for (const char* type : {"f32", "bool"}) {
    for (const SpecVersion v : {SpecVersion::k0_1, SpecVersion::k1_1, SpecVersion::k1_2}) {
      EXPECT_OK(check(type, v));
    }
  }
  for (const char* type : {"f8_e4m3fn", "f8_e5m2", "complex64", "complex128"}) {
    EXPECT_OK(check(type, SpecVersion::k1_2));
    EXPECT_OK(check(type, SpecVersion::k1_1));
    EXPECT_FALSE(check(type, SpecVersion::k0_1).ok());
  }
  for (const char* type : {"f8_e4m3fnuz", "f8_e8m0", "f4_e2m1"}) {
    EXPECT_OK(check(type, SpecVersion::k1_2));
    EXPECT_EQ(Why(check(type, SpecVersion::k1_1)),
              "version 1.1.0 has no type '" + std::string(type) + "'");
  }
  EXPECT_THAT(check("f32", SpecVersion::k1_0),
              Fails(StatusCode::kInvalidArgument, "version 1.0 can be read, not written"));

  Object csr{"m",
             "sparse_csr",
             {4, 5},
             {},
             {{"values", {DType::kF32, ""}, 12},
              {"indices", {DType::kI32, ""}, 12},
              {"indptr", {DType::kI32, ""}, 20}}};
  EXPECT_OK(CheckExpressible(csr, Encoding::kRaw, "", SpecVersion::k1_1));
  EXPECT_EQ(Why(CheckExpressible(csr, Encoding::kRaw, "", SpecVersion::k1_2)),
            "component 'indices' is i32, version 1.2.0 has u64 indices only");
  EXPECT_EQ(Why(CheckExpressible(csr, Encoding::kRaw, "", SpecVersion::k0_1)),
            "version 0.1.0 has no format 'sparse_csr'");
}

TEST(Expressible, Attributes) {
  Object object = *DenseObject("t", {2}, {DType::kU8, ""});
  object.attributes = {{"size", 1}};
  EXPECT_EQ(Why(CheckExpressible(object, Encoding::kRaw, "", SpecVersion::k0_1)),
            "attribute 'size' has the name of a field of version 0.1.0");
  EXPECT_OK(CheckExpressible(object, Encoding::kRaw, "", SpecVersion::k1_2));
  object.attributes = {{"k", 1}, {"k", 2}};
  EXPECT_EQ(Why(CheckExpressible(object, Encoding::kRaw, "", SpecVersion::k1_2)),
            "attributes: key 'k' occurs twice");
  EXPECT_EQ(Why(CheckExpressible(Value::Map{{"license", "MIT"}}, SpecVersion::k0_1)),
            "version 0.1.0 has no attributes of the whole file, there is 'license'");
  EXPECT_OK(CheckExpressible(Value::Map{{"license", "MIT"}}, SpecVersion::k1_1));

  // What is written can be read: the deepest attributes that pass decode again.
  Manifest manifest;
  manifest.objects = {Blob("t", 64, 2)};
  Value deep;
  for (int i = 0; i < 60; ++i) deep = Value(Value::Array{deep});
  object.attributes = manifest.objects[0].attributes = {{"deep", deep}};
  EXPECT_OK(CheckExpressible(object, Encoding::kRaw, "", SpecVersion::k1_2));
  const auto bytes = Must(EncodeManifest(manifest, SpecVersion::k1_2));
  EXPECT_OK(DecodeManifest(bytes, SpecVersion::k1_2));
  object.attributes = {{"deep", Value(Value::Array{deep})}};
  EXPECT_FALSE(CheckExpressible(object, Encoding::kRaw, "", SpecVersion::k1_2).ok());
}

TEST(EncodeManifest, RefusesByName) {
  Manifest manifest;
  manifest.objects = {Blob("a", 64, 1), Blob("a", 128, 1)};
  EXPECT_EQ(Why(EncodeManifest(manifest, SpecVersion::k1_2)), "'a' occurs twice");
  EXPECT_EQ(Why(EncodeManifest(manifest, SpecVersion::k0_1)), "'a' occurs twice");
  manifest.objects = {Blob("\xff", 64, 1)};
  EXPECT_THAT(Why(EncodeManifest(manifest, SpecVersion::k1_2)), HasSubstr("UTF-8"));
  manifest.objects = {Blob("a", 64, 1)};
  manifest.objects[0].components[0].big_endian = true;
  EXPECT_THAT(Why(EncodeManifest(manifest, SpecVersion::k1_2)), HasSubstr("no big-endian data"));
  manifest.objects[0].components[0] = {"data",          {DType::kU8, ""}, 64, 9,
                                       Encoding::kZstd, kUnknownSize,     ""};
  EXPECT_THAT(Why(EncodeManifest(manifest, SpecVersion::k1_2)), HasSubstr("decoded size"));
  EXPECT_OK(EncodeManifest(manifest, SpecVersion::k1_1));
  const auto error = [&](const StoredObject& object, SpecVersion version = SpecVersion::k1_2) {
    manifest.objects = {object};
    return Why(EncodeManifest(manifest, version));
  };
  StoredObject object = Blob("a", 64, 1);
  object.components[0].decoded_bytes = 2;
  EXPECT_THAT(error(object), HasSubstr("raw data has two sizes: 1 and 2"));
  object = Blob("a", 64, 1);
  object.components[0].role = "\xff";
  EXPECT_THAT(error(object), HasSubstr("a component's role, type or digest is not valid UTF-8"));
  object = Blob("a", 64, 1);
  object.shape.assign(kMaxRank + 1, 1);
  EXPECT_THAT(error(object), HasSubstr("the rank exceeds " + std::to_string(kMaxRank)));
  object = Blob("a", 64, 1);
  object.components[0].role = "values";
  EXPECT_THAT(error(object, SpecVersion::k0_1),
              HasSubstr("version 0.1.0 has one component 'data' in each object"));
}

TEST(ManifestEncoder, AnAliasIsTheEntryUnderAnotherName) {
  Manifest manifest;
  for (const char* name : {"weights", "w", "a rather longer name"}) {
    manifest.objects.push_back(Blob(name, 64, 2));
    manifest.objects.back().attributes = {{"a", 1}, {"zz top", "text"}};  // around "name" in 0.1.0
  }
  for (const SpecVersion version : {SpecVersion::k0_1, SpecVersion::k1_1, SpecVersion::k1_2}) {
    ManifestEncoder encoder(version);
    encoder.AddAlias("a rather longer name", 1);
    ASSERT_OK(encoder.Add(manifest.objects[0]));
    EXPECT_EQ(Why(encoder.Add(Blob("\xff", 64, 2))), "the name is not valid UTF-8");
    ASSERT_OK(encoder.Add(manifest.objects[1]));
    EXPECT_EQ(encoder.Finish({})->Joined(), *EncodeManifest(manifest, version));
    encoder.AddAlias("weights", 1);
    EXPECT_EQ(Why(encoder.Finish({})), "'weights' occurs twice");
  }
}

TEST(ManifestEncoder, TakesEntriesThatWereEncodedBefore) {
  Manifest manifest;
  for (const char* name : {"b", "a longer name", "a", "c"}) {  // in no version's order
    manifest.objects.push_back(Blob(name, 64, 2));
    manifest.objects.back().attributes = {{"a", 1}, {"zz top", std::string(name)}};
  }
  for (const SpecVersion version :
       {SpecVersion::k0_1, SpecVersion::k1_1, SpecVersion::k1_2, SpecVersion::k2_0}) {
    ManifestEncoder encoder(version);
    std::vector<EncodedEntry> entries;
    for (const StoredObject& object : manifest.objects)
      entries.push_back(Must(encoder.Encode(object)));
    EXPECT_FALSE(encoder.Encode(Blob("\xff", 64, 2)).ok());
    for (const EncodedEntry& entry : entries) ASSERT_OK(encoder.Add(entry));
    EXPECT_EQ(encoder.Finish({})->Joined(), *EncodeManifest(manifest, version));
  }
}

// Names around the longest whose place is kept with all others, and one that comes late in its
// entry, as 0.1.0 sorts it.
TEST(ManifestEncoder, FindsNamesThatAreLongOrFarOn) {
  Manifest manifest;
  for (const std::size_t size : {65534u, 65535u, 65536u, 100000u}) {
    manifest.objects.push_back(Blob(std::string(size, 'n'), 64, 2));
  }
  manifest.objects.push_back(Blob("far on", 64, 2));
  manifest.objects.back().attributes = {{"a", std::string(70000, 'x')}};
  Manifest with_aliases = manifest;
  for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
    with_aliases.objects.push_back(manifest.objects[i]);
    with_aliases.objects.back().name = "alias " + std::to_string(i);
  }
  for (const SpecVersion version : {SpecVersion::k0_1, SpecVersion::k1_1, SpecVersion::k1_2}) {
    ManifestEncoder encoder(version);
    for (const StoredObject& object : manifest.objects) ASSERT_OK(encoder.Add(object));
    for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
      encoder.AddAlias("alias " + std::to_string(i), i);
    }
    const auto encoded = Must(encoder.Finish({}));
    EXPECT_EQ(encoded.Joined(), *EncodeManifest(with_aliases, version));
    const auto back = Must(DecodeManifest(encoded.Joined(), version));
    std::vector<std::string> names, wanted;
    for (const StoredObject& object : back.objects) names.push_back(object.name);
    for (const StoredObject& object : with_aliases.objects) wanted.push_back(object.name);
    EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(wanted));
  }
}

// ---- speed --------------------------------------------------------------------------------------

// Printed rather than asserted, but for a bound that only quadratic work would exceed.
TEST(Speed, ManyObjects) {
  constexpr std::size_t kCount = 200000;
  Manifest manifest;
  for (std::size_t i = 0; i < kCount; ++i) {
    manifest.objects.push_back(
        Blob("model.layers." + std::to_string(i * 7919 % kCount) + ".self_attn.q_proj.weight",
             64 * (i + 1), 64));
    manifest.objects.back().components[0].digest = "crc32c:0x12345678";
  }
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto bytes = Must(EncodeManifest(manifest, SpecVersion::k1_2));
  const auto encoded = Clock::now();
  const auto back = Must(DecodeManifest(bytes, SpecVersion::k1_2));
  const auto decoded = Clock::now();
  ASSERT_OK(CheckLayout(back, 64 * (kCount + 1)));
  ASSERT_EQ(back.objects.size(), kCount);
  const auto checked = Clock::now();
  const auto seconds = [](auto d) { return std::chrono::duration<double>(d).count(); };
  std::printf("%zu objects: encode %.3f s, decode %.3f s, check %.3f s\n", kCount,
              seconds(encoded - start), seconds(decoded - encoded), seconds(checked - decoded));
  EXPECT_LT(seconds(checked - start), 24.0);
}

// A million of anything that must be unique: components of one object, unknown
// fields, attribute keys.
TEST(Speed, ManyKeysInOneMap) {
  Manifest manifest;
  manifest.objects = {{"t", "mine", {}, {}, {}}};
  for (std::size_t i = 0; i < 200000; ++i) {
    manifest.attributes.emplace_back("key" + std::to_string(i), i);
    manifest.objects[0].components.push_back(
        {"role" + std::to_string(i), {DType::kU8, ""}, 64, 1, Encoding::kRaw, 1, ""});
  }
  const auto bytes = EncodeManifest(manifest, SpecVersion::k1_2);
  ASSERT_OK(bytes);
  const auto back = Must(DecodeManifest(*bytes, SpecVersion::k1_2));
  EXPECT_OK(CheckLayout(back, 128));
  EXPECT_EQ(back.attributes.size(), 200000u);
  ASSERT_EQ(back.objects[0].components.size(), 200000u);
  for (const std::size_t i : {0u, 9u, 199999u}) {  // by length, then by bytes
    EXPECT_EQ(back.attributes[i].first.substr(3), back.objects[0].components[i].role.substr(4));
  }
  manifest.objects[0].components.push_back(manifest.objects[0].components[7]);
  EXPECT_EQ(Why(EncodeManifest(manifest, SpecVersion::k1_2)), "tensor 't': 'role7' occurs twice");
}

}  // namespace
}  // namespace zt
