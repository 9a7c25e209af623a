// zt.convert.delta — changes a checkpoint where it lies, by a journal.
module;

#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import :journal;
import :profile;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.reader;
import zt.sink;
import zt.source;

namespace zt {

using namespace delta::internal;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInstead =
    "; 'ztstream convert' writes the new version to another place";

Status NotInPlace(const std::string& why) { return Unsupported(why + std::string(kInstead)); }

// A component that may change.
struct Place {
  ComponentId old, fresh;
  ComponentId base;  // see BaseOf
  std::uint64_t bytes = 0;
  Status fixed = {};  // why it must stay as it is; else where it lies:
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  // Shares its bytes in the checkpoint, and must in the delta.
  const Place* twin = nullptr;
  // Of what a .zt file says of it, and of what twins become; null if nothing asks.
  std::unique_ptr<Hasher> hasher = nullptr, twins = nullptr;
  std::string digest = {};                         // of twins
  std::optional<ContentCheck::Part> content = {};  // if not all bytes are valid
  bool changed = false;
};

bool HasChanged(const Place& place) {
  return (place.twin == nullptr ? place : *place.twin).changed;
}

struct PatchRange {
  Place* place = nullptr;
  ComponentRange old;
  Buffer fresh;
  Octets block;
  ContentCheck::Found found = {};
  bool ends_object = false;
};
using Batch = BatchOf<PatchRange>;

class Patch {
 public:
  Patch(const std::string& path, TensorSource& old, TensorSource& fresh)
      : path_(path),
        folder_(std::filesystem::is_directory(path)),
        old_(old),
        fresh_(fresh),
        old_names_(ByName(old.objects())) {}

  StatusOr<Applied> Write(const ApplyOptions& options) {
    ZT_RETURN_IF_ERROR(Match());
    if (old_.format() == "zt") ZT_RETURN_IF_ERROR(ReadManifest());
    ZT_RETURN_IF_ERROR(CheckShared());
    ZT_ASSIGN_OR_RETURN(journal_, Journal::Create(JournalOf(path_), FileOfFewest()));
    ZT_RETURN_IF_ERROR(AddTensors(options));
    for (const auto& [name, old] : files_of_model_) ZT_RETURN_IF_ERROR(AddFile(name, old));
    if (manifest_) ZT_RETURN_IF_ERROR(AddManifest());
    ZT_RETURN_IF_ERROR(old_.Finish());
    ZT_RETURN_IF_ERROR(fresh_.Finish());
    std::set<std::uint32_t> changed;
    for (const Place& place : places_) {
      if (HasChanged(place)) changed.insert(place.old.object);
    }
    for (const std::uint32_t index : changed)
      ++(IsFile(old_.objects()[index]) ? result_.files : result_.tensors);
    if (journal_->empty()) return std::move(result_);
    publication_.emplace();
    ZT_RETURN_IF_ERROR(journal_->Finish(files_));
    ZT_RETURN_IF_ERROR(Replay(path_, false));
    return std::move(result_);
  }

 private:
  // That a file of the checkpoint lies in its folder.
  Status CheckPlace(const std::string& name) const {
    std::error_code error;
    const fs::path wanted = folder_ ? fs::path(path_) : fs::path(path_).parent_path();
    const fs::path at = fs::path(name).parent_path();
    const auto same = [&](const fs::path& a, const fs::path& b) {
      return fs::equivalent(a.empty() ? "." : a, b.empty() ? "." : b, error);
    };
    if (same(at, wanted) && (folder_ || same(name, path_))) return OkStatus();
    return WithFile(NotInPlace("it lies elsewhere than " + path_), name);
  }

  // The number of a file, which is locked: another run may be given the file instead of the folder.
  // That it can be written is found out first.
  StatusOr<std::uint32_t> FileOf(const std::string& name) {
    ZT_RETURN_IF_ERROR(CheckPlace(name));
    const auto [found, added] = numbers_.emplace(fs::path(name).filename().string(),
                                                 static_cast<std::uint32_t>(files_.size()));
    if (added) {
      if (found->first.starts_with('.'))  // which no journal names
        return WithFile(NotInPlace("its name begins with '.'"), name);
      ZT_RETURN_IF_ERROR(OpenInPlace(name).status());
      if (folder_) {
        ZT_ASSIGN_OR_RETURN(locks_.emplace_back(), LockPath(name));
      }
      std::error_code error;
      const std::uint64_t bytes = fs::file_size(name, error);
      if (error) return WithFile(IoError(error.value(), "cannot tell its size"), name);
      files_.push_back({found->first, bytes, bytes});
    }
    return found->second;
  }

  // The file that the fewest may read: a journal may hold bytes of all.
  std::string FileOfFewest() const {
    const std::vector<std::string> names = FilesOf(old_);
    if (!folder_ || names.empty()) return path_;
    return *std::ranges::min_element(names, {}, [](const std::string& name) {
      std::error_code none;
      return std::popcount(static_cast<unsigned>(fs::status(name, none).permissions()) & 044u);
    });
  }

  // Pairs the objects of both sides.
  Status Match() {
    if (!old_.shards().empty() || FindShardStamp(old_.attributes()))
      return NotInPlace("it is one of several .zt files, whose digests are stated elsewhere");
    NameIndex by_name = ByName(fresh_.objects());
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
      const auto d = FindComponent(b, mine.role, mine.element, mine.bytes);
      alike = d.has_value();
      if (!alike || mine.bytes == 0) continue;
      places_.push_back({.old = {i, c},
                         .fresh = {j, *d},
                         .base = BaseOf({j, *d}).value_or(ComponentId{i, c}),
                         .bytes = mine.bytes});
      ZT_RETURN_IF_ERROR(Locate(places_.back()));
    }
    return alike ? OkStatus() : NotInPlace("the delta changes its type or shape");
  }

  Status Locate(Place& place) {
    auto extent = old_.extent(place.old);
    const auto form = old_.stored(place.old);
    if (form && form->mappable) extent = {form->file, form->offset, form->length};
    if (form && form->encoding != Encoding::kRaw) {
      place.fixed = NotInPlace("it is stored as " + std::string(Name(form->encoding)) +
                               ", and only raw bytes are changed where they lie");
    } else if (!extent || extent->length != place.bytes || !extent->bytes->descriptor()) {
      place.fixed = NotInPlace("its bytes do not lie in a file as they are");
    } else {
      ZT_ASSIGN_OR_RETURN(place.file, FileOf(extent->bytes->name()));
      place.offset = extent->offset;
    }
    return OkStatus();
  }

  // The component of the checkpoint of which one of the delta is made: another than that of its name,
  // if the delta ties it. nullopt if it is made of none.
  std::optional<ComponentId> BaseOf(ComponentId fresh) const {
    const auto made = MadeFrom(fresh_, fresh);
    const auto found = made ? old_names_.find(made->base) : old_names_.end();
    if (found == old_names_.end()) return std::nullopt;
    const auto c = FindComponent(old_.objects()[found->second], made->part->role,
                                 made->part->element, made->part->bytes);
    return c ? std::optional(ComponentId{found->second, *c}) : std::nullopt;
  }

  // Finds what names share in the checkpoint.
  Status CheckShared() {
    std::map<std::pair<std::uint32_t, std::uint64_t>, Place*> by_offset;
    for (Place& place : places_) {
      if (!place.fixed.ok()) continue;
      const auto [found, added] = by_offset.emplace(std::pair(place.file, place.offset), &place);
      if (added) continue;
      place.twin = found->second;
      if (place.twin->bytes != place.bytes) return Apart(place);
      for (Place* const each : {&place, found->second}) {
        if (each->twins == nullptr) each->twins = MakeHasher(DigestKind::kSha256);
      }
    }
    const Place* before = nullptr;
    for (const auto& [at, place] : by_offset) {
      if (before != nullptr && before->file == place->file &&
          before->offset + before->bytes > place->offset)
        return Named(*place, NotInPlace("it shares a part of its bytes with another tensor"));
      before = place;
    }
    return OkStatus();
  }

  Status Apart(const Place& place) const {
    return Named(place,
                 NotInPlace("it shares its bytes with another tensor, and the delta does not"));
  }
  Status Named(const Place& place, const Status& status) const {
    return WithTensor(status, old_.objects()[place.old.object].name);
  }

  // Makes `bytes`, which are those of `old`, what they become.
  Status Update(ComponentId old, ComponentId base, ComponentId fresh, std::uint64_t offset,
                std::span<std::byte> bytes) {
    if (base != old) ZT_RETURN_IF_ERROR(AtTensor(old_, base, old_.Read(base, offset, bytes)));
    const Status made = UpdateRange(fresh_, fresh, offset, bytes, false);
    if (made.code() != StatusCode::kInvalidArgument) return AtTensor(fresh_, fresh, made);
    const Object& object = old_.objects()[old.object];  // it is of another version
    return WithFile(IsFile(object) ? made : WithTensor(made, object.name), old_.file(old));
  }
  // The bytes that are changed at once.
  std::uint64_t StepOf(ComponentId fresh) const {
    const std::uint64_t grid = fresh_.preferred_read(fresh);
    return grid == 0 || grid > kMostRange ? kChunk : grid;
  }

  Status AddTensors(const ApplyOptions& options) {
    const std::uint64_t memory = MemoryFor(options.memory_bytes, options.threads);
    BufferPool pool(memory / 2);
    std::uint64_t total = 0;
    for (const Place& place : places_) total += place.bytes;
    RangeOptions how = {.threads = options.threads,
                        .memory_bytes = options.memory_bytes,
                        .cancelled = options.cancelled};
    if (options.progress) how.progress = [&](std::uint64_t done) { options.progress(done, total); };
    const auto update = [&](Batch& batch) -> Status {
      std::vector<ComponentRange*> ranges;
      for (PatchRange& range : batch.ranges) ranges.push_back(&range.old);
      ZT_RETURN_IF_ERROR(ReadComponents(ranges, pool, batch.input));
      for (PatchRange& range : batch.ranges) {
        range.fresh = pool.Take(range.old.bytes.size());
        const std::span<std::byte> fresh = range.fresh.bytes();
        const Place& place = *range.place;
        std::memcpy(fresh.data(), range.old.bytes.data(), fresh.size());
        ZT_RETURN_IF_ERROR(Update(place.old, place.base, place.fresh, range.old.offset, fresh));
      }
      return OkStatus();
    };
    const auto compare = [](Batch& batch) {
      for (PatchRange& range : batch.ranges) {
        const Place& place = *range.place;
        const std::span<const std::byte> fresh = range.fresh.bytes();
        if (std::memcmp(range.old.bytes.data(), fresh.data(), fresh.size()) != 0)
          range.block = JournalBlock(place.file, place.offset + range.old.offset, range.old.bytes,
                                     fresh, false);
        if (place.content) range.found = place.content->check->Look(range.old.offset, fresh);
      }
      return OkStatus();
    };
    const auto add = [&](Batch& batch) -> Status {
      for (PatchRange& range : batch.ranges) {
        Place& place = *range.place;
        for (Hasher* const hasher : {place.hasher.get(), place.twins.get()}) {
          if (hasher != nullptr) hasher->Update(range.fresh.bytes());
        }
        if (place.content) place.content->check->Add(std::move(range.found), range.fresh.bytes());
        if (place.twin == nullptr) {
          place.changed = place.changed || !range.block.empty();
          if (place.changed && !place.fixed.ok()) return Named(place, place.fixed);
          ZT_RETURN_IF_ERROR(Append(range.block));
        }
        if (range.ends_object) ZT_RETURN_IF_ERROR(CheckContents(place.old.object));
      }
      return OkStatus();
    };
    RangePipeline<Batch> pipeline({{StageOrder::kIfOrdered, update},
                                   {StageOrder::kParallel, compare},
                                   {StageOrder::kInOrder, add}},
                                  how);
    Status added;
    for (Place& place : places_) {
      place.content = ContentOf(place.old, memory);
      const std::uint64_t step = StepOf(place.fresh);
      const bool ordered = fresh_.sequential(place.fresh) || old_.sequential(place.old) ||
                           old_.sequential(place.base);
      for (std::uint64_t at = 0; at < place.bytes && added.ok(); at += step) {
        const std::uint64_t bytes = std::min(step, place.bytes - at);
        PatchRange range;
        range.place = &place;
        range.old = {.source = &old_, .id = place.old, .offset = at, .count = bytes};
        range.ends_object = at + bytes == place.bytes && EndsObject(place);
        added = pipeline.Add(std::move(range),
                             {.bytes = bytes, .weight = 4 * bytes + 512, .ordered = ordered});
      }
    }
    ZT_RETURN_IF_ERROR(pipeline.Drain(added));
    for (Place& place : places_) {
      if (place.twins != nullptr) place.digest = place.twins->Finish();
    }
    const auto apart = std::ranges::find_if(places_, [](const Place& each) {
      return each.twin != nullptr && each.twin->digest != each.digest;
    });
    return apart == places_.end() ? OkStatus() : Apart(*apart);
  }

  std::optional<ContentCheck::Part> ContentOf(ComponentId id, std::uint64_t memory_bytes) const {
    const Object& object = old_.objects()[id.object];
    const auto rule = RuleOf(object, id.component, object.components[id.component].bytes);
    if (!rule) return std::nullopt;
    const auto check = manifest_ ? std::make_shared<ContentCheck>(manifest_->version, memory_bytes)
                                 : std::make_shared<ContentCheck>();
    check->Expect(*rule, object);
    return ContentCheck::Part{check, *rule};
  }

  // True for the last component of its object.
  bool EndsObject(const Place& place) const {
    return &place == &places_.back() || (&place)[1].old.object != place.old.object;
  }

  // That no reader refuses what changed of an object. What was kept to find out goes: there may be many.
  Status CheckContents(std::uint32_t index) {
    const Object& object = old_.objects()[index];
    std::vector<ContentCheck::Part> parts;
    bool changed = false;
    const auto of_object = [](const Place& each) { return each.old.object; };
    for (auto place = std::ranges::lower_bound(places_, index, {}, of_object);
         place != places_.end() && place->old.object == index; ++place) {
      if (!place->content) continue;
      changed = changed || HasChanged(*place);
      parts.push_back(*std::exchange(place->content, std::nullopt));
    }
    if (!changed) return OkStatus();
    Status good;
    for (auto part = parts.begin(); good.ok() && part != parts.end(); ++part)
      good = part->check->Check(part->rule, object, CountIndices(object));
    if (good.ok()) good = ContentCheck::CheckTogether(object, parts);
    return WithTensor(good, object.name);
  }

  // A file of the model in a folder.
  Status AddFile(std::uint32_t fresh, std::uint32_t old) {
    const std::uint64_t bytes = fresh_.objects()[fresh].components[0].bytes;
    const std::uint64_t before = old_.objects()[old].components[0].bytes;
    const std::uint64_t step = StepOf({fresh, 0});
    const ComponentId base = BaseOf({fresh, 0}).value_or(ComponentId{old, 0});
    std::optional<std::uint32_t> file;
    Octets was, is;
    for (std::uint64_t at = 0; at < bytes || (at == 0 && bytes != before); at += step) {
      is.resize(std::min(step, bytes - at));
      was.resize(std::min<std::uint64_t>(is.size(), before - std::min(at, before)));
      if (!was.empty()) ZT_RETURN_IF_ERROR(AtTensor(old_, {old, 0}, old_.Read({old, 0}, at, was)));
      std::ranges::copy(was, is.begin());
      ZT_RETURN_IF_ERROR(Update({old, 0}, base, {fresh, 0}, at, is));
      if (bytes == before && was == is) continue;
      const std::string& name = old_.file({old, 0});
      if (std::ranges::find(old_.other_files(), name) != old_.other_files().end()) {
        result_.warnings.push_back("file " + Quote(fs::path(name).filename().string()) +
                                   " stays as it is, for it says where the weights lie");
        return OkStatus();
      }
      if (!file) {
        ZT_ASSIGN_OR_RETURN(file, FileOf(name));
        files_[*file].bytes = bytes;
        ++result_.files;
      }
      ZT_RETURN_IF_ERROR(Append(JournalBlock(*file, at, was, is, true)));
    }
    return OkStatus();
  }

  Status Append(const Octets& block) {
    result_.bytes += block.size();
    return journal_->Append(block);
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
      if (!place.fixed.ok()) continue;
      StoredComponent& stored = StoredOf(place);
      const auto digest = ParseDigest(stored.digest);
      if (digest.ok()) place.hasher = MakeHasher(digest->kind);
      if (!stored.digest.empty() && place.hasher == nullptr)
        return Named(place, NotInPlace("its digest is of an unknown kind"));
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

  // The new digests and attributes.
  Status AddManifest() {
    std::set<std::uint64_t> changed;  // blobs
    for (Place& place : places_) {
      if (!HasChanged(place)) continue;
      changed.insert(place.offset);
      if (place.hasher != nullptr) StoredOf(place).digest = place.hasher->Finish();
    }
    for (const Place& place : places_) {  // the same bytes, understood otherwise
      if (!place.fixed.ok() && changed.contains(StoredOf(place).offset))
        return Named(place, place.fixed);
    }
    for (const Object& object : fresh_.objects())
      manifest_->objects[*ReaderOf(old_)->Find(object.name)].attributes = object.attributes;
    manifest_->attributes = fresh_.attributes();
    ZT_ASSIGN_OR_RETURN(const Octets end, End(*manifest_));
    if (end == old_end_) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const std::uint32_t file, FileOf(path_));
    files_[file].bytes = manifest_at_ + end.size();
    for (std::uint64_t at = 0; at < end.size(); at += kChunk) {
      const auto piece = [at](std::span<const std::byte> of) {
        const auto rest = of.subspan(std::min<std::uint64_t>(at, of.size()));
        return rest.first(std::min<std::uint64_t>(kChunk, rest.size()));
      };
      ZT_RETURN_IF_ERROR(
          Append(JournalBlock(file, manifest_at_ + at, piece(old_end_), piece(end), true)));
    }
    return OkStatus();
  }

  std::optional<Publication> publication_;  // a signal waits for it, and what is closed before it
  const std::string& path_;
  const bool folder_;
  TensorSource& old_;
  TensorSource& fresh_;
  const NameIndex old_names_;
  std::vector<Place> places_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> files_of_model_;  // fresh, old
  std::vector<PatchedFile> files_;
  std::map<std::string, std::uint32_t> numbers_;
  std::vector<std::shared_ptr<void>> locks_;
  std::unique_ptr<Journal> journal_;
  std::optional<Manifest> manifest_;  // of a .zt file
  std::uint64_t manifest_at_ = 0;
  Octets old_end_;
  Applied result_;
};

}  // namespace

StatusOr<bool> FinishJournal(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(JournalOf(path), error))) return false;
  const Publication publication;
  ZT_RETURN_IF_ERROR(Replay(path, true));
  return true;
}

StatusOr<Applied> ApplyInPlace(const std::string& path, TensorSource& checkpoint,
                               TensorSource& model, const ApplyOptions& options) {
  return WithFile(Patch(path, checkpoint, model).Write(options), path);
}

}  // namespace zt
