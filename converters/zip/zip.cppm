// zt.convert.zip — zip archives as sources read them: the directory, and entries as byte sources
// whose CRC is checked. npz files are such archives, and so are torch's.
export module zt.convert.zip;

import zt.std;
import zt.core;
import zt.source;

namespace zt::zip::internal {
class CrcCheck;  // of one entry
}

export namespace zt {

// The CRC-32 that zip has, of bytes that follow others whose CRC-32 is `crc`; 0 where none precede.
std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> bytes);
// Of bytes whose CRC-32 is `first`, and `size` more whose CRC-32 is `second`.
std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t size);

// True where a file that begins with `head` (4 bytes suffice) is a zip archive.
bool LooksLikeZip(std::span<const std::byte> head);

// The methods that OpenEntry serves, by their numbers in the format.
enum class ZipMethod : std::uint16_t { kStored = 0, kDeflated = 8 };

// One record of the directory, checked against the entry's local header.
struct ZipEntry {
  std::string name;               // as it stands there: any bytes, "../x" included
  std::uint16_t method = 0;       // a ZipMethod, or a number that OpenEntry refuses
  bool encrypted = false;         // OpenEntry refuses it
  std::uint32_t crc = 0;          // of the decoded bytes
  std::uint64_t stored_size = 0;  // bytes in the archive
  std::uint64_t size = 0;         // decoded bytes
  std::uint64_t local = 0;        // offset of the local header
  std::uint64_t data = 0;         // offset of the entry's bytes in the archive
};

// A zip archive, zip64 included. Thread-safe once it is open.
class ZipArchive {
 public:
  // Reads the central directory and the local headers. kDataLoss where the archive is damaged, where
  // two entries share bytes (that is how a small archive unpacks into a huge one), and where an entry
  // declares more bytes than deflate can hold. kUnimplemented for pipes and archives in several parts.
  static StatusOr<std::shared_ptr<ZipArchive>> Open(std::shared_ptr<ByteSource> bytes);

  // In the order in which they lie in the archive; disjoint and within it.
  inline const std::vector<ZipEntry>& entries() const { return entries_; }
  // The archive's name, for messages.
  inline const std::string& name() const { return bytes_->name(); }
  // See ByteSource::CheckUnchanged.
  inline Status CheckUnchanged() const { return bytes_->CheckUnchanged(); }

  // The decoded bytes of entries()[index]. A stored entry serves any range to any thread, straight
  // from the archive's own source; a deflated one is sequential, and going back makes it start anew.
  // The entry's CRC is computed as the bytes pass and kDataLoss follows the byte that completes a
  // wrong one. kUnimplemented for encrypted entries and other methods.
  StatusOr<std::shared_ptr<ByteSource>> OpenEntry(std::size_t index);

  // Leaves entries unchecked whose CRC is 0, as writers have it that compute none (torch can be told to); how many
  // there are. To be called before OpenEntry.
  std::size_t SkipAbsentCrcs();

  // Reads the entry again if bytes from `offset` on were served whose CRC could not be checked as
  // they passed. To be called once all reading is done; kDataLoss where the CRC is wrong.
  Status Verify(std::size_t index, std::uint64_t offset);

 private:
  void AddCheck(const ZipEntry& entry);

  std::shared_ptr<ByteSource> bytes_;
  std::vector<ZipEntry> entries_;
  std::vector<std::shared_ptr<zip::internal::CrcCheck>>
      checks_;  // one for each entry; null: unchecked
};

}  // namespace zt
