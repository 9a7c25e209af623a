// zt.format:v2 — decodes a 2.0 manifest's CBOR to the model (§3).
module;

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import :fields;
import :v2;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt::format::internal {
namespace {

namespace cbor = format_cbor;

// Less than the shortest entry of an object; limits the count that a head can claim.
constexpr std::size_t kLeastObjectBytes = 48;

class DecoderV2 : private FieldReader {
 public:
  // `bytes` must be deterministic CBOR.
  explicit DecoderV2(std::span<const std::byte> bytes) : FieldReader(bytes, kMaxAttributeValues) {}

  StatusOr<Manifest> Decode() {
    manifest_.version = SpecVersion::k2_0;
    ZT_RETURN_IF_ERROR(InSection(Root(), "3.2"));
    return std::move(manifest_);
  }

 private:
  Status Root();
  Status Shards();
  Status Shard(StoredShard& shard);
  Status Objects();
  Status DecodeObject(StoredObject& object);
  Status Parts(StoredObject& object);
  Status DecodePart(StoredComponent& part);
  Status Interpret(StoredComponent& part, const std::optional<std::string>& encoding,
                   const std::optional<std::size_t>& planes);
  StatusOr<CodecParameters> Planes(const ElementType& element, std::optional<std::size_t> at);

  // Reads a key. Skips the value of an unknown key, be the key text or not.
  Status NextField(FieldSet& fields, std::size_t* field);
  // Reads a key that is a name.
  Status NextName(std::string_view what, std::string* name);
  Status Attributes(Value::Map* attributes);
  Status AttributeKeys();
  Status DecodeBlob(StoredComponent& part);
  Status ShardOf(StoredComponent& part);

  Manifest manifest_;
};

Status DecoderV2::NextField(FieldSet& fields, std::size_t* field) {
  const cbor::Item key = reader_.Next();
  *field = kUnknownField;
  if (key.kind == cbor::Kind::kText) {
    if (fields.Knows(key.text)) return fields.Add(key.text, field);
  } else if (key.kind == cbor::Kind::kArray || key.kind == cbor::Kind::kMap) {
    for (std::uint64_t i = 0; i < key.value * (key.kind == cbor::Kind::kMap ? 2 : 1); ++i) {
      ZT_RETURN_IF_ERROR(SkipValue(0));
    }
  }
  return SkipValue(0);
}

Status DecoderV2::NextName(std::string_view what, std::string* name) {
  const cbor::Item key = reader_.Next();
  if (key.kind != cbor::Kind::kText) {
    return InvalidData(std::string(what) + " is " + std::string(cbor::Describe(key.kind)) +
                       ", text is needed");
  }
  *name = key.text;
  return OkStatus();
}

// 2.0 allows attributes that a Value cannot hold (keys that are not text, integers below -2^63, too
// many values): these are kUnimplemented.
Status DecoderV2::Attributes(Value::Map* attributes) {
  ZT_RETURN_IF_ERROR(AttributeKeys());
  auto value = ReadAttribute("attributes", 0);
  if (!value.ok()) return WithCode(value.status(), StatusCode::kUnimplemented);
  *attributes = std::move(*value).TakeMap();
  return OkStatus();
}

// Checks the keys of the attribute map at the reader's position, and leaves the position unchanged.
// Keys of nested maps may be anything.
Status DecoderV2::AttributeKeys() {
  const std::size_t at = reader_.position();
  cbor::Container map;
  ZT_RETURN_IF_ERROR(InSection(OpenMap("attributes", &map), "3.1"));
  std::string key;
  while (reader_.More(map)) {
    ZT_RETURN_IF_ERROR(InSection(NextName("an attribute's key", &key), "3.1"));
    ZT_RETURN_IF_ERROR(CheckNameV2("the attribute", key));
    ZT_RETURN_IF_ERROR(SkipValue(0));
  }
  reader_.Rewind(at);
  return OkStatus();
}

Status DecoderV2::Root() {
  enum : std::size_t { kObjects, kShards, kAttributes };
  constexpr std::string_view kNames[] = {"objects", "shards", "attributes"};
  cbor::Container root;
  ZT_RETURN_IF_ERROR(OpenMap("manifest", &root));
  FieldSet fields(kNames);
  while (reader_.More(root)) {  // shards come before objects, in the order of deterministic keys
    std::size_t field;
    ZT_RETURN_IF_ERROR(NextField(fields, &field));
    if (field == kShards) ZT_RETURN_IF_ERROR(InSection(Shards(), "7.1"));
    if (field == kObjects) ZT_RETURN_IF_ERROR(Objects());
    if (field == kAttributes) ZT_RETURN_IF_ERROR(Attributes(&manifest_.attributes));
  }
  return fields.Check(kObjects + 1);
}

Status DecoderV2::Shards() {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("shards", &map));
  while (reader_.More(map)) {
    StoredShard& shard = manifest_.shards.emplace_back();
    ZT_RETURN_IF_ERROR(NextName("a shard name", &shard.name));
    ZT_RETURN_IF_ERROR(CheckShardNameV2(shard.name));
    ZT_RETURN_IF_ERROR(Annotate(Shard(shard), "shard " + Quote(shard.name)));
  }
  return OkStatus();
}

Status DecoderV2::Shard(StoredShard& shard) {
  enum : std::size_t { kSize, kDigest };
  constexpr std::string_view kNames[] = {"size", "digest"};
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("shard", &map));
  FieldSet fields(kNames);
  while (reader_.More(map)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(NextField(fields, &field));
    if (field == kSize) ZT_RETURN_IF_ERROR(ReadUint("size", &shard.bytes));
    if (field == kDigest) {
      ZT_RETURN_IF_ERROR(ReadText("digest", &shard.digest));
      ZT_RETURN_IF_ERROR(CheckDigestV2(shard.digest));
    }
  }
  return fields.Check(kDigest + 1);
}

Status DecoderV2::Objects() {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("objects", &map));
  manifest_.objects.reserve(
      std::min<std::uint64_t>(map.left, reader_.remaining() / kLeastObjectBytes));
  while (reader_.More(map)) {
    StoredObject& object = manifest_.objects.emplace_back();
    ZT_RETURN_IF_ERROR(InSection(NextName("an object's name", &object.name), "3.5"));
    ZT_RETURN_IF_ERROR(CheckNameV2("the name", object.name));
    Status status = InSection(DecodeObject(object), "3.3");
    if (status.ok()) status = CheckLayoutRules(object);
    if (!status.ok()) return WithTensor(status, object.name);
  }
  return OkStatus();
}

Status DecoderV2::DecodeObject(StoredObject& object) {
  enum : std::size_t { kShape, kLayout, kParts, kAttributes };
  constexpr std::string_view kNames[] = {"shape", "layout", "parts", "attributes"};
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("object", &map));
  FieldSet fields(kNames);
  while (reader_.More(map)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(NextField(fields, &field));
    if (field == kShape) ZT_RETURN_IF_ERROR(ReadShape(&object.shape));
    if (field == kLayout) ZT_RETURN_IF_ERROR(ReadText("layout", &object.format));
    if (field == kParts) ZT_RETURN_IF_ERROR(Parts(object));
    if (field == kAttributes) ZT_RETURN_IF_ERROR(Attributes(&object.attributes));
  }
  ZT_RETURN_IF_ERROR(fields.Check(kParts + 1));
  return CheckShapeV2(object.shape);
}

Status DecoderV2::Parts(StoredObject& object) {
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("parts", &map));
  while (reader_.More(map)) {
    StoredComponent& part = object.components.emplace_back();
    ZT_RETURN_IF_ERROR(InSection(NextName("a part's name", &part.role), "3.5"));
    ZT_RETURN_IF_ERROR(CheckNameV2("the component", part.role));
    ZT_RETURN_IF_ERROR(WithComponent(InSection(DecodePart(part), "3.4"), part.role));
  }
  return object.components.empty() ? InvalidData("there is no part") : OkStatus();
}

Status DecoderV2::DecodeBlob(StoredComponent& part) {
  const cbor::Item blob = reader_.Next();
  if (blob.kind != cbor::Kind::kArray || blob.value != 2) {
    return InvalidData("'blob' is not an array of offset and length");
  }
  ZT_RETURN_IF_ERROR(ReadUint("blob", &part.offset));
  return ReadUint("blob", &part.length);
}

Status DecoderV2::ShardOf(StoredComponent& part) {
  std::string_view name;
  ZT_RETURN_IF_ERROR(ReadText("shard", &name));
  const auto& shards = manifest_.shards;
  const auto at = std::lower_bound(shards.begin(), shards.end(), name,
                                   [](const StoredShard& shard, std::string_view key) {
                                     return cbor::KeyLess(shard.name, key);
                                   });
  if (at == shards.end() || at->name != name) {
    return InvalidData("shard " + Quote(name) + " is not in the shard table");
  }
  part.shard = static_cast<std::uint32_t>(at - shards.begin()) + 1;
  return OkStatus();
}

Status DecoderV2::DecodePart(StoredComponent& part) {
  enum : std::size_t { kDtype, kBlob, kType, kShard, kEncoding, kDecoded, kDigest, kPlanes };
  constexpr std::string_view kNames[] = {"dtype",    "blob",           "type",   "shard",
                                         "encoding", "decoded_length", "digest", "planes"};
  cbor::Container map;
  ZT_RETURN_IF_ERROR(OpenMap("part", &map));
  FieldSet fields(kNames);
  std::optional<std::string> encoding;
  // Position of the field: it is decoded only if the encoding is ours.
  std::optional<std::size_t> planes;
  while (reader_.More(map)) {
    std::size_t field;
    ZT_RETURN_IF_ERROR(NextField(fields, &field));
    std::string_view text;
    if (field == kDtype) {
      ZT_RETURN_IF_ERROR(ReadText("dtype", &text));
      const auto dtype = ParseDType(text);
      if (!dtype || *dtype == DType::kBool) {
        return BrokenV2("4.1", "dtype " + Quote(text) + " is not one of version 2.0");
      }
      part.element.dtype = *dtype;
    } else if (field == kType) {
      ZT_RETURN_IF_ERROR(ReadText("type", &text));
      part.element.type = text;
      // No type is named so (§3.5), and nobody can say what it means (§4.2).
      if (text.empty()) part.undecodable = "type '' is not known";
    } else if (field == kBlob) {
      ZT_RETURN_IF_ERROR(DecodeBlob(part));
    } else if (field == kShard) {
      ZT_RETURN_IF_ERROR(ShardOf(part));
    } else if (field == kEncoding) {
      ZT_RETURN_IF_ERROR(ReadText("encoding", &encoding.emplace()));
    } else if (field == kDecoded) {
      ZT_RETURN_IF_ERROR(ReadDecodedSize("decoded_length", &part.decoded_bytes));
    } else if (field == kDigest) {
      ZT_RETURN_IF_ERROR(ReadText("digest", &part.digest));
      ZT_RETURN_IF_ERROR(CheckDigestV2(part.digest));
    } else if (field == kPlanes) {
      planes = reader_.position();
      ZT_RETURN_IF_ERROR(SkipValue(0));
    }
  }
  ZT_RETURN_IF_ERROR(fields.Check(kBlob + 1));
  if (encoding.has_value() != fields.Has(kDecoded)) {
    return InvalidData("'encoding' and 'decoded_length' must come together");
  }
  if (!encoding) part.decoded_bytes = part.length;
  return Interpret(part, encoding, planes);
}

Status DecoderV2::Interpret(StoredComponent& part, const std::optional<std::string>& encoding,
                            const std::optional<std::size_t>& planes) {
  if (part.element.type == Name(part.element.dtype)) part.element.type = {};
  const DType storage = StorageOfV2(part.element.type).value_or(part.element.dtype);
  if (storage != part.element.dtype) {
    return BrokenV2("4.2", "type " + Quote(part.element.type) + " is stored as " +
                               std::string(Name(storage)) + ", not as " +
                               std::string(Name(part.element.dtype)));
  }
  if (!encoding) return OkStatus();
  if (*encoding == kSeekableV2) {
    part.encoding = Encoding::kZstd;
  } else if (*encoding == kPlanesName) {
    part.encoding = Encoding::kPlanes;
    if (ByteWidth(part.element.dtype) < 2) {
      return InvalidData("byte planes of " + std::string(Name(part.element.dtype)));
    }
    ZT_ASSIGN_OR_RETURN(part.parameters, Planes(part.element, planes));
  } else {
    part.unknown_encoding = *encoding;
    part.undecodable = "encoding " + Quote(*encoding) + " is not known";
  }
  return OkStatus();
}

// Decodes the field at byte `at`; the defaults if there is none.
StatusOr<CodecParameters> DecoderV2::Planes(const ElementType& element,
                                            std::optional<std::size_t> at) {
  if (!at) return DefaultPlanesV2(element);
  const std::size_t end = reader_.position();
  reader_.Rewind(*at);
  ZT_ASSIGN_OR_RETURN(const Value value, ReadAttribute("planes", 0));
  reader_.Rewind(end);
  if (value.AsMap() == nullptr) return InvalidData("'planes' is not a map");
  return ReadPlanesV2(*value.AsMap(), element);
}

}  // namespace

StatusOr<Manifest> DecodeWordsV2(std::span<const std::byte> bytes) {
  ZT_RETURN_IF_ERROR(CheckDeterministic(bytes));
  return DecoderV2(bytes).Decode();
}

StatusOr<Manifest> DecodeV2(std::span<const std::byte> bytes) {
  auto manifest = DecodeWordsV2(bytes);
  ZT_RETURN_IF_ERROR(manifest.status());
  for (StoredObject& object : manifest->objects) {
    std::string name = object.name;
    ZT_ASSIGN_OR_RETURN(object, WithTensor(FromV2(std::move(object)), name));
  }
  return manifest;
}

}  // namespace zt::format::internal
