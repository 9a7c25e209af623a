// zt.format — the model into a manifest's CBOR, entry by entry; what an entry is, each dialect says.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import :dialect;
import zt.compress;
import zt.core;

namespace zt {
namespace {

namespace cbor = format_cbor;
namespace internal = format::internal;
using internal::Bytes;
using internal::Dialect;

Status CheckWritable(const Dialect& dialect) {
  if (dialect.traits().writable) return OkStatus();
  return InvalidArgument(dialect.Named() + " can be read, not written");
}

// The least bytes of a block: a manifest that grows is never copied.
constexpr std::size_t kBlockBytes = 256 << 10;

Status TooLarge(std::uint64_t bytes) {
  return InvalidArgument("the manifest has " + std::to_string(bytes) +
                         " bytes or more, the limit is 1 GiB");
}

}  // namespace

Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version) {
  const Dialect& dialect = internal::DialectOf(version);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  if (!IsUtf8(object.format)) return InvalidArgument("the format is not valid UTF-8");
  return dialect.CheckObject(object, encoding, digest_algorithm);
}

Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version) {
  const Dialect& dialect = internal::DialectOf(version);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  return dialect.CheckRoot(root_attributes);
}

ManifestEncoder::ManifestEncoder(SpecVersion version) : version_(version) {}

Status ManifestEncoder::AddShard(const StoredShard& shard) {
  ZT_RETURN_IF_ERROR(internal::DialectOf(version_).CheckShard(shard));
  shards_.push_back(shard);
  return OkStatus();
}

Status ManifestEncoder::Add(const StoredObject& object) {
  const Dialect& dialect = internal::DialectOf(version_);
  ZT_RETURN_IF_ERROR(CheckWritable(dialect));
  for (const StoredComponent& component : object.components) {
    if (component.shard > shards_.size())
      return InvalidArgument("a component lies in a shard that was not added");
  }
  Bytes& out = RoomyBlock();
  Entry entry;
  entry.block = static_cast<std::uint32_t>(blocks_.size() - 1);
  entry.name = static_cast<std::uint32_t>(out.size());
  const auto name = std::as_bytes(std::span(object.name));
  out.insert(out.end(), name.begin(), name.end());
  entry.head = static_cast<std::uint32_t>(out.size());
  std::size_t name_at = out.size();
  auto status = dialect.AppendEntry(object, shards_, &out, &name_at);
  const std::uint64_t size = out.size() - entry.name;
  if (status.ok() && bytes_ + size > kMaxManifestBytes) status = TooLarge(bytes_ + size);
  const std::uint64_t values = status.ok() ? internal::CountValues(object.attributes) : 0;
  if (status.ok() && values_ + values > kMaxAttributeValues) status = internal::TooManyValues();
  if (!status.ok()) {
    out.resize(entry.name);
    return status;
  }
  entry.tail = static_cast<std::uint32_t>(name_at);
  entry.end = static_cast<std::uint32_t>(out.size());
  bytes_ += size;
  values_ += values;
  entry.values = static_cast<std::uint32_t>(values);
  entries_.push_back(entry);
  return OkStatus();
}

void ManifestEncoder::AddAlias(std::string name, std::size_t index) {
  aliases_.push_back({std::move(name), index});
}

Bytes& ManifestEncoder::RoomyBlock() {
  if (blocks_.empty() || blocks_.back().size() >= kBlockBytes) {
    blocks_.emplace_back().reserve(kBlockBytes + kBlockBytes / 16);
  }
  return blocks_.back();
}

std::span<const std::byte> ManifestEncoder::Part(const Entry& entry, std::uint32_t begin,
                                                 std::uint32_t end) const {
  return std::span(blocks_[entry.block]).subspan(begin, end - begin);
}

// The names in the order of their entries; where the version sorts them that of deterministic map keys, by length and
// then by bytes. Fails where one occurs twice.
StatusOr<std::vector<ManifestEncoder::Line>> ManifestEncoder::Lines() const {
  std::vector<Line> lines;
  lines.reserve(entries_.size() + aliases_.size());
  for (const Entry& entry : entries_) {
    const auto name = Part(entry, entry.name, entry.head);
    lines.push_back({{reinterpret_cast<const char*>(name.data()), name.size()}, &entry});
  }
  for (const Alias& alias : aliases_) lines.push_back({alias.name, &entries_[alias.index]});

  // Names of one length are mostly in order already: sources list them so.
  std::map<std::size_t, std::vector<Line>> by_length;
  for (const Line& line : lines) by_length[line.name.size()].push_back(line);
  const bool sorts = internal::DialectOf(version_).SortsEntries();
  if (sorts) lines.clear();
  for (auto& [length, group] : by_length) {
    const auto less = [](const Line& a, const Line& b) { return a.name < b.name; };
    if (!std::is_sorted(group.begin(), group.end(), less)) {
      std::sort(group.begin(), group.end(), less);
    }
    for (std::size_t i = 1; i < group.size(); ++i) {
      if (group[i - 1].name == group[i].name) {
        return InvalidArgument(Quote(group[i].name) + " occurs twice");
      }
    }
    if (sorts) lines.insert(lines.end(), group.begin(), group.end());
  }
  return lines;
}

StatusOr<std::vector<std::byte>> ManifestEncoder::Finish(const Value::Map& attributes) const {
  ZT_RETURN_IF_ERROR(CheckExpressible(attributes, version_));
  ZT_ASSIGN_OR_RETURN(const std::vector<Line> lines, Lines());
  std::uint64_t bytes = 0;  // but for some heads and the root
  std::uint64_t values = internal::CountValues(attributes);
  for (const Line& line : lines) {
    values += line.entry->values;
    if (values > kMaxAttributeValues) return internal::TooManyValues();
    bytes += line.name.size() + line.entry->end - line.entry->head;
    if (bytes > kMaxManifestBytes) return TooLarge(bytes);
  }
  Bytes out;
  out.reserve(bytes + lines.size() * 2 + 4096);
  const Dialect& dialect = internal::DialectOf(version_);
  ZT_RETURN_IF_ERROR(dialect.AppendHead(lines.size(), attributes, shards_, &out));
  for (const auto& [name, entry] : lines) {
    const auto head = Part(*entry, entry->head, entry->tail);
    const auto tail = Part(*entry, entry->tail, entry->end);
    out.insert(out.end(), head.begin(), head.end());
    cbor::AppendText(out, name);
    out.insert(out.end(), tail.begin(), tail.end());
  }
  ZT_RETURN_IF_ERROR(dialect.AppendTail(attributes, &out));
  if (out.size() > kMaxManifestBytes) return TooLarge(out.size());
  return out;
}

StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version) {
  ManifestEncoder encoder(version);
  for (const StoredShard& shard : manifest.shards) ZT_RETURN_IF_ERROR(encoder.AddShard(shard));
  for (const StoredObject& object : manifest.objects) {
    ZT_RETURN_IF_ERROR(AnnotateTensor(encoder.Add(object), object.name));
  }
  return encoder.Finish(manifest.attributes);
}

}  // namespace zt
