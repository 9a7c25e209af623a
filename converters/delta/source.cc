// zt.convert.delta — a delta and its base as one source.
module;

#include "core/status_macros.h"

module zt.convert.delta;

import zt.std;
import :profile;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.reader;
import zt.source;

namespace zt {

using namespace delta::internal;

namespace {

// How many times on the way down a chain a chunk may be made of parts of several chunks of the base:
// each time doubles what is decoded.
constexpr std::size_t kMostUneven = 3;

// A component of the result that is made of a chunk of the base and a frame at a time.
struct Made {
  Part part;
  std::string name;                   // of the object of the base
  std::vector<std::uint64_t> frames;  // offsets in the stored component
  AnyOrder stored;
  std::optional<AnyOrder> base;  // nullopt if no chunk needs it
  const Made* below = nullptr;   // what the base makes of the same chunks, if it is a delta

  std::uint64_t BeginOf(std::size_t k) const { return std::uint64_t{k} * part.chunk; }
  std::size_t BytesOf(std::size_t k) const {
    return std::min<std::uint64_t>(part.chunk, part.bytes - BeginOf(k));
  }
  StatusOr<std::vector<std::byte>> FrameOf(std::size_t k) const {
    std::vector<std::byte> frame(part.chunks[k].frame);
    if (!frame.empty()) ZT_RETURN_IF_ERROR(stored.Read(frames[k], frame));
    return frame;
  }
};

// A part of an object of `delta`, without its base.
StatusOr<std::shared_ptr<Made>> MakePart(TensorSource& delta, std::uint32_t index, Part part) {
  const auto made = std::make_shared<Made>();
  std::uint64_t bytes = 0;
  for (const DeltaChunk& chunk : part.chunks) {
    made->frames.push_back(bytes);
    bytes += chunk.frame;
  }
  const Object& object = delta.objects()[index];
  const std::string role = RoleOf(part), component = "component " + Quote(role);
  const auto c = FindComponent(object, role, {DType::kU8, ""});
  if (!c) return Broken(component + " is missing, or not u8");
  const auto form = delta.stored({index, *c});
  if (delta.encoded({index, *c}) || (form && form->encoding != Encoding::kRaw))
    return Broken(component + " is not raw");
  if (!part.same_as && object.components[*c].bytes != bytes)
    return Broken(component + " has " + std::to_string(object.components[*c].bytes) +
                  " bytes, its chunks have " + std::to_string(bytes));
  made->stored = AnyOrder(delta, {index, *c});
  made->part = std::move(part);
  return made;
}

class DeltaSource final : public WrappedSource {
 public:
  DeltaSource(std::unique_ptr<TensorSource> delta, DeltaOrigin origin,
              std::unique_ptr<TensorSource> base, std::string base_path)
      : WrappedSource(base == nullptr ? std::vector<TensorSource*>{delta.get()}
                                      : std::vector<TensorSource*>{delta.get(), base.get()}),
        delta_(std::move(delta)),
        base_(std::move(base)),
        below_(dynamic_cast<const DeltaSource*>(base_.get())),
        origin_(std::move(origin)),
        base_path_(std::move(base_path)),
        base_id_(base_ == nullptr ? "" : KnownId(*base_)) {}

  // The delta that a source is, or wraps; else null.
  static const DeltaSource* FindIn(const TensorSource& source) {
    if (const auto* const delta = dynamic_cast<const DeltaSource*>(&source)) return delta;
    const auto* const wrapped = dynamic_cast<const WrappedSource*>(&source);
    if (wrapped == nullptr || wrapped->wrapped().size() != 1) return nullptr;
    return FindIn(*wrapped->wrapped().front());
  }
  const DeltaOrigin& origin() const { return origin_; }
  std::optional<OfBase> made_from(ComponentId id) const {
    const Made* const made = MadeOf(id);
    return made == nullptr ? std::nullopt : std::optional(OfBase{&made->part, made->name});
  }
  std::size_t uneven() const { return uneven_; }

  Status Init() {
    attributes_ = delta_->attributes();
    std::erase_if(attributes_, [](const auto& each) { return each.first == kDeltaAttribute; });
    AddNotesOf(*delta_);
    file_ = delta_->file({});
    if (base_ != nullptr) {
      AddOtherFile(base_path_);
      for (const std::string& file : base_->other_files()) AddOtherFile(file);
      for (const std::string& file : base_->part_files()) AddOtherFile(file);
      for (const std::string& file : FilesOf(*base_)) {
        if (file != base_path_) AddOtherFile(file);
      }
      base_objects_ = ByName(base_->objects());
    }
    ZT_RETURN_IF_ERROR(Declare());
    ZT_RETURN_IF_ERROR(CountUneven());
    ZT_RETURN_IF_ERROR(ResolveAliases());
    const bool known = !origin_.base_id.empty() && !base_id_.empty();
    if (known && origin_.base_id != base_id_) return Wrong("their ids differ");
    return OkStatus();
  }

  std::string_view format() const override { return "zt"; }
  std::string_view version() const override { return delta_->version(); }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const Made* const made = MadeOf(id);
    if (made == nullptr) return WrappedSource::Read(id, offset, out);
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    while (!out.empty()) {
      const std::size_t k = offset / made->part.chunk;
      const std::size_t bytes = made->BytesOf(k), skip = offset - made->BeginOf(k),
                        take = std::min(bytes - skip, out.size());
      if (take == bytes) {
        ZT_RETURN_IF_ERROR(ReadChunk(*made, k, out.first(bytes)));
      } else {
        ZT_ASSIGN_OR_RETURN(const auto whole, Recent(*made, k, bytes));
        std::memcpy(out.data(), whole->bytes.data() + skip, take);
      }
      out = out.subspan(take);
      offset += take;
    }
    return OkStatus();
  }

  // See UpdateRange.
  Status Update(ComponentId id, std::uint64_t offset, std::span<std::byte> memory, bool dry) {
    const Made* const made = MadeOf(id);
    if (made == nullptr) return dry ? OkStatus() : Read(id, offset, memory);
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, memory.size()));
    const std::uint64_t step = made->part.chunk;
    const bool whole = offset + memory.size() == made->part.bytes;
    if (!memory.empty() && (offset % step != 0 || (!whole && memory.size() % step != 0)))
      return InvalidArgument("memory is changed by whole chunks");
    for (std::uint64_t at = 0; at < memory.size(); at += step) {
      const auto chunk = memory.subspan(at, std::min<std::uint64_t>(step, memory.size() - at));
      ZT_RETURN_IF_ERROR(UpdateChunk(id, *made, (offset + at) / step, chunk, dry));
    }
    return OkStatus();
  }

  // A component may be made of two sources.
  Status CheckRead(std::span<const ComponentId>) override { return Finish(); }
  std::uint64_t preferred_read(ComponentId id) const override {
    const Made* const made = MadeOf(id);
    return made == nullptr ? WrappedSource::preferred_read(id) : made->part.chunk;
  }
  // Parts that are those of another object are one.
  std::optional<Identity> identity(ComponentId id) const override {
    const Made* const made = MadeOf(id);
    if (made == nullptr) return WrappedSource::identity(id);
    return Identity{made, 0, made->part.bytes};
  }

  void WillRead(std::span<const ComponentId> components) override {
    std::vector<ComponentId> of_delta, of_base;
    for (const ComponentId id : components) {
      const Made* const made = MadeOf(id);
      of_delta.push_back(made == nullptr ? Origin(id).second : made->stored.id());
      if (made != nullptr && made->base) of_base.push_back(made->base->id());
    }
    delta_->WillRead(of_delta);
    if (base_ != nullptr) base_->WillRead(of_base);
  }

 private:
  // An object: as the delta has it, or made of parts.
  struct Served {
    std::uint32_t stored = 0;                       // its index in the delta
    std::vector<std::shared_ptr<const Made>> made;  // empty as the delta has it
  };

  // A chunk that was made.
  struct Held {
    const Made* made;
    std::size_t k;
    std::vector<std::byte> bytes;
  };

  bool passes(ComponentId id) const override { return MadeOf(id) == nullptr; }

  const Made* MadeOf(ComponentId id) const {
    const Served& served = parts_[id.object];
    return served.made.empty() ? nullptr : served.made[id.component].get();
  }

  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    const Made* const made = MadeOf(id);
    return {*delta_, made == nullptr ? ComponentId{parts_[id.object].stored, id.component}
                                     : made->stored.id()};
  }

  Status Wrong(const std::string& why) const {
    return InvalidArgument("it is a delta of " + Described(origin_.base_name, origin_.base_id) +
                           ", and " +
                           (base_id_.empty() ? Quote(base_path_) + " ('ztstream id' tells its id)"
                                             : Described(base_path_, base_id_)) +
                           " is another: " + why);
  }

  // Declares the objects. Those that take no room in the file lie at one place; they are sorted.
  Status Declare() {
    struct Listed {
      std::pair<std::size_t, std::uint64_t> place;  // neighbours that are sorted, and among them
      Object object;
      Served served;
    };
    std::vector<Listed> all;
    for (std::uint32_t i = 0; i < delta_->objects().size(); ++i) {
      const Object& object = delta_->objects()[i];
      Listed listed{{0, 0}, object, {i, {}}};
      if (object.format == kDeltaFormat) {
        auto entry = ReadEntry(object);
        if (!entry.ok())
          return WithFile(WithTensor(entry.status(), object.name), delta_->file({i, 0}));
        listed.place.second = entry->index;
        listed.object = ResultOf(object, *entry);
        ZT_RETURN_IF_ERROR(WithTensor(AddParts(*std::move(entry), listed.served), object.name));
      }
      if (i > 0) {
        const bool alike = listed.served.made.empty() == all.back().served.made.empty() &&
                           delta_->file({i, 0}) == delta_->file({i - 1, 0});
        listed.place.first = all.back().place.first + (alike ? 0 : 1);
      }
      all.push_back(std::move(listed));
    }
    std::ranges::stable_sort(all, {}, &Listed::place);
    for (Listed& listed : all) {
      objects_.push_back(std::move(listed.object));
      parts_.push_back(std::move(listed.served));
    }
    return OkStatus();
  }

  Status AddParts(Entry entry, Served& served) {
    const std::string& own = delta_->objects()[served.stored].name;
    const std::string& name = entry.from.empty() ? own : entry.from;
    const auto found = base_objects_.find(name);
    for (Part& part : entry.parts) {
      ZT_ASSIGN_OR_RETURN(const auto made, MakePart(*delta_, served.stored, std::move(part)));
      made->name = name;
      const bool needs_base = std::ranges::any_of(made->part.chunks, [](const DeltaChunk& chunk) {
        return chunk.kind != DeltaKind::kPlanes;
      });
      if (needs_base && base_ != nullptr) {
        if (found == base_objects_.end()) return Wrong("it has no tensor " + Quote(name));
        ZT_ASSIGN_OR_RETURN(made->base, FindInBase(found->second, made->part));
        const Made* const below = below_ == nullptr ? nullptr : below_->MadeOf(made->base->id());
        if (below != nullptr && below->part.chunk == made->part.chunk) made->below = below;
      }
      served.made.push_back(made);
    }
    return OkStatus();
  }

  StatusOr<AnyOrder> FindInBase(std::uint32_t index, const Part& part) const {
    const Object& object = base_->objects()[index];
    const auto c = FindComponent(object, part.role, part.element, part.bytes);
    if (!c) return Wrong("tensor " + Quote(object.name) + " has another type or shape there");
    ZT_RETURN_IF_ERROR(WithFile(base_->CheckReadable(index), base_path_));
    AnyOrder reader(*base_, {index, *c});
    if (reader.possible()) return reader;
    return WithFile(Unsupported("a base must be readable in any order"), base_path_);
  }

  Status CountUneven() {
    const DeltaSource* const below = base_ == nullptr ? nullptr : FindIn(*base_);
    if (below == nullptr) return OkStatus();
    bool any = false;
    for (const Served& served : parts_) {
      for (const auto& made : served.made) {
        if (!made->base) continue;
        const std::uint64_t grid = base_->preferred_read(made->base->id());
        const bool whole = made->part.bytes <= made->part.chunk && made->part.bytes <= grid;
        any = any || (!whole && grid != 0 && made->part.chunk % grid != 0);
      }
    }
    uneven_ = below->uneven() + (any ? 1 : 0);
    if (uneven_ <= kMostUneven) return OkStatus();
    return WithFile(Unsupported("it and the deltas on which it stands are cut into chunks of too "
                                "many sizes"),
                    file_);
  }

  // Parts that are those of another object become the same part.
  Status ResolveAliases() {
    std::vector<std::pair<std::shared_ptr<const Made>*, std::shared_ptr<const Made>>> aliases;
    const NameIndex objects = ByName(objects_);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      for (auto& made : parts_[i].made) {
        if (!made->part.same_as) continue;
        const auto& [name, role] = *made->part.same_as;
        const auto found = objects.find(name);
        std::shared_ptr<const Made> same;
        for (const auto& each : found == objects.end()
                                    ? std::span<const std::shared_ptr<const Made>>()
                                    : parts_[found->second].made) {
          if (each->part.role == role && !each->part.same_as) same = each;
        }
        if (same == nullptr || same->part.bytes != made->part.bytes)
          return WithFile(
              WithTensor(Broken("'same_as' names " + Quote(name) + ", which has no such part"),
                         objects_[i].name),
              file_);
        aliases.emplace_back(&made, same);
      }
    }
    for (auto& [alias, same] : aliases) *alias = std::move(same);
    return OkStatus();
  }

  // Makes chunk `k` in `out`. Of a chain, the last result's digest tells of all.
  Status ReadChunk(const Made& made, std::size_t k, std::span<std::byte> out) const {
    const Status status = MakeChunk(made, k, out, false);
    if (status.ok() && Xxh3(out) == made.part.chunks[k].result) return OkStatus();
    return MakeChunk(made, k, out, true);  // whose fault is it?
  }

  // The base's, changed in place. `checked`: compares the digests of both.
  Status MakeChunk(const Made& made, std::size_t k, std::span<std::byte> out, bool checked) const {
    const DeltaChunk& chunk = made.part.chunks[k];
    if (chunk.kind != DeltaKind::kPlanes) {
      if (!made.base)
        return FailedPrecondition("its base is in memory, where alone it can be changed");
      ZT_RETURN_IF_ERROR(
          made.below == nullptr
              ? made.base->Read(made.BeginOf(k), out)
              : AtTensor(*base_, made.base->id(), below_->MakeChunk(*made.below, k, out, checked)));
      if (checked && Xxh3(out) != chunk.base)
        return WithFile(Wrong("tensor " + Quote(base_->objects()[made.base->id().object].name) +
                              " has other values there"),
                        file_);
    }
    ZT_RETURN_IF_ERROR(Change(made, k, out));
    return checked ? CheckResult(chunk, k, out) : OkStatus();
  }

  // Makes chunk `k` of the base's bytes.
  static Status Change(const Made& made, std::size_t k, std::span<std::byte> bytes) {
    ZT_ASSIGN_OR_RETURN(const auto frame, made.FrameOf(k));
    return ApplyDelta(made.part.element, made.part.chunks[k], frame, bytes);
  }

  // A chunk of which a part is wanted; the last few are kept.
  StatusOr<std::shared_ptr<const Held>> Recent(const Made& made, std::size_t k, std::size_t bytes) {
    {
      const zt::internal::MutexLock lock(mutex_);
      for (const auto& held : recent_) {
        if (held != nullptr && held->made == &made && held->k == k) return held;
      }
    }
    const auto held = std::make_shared<Held>(&made, k, std::vector<std::byte>(bytes));
    ZT_RETURN_IF_ERROR(ReadChunk(made, k, held->bytes));
    const zt::internal::MutexLock lock(mutex_);
    recent_[next_++ % recent_.size()] = held;
    return std::shared_ptr<const Held>(held);
  }

  // A chunk in memory. It is changed only once the result is known to be right.
  Status UpdateChunk(ComponentId id, const Made& made, std::size_t k, std::span<std::byte> memory,
                     bool dry) const {
    if (dry && base_ != nullptr) return OkStatus();
    const DeltaChunk& chunk = made.part.chunks[k];
    const std::uint64_t held = Xxh3(memory);
    if (held == chunk.result) return OkStatus();
    const bool of_base = held == chunk.base;
    if (!of_base && base_ == nullptr) {
      const std::string& first = delta_->objects()[made.stored.id().object].name;
      return InvalidArgument(
          "it has neither the bytes of the base, " + Described(origin_.base_name, origin_.base_id) +
          ", nor those that the delta makes of them" +
          (first == objects_[id.object].name ? "" : "; the delta ties it to " + Quote(first)));
    }
    if (dry) return OkStatus();
    const Buffer room = pool_.Take(memory.size());
    const std::span<std::byte> fresh = room.bytes();
    if (of_base) {
      std::memcpy(fresh.data(), memory.data(), fresh.size());
      ZT_RETURN_IF_ERROR(Change(made, k, fresh));
      ZT_RETURN_IF_ERROR(CheckResult(chunk, k, fresh));
    } else {
      ZT_RETURN_IF_ERROR(ReadChunk(made, k, fresh));
    }
    std::memcpy(memory.data(), fresh.data(), fresh.size());
    return OkStatus();
  }

  static Status CheckResult(const DeltaChunk& chunk, std::size_t k,
                            std::span<const std::byte> bytes) {
    if (Xxh3(bytes) == chunk.result) return OkStatus();
    return InvalidData("chunk " + std::to_string(k) +
                       " of its differences gives bytes of another digest");
  }

  const std::unique_ptr<TensorSource> delta_, base_;
  const DeltaSource* const below_;  // the base, if it is a delta
  const DeltaOrigin origin_;
  const std::string base_path_, base_id_;
  std::size_t uneven_ = 0;  // see kMostUneven
  NameIndex base_objects_;
  std::vector<Served> parts_;
  mutable BufferPool pool_{std::uint64_t{64} << 20};
  zt::internal::Mutex mutex_;
  std::array<std::shared_ptr<const Held>, 4> recent_ __attribute__((guarded_by(mutex_)));
  std::size_t next_ __attribute__((guarded_by(mutex_))) = 0;  // to be replaced
};

}  // namespace

AnyOrder::AnyOrder(TensorSource& source, ComponentId id)
    : source_(&source),
      id_(id),
      apart_(source.sequential(id) ? source.unordered_reader(id) : nullptr) {}

bool AnyOrder::possible() const { return apart_ != nullptr || !source_->sequential(id_); }

Status AnyOrder::Read(std::uint64_t offset, std::span<std::byte> out) const {
  const Status status =
      apart_ != nullptr ? apart_->Read(offset, out) : source_->Read(id_, offset, out);
  return AtTensor(*source_, id_, status);
}

std::optional<OfBase> delta::internal::MadeFrom(const TensorSource& model, ComponentId id) {
  const auto* const delta = dynamic_cast<const DeltaSource*>(&model);
  return delta == nullptr ? std::nullopt : delta->made_from(id);
}

Status delta::internal::UpdateRange(TensorSource& model, ComponentId id, std::uint64_t offset,
                                    std::span<std::byte> memory, bool dry) {
  if (auto* const delta = dynamic_cast<DeltaSource*>(&model))
    return delta->Update(id, offset, memory, dry);
  return dry ? OkStatus() : model.Read(id, offset, memory);
}

std::string KnownId(const TensorSource& source) {
  if (const DeltaSource* const delta = DeltaSource::FindIn(source)) return delta->origin().id;
  const Reader* const reader = ReaderOf(source);
  if (reader == nullptr || !Traits(reader->manifest().version).digests_decoded) return "";
  const Manifest& manifest = reader->manifest();
  // Ids of other digests are of the same content, and differ.
  for (const StoredObject& object : manifest.objects) {
    for (const StoredComponent& component : object.components) {
      if (!component.digest.starts_with("xxh3:")) return "";
    }
  }
  std::vector<std::byte> bytes(manifest.bytes);
  if (!reader->bytes().ReadAt(manifest.offset, bytes).ok()) return "";
  return ContentDigest(bytes, DigestKind::kSha256).value_or("");
}

namespace {

// The first problem of an object; an error if it cannot be read.
Status CheckObject(TensorSource& delta, std::uint32_t index) {
  ZT_ASSIGN_OR_RETURN(Entry entry, ReadEntry(delta.objects()[index]));
  for (Part& part : entry.parts) {
    ZT_ASSIGN_OR_RETURN(const auto made, MakePart(delta, index, std::move(part)));
    for (std::size_t k = 0; k < made->part.chunks.size(); ++k) {
      ZT_ASSIGN_OR_RETURN(const auto frame, made->FrameOf(k));
      ZT_RETURN_IF_ERROR(
          CheckDelta(made->part.element, made->part.chunks[k], frame, made->BytesOf(k)));
    }
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<DeltaProblem>> CheckDeltas(TensorSource& delta) {
  std::vector<DeltaProblem> problems;
  for (std::uint32_t i = 0; i < delta.objects().size(); ++i) {
    const Object& object = delta.objects()[i];
    if (object.format != kDeltaFormat) continue;
    const Status status = CheckObject(delta, i);
    if (status.ok()) continue;
    if (status.code() != StatusCode::kDataLoss) return WithTensor(status, object.name);
    problems.push_back({object.name, Fact(status)});
  }
  return problems;
}

std::string BaseName(std::string_view path) {
  if (IsUrl(path)) path = path.substr(0, path.find_first_of("?#"));
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path == "." || path == ".." || path.ends_with("/.") || path.ends_with("/..")) {
    std::error_code error;
    return std::filesystem::weakly_canonical(path, error).filename().string();
  }
  return std::string(path.substr(path.rfind('/') + 1));
}

StatusOr<std::unique_ptr<TensorSource>> OpenDelta(std::unique_ptr<TensorSource> delta,
                                                  const DeltaOrigin& origin,
                                                  std::unique_ptr<TensorSource> base,
                                                  const std::string& base_path) {
  auto source = std::make_unique<DeltaSource>(std::move(delta), origin, std::move(base), base_path);
  ZT_RETURN_IF_ERROR(source->Init());
  return source;
}

}  // namespace zt
