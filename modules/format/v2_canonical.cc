// zt.format:v2 — whether a manifest is that of a canonical file (2.0 §6.3): it is encoded again and compared.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import :dialect;
import :v2;
import zt.compress;
import zt.core;

namespace zt {

namespace {

namespace v2 = format::internal;

// Gives the components of a manifest the blobs that they have in the canonical form, and says what keeps a component from it
// that no encoding shows.
class Canonical {
 public:
  Canonical(const Manifest& file, const SameBytes& same) : file_(file), again_(file), same_(same) {
    again_.shards.clear();
    for (std::uint32_t o = 0; o < file.objects.size(); ++o) {
      for (std::uint32_t c = 0; c < file.objects[o].components.size(); ++c) {
        order_.push_back({o, c});
      }
    }
    std::ranges::sort(order_, {}, [&file](Id id) {
      const StoredObject& object = file.objects[id.first];
      return std::tie(object.name, object.components[id.second].role);
    });
  }

  // Blobs lie one after the other, in the order of the names of what refers to them first.
  Status Place() {
    const std::uint64_t step = Traits(SpecVersion::k2_0).placement;
    std::uint64_t at = step;
    for (const Id id : order_) {
      StoredComponent& part = again_.objects[id.first].components[id.second];
      part.encoding = Encoding::kRaw;
      part.length = part.decoded_bytes;
      part.shard = 0;
      ZT_ASSIGN_OR_RETURN(const auto first, FindEqual(id));
      if (first) {
        part.offset = again_.objects[first->first].components[first->second].offset;
        continue;
      }
      part.offset = at;
      at += (part.length + step - 1) / step * step;
    }
    again_.offset = at;
    return OkStatus();
  }

  // The first difference between the bytes of the manifest and those that are encoded again.
  StatusOr<std::optional<CanonicalFault>> Compare(std::span<const std::byte> bytes) const {
    const v2::Dialect& dialect = v2::Dialect20();
    v2::Bytes out;
    const auto differs = [&] {
      const bool equal = out.size() <= bytes.size() &&
                         std::equal(out.begin(), out.end(), bytes.begin());
      bytes = bytes.subspan(std::min(out.size(), bytes.size()));
      out.clear();
      return !equal;
    };
    ZT_RETURN_IF_ERROR(
        dialect.AppendHead(again_.objects.size(), again_.attributes, again_.shards, &out));
    if (differs()) {
      return CanonicalFault{"", "", "the manifest does not begin as the canonical form has it"};
    }
    for (std::size_t o = 0; o < again_.objects.size(); ++o) {
      const StoredObject& object = again_.objects[o];
      ZT_RETURN_IF_ERROR(
          v2::AppendEntryV2(Declare(object), object.components, again_.shards, &out));
      if (differs()) return FaultOf(o);
    }
    ZT_RETURN_IF_ERROR(dialect.AppendTail(again_.attributes, &out));
    if (differs() || !bytes.empty()) {
      return CanonicalFault{"", "", "the manifest does not end as the canonical form has it"};
    }
    if (file_.offset == again_.offset) return std::nullopt;
    return CanonicalFault{"", "", "the manifest lies at " + std::to_string(file_.offset) +
                                      ", in canonical form at " + std::to_string(again_.offset)};
  }

  // The names are in Unicode Normalization Form C, and digests are of the canonical kind: no encoding shows that.
  std::optional<CanonicalFault> CheckWords() const {
    for (const Value::Member& each : file_.attributes) {
      if (!IsNormalized(each.first)) return NotNormalized("", "the attribute", each.first);
    }
    for (const StoredObject& object : file_.objects) {
      if (!IsNormalized(object.name)) return NotNormalized(object.name, "the name", object.name);
      for (const Value::Member& each : object.attributes) {
        if (!IsNormalized(each.first)) {
          return NotNormalized(object.name, "the attribute", each.first);
        }
      }
      for (const StoredComponent& part : object.components) {
        if (!IsNormalized(part.role)) return NotNormalized(object.name, "the part", part.role);
        if (part.digest.starts_with("xxh3:")) continue;
        return CanonicalFault{object.name, part.role, "it has no xxh3 digest"};
      }
    }
    return std::nullopt;
  }

 private:
  using Id = std::pair<std::uint32_t, std::uint32_t>;  // of an object and its component

  static CanonicalFault NotNormalized(const std::string& object, std::string_view what,
                                      std::string_view name) {
    return {object, "",
            std::string(what) + " " + Quote(name) + " is not in Unicode Normalization Form C"};
  }

  // The component that comes first among those with the same bytes; nullopt where it is this one. Candidates have equal sizes
  // and digests, and the bytes decide.
  StatusOr<std::optional<Id>> FindEqual(Id id) {
    const StoredComponent& part = file_.objects[id.first].components[id.second];
    auto& held = known_[{part.decoded_bytes, part.digest}];
    for (const Id other : held) {
      const StoredComponent& first = file_.objects[other.first].components[other.second];
      ZT_ASSIGN_OR_RETURN(const bool equal, Equal(first, part));
      if (equal) return other;
    }
    held.push_back(id);
    return std::nullopt;
  }

  StatusOr<bool> Equal(const StoredComponent& a, const StoredComponent& b) const {
    if (a.offset == b.offset && a.length == b.length && a.shard == b.shard) return true;
    const auto raw = [](const StoredComponent& each) {
      return each.encoding == Encoding::kRaw && each.unknown_encoding.empty() && each.shard == 0;
    };
    if (!raw(a) || !raw(b)) return false;  // the file is not canonical anyway
    return same_(a.offset, b.offset, a.length);
  }

  CanonicalFault FaultOf(std::size_t o) const {
    const StoredObject& object = file_.objects[o];
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      const std::uint64_t is = object.components[c].offset;
      const std::uint64_t wanted = again_.objects[o].components[c].offset;
      if (is == wanted) continue;
      return {object.name, object.components[c].role,
              "its blob lies at " + std::to_string(is) + ", in canonical form at " +
                  std::to_string(wanted)};
    }
    return {object.name, "", "the manifest does not say it as the canonical form does"};
  }

  const Manifest& file_;
  Manifest again_;
  const SameBytes& same_;
  std::vector<Id> order_;
  std::map<std::pair<std::uint64_t, std::string_view>, std::vector<Id>> known_;
};

}  // namespace

StatusOr<std::optional<CanonicalFault>> FindCanonicalFault(std::span<const std::byte> manifest,
                                                           std::uint64_t offset,
                                                           const SameBytes& same) {
  ZT_ASSIGN_OR_RETURN(Manifest file, v2::DecodeWordsV2(manifest));
  file.offset = offset;
  Canonical canonical(file, same);
  if (auto fault = canonical.CheckWords()) return fault;
  ZT_RETURN_IF_ERROR(canonical.Place());
  return canonical.Compare(manifest);
}

}  // namespace zt
