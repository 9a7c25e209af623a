// zt.reader:checked_bytes — hashes bytes as they are read, and compares the digests.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.reader;

import zt.std;
import :checked_bytes;
import zt.core;
import zt.digest;
import zt.source;

namespace zt::reader::internal {

using zt::internal::MutexLock;

namespace {

// CheckedFile skips ranges that are shorter than this and ahead of its position.
constexpr std::size_t kShortRange = 64 << 10;

Status Differs(const std::string& found, const std::string& text) {
  return InvalidData("the digest is " + found + ", the manifest says " + text);
}

}  // namespace

Status CheckEmpty(const DigestText& digest, const std::string& text) {
  const std::string found = MakeHasher(digest.kind)->Finish();
  return found == digest.canonical ? OkStatus() : Differs(found, text);
}

Status CheckedBlob::Expect(const DigestText& digest, const std::string& text) {
  for (const Expected& each : expected_) {
    if (each.digest.kind != digest.kind) continue;
    if (each.digest.canonical == digest.canonical) return OkStatus();
    return InvalidData("the digest " + text +
                       " is not that of another tensor with the same bytes, " +
                       each.digest.canonical);
  }
  expected_.push_back({digest, text, nullptr});
  ordered_ = ordered_ || digest.kind != DigestKind::kCrc32c;
  if (!ordered_) return OkStatus();
  for (Expected& each : expected_) {
    if (each.hasher == nullptr) each.hasher = MakeHasher(each.digest.kind);
  }
  return OkStatus();
}

Status CheckedBlob::Passed(std::uint64_t begin, std::span<const std::byte> bytes,
                           ByteSource& file) {
  const std::uint32_t crc = ordered() ? 0 : Crc32c(bytes);
  const MutexLock lock(mutex_);
  if (!failure_.ok() || position_ == length_) return failure_;
  if (begin > position_) {
    Ahead& held = ahead_[begin];
    if (held.length < bytes.size()) held = {bytes.size(), crc};
    return OkStatus();
  }
  const std::uint64_t seen = position_ - begin;
  if (seen >= bytes.size()) return OkStatus();  // these bytes have passed before
  const std::span<const std::byte> fresh = bytes.subspan(seen);
  Absorb(fresh, seen == 0 || ordered() ? crc : Crc32c(fresh), fresh.size());
  ZT_RETURN_IF_ERROR(AbsorbAhead(file));
  if (position_ == length_) failure_ = Compare();
  return failure_;
}

// Absorbs ranges that passed early and follow the position now.
Status CheckedBlob::AbsorbAhead(ByteSource& file) {
  while (!ahead_.empty() && ahead_.begin()->first <= position_) {
    const auto next = ahead_.extract(ahead_.begin());
    const auto [length, crc] = next.mapped();
    if (next.key() == position_ && !ordered()) {
      Absorb({}, crc, length);
    } else {
      ZT_RETURN_IF_ERROR(Reread(next.key() + length, file));
    }
  }
  return OkStatus();
}

Status CheckedBlob::Reread(std::uint64_t end, ByteSource& file) {
  const auto absorb = [this](std::uint64_t, std::span<const std::byte> piece) ZT_REQUIRES(mutex_) {
    Absorb(piece, ordered() ? 0 : Crc32c(piece), piece.size());
    return true;
  };
  return ReadThrough(file, offset_ + position_, offset_ + end, absorb);
}

Status CheckedBlob::Conclude(ByteSource& file) {
  const MutexLock lock(mutex_);
  if (!failure_.ok() || position_ == length_) return failure_;
  ahead_.clear();
  ZT_RETURN_IF_ERROR(Reread(length_, file));
  return failure_ = Compare();
}

Status CheckedBlob::Compare() {
  for (const Expected& each : expected_) {
    const std::string found = each.hasher != nullptr ? each.hasher->Finish() : Crc32cText(crc_);
    if (found != each.digest.canonical) return Differs(found, each.text);
  }
  return OkStatus();
}

void CheckedBlob::Absorb(std::span<const std::byte> bytes, std::uint32_t crc,
                         std::uint64_t length) {
  if (ordered()) {
    for (const Expected& each : expected_) each.hasher->Update(bytes);
  } else {
    crc_ = position_ == 0 ? crc : Crc32cCombine(crc_, crc, length);
  }
  position_ += length;
}

Status CheckedFile::Passed(std::uint64_t offset, std::span<const std::byte> bytes,
                           ByteSource& all) {
  passed_ = true;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return OkStatus();
  // A short range ahead of the position is a seek table, or padding before one. It will be read
  // again in its order.
  if (offset > begin_ + position_ && bytes.size() < kShortRange) return OkStatus();
  ZT_RETURN_IF_ERROR(ReadTo(offset, all));
  const std::uint64_t seen = begin_ + position_ - offset;
  if (seen >= bytes.size()) return OkStatus();
  hasher_->Update(bytes.subspan(seen));
  position_ += bytes.size() - seen;
  return OkStatus();
}

Status CheckedFile::ReadTo(std::uint64_t end, ByteSource& all) {
  if (hasher_ == nullptr) hasher_ = MakeHasher(digest_.kind);
  const auto update = [this](std::uint64_t, std::span<const std::byte> piece) {
    hasher_->Update(piece);
    position_ += piece.size();
    return true;
  };
  return ReadThrough(all, begin_ + position_, end, update);
}

Status CheckedFile::Finish(ByteSource& all) {
  if (!passed_) return OkStatus();
  const std::lock_guard lock(mutex_);
  if (found_.empty()) {
    ZT_RETURN_IF_ERROR(ReadTo(end(), all));
    found_ = hasher_->Finish();
  }
  if (found_ == digest_.canonical) return OkStatus();
  const Status other = InvalidData("the digest of the file is " + found_ + ", " + says_);
  return name_.empty() ? other : Annotate(other, name_);
}

Status CheckedBytes::CheckFiles() {
  for (const auto& file : files_) ZT_RETURN_IF_ERROR(file->Finish(*bytes_));
  return OkStatus();
}

Status CheckedBytes::CheckFiles(std::span<const std::uint64_t> offsets) {
  std::set<std::size_t> found;
  for (const std::uint64_t offset : offsets) found.insert(FileAfter(offset));
  for (const std::size_t i : found) {
    if (i < files_.size()) ZT_RETURN_IF_ERROR(files_[i]->Finish(*bytes_));
  }
  return OkStatus();
}

std::size_t CheckedBytes::FileAfter(std::uint64_t offset) const {
  const auto at = std::partition_point(
      files_.begin(), files_.end(), [offset](const auto& each) { return each->end() <= offset; });
  return static_cast<std::size_t>(at - files_.begin());
}

Status CheckedBytes::ReadAt(std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(bytes_->ReadAt(offset, out));
  const std::uint64_t end = offset + out.size();
  for (std::size_t i = FirstAfter(offset); i < blobs_.size() && blobs_[i]->offset() < end; ++i) {
    CheckedBlob& blob = *blobs_[i];
    const std::uint64_t from = std::max(offset, blob.offset());
    const std::uint64_t to = std::min(end, blob.offset() + blob.length());
    ZT_RETURN_IF_ERROR(
        blob.Passed(from - blob.offset(), out.subspan(from - offset, to - from), *bytes_));
  }
  return PassToFiles(offset, out);
}

Status CheckedBytes::Unguarded::ReadAt(std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(all_.bytes_->ReadAt(offset, out));
  return all_.PassToFiles(offset, out);
}

std::shared_ptr<UnorderedReader> CheckedBytes::UnorderedReaderOf(CheckedBlob& blob) {
  class PastGuard final : public UnorderedReader {
   public:
    PastGuard(CheckedBytes& bytes, CheckedBlob& blob) : bytes_(bytes), blob_(blob) {}
    Status Read(std::uint64_t offset, std::span<std::byte> out) override {
      return bytes_.unguarded_.ReadAt(blob_.offset() + offset, out);
    }
    Status Check(std::uint64_t offset, std::span<const std::byte> bytes) override {
      return blob_.Passed(offset, bytes, *bytes_.bytes_);
    }
    std::optional<Extent> extent() const override {
      return Extent{&bytes_.unguarded_, blob_.offset(), blob_.length()};
    }

   private:
    CheckedBytes& bytes_;
    CheckedBlob& blob_;
  };
  return std::make_shared<PastGuard>(*this, blob);
}

Status CheckedBytes::PassToFiles(std::uint64_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t end = offset + bytes.size();
  for (std::size_t i = FileAfter(offset); i < files_.size() && files_[i]->begin() < end; ++i) {
    const std::uint64_t from = std::max(offset, files_[i]->begin());
    const std::uint64_t to = std::min(end, files_[i]->end());
    ZT_RETURN_IF_ERROR(files_[i]->Passed(from, bytes.subspan(from - offset, to - from), *bytes_));
  }
  return OkStatus();
}

void CheckedBytes::Guard(std::vector<std::unique_ptr<CheckedBlob>> blobs) {
  blobs_ = std::move(blobs);
  std::sort(blobs_.begin(), blobs_.end(),
            [](const auto& a, const auto& b) { return a->offset() < b->offset(); });
}

Status CheckedBytes::Conclude(std::uint64_t offset, const Status& found) const {
  CheckedBlob* const blob = found.code() == StatusCode::kDataLoss ? Find(offset) : nullptr;
  if (blob == nullptr) return found;
  const Status verdict = blob->Conclude(*bytes_);
  return verdict.ok() ? found : verdict;
}

CheckedBlob* CheckedBytes::Find(std::uint64_t offset) const {
  const std::size_t i = FirstAfter(offset);
  return i < blobs_.size() && blobs_[i]->offset() == offset ? blobs_[i].get() : nullptr;
}

std::size_t CheckedBytes::FirstAfter(std::uint64_t offset) const {
  const auto at = std::partition_point(blobs_.begin(), blobs_.end(), [offset](const auto& blob) {
    return blob->offset() + blob->length() <= offset;
  });
  return static_cast<std::size_t>(at - blobs_.begin());
}

}  // namespace zt::reader::internal
