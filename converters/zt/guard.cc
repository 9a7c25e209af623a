// zt.convert.zt:guard — bodies.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "core/status_macros.h"

module zt.convert.zt;

import :guard;
import zt.core;
import zt.digest;
import zt.source;

namespace zt::zt_source::internal {

using zt::internal::MutexLock;

namespace {

// Bytes kept for a hasher that has to see what comes before them first: a seek table, which is read ahead of the frames.
// Beyond this the digest goes unchecked.
constexpr std::uint64_t kMaxKept = 4 << 20;

}  // namespace

GuardedBlob::GuardedBlob(std::uint64_t offset, std::uint64_t length, DigestText expected,
                         std::string text)
    : offset_(offset), length_(length), expected_(std::move(expected)), text_(std::move(text)) {
  if (ordered()) hasher_ = MakeHasher(expected_.kind);
}

Status GuardedBlob::Passed(std::uint64_t begin, std::span<const std::byte> bytes) {
  const std::uint32_t crc = ordered() ? 0 : Crc32c(bytes);
  const MutexLock lock(mutex_);
  if (!failure_.ok()) return failure_;
  if (begin > position_) {
    Keep(begin, bytes, crc);
    return OkStatus();
  }
  const std::uint64_t seen = position_ - begin;
  if (seen >= bytes.size()) return OkStatus();  // again
  const std::span<const std::byte> fresh = bytes.subspan(seen);
  Absorb(fresh, seen == 0 || ordered() ? crc : Crc32c(fresh), fresh.size());
  while (!ahead_.empty() && ahead_.begin()->first <= position_) {
    const auto next = ahead_.extract(ahead_.begin());
    kept_ -= next.mapped().bytes.size();
    if (next.key() == position_)
      Absorb(next.mapped().bytes, next.mapped().crc, next.mapped().length);
  }
  if (position_ < length_) return OkStatus();
  const std::string found = ordered() ? hasher_->Finish() : Crc32cText(crc_);
  if (found != expected_.canonical) {
    failure_ = InvalidData("the digest is " + found + ", the manifest says " + text_);
  }
  return failure_;
}

void GuardedBlob::Absorb(std::span<const std::byte> bytes, std::uint32_t crc,
                         std::uint64_t length) {
  if (ordered()) {
    hasher_->Update(bytes);
  } else {
    crc_ = position_ == 0 ? crc : Crc32cCombine(crc_, crc, length);
  }
  position_ += length;
}

void GuardedBlob::Keep(std::uint64_t begin, std::span<const std::byte> bytes, std::uint32_t crc) {
  Ahead& held = ahead_[begin];
  if (held.length >= bytes.size()) return;
  if (ordered()) {
    if (kept_ - held.bytes.size() + bytes.size() > kMaxKept) {
      if (held.length == 0) ahead_.erase(begin);
      return;
    }
    kept_ = kept_ - held.bytes.size() + bytes.size();
    held.bytes.assign(bytes.begin(), bytes.end());
  }
  held.length = bytes.size();
  held.crc = crc;
}

Status GuardedBytes::ReadAt(std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(bytes_->ReadAt(offset, out));
  const std::uint64_t end = offset + out.size();
  for (std::size_t i = FirstAfter(offset); i < blobs_.size() && blobs_[i]->offset() < end; ++i) {
    GuardedBlob& blob = *blobs_[i];
    const std::uint64_t from = std::max(offset, blob.offset());
    const std::uint64_t to = std::min(end, blob.offset() + blob.length());
    ZT_RETURN_IF_ERROR(blob.Passed(from - blob.offset(), out.subspan(from - offset, to - from)));
  }
  return OkStatus();
}

void GuardedBytes::Guard(std::vector<std::unique_ptr<GuardedBlob>> blobs) {
  blobs_ = std::move(blobs);
  std::sort(blobs_.begin(), blobs_.end(),
            [](const auto& a, const auto& b) { return a->offset() < b->offset(); });
}

const GuardedBlob* GuardedBytes::Find(std::uint64_t offset) const {
  const std::size_t i = FirstAfter(offset);
  return i < blobs_.size() && blobs_[i]->offset() == offset ? blobs_[i].get() : nullptr;
}

std::size_t GuardedBytes::FirstAfter(std::uint64_t offset) const {
  const auto at = std::partition_point(blobs_.begin(), blobs_.end(), [offset](const auto& blob) {
    return blob->offset() + blob->length() <= offset;
  });
  return static_cast<std::size_t>(at - blobs_.begin());
}

}  // namespace zt::zt_source::internal
