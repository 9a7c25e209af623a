// zt.convert.delta:journal — all new bytes go to a file beside a checkpoint first, which is replayed
// until it is gone: after a kill at any moment there is one version or the other.
//
//   "ztapply1", then blocks: u32 file, u32 bytes of runs, u64 offset, runs: u16 skipped, u16 bytes, bytes
//   the files: u32 length of the name, name, u64 size; u64 offset of their list, u64 XXH3 of all before
module;

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
using Octets = std::vector<std::byte>;

constexpr std::string_view kMagic = "ztapply1";
constexpr std::size_t kBlockHead = 16, kRunHead = 4, kEnd = 16;
// Runs with fewer equal bytes between them are one; changes farther apart are written apart.
constexpr std::size_t kJoin = kRunHead, kApart = 64 << 10;

void Put(Octets& out, std::uint64_t number, std::size_t width) {
  out.resize(out.size() + width);
  StoreLittle(number, width, out.data() + out.size() - width);
}

// The XXH3 of what was hashed.
std::uint64_t SumOf(Hasher& hasher) {
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
      SumOf(*hasher) != LoadLittle(&tail[8], 8) || end > bytes - kEnd)
    return BadJournal();
  Octets list(bytes - kEnd - end);
  ZT_RETURN_IF_ERROR(journal.ReadAt(end, list));
  std::vector<PatchedFile> files;
  for (std::span<const std::byte> rest(list); !rest.empty();) {
    const std::uint64_t length = rest.size() < 4 ? rest.size() : LoadLittle(rest.data(), 4);
    if (rest.size() < 12 || length > rest.size() - 12) return BadJournal();
    PatchedFile& file = files.emplace_back();
    file.name.assign(reinterpret_cast<const char*>(rest.data()) + 4, length);
    file.bytes = LoadLittle(&rest[4 + length], 8);
    rest = rest.subspan(12 + length);
    if (file.name.empty() || file.name.find('/') != file.name.npos) return BadJournal();
  }
  return files;
}

// Writes the runs of a block. Those that are near to each other go with what lies between.
Status WriteRuns(std::span<const std::byte> runs, std::uint64_t offset, ByteSource& old,
                 Sink& fresh) {
  struct Run {
    std::uint64_t at;
    std::span<const std::byte> bytes;
  };
  std::vector<Run> near;
  Octets merged;
  const auto write = [&]() -> Status {
    if (near.empty()) return OkStatus();
    const std::uint64_t begin = near.front().at;
    merged.resize(near.back().at + near.back().bytes.size() - begin);
    std::uint64_t filled = begin;
    for (const Run& run : near) filled += filled == run.at ? run.bytes.size() : 0;
    if (filled != begin + merged.size()) ZT_RETURN_IF_ERROR(old.ReadAt(begin, merged));
    for (const Run& run : near) {
      if (!run.bytes.empty())
        std::memcpy(&merged[run.at - begin], run.bytes.data(), run.bytes.size());
    }
    near.clear();
    const std::span<const std::byte> piece[] = {merged};
    return fresh.WriteAt(begin, piece);
  };
  while (!runs.empty()) {
    const std::uint64_t bytes = runs.size() < kRunHead ? runs.size() : LoadLittle(&runs[2], 2);
    if (runs.size() < kRunHead || bytes > runs.size() - kRunHead) return BadJournal();
    const std::uint64_t skip = LoadLittle(runs.data(), 2);
    offset += skip;
    if (bytes > 0) {
      if (!near.empty() && offset - near.back().at - near.back().bytes.size() > kApart)
        ZT_RETURN_IF_ERROR(write());
      near.push_back({offset, runs.subspan(kRunHead, bytes)});
    }
    offset += bytes;
    runs = runs.subspan(kRunHead + bytes);
  }
  return write();
}

}  // namespace

void PutRuns(std::span<const std::byte> old, std::span<const std::byte> fresh,
             std::vector<std::byte>& out) {
  constexpr std::size_t kMost = 0xffff;
  const std::size_t both = std::min(old.size(), fresh.size());
  const auto differs = [&](std::size_t i) { return i >= both || old[i] != fresh[i]; };
  std::size_t done = 0;
  for (std::size_t begin = 0;;) {
    while (begin + 8 <= both && std::memcmp(&old[begin], &fresh[begin], 8) == 0) begin += 8;
    while (begin < fresh.size() && !differs(begin)) ++begin;
    if (begin == fresh.size()) return;
    std::size_t end = begin + 1;
    for (std::size_t i = end; i < fresh.size() && i - end <= kJoin; ++i) {
      if (differs(i)) end = i + 1;
    }
    for (; begin - done > kMost; done += kMost) Put(out, kMost, 4);
    while (done < end) {
      const std::size_t from = std::max(begin, done), bytes = std::min(end - from, kMost);
      Put(out, from - done, 2);
      Put(out, bytes, 2);
      out.insert(out.end(), fresh.begin() + static_cast<std::ptrdiff_t>(from),
                 fresh.begin() + static_cast<std::ptrdiff_t>(from + bytes));
      done = from + bytes;
    }
    begin = end;
  }
}

StatusOr<std::unique_ptr<Journal>> Journal::Create(const std::string& path) {
  auto journal = std::make_unique<Journal>();
  ZT_ASSIGN_OR_RETURN(journal->sink_, CreateFileSink(path, {.overwrite = true}));
  ZT_RETURN_IF_ERROR(journal->Append(std::as_bytes(std::span(kMagic))));
  return journal;
}

bool Journal::empty() const { return bytes_ == kMagic.size(); }

Status Journal::AddBlock(std::uint32_t file, std::uint64_t offset,
                         std::span<const std::byte> runs) {
  Octets head;
  Put(head, file, 4);
  Put(head, runs.size(), 4);
  Put(head, offset, 8);
  ZT_RETURN_IF_ERROR(Append(head));
  return Append(runs);
}

Status Journal::AddBytes(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> old,
                         std::span<const std::byte> fresh) {
  if (old.size() != fresh.size()) old = {};
  if (fresh.empty()) return AddBlock(file, offset, {});  // the size changes alone
  for (std::uint64_t at = 0; at < fresh.size(); at += kChunk) {
    Octets runs;
    PutRuns(old.subspan(std::min<std::uint64_t>(at, old.size())),
            fresh.subspan(at, std::min<std::uint64_t>(kChunk, fresh.size() - at)), runs);
    if (!runs.empty()) ZT_RETURN_IF_ERROR(AddBlock(file, offset + at, runs));
  }
  return OkStatus();
}

Status Journal::Finish(std::span<const PatchedFile> files) {
  Octets end;
  for (const PatchedFile& file : files) {
    Put(end, file.name.size(), 4);
    const auto name = std::as_bytes(std::span(file.name));
    end.insert(end.end(), name.begin(), name.end());
    Put(end, file.bytes, 8);
  }
  Put(end, bytes_, 8);
  ZT_RETURN_IF_ERROR(Append(end));
  Octets digest;
  Put(digest, SumOf(*hasher_), 8);
  ZT_RETURN_IF_ERROR(Append(digest));
  return WithFile(sink_->Finish(bytes_), sink_->name());
}

Status Journal::Append(std::span<const std::byte> bytes) {
  hasher_->Update(bytes);
  bytes_ += bytes.size();
  const std::span<const std::byte> piece[] = {bytes};
  return WithFile(sink_->Append(piece), sink_->name());
}

Status Replay(const std::string& path) {
  ZT_ASSIGN_OR_RETURN(const auto journal, WithFile(OpenFile(path), path));
  std::uint64_t end = 0;
  ZT_ASSIGN_OR_RETURN(const auto files, WithFile(ReadFiles(*journal, end), path));
  std::vector<std::shared_ptr<ByteSource>> old;
  std::vector<std::unique_ptr<Sink>> fresh;
  for (const PatchedFile& file : files) {
    const std::string name = (fs::path(path).parent_path() / file.name).string();
    ZT_ASSIGN_OR_RETURN(old.emplace_back(), WithFile(OpenFile(name), name));
    ZT_ASSIGN_OR_RETURN(fresh.emplace_back(), OpenInPlace(name));
  }
  Octets runs;
  for (std::uint64_t at = kMagic.size(); at < end;) {
    std::array<std::byte, kBlockHead> head;
    ZT_RETURN_IF_ERROR(WithFile(journal->ReadAt(at, head), path));
    const std::uint64_t file = LoadLittle(head.data(), 4), bytes = LoadLittle(&head[4], 4);
    if (file >= files.size() || bytes > end - at) return WithFile(BadJournal(), path);
    runs.resize(bytes);
    ZT_RETURN_IF_ERROR(WithFile(journal->ReadAt(at + kBlockHead, runs), path));
    const Status written = WriteRuns(runs, LoadLittle(&head[8], 8), *old[file], *fresh[file]);
    ZT_RETURN_IF_ERROR(WithFile(written, fresh[file]->name()));
    at += kBlockHead + bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    ZT_RETURN_IF_ERROR(WithFile(fresh[i]->Finish(files[i].bytes), fresh[i]->name()));
  return RemoveFile(path);
}

}  // namespace zt::delta::internal
