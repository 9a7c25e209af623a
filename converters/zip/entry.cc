// zt.convert.zip — the bytes of one entry, stored or deflated, and its CRC-32, combined
// from those of ranges.
module;

#include <libdeflate.h>
#include <zlib.h>

#include "core/status_macros.h"

module zt.convert.zip;

import zt.std;
import zt.core;
import zt.source;

namespace zt {

namespace zip::internal {
namespace {

constexpr std::size_t kMaxRanges = 1 << 16;

}  // namespace

// The state of an entry's CRC check: ranges may be read in any order, by any thread;
// their CRCs are combined.
class CrcCheck {
 public:
  CrcCheck(std::uint32_t expected, std::uint64_t size) : expected_(expected), size_(size) {}

  // Adds bytes read from `offset`. kDataLoss if the entry is now complete and its CRC differs.
  Status Add(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (bytes.empty()) return OkStatus();
    {
      const std::lock_guard lock(mutex_);
      furthest_ = std::max<std::uint64_t>(furthest_, offset + bytes.size());
      if (checked_ || irregular_) return OkStatus();
    }
    CheckedRange range{bytes.size(), Crc32(0, bytes)};
    const std::lock_guard lock(mutex_);
    if (checked_ || irregular_) return OkStatus();
    auto next = ranges_.lower_bound(offset);
    auto previous = next == ranges_.begin() ? ranges_.end() : std::prev(next);
    if ((next != ranges_.end() && next->first < offset + range.size) ||
        (previous != ranges_.end() && previous->first + previous->second.size > offset) ||
        ranges_.size() >= kMaxRanges) {
      irregular_ = true;
      ranges_.clear();
      return OkStatus();
    }
    if (next != ranges_.end() && next->first == offset + range.size) {
      range = JoinLocked(range, next->second);
      ranges_.erase(next);
    }
    if (previous != ranges_.end() && previous->first + previous->second.size == offset) {
      offset = previous->first;
      range = JoinLocked(previous->second, range);
    }
    ranges_[offset] = range;
    return range.size == size_ ? CompareLocked(range.crc) : OkStatus();
  }
  // For a reader that computes the CRC itself: it has read up to offset `end`.
  void Touch(std::uint64_t end) {
    const std::lock_guard lock(mutex_);
    furthest_ = std::max(furthest_, end);
  }
  // For such a reader: `crc` is the CRC of the whole entry. kDataLoss if it differs.
  Status SetWhole(std::uint32_t crc) {
    const std::lock_guard lock(mutex_);
    return CompareLocked(crc);
  }
  // True if bytes from `offset` on were read, but the CRC of the entry was not checked.
  bool Pending(std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    return !checked_ && furthest_ > offset;
  }

 private:
  struct CheckedRange {
    std::uint64_t size;
    std::uint32_t crc;
  };
  Status CompareLocked(std::uint32_t crc) {
    ranges_.clear();
    checked_ = true;
    if (crc == expected_) return OkStatus();
    checked_ = false;
    irregular_ = true;
    return InvalidData("the entry's CRC-32 does not match: its bytes are damaged");
  }
  CheckedRange JoinLocked(const CheckedRange& first, const CheckedRange& second) {
    if (second.size != shift_size_) {
      shift_ = static_cast<std::uint32_t>(::crc32_combine_gen(static_cast<z_off_t>(second.size)));
      shift_size_ = second.size;
    }
    const uLong crc = ::crc32_combine_op(first.crc, second.crc, shift_);
    return {first.size + second.size, static_cast<std::uint32_t>(crc)};
  }

  const std::uint32_t expected_;
  const std::uint64_t size_;
  std::mutex mutex_;
  std::map<std::uint64_t, CheckedRange> ranges_;  // by offset; disjoint and not adjacent
  std::uint64_t furthest_ = 0;
  bool checked_ = false;
  bool irregular_ = false;  // ranges overlap, or are too many
  // zlib's operator for the last length: ranges of a strided view often have equal lengths.
  std::uint64_t shift_size_ = ~std::uint64_t{0};
  std::uint32_t shift_ = 0;
};

}  // namespace zip::internal

namespace {

using zip::internal::CrcCheck;

constexpr std::size_t kInputBuffer = std::size_t{256} << 10;

Status EndsEarly(std::uint64_t offset, std::uint64_t size) {
  return InvalidData("the entry ends at byte " + std::to_string(size) + ", byte " +
                     std::to_string(offset) + " was expected");
}

// An entry that is damaged because the archive was written to says so.
Status OrChanged(const Status& status, ByteSource& archive) {
  if (status.code() == StatusCode::kDataLoss) ZT_RETURN_IF_ERROR(archive.CheckUnchanged());
  return status;
}

class StoredEntry final : public ByteSource {
 public:
  StoredEntry(std::shared_ptr<ByteSource> archive, const ZipEntry& entry,
              std::shared_ptr<CrcCheck> check)
      : archive_(std::move(archive)),
        data_(entry.data),
        size_(entry.size),
        check_(std::move(check)) {}

  const std::string& name() const override { return archive_->name(); }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size_ || out.size() > size_ - offset) return EndsEarly(offset + out.size(), size_);
    ZT_RETURN_IF_ERROR(archive_->ReadAt(data_ + offset, out));
    return check_ == nullptr ? OkStatus() : OrChanged(check_->Add(offset, out), *archive_);
  }
  void WillRead(std::span<const ByteRange> ranges) override {
    std::vector<ByteRange> moved(ranges.begin(), ranges.end());
    for (ByteRange& range : moved) range = {data_ + range.begin, data_ + range.end};
    archive_->WillRead(moved);
  }

 private:
  std::shared_ptr<ByteSource> archive_;
  std::uint64_t data_, size_;
  std::shared_ptr<CrcCheck> check_;
};

// Inflates while it is read. Holds the input buffer and zlib's window only between the
// first byte and the last.
class DeflatedEntry final : public ByteSource {
 public:
  DeflatedEntry(std::shared_ptr<ByteSource> archive, const ZipEntry& entry,
                std::shared_ptr<CrcCheck> check)
      : archive_(std::move(archive)),
        data_(entry.data),
        stored_size_(entry.stored_size),
        size_(entry.size),
        check_(std::move(check)) {}
  ~DeflatedEntry() override { Stop(); }
  DeflatedEntry(const DeflatedEntry&) = delete;
  DeflatedEntry& operator=(const DeflatedEntry&) = delete;

  const std::string& name() const override { return archive_->name(); }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return true; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size_ || out.size() > size_ - offset) return EndsEarly(offset + out.size(), size_);
    return OrChanged(Fill(offset, out), *archive_);
  }

 private:
  Status Fill(std::uint64_t offset, std::span<std::byte> out) {
    if (out.empty()) return OkStatus();
    if (!active_ || offset < position_) ZT_RETURN_IF_ERROR(Start());
    std::array<std::byte, 16384> skipped;
    while (position_ < offset) {
      const auto step = std::min<std::uint64_t>(offset - position_, skipped.size());
      ZT_RETURN_IF_ERROR(Inflate(std::span(skipped).first(step)));
    }
    ZT_RETURN_IF_ERROR(Inflate(out));
    if (check_ != nullptr) check_->Touch(position_);
    return position_ == size_ ? CheckEnd() : OkStatus();
  }

  Status Start() {
    Stop();
    stream_ = {};
    // Negative: raw deflate, without zlib's header. 15: the largest window.
    if (::inflateInit2(&stream_, -15) != Z_OK) return IoError("out of memory for zlib");
    active_ = true;
    input_.resize(std::min<std::uint64_t>(stored_size_, kInputBuffer));
    fetched_ = position_ = 0;
    ended_ = false;
    crc_ = 0;
    return OkStatus();
  }

  void Stop() {
    if (active_) ::inflateEnd(&stream_);
    active_ = false;
    std::vector<std::byte>().swap(input_);
  }

  // Fills `out`, and decodes no byte beyond it.
  Status Inflate(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      ZT_ASSIGN_OR_RETURN(const std::size_t got, InflateSome(out.subspan(done)));
      if (got == 0) {
        return InvalidData("the deflated data ends at byte " + std::to_string(position_ + done) +
                           " of the " + std::to_string(size_) + " declared");
      }
      done += got;
    }
    crc_ = Crc32(crc_, out);
    position_ += out.size();
    return OkStatus();
  }

  // Decodes at least one byte; returns 0 at the end of the data.
  StatusOr<std::size_t> InflateSome(std::span<std::byte> out) {
    const auto room =
        static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = room;
    while (stream_.avail_out == room && !ended_) {
      if (stream_.avail_in == 0 && fetched_ < stored_size_) {
        const auto take = std::min<std::uint64_t>(input_.size(), stored_size_ - fetched_);
        ZT_RETURN_IF_ERROR(archive_->ReadAt(data_ + fetched_, std::span(input_).first(take)));
        fetched_ += take;
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(take);
      }
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR && stream_.avail_in == 0 && fetched_ == stored_size_) {
        break;  // nothing left to inflate
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return InvalidData(
            "the deflated data is damaged" +
            (stream_.msg == nullptr ? std::string() : ": " + std::string(stream_.msg)));
      }
    }
    return room - stream_.avail_out;
  }

  // Called after the last declared byte: there must be no more data, and the CRC must match.
  Status CheckEnd() {
    std::array<std::byte, 1> more;
    ZT_ASSIGN_OR_RETURN(const std::size_t got, InflateSome(more));
    if (got != 0) {
      return InvalidData("the deflated data holds more than the " + std::to_string(size_) +
                         " bytes declared");
    }
    if (!ended_) return InvalidData("the deflated data does not end where it should");
    if (fetched_ - stream_.avail_in != stored_size_) {
      return InvalidData(std::to_string(stored_size_ - fetched_ + stream_.avail_in) +
                         " bytes follow the deflated data");
    }
    Stop();
    return check_ == nullptr ? OkStatus() : check_->SetWhole(crc_);
  }

  std::shared_ptr<ByteSource> archive_;
  const std::uint64_t data_, stored_size_, size_;
  std::shared_ptr<CrcCheck> check_;
  z_stream stream_{};
  bool active_ = false;  // stream_ and input_ are in use
  bool ended_ = false;
  std::vector<std::byte> input_;
  std::uint64_t fetched_ = 0;   // of stored_size_
  std::uint64_t position_ = 0;  // of size_
  std::uint32_t crc_ = 0;
};

std::string MethodName(std::uint16_t method) {
  switch (method) {
    case 9:
      return "deflate64";
    case 12:
      return "bzip2";
    case 14:
      return "lzma";
    case 93:
      return "zstd";
    case 95:
      return "xz";
    default:
      return "method " + std::to_string(method);
  }
}

}  // namespace

StatusOr<std::shared_ptr<ByteSource>> ZipArchive::OpenEntry(std::size_t index) {
  const ZipEntry& entry = entries_[index];
  if (entry.encrypted) return Unsupported("the entry is encrypted");
  switch (static_cast<ZipMethod>(entry.method)) {
    case ZipMethod::kStored:
      return std::make_shared<StoredEntry>(bytes_, entry, checks_[index]);
    case ZipMethod::kDeflated:
      return std::make_shared<DeflatedEntry>(bytes_, entry, checks_[index]);
  }
  return Unsupported("the entry is compressed with " + MethodName(entry.method) +
                     "; stored and deflated entries are supported");
}

void ZipArchive::AddCheck(const ZipEntry& entry) {
  checks_.push_back(std::make_shared<CrcCheck>(entry.crc, entry.size));
}

std::size_t ZipArchive::SkipAbsentCrcs() {
  std::size_t absent = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].crc != 0 || entries_[i].size == 0) continue;
    checks_[i].reset();
    ++absent;
  }
  return absent;
}

Status ZipArchive::Verify(std::size_t index, std::uint64_t offset) {
  if (checks_[index] == nullptr || !checks_[index]->Pending(offset)) return OkStatus();
  // The shared CrcCheck has given up, so this pass uses its own.
  const ZipEntry& entry = entries_[index];
  auto check = std::make_shared<CrcCheck>(entry.crc, entry.size);
  std::shared_ptr<ByteSource> bytes;
  if (entry.method == static_cast<std::uint16_t>(ZipMethod::kStored)) {
    bytes = std::make_shared<StoredEntry>(bytes_, entry, check);
  } else {
    bytes = std::make_shared<DeflatedEntry>(bytes_, entry, check);
  }
  std::vector<std::byte> buffer(std::min<std::uint64_t>(entry.size, std::uint64_t{1} << 20));
  for (std::uint64_t at = 0; at < entry.size;) {
    const auto step = std::min<std::uint64_t>(buffer.size(), entry.size - at);
    ZT_RETURN_IF_ERROR(bytes->ReadAt(at, std::span(buffer).first(step)));
    at += step;
  }
  return checks_[index]->SetWhole(entry.crc);  // so that another Finish does not read it again
}

// libdeflate: with zlib's crc32 it would take several times as long as the rest
// of reading an entry.
std::uint32_t Crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  return bytes.empty() ? crc : ::libdeflate_crc32(crc, bytes.data(), bytes.size());
}

std::uint32_t CombineCrc32(std::uint32_t first, std::uint32_t second, std::uint64_t size) {
  return static_cast<std::uint32_t>(::crc32_combine(first, second, static_cast<z_off_t>(size)));
}

}  // namespace zt
