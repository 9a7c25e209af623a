// zt.convert.zt:guard — a ByteSource that checks blobs against their digests as the bytes pass. Internal.
module;

#include "core/thread_annotations.h"

module zt.convert.zt:guard;

import zt.std;
import zt.core;
import zt.digest;
import zt.source;

namespace zt::zt_source::internal {

// A blob under the digests of the components that have it. Ranges may come in any order and from many threads; when
// they have covered the blob from its first byte to its last, the digests are compared, and a mismatch is what every
// further read of the blob returns.
class GuardedBlob {
 public:
  GuardedBlob(std::uint64_t offset, std::uint64_t length) : offset_(offset), length_(length) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t length() const { return length_; }
  // One more digest, which stands as `text` in the manifest. Before any reading. kDataLoss where it contradicts
  // another of the same algorithm.
  Status Expect(const DigestText& digest, const std::string& text);
  // The digests other than crc32c need the bytes in order: such blobs should be read so.
  bool ordered() const { return ordered_; }

  // Bytes of the blob from `begin`, counted from its start. What came too early for a hasher is read again from `file`.
  Status Passed(std::uint64_t begin, std::span<const std::byte> bytes, ByteSource& file);
  // The verdict on the whole blob, for a reader that found what is wrong with a part of it: what has not passed yet is read
  // from `file`. Which range completes the blob depends on timing; the error of a damaged blob must not.
  Status Conclude(ByteSource& file);

 private:
  struct Expected {
    DigestText digest;
    std::string text;                // as in the manifest
    std::unique_ptr<Hasher> hasher;  // null where the CRC is put together from parts
  };
  // A range that came before those it follows: a seek table. A hasher reads it again when its turn comes.
  struct Ahead {
    std::uint64_t length = 0;
    std::uint32_t crc = 0;
  };
  void Absorb(std::span<const std::byte> bytes, std::uint32_t crc, std::uint64_t length)
      ZT_REQUIRES(mutex_);
  Status Reread(std::uint64_t end, ByteSource& file) ZT_REQUIRES(mutex_);
  Status AbsorbAhead(ByteSource& file) ZT_REQUIRES(mutex_);
  Status Compare() ZT_REQUIRES(mutex_);

  const std::uint64_t offset_, length_;
  std::vector<Expected> expected_;
  bool ordered_ = false;
  zt::internal::Mutex mutex_;
  std::uint64_t position_ ZT_GUARDED_BY(mutex_) = 0;  // all before it has passed
  std::uint32_t crc_ ZT_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Ahead> ahead_ ZT_GUARDED_BY(mutex_);
  Status failure_ ZT_GUARDED_BY(mutex_);
};

// OK where `digest`, which stands as `text` in the manifest, is that of no bytes.
Status CheckEmpty(const DigestText& digest, const std::string& text);

// A file under the digest of all its bytes, which is its identity: a shard. The bytes are hashed in order, as they pass.
// Bytes before a range that passes are read first; what is left at the end, Finish reads.
class GuardedFile {
 public:
  // The file lies at `begin` of the bytes that pass. For errors: `name` is the file's where it is not all bytes, and `says`
  // states the digest, "the index says xxh3:...".
  GuardedFile(std::uint64_t begin, std::uint64_t length, DigestText digest, std::string name,
              std::string says)
      : begin_(begin),
        length_(length),
        digest_(std::move(digest)),
        name_(std::move(name)),
        says_(std::move(says)) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + length_; }

  // Bytes that were read from `offset`. Thread-safe: a range that meets another thread hashing is left for later.
  Status Passed(std::uint64_t offset, std::span<const std::byte> bytes, ByteSource& all);
  // kDataLoss where any bytes have passed and the file does not have the digest.
  Status Finish(ByteSource& all);

 private:
  Status ReadTo(std::uint64_t end, ByteSource& all);  // under mutex_

  const std::uint64_t begin_, length_;
  const DigestText digest_;
  const std::string name_, says_;
  std::atomic<bool> passed_ = false;
  std::mutex mutex_;                // for what follows
  std::unique_ptr<Hasher> hasher_;  // null before the first bytes
  std::uint64_t position_ = 0;      // all before it is hashed
  std::string found_;               // the digest, once all is hashed
};

// The file's bytes, each blob's seen by its guard.
class GuardedBytes final : public ByteSource {
 public:
  explicit GuardedBytes(std::shared_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}

  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return bytes_->sequential(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override;
  Status CheckUnchanged() override { return bytes_->CheckUnchanged(); }
  void WillRead(std::span<const ByteRange> ranges) override { bytes_->WillRead(ranges); }

  // Before any reading by several threads. `blobs` do not overlap.
  void Guard(std::vector<std::unique_ptr<GuardedBlob>> blobs);
  // After what opening reads, before any other reading. Files come in the order of their bytes.
  void Guard(std::unique_ptr<GuardedFile> file) { files_.push_back(std::move(file)); }
  // Of all files of which bytes have passed.
  Status CheckFiles();
  // The guard of the blob at `offset`, or null.
  GuardedBlob* Find(std::uint64_t offset) const;
  // What is wrong with a range of the blob at `offset`: its digest, where that does not match, before anything else.
  Status Conclude(std::uint64_t offset, const Status& found) const;

 private:
  std::size_t FirstAfter(std::uint64_t offset) const;  // the first blob that ends behind it

  std::shared_ptr<ByteSource> bytes_;
  std::vector<std::unique_ptr<GuardedBlob>> blobs_;  // by offset
  std::vector<std::unique_ptr<GuardedFile>> files_;  // by offset
};

}  // namespace zt::zt_source::internal
