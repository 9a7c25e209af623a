// zt.capi — inputs: .zt files by a Reader, which knows how data is stored; all other formats as a
// TensorSource.
module;

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;
import zt.cli;
import zt.convert.zt;

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
  return {.name = &object.name,
          .format = object.format,
          .shape = {object.shape.data(), object.shape.size()},
          .components = object.components.size(),
          .attributes = &object.attributes};
}

class ZtInput final : public Input {
 public:
  // `file` is the opened file, if it can be mapped. `reopen` opens the bytes again as a source,
  // which checks digests as bytes pass.
  ZtInput(std::unique_ptr<Reader> reader, std::string name, std::optional<FileIdentity> file,
          std::function<StatusOr<std::unique_ptr<TensorSource>>()> reopen)
      : reader_(std::move(reader)),
        name_(std::move(name)),
        file_(file),
        reopen_(std::move(reopen)) {}

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
    if (stored.shard != 0) view.offset -= reader_->manifest().shards[stored.shard - 1].begin;
    if (view.unreadable.empty() && view.bytes == kUnknownSize) {
      const auto bytes = reader_->DecodedBytes(id);
      if (bytes.ok()) view.bytes = *bytes;
      if (!bytes.ok()) view.unreadable = Keep(Fact(bytes.status()));
    }
    if (file_ && reader_->Map(id).ok()) view.mappable = &*file_;
    return view;
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
    ZT_ASSIGN_OR_RETURN(const auto source, reopen_());
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
  std::optional<FileIdentity> file_;
  std::function<StatusOr<std::unique_ptr<TensorSource>>()> reopen_;
};

// ---- sources ------------------------------------------------------------------------------------

class SourceInput final : public Input {
 public:
  // `by_path`: the names of its byte sources are paths.
  SourceInput(std::unique_ptr<TensorSource> source, std::string name, bool by_path)
      : source_(std::move(source)), name_(std::move(name)) {
    if (by_path) FindFiles();
  }

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
      const auto file = files_.find(extent->bytes);
      if (file != files_.end() && view.unreadable.empty()) {
        view.mappable = &file->second;
        view.file = extent->bytes->name();
      }
      view.offset = extent->offset;
      view.length = extent->length;
    }
    return view;
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
  // Records the files in which tensors lie unchanged, before other files can take their names.
  void FindFiles() {
    std::map<std::string, std::optional<FileIdentity>> known;
    std::unordered_set<const ByteSource*> seen;
    for (std::uint32_t o = 0; o < size(); ++o) {
      for (std::uint32_t c = 0; c < source_->objects()[o].components.size(); ++c) {
        const auto extent = source_->extent({o, c});
        if (!extent || extent->bytes == nullptr || !seen.insert(extent->bytes).second) continue;
        const ByteSource& bytes = *extent->bytes;
        if (bytes.sequential() || bytes.name().find("://") != std::string::npos) continue;
        const auto [file, added] = known.try_emplace(bytes.name());
        if (added) file->second = IdentityOf(bytes.name());
        // A part of a file has the same name and another size.
        if (file->second && bytes.size() == file->second->bytes) {
          files_.emplace(&bytes, *file->second);
        }
      }
    }
  }

  std::unique_ptr<TensorSource> source_;
  std::string name_;
  // Held while a component is read that only one thread at a time may read.
  mutable std::mutex sequential_;
  mutable std::mutex names_mutex_;
  mutable std::unordered_map<std::string_view, std::uint32_t> names_;
  std::unordered_map<const ByteSource*, FileIdentity> files_;  // byte sources that are whole files
};

// Makes an input of a reader. `open` opens its bytes again.
std::unique_ptr<Input> AsInput(std::unique_ptr<Reader> reader, const std::string& name,
                               std::optional<FileIdentity> file,
                               std::function<StatusOr<std::shared_ptr<ByteSource>>()> open,
                               ShardFinder find) {
  return std::make_unique<ZtInput>(std::move(reader), name, file,
                                   [open = std::move(open), find = std::move(find),
                                    name]() -> StatusOr<std::unique_ptr<TensorSource>> {
                                     auto bytes = open();
                                     if (!bytes.ok()) return WithFile(bytes.status(), name);
                                     auto source = OpenZt(*std::move(bytes), {}, find);
                                     return source.ok() ? std::move(source)
                                                        : WithFile(source.status(), name);
                                   });
}

// True if the bytes can be read by offset and are a .zt file.
StatusOr<bool> IsZt(ByteSource& bytes) {
  if (bytes.sequential()) return false;
  std::vector<std::byte> head(8);
  ZT_ASSIGN_OR_RETURN(head, Peek(bytes, head.size()));
  return head.size() == 8 && LooksLikeZt(head);
}

bool MayBeZt(const std::string& format) { return format.empty() || format == "zt"; }

}  // namespace

std::string_view Input::Keep(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  const auto held = texts_.find(text);
  return held != texts_.end() ? *held : *texts_.emplace(text).first;
}

StatusOr<std::unique_ptr<Input>> OpenPaths(const std::vector<std::string>& paths,
                                           const InputOptions& options, const std::string& format) {
  const std::string& path = paths.front();
  std::error_code error;
  if (paths.size() == 1 && MayBeZt(format) && std::filesystem::is_regular_file(path, error)) {
    auto bytes = OpenFile(path);
    if (!bytes.ok()) return WithFile(bytes.status(), path);
    const auto zt = IsZt(**bytes);
    if (!zt.ok()) return WithFile(zt.status(), path);
    if (*zt) {
      const auto file = IdentityOf(path);
      ZT_ASSIGN_OR_RETURN(auto reader, Reader::Open(path));
      // If the path leads to another file by now, it is unknown which one was opened.
      const bool same = IdentityOf(path) == file;
      return AsInput(
          std::move(reader), path, same ? file : std::nullopt, [path] { return OpenFile(path); },
          ShardsBeside(path, options));
    }
  }
  ZT_ASSIGN_OR_RETURN(auto source, cli::OpenAny(paths, options, format));
  return std::make_unique<SourceInput>(std::move(source), path, true);
}

StatusOr<std::unique_ptr<Input>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                           const InputOptions& options, const std::string& format) {
  const std::string name = bytes->name();
  if (MayBeZt(format)) {
    const auto zt = IsZt(*bytes);
    if (!zt.ok()) return WithFile(zt.status(), name);
    if (*zt) {
      auto reader = Reader::Open(bytes);
      if (!reader.ok()) return WithFile(reader.status(), name);
      return AsInput(*std::move(reader), name, std::nullopt, [bytes] { return bytes; }, {});
    }
  }
  ZT_ASSIGN_OR_RETURN(auto source, cli::OpenAny(std::move(bytes), options, format));
  return std::make_unique<SourceInput>(std::move(source), name, false);
}

}  // namespace zt::capi
