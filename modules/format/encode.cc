// zt.format — encodes the model as a manifest's CBOR, entry by entry; each dialect encodes its
// entries.
module;

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import zt.compress;
import zt.core;

namespace zt {
namespace {

namespace cbor = format_cbor;
using format::internal::Bytes;
using format::internal::Dialect;

Status CheckWritable(const Dialect& dialect) {
  if (dialect.traits().writable) return OkStatus();
  return InvalidArgument(dialect.Named() + " can be read, not written");
}

// A new block begins when one reaches this size, so that a growing manifest is not copied. Every
// entry begins within this many bytes of its block.
constexpr std::size_t kBlockBytes = 256 << 10;
// Reserved for an entry; few are larger.
constexpr std::size_t kTypicalEntryBytes = 384;
// EntryPlace::place fits 32 bits.
static_assert(kMaxManifestBytes + 2 * kBlockBytes < std::uint64_t{1} << 32);

Status TooLarge(std::uint64_t bytes) {
  return InvalidArgument("the manifest has " + std::to_string(bytes) +
                         " bytes or more, the limit is 1 GiB");
}

}  // namespace

Status CheckName(std::string_view name, SpecVersion version) {
  return format::internal::DialectOf(version).CheckName(name);
}

Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version) {
  const Dialect& dialect = format::internal::DialectOf(version);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  if (!IsUtf8(object.format)) return InvalidArgument("the format is not valid UTF-8");
  return dialect.CheckObject(object, encoding, digest_algorithm);
}

Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version) {
  const Dialect& dialect = format::internal::DialectOf(version);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  return dialect.CheckRoot(root_attributes);
}

ManifestEncoder::ManifestEncoder(SpecVersion version) : version_(version) {}

Status ManifestEncoder::AddShard(const StoredShard& shard) {
  ZT_RETURN_IF_ERROR(format::internal::DialectOf(version_).CheckShard(shard));
  shards_.push_back(shard);
  return OkStatus();
}

StatusOr<EncodedEntry> ManifestEncoder::Encode(const StoredObject& object) const {
  const Dialect& dialect = format::internal::DialectOf(version_);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  for (const StoredComponent& component : object.components) {
    if (component.shard > shards_.size())
      return InvalidArgument("a component lies in a shard that was not added");
  }
  Bytes bytes;
  bytes.reserve(kTypicalEntryBytes);
  EncodedEntry entry;
  entry.name_bytes = object.name.size();
  ZT_RETURN_IF_ERROR(
      dialect.AppendEntry(object, shards_, &bytes, &entry.name, &entry.attribute_values));
  entry.name += cbor::HeadBytes(object.name.size());
  entry.bytes.assign(bytes.begin(), bytes.end());
  return entry;
}

Status ManifestEncoder::Add(const StoredObject& object) {
  ZT_ASSIGN_OR_RETURN(const EncodedEntry entry, Encode(object));
  return Add(entry);
}

Status ManifestEncoder::Add(const EncodedEntry& entry) {
  const std::vector<std::byte>& bytes = entry.bytes;
  const std::uint64_t values = entry.attribute_values;
  if (bytes_ + bytes.size() > kMaxManifestBytes) return TooLarge(bytes_ + bytes.size());
  if (values_ + values > kMaxAttributeValues) return format::internal::TooManyValues();
  if (values > 0) {
    values_of_.insert_or_assign(entries_.size(), values);
  } else if (!values_of_.empty()) {
    values_of_.erase(entries_.size());  // left by an Add that ran out of memory
  }
  std::vector<std::byte>& block = RoomyBlock();
  const std::size_t begin = block.size();
  // An entry ends where the next begins, so an Add that runs out of memory must leave no bytes.
  block.reserve(begin + bytes.size());
  EntryPlace kept = {static_cast<std::uint32_t>((blocks_.size() - 1) * kBlockBytes + begin), kFar,
                     kFar};
  if (entry.name < kFar && entry.name_bytes < kFar) {
    kept.name = static_cast<std::uint16_t>(entry.name);
    kept.name_bytes = static_cast<std::uint16_t>(entry.name_bytes);
  } else {
    far_.insert_or_assign(entries_.size(), NamePlace{static_cast<std::uint32_t>(entry.name),
                                                     static_cast<std::uint32_t>(entry.name_bytes)});
  }
  entries_.push_back(kept);
  block.insert(block.end(), bytes.begin(), bytes.end());
  bytes_ += bytes.size();
  values_ += values;
  return OkStatus();
}

void ManifestEncoder::AddAlias(std::string name, std::size_t index) {
  aliases_.push_back({std::move(name), index});
}

std::vector<std::byte>& ManifestEncoder::RoomyBlock() {
  if (blocks_.empty() || blocks_.back().size() >= kBlockBytes) {
    blocks_.emplace_back().reserve(kBlockBytes + kBlockBytes / 16);
  }
  return blocks_.back();
}

std::span<const std::byte> ManifestEncoder::BytesOf(std::size_t entry) const {
  const std::size_t block = entries_[entry].place / kBlockBytes;
  const std::size_t begin = entries_[entry].place % kBlockBytes;
  const bool last =
      entry + 1 == entries_.size() || entries_[entry + 1].place / kBlockBytes != block;
  const std::size_t end = last ? blocks_[block].size() : entries_[entry + 1].place % kBlockBytes;
  return std::span(blocks_[block]).subspan(begin, end - begin);
}

std::size_t ManifestEncoder::EntryOf(std::size_t line) const {
  return line < entries_.size() ? line : aliases_[line - entries_.size()].index;
}

std::string_view ManifestEncoder::NameOf(std::size_t line) const {
  if (line >= entries_.size()) return aliases_[line - entries_.size()].name;
  const EntryPlace& entry = entries_[line];
  const NamePlace at = PlaceOfName(line);
  const auto* const block =
      reinterpret_cast<const char*>(blocks_[entry.place / kBlockBytes].data());
  return {block + entry.place % kBlockBytes + at.name, at.bytes};
}

ManifestEncoder::NamePlace ManifestEncoder::PlaceOfName(std::size_t entry) const {
  const EntryPlace& kept = entries_[entry];
  if (kept.name == kFar) return far_.at(entry);
  return {kept.name, kept.name_bytes};
}

// The order of the lines: that of deterministic map keys (by length, then by bytes) if the version
// sorts them. Empty if it is the order in which they were added. Fails on a duplicate name.
StatusOr<std::vector<std::uint32_t>> ManifestEncoder::Order() const {
  const std::size_t lines = entries_.size() + aliases_.size();
  const auto twice = [](std::string_view name) {
    return InvalidArgument(Quote(name) + " occurs twice");
  };
  // Most sources list names in this order already.
  std::size_t sorted = 1;
  std::string_view before = lines > 0 ? NameOf(0) : std::string_view();
  for (; sorted < lines; ++sorted) {
    const std::string_view name = NameOf(sorted);
    if (cbor::KeyLess(name, before)) break;
    if (name == before) return twice(name);
    before = name;
  }
  if (sorted >= lines) return std::vector<std::uint32_t>();
  std::vector<std::uint32_t> order(lines);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return cbor::KeyLess(NameOf(a), NameOf(b)); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (NameOf(order[i - 1]) == NameOf(order[i])) return twice(NameOf(order[i]));
  }
  if (!format::internal::DialectOf(version_).SortsEntries()) order.clear();
  return order;
}

StatusOr<EncodedManifest> ManifestEncoder::Finish(const Value::Map& attributes) const {
  ZT_RETURN_IF_ERROR(CheckExpressible(attributes, version_));
  ZT_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> order, Order());
  const std::size_t lines = entries_.size() + aliases_.size();
  const Dialect& dialect = format::internal::DialectOf(version_);
  EncodedManifest out;
  const auto append = [&out](std::span<const std::byte> part) {
    out.bytes += part.size();
    // Entries in the order in which they were added are adjacent in memory.
    if (!out.parts.empty() && out.parts.back().data() + out.parts.back().size() == part.data()) {
      out.parts.back() = {out.parts.back().data(), out.parts.back().size() + part.size()};
    } else if (!part.empty()) {
      out.parts.push_back(part);
    }
  };
  const auto append_own = [&out, &append](const Bytes& part) {
    append(out.own.emplace_back(part.begin(), part.end()));
  };
  Bytes head;
  ZT_RETURN_IF_ERROR(dialect.AppendHead(lines, attributes, shards_, &head));
  append_own(head);
  std::uint64_t values = format::internal::CountValues(attributes);
  for (std::size_t i = 0; i < lines; ++i) {
    const std::size_t line = order.empty() ? i : order[i];
    const std::size_t entry = EntryOf(line);
    const auto counted = values_of_.find(entry);
    if (counted != values_of_.end()) values += counted->second;
    if (values > kMaxAttributeValues) return format::internal::TooManyValues();
    const std::span<const std::byte> bytes = BytesOf(entry);
    if (line == entry) {
      append(bytes);
    } else {  // the object's entry with another name
      const auto [name, name_bytes] = PlaceOfName(entry);
      append(bytes.first(name - cbor::HeadBytes(name_bytes)));
      Bytes text;
      cbor::AppendText(text, NameOf(line));
      append_own(text);
      append(bytes.subspan(name + name_bytes));
    }
    if (out.bytes > kMaxManifestBytes) return TooLarge(out.bytes);
  }
  Bytes tail;
  ZT_RETURN_IF_ERROR(dialect.AppendTail(attributes, &tail));
  append_own(tail);
  if (out.bytes > kMaxManifestBytes) return TooLarge(out.bytes);
  return out;
}

std::vector<std::byte> EncodedManifest::Joined() const {
  std::vector<std::byte> out;
  out.reserve(bytes);
  for (const std::span<const std::byte> part : parts)
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version) {
  ManifestEncoder encoder(version);
  for (const StoredShard& shard : manifest.shards) ZT_RETURN_IF_ERROR(encoder.AddShard(shard));
  for (const StoredObject& object : manifest.objects) {
    ZT_RETURN_IF_ERROR(WithTensor(encoder.Add(object), object.name));
  }
  ZT_ASSIGN_OR_RETURN(const EncodedManifest encoded, encoder.Finish(manifest.attributes));
  return encoded.Joined();
}

}  // namespace zt
