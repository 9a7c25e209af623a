// zt.convert.zip:check — the CRC of an entry whose bytes are read in any order. Internal to the module.
module zt.convert.zip:check;

import zt.std;
import zt.core;

namespace zt::zip::internal {

// What is known of an entry's CRC: pieces may be read in any order, by any thread, and are combined.
class CrcCheck {
 public:
  CrcCheck(std::uint32_t expected, std::uint64_t size) : expected_(expected), size_(size) {}

  // Notes that these bytes were read from `offset`. kDataLoss once all have been and the CRC differs.
  Status Add(std::uint64_t offset, std::span<const std::byte> bytes);
  // For a reader that computes the CRC itself: it has read up to byte `end`.
  void Touch(std::uint64_t end);
  // For such a reader: `crc` is that of the whole entry. kDataLoss where it differs.
  Status SetWhole(std::uint32_t crc);
  // True where bytes from `offset` on were read but not all of the entry was checked.
  bool Pending(std::uint64_t offset);

 private:
  struct Piece {
    std::uint64_t size;
    std::uint32_t crc;
  };
  Status CompareLocked(std::uint32_t crc);
  Piece JoinLocked(const Piece& first, const Piece& second);

  const std::uint32_t expected_;
  const std::uint64_t size_;
  std::mutex mutex_;
  std::map<std::uint64_t, Piece> pieces_;  // by offset, none touching another
  std::uint64_t furthest_ = 0;
  bool checked_ = false;
  bool irregular_ = false;  // pieces overlap, or are too many
  // What zlib knows of a length, kept for the next piece: those of a strided view are alike.
  std::uint64_t shift_size_ = ~std::uint64_t{0};
  std::uint32_t shift_ = 0;
};

}  // namespace zt::zip::internal
