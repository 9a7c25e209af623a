// zt.convert.zip — the directory of a zip archive (PKWARE's APPNOTE 6.3.10,
// sections 4.3 and 4.5.3).
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.zip;

import zt.std;
import zt.core;
import zt.source;

namespace zt {
namespace {

constexpr std::uint32_t kLocalMagic = 0x04034b50;
constexpr std::uint32_t kCentralMagic = 0x02014b50;
constexpr std::uint32_t kEndMagic = 0x06054b50;
constexpr std::uint32_t kEnd64Magic = 0x06064b50;
constexpr std::uint32_t kLocator64Magic = 0x07064b50;
constexpr std::size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56,
                      kLocator64Size = 20;
constexpr std::size_t kMaxComment = 65535, kShortComment = 1000;
constexpr std::uint64_t kMaxDirectory = std::uint64_t{1} << 30;
constexpr std::uint16_t kZip64Extra = 1;
// The value is in the zip64 field.
constexpr std::uint32_t kIn64 = 0xffffffff;
// Deflate's expansion ratio is at most 1032.
constexpr std::uint64_t kMaxRatio = 1032;

std::uint16_t Load16(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint16_t>(zt::internal::LoadLittle(bytes.data() + at, 2));
}
std::uint32_t Load32(std::span<const std::byte> bytes, std::size_t at) {
  return static_cast<std::uint32_t>(zt::internal::LoadLittle(bytes.data() + at, 4));
}
std::uint64_t Load64(std::span<const std::byte> bytes, std::size_t at) {
  return zt::internal::LoadLittle(bytes.data() + at, 8);
}

struct Directory {
  std::uint64_t offset = 0, size = 0, entries = 0;
};

Status Damaged(std::string_view what) {
  return InvalidData("the zip archive is damaged: " + std::string(what));
}

// Replaces `directory`, which was read from the end record at `end`, by the zip64 end record.
// An archive of exactly 65,535 entries may lack that record, although its count has the value
// that refers to one.
Status FollowLocator(ByteSource& bytes, std::uint64_t end, Directory& directory) {
  const bool needed = directory.size == kIn64 || directory.offset == kIn64;
  std::array<std::byte, kLocator64Size> locator{};
  if (end >= kLocator64Size) ZT_RETURN_IF_ERROR(bytes.ReadAt(end - kLocator64Size, locator));
  if (Load32(locator, 0) != kLocator64Magic) {
    return needed ? Damaged("the zip64 locator is missing") : OkStatus();
  }
  const std::uint64_t at = Load64(locator, 8);
  if (at > end - kLocator64Size || end - kLocator64Size - at < kEnd64Size) {
    return Damaged("the zip64 end record lies outside it");
  }
  std::array<std::byte, kEnd64Size> record;
  ZT_RETURN_IF_ERROR(bytes.ReadAt(at, record));
  if (Load32(record, 0) != kEnd64Magic) return Damaged("the zip64 end record is missing");
  if (Load32(record, 16) != 0 || Load32(record, 20) != 0) {
    return Unsupported("zip archives in several parts are not supported");
  }
  directory = {Load64(record, 48), Load64(record, 40), Load64(record, 32)};
  if (directory.offset > at || directory.size > at - directory.offset) {
    return Damaged("the directory lies outside it");
  }
  return OkStatus();
}

// Looks for the end record in the last `tail_size` bytes; nothing if it is not there.
StatusOr<std::optional<Directory>> FindDirectory(ByteSource& bytes, std::uint64_t size,
                                                 std::uint64_t tail_size) {
  std::vector<std::byte> tail(tail_size);
  ZT_RETURN_IF_ERROR(bytes.ReadAt(size - tail_size, tail));
  for (std::size_t at = tail.size() - kEndSize + 1; at-- > 0;) {
    const auto end = std::span<const std::byte>(tail).subspan(at);
    if (Load32(end, 0) != kEndMagic || Load16(end, 20) != end.size() - kEndSize) continue;
    const std::uint64_t end_offset = size - tail_size + at;
    Directory directory{Load32(end, 16), Load32(end, 12), Load16(end, 10)};
    const bool refers =
        directory.entries == 0xffff || directory.size == kIn64 || directory.offset == kIn64;
    if (refers) ZT_RETURN_IF_ERROR(FollowLocator(bytes, end_offset, directory));
    if (!refers && (Load16(end, 4) != 0 || Load16(end, 6) != 0)) {
      return Unsupported("zip archives in several parts are not supported");
    }
    if (directory.offset > end_offset || directory.size > end_offset - directory.offset) {
      return Damaged("the directory lies outside it");
    }
    return std::optional(directory);
  }
  return std::optional<Directory>();
}

// The end record is followed by a comment, which few archives have, and few of these a long one.
StatusOr<Directory> FindDirectory(ByteSource& bytes, std::uint64_t size) {
  if (size < kEndSize) return Damaged("it is too short for one");
  for (const std::size_t comment : {kShortComment, kMaxComment}) {
    ZT_ASSIGN_OR_RETURN(
        const std::optional<Directory> directory,
        FindDirectory(bytes, size, std::min<std::uint64_t>(size, kEndSize + comment)));
    if (directory) return *directory;
  }
  return Damaged("its end record is missing; the file is truncated");
}

// Replaces sizes and offset by those in the zip64 extra field.
Status ReadZip64Extra(std::span<const std::byte> extra, ZipEntry& entry) {
  if (entry.size != kIn64 && entry.stored_size != kIn64 && entry.local != kIn64) return OkStatus();
  while (extra.size() >= 4) {
    const std::size_t length = Load16(extra, 2);
    if (length > extra.size() - 4) break;
    if (Load16(extra, 0) != kZip64Extra) {
      extra = extra.subspan(4 + length);
      continue;
    }
    std::span<const std::byte> field = extra.subspan(4, length);
    for (std::uint64_t* value : {&entry.size, &entry.stored_size, &entry.local}) {
      if (*value != kIn64) continue;
      if (field.size() < 8) return Damaged("a zip64 field is too short");
      *value = Load64(field, 0);
      field = field.subspan(8);
    }
    return OkStatus();
  }
  return OkStatus();  // the value is 0xffffffff itself
}

// Reads the next entry of the directory, and returns its size there.
StatusOr<std::size_t> ReadCentral(std::span<const std::byte> at, ZipEntry& entry) {
  if (at.size() < kCentralSize || Load32(at, 0) != kCentralMagic) {
    return Damaged("an entry of its directory is missing");
  }
  const std::size_t name = Load16(at, 28), extra = Load16(at, 30), comment = Load16(at, 32);
  const std::size_t size = kCentralSize + name + extra + comment;
  if (size > at.size()) return Damaged("an entry of its directory is cut off");
  entry.encrypted = (Load16(at, 8) & 1) != 0;
  entry.method = Load16(at, 10);
  entry.crc = Load32(at, 16);
  entry.stored_size = Load32(at, 20);
  entry.size = Load32(at, 24);
  entry.local = Load32(at, 42);
  entry.name.assign(reinterpret_cast<const char*>(at.data()) + kCentralSize, name);
  if (comment <= ZipEntry::kMostComment)
    entry.comment.assign(reinterpret_cast<const char*>(at.data()) + size - comment, comment);
  ZT_RETURN_IF_ERROR(ReadZip64Extra(at.subspan(kCentralSize + name, extra), entry));
  return size;
}

// Checks the local header against the directory, and finds the entry's data, which must
// end before `limit`.
Status ReadLocal(ByteSource& bytes, std::uint64_t limit, ZipEntry& entry) {
  if (entry.local > limit || limit - entry.local < kLocalSize) {
    return Damaged("it begins outside the archive");
  }
  std::vector<std::byte> head(
      std::min<std::uint64_t>(limit - entry.local, kLocalSize + entry.name.size()));
  ZT_RETURN_IF_ERROR(bytes.ReadAt(entry.local, head));
  if (Load32(head, 0) != kLocalMagic) return Damaged("its local header is missing");
  const std::size_t name = Load16(head, 26), extra = Load16(head, 28);
  const std::string_view local_name(reinterpret_cast<const char*>(head.data()) + kLocalSize,
                                    head.size() - kLocalSize);
  if (name != entry.name.size() || local_name != entry.name) {
    return Damaged("the directory and the local header name it differently");
  }
  if (Load16(head, 8) != entry.method) {
    return Damaged("the directory and the local header differ on its method");
  }
  entry.data = entry.local + kLocalSize + name + extra;
  if (entry.data > limit || entry.stored_size > limit - entry.data) {
    return Damaged("it ends outside the archive");
  }
  if (entry.method == static_cast<std::uint16_t>(ZipMethod::kStored) && !entry.encrypted &&
      entry.stored_size != entry.size) {
    return Damaged("it is stored, but its two sizes differ");
  }
  if (entry.method == static_cast<std::uint16_t>(ZipMethod::kDeflated) &&
      entry.size / kMaxRatio > entry.stored_size) {
    return Damaged("it declares " + std::to_string(entry.size) + " bytes, more than " +
                   std::to_string(entry.stored_size) + " deflated ones can hold");
  }
  return OkStatus();
}

std::string EntryContext(const ZipEntry& entry) { return "entry " + Quote(entry.name); }

}  // namespace

// An archive begins with an entry, or with the end record if it is empty.
bool LooksLikeZip(std::span<const std::byte> head) {
  if (head.size() < 4) return false;
  const std::uint32_t magic = Load32(head, 0);
  return magic == kLocalMagic || magic == kEndMagic;
}

StatusOr<std::shared_ptr<ZipArchive>> ZipArchive::Open(std::shared_ptr<ByteSource> bytes) {
  ZT_RETURN_IF_ERROR(KnownSize(*bytes, "a zip archive").status());
  auto archive = std::make_shared<ZipArchive>();
  archive->bytes_ = std::move(bytes);
  ByteSource& from = *archive->bytes_;
  ZT_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(from, *from.size()));
  if (directory.size > kMaxDirectory) return Unsupported("the zip directory exceeds 1 GiB");
  std::vector<std::byte> records(directory.size);
  ZT_RETURN_IF_ERROR(from.ReadAt(directory.offset, records));
  std::span<const std::byte> rest = records;
  while (!rest.empty()) {
    ZipEntry entry;
    ZT_ASSIGN_OR_RETURN(const std::size_t used, ReadCentral(rest, entry));
    rest = rest.subspan(used);
    archive->entries_.push_back(std::move(entry));
  }
  auto& entries = archive->entries_;
  if (entries.size() != directory.entries) {
    return Damaged("its directory has " + std::to_string(entries.size()) + " entries, " +
                   std::to_string(directory.entries) + " are announced");
  }
  std::sort(entries.begin(), entries.end(),
            [](const ZipEntry& a, const ZipEntry& b) { return a.local < b.local; });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    ZipEntry& entry = entries[i];
    ZT_RETURN_IF_ERROR(Annotate(ReadLocal(from, directory.offset, entry), EntryContext(entry)));
    // Entries that share bytes make a small archive unpack into a huge one.
    if (i > 0 && entries[i - 1].data + entries[i - 1].stored_size > entry.local) {
      return Damaged(EntryContext(entries[i - 1]) + " overlaps " + EntryContext(entry));
    }
    archive->AddCheck(entry);
  }
  return archive;
}

}  // namespace zt
