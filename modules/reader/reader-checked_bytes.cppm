// zt.reader:checked_bytes — a ByteSource that checks blobs against their digests as the bytes pass.
// Internal.
module;

#include "core/thread_annotations.h"

module zt.reader:checked_bytes;

import zt.std;
import zt.core;
import zt.digest;
import zt.source;

namespace zt::reader::internal {

// A blob, checked against the digests of its components. Ranges may pass in any order and from many
// threads. When they have covered the whole blob, the digests are compared; after a mismatch every
// read of the blob returns the error.
class CheckedBlob {
 public:
  CheckedBlob(std::uint64_t offset, std::uint64_t length) : offset_(offset), length_(length) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t length() const { return length_; }
  // Adds a digest, which is written as `text` in the manifest. Called before any reading. kDataLoss
  // if it contradicts another one of the same algorithm.
  Status Expect(const DigestText& digest, const std::string& text);
  // True if a digest needs the bytes in order, as all but crc32c do. Such blobs should be read in
  // order.
  bool ordered() const { return ordered_; }

  // Takes the bytes of the blob from `begin`, an offset within it. Bytes that passed too early for
  // a hasher are read again from `file`.
  Status Passed(std::uint64_t begin, std::span<const std::byte> bytes, ByteSource& file);
  // Decides about the whole blob after an error in a part of it: the bytes that have not passed are
  // read from `file`. So a damaged blob always gives the same error, whichever range completes it.
  Status Conclude(ByteSource& file);

 private:
  struct Expected {
    DigestText digest;
    std::string text;                // as the manifest writes it
    std::unique_ptr<Hasher> hasher;  // null if the CRC is combined from parts
  };
  // A range that passed before its predecessors, such as a seek table. A hasher reads it again in
  // its turn.
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
  std::uint64_t position_ ZT_GUARDED_BY(mutex_) = 0;  // all bytes before it have passed
  std::uint32_t crc_ ZT_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Ahead> ahead_ ZT_GUARDED_BY(mutex_);
  Status failure_ ZT_GUARDED_BY(mutex_);
};

// OK if `digest`, which is written as `text` in the manifest, is the digest of no bytes.
Status CheckEmpty(const DigestText& digest, const std::string& text);

// A file, such as a shard, checked against the digest of all its bytes. The bytes are hashed in
// order as they pass. If a range passes ahead of the position, the bytes before it are read first;
// Finish reads the remaining bytes.
class CheckedFile {
 public:
  // The file begins at `begin` of all bytes that pass. For errors: `name` is its name if there are
  // other files among the bytes, and `says` is the source of the digest, "the index says xxh3:...".
  CheckedFile(std::uint64_t begin, std::uint64_t length, DigestText digest, std::string name,
              std::string says)
      : begin_(begin),
        length_(length),
        digest_(std::move(digest)),
        name_(std::move(name)),
        says_(std::move(says)) {}

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + length_; }

  // Takes bytes that were read from `offset`. Thread-safe: if another thread is hashing, the range
  // is left to Finish.
  Status Passed(std::uint64_t offset, std::span<const std::byte> bytes, ByteSource& all);
  // kDataLoss if any bytes have passed and the file does not have the digest.
  Status Finish(ByteSource& all);

 private:
  Status ReadTo(std::uint64_t end, ByteSource& all);  // under mutex_

  const std::uint64_t begin_, length_;
  const DigestText digest_;
  const std::string name_, says_;
  std::atomic<bool> passed_ = false;
  std::mutex mutex_;                // guards the members below
  std::unique_ptr<Hasher> hasher_;  // null before the first bytes
  std::uint64_t position_ = 0;      // all bytes before it are hashed
  std::string found_;               // the digest, once all bytes are hashed
};

// The bytes of the file. Those of a blob pass through its guard.
class CheckedBytes final : public ByteSource {
 public:
  explicit CheckedBytes(std::shared_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {}
  CheckedBytes(const CheckedBytes&) = delete;
  CheckedBytes& operator=(const CheckedBytes&) = delete;

  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return bytes_->sequential(); }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override;
  Status CheckUnchanged() override { return bytes_->CheckUnchanged(); }
  std::optional<int> descriptor() const override { return bytes_->descriptor(); }
  void WillRead(std::span<const ByteRange> ranges) override { bytes_->WillRead(ranges); }

  // Sets the guards of the blobs, which do not overlap. Called before several threads read.
  void Guard(std::vector<std::unique_ptr<CheckedBlob>> blobs);
  // Adds the guard of a file, in the order of offsets. Called after opening and before any other
  // reading.
  void Guard(std::unique_ptr<CheckedFile> file) { files_.push_back(std::move(file)); }
  // Finishes all guards of files, or those in which one of the offsets lies.
  Status CheckFiles();
  Status CheckFiles(std::span<const std::uint64_t> offsets);
  // Reads a blob past its guard, to which Check hands the bytes.
  std::shared_ptr<UnorderedReader> UnorderedReaderOf(CheckedBlob& blob);
  // The guard of the blob at `offset`, or null.
  CheckedBlob* Find(std::uint64_t offset) const;
  // The error for a range of the blob at `offset`: that of the digest if it does not match, else
  // `found`.
  Status Conclude(std::uint64_t offset, const Status& found) const;

 private:
  // The same bytes, past the guards of blobs.
  class Unguarded final : public ByteSource {
   public:
    explicit Unguarded(CheckedBytes& all) : all_(all) {}
    const std::string& name() const override { return all_.name(); }
    std::optional<std::uint64_t> size() const override { return all_.size(); }
    bool sequential() const override { return all_.sequential(); }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override;

   private:
    CheckedBytes& all_;
  };
  Status PassToFiles(std::uint64_t offset, std::span<const std::byte> bytes);
  // The index of the first blob, or file, that ends after `offset`.
  std::size_t FirstAfter(std::uint64_t offset) const;
  std::size_t FileAfter(std::uint64_t offset) const;

  std::shared_ptr<ByteSource> bytes_;
  Unguarded unguarded_{*this};
  std::vector<std::unique_ptr<CheckedBlob>> blobs_;  // by offset
  std::vector<std::unique_ptr<CheckedFile>> files_;  // by offset
};

}  // namespace zt::reader::internal
