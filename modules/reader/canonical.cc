// zt.reader — whether a file is in the canonical form of its version (2.0 §6.3).
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import zt.compress;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

constexpr std::uint64_t kStep = 1 << 20;
constexpr std::string_view kRule = " (zTensor 2.0 §6.3)";

class Canonical {
 public:
  Canonical(const Reader& reader, const Wrong& wrong)
      : reader_(reader), manifest_(reader.manifest()), wrong_(wrong) {}

  Status Check(std::uint64_t unreferenced_bytes) {
    if (!Traits(manifest_.version).canonical) {
      File("version " + std::string(Traits(manifest_.version).text) +
           " has no canonical form; "
           "'ztstream convert --spec 2.0 --canonical' writes one");
      return OkStatus();
    }
    if (!manifest_.shards.empty()) File("it has shards");
    if (unreferenced_bytes > 0) File("bytes that no blob covers are not zero");
    Keys(manifest_.attributes, {}, "");
    for (std::uint32_t o = 0; o < manifest_.objects.size(); ++o) CheckObject(o);
    CheckPlaces();
    return CheckShared();
  }

 private:
  void File(std::string_view what) {
    wrong_({}, {.object = "", .component = "", .message = std::string(what) + std::string(kRule)});
  }
  void At(ComponentId id, std::string_view role, std::string_view what) {
    wrong_(id, {.object = manifest_.objects[id.object].name,
                .component = std::string(role),
                .message = std::string(what) + std::string(kRule)});
  }

  void Name(ComponentId id, bool of_file, std::string_view what, std::string_view name) {
    if (IsNormalized(name)) return;
    const std::string text =
        std::string(what) + " " + Quote(name) + " is not in Unicode Normalization Form C";
    if (of_file) return File(text);
    At(id, "", text);
  }
  void Keys(const Value::Map& attributes, ComponentId id, std::string_view object) {
    for (const Value::Member& member : attributes) {
      Name(id, object.empty(), "attribute", member.first);
    }
  }

  void CheckObject(std::uint32_t o) {
    const StoredObject& object = manifest_.objects[o];
    Name({o, 0}, false, "the name", object.name);
    Keys(object.attributes, {o, 0}, object.name);
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const StoredComponent& part = object.components[c];
      Name({o, c}, false, "the part", part.role);
      if (part.encoding != Encoding::kRaw || !part.unknown_encoding.empty()) {
        At({o, c}, part.role, "it is encoded");
      }
      if (!part.digest.starts_with("xxh3:")) At({o, c}, part.role, "it has no xxh3 digest");
      order_.push_back({o, c});
    }
  }

  // Blobs lie one after the other, in the order of the names of what refers to them first; then the manifest.
  void CheckPlaces() {
    std::sort(order_.begin(), order_.end(), [this](ComponentId a, ComponentId b) {
      const auto key = [this](ComponentId id) {
        const StoredObject& object = manifest_.objects[id.object];
        return std::tie(object.name, object.components[id.component].role);
      };
      return key(a) < key(b);
    });
    const std::uint64_t step = Traits(manifest_.version).placement;
    std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
    std::uint64_t at = step;
    for (const ComponentId id : order_) {
      const StoredComponent& part = reader_.component(id);
      if (!seen.emplace(part.offset, part.length).second) continue;
      if (part.offset != at) {
        return At(id, part.role,
                  "its blob lies at " + std::to_string(part.offset) + ", in canonical form at " +
                      std::to_string(at));
      }
      at += (part.length + step - 1) / step * step;
    }
    if (manifest_.offset != at) {
      return File("the manifest lies at " + std::to_string(manifest_.offset) +
                  ", in canonical form at " + std::to_string(at));
    }
    if (manifest_.offset + manifest_.bytes != reader_.data_end()) {
      File("the footer does not follow the manifest");
    }
  }

  // Equal bytes lie in one blob. Candidates have equal sizes and digests, and the bytes decide.
  Status CheckShared() {
    std::map<std::pair<std::uint64_t, std::string_view>, ComponentId> known;
    for (const ComponentId id : order_) {
      const StoredComponent& part = reader_.component(id);
      if (part.shard != 0) continue;
      const auto [held, added] =
          known.emplace(std::pair(part.length, std::string_view(part.digest)), id);
      const StoredComponent& first = reader_.component(held->second);
      if (added || first.offset == part.offset) continue;
      ZT_ASSIGN_OR_RETURN(const bool equal, SameBytes(first.offset, part.offset, part.length));
      if (!equal) continue;
      At(id, part.role,
         "its bytes are those of " + TensorContext(manifest_.objects[held->second.object].name) +
             ", and lie there again");
    }
    return OkStatus();
  }

  StatusOr<bool> SameBytes(std::uint64_t a, std::uint64_t b, std::uint64_t bytes) {
    std::vector<std::byte> first(std::min(bytes, kStep)), second(first.size());
    for (std::uint64_t at = 0; at < bytes; at += first.size()) {
      const std::size_t part = std::min<std::uint64_t>(first.size(), bytes - at);
      ZT_RETURN_IF_ERROR(reader_.bytes().ReadAt(a + at, std::span(first).first(part)));
      ZT_RETURN_IF_ERROR(reader_.bytes().ReadAt(b + at, std::span(second).first(part)));
      if (!std::equal(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(part),
                      second.begin())) {
        return false;
      }
    }
    return true;
  }

  const Reader& reader_;
  const Manifest& manifest_;
  const Wrong& wrong_;
  std::vector<ComponentId> order_;
};

}  // namespace

Status CheckCanonical(const Reader& reader, std::uint64_t unreferenced_bytes, const Wrong& wrong) {
  return Canonical(reader, wrong).Check(unreferenced_bytes);
}

}  // namespace zt::reader::internal
