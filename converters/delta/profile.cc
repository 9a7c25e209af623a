// zt.convert.delta:profile — attributes to entries and back.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import :profile;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;

namespace zt {

Status delta::internal::Broken(const std::string& rule) {
  return InvalidData(std::string(kDeltaFormat) + ": " + rule);
}

namespace {

using namespace delta::internal;

// A text that may be absent.
StatusOr<std::string> TextOf(const Value::Map& map, std::string_view key) {
  const Value* const value = FindMember(map, key);
  if (value == nullptr) return std::string();
  if (const std::string* const text = value->AsString()) return *text;
  return Broken(Quote(key) + " is not text");
}

StatusOr<std::uint64_t> NumberOf(const Value::Map& map, std::string_view key) {
  const Value* const value = FindMember(map, key);
  if (value == nullptr) return std::uint64_t{0};
  if (const std::uint64_t* const number = value->AsUint()) return *number;
  return Broken(Quote(key) + " is not a whole number from 0 up");
}

// The attribute of an Entry; null if there is none.
const Value::Map* EntryOf(const Object& stored) {
  const Value* const value = FindMember(stored.attributes, kEntryAttribute);
  return value == nullptr ? nullptr : value->AsMap();
}

}  // namespace

StatusOr<std::optional<DeltaOrigin>> FindDelta(const Value::Map& attributes) {
  const Value* const value = FindMember(attributes, kDeltaAttribute);
  if (value == nullptr) return std::nullopt;
  const Value::Map* const map = value->AsMap();
  const Value* const base = map == nullptr ? nullptr : FindMember(*map, "base");
  if (base == nullptr || base->AsMap() == nullptr)
    return Broken("the file's attribute has no map 'base'");
  DeltaOrigin origin;
  ZT_ASSIGN_OR_RETURN(origin.id, TextOf(*map, "id"));
  ZT_ASSIGN_OR_RETURN(origin.base_name, TextOf(*base->AsMap(), "name"));
  ZT_ASSIGN_OR_RETURN(origin.base_id, TextOf(*base->AsMap(), "id"));
  return origin;
}

std::string DeltaFilePath(const Object& stored) {
  const Value::Map* const entry = stored.format == kDeltaFormat ? EntryOf(stored) : nullptr;
  if (entry == nullptr || stored.components.empty()) return "";
  const auto format = TextOf(*entry, "format"), path = TextOf(stored.attributes, "path");
  return format.ok() && path.ok() && *format == kFileFormat ? *path : "";
}

std::string Described(const std::string& name, const std::string& id) {
  return Quote(name) + " (" + (id.empty() ? "its id is not stated" : id) + ")";
}

}  // namespace zt

namespace zt::delta::internal {
namespace {

// A chunk in the attribute: kind u8, frame u32, content u32, result u64, base u64.
constexpr std::size_t kChunkBytes = 25;

Value::Bytes PackChunks(std::span<const DeltaChunk> chunks) {
  Value::Bytes out(chunks.size() * kChunkBytes);
  std::byte* at = out.data();
  for (const DeltaChunk& chunk : chunks) {
    at[0] = static_cast<std::byte>(chunk.kind);
    zt::internal::StoreLittle(chunk.frame, 4, at + 1);
    zt::internal::StoreLittle(chunk.content, 4, at + 5);
    zt::internal::StoreLittle(chunk.result, 8, at + 9);
    zt::internal::StoreLittle(chunk.base, 8, at + 17);
    at += kChunkBytes;
  }
  return out;
}

StatusOr<std::vector<DeltaChunk>> ReadChunks(const Value::Map& map) {
  const Value* const value = FindMember(map, "chunks");
  const Value::Bytes* const bytes = value == nullptr ? nullptr : value->AsBytes();
  if (bytes == nullptr || bytes->size() % kChunkBytes != 0)
    return Broken("'chunks' is not a byte string of 25 bytes a chunk");
  std::vector<DeltaChunk> chunks(bytes->size() / kChunkBytes);
  const std::byte* at = bytes->data();
  for (DeltaChunk& chunk : chunks) {
    if (static_cast<unsigned>(at[0]) > static_cast<unsigned>(DeltaKind::kPlanes))
      return Broken("a chunk is of an unknown kind");
    chunk.kind = static_cast<DeltaKind>(at[0]);
    chunk.frame = static_cast<std::uint32_t>(zt::internal::LoadLittle(at + 1, 4));
    chunk.content = static_cast<std::uint32_t>(zt::internal::LoadLittle(at + 5, 4));
    chunk.result = zt::internal::LoadLittle(at + 9, 8);
    chunk.base = zt::internal::LoadLittle(at + 17, 8);
    if ((chunk.kind == DeltaKind::kEqual) != (chunk.frame == 0))
      return Broken("a chunk that equals the base has a frame, or another one has none");
    at += kChunkBytes;
  }
  return chunks;
}

StatusOr<Part> ReadPart(const Value& value) {
  const Value::Map* const map = value.AsMap();
  if (map == nullptr) return Broken("one of 'parts' is not a map");
  Part part;
  ZT_ASSIGN_OR_RETURN(part.role, TextOf(*map, "role"));
  if (part.role.empty()) part.role = "data";
  ZT_ASSIGN_OR_RETURN(const std::string dtype, TextOf(*map, "dtype"));
  const auto parsed = ParseDType(dtype);
  if (!parsed) return Broken(Quote(dtype) + " is not a dtype");
  part.element.dtype = *parsed;
  ZT_ASSIGN_OR_RETURN(const std::string type, TextOf(*map, "type"));
  part.element.type = type;
  ZT_ASSIGN_OR_RETURN(part.bytes, NumberOf(*map, "bytes"));
  if (const Value* const same = FindMember(*map, "same_as")) {
    const Value::Array* const names = same->AsArray();
    if (names == nullptr || names->size() != 2 || (*names)[0].AsString() == nullptr ||
        (*names)[1].AsString() == nullptr)
      return Broken("'same_as' is not a name and a role");
    part.same_as.emplace(*(*names)[0].AsString(), *(*names)[1].AsString());
    return part;
  }
  ZT_ASSIGN_OR_RETURN(part.digest, TextOf(*map, "digest"));
  ZT_ASSIGN_OR_RETURN(const DigestText digest, ParseDigest(part.digest));
  if (digest.kind != DigestKind::kSha256 && digest.kind != DigestKind::kXxh3)
    return Broken("'digest' is neither sha256 nor xxh3");
  ZT_ASSIGN_OR_RETURN(part.chunks, ReadChunks(*map));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t chunk, NumberOf(*map, "chunk"));
  const std::size_t width = ByteWidth(part.element.dtype);
  if (chunk > kMaxDeltaChunk || chunk % width != 0 || part.bytes % width != 0)
    return Broken("'chunk' or 'bytes' is no whole number of elements, or too large");
  part.chunk = static_cast<std::uint32_t>(chunk);
  if (chunk == 0 && part.bytes != 0) return Broken("'chunk' is 0");
  const std::uint64_t count =
      part.bytes == 0 ? 0 : part.bytes / chunk + (part.bytes % chunk != 0 ? 1 : 0);
  for (std::uint64_t k = 0; k < std::min<std::uint64_t>(count, part.chunks.size()); ++k) {
    if (part.chunks[k].frame > DeltaBound(std::min(chunk, part.bytes - k * chunk)))
      return Broken("a frame is longer than any of its chunk");
  }
  if (count != part.chunks.size())
    return Broken("'chunks' has " + std::to_string(part.chunks.size()) + " chunks, 'bytes' has " +
                  std::to_string(count));
  return part;
}

}  // namespace

std::string RoleOf(const Part& part) { return "delta." + part.role; }

Value ToValue(const Entry& entry) {
  Value::Array parts;
  for (const Part& part : entry.parts) {
    Value::Map map = {{"dtype", Name(part.element.dtype)}, {"bytes", part.bytes}};
    if (part.role != "data") map.emplace_back("role", part.role);
    if (!part.element.type.empty()) map.emplace_back("type", part.element.type.str());
    if (part.same_as) {
      map.emplace_back("same_as", Value::Array{part.same_as->first, part.same_as->second});
    } else {
      map.emplace_back("digest", part.digest);
      map.emplace_back("chunk", part.chunk);
      map.emplace_back("chunks", PackChunks(part.chunks));
    }
    parts.emplace_back(std::move(map));
  }
  Value::Map out = {{"index", entry.index}, {"parts", std::move(parts)}};
  if (entry.format != "dense") out.emplace_back("format", entry.format);
  if (!entry.from.empty()) out.emplace_back("from", entry.from);
  return out;
}

StatusOr<Entry> ReadEntry(const Object& object) {
  const Value::Map* const map = EntryOf(object);
  if (map == nullptr) return Broken("the attribute 'delta' is missing, or no map");
  Entry entry;
  ZT_ASSIGN_OR_RETURN(entry.format, TextOf(*map, "format"));
  if (entry.format.empty()) entry.format = "dense";
  if (entry.format == kDeltaFormat) return Broken("its result is a delta");
  ZT_ASSIGN_OR_RETURN(entry.index, NumberOf(*map, "index"));
  ZT_ASSIGN_OR_RETURN(entry.from, TextOf(*map, "from"));
  const Value* const parts = FindMember(*map, "parts");
  if (parts == nullptr || parts->AsArray() == nullptr || parts->AsArray()->empty())
    return Broken("'parts' is missing, or no list");
  if (parts->AsArray()->size() > kMostParts)
    return Broken("it has more than " + std::to_string(kMostParts) + " parts");
  for (const Value& each : *parts->AsArray()) {
    ZT_ASSIGN_OR_RETURN(Part part, ReadPart(each));
    entry.parts.push_back(std::move(part));
  }
  if (entry.parts.size() != object.components.size())
    return Broken("it has " + std::to_string(object.components.size()) + " components and " +
                  std::to_string(entry.parts.size()) + " parts");
  ZT_RETURN_IF_ERROR(ValidateObject(ResultOf(object, entry)));
  return entry;
}

Object ResultOf(const Object& stored, const Entry& entry) {
  Object object;
  object.name = stored.name;
  object.format = entry.format;
  object.shape = stored.shape;
  for (const Value::Member& each : stored.attributes) {
    if (each.first != kEntryAttribute) object.attributes.push_back(each);
  }
  for (const Part& part : entry.parts)
    object.components.push_back({part.role, part.element, part.bytes});
  return object;
}

std::optional<std::uint32_t> FindComponent(const Object& object, std::string_view role,
                                           const ElementType& element,
                                           std::optional<std::uint64_t> bytes) {
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    const Component& each = object.components[c];
    if (each.role == role && each.element == element && bytes.value_or(each.bytes) == each.bytes)
      return c;
  }
  return std::nullopt;
}

}  // namespace zt::delta::internal
