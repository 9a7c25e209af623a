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
// of the first component that refers to each, with equal contents deduplicated.
StatusOr<Manifest> PlaceBlobs(const Manifest& file, const StrongDigest& strong) {
  Manifest again = file;
  again.shards.clear();
  std::vector<Id> order;
  using Blob = std::pair<std::uint32_t, std::uint64_t>;  // shard, offset
  // The blobs of each size and digest. Where there are several, each has its strong digest.
  std::map<std::pair<std::uint64_t, std::string_view>, std::map<Blob, std::string>> alike;
  const auto part_of = [&file](Id id) -> const StoredComponent& {
    return file.objects[id.first].components[id.second];
  };
  const auto blobs_of = [&](const StoredComponent& part) -> std::map<Blob, std::string>& {
    return alike[{part.length, part.digest}];
  };
  for (std::uint32_t o = 0; o < file.objects.size(); ++o) {
    for (std::uint32_t c = 0; c < file.objects[o].components.size(); ++c) {
      order.emplace_back(o, c);
      const StoredComponent& part = part_of({o, c});
      blobs_of(part).try_emplace({part.shard, part.offset});
    }
  }
  std::ranges::sort(order, {},
                    [&](Id id) { return std::tie(file.objects[id.first].name, part_of(id).role); });
  // By size, digest and strong digest: the place of each content.
  std::map<std::tuple<std::uint64_t, std::string_view, std::string>, std::uint64_t> places;
  const std::uint64_t step = Traits(SpecVersion::k2_0).placement;
  again.offset = step;
  for (const Id id : order) {
    const StoredComponent& is = part_of(id);
    auto& blobs = blobs_of(is);
    std::string& known = blobs[{is.shard, is.offset}];
    if (blobs.size() > 1 && known.empty()) {
      // Bytes in another file are not looked for here: the file is not canonical anyway.
      known = "shard " + std::to_string(is.shard) + ", " + std::to_string(is.offset);
      if (is.shard == 0) {
        ZT_ASSIGN_OR_RETURN(known, strong(is.offset, is.length));
      }
    }
    const auto [place, first] = places.try_emplace({is.length, is.digest, known}, again.offset);
    StoredComponent& part = again.objects[id.first].components[id.second];
    part.encoding = Encoding::kRaw;
    part.length = part.decoded_bytes;
    part.shard = 0;
    part.offset = place->second;
    if (first) again.offset += (part.length + step - 1) / step * step;
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
                                                           const StrongDigest& strong) {
  ZT_ASSIGN_OR_RETURN(const Manifest file, v2::DecodeWordsV2(manifest));
  if (auto fault = CheckWords(file)) return fault;
  ZT_ASSIGN_OR_RETURN(const Manifest again, PlaceBlobs(file, strong));
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
