// zt.capi — inputs: .zt files by a Reader, which knows how data is stored; all other formats as a
// TensorSource.
module;

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;
import zt.open;
import zt.remote;

namespace zt::capi {
namespace {

// The bytes that VerifyOne reads at once.
constexpr std::size_t kStep = 4 << 20;

// Adds the names of tensor and file to the error of a source.
Status Placed(const Status& status, std::string_view tensor, std::string_view file) {
  return WithFile(WithTensor(status, tensor), file);
}

// Reads a whole object piece by piece, so that the source checks its digests.
Status ReadWhole(TensorSource& source, std::uint32_t object, Watch& watch) {
  ZT_RETURN_IF_ERROR(source.CheckReadable(object));
  std::vector<std::byte> piece(kStep);
  const auto& components = source.objects()[object].components;
  for (std::uint32_t c = 0; c < components.size(); ++c) {
    std::uint64_t at = 0;
    do {
      if (watch.cancelled) return CancelledStatus();
      const auto step = std::min<std::uint64_t>(kStep, components[c].bytes - at);
      ZT_RETURN_IF_ERROR(source.Read({object, c}, at, std::span(piece).first(step)));
      at += step;
      watch.done += step;
    } while (at < components[c].bytes);
  }
  return OkStatus();
}

// Reads a whole object and adds the result to the report. An error that is not about the data is
// returned.
Status Examine(TensorSource& source, std::uint32_t object, VerifyReport& report, Watch& watch) {
  const Object& declared = source.objects()[object];
  report.components += declared.components.size();
  if (const Status readable = source.CheckReadable(object); !readable.ok()) {
    report.undecodable.push_back({declared.name, "", Fact(readable)});
    return OkStatus();
  }
  const Status status = ReadWhole(source, object, watch);
  if (status.code() != StatusCode::kDataLoss) return status;
  report.problems.push_back({declared.name, ComponentOf(status).value_or(""), Fact(status)});
  return OkStatus();
}

// ---- .zt files ----------------------------------------------------------------------------------

// A view of an Object or StoredObject, which must outlive it.
template <typename Declared>
ObjectView ViewOf(const Declared& object) {
  const Value* const path = IsFile(object) ? FindMember(object.attributes, "path") : nullptr;
  return {.name = &object.name,
          .format = object.format,
          .shape = {object.shape.data(), object.shape.size()},
          .components = object.components.size(),
          .attributes = &object.attributes,
          .path = path == nullptr ? nullptr : path->AsString()};
}

class ZtInput final : public Input {
 public:
  // `find` finds the shards of `file`.
  ZtInput(std::unique_ptr<Reader> reader, std::string name, std::shared_ptr<ByteSource> file,
          ShardFinder find)
      : reader_(std::move(reader)),
        name_(std::move(name)),
        file_(std::move(file)),
        find_(std::move(find)) {}

  std::string_view format() const override { return "zt"; }
  std::string version() const override {
    const Manifest& manifest = reader_->manifest();
    return manifest.version_text.empty() ? std::string(Traits(manifest.version).text)
                                         : manifest.version_text;
  }
  const std::vector<std::string>& warnings() const override { return reader_->manifest().warnings; }
  const Value::Map& attributes() const override { return reader_->manifest().attributes; }
  std::size_t size() const override { return reader_->manifest().objects.size(); }
  ObjectView object(std::uint32_t index) const override {
    return ViewOf(reader_->manifest().objects[index]);
  }
  ComponentView component(ComponentId id) const override {
    const StoredComponent& stored = reader_->component(id);
    ComponentView view;
    view.role = stored.role;
    view.dtype = Name(stored.element);
    view.storage = Name(stored.element.dtype);
    view.encoding =
        stored.unknown_encoding.empty() ? Name(stored.encoding) : stored.unknown_encoding;
    view.digest = stored.digest;
    view.file = file(id);
    view.offset = stored.offset;
    view.length = stored.length;
    view.bytes = stored.decoded_bytes;
    view.unreadable = stored.undecodable;
    if (stored.shard == 0) view.container = file_.get();
    if (stored.shard != 0) view.offset -= reader_->manifest().shards[stored.shard - 1].begin;
    if (view.unreadable.empty() && view.bytes == kUnknownSize) {
      const auto bytes = reader_->DecodedBytes(id);
      if (bytes.ok()) view.bytes = *bytes;
      if (!bytes.ok()) view.unreadable = Keep(Fact(bytes.status()));
    }
    view.mappable = reader_->CheckMappable(id).ok();
    return view;
  }
  void WillRead(std::span<const ComponentId> components) const override {
    std::vector<ByteRange> ranges;
    for (const ComponentId id : components) {
      const StoredComponent& stored = reader_->component(id);
      ranges.push_back({stored.offset, stored.offset + stored.length});
    }
    reader_->bytes().WillRead(ranges);
  }
  std::optional<std::uint32_t> Find(std::string_view name) const override {
    return reader_->Find(name);
  }
  const std::string& name() const override { return name_; }
  std::string_view file(ComponentId id) const override {
    const std::uint32_t shard = reader_->component(id).shard;
    if (shard == 0) return name_;
    return Keep(name_ + ": shard " + reader_->manifest().shards[shard - 1].name);
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const override {
    return Named(id, reader_->Read(id, offset, out));
  }
  StatusOr<Access> FindAccess(ComponentId id) const override {
    auto access = reader_->FindAccess(id);
    return access.ok() ? access : Named(id, access.status());
  }

  StatusOr<VerifyReport> VerifyAll(unsigned threads, Watch& watch) const override {
    VerifyOptions options{.threads = threads};
    options.progress = [&watch](std::uint64_t done, std::uint64_t total) {
      watch.done = done;
      watch.total = total;
      // Verify returns it as an error.
      if (watch.cancelled) throw std::runtime_error("cancelled");
    };
    auto report = Verify(*reader_, options);
    if (watch.cancelled) return CancelledStatus();
    return WithFile(std::move(report), name_);
  }

  StatusOr<VerifyReport> VerifyOne(std::uint32_t index, Watch& watch) const override {
    // A source checks digests as bytes pass.
    ZT_ASSIGN_OR_RETURN(const auto source,
                        WithFile(OpenZt(file_, {}, {.find_shard = find_}), name_));
    const StoredObject& stored = reader_->manifest().objects[index];
    const auto found = std::ranges::find(source->objects(), stored.name, &Object::name);
    if (found == source->objects().end()) {
      return WithFile(InvalidData("the file has changed since it was opened"), name_);
    }
    VerifyReport report;
    report.objects = 1;
    const auto at = static_cast<std::uint32_t>(found - source->objects().begin());
    ZT_RETURN_IF_ERROR(Placed(Examine(*source, at, report, watch), stored.name, name_));
    for (const StoredComponent& each : stored.components) {
      const bool known = DigestOrUnknown(each.digest).kind != DigestKind::kNone;
      ++(known && report.undecodable.empty() ? report.digests : report.unhashed);
    }
    report.components = stored.components.size();
    return report;
  }

 private:
  // A reader that was opened by a path adds the names itself.
  Status Named(ComponentId id, const Status& status) const {
    if (status.ok() || !reader_->path().empty()) return status;
    return Placed(status, reader_->manifest().objects[id.object].name, name_);
  }

  std::unique_ptr<Reader> reader_;
  std::string name_;
  std::shared_ptr<ByteSource> file_;
  ShardFinder find_;
};

// ---- sources ------------------------------------------------------------------------------------

class SourceInput final : public Input {
 public:
  SourceInput(std::unique_ptr<TensorSource> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}

  std::string_view format() const override { return source_->format(); }
  std::string version() const override { return ""; }
  const std::vector<std::string>& warnings() const override { return source_->warnings(); }
  const Value::Map& attributes() const override { return source_->attributes(); }
  std::size_t size() const override { return source_->objects().size(); }
  ObjectView object(std::uint32_t index) const override {
    return ViewOf(source_->objects()[index]);
  }
  ComponentView component(ComponentId id) const override {
    const Component& declared = source_->objects()[id.object].components[id.component];
    ComponentView view;
    view.role = declared.role;
    view.dtype = Name(declared.element);
    view.storage = Name(declared.element.dtype);
    view.file = file(id);
    view.bytes = declared.bytes;
    if (const Status status = source_->CheckReadable(id.object); !status.ok()) {
      view.unreadable = Keep(Fact(status));
    }
    if (const auto extent = source_->extent(id); extent && extent->bytes != nullptr) {
      view.encoding = "raw";
      view.length = extent->length;
      // The offset of an archive's entry would count from the entry.
      if (extent->bytes->descriptor()) {
        view.container = extent->bytes;
        view.mappable = view.unreadable.empty();
        view.file = extent->bytes->name();
        view.offset = extent->offset;
      }
    }
    return view;
  }
  void WillRead(std::span<const ComponentId> components) const override {
    source_->WillRead(components);
  }
  std::optional<std::uint32_t> Find(std::string_view name) const override {
    // Not std::once_flag: its thread-local storage does not work in a library that is loaded late.
    const std::lock_guard lock(names_mutex_);
    if (names_.empty()) {
      names_.reserve(size());
      for (std::uint32_t i = 0; i < size(); ++i) names_.emplace(source_->objects()[i].name, i);
    }
    const auto held = names_.find(name);
    return held == names_.end() ? std::nullopt : std::optional(held->second);
  }
  const std::string& name() const override { return name_; }
  std::string_view file(ComponentId id) const override {
    const std::string& file = source_->file(id);
    return file.empty() ? name_ : file;
  }
  bool seekable() const override { return source_->seekable(); }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const override {
    const Object& object = source_->objects()[id.object];
    const std::uint64_t size = object.components[id.component].bytes;
    const auto read = [&]() -> Status {
      ZT_RETURN_IF_ERROR(source_->CheckReadable(id.object));
      if (size != kUnknownSize && (offset > size || out.size() > size - offset)) {
        return InvalidArgument("the range lies beyond the component");
      }
      if (!source_->sequential(id)) return source_->Read(id, offset, out);
      const std::lock_guard lock(sequential_);
      return source_->Read(id, offset, out);
    };
    const Status status = read();
    return status.ok() ? status : Placed(status, object.name, file(id));
  }
  StatusOr<Access> FindAccess(ComponentId id) const override {
    return Access{.sequential = source_->sequential(id),
                  .frame_bytes = source_->preferred_read(id)};
  }

  StatusOr<VerifyReport> VerifyAll(unsigned, Watch& watch) const override {
    for (std::uint32_t o = 0; o < size(); ++o) {
      for (const Component& c : source_->objects()[o].components) watch.total += c.bytes;
    }
    VerifyReport report;
    for (std::uint32_t o = 0; o < size(); ++o) ZT_RETURN_IF_ERROR(Add(o, report, watch));
    const Status end = source_->Finish();
    if (end.code() != StatusCode::kDataLoss) ZT_RETURN_IF_ERROR(end);
    if (!end.ok()) report.problems.push_back({TensorOf(end).value_or(""), "", Fact(end)});
    return report;
  }
  StatusOr<VerifyReport> VerifyOne(std::uint32_t index, Watch& watch) const override {
    VerifyReport report;
    ZT_RETURN_IF_ERROR(Add(index, report, watch));
    return report;
  }

 private:
  Status Add(std::uint32_t index, VerifyReport& report, Watch& watch) const {
    const std::lock_guard lock(sequential_);
    ++report.objects;
    report.unhashed += source_->objects()[index].components.size();
    return Placed(Examine(*source_, index, report, watch), source_->objects()[index].name,
                  file({index, 0}));
  }

  std::unique_ptr<TensorSource> source_;
  std::string name_;
  // Held while a component is read that only one thread at a time may read.
  mutable std::mutex sequential_;
  mutable std::mutex names_mutex_;
  mutable std::unordered_map<std::string_view, std::uint32_t> names_;
};

// True if the bytes can be read by offset and are a .zt file.
StatusOr<bool> IsZt(ByteSource& bytes) {
  if (bytes.sequential()) return false;
  std::vector<std::byte> head(8);
  ZT_ASSIGN_OR_RETURN(head, Peek(bytes, head.size()));
  return head.size() == 8 && LooksLikeZt(head);
}

bool MayBeZt(const std::string& format) { return format.empty() || format == "zt"; }

// True for a path that may be a single file. OpenInputs has the errors for all other paths.
bool IsOneFile(const std::string& path, Store& store) {
  return IsUrl(path) ? !store.IsFolder(path) : store.IsFile(path);
}

StatusOr<std::unique_ptr<Input>> OpenZtInput(std::shared_ptr<ByteSource> bytes,
                                             const std::string& name, const ShardFinder& find) {
  ZT_ASSIGN_OR_RETURN(auto reader, WithFile(Reader::Open(bytes, {.find_shard = find}), name));
  return std::make_unique<ZtInput>(std::move(reader), name, std::move(bytes), find);
}

}  // namespace

std::string_view Input::Keep(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  const auto held = texts_.find(text);
  return held != texts_.end() ? *held : *texts_.emplace(text).first;
}

StatusOr<std::unique_ptr<Input>> OpenPaths(std::vector<std::string> paths, SourceOptions options,
                                           RemoteOptions remote) {
  if (std::ranges::any_of(paths, IsUrl)) {
    for (std::string& path : paths) {
      ZT_ASSIGN_OR_RETURN(path, HideQuery(path, remote.queries));
    }
    options.store = MakeRemoteStore(std::move(remote));
  }
  const std::string& path = paths.front();
  if (paths.size() == 1 && MayBeZt(options.format) && IsOneFile(path, *options.store)) {
    ZT_ASSIGN_OR_RETURN(auto bytes, WithFile(options.store->Open(path), path));
    ZT_ASSIGN_OR_RETURN(const bool zt, WithFile(IsZt(*bytes), path));
    if (zt) return OpenZtInput(std::move(bytes), path, ShardsBeside(path, options));
  }
  ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenInputs(paths, options), path));
  return std::make_unique<SourceInput>(std::move(source), path);
}

StatusOr<std::unique_ptr<Input>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                           const SourceOptions& options) {
  const std::string name = bytes->name();
  if (MayBeZt(options.format)) {
    ZT_ASSIGN_OR_RETURN(const bool zt, WithFile(IsZt(*bytes), name));
    if (zt) return OpenZtInput(std::move(bytes), name, {});
  }
  ZT_ASSIGN_OR_RETURN(auto source, zt::OpenBytes(std::move(bytes), options));
  return std::make_unique<SourceInput>(std::move(source), name);
}

}  // namespace zt::capi
