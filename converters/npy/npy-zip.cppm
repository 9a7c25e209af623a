// zt.convert.npy:zip — zip archives: the directory, and entries as byte sources with their CRC
// checked.
module;

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

module zt.convert.npy:zip;

import zt.core;
import zt.source;

namespace zt::npy::internal {

enum class ZipMethod : std::uint16_t { kStored = 0, kDeflated = 8 };

struct ZipEntry {
  std::string name;
  std::uint16_t method = 0;
  bool encrypted = false;
  std::uint32_t crc = 0;
  std::uint64_t stored_size = 0;  // in the archive
  std::uint64_t size = 0;         // decoded
  std::uint64_t local = 0;        // offset of the local header
  std::uint64_t data = 0;         // offset of the bytes
};

// What is known of an entry's CRC: pieces may be read in any order, by any thread, and are
// combined.
class CrcCheck {
 public:
  CrcCheck(std::uint32_t expected, std::uint64_t size) : expected_(expected), size_(size) {}

  // Notes that these bytes were read from `offset`. kDataLoss once all have been and the CRC
  // differs.
  Status Add(std::uint64_t offset, std::span<const std::byte> bytes);
  // For a reader that computes the CRC itself: it has come to byte `end`; the CRC of the whole.
  void Touch(std::uint64_t end);
  Status SetWhole(std::uint32_t crc);
  // True where bytes from `offset` on were read but not all of the entry was checked.
  bool Pending(std::uint64_t offset);

 private:
  struct Piece {
    std::uint64_t size;
    std::uint32_t crc;
  };
  Status CompareLocked(std::uint32_t crc);

  const std::uint32_t expected_;
  const std::uint64_t size_;
  std::mutex mutex_;
  std::map<std::uint64_t, Piece> pieces_;  // by offset, none touching another
  std::uint64_t furthest_ = 0;
  bool checked_ = false;
  bool irregular_ = false;  // pieces overlap, or are too many
};

// A zip archive, zip64 included. Thread-safe once open.
class ZipArchive {
 public:
  // Reads the central directory and the local headers. Sequential sources are refused.
  static StatusOr<std::unique_ptr<ZipArchive>> Open(std::shared_ptr<ByteSource> bytes);

  // In the order in which they lie in the archive; disjoint and within it.
  inline const std::vector<ZipEntry>& entries() const { return entries_; }
  inline const std::string& name() const { return bytes_->name(); }
  inline Status CheckUnchanged() const { return bytes_->CheckUnchanged(); }

  // The decoded bytes of an entry. A stored one serves any range to any thread; a deflated one is
  // sequential, and going back makes it start anew. Encrypted entries and other methods are
  // kUnimplemented.
  StatusOr<std::shared_ptr<ByteSource>> OpenEntry(std::size_t index);

  // Reads the entry again if bytes from `offset` on were served whose CRC could not be checked.
  Status Verify(std::size_t index, std::uint64_t offset);

 private:
  std::shared_ptr<ByteSource> bytes_;
  std::vector<ZipEntry> entries_;
  std::vector<std::shared_ptr<CrcCheck>> checks_;
};

}  // namespace zt::npy::internal
