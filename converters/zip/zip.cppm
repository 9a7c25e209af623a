// zt.convert.zip — reads zip archives: the directory, and entries as byte sources with checked
// CRCs. npz files and torch's checkpoints are zip archives.
export module zt.convert.zip;

import zt.std;
import zt.core;
import zt.source;

namespace zt::zip::internal {
class CrcCheck;  // of one entry
}

export namespace zt {

// The CRC-32 of zip. `crc` is that of the preceding bytes, 0 if there are none.
std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> bytes);
// The CRC-32 of bytes with CRC-32 `first` followed by `size` bytes with CRC-32 `second`.
std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t size);

// True if a file that begins with `head` (4 bytes suffice) is a zip archive.
bool LooksLikeZip(std::span<const std::byte> head);

// The compression methods that OpenEntry supports, by their numbers in the format.
enum class ZipMethod : std::uint16_t { kStored = 0, kDeflated = 8 };

// One record of the directory, checked against the entry's local header.
struct ZipEntry {
  std::string name;               // unmodified: any bytes, even "../x"
  std::uint16_t method = 0;       // a ZipMethod; OpenEntry refuses other numbers
  bool encrypted = false;         // OpenEntry refuses it
  std::uint32_t crc = 0;          // of the decoded bytes
  std::uint64_t stored_size = 0;  // size in the archive
  std::uint64_t size = 0;         // decoded size
  std::uint64_t local = 0;        // offset of the local header
  std::uint64_t data = 0;         // offset of the entry's bytes in the archive
  std::string comment = {};       // if it has at most kMostComment bytes
  static constexpr std::size_t kMostComment = 64;
};

// A zip archive, zip64 included. Thread-safe once open.
class ZipArchive {
 public:
  // Reads the central directory and the local headers. kDataLoss if the archive is damaged, if two
  // entries share bytes (this makes a small archive unpack into a huge one), or if an entry exceeds
  // deflate's expansion ratio. kUnimplemented for pipes and multi-part archives.
  static StatusOr<std::shared_ptr<ZipArchive>> Open(std::shared_ptr<ByteSource> bytes);

  // Sorted by position in the archive. They do not overlap.
  inline const std::vector<ZipEntry>& entries() const { return entries_; }
  // The archive's name, for messages.
  inline const std::string& name() const { return bytes_->name(); }
  // See ByteSource::CheckUnchanged.
  inline Status CheckUnchanged() const { return bytes_->CheckUnchanged(); }

  // The decoded bytes of entries()[index]. A stored entry serves any range to any thread, directly
  // from the archive's source. A deflated entry is sequential; reading backwards inflates it again
  // from the start. The entry's CRC is computed while bytes are read; the read of the last missing
  // byte returns kDataLoss if the CRC is wrong. kUnimplemented for encrypted entries and other
  // compression methods.
  StatusOr<std::shared_ptr<ByteSource>> OpenEntry(std::size_t index);

  // Disables the check of entries whose CRC is 0, as stored by writers that compute none (an option
  // of torch). Returns the number of these entries. Call it before OpenEntry.
  std::size_t SkipAbsentCrcs();

  // Reads the entry again if bytes from `offset` on were served, but the CRC could not be computed
  // from the reads. Call it after all reads; kDataLoss if the CRC is wrong.
  Status Verify(std::size_t index, std::uint64_t offset);

 private:
  void AddCheck(const ZipEntry& entry);

  std::shared_ptr<ByteSource> bytes_;
  std::vector<ZipEntry> entries_;
  // By entry; null: not checked.
  std::vector<std::shared_ptr<zip::internal::CrcCheck>> checks_;
};

}  // namespace zt
