// zt.convert.delta — makes conversions into those of differences: two stages of a writer read the
// base, encode, and compute digests.
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
import zt.source;
import zt.transform;
import zt.writer;

namespace zt {

using namespace delta::internal;

namespace {

constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;
// Of the digests from which ids are made.
constexpr DigestKind kIdKind = DigestKind::kXxh3;

// The source, read in pieces of a chunk.
class ChunkedSource final : public WrappedSource {
 public:
  explicit ChunkedSource(TensorSource& inner) : WrappedSource(inner), inner_(inner) {
    objects_ = inner.objects();
  }
  // Reads of the base that are best, for a component of the source.
  std::map<ComponentId, std::uint64_t> of_base;

  std::uint64_t preferred_read(ComponentId id) const override {
    if (const auto found = of_base.find(id); found != of_base.end()) return found->second;
    const std::uint64_t own = inner_.preferred_read(id);
    if (own == 0 || kChunk % own == 0) return kChunk;
    if (own < kChunk) return (kChunk + own - 1) / own * own;
    return own <= kMaxDeltaChunk ? own : kChunk;
  }

 private:
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    return {inner_, id};
  }
  TensorSource& inner_;
};

// A step of the writer.
class Step final : public Stage {
 public:
  Step(StageOrder order, std::function<Status(Chunk&)> run) : order_(order), run_(std::move(run)) {}
  StageOrder order() const override { return order_; }
  Status Process(Chunk& chunk) override { return run_(chunk); }

 private:
  const StageOrder order_;
  const std::function<Status(Chunk&)> run_;
};

// What is made of a chunk on the way from the stage that encodes to the one that hashes.
struct MadeChunk {
  DeltaChunk chunk;
  Buffer old, frame;
};

// A component in flight, or done.
struct Flow {
  bool differs = false;  // stored as differences; else as it is
  bool ends_object = false;
  std::optional<AnyOrder> base;  // if any byte differs
  // Of the result by the wanted kind; for ids, of both sides. Null if it is not needed.
  std::unique_ptr<Hasher> wanted, fresh, old;
  std::string id_digest;  // of the result
  std::optional<DataRule> rule;
  std::unique_ptr<ContentCheck> check;  // of the result, if there is a rule
  Part part;
};

// An object in flight, or done.
struct ObjectFlow {
  const Object* result = nullptr;                 // as the plan had it
  std::shared_ptr<const Object> planned;          // as the writer gets it
  Entry entry;                                    // its parts are set at the end, by Closed
  std::vector<std::shared_ptr<Flow>> components;  // those that share a blob have one
};

// The content digest of objects. Empty if a digest is, or if 2.0, whose it is, cannot say an object.
StatusOr<std::string> IdOf(const std::vector<Object>& objects,
                           const std::function<std::string(ComponentId)>& digest_of) {
  ManifestEncoder encoder(SpecVersion::k2_0);
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    const Object& object = objects[i];
    StoredObject stored;
    stored.name = object.name;
    stored.format = object.format;
    stored.shape = object.shape;
    stored.attributes = object.attributes;
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const Component& component = object.components[c];
      StoredComponent& each = stored.components.emplace_back();
      each.role = component.role;
      each.element = component.element;
      each.offset = Traits(SpecVersion::k2_0).placement;
      each.length = each.decoded_bytes = component.bytes;
      each.digest = digest_of({i, c});
      if (each.digest.empty()) return std::string();
    }
    if (!encoder.Add(stored).ok()) return std::string();
  }
  ZT_ASSIGN_OR_RETURN(const EncodedManifest manifest, encoder.Finish({}));
  return ContentDigest(manifest.Joined(), DigestKind::kSha256);
}

class Maker final : public DeltaMaker {
 public:
  Maker(TensorSource& source, std::unique_ptr<TensorSource> base, const std::string& base_path,
        DigestKind kind)
      : inner_(source),
        source_(source),
        base_(std::move(base)),
        base_path_(base_path),
        kind_(kind),
        base_id_(KnownId(*base_)),
        base_objects_(ByName(base_->objects())) {}

  TensorSource& source() override { return source_; }

  DeltaCounts Count(const Plan& plan) const override {
    DeltaCounts counts;
    std::vector<bool> used(base_->objects().size());
    const std::vector<Choice> choices = Choose(plan);
    for (std::size_t i = 0; i < plan.objects.size(); ++i) {
      (choices[i].differs ? counts.differing : counts.full)++;
      if (choices[i].differs && !IsFile(*plan.objects[i].object)) ++counts.differing_tensors;
      if (const auto base = BaseOf(plan.objects[i])) used[*base] = true;
    }
    for (std::size_t b = 0; b < used.size(); ++b) {
      if (!used[b]) counts.removed.push_back(base_->objects()[b].name);
    }
    return counts;
  }

  std::vector<std::string> base_files() const override { return FilesOf(*base_); }

  Value attribute() const override { return Attribute("", base_id_); }

  StatusOr<Plan> Change(const Plan& plan, WriterOptions& options) override {
    objects_.clear();
    flows_.clear();
    results_.clear();
    for (const PlannedObject& planned : plan.objects) results_.push_back(*planned.object);
    Plan changed = plan;
    const std::vector<Choice> choices = Choose(plan);
    std::vector<ComponentId> wanted;
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i)
      AddObject(i, choices, changed.objects[i], wanted);
    base_->WillRead(wanted);
    options.stages.push_back(std::make_shared<Step>(
        StageOrder::kParallel, [this](Chunk& chunk) { return Encode(chunk); }));
    options.stages.push_back(
        std::make_shared<Step>(StageOrder::kInChain, [this](Chunk& chunk) { return Hash(chunk); }));
    return changed;
  }

  Status Finish(Writer& writer, bool whole) override {
    if (whole) {
      ZT_ASSIGN_OR_RETURN(const std::string base_id, base_id_.empty() ? BaseId() : base_id_);
      ZT_ASSIGN_OR_RETURN(const std::string id, ResultId());
      writer.SetAttribute(kDeltaAttribute, Attribute(id, base_id));
    }
    return WithFile(base_->Finish(), base_path_);
  }

 private:
  Value Attribute(const std::string& id, const std::string& base_id) const {
    Value::Map base = {{"name", BaseName(base_path_)}};
    if (!base_id.empty()) base.emplace_back("id", base_id);
    Value::Map out = {{"base", std::move(base)}};
    if (!id.empty()) out.emplace_back("id", id);
    return out;
  }

  // The object of the base with the planned name, or with the name before it was changed.
  std::optional<std::uint32_t> BaseOf(const PlannedObject& planned) const {
    auto found = base_objects_.find(planned.object->name);
    if (found == base_objects_.end()) {
      const std::uint32_t from = planned.components.front().source.object;
      found = base_objects_.find(inner_.objects()[from].name);
    }
    if (found == base_objects_.end()) return std::nullopt;
    return found->second;
  }

  // The same component of an object of the base; nullopt if it has another type or size, or cannot
  // be read.
  std::optional<AnyOrder> Counterpart(std::uint32_t index, const Component& wanted) const {
    const auto c =
        FindComponent(base_->objects()[index], wanted.role, wanted.element, wanted.bytes);
    if (!c || !base_->CheckReadable(index).ok()) return std::nullopt;
    AnyOrder reader(*base_, {index, *c});
    return reader.possible() ? std::optional(std::move(reader)) : std::nullopt;
  }

  // True if an object can be stored as differences from an object of the base.
  bool IsAlike(const PlannedObject& planned, std::optional<std::uint32_t> base) const {
    const Object& object = *planned.object;
    if (object.components.size() > kMostParts) return false;
    for (std::size_t c = 0; c < planned.components.size(); ++c) {
      const Component& component = object.components[c];
      if (planned.components[c].shared_with || component.bytes == 0) continue;
      if (!base || base_->objects()[*base].format != object.format ||
          base_->objects()[*base].shape != object.shape || !Counterpart(*base, component))
        return false;
    }
    return true;
  }

  // How an object of a plan is stored.
  struct Choice {
    bool differs = false;
    std::optional<std::uint32_t> base;
  };

  // What shares a blob is stored as what it shares is. The base may know only the name of one that
  // shares it.
  std::vector<Choice> Choose(const Plan& plan) const {
    std::unordered_multimap<std::uint32_t, std::uint32_t> sharers;
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
      const auto& with = plan.objects[i].components.front().shared_with;
      if (with) sharers.emplace(with->object, i);
    }
    std::vector<Choice> choices(plan.objects.size());
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
      const PlannedObject& planned = plan.objects[i];
      Choice& choice = choices[i];
      if (FindMember(planned.object->attributes, kEntryAttribute) != nullptr) continue;
      choice.base = BaseOf(planned);
      choice.differs = IsAlike(planned, choice.base);
      const auto [begin, end] = sharers.equal_range(i);
      for (auto each = begin; each != end && !choice.differs; ++each) {
        const auto other = BaseOf(plan.objects[each->second]);
        if (other && IsAlike(planned, other)) choice = {true, other};
      }
      for (const PlannedComponent& component : planned.components) {
        if (component.shared_with && !choices[component.shared_with->object].differs)
          choice.differs = false;
      }
    }
    return choices;
  }

  void AddObject(std::uint32_t index, const std::vector<Choice>& choices, PlannedObject& planned,
                 std::vector<ComponentId>& wanted) {
    const auto [differs, base] = choices[index];
    const Object& from = results_[index];
    ObjectFlow& object = objects_.emplace_back();
    object.result = &from;
    object.entry.format = from.format.str();
    object.entry.index = planned.components.front().source.object;
    if (base && base_->objects()[*base].name != from.name)
      object.entry.from = base_->objects()[*base].name;
    Object stored = from;
    Flow* last = nullptr;
    for (std::uint32_t c = 0; c < planned.components.size(); ++c) {
      PlannedComponent& component = planned.components[c];
      auto& shared = component.shared_with;
      Part& part = object.entry.parts.emplace_back();
      part.role = from.components[c].role.str();
      part.element = from.components[c].element;
      part.bytes = from.components[c].bytes;
      if (differs) {
        stored.components[c] = {RoleOf(part), {DType::kU8, ""}, kUnknownSize};
        component.storage.compression = Compression::kNone;
      }
      if (shared && choices[shared->object].differs != differs) shared.reset();  // not stored alike
      if (shared) {
        // The first with the blob is no sharer itself.
        const Object& first = results_[shared->object];
        part.same_as.emplace(first.name, first.components[shared->component].role.str());
        object.components.push_back(objects_[shared->object].components[shared->component]);
        continue;
      }
      last = object.components.emplace_back(std::make_shared<Flow>()).get();
      last->differs = differs;
      last->part = part;
      last->fresh = MakeHasher(kIdKind);
      if (kind_ != kIdKind) last->wanted = MakeHasher(kind_);
      if (!differs) continue;
      last->rule = RuleOf(from, c, part.bytes);
      if (last->rule) {
        last->check = std::make_unique<ContentCheck>();
        last->check->Expect(*last->rule, from);
      }
      if (part.bytes == 0) continue;
      last->base = Counterpart(*base, from.components[c]);
      if (base_id_.empty()) last->old = MakeHasher(kIdKind);
      wanted.push_back(last->base->id());
      // Else a chunk would be made of two of the base, each of which may be made of two.
      if (const std::uint64_t grid = base_->preferred_read(last->base->id());
          grid != 0 && grid <= kMaxDeltaChunk) {
        const std::uint64_t chunk = grid >= kChunk ? grid : kChunk / grid * grid;
        const Transform* const transform = component.transform.get();
        const bool shrinks =
            transform != nullptr && transform->output_unit() < transform->input_unit();
        source_.of_base[component.source] =
            shrinks ? chunk / transform->output_unit() * transform->input_unit() : chunk;
      }
    }
    if (differs) {
      if (last != nullptr) last->ends_object = true;
      stored.format = kDeltaFormat;
      stored.attributes.emplace_back(std::string(kEntryAttribute), ToValue(object.entry));
      planned.object = std::make_shared<Object>(std::move(stored));
    }
    object.planned = planned.object;
    flows_.emplace(planned.object.get(), &object);
  }

  // Reads the chunk of the base, and encodes what differs.
  Status Encode(Chunk& chunk) {
    Flow& flow = *flows_.at(chunk.object)->components[chunk.component];
    const std::span<const std::byte> fresh = chunk.bytes();
    if (!flow.differs || fresh.empty()) return OkStatus();
    const auto note = std::make_shared<MadeChunk>();
    MadeChunk& made = *note;
    made.old = chunk.pool->Take(fresh.size());
    const std::span<std::byte> old = made.old.bytes();
    ZT_RETURN_IF_ERROR(WithFile(flow.base->Read(chunk.offset, old), base_path_));
    Buffer room = chunk.pool->Take(DeltaBound(fresh.size()));
    ZT_ASSIGN_OR_RETURN(made.chunk, EncodeDelta(flow.part.element, old, fresh, room.bytes()));
    made.chunk.result = Xxh3(fresh);
    made.chunk.base = made.chunk.kind == DeltaKind::kEqual ? made.chunk.result : Xxh3(old);
    if (made.chunk.frame > 0) {
      made.frame = chunk.pool->Take(made.chunk.frame);
      std::memcpy(made.frame.bytes().data(), room.bytes().data(), made.chunk.frame);
    }
    if (flow.old == nullptr) made.old = Buffer();
    chunk.note = note;
    return OkStatus();
  }

  // Hashes both sides in order, and puts the frame in place of the chunk.
  Status Hash(Chunk& chunk) {
    const ObjectFlow& object = *flows_.at(chunk.object);
    Flow& flow = *object.components[chunk.component];
    flow.fresh->Update(chunk.bytes());
    if (flow.wanted != nullptr) flow.wanted->Update(chunk.bytes());
    if (flow.check != nullptr)
      flow.check->Add(flow.check->Look(chunk.offset, chunk.bytes()), chunk.bytes());
    if (chunk.note != nullptr) {
      MadeChunk& made = *static_cast<MadeChunk*>(chunk.note.get());
      if (flow.old != nullptr) flow.old->Update(made.old.bytes());
      Part& part = flow.part;
      if (part.chunks.empty()) part.chunk = static_cast<std::uint32_t>(chunk.bytes().size());
      if (chunk.offset != std::uint64_t{part.chunk} * part.chunks.size())
        return FailedPrecondition("a tensor was cut into chunks of several sizes");
      part.chunks.push_back(made.chunk);
      chunk.Replace(std::move(made.frame));
      chunk.note = nullptr;
    }
    if (!chunk.last) return OkStatus();
    if (flow.check != nullptr) {
      const Object& result = *object.result;
      const Status good = flow.check->Check(*flow.rule, result, CountIndices(result));
      if (!good.ok())
        return result.components.size() == 1 ? good : WithComponent(good, flow.part.role);
    }
    flow.id_digest = flow.fresh->Finish();
    flow.part.digest = flow.wanted == nullptr ? flow.id_digest : flow.wanted->Finish();
    if (flow.old != nullptr) {
      const zt::internal::MutexLock lock(base_mutex_);
      base_digests_.emplace(flow.base->id(), flow.old->Finish());
    }
    if (flow.ends_object) chunk.closing = [&object] { return Closed(object); };
    return OkStatus();
  }

  // The declaration with what is known at the end.
  static std::shared_ptr<const Object> Closed(const ObjectFlow& object) {
    const auto closed = std::make_shared<Object>(*object.planned);
    Entry entry = object.entry;
    for (std::size_t c = 0; c < entry.parts.size(); ++c) {
      if (!entry.parts[c].same_as) entry.parts[c] = object.components[c]->part;
    }
    SetMember(closed->attributes, kEntryAttribute, ToValue(entry));
    return closed;
  }

  StatusOr<std::string> ResultId() const {
    return IdOf(results_, [&](ComponentId id) {
      return objects_[id.object].components[id.component]->id_digest;
    });
  }

  // Empty if some of the base was not read.
  StatusOr<std::string> BaseId() const {
    return IdOf(base_->objects(), [&](ComponentId id) {
      const auto known = base_digests_.find(id);
      if (known != base_digests_.end()) return known->second;
      const bool empty = base_->objects()[id.object].components[id.component].bytes == 0;
      return empty ? MakeHasher(kIdKind)->Finish() : std::string();
    });
  }

  const TensorSource& inner_;
  ChunkedSource source_;
  const std::unique_ptr<TensorSource> base_;
  const std::string base_path_;
  const DigestKind kind_;
  const std::string base_id_;
  const NameIndex base_objects_;
  std::vector<Object> results_;  // of the plan
  std::deque<ObjectFlow> objects_;
  std::unordered_map<const Object*, const ObjectFlow*> flows_;  // by what the writer gets
  zt::internal::Mutex base_mutex_;
  std::map<ComponentId, std::string> base_digests_;
};

}  // namespace

std::shared_ptr<Stage> CheckDigests(const TensorSource& model, const Plan& plan) {
  struct Stated {
    std::string digest;
    std::shared_ptr<Hasher> hasher;
  };
  std::map<std::pair<const Object*, std::uint32_t>, Stated> all;
  for (const PlannedObject& planned : plan.objects) {
    for (std::uint32_t c = 0; c < planned.components.size(); ++c) {
      const auto made = MadeFrom(model, planned.components[c].source);
      const DigestText digest = DigestOrUnknown(made ? made->part->digest : "");
      if (digest.kind == DigestKind::kNone) continue;
      all.emplace(std::pair(planned.object.get(), c),
                  Stated{digest.canonical, MakeHasher(digest.kind)});
    }
  }
  return std::make_shared<Step>(StageOrder::kInChain, [all](Chunk& chunk) -> Status {
    const auto found = all.find({chunk.object, chunk.component});
    if (found == all.end()) return OkStatus();
    const auto& [digest, hasher] = found->second;
    hasher->Update(chunk.bytes());
    if (!chunk.last) return OkStatus();
    const std::string is = hasher->Finish();
    return is == digest ? OkStatus()
                        : InvalidData("its digest is " + is + ", the delta says " + digest);
  });
}

StatusOr<std::unique_ptr<DeltaMaker>> DeltaMaker::Make(TensorSource& source,
                                                       std::unique_ptr<TensorSource> base,
                                                       const std::string& base_path,
                                                       DigestKind kind) {
  if (!base->seekable())
    return WithFile(Unsupported("a base must be readable in any order, which a pipe is not"),
                    base_path);
  return std::make_unique<Maker>(source, std::move(base), base_path, kind);
}

}  // namespace zt
