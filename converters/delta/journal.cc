// zt.convert.delta:journal — all new bytes go to a file beside a checkpoint first, which is replayed
// until it is gone: after a kill at any moment there is one version or the other.
//
//   "ztapply2", then blocks: u32 file, u32 bytes of runs, u64 offset and u64 length of a range, u64 XXH3 of
//   what it becomes, runs: u16 skipped, u16 bytes, bytes; and what they were, if 2^31 was added to the file
//   the files: u32 length of the name, name, u64 size before, u64 size; u64 offset of their list, u64 XXH3
//   of all before
module;

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import :journal;
import zt.core;
import zt.digest;
import zt.sink;
import zt.source;

namespace zt::delta::internal {
namespace {

namespace fs = std::filesystem;
using zt::internal::LoadLittle;
using zt::internal::StoreLittle;
constexpr std::string_view kMagic = "ztapply2";
// Runs with fewer equal bytes between them than a head has are one.
constexpr std::size_t kBlockHead = 32, kRunHead = 4, kEnd = 16;
constexpr std::uint32_t kKeepsOld = std::uint32_t{1} << 31;

void Put(Octets& out, std::uint64_t number, std::size_t width) {
  out.resize(out.size() + width);
  StoreLittle(number, width, out.data() + out.size() - width);
}

// The XXH3 of what was hashed.
std::uint64_t Sum(Hasher& hasher) {
  const std::string text = hasher.Finish();
  return std::stoull(text.substr(text.find(':') + 1), nullptr, 16);
}

Status BadJournal() {
  return InvalidData("it is not a journal of 'ztstream apply', or is damaged");
}

// The list at the end, after the digest of all was compared.
StatusOr<std::vector<PatchedFile>> ReadFiles(ByteSource& journal, std::uint64_t& end) {
  const std::uint64_t bytes = journal.size().value_or(0);
  std::array<std::byte, 16> tail;
  std::array<std::byte, 8> magic;
  if (bytes < kMagic.size() + kEnd) return BadJournal();
  ZT_RETURN_IF_ERROR(journal.ReadAt(0, magic));
  ZT_RETURN_IF_ERROR(journal.ReadAt(bytes - tail.size(), tail));
  const auto hasher = MakeHasher(DigestKind::kXxh3);
  ZT_RETURN_IF_ERROR(ReadThrough(journal, 0, bytes - 8, [&](std::uint64_t, auto piece) {
    hasher->Update(piece);
    return true;
  }));
  end = LoadLittle(tail.data(), 8);
  if (std::memcmp(magic.data(), kMagic.data(), magic.size()) != 0 ||
      Sum(*hasher) != LoadLittle(&tail[8], 8) || end > bytes - kEnd)
    return BadJournal();
  Octets list(bytes - kEnd - end);
  ZT_RETURN_IF_ERROR(journal.ReadAt(end, list));
  std::vector<PatchedFile> files;
  for (std::span<const std::byte> rest(list); !rest.empty();) {
    const std::uint64_t length = rest.size() < 4 ? rest.size() : LoadLittle(rest.data(), 4);
    if (rest.size() < 20 || length > rest.size() - 20) return BadJournal();
    PatchedFile& file = files.emplace_back();
    file.name.assign(reinterpret_cast<const char*>(rest.data()) + 4, length);
    file.before = LoadLittle(&rest[4 + length], 8);
    file.bytes = LoadLittle(&rest[12 + length], 8);
    rest = rest.subspan(20 + length);
    if (file.name.empty() || file.name.starts_with('.') || file.name.find('/') != file.name.npos)
      return BadJournal();
  }
  return files;
}

// Puts runs into a range: it becomes what it was to become, whether that was written before, in part or not.
// Where the first begins and the last ends.
StatusOr<std::pair<std::size_t, std::size_t>> PutRuns(std::span<const std::byte> runs,
                                                      bool keeps_old, std::span<std::byte> range) {
  std::size_t begin = range.size(), at = 0;
  while (!runs.empty()) {
    const std::size_t bytes = runs.size() < kRunHead ? runs.size() : LoadLittle(&runs[2], 2);
    const std::size_t size = kRunHead + (keeps_old ? 2 : 1) * bytes;
    if (size > runs.size()) return BadJournal();
    at += LoadLittle(runs.data(), 2);
    if (at > range.size() || bytes > range.size() - at) return BadJournal();
    if (bytes > 0) begin = std::min(begin, at);
    const std::byte* const fresh = runs.data() + kRunHead;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (!keeps_old || range[at + i] == fresh[bytes + i]) range[at + i] = fresh[i];
    }
    at += bytes;
    runs = runs.subspan(size);
  }
  return std::pair<std::size_t, std::size_t>(std::min(begin, at), at);
}

// A journal that others may have put there is not replayed.
Status CheckOwner(const std::string& journal, const std::string& checkpoint) {
  struct stat own = {}, theirs = {};
  if (::lstat(journal.c_str(), &own) != 0 || ::stat(checkpoint.c_str(), &theirs) != 0)
    return IoError(errno, "cannot look at it");
  if (S_ISREG(own.st_mode) && (own.st_uid == theirs.st_uid || own.st_uid == ::geteuid()))
    return OkStatus();
  return InvalidData(
      "it is a link, or of another owner than the checkpoint, so nothing is written "
      "by it; remove it");
}

// A journal, and the file of the checkpoint that is in use.
class Replayer {
 public:
  static StatusOr<std::unique_ptr<Replayer>> Open(const std::string& checkpoint, bool again) {
    auto made = std::make_unique<Replayer>();
    made->path_ = JournalOf(checkpoint);
    if (again) ZT_RETURN_IF_ERROR(WithFile(CheckOwner(made->path_, checkpoint), made->path_));
    ZT_ASSIGN_OR_RETURN(made->journal_, WithFile(OpenFile(made->path_), made->path_));
    ZT_ASSIGN_OR_RETURN(made->files_,
                        WithFile(ReadFiles(*made->journal_, made->end_), made->path_));
    const fs::path path(checkpoint);
    ZT_ASSIGN_OR_RETURN(const bool folder,
                        WithFile(LocalStore()->IsFolder(checkpoint), checkpoint));
    if (!folder && (made->files_.size() != 1 || made->files_[0].name != path.filename()))
      return WithFile(BadJournal(), made->path_);
    made->folder_ = folder ? path : path.parent_path();
    for (const PatchedFile& file : made->files_) {
      if (!again || !folder) continue;  // the caller has locked it
      ZT_ASSIGN_OR_RETURN(made->locks_.emplace_back(),
                          LockPath((made->folder_ / file.name).string()));
    }
    return made;
  }

  // That it fits what lies there. Changes nothing.
  Status Check() {
    for (const PatchedFile& file : files_) {
      std::error_code error;
      const std::uint64_t now = fs::file_size(folder_ / file.name, error);
      if (error || now < std::min(file.before, file.bytes) ||
          now > std::max(file.before, file.bytes))
        return Replaced(file.name);
      ZT_RETURN_IF_ERROR(OpenInPlace((folder_ / file.name).string()).status());
    }
    return ForEachBlock(false);
  }

  Status Write() {
    if (const Status status = ForEachBlock(true); !status.ok()) {
      return Annotate(status,
                      "the checkpoint is changed in part, and 'ztstream apply' to it goes on");
    }
    return RemoveFile(path_);
  }

 private:
  Status Replaced(const std::string& name) const {
    return WithFile(InvalidData("it was made for other bytes than those of " + Quote(name) +
                                ", which was replaced meanwhile; remove it"),
                    path_);
  }

  Status ForEachBlock(bool write) {
    Octets block, range;
    for (std::uint64_t at = kMagic.size(); at < end_; at += block.size()) {
      std::array<std::byte, kBlockHead> head;
      ZT_RETURN_IF_ERROR(WithFile(journal_->ReadAt(at, head), path_));
      const std::uint64_t flags = LoadLittle(head.data(), 4), file = flags & ~kKeepsOld,
                          runs = LoadLittle(&head[4], 4), offset = LoadLittle(&head[8], 8),
                          length = LoadLittle(&head[16], 8);
      if (file >= files_.size() || runs > end_ - at || length > kMostRange || offset > ~length)
        return WithFile(BadJournal(), path_);
      block.resize(kBlockHead + runs);
      ZT_RETURN_IF_ERROR(WithFile(journal_->ReadAt(at, block), path_));
      ZT_RETURN_IF_ERROR(Use(file));
      range.assign(length, std::byte{0});
      const std::uint64_t there = old_->size().value_or(0);
      if (there > offset)
        ZT_RETURN_IF_ERROR(
            old_->ReadAt(offset, std::span(range).first(std::min(length, there - offset))));
      ZT_ASSIGN_OR_RETURN(const auto changed, WithFile(PutRuns(std::span(block).subspan(kBlockHead),
                                                               (flags & kKeepsOld) != 0, range),
                                                       path_));
      if (Xxh3(range) != LoadLittle(&head[24], 8)) return Replaced(files_[file].name);
      if (!write) continue;
      if (fresh_ == nullptr) {
        ZT_ASSIGN_OR_RETURN(fresh_, OpenInPlace(old_->name()));
      }
      const std::span<const std::byte> piece =
          std::span(range).subspan(changed.first, changed.second - changed.first);
      if (!piece.empty())
        ZT_RETURN_IF_ERROR(
            WithFile(fresh_->WriteAt(offset + changed.first, {&piece, 1}), old_->name()));
    }
    return Use(files_.size());
  }

  // Opens the file, after the one before is complete.
  Status Use(std::size_t file) {
    if (file == used_) return OkStatus();
    if (fresh_ != nullptr)
      ZT_RETURN_IF_ERROR(WithFile(fresh_->Finish(files_[used_].bytes), fresh_->name()));
    fresh_ = nullptr;
    old_ = nullptr;
    used_ = file;
    if (file == files_.size()) return OkStatus();
    const std::string name = (folder_ / files_[file].name).string();
    ZT_ASSIGN_OR_RETURN(old_, WithFile(OpenFile(name), name));
    return OkStatus();
  }

  std::string path_;
  fs::path folder_;
  std::shared_ptr<ByteSource> journal_;
  std::uint64_t end_ = 0;  // of the blocks
  std::vector<PatchedFile> files_;
  std::vector<std::shared_ptr<void>> locks_;
  std::size_t used_ = ~std::size_t{0};  // the file that is open
  std::shared_ptr<ByteSource> old_;
  std::unique_ptr<Sink> fresh_;
};

}  // namespace

Octets JournalBlock(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> old,
                    std::span<const std::byte> fresh, bool keeps_old) {
  constexpr std::size_t kMost = 0xffff;
  const std::size_t both = std::min(old.size(), fresh.size());
  const auto differs = [&](std::size_t i) { return i >= both || old[i] != fresh[i]; };
  Octets out;
  Put(out, file | (keeps_old ? kKeepsOld : 0), 4);
  Put(out, 0, 4);
  for (const std::uint64_t number : {offset, std::uint64_t{fresh.size()}, Xxh3(fresh)})
    Put(out, number, 8);
  for (std::size_t begin = 0, end = 0;; begin = end) {
    const std::size_t done = end;
    while (begin + 8 <= both && std::memcmp(&old[begin], &fresh[begin], 8) == 0) begin += 8;
    while (begin < fresh.size() && !differs(begin)) ++begin;
    if (begin == fresh.size()) break;
    end = begin + 1;
    for (std::size_t i = end; i < fresh.size() && i - end <= kRunHead; ++i) {
      if (differs(i)) end = i + 1;
    }
    for (std::size_t skipped = begin - done; begin < end || skipped > 0;) {
      const std::size_t skip = std::min(skipped, kMost);
      const std::size_t bytes = skip < skipped ? 0 : std::min(end - begin, kMost);
      Put(out, skip, 2);
      Put(out, bytes, 2);
      out.insert(out.end(), fresh.begin() + static_cast<std::ptrdiff_t>(begin),
                 fresh.begin() + static_cast<std::ptrdiff_t>(begin + bytes));
      for (std::size_t i = begin; keeps_old && i < begin + bytes; ++i)
        out.push_back(i < both ? old[i] : std::byte{0});
      skipped -= skip;
      begin += bytes;
    }
  }
  StoreLittle(out.size() - kBlockHead, 4, &out[4]);
  return out;
}

StatusOr<std::unique_ptr<Journal>> Journal::Create(const std::string& path,
                                                   const std::string& like) {
  auto journal = std::make_unique<Journal>();
  ZT_ASSIGN_OR_RETURN(journal->sink_, CreateFileSink(path, {.overwrite = true, .like = like}));
  ZT_RETURN_IF_ERROR(journal->Append(std::as_bytes(std::span(kMagic))));
  return journal;
}

bool Journal::empty() const { return bytes_ == kMagic.size(); }

Status Journal::Finish(std::span<const PatchedFile> files) {
  Octets end;
  for (const PatchedFile& file : files) {
    Put(end, file.name.size(), 4);
    const auto name = std::as_bytes(std::span(file.name));
    end.insert(end.end(), name.begin(), name.end());
    Put(end, file.before, 8);
    Put(end, file.bytes, 8);
  }
  Put(end, bytes_, 8);
  ZT_RETURN_IF_ERROR(Append(end));
  Octets digest;
  Put(digest, Sum(*hasher_), 8);
  ZT_RETURN_IF_ERROR(Append(digest));
  return WithFile(sink_->Finish(bytes_), sink_->name());
}

Status Journal::Append(std::span<const std::byte> bytes) {
  hasher_->Update(bytes);
  bytes_ += bytes.size();
  const std::span<const std::byte> piece[] = {bytes};
  return WithFile(sink_->Append(piece), sink_->name());
}

Status Replay(const std::string& checkpoint, bool again) {
  ZT_ASSIGN_OR_RETURN(const auto replayer, Replayer::Open(checkpoint, again));
  if (again) ZT_RETURN_IF_ERROR(replayer->Check());
  return replayer->Write();
}

}  // namespace zt::delta::internal
