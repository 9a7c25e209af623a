// zt.writer:chain — the stages that say what the manifest is to say.
module;

#include <assert.h>

#include "core/status_macros.h"

module zt.writer;

import zt.std;
import :chain;
import :options;
import :plan;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.transform;

namespace zt::writer::internal {
namespace {

const ComponentState& StateOf(const Piece& piece) { return *piece.state; }

// True where no component has a blob of its own.
bool OnlyShares(const PlannedObject& object) {
  return std::all_of(object.components.begin(), object.components.end(),
                     [](const PlannedComponent& each) { return each.shared_with.has_value(); });
}

// A component whose last chunk has passed all stages before.
Blob BlobOf(const ComponentState& state, const Blob& sums, std::uint32_t crc) {
  Blob blob = sums;
  if (state.choice == ComponentState::kEncoded) {
    blob.encoding = state.storage.encoding;
    blob.parameters = state.storage.parameters;
  }
  blob.digest = state.storage.digest == DigestKind::kCrc32c ? Crc32cText(crc) : state.digest;
  return blob;
}

// What the manifest is to say of an object, while it becomes known. Its memory serves one object after the other.
class Entry {
 public:
  bool begun() const { return begun_; }
  void Begin(const Object& object) {
    begun_ = true;
    stored_.name = object.name;
    stored_.format = object.format;
    stored_.shape = object.shape;
    stored_.attributes = object.attributes;
    stored_.components.resize(object.components.size());
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      stored_.components[c].role = object.components[c].role;
      stored_.components[c].element = object.components[c].element;
    }
  }
  // What has changed since it was begun.
  void Close(const Object& object) {
    stored_.shape = object.shape;
    stored_.attributes = object.attributes;
  }
  void Fill(std::uint32_t component, Blob blob) {
    StoredComponent& stored = stored_.components[component];
    stored.offset = blob.offset;
    stored.length = blob.length;
    stored.decoded_bytes = blob.decoded_bytes;
    stored.encoding = blob.encoding;
    stored.parameters = blob.parameters;
    stored.digest = std::move(blob.digest);
  }
  const StoredObject& End() {
    begun_ = false;
    return stored_;
  }

 private:
  StoredObject stored_;
  bool begun_ = false;
};

// Encodes what the manifest says of objects that are one chunk, as a million small tensors are: record then has only to copy
// it. Where something is wrong with an object it leaves it to record, which says so in order.
class EntryStage final : public StageOf<Batch> {
 public:
  explicit EntryStage(const ManifestEncoder& manifest) : manifest_(manifest) {}
  Status Process(Batch& batch) override {
    std::size_t most = 0;
    for (const Piece& chunk : batch.pieces) most += Room(chunk);
    batch.entries.reserve(most);
    Entry entry;
    for (Piece& chunk : batch.pieces) {
      if (Room(chunk) > 0) (void)Caught([&] { return Encode(chunk, entry, batch.entries); });
    }
    std::span<const std::byte> left = batch.entries;
    for (Piece& chunk : batch.pieces) {
      if (!chunk.entry) continue;
      chunk.entry_bytes = left.first(chunk.entry->bytes);
      left = left.subspan(chunk.entry->bytes);
    }
    return OkStatus();
  }

 private:
  // The most bytes of a chunk's entry; 0 where it is left to record.
  static std::size_t Room(const Piece& chunk) {
    const ComponentState& state = StateOf(chunk);
    const bool whole = chunk.first && chunk.last && state.ends_object && chunk.closing == nullptr;
    return whole && !Shares(state) ? EntryBytes(*state.object) : 0;
  }
  // Whether others need the blob to be recorded, or an object without one follows.
  static bool Shares(const ComponentState& state) {
    if (state.plan == nullptr || state.plan->shared.empty()) return false;
    const std::vector<PlannedObject>& objects = state.plan->plan.objects;
    const std::size_t next = state.at.object + std::size_t{1};
    return state.plan->shared.contains(state.at) ||
           (next < objects.size() && OnlyShares(objects[next]));
  }

  Status Encode(Piece& chunk, Entry& entry, std::vector<std::byte>& out) const {
    const ComponentState& state = StateOf(chunk);
    const Blob sums = {.offset = chunk.place,
                       .length = chunk.stored.size() + chunk.trailer.size(),
                       .decoded_bytes = chunk.bytes().size()};
    entry.Begin(*state.object);
    entry.Fill(0, BlobOf(state, sums, chunk.crc));
    ZT_ASSIGN_OR_RETURN(chunk.entry, manifest_.Encode(entry.End(), &out));
    assert(chunk.entry->bytes <= EntryBytes(*state.object));
    return OkStatus();
  }

  const ManifestEncoder& manifest_;
};

// Writes down what was stored, in declared order: an object's entry is complete with its last blob.
class RecordStage final : public PieceStage {
 public:
  explicit RecordStage(Record& record) : record_(record) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status ProcessPiece(Piece& chunk) override {
    const std::uint64_t bytes = chunk.stored.size() + chunk.trailer.size();
    if (chunk.first) {
      sums_ = {};
      sums_.begin = chunk.place;
    }
    sums_.crc = sums_.stored == 0 ? chunk.crc : Crc32cCombine(sums_.crc, chunk.crc, bytes);
    sums_.stored += bytes;
    sums_.content += chunk.bytes().size();
    sums_.counts.overflow += chunk.counts.overflow;
    sums_.counts.nan_lost += chunk.counts.nan_lost;
    sums_.counts.fraction_lost += chunk.counts.fraction_lost;
    if (sums_.facts.empty()) {
      sums_.facts = std::move(chunk.facts);
    } else {
      for (std::size_t i = 0; i < sums_.facts.size(); ++i) sums_.facts[i].Merge(chunk.facts[i]);
    }
    record_.bytes_done += chunk.input_bytes;
    record_.stored_done += bytes;
    return chunk.last ? Complete(chunk) : OkStatus();
  }

 private:
  Status Complete(const Piece& chunk) {
    const ComponentState& state = StateOf(chunk);
    const Component& component = state.object->components[state.at.component];
    if (state.declared_bytes != kUnknownSize && sums_.content != state.declared_bytes) {
      return InvalidArgument("component " + Quote(component.role) + " came out as " +
                             std::to_string(sums_.content) + " bytes, " +
                             std::to_string(state.declared_bytes) + " were declared");
    }
    ZT_RETURN_IF_ERROR(CheckFacts(state));
    ZT_RETURN_IF_ERROR(CheckNumbers(state, component.element));
    if (chunk.entry) {
      ++record_.tensors_done;
      return record_.manifest.Add(*chunk.entry, chunk.entry_bytes);
    }
    Blob blob = BlobOf(
        state, {.offset = sums_.begin, .length = sums_.stored, .decoded_bytes = sums_.content},
        sums_.crc);
    if (state.plan != nullptr && !state.plan->shared.empty()) {
      const auto shared = state.plan->shared.find(state.at);
      if (shared != state.plan->shared.end()) shared->second.blob = blob;
    }
    if (!entry_.begun()) entry_.Begin(*state.object);
    if (chunk.closing != nullptr) entry_.Close(*chunk.closing);
    entry_.Fill(state.at.component, std::move(blob));
    return state.ends_object ? End(state) : OkStatus();
  }

  // Whether the bytes keep the rule of the component, and those of all that share its blob.
  Status CheckFacts(const ComponentState& state) const {
    if (sums_.facts.empty()) return OkStatus();
    ZT_RETURN_IF_ERROR(CheckFacts(state, *state.object, state.at.component));
    if (state.plan == nullptr) return OkStatus();
    const auto shared = state.plan->shared.find(state.at);
    if (shared == state.plan->shared.end()) return OkStatus();
    for (const ComponentId id : shared->second.by) {
      const Object& object = *state.plan->plan.objects[id.object].object;
      if (auto status = CheckFacts(state, object, id.component); !status.ok()) {
        return Annotate(status, TensorContext(object.name) + ", which has the same bytes");
      }
    }
    return OkStatus();
  }

  // Whether they are what component `index` of `object` may have.
  Status CheckFacts(const ComponentState& state, const Object& object, std::uint32_t index) const {
    const auto rule = RuleOf(object, index, state.declared_bytes);
    if (!rule) return OkStatus();
    const auto at = std::ranges::find(state.rules, *rule) - state.rules.begin();
    Status status = sums_.facts[static_cast<std::size_t>(at)].Check(object, CountIndices(object));
    if (state.plan == nullptr || state.plan->of_caller) status = OfCaller(status);
    if (status.ok() || object.components.size() == 1) return status;
    return Annotate(status, "component " + Quote(object.components[index].role));
  }

  Status CheckNumbers(const ComponentState& state, const ElementType& element) {
    const NumericCounts& counts = sums_.counts;
    if (counts.overflow == 0 && counts.nan_lost == 0 && counts.fraction_lost == 0)
      return OkStatus();
    const std::uint64_t values = sums_.content / ByteWidth(element.dtype);
    record_.findings.push_back({state.object->name, counts, values});
    return state.on_overflow == OnOverflow::kError ? CheckFit(counts, element) : OkStatus();
  }

  // The object's last blob is known; so is all of those objects that follow and only share blobs.
  Status End(const ComponentState& state) {
    if (state.plan == nullptr) return Add();
    const std::vector<PlannedObject>& objects = state.plan->plan.objects;
    std::size_t i = state.at.object;
    do {
      if (!entry_.begun()) entry_.Begin(*objects[i].object);
      const auto& components = objects[i].components;
      for (std::uint32_t c = 0; c < components.size(); ++c) {
        if (components[c].shared_with) {
          entry_.Fill(c, state.plan->shared.at(*components[c].shared_with).blob);
        }
      }
      ZT_RETURN_IF_ERROR(Add());
      ++i;
    } while (i < objects.size() && OnlyShares(objects[i]));
    return OkStatus();
  }

  Status Add() {
    ++record_.tensors_done;
    return record_.manifest.Add(entry_.End());
  }

  Record& record_;
  // Of the component under way.
  struct Sums {
    std::uint64_t begin = 0, stored = 0, content = 0;
    std::uint32_t crc = 0;
    NumericCounts counts;
    std::vector<DataFacts> facts;  // one for each rule of the component
  } sums_;
  Entry entry_;  // of the object under way
};

}  // namespace

std::shared_ptr<StageOf<Batch>> MakeEntryStage(const ManifestEncoder& manifest) {
  return std::make_shared<EntryStage>(manifest);
}

std::shared_ptr<StageOf<Batch>> MakeRecordStage(Record& record) {
  return std::make_shared<RecordStage>(record);
}

}  // namespace zt::writer::internal
