// zt.reader — verifies a file as a whole: the bytes between its blobs, and its shards.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

bool IsNonzero(std::byte b) { return b != std::byte{0}; }

Status CheckZero(const Reader& reader, std::uint64_t begin, std::uint64_t end,
                 std::vector<std::string>& wrong) {
  return ReadThrough(
      reader.bytes(), begin, end, [&](std::uint64_t at, std::span<const std::byte> part) {
        const auto bad = std::find_if(part.begin(), part.end(), IsNonzero);
        if (bad == part.end()) return true;
        const std::uint64_t place = at + static_cast<std::uint64_t>(bad - part.begin());
        wrong.push_back("padding byte " + std::to_string(place) + " is not zero");
        return false;
      });
}

// The number of bytes from the first nonzero byte to the last.
StatusOr<std::uint64_t> NonzeroBytes(const Reader& reader, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t first = end, last = end;
  ZT_RETURN_IF_ERROR(ReadThrough(
      reader.bytes(), begin, end, [&](std::uint64_t at, std::span<const std::byte> part) {
        const auto front = std::find_if(part.begin(), part.end(), IsNonzero);
        if (front == part.end()) return true;
        first = std::min(first, at + static_cast<std::uint64_t>(front - part.begin()));
        const auto back = std::find_if(part.rbegin(), part.rend(), IsNonzero);
        last = at + static_cast<std::uint64_t>(part.rend() - back);
        return true;
      }));
  return last - first;
}

// True of an error that says nothing of a shard's bytes: it cannot be read now, or its server has no
// ranges.
bool SaysNothing(const Status& status, const Reader& reader) {
  return status.code() == StatusCode::kUnavailable ||
         (status.code() == StatusCode::kUnimplemented && IsUrl(reader.bytes().name()));
}

}  // namespace

VerifyProblem ProblemOf(const Status& status, std::string_view object, std::string component) {
  const std::vector<Advice> advice = AdviceOf(status);
  return {Repeated(object), ComponentOf(status).value_or(std::move(component)), Fact(status),
          advice.empty() ? std::nullopt : std::optional(advice.front())};
}

// Gaps between header, blobs and manifest must be zero; in versions that do not require it, nonzero
// bytes are only counted.
Status CheckGaps(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong) {
  const Manifest& manifest = reader.manifest();
  const ContainerTraits& traits = Traits(manifest.version);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blobs;
  for (const StoredObject& object : manifest.objects) {
    for (const StoredComponent& c : object.components) {
      if (c.length > 0 && c.shard == 0) blobs.emplace_back(c.offset, c.length);
    }
  }
  if (traits.manifest_is_blob) blobs.emplace_back(manifest.offset, manifest.bytes);
  std::sort(blobs.begin(), blobs.end());
  blobs.emplace_back(reader.data_end(), 0);
  std::uint64_t at = traits.header_magic.size();
  for (const auto& [offset, length] : blobs) {
    if (traits.free_padding) {
      ZT_ASSIGN_OR_RETURN(const std::uint64_t left, NonzeroBytes(reader, at, offset));
      report.unreferenced_bytes += left;
    } else {
      ZT_RETURN_IF_ERROR(CheckZero(reader, at, offset, wrong));
    }
    at = std::max(at, offset + length);
  }
  return OkStatus();
}

// Size and footer of a shard are checked when it is opened.
Status CheckShards(const Reader& reader, std::optional<std::uint32_t> object, VerifyReport& report,
                   std::vector<std::string>& wrong, std::set<std::uint32_t>& missing) {
  const Manifest& manifest = reader.manifest();
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    const auto lies_in = [i](const StoredComponent& each) { return each.shard == i + 1; };
    if (object && std::ranges::none_of(manifest.objects[*object].components, lies_in)) continue;
    const StoredShard& shard = manifest.shards[i];
    const DigestText expected = DigestOrUnknown(shard.digest);
    const bool known = expected.kind != DigestKind::kNone;
    const auto found =
        DigestOfShard(reader.bytes(), shard, i, known ? expected.kind : DigestKind::kXxh3);
    if (SaysNothing(found.status(), reader)) return found.status();
    if (!found.ok()) {
      wrong.push_back(Fact(found.status()));
      missing.insert(static_cast<std::uint32_t>(i + 1));
    } else if (!known) {
      report.unverified.push_back(
          {"", "", "shard " + Quote(shard.name) + ": " + expected.algorithm});
    } else if (const Status same = CompareDigest(shard, expected, *found); !same.ok()) {
      wrong.push_back(Fact(same));
    } else {
      ++report.digests;
    }
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
