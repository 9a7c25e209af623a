// zt.convert.delta — changes a checkpoint where it lies. All new bytes go to a journal beside it first,
// which is replayed until it is gone: after a kill at any moment there is one version or the other.
//
//   "ztapply1", then blocks: u32 file, u32 bytes of runs, u64 offset, runs: u16 skipped, u16 bytes, bytes
//   the files: u32 length of the name, name, u64 size; u64 offset of their list, u64 XXH3 of all before
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.reader;
import zt.sink;
import zt.source;

namespace zt {
namespace {

namespace fs = std::filesystem;
using zt::internal::LoadLittle;
using zt::internal::StoreLittle;
using Octets = std::vector<std::byte>;

constexpr std::string_view kMagic = "ztapply1";
constexpr std::size_t kBlockHead = 16, kRunHead = 4, kEnd = 16;
constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;
// Runs with fewer equal bytes between them are one; changes farther apart are written apart.
constexpr std::size_t kJoin = kRunHead, kApart = 64 << 10;
constexpr std::string_view kInstead =
    "; 'ztstream convert' writes the new version to another place";

void Put(Octets& out, std::uint64_t number, std::size_t width) {
  out.resize(out.size() + width);
  StoreLittle(number, width, out.data() + out.size() - width);
}

// Appends the bytes of `fresh` that differ from those of `old`, which may be fewer.
void PutRuns(std::span<const std::byte> old, std::span<const std::byte> fresh, Octets& out) {
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

// ---- the journal --------------------------------------------------------------------------------

struct PatchedFile {
  std::string name;
  std::uint64_t bytes = 0;  // at the end
};

// Writes a journal.
class Journal {
 public:
  static StatusOr<std::unique_ptr<Journal>> Create(const std::string& path) {
    auto journal = std::make_unique<Journal>();
    ZT_ASSIGN_OR_RETURN(journal->sink_, CreateFileSink(path, {.overwrite = true}));
    ZT_RETURN_IF_ERROR(journal->Append(std::as_bytes(std::span(kMagic))));
    return journal;
  }
  bool empty() const { return bytes_ == kMagic.size(); }

  Status AddBlock(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> runs) {
    Octets head;
    Put(head, file, 4);
    Put(head, runs.size(), 4);
    Put(head, offset, 8);
    ZT_RETURN_IF_ERROR(Append(head));
    return Append(runs);
  }
  // What is new of `fresh`, which replaces `old` at `offset`; all, if there may be no such old bytes.
  Status AddBytes(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> old,
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
  Status Finish(std::span<const PatchedFile> files) {
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
    const std::string text = hasher_->Finish();
    Put(digest, std::stoull(text.substr(text.find(':') + 1), nullptr, 16), 8);
    ZT_RETURN_IF_ERROR(Append(digest));
    return WithFile(sink_->Finish(bytes_), sink_->name());
  }

 private:
  Status Append(std::span<const std::byte> bytes) {
    hasher_->Update(bytes);
    bytes_ += bytes.size();
    const std::span<const std::byte> piece[] = {bytes};
    return WithFile(sink_->Append(piece), sink_->name());
  }

  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Hasher> hasher_ = MakeHasher(DigestKind::kXxh3);
  std::uint64_t bytes_ = 0;
};

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
  const std::string text = hasher->Finish();
  end = LoadLittle(tail.data(), 8);
  if (std::memcmp(magic.data(), kMagic.data(), magic.size()) != 0 ||
      std::stoull(text.substr(text.find(':') + 1), nullptr, 16) != LoadLittle(&tail[8], 8) ||
      end > bytes - kEnd)
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

// Writes what a journal says to the files in its folder, and removes it.
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

// ---- what changes -------------------------------------------------------------------------------

Status NotInPlace(const std::string& why) { return Unsupported(why + std::string(kInstead)); }

// A component that may change, and where it lies.
struct Place {
  ComponentId old, fresh;
  Extent extent;
  std::uint32_t file = 0;
  // Of what a .zt file says of it; null if it says none.
  std::unique_ptr<Hasher> digest = nullptr;
  bool changed = false;
};

struct PatchRange {
  Place* place = nullptr;
  ComponentRange old, fresh;
  Octets runs;
};
using Batch = BatchOf<PatchRange>;

class Patch {
 public:
  Patch(const std::string& path, TensorSource& old, TensorSource& fresh)
      : path_(path), old_(old), fresh_(fresh) {}

  StatusOr<Applied> Write(const ApplyOptions& options) {
    ZT_RETURN_IF_ERROR(Match());
    if (old_.format() == "zt") ZT_RETURN_IF_ERROR(ReadManifest());
    ZT_RETURN_IF_ERROR(CheckShared());
    ZT_ASSIGN_OR_RETURN(journal_, Journal::Create(JournalOf(path_)));
    ZT_RETURN_IF_ERROR(AddTensors(options));
    for (const auto& [name, old] : files_of_model_) ZT_RETURN_IF_ERROR(AddFile(name, old));
    if (manifest_) ZT_RETURN_IF_ERROR(AddManifest());
    ZT_RETURN_IF_ERROR(old_.Finish());
    ZT_RETURN_IF_ERROR(fresh_.Finish());
    for (const Place& place : places_) {
      if (place.changed) changed_.insert(place.old.object);
    }
    result_.tensors = changed_.size();
    if (journal_->empty()) return std::move(result_);
    const Publication publication;  // a signal waits for what follows
    ZT_RETURN_IF_ERROR(journal_->Finish(files_));
    ZT_RETURN_IF_ERROR(Replay(JournalOf(path_)));
    return std::move(result_);
  }

 private:
  // The number of a file of the checkpoint, which must lie in its folder.
  StatusOr<std::uint32_t> FileOf(const std::string& name, std::uint64_t bytes) {
    std::error_code error;
    const bool folder = fs::is_directory(path_, error);
    const fs::path wanted = folder ? fs::path(path_) : fs::path(path_).parent_path();
    const fs::path at = fs::path(name).parent_path();
    const auto same = [&](const fs::path& a, const fs::path& b) {
      return fs::equivalent(a.empty() ? "." : a, b.empty() ? "." : b, error);
    };
    if (!same(at, wanted) || (!folder && !same(name, path_)))
      return WithFile(NotInPlace("it lies elsewhere than " + path_), name);
    const auto [found, added] = numbers_.emplace(fs::path(name).filename().string(),
                                                 static_cast<std::uint32_t>(files_.size()));
    if (added) {
      ZT_RETURN_IF_ERROR(OpenInPlace(name).status());  // that it can be written is found out first
      files_.push_back({found->first, bytes});
    }
    return found->second;
  }

  // Pairs the objects of both sides.
  Status Match() {
    if (!old_.shards().empty() || FindShardStamp(old_.attributes()))
      return NotInPlace("it is one of several .zt files, whose digests are stated elsewhere");
    std::unordered_map<std::string_view, std::uint32_t> by_name;
    for (std::uint32_t i = 0; i < fresh_.objects().size(); ++i)
      by_name.emplace(fresh_.objects()[i].name, i);
    for (std::uint32_t i = 0; i < old_.objects().size(); ++i) {
      const Object& object = old_.objects()[i];
      const auto found = by_name.find(object.name);
      if (IsFile(object) && old_.format() != "zt") {
        if (found == by_name.end()) {
          result_.warnings.push_back("file " + Quote(FileEntryOf(object, 0).path) +
                                     " is not in the delta, and stays as it is");
        } else {
          files_of_model_.emplace_back(found->second, i);
          by_name.erase(found);
        }
        continue;
      }
      if (found == by_name.end())
        return WithTensor(NotInPlace("the delta removes it"), object.name);
      ZT_RETURN_IF_ERROR(WithTensor(MatchObject(i, found->second), object.name));
      by_name.erase(found);
    }
    for (const auto& [name, i] : by_name) {
      const Object& object = fresh_.objects()[i];
      if (!IsFile(object) || old_.format() == "zt")
        return WithTensor(NotInPlace("the delta adds it"), object.name);
      result_.warnings.push_back("file " + Quote(FileEntryOf(object, 0).path) +
                                 " of the delta is not in the checkpoint, and is not written");
    }
    if (old_.format() != "zt" && Encoded(old_.attributes()) != Encoded(fresh_.attributes()))
      result_.warnings.push_back("the attributes of the file stay those of the base");
    return OkStatus();
  }

  static Octets Encoded(Value::Map attributes) {
    std::erase_if(attributes, [](const auto& each) { return each.first == kFolderAttribute; });
    return EncodeCbor(Value(std::move(attributes))).value_or(Octets());
  }

  Status MatchObject(std::uint32_t i, std::uint32_t j) {
    const Object& a = old_.objects()[i];
    const Object& b = fresh_.objects()[j];
    bool alike =
        a.format == b.format && a.shape == b.shape && a.components.size() == b.components.size();
    for (std::uint32_t c = 0; alike && c < a.components.size(); ++c) {
      const Component& mine = a.components[c];
      std::uint32_t d = 0;
      while (d < b.components.size() && b.components[d].role != mine.role) ++d;
      alike = d < b.components.size() && b.components[d].element == mine.element &&
              b.components[d].bytes == mine.bytes;
      if (!alike || mine.bytes == 0) continue;
      auto extent = old_.extent({i, c});
      const auto form = old_.stored({i, c});
      if (form && form->encoding != Encoding::kRaw)
        return NotInPlace("it is stored as " + std::string(Name(form->encoding)) +
                          ", and only raw bytes are changed where they lie");
      if (form && form->mappable) extent = {form->file, form->offset, form->length};
      if (!extent || extent->length != mine.bytes || !extent->bytes->descriptor())
        return NotInPlace("its bytes do not lie in a file as they are");
      const std::string& name = extent->bytes->name();
      ZT_ASSIGN_OR_RETURN(const std::uint32_t file,
                          FileOf(name, extent->bytes->size().value_or(0)));
      places_.push_back({{i, c}, {j, d}, *extent, file});
    }
    return alike ? OkStatus() : NotInPlace("the delta changes its type or shape");
  }

  // What two names share must stay equal.
  Status CheckShared() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, Place*> by_offset;
    std::vector<Place> kept;
    kept.reserve(places_.size());
    for (Place& place : places_) {
      const auto [found, added] = by_offset.emplace(
          std::pair<std::uint32_t, std::uint64_t>(place.file, place.extent.offset), nullptr);
      if (added) {
        kept.push_back(std::move(place));
        found->second = &kept.back();
        continue;
      }
      ZT_ASSIGN_OR_RETURN(const bool same, SameBytes(found->second->fresh, place.fresh));
      if (!same || found->second->extent.length != place.extent.length)
        return WithTensor(
            NotInPlace("it shares its bytes with another tensor, and the delta does not"),
            old_.objects()[place.old.object].name);
    }
    places_ = std::move(kept);
    const Place* before = nullptr;
    for (const auto& [at, place] : by_offset) {
      if (before != nullptr && before->file == place->file &&
          before->extent.offset + before->extent.length > place->extent.offset)
        return WithTensor(NotInPlace("it shares a part of its bytes with another tensor"),
                          old_.objects()[place->old.object].name);
      before = place;
    }
    return OkStatus();
  }

  StatusOr<bool> SameBytes(ComponentId a, ComponentId b) {
    const auto first = fresh_.identity(a), second = fresh_.identity(b);
    if (first && second && *first == *second) return true;
    const std::uint64_t bytes = fresh_.objects()[a.object].components[a.component].bytes;
    if (bytes != fresh_.objects()[b.object].components[b.component].bytes) return false;
    Octets left, right;
    for (std::uint64_t at = 0; at < bytes; at += kChunk) {
      left.resize(std::min<std::uint64_t>(kChunk, bytes - at));
      right.resize(left.size());
      ZT_RETURN_IF_ERROR(AtTensor(fresh_, a, fresh_.Read(a, at, left)));
      ZT_RETURN_IF_ERROR(AtTensor(fresh_, b, fresh_.Read(b, at, right)));
      if (left != right) return false;
    }
    return true;
  }

  Status AddTensors(const ApplyOptions& options) {
    BufferPool pool(MemoryFor(options.memory_bytes, options.threads) / 2);
    std::uint64_t total = 0;
    for (const Place& place : places_) total += place.extent.length;
    RangeOptions how = {.threads = options.threads,
                        .memory_bytes = options.memory_bytes,
                        .cancelled = options.cancelled};
    if (options.progress) how.progress = [&](std::uint64_t done) { options.progress(done, total); };
    const auto read = [&](Batch& batch) {
      std::vector<ComponentRange*> ranges;
      for (PatchRange& range : batch.ranges) ranges.push_back(&range.old);
      for (PatchRange& range : batch.ranges) ranges.push_back(&range.fresh);
      return ReadComponents(ranges, pool, batch.input);
    };
    const auto compare = [](Batch& batch) {
      for (PatchRange& range : batch.ranges)
        PutRuns(range.old.bytes, range.fresh.bytes, range.runs);
      return OkStatus();
    };
    const auto add = [&](Batch& batch) -> Status {
      for (PatchRange& range : batch.ranges) {
        Place& place = *range.place;
        if (place.digest != nullptr) place.digest->Update(range.fresh.bytes);
        if (range.runs.empty()) continue;
        place.changed = true;
        ZT_RETURN_IF_ERROR(
            journal_->AddBlock(place.file, place.extent.offset + range.old.offset, range.runs));
        result_.bytes += range.runs.size();
      }
      return OkStatus();
    };
    RangePipeline<Batch> pipeline({{StageOrder::kParallel, read},
                                   {StageOrder::kParallel, compare},
                                   {StageOrder::kInOrder, add}},
                                  how);
    Status added;
    for (Place& place : places_) {
      const std::uint64_t grid = fresh_.preferred_read(place.fresh);
      const std::uint64_t step = grid == 0 || grid > 4 * kChunk ? kChunk : grid;
      for (std::uint64_t at = 0; at < place.extent.length && added.ok(); at += step) {
        const std::uint64_t bytes = std::min(step, place.extent.length - at);
        PatchRange range;
        range.place = &place;
        range.old = {.source = &old_, .id = place.old, .offset = at, .count = bytes};
        range.fresh = {.source = &fresh_, .id = place.fresh, .offset = at, .count = bytes};
        added = pipeline.Add(std::move(range), {.bytes = bytes, .weight = 4 * bytes + 512});
      }
    }
    return pipeline.Drain(added);
  }

  // A file of the model in a folder: all of it.
  Status AddFile(std::uint32_t fresh, std::uint32_t old) {
    const auto read = [](TensorSource& source, std::uint32_t i) -> StatusOr<Octets> {
      Octets bytes(source.objects()[i].components[0].bytes);
      ZT_RETURN_IF_ERROR(AtTensor(source, {i, 0}, source.Read({i, 0}, 0, bytes)));
      return bytes;
    };
    ZT_ASSIGN_OR_RETURN(const Octets was, read(old_, old));
    ZT_ASSIGN_OR_RETURN(const Octets is, read(fresh_, fresh));
    if (was == is) return OkStatus();
    ++result_.files;
    result_.bytes += is.size();
    ZT_ASSIGN_OR_RETURN(const std::uint32_t file, FileOf(old_.file({old, 0}), is.size()));
    return journal_->AddBytes(file, 0, was, is);
  }

  // Takes the manifest of a .zt file apart, if this is one that is encoded again as it is.
  Status ReadManifest() {
    const Reader* const reader = ReaderOf(old_);
    if (reader == nullptr) return NotInPlace("it is one of several .zt files");
    ByteSource& bytes = reader->bytes();
    const std::uint64_t size = bytes.size().value_or(0);
    Octets head(8), tail(std::min<std::uint64_t>(size, kTailBytes));
    ZT_RETURN_IF_ERROR(bytes.ReadAt(0, head));
    ZT_RETURN_IF_ERROR(bytes.ReadAt(size - tail.size(), tail));
    ZT_ASSIGN_OR_RETURN(const Trailer trailer, LocateManifest(head, tail, size));
    manifest_at_ = trailer.manifest_offset;
    old_end_.resize(size - manifest_at_);
    ZT_RETURN_IF_ERROR(bytes.ReadAt(manifest_at_, old_end_));
    manifest_ = reader->manifest();
    const auto again = End(*manifest_);
    if (!again.ok() || *again != old_end_)
      return NotInPlace("its manifest is not as ztstream writes it");
    for (Place& place : places_) {
      StoredComponent& stored = StoredOf(place);
      const auto digest = ParseDigest(stored.digest);
      if (digest.ok()) place.digest = MakeHasher(digest->kind);
      if (!stored.digest.empty() && place.digest == nullptr)
        return WithTensor(NotInPlace("its digest is of an unknown kind"),
                          old_.objects()[place.old.object].name);
    }
    return OkStatus();
  }

  StoredComponent& StoredOf(const Place& place) {
    const Object& object = old_.objects()[place.old.object];
    const std::uint32_t i = *ReaderOf(old_)->Find(object.name);
    return *std::ranges::find(manifest_->objects[i].components,
                              object.components[place.old.component].role.str(),
                              &StoredComponent::role);
  }

  // Manifest and footer.
  StatusOr<Octets> End(const Manifest& manifest) const {
    ZT_ASSIGN_OR_RETURN(Octets out, EncodeManifest(manifest, manifest.version));
    const Octets footer = EncodeFooter(manifest_at_, out, manifest.version);
    out.insert(out.end(), footer.begin(), footer.end());
    return out;
  }

  // The new digests and attributes; names that share bytes share their digest.
  Status AddManifest() {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> digests;
    for (Place& place : places_) {
      if (place.changed && place.digest != nullptr)
        digests.emplace(
            std::pair<std::uint64_t, std::uint64_t>(place.extent.offset, place.extent.length),
            place.digest->Finish());
    }
    for (StoredObject& object : manifest_->objects) {
      for (StoredComponent& stored : object.components) {
        const auto found = digests.find({stored.offset, stored.length});
        if (found != digests.end()) stored.digest = found->second;
      }
    }
    for (const Object& object : fresh_.objects())
      manifest_->objects[*ReaderOf(old_)->Find(object.name)].attributes = object.attributes;
    manifest_->attributes = fresh_.attributes();
    ZT_ASSIGN_OR_RETURN(const Octets end, End(*manifest_));
    if (end == old_end_) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const std::uint32_t file, FileOf(path_, 0));
    files_[file].bytes = manifest_at_ + end.size();
    return journal_->AddBytes(file, manifest_at_, old_end_, end);
  }

  const std::string& path_;
  TensorSource& old_;
  TensorSource& fresh_;
  std::vector<Place> places_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> files_of_model_;  // fresh, old
  std::vector<PatchedFile> files_;
  std::map<std::string, std::uint32_t> numbers_;
  std::unique_ptr<Journal> journal_;
  std::set<std::uint32_t> changed_;
  std::optional<Manifest> manifest_;  // of a .zt file
  std::uint64_t manifest_at_ = 0;
  Octets old_end_;
  Applied result_;
};

}  // namespace

StatusOr<bool> FinishJournal(const std::string& path) {
  const std::string journal = JournalOf(path);
  std::error_code error;
  if (!fs::exists(journal, error)) return false;
  const Publication publication;
  ZT_RETURN_IF_ERROR(Replay(journal));
  return true;
}

StatusOr<Applied> ApplyInPlace(const std::string& path, TensorSource& checkpoint,
                               TensorSource& model, const ApplyOptions& options) {
  return WithFile(Patch(path, checkpoint, model).Write(options), path);
}

}  // namespace zt
