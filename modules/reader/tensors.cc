// zt.reader:tensors — the source: declarations from the manifest, bytes read by a Reader from guarded
// bytes.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.reader;

import zt.std;
import :checks;
import :checked_bytes;
import :sparse_0_1;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

namespace zt {

namespace reader::internal {

namespace {

// The way from the stored bytes of a component to the served ones.
struct ServedComponent {
  enum class Kind : std::uint8_t {
    kWhole,        // the stored component unchanged
    kWideIndices,  // its integers, widened to u64
    kSparse01,     // a part of the blob of a sparse 0.1.0 entry
  };
  Kind kind = Kind::kWhole;
  ComponentId stored;
};

// An object as it is served. If `refusal` is an error, the object is listed as it is stored and
// cannot be read.
struct Served {
  Object object;
  std::vector<ServedComponent> parts;
  std::shared_ptr<const Sparse01Object> mixed = nullptr;
  Status refusal = {};
};

class ZtSource final : public TensorSource {
 public:
  Status Init(std::shared_ptr<ByteSource> bytes, const InputOptions& wanted,
              const ZtOrigin& origin) {
    const auto guard = [this](std::shared_ptr<ByteSource> all) {
      return bytes_ = std::make_shared<CheckedBytes>(std::move(all));
    };
    ZT_ASSIGN_OR_RETURN(reader_,
                        OpenObserved(std::move(bytes), {.find_shard = origin.find_shard}, guard));
    const Manifest& manifest = reader_->manifest();
    index_memory_limit_ = wanted.memory_limit;
    u32_indices_ = wanted.u32_indices && Traits(manifest.version).u32_indices;
    attributes_ = manifest.attributes;
    for (const std::string& warning : manifest.warnings) AddWarning(warning);
    if (origin.stamp != nullptr) *origin.stamp = FindShardStamp(attributes_);
    std::erase_if(attributes_, [](const auto& each) { return each.first == kShardAttribute; });
    ZT_RETURN_IF_ERROR(Guard());
    std::vector<StoredSpan> order;
    order.reserve(manifest.objects.size());
    for (std::uint32_t i = 0; i < manifest.objects.size(); ++i) {
      StoredSpan& place = order.emplace_back(StoredSpan{~std::uint64_t{0}, 0, i});
      for (const StoredComponent& c : manifest.objects[i].components) {
        place.begin = std::min(place.begin, c.offset);
        place.end = std::max(place.end, c.offset + c.length);
      }
    }
    std::sort(order.begin(), order.end());
    objects_.reserve(order.size());
    parts_.reserve(order.size());
    for (const auto& [begin, end, index] : order) {
      auto served = IsSparse01(*reader_, index) ? ServeSparse01(index) : Serve(index);
      if (!served.ok()) return WithTensor(served.status(), manifest.objects[index].name);
      const auto at = static_cast<std::uint32_t>(objects_.size());
      ZT_RETURN_IF_ERROR(CheckContentless(index, *served));
      if (const auto refused = empty_refusals_.find(index); refused != empty_refusals_.end()) {
        problems_.emplace(at, refused->second);
      } else if (!served->refusal.ok()) {
        problems_.emplace(at, served->refusal);
      }
      AddRules(at, index, served->object);
      if (served->mixed != nullptr) mixed_.emplace(at, std::move(served->mixed));
      objects_.push_back(std::move(served->object));
      parts_.push_back(std::move(served->parts));
    }
    CheckFileDigests(origin.digest);
    return OkStatus();
  }

  std::string_view format() const override { return "zt"; }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    const Object& object = objects_[id.object];
    const ServedComponent& part = parts_[id.object][id.component];
    if (out.empty()) return OkStatus();
    const std::size_t width = ByteWidth(object.components[id.component].element.dtype);
    if (part.kind != ServedComponent::Kind::kWhole &&
        (offset % width != 0 || out.size() % width != 0)) {
      return InvalidArgument("converted data is read in whole elements");
    }
    const Status status = ReadChecked(id, part, offset, out);
    if (status.ok()) return status;
    return bytes_->Conclude(reader_->component(part.stored).offset, status);
  }

 private:
  // Reads a component whose digest is over decoded bytes: decodes frames in any order, and hashes
  // them in order.
  class UnorderedContent final : public UnorderedReader {
   public:
    UnorderedContent(ZtSource& source, ComponentId id) : source_(source), id_(id) {}
    Status Read(std::uint64_t offset, std::span<std::byte> out) override {
      ZT_RETURN_IF_ERROR(source_.CheckRange(id_, offset, out.size()));
      const ServedComponent& part = source_.parts_[id_.object][id_.component];
      ZT_RETURN_IF_ERROR(source_.Fill(id_, part, offset, out));
      return source_.CheckSparse(id_.object, part.stored.object);
    }
    Status Check(std::uint64_t offset, std::span<const std::byte> bytes) override {
      return source_.CheckDecoded(source_.parts_[id_.object][id_.component], offset, bytes);
    }

   private:
    ZtSource& source_;
    const ComponentId id_;
  };

  Status ReadChecked(ComponentId id, const ServedComponent& part, std::uint64_t offset,
                     std::span<std::byte> out) {
    ZT_RETURN_IF_ERROR(Fill(id, part, offset, out));
    ZT_RETURN_IF_ERROR(CheckDecoded(part, offset, out));
    ZT_RETURN_IF_ERROR(CheckData(id, offset, out));
    return CheckSparse(id.object, part.stored.object);
  }

  Status Fill(ComponentId id, const ServedComponent& part, std::uint64_t offset,
              std::span<std::byte> out) {
    switch (part.kind) {
      case ServedComponent::Kind::kWhole:
        return reader_->Read(part.stored, offset, out);
      case ServedComponent::Kind::kWideIndices:
        return ReadWideIndices(*reader_, part.stored, offset, out);
      case ServedComponent::Kind::kSparse01:
        return ReadSparse01(*reader_, part.stored.object, *mixed_.at(id.object), id.component,
                            offset, out);
    }
    return OkStatus();
  }

 public:
  // True for streams without a seek table, blobs whose digest needs the bytes in order, blobs that
  // hold several components, and row pointers, because each is compared with the previous one.
  bool sequential(ComponentId id) const override {
    const ServedComponent& part = parts_[id.object][id.component];
    if (part.kind == ServedComponent::Kind::kSparse01) return true;
    const auto checked = checked_.find({id.object, id.component});
    if (checked != checked_.end() && checked->second->ordered()) return true;
    if (const CheckedBlob* content = DecodedCheck(part.stored)) {
      if (content->ordered()) return true;
    }
    const CheckedBlob* blob = bytes_->Find(reader_->component(part.stored).offset);
    return (blob != nullptr && blob->ordered()) || AccessTo(part.stored).sequential;
  }

  std::shared_ptr<UnorderedReader> unordered_reader(ComponentId id) override {
    const ServedComponent& part = parts_[id.object][id.component];
    if (const auto at = extent(id); at && !sparse_.contains(id.object)) {
      CheckedBlob* const blob = bytes_->Find(at->offset);
      const bool whole = blob != nullptr && blob->length() == at->length && blob->ordered();
      return whole ? bytes_->UnorderedReaderOf(*blob) : nullptr;
    }
    const CheckedBlob* const content = DecodedCheck(part.stored);
    if (part.kind != ServedComponent::Kind::kWhole || content == nullptr || !content->ordered() ||
        checked_.contains({id.object, id.component}) || AccessTo(part.stored).sequential) {
      return nullptr;
    }
    return std::make_shared<UnorderedContent>(*this, id);
  }

  std::uint64_t preferred_read(ComponentId id) const override {
    const ServedComponent& part = parts_[id.object][id.component];
    const std::uint64_t frame = AccessTo(part.stored).frame_bytes;
    if (part.kind == ServedComponent::Kind::kWhole) return frame;
    if (part.kind != ServedComponent::Kind::kWideIndices) return 0;
    return frame / ByteWidth(reader_->component(part.stored).element.dtype) * kIndexBytes;
  }

  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(bytes_->CheckUnchanged(), bytes_->name()));
    return WithFile(bytes_->CheckFiles(), bytes_->name());
  }

  Status CheckRead(std::span<const ComponentId> components) override {
    ZT_RETURN_IF_ERROR(WithFile(bytes_->CheckUnchanged(), bytes_->name()));
    std::vector<std::uint64_t> offsets;
    for (const ComponentId id : components)
      offsets.push_back(reader_->component(parts_[id.object][id.component].stored).offset);
    return WithFile(bytes_->CheckFiles(offsets), bytes_->name());
  }

  void WillRead(std::span<const ComponentId> components) override {
    std::vector<ByteRange> ranges;
    for (const ComponentId id : components) {
      const StoredComponent& stored = reader_->component(parts_[id.object][id.component].stored);
      if (stored.length > 0) ranges.push_back({stored.offset, stored.offset + stored.length});
    }
    bytes_->WillRead(ranges);
  }

  std::optional<Extent> extent(ComponentId id) const override {
    const ServedComponent& part = parts_[id.object][id.component];
    const StoredComponent& stored = reader_->component(part.stored);
    if (part.kind != ServedComponent::Kind::kWhole || stored.encoding != Encoding::kRaw ||
        stored.big_endian || problems_.contains(id.object) ||
        checked_.contains({id.object, id.component})) {
      return std::nullopt;
    }
    return Extent{bytes_.get(), stored.offset, stored.length};
  }

  std::optional<EncodedStream> encoded(ComponentId id) const override {
    const ServedComponent& part = parts_[id.object][id.component];
    const StoredComponent& stored = reader_->component(part.stored);
    if (stored.encoding == Encoding::kRaw || problems_.contains(id.object)) return std::nullopt;
    EncodedStream stream{.encoding = stored.encoding, .parameters = stored.parameters};
    if (part.kind != ServedComponent::Kind::kWhole || !ServedAsDecoded(stored)) return stream;
    stream.extent = {bytes_.get(), stored.offset, stored.length};
    stream.guarded = bytes_->Find(stored.offset) != nullptr;
    return stream;
  }

  StatusOr<std::vector<Frame>> Frames(ComponentId id) const override {
    return reader_->Frames(parts_[id.object][id.component].stored);
  }

  std::optional<Identity> identity(ComponentId id) const override {
    const ServedComponent& part = parts_[id.object][id.component];
    const std::uint64_t bytes = objects_[id.object].components[id.component].bytes;
    if (part.kind == ServedComponent::Kind::kSparse01 || bytes == 0) return std::nullopt;
    const ComponentId first = First(part.stored);
    return Identity{this, std::uint64_t{first.object} << 32 | first.component, bytes};
  }

 private:
  // How to read a stored component. If that fails, the next Read reports the error.
  Access AccessTo(ComponentId stored) const {
    return reader_->FindAccess(stored).value_or(Access{});
  }

  // Validates a component whose bytes must satisfy a rule.
  class RuleCheck {
   public:
    explicit RuleCheck(const DataRule& rule) : rule_(rule), validator_(rule) {}

    bool ordered() const { return rule_.kind == DataRule::Kind::kPointers; }
    Status Validate(const Object& object, std::uint64_t bytes, std::uint64_t offset,
                    std::span<const std::byte> range) {
      DataValidator validator(rule_, offset);
      validator.Add(range);
      ZT_RETURN_IF_ERROR(validator.Check(object, std::nullopt));
      if (!ordered()) return OkStatus();
      const zt::internal::MutexLock lock(mutex_);
      if (offset == 0) validator_ = DataValidator(rule_);
      // A range that does not follow the previous one is validated by itself.
      if (validator_.end() != offset) return OkStatus();
      validator_.Merge(validator);
      return validator_.Check(object,
                              validator_.end() == bytes ? CountIndices(object) : std::nullopt);
    }

   private:
    const DataRule rule_;
    zt::internal::Mutex mutex_;
    DataValidator validator_ ZT_GUARDED_BY(mutex_);
  };

  // Validates the indices of a sparse object as a whole, once, before any of its bytes are served.
  // Only one object at a time, so that the memory for one is enough for all.
  Status CheckSparse(std::uint32_t id, std::uint32_t stored) {
    const auto found = sparse_.find(id);
    if (found == sparse_.end()) return OkStatus();
    const zt::internal::MutexLock lock(index_mutex_);
    std::optional<Status>& verdict = found->second;
    if (!verdict || verdict->code() == StatusCode::kUnavailable) {
      if (indices_ == nullptr)
        indices_ = std::make_unique<IndexChecker>(*reader_, index_memory_limit_);
      verdict = indices_->Check(stored);
    }
    // Indices that need too much memory are served without this check; `verify` reports them as
    // unchecked.
    return verdict->code() == StatusCode::kUnimplemented ? OkStatus() : *verdict;
  }

  void AddRules(std::uint32_t at, std::uint32_t index, const Object& object) {
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      if (const auto rule = RuleOf(object, c, object.components[c].bytes)) {
        checked_.emplace(std::pair(at, c), std::make_unique<RuleCheck>(*rule));
      }
    }
    const Manifest& manifest = reader_->manifest();
    if (Traits(manifest.version).unique_indices && IsSparse(manifest.objects[index].format)) {
      sparse_.emplace(at, std::nullopt);
    }
  }

  Status CheckData(ComponentId id, std::uint64_t offset, std::span<const std::byte> bytes) const {
    const auto checked = checked_.find({id.object, id.component});
    if (checked == checked_.end()) return OkStatus();
    const Object& object = objects_[id.object];
    const Component& component = object.components[id.component];
    const Status status = checked->second->Validate(object, component.bytes, offset, bytes);
    return object.components.size() == 1 ? status : WithComponent(status, component.role);
  }

  // The guard for the decoded bytes of a component, if a digest covers them: its own, or that of
  // another component with the same blob. Null if there is none.
  CheckedBlob* DecodedCheck(ComponentId stored) const {
    const auto found = decoded_.find(ContentKey(reader_->component(stored)));
    return found == decoded_.end() ? nullptr : found->second.get();
  }

  // Checks served bytes from `offset` against a digest of decoded bytes.
  Status CheckDecoded(const ServedComponent& part, std::uint64_t offset,
                      std::span<const std::byte> out) {
    CheckedBlob* const content = DecodedCheck(part.stored);
    if (content == nullptr) return OkStatus();
    DecodedBytes again(*reader_, part.stored);
    if (part.kind != ServedComponent::Kind::kWideIndices)
      return content->Passed(offset, out, again);
    const std::size_t width = ByteWidth(reader_->component(part.stored).element.dtype);
    std::vector<std::byte> narrow(out.size() / kIndexBytes * width);
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      narrow[i] = out[i / width * kIndexBytes + i % width];
    }
    return content->Passed(offset / kIndexBytes * width, narrow, again);
  }

  // The range of an object or a component. An empty one precedes those with the same offset, as it
  // was written.
  struct StoredSpan {
    std::uint64_t begin, end;
    std::uint32_t index;
    auto operator<=>(const StoredSpan&) const = default;
  };

  // Guards every blob with a known digest, and records the first component of each blob.
  Status Guard() {
    const auto& objects = reader_->manifest().objects;
    const bool decoded = Traits(reader_->manifest().version).digests_decoded;
    std::unordered_map<std::uint64_t, CheckedBlob*> seen;  // by offset
    std::vector<std::unique_ptr<CheckedBlob>> blobs;
    for (std::uint32_t o = 0; o < objects.size(); ++o) {
      for (std::uint32_t c = 0; c < objects[o].components.size(); ++c) {
        const StoredComponent& component = objects[o].components[c];
        if (!component.unknown_encoding.empty()) continue;  // it is not read
        if (component.length > 0) AddFirst({o, c});
        if (component.digest.empty()) continue;
        const DigestText digest = DigestOrUnknown(component.digest);
        if (digest.kind == DigestKind::kNone) {
          AddWarning(TensorContext(objects[o].name) + ": " + Quote(digest.algorithm) +
                     " is not a known digest algorithm; its bytes are not checked");
          continue;
        }
        if (component.length == 0 || (decoded && component.decoded_bytes == 0)) {
          if (auto status = CheckEmpty(digest, component.digest); !status.ok()) {
            empty_refusals_.emplace(o, WithComponent(status, component.role));
          }
          continue;
        }
        CheckedBlob* guard = nullptr;
        if (decoded && component.encoding != Encoding::kRaw) {
          auto& content = decoded_[ContentKey(component)];
          if (content == nullptr) {
            content = std::make_unique<CheckedBlob>(0, component.decoded_bytes);
          }
          guard = content.get();
        } else {
          CheckedBlob*& blob = seen[component.offset];
          if (blob == nullptr) {
            blobs.push_back(std::make_unique<CheckedBlob>(component.offset, component.length));
            blob = blobs.back().get();
          }
          guard = blob;
        }
        ZT_RETURN_IF_ERROR(WithTensor(guard->Expect(digest, component.digest), objects[o].name));
      }
    }
    bytes_->Guard(std::move(blobs));
    return OkStatus();
  }

  // Guards the file itself, if its digest `own` is known, and the shards that it names.
  void CheckFileDigests(const std::string& own) {
    const auto guard = [this](std::uint64_t begin, std::uint64_t bytes, const std::string& stated,
                              const std::string& name, const std::string& says) {
      DigestText digest = DigestOrUnknown(stated);
      if (digest.kind == DigestKind::kNone) {
        AddWarning((name.empty() ? bytes_->name() : name) + ": " + Quote(digest.algorithm) +
                   " is not a known digest algorithm; the file is not checked");
        return;
      }
      bytes_->Guard(
          std::make_unique<CheckedFile>(begin, bytes, std::move(digest), name, says + stated));
    };
    const std::vector<StoredShard>& shards = reader_->manifest().shards;
    const std::uint64_t size = shards.empty() ? *bytes_->size() : shards.front().begin;
    if (!own.empty()) guard(0, size, own, "", "the index says ");
    for (const StoredShard& shard : shards)
      guard(shard.begin, shard.bytes, shard.digest, "shard " + Quote(shard.name), "the root says ");
  }

  // True if a component's bytes are served as they decode.
  bool ServedAsDecoded(const StoredComponent& c) const {
    return !c.big_endian &&
           !(c.element.dtype == DType::kBool && Traits(reader_->manifest().version).loose_bools);
  }

  // Components with equal keys are served with the same bytes: the same content, changed in the
  // same way.
  using ServedKey = std::pair<ContentKey, std::optional<DType>>;
  ServedKey ServedKeyOf(ComponentId id) const {
    const StoredComponent& c = reader_->component(id);
    return {ContentKey(c), ServedAsDecoded(c) && !HasWideIndices(id)
                               ? std::nullopt
                               : std::optional(c.element.dtype)};
  }

  void AddFirst(ComponentId id) {
    const auto [found, fresh] = first_.emplace(reader_->component(id).offset, id);
    if (fresh || ServedKeyOf(found->second) == ServedKeyOf(id)) return;
    others_.emplace(ServedKeyOf(id), id);
  }

  // The first component that is served with the same bytes: this one, or another with the same
  // blob.
  ComponentId First(ComponentId id) const {
    const auto found = first_.find(reader_->component(id).offset);
    if (found == first_.end() || ServedKeyOf(found->second) == ServedKeyOf(id)) {
      return found == first_.end() ? id : found->second;
    }
    const auto other = others_.find(ServedKeyOf(id));
    return other == others_.end() ? id : other->second;
  }

  bool HasWideIndices(ComponentId stored) const {
    const StoredObject& object = reader_->manifest().objects[stored.object];
    const StoredComponent& component = object.components[stored.component];
    if (!IsIndexRole(object.format, component.role)) return false;
    if (component.element == ElementType{DType::kU64, ""}) return false;
    return !u32_indices_ ||
           !std::ranges::all_of(object.components, [](const StoredComponent& each) {
             return each.role == "values" || each.element == ElementType{DType::kU32, ""};
           });
  }

  // A stream with empty content is never read, so it is checked here, once.
  Status CheckContentless(std::uint32_t index, Served& served) const {
    const StoredObject& object = reader_->manifest().objects[index];
    for (std::uint32_t c = 0; c < object.components.size() && served.refusal.ok(); ++c) {
      const StoredComponent& component = object.components[c];
      const ComponentId id{index, c};
      if (component.encoding == Encoding::kRaw || component.decoded_bytes != 0) continue;
      if (First(id) != id) continue;
      const Status status = reader_->Read(id, 0, {});
      ZT_RETURN_IF_UNAVAILABLE(status);
      served.refusal = WithComponent(status, component.role);
    }
    return OkStatus();
  }

  StatusOr<Served> ServeSparse01(std::uint32_t index) const {
    Served served;
    auto mixed = TakeApart(*reader_, index);
    if (mixed.ok()) {
      served.object = mixed->object;
      served.parts.assign(mixed->parts.size(), {ServedComponent::Kind::kSparse01, {index, 0}});
      served.mixed = std::make_shared<const Sparse01Object>(*std::move(mixed));
      return served;
    }
    ZT_RETURN_IF_UNAVAILABLE(mixed.status());
    served.object = Declare(reader_->manifest().objects[index]);
    served.object.components[0].bytes = reader_->DecodedBytes({index, 0}).value_or(0);
    served.parts.assign(1, {ServedComponent::Kind::kWhole, {index, 0}});
    served.refusal = mixed.status();
    return served;
  }

  StatusOr<Served> Serve(std::uint32_t index) const {
    const StoredObject& stored = reader_->manifest().objects[index];
    Served served;
    served.object = Declare(stored);
    std::vector<StoredSpan> order;
    for (std::uint32_t c = 0; c < stored.components.size(); ++c) {
      const StoredComponent& component = stored.components[c];
      order.push_back({component.offset, component.offset + component.length, c});
    }
    std::sort(order.begin(), order.end());
    served.object.components.clear();
    for (const auto& [begin, end, c] : order) {
      const StoredComponent& from = stored.components[c];
      Component component{from.role, from.element, from.decoded_bytes};
      ServedComponent part;
      part.stored = {index, c};
      if (!from.undecodable.empty() && served.refusal.ok()) {
        served.refusal = Unsupported(from.undecodable);
      }
      if (component.bytes == kUnknownSize) {
        auto bytes = reader_->DecodedBytes(part.stored);
        ZT_RETURN_IF_UNAVAILABLE(bytes.status());
        if (!bytes.ok()) served.refusal = WithComponent(bytes.status(), from.role);
        component.bytes = bytes.ok() ? *bytes : 0;
      }
      if (HasWideIndices(part.stored)) {
        const std::size_t width = ByteWidth(from.element.dtype);
        if (component.bytes % width != 0) {
          return InvalidData("component " + Quote(from.role) +
                             " does not hold a whole number of indices");
        }
        const auto bytes = CheckedMul(component.bytes / width, kIndexBytes);
        if (!bytes)
          return InvalidData("component " + Quote(from.role) + " overflows 64 bits as u64");
        part.kind = ServedComponent::Kind::kWideIndices;
        component.bytes = *bytes;
        component.element = {DType::kU64, ""};
      }
      served.object.components.push_back(std::move(component));
      served.parts.push_back(std::move(part));
    }
    if (served.refusal.ok()) served.refusal = ValidateObject(served.object);
    return served;
  }

  // The decoded bytes of a component, for a guard that has to read some of them again.
  class DecodedBytes final : public ByteSource {
   public:
    DecodedBytes(const Reader& reader, ComponentId id) : reader_(reader), id_(id) {}
    const std::string& name() const override { return reader_.bytes().name(); }
    std::optional<std::uint64_t> size() const override {
      return reader_.component(id_).decoded_bytes;
    }
    bool sequential() const override { return false; }
    Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
      return reader_.Read(id_, offset, out);
    }

   private:
    const Reader& reader_;
    const ComponentId id_;
  };

  bool u32_indices_ = false;
  std::shared_ptr<CheckedBytes> bytes_;
  std::unique_ptr<Reader> reader_;
  std::vector<std::vector<ServedComponent>> parts_;  // by object
  std::unordered_map<std::uint32_t, std::shared_ptr<const Sparse01Object>> mixed_;
  // By offset: the first component of each blob.
  std::unordered_map<std::uint64_t, ComponentId> first_;
  std::map<ServedKey, ComponentId> others_;  // served with other bytes than the first
  std::uint64_t index_memory_limit_ = 0;     // memory limit for comparing the cells of an object
  zt::internal::Mutex index_mutex_;
  std::unique_ptr<IndexChecker> indices_ ZT_GUARDED_BY(index_mutex_);
  std::unordered_map<std::uint32_t, std::optional<Status>> sparse_;  // Init fixes the keys
  std::unordered_map<std::uint32_t, Status> empty_refusals_;         // by index in the manifest
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<RuleCheck>> checked_;
  // Blobs whose digests cover decoded bytes.
  std::map<ContentKey, std::unique_ptr<CheckedBlob>> decoded_;
};

}  // namespace

}  // namespace reader::internal

StatusOr<std::unique_ptr<TensorSource>> OpenZt(std::shared_ptr<ByteSource> bytes,
                                               const InputOptions& options,
                                               const ZtOrigin& origin) {
  if (options.as_stored) return reader::internal::OpenAsStored(std::move(bytes), origin);
  auto source = std::make_unique<reader::internal::ZtSource>();
  ZT_RETURN_IF_ERROR(source->Init(std::move(bytes), options, origin));
  return source;
}

}  // namespace zt
