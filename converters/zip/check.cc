// zt.convert.zip:check — the CRC-32 of an entry, put together from pieces.
module;

#include <libdeflate.h>
#include <zlib.h>

module zt.convert.zip;

import zt.std;
import :check;
import zt.core;

namespace zt {

// zlib's takes several times as long as the rest of reading an entry.
std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  return bytes.empty() ? crc : ::libdeflate_crc32(crc, bytes.data(), bytes.size());
}

std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t size) {
  return static_cast<std::uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(size)));
}

namespace zip::internal {
namespace {

constexpr std::size_t kMaxPieces = 1 << 16;

}  // namespace

Status CrcCheck::CompareLocked(std::uint32_t crc) {
  pieces_.clear();
  checked_ = true;
  if (crc == expected_) return OkStatus();
  checked_ = false;
  irregular_ = true;
  return InvalidData("the entry's CRC-32 does not match: its bytes are damaged");
}

void CrcCheck::Touch(std::uint64_t end) {
  const std::lock_guard lock(mutex_);
  furthest_ = std::max(furthest_, end);
}

Status CrcCheck::SetWhole(std::uint32_t crc) {
  const std::lock_guard lock(mutex_);
  return CompareLocked(crc);
}

CrcCheck::Piece CrcCheck::JoinLocked(const Piece& first, const Piece& second) {
  if (second.size != shift_size_) {
    shift_ = static_cast<std::uint32_t>(::crc32_combine_gen(static_cast<z_off_t>(second.size)));
    shift_size_ = second.size;
  }
  const uLong crc = ::crc32_combine_op(first.crc, second.crc, shift_);
  return {first.size + second.size, static_cast<std::uint32_t>(crc)};
}

Status CrcCheck::Add(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return OkStatus();
  {
    const std::lock_guard lock(mutex_);
    furthest_ = std::max<std::uint64_t>(furthest_, offset + bytes.size());
    if (checked_ || irregular_) return OkStatus();
  }
  Piece piece{bytes.size(), Crc32(0, bytes)};
  const std::lock_guard lock(mutex_);
  if (checked_ || irregular_) return OkStatus();
  auto next = pieces_.lower_bound(offset);
  auto previous = next == pieces_.begin() ? pieces_.end() : std::prev(next);
  if ((next != pieces_.end() && next->first < offset + piece.size) ||
      (previous != pieces_.end() && previous->first + previous->second.size > offset) ||
      pieces_.size() >= kMaxPieces) {
    irregular_ = true;
    pieces_.clear();
    return OkStatus();
  }
  if (next != pieces_.end() && next->first == offset + piece.size) {
    piece = JoinLocked(piece, next->second);
    pieces_.erase(next);
  }
  if (previous != pieces_.end() && previous->first + previous->second.size == offset) {
    offset = previous->first;
    piece = JoinLocked(previous->second, piece);
  }
  pieces_[offset] = piece;
  return piece.size == size_ ? CompareLocked(piece.crc) : OkStatus();
}

bool CrcCheck::Pending(std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  return !checked_ && furthest_ > offset;
}

}  // namespace zip::internal
}  // namespace zt
