// zt.writer:chain — the stages that build manifest entries.
module;

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

// True if no component has its own blob.
bool OnlyShares(const PlannedObject& object) {
  return std::all_of(object.components.begin(), object.components.end(),
                     [](const PlannedComponent& each) { return each.shared_with.has_value(); });
}

// Progress of a copied stream: decoded bytes in proportion to stored bytes; exact at the end.
std::uint64_t ContentOfCopied(const WriterChunk& chunk) {
  const ComponentState& state = *chunk.state;
  if (chunk.last) return state.declared_bytes;
  const double share = static_cast<double>(chunk.input_offset + chunk.input_bytes) /
                       static_cast<double>(state.copied->stream.extent.length);
  return static_cast<std::uint64_t>(share * static_cast<double>(state.declared_bytes));
}

// A component whose last chunk has passed all stages before.
StoredBlob BlobOf(const ComponentState& state, const StoredBlob& sums, std::uint32_t crc) {
  StoredBlob blob = sums;
  if (state.choice == ComponentState::kStoreEncoded) {
    blob.encoding = state.storage.encoding;
    blob.parameters = state.storage.parameters;
  }
  if (state.copied != nullptr) {
    blob.encoding = state.copied->stream.encoding;
    blob.parameters = state.copied->stream.parameters;
  }
  const bool combined = state.storage.digest == DigestKind::kCrc32c;
  blob.digest = combined ? Crc32cText(crc) : std::string(state.digest);
  return blob;
}

// Builds an object's manifest entry as its parts become known. Its memory is reused for the next
// object.
class ManifestEntry {
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
  // Takes over the changes since Begin.
  void Close(const Object& object) {
    stored_.shape = object.shape;
    stored_.attributes = object.attributes;
  }
  // `check` has seen the blob's bytes; null if there are no rules.
  void Fill(std::uint32_t component, StoredBlob blob, std::shared_ptr<ContentCheck> check) {
    if (check != nullptr) checks_[component] = std::move(check);
    StoredComponent& stored = stored_.components[component];
    stored.offset = blob.offset;
    stored.length = blob.length;
    stored.decoded_bytes = blob.decoded_bytes;
    stored.encoding = blob.encoding;
    stored.parameters = blob.parameters;
    stored.digest = std::move(blob.digest);
  }
  const StoredObject& stored() const { return stored_; }
  const std::map<std::uint32_t, std::shared_ptr<ContentCheck>>& checks() const { return checks_; }
  void End() {
    begun_ = false;
    checks_.clear();
  }

 private:
  StoredObject stored_;
  std::map<std::uint32_t, std::shared_ptr<ContentCheck>> checks_;  // only of components with rules
  bool begun_ = false;
};

// True if all of an object is in this chunk, and nothing is shared with another.
bool IsAlone(const WriterChunk& chunk) {
  const ComponentState& state = *chunk.state;
  if (!chunk.first || !chunk.last || chunk.closing || state.check != nullptr) return false;
  if (EntryBytes(*state.object) == 0) return false;
  if (state.plan == nullptr || state.plan->shared.empty()) return true;
  const std::vector<PlannedObject>& objects = state.plan->plan.objects;
  const std::size_t next = state.at.object + std::size_t{1};
  return !state.plan->shared.contains(state.at) &&
         (next == objects.size() || !OnlyShares(objects[next]));
}

// Encodes what is right. The record stage says, in order, what is wrong with the others.
Status EncodeEntries(Batch& batch, const ManifestEncoder& manifest, SpecVersion spec) {
  ManifestEntry entry;
  for (WriterChunk& chunk : batch.ranges) {
    if (!IsAlone(chunk)) continue;
    const ComponentState& state = *chunk.state;
    entry.Begin(*state.object);
    entry.Fill(0,
               BlobOf(state,
                      {.offset = chunk.place,
                       .length = chunk.stored.size() + chunk.trailer.size(),
                       .decoded_bytes =
                           state.copied != nullptr ? ContentOfCopied(chunk) : chunk.bytes().size()},
                      chunk.crc),
               nullptr);
    if (!CheckStored(entry.stored(), spec).ok()) continue;
    auto encoded = manifest.Encode(entry.stored());
    if (encoded.ok()) chunk.entry = *std::move(encoded);
  }
  return OkStatus();
}

// Records stored objects in declared order. An object's entry is complete with its last blob; it is
// then validated by the functions that readers use.
class RecordStage {
 public:
  RecordStage(Record& record, SpecVersion spec) : record_(record), spec_(spec) {}
  Status operator()(WriterChunk& chunk) {
    const std::uint64_t bytes = chunk.stored.size() + chunk.trailer.size();
    if (chunk.first) {
      sums_ = {};
      sums_.begin = chunk.place;
    }
    sums_.crc = sums_.stored == 0 ? chunk.crc : Crc32cCombine(sums_.crc, chunk.crc, bytes);
    sums_.stored += bytes;
    const ComponentState& state = *chunk.state;
    const std::uint64_t content =
        state.copied != nullptr ? ContentOfCopied(chunk) - sums_.content : chunk.bytes().size();
    sums_.content += content;
    sums_.counts += chunk.counts;
    if (state.check != nullptr) state.check->Add(std::move(chunk.found), chunk.bytes());
    record_.bytes_done += state.copied != nullptr ? content : chunk.input_bytes;
    record_.stored_done += bytes;
    return chunk.last ? Complete(chunk) : OkStatus();
  }

 private:
  Status Complete(const WriterChunk& chunk) {
    const ComponentState& state = *chunk.state;
    ZT_RETURN_IF_ERROR(CheckSize(state.object->components[state.at.component], sums_.content));
    ZT_RETURN_IF_ERROR(CheckNumbers(state, state.object->components[state.at.component].element));
    if (chunk.entry) {
      ++record_.tensors_done;
      return record_.manifest.Add(*chunk.entry);
    }
    StoredBlob blob = BlobOf(
        state, {.offset = sums_.begin, .length = sums_.stored, .decoded_bytes = sums_.content},
        sums_.crc);
    if (state.plan != nullptr && !state.plan->shared.empty()) {
      const auto shared = state.plan->shared.find(state.at);
      if (shared != state.plan->shared.end()) {
        shared->second.blob = blob;
        shared->second.check = state.check;
      }
    }
    if (!entry_.begun()) entry_.Begin(*state.object);
    if (chunk.closing) entry_.Close(*chunk.closing());
    entry_.Fill(state.at.component, std::move(blob), state.check);
    return state.ends_object ? End(state) : OkStatus();
  }

  static Status CheckSize(const Component& component, std::uint64_t bytes) {
    if (component.bytes == kUnknownSize || component.bytes == bytes) return OkStatus();
    return InvalidArgument("component " + Quote(component.role) + " has " + std::to_string(bytes) +
                           " bytes, not the declared " + std::to_string(component.bytes));
  }

  // Checks a component's bytes by its rule. `begun` is the object as declared at Begin, `object` as
  // it is at the end.
  static Status CheckData(const ComponentState& state, const Object& begun, std::uint32_t component,
                          const Object& object, const std::shared_ptr<ContentCheck>& check) {
    const auto rule =
        check == nullptr ? std::nullopt : RuleOf(begun, component, state.plan != nullptr);
    if (!rule) return OkStatus();
    const Status status = Blamed(state, check->Check(*rule, object, CountIndices(object)));
    if (status.ok() || object.components.size() == 1) return status;
    return WithComponent(status, object.components[component].role);
  }

  // Invalid bytes from a caller are the caller's error.
  static Status Blamed(const ComponentState& state, const Status& status) {
    return state.plan == nullptr || state.plan->of_caller ? AsInvalidArgument(status) : status;
  }

  Status CheckNumbers(const ComponentState& state, const ElementType& element) {
    NumericCounts& counts = sums_.counts;
    if (state.source != nullptr)
      AddOverflow(state.source->TakeOverflow(state.id), element, state.plan->plan.on_overflow,
                  counts);
    if (!counts.any()) return OkStatus();
    const std::uint64_t values = sums_.content / ByteWidth(element.dtype);
    record_.findings.push_back({state.object->name, counts, values});
    return CheckFit(counts, element, state.plan->plan);
  }

  // Ends the object, whose last blob is known, and the objects after it that only share blobs.
  Status End(const ComponentState& state) {
    if (state.plan == nullptr) return Add(state, *state.object);
    const std::vector<PlannedObject>& objects = state.plan->plan.objects;
    std::uint32_t i = state.at.object;
    do {
      const Object& object = *objects[i].object;
      if (!entry_.begun()) entry_.Begin(object);
      const auto& components = objects[i].components;
      for (std::uint32_t c = 0; c < components.size(); ++c) {
        if (!components[c].shared_with) continue;
        PlanState::Shared& shared = state.plan->shared.at(*components[c].shared_with);
        entry_.Fill(c, shared.blob, shared.check);
        if (shared.by.back() == ComponentId{i, c}) shared.check.reset();
      }
      const Status status = Add(state, object);
      if (!status.ok() && i != state.at.object) {
        return WithTensor(
            WithFact(status, std::string(status.message()) + "; its bytes are those of " +
                                 TensorContext(state.object->name)),
            object.name);
      }
      ZT_RETURN_IF_ERROR(status);
      ++i;
    } while (i < objects.size() && OnlyShares(objects[i]));
    return OkStatus();
  }

  // Validates an object as stored and adds it to the manifest.
  Status Add(const ComponentState& state, const Object& begun) {
    const StoredObject& stored = entry_.stored();
    for (std::size_t c = 0; c < stored.components.size(); ++c) {
      ZT_RETURN_IF_ERROR(CheckSize(begun.components[c], stored.components[c].decoded_bytes));
    }
    ZT_RETURN_IF_ERROR(AsInvalidArgument(CheckStored(stored, spec_)));
    if (!entry_.checks().empty()) ZT_RETURN_IF_ERROR(CheckContent(state, begun, Declare(stored)));
    ++record_.tensors_done;
    ZT_RETURN_IF_ERROR(record_.manifest.Add(stored));
    entry_.End();
    return OkStatus();
  }

  Status CheckContent(const ComponentState& state, const Object& begun, const Object& object) {
    std::vector<ContentCheck::Part> parts;
    for (const auto& [component, check] : entry_.checks()) {
      ZT_RETURN_IF_ERROR(CheckData(state, begun, component, object, check));
      if (const auto rule = RuleOf(begun, component, state.plan != nullptr))
        parts.push_back({check, *rule});
    }
    // Data that breaks this rule may be valid in the source's version, so it is not kDataLoss.
    const Status status = Blamed(state, ContentCheck::CheckTogether(object, parts));
    return status.code() == StatusCode::kDataLoss ? WithCode(status, StatusCode::kUnimplemented)
                                                  : status;
  }

  Record& record_;
  const SpecVersion spec_;
  // Sums of the current component.
  struct Sums {
    std::uint64_t begin = 0, stored = 0, content = 0;
    std::uint32_t crc = 0;
    NumericCounts counts;
  } sums_;
  ManifestEntry entry_;  // of the current object
};

}  // namespace

std::uint64_t EntryBytes(const Object& object) {
  if (object.format != "dense" || object.components.size() != 1 || !object.attributes.empty())
    return 0;
  constexpr std::uint64_t kFields = 384, kDimension = 9;  // all keys, numbers, the digest
  return kFields + object.name.size() + object.components[0].element.type.size() +
         kDimension * object.shape.size();
}

StageOf<Batch> MakeEntryStage(const ManifestEncoder& manifest, SpecVersion spec) {
  return {StageOrder::kParallel,
          [&manifest, spec](Batch& batch) { return EncodeEntries(batch, manifest, spec); }};
}

std::function<Status(WriterChunk&)> MakeRecordStage(Record& record, SpecVersion spec) {
  return RecordStage(record, spec);
}

}  // namespace zt::writer::internal
