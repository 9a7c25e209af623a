// zt.format:v2 — checks that a manifest is that of a canonical file (2.0 §6.3): encodes it again
// and compares.
module;

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import :v2;
import zt.compress;
import zt.core;

namespace zt {

namespace {

namespace v2 = format::internal;

using Id = std::pair<std::uint32_t, std::uint32_t>;  // object, component

// Checks rules that a comparison of encodings cannot show: names are in Unicode Normalization Form
// C, digests are of the canonical kind.
std::optional<CanonicalFault> CheckWords(const Manifest& file) {
  std::optional<CanonicalFault> fault;
  const auto check = [&fault](const std::string& object, std::string_view name) {
    if (fault || IsNormalized(name)) return;
    fault = {object, "", "the name " + Quote(name) + " is not in Unicode Normalization Form C"};
  };
  for (const Value::Member& each : file.attributes) check("", each.first);
  for (const StoredObject& object : file.objects) {
    check(object.name, object.name);
    for (const Value::Member& each : object.attributes) check(object.name, each.first);
    for (const StoredComponent& part : object.components) {
      check(object.name, part.role);
      if (fault || part.digest.starts_with("xxh3:")) continue;
      fault = {object.name, part.role, "it has no xxh3 digest"};
    }
  }
  return fault;
}

// Gives the components of a manifest their blobs of the canonical form: in the order of the names
// of the first component that refers to each, with equal contents deduplicated. Candidates have
// equal sizes and digests; then `same` compares the bytes.
StatusOr<Manifest> PlaceBlobs(const Manifest& file, const SameBytes& same) {
  Manifest again = file;
  again.shards.clear();
  std::vector<Id> order;
  for (std::uint32_t o = 0; o < file.objects.size(); ++o) {
    for (std::uint32_t c = 0; c < file.objects[o].components.size(); ++c) order.emplace_back(o, c);
  }
  const auto part_of = [&file](Id id) -> const StoredComponent& {
    return file.objects[id.first].components[id.second];
  };
  std::ranges::sort(order, {},
                    [&](Id id) { return std::tie(file.objects[id.first].name, part_of(id).role); });
  const auto equal = [&](const StoredComponent& a, const StoredComponent& b) -> StatusOr<bool> {
    if (a.offset == b.offset && a.length == b.length && a.shard == b.shard) return true;
    if (a.length != b.length || a.shard != 0 || b.shard != 0) return false;
    return same(a.offset, b.offset, a.length);
  };
  std::map<std::pair<std::uint64_t, std::string_view>, std::vector<Id>> known;
  const std::uint64_t step = Traits(SpecVersion::k2_0).placement;
  again.offset = step;
  for (const Id id : order) {
    StoredComponent& part = again.objects[id.first].components[id.second];
    part.encoding = Encoding::kRaw;
    part.length = part.decoded_bytes;
    part.shard = 0;
    part.offset = again.offset;
    auto& held = known[{part.length, part_of(id).digest}];
    bool first = true;
    for (const Id other : held) {
      ZT_ASSIGN_OR_RETURN(const bool found, equal(part_of(other), part_of(id)));
      if (!found) continue;
      part.offset = again.objects[other.first].components[other.second].offset;
      first = false;
      break;
    }
    if (!first) continue;
    held.push_back(id);
    again.offset += (part.length + step - 1) / step * step;
  }
  return again;
}

// The fault of an object whose entry differs.
CanonicalFault FaultOf(const StoredObject& is, const StoredObject& wanted) {
  for (std::size_t c = 0; c < is.components.size(); ++c) {
    if (is.components[c].offset == wanted.components[c].offset) continue;
    return {is.name, is.components[c].role,
            "its blob lies at " + std::to_string(is.components[c].offset) +
                ", in canonical form at " + std::to_string(wanted.components[c].offset)};
  }
  return {is.name, "", "the manifest encodes it differently from the canonical form"};
}

}  // namespace

StatusOr<std::optional<CanonicalFault>> FindCanonicalFault(std::span<const std::byte> manifest,
                                                           std::uint64_t offset,
                                                           const SameBytes& same) {
  ZT_ASSIGN_OR_RETURN(const Manifest file, v2::DecodeWordsV2(manifest));
  if (auto fault = CheckWords(file)) return fault;
  ZT_ASSIGN_OR_RETURN(const Manifest again, PlaceBlobs(file, same));
  const v2::Dialect& dialect = v2::Dialect20();
  v2::Bytes out;
  std::vector<std::size_t> begins;  // offsets of entries
  ZT_RETURN_IF_ERROR(dialect.AppendHead(again.objects.size(), again.attributes, {}, &out));
  for (const StoredObject& object : again.objects) {
    begins.push_back(out.size());
    ZT_RETURN_IF_ERROR(v2::AppendEntryV2(Declare(object), object.components, {}, &out));
  }
  const std::size_t end = out.size();
  ZT_RETURN_IF_ERROR(dialect.AppendTail(again.attributes, &out));
  const auto differs = std::ranges::mismatch(out, manifest);
  const auto at = static_cast<std::size_t>(differs.in1 - out.begin());
  if (at < out.size() || out.size() < manifest.size()) {
    const auto entry = std::ranges::upper_bound(begins, at);
    if (entry == begins.begin() || at >= end) {
      return CanonicalFault{
          "", "",
          "byte " + std::to_string(at) + " of the manifest is not that of the canonical form"};
    }
    const std::size_t o = static_cast<std::size_t>(entry - begins.begin()) - 1;
    return FaultOf(file.objects[o], again.objects[o]);
  }
  if (offset == again.offset) return std::nullopt;
  return CanonicalFault{"", "",
                        "the manifest lies at " + std::to_string(offset) +
                            ", in canonical form at " + std::to_string(again.offset)};
}

}  // namespace zt
