// zt.capi — inputs: any source, and what the reader of a .zt file knows of how data is stored.
module;

#include "core/status_macros.h"

module zt.capi;

import zt.std;
import zt;
import zt.convert.delta;
import zt.open;
import zt.remote;

namespace zt::capi {
namespace {

// The bytes that ReadWhole reads at once.
constexpr std::size_t kStep = 4 << 20;

}  // namespace

ObjectView Input::object(std::uint32_t index) const {
  const Object& object = source_->objects()[index];
  const Value* const path = IsFile(object) ? FindMember(object.attributes, "path") : nullptr;
  return {.name = &object.name,
          .format = object.format,
          .shape = {object.shape.data(), object.shape.size()},
          .components = object.components.size(),
          .attributes = &object.attributes,
          .path = path == nullptr ? nullptr : path->AsString()};
}

ComponentView Input::component(ComponentId id) const {
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
  const auto stored = source_->stored(id);
  // Numbers that are computed lie in no file.
  const bool lies = stored && (stored->file != nullptr || !stored->shard.empty());
  if (lies) {
    const std::string_view unknown = stored->unknown_encoding;
    view.encoding = unknown.empty() ? Name(stored->encoding) : unknown;
    view.digest = stored->digest;
    view.offset = stored->offset;
    view.length = stored->length;
    view.container = stored->file;
    view.mappable = stored->mappable;
    if (!stored->undecodable.empty()) view.unreadable = stored->undecodable;
    if (view.unreadable.empty() && view.bytes == kUnknownSize) {
      const auto bytes = source_->Size(id);
      if (bytes.ok()) view.bytes = *bytes;
      if (!bytes.ok()) view.unreadable = Keep(Fact(bytes.status()));
    }
  } else if (const auto extent = source_->extent(id);
             !stored && extent && extent->bytes != nullptr) {
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

std::optional<std::uint32_t> Input::Find(std::string_view name) const {
  // Not std::once_flag: its thread-local storage does not work in a library that is loaded late.
  const std::lock_guard lock(mutex_);
  if (names_.empty()) names_ = ByName(source_->objects());
  const auto held = names_.find(name);
  return held == names_.end() ? std::nullopt : std::optional(held->second);
}

std::string_view Input::file(ComponentId id) const {
  const std::string& file = source_->file(id);
  const std::string& own = file.empty() ? name_ : file;
  if (size() == 0) return own;
  const auto stored = source_->stored(id);
  if (!stored || stored->shard.empty()) return own;
  return Keep(own + ": shard " + std::string(stored->shard));
}

std::unique_lock<std::mutex> Input::Lock(ComponentId id) const {
  // One for all: sequential components may share a stream.
  return !source_->seekable() || source_->sequential(id) ? std::unique_lock(sequential_)
                                                         : std::unique_lock<std::mutex>();
}

Status Input::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out,
                   const RangeStep& step) const {
  const Object& object = source_->objects()[id.object];
  const std::uint64_t size = object.components[id.component].bytes;
  const auto read = [&]() -> Status {
    ZT_RETURN_IF_ERROR(source_->CheckReadable(id.object));
    if (size != kUnknownSize && (offset > size || out.size() > size - offset)) {
      return InvalidArgument("the range lies beyond the component");
    }
    const auto lock = Lock(id);
    return step ? step(id, offset, out) : source_->Read(id, offset, out);
  };
  const Status status = read();
  return status.ok() ? status : WithFile(WithTensor(status, object.name), file(id));
}

StatusOr<VerifyReport> Input::Verify(std::optional<std::uint32_t> object, unsigned threads,
                                     Watch& watch) const {
  VerifyReport report;
  if (const Reader* const reader = ReaderOf(*source_)) {
    VerifyOptions options{.threads = threads, .cancelled = &watch.cancelled};
    options.progress = [&watch](std::uint64_t done, std::uint64_t total) {
      watch.done = done;
      watch.total = total;
    };
    if (object) options.object = reader->Find(source_->objects()[*object].name);
    return WithFile(zt::Verify(*reader, options), name_);
  }
  if (object) {
    ZT_RETURN_IF_ERROR(Examine(*object, report, watch));
    return report;
  }
  for (std::uint32_t o = 0; o < size(); ++o) {
    for (const Component& c : source_->objects()[o].components) watch.total += c.bytes;
  }
  for (std::uint32_t o = 0; o < size(); ++o) ZT_RETURN_IF_ERROR(Examine(o, report, watch));
  const Status end = source_->Finish();
  if (end.code() != StatusCode::kDataLoss) ZT_RETURN_IF_ERROR(end);
  if (!end.ok()) report.problems.push_back({TensorOf(end).value_or(""), "", Fact(end)});
  return report;
}

// Reads a whole object and adds the result to the report. An error that is not about the data is
// returned.
Status Input::Examine(std::uint32_t object, VerifyReport& report, Watch& watch) const {
  const Object& declared = source_->objects()[object];
  ++report.objects;
  report.components += declared.components.size();
  report.unhashed += declared.components.size();
  if (const Status readable = source_->CheckReadable(object); !readable.ok()) {
    report.undecodable.push_back({declared.name, "", Fact(readable)});
    return OkStatus();
  }
  const Status status = ReadWhole(object, watch);
  if (status.code() != StatusCode::kDataLoss)
    return WithFile(WithTensor(status, declared.name), file({object, 0}));
  report.problems.push_back({declared.name, ComponentOf(status).value_or(""), Fact(status)});
  return OkStatus();
}

// Reads a whole object piece by piece, so that the source checks its digests.
Status Input::ReadWhole(std::uint32_t object, Watch& watch) const {
  std::vector<std::byte> piece(kStep);
  const auto& components = source_->objects()[object].components;
  for (std::uint32_t c = 0; c < components.size(); ++c) {
    const auto lock = Lock({object, c});
    std::uint64_t at = 0;
    do {
      if (watch.cancelled) return CancelledStatus();
      const auto step = std::min<std::uint64_t>(kStep, components[c].bytes - at);
      ZT_RETURN_IF_ERROR(source_->Read({object, c}, at, std::span(piece).first(step)));
      at += step;
      watch.done += step;
    } while (at < components[c].bytes);
  }
  return OkStatus();
}

std::string_view Input::Keep(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  const auto held = texts_.find(text);
  return held != texts_.end() ? *held : *texts_.emplace(text).first;
}

StatusOr<std::unique_ptr<Input>> OpenPaths(std::vector<std::string> paths, SourceOptions options,
                                           RemoteOptions remote, std::optional<DType> numbers) {
  if (std::ranges::any_of(paths, IsUrl)) {
    for (std::string& path : paths) {
      ZT_ASSIGN_OR_RETURN(path, HideQuery(path, remote.queries));
    }
    options.store = MakeRemoteStore(std::move(remote));
  }
  const std::string& path = paths.front();
  if (paths.size() == 1) {
    ZT_ASSIGN_OR_RETURN(options.as_stored, WithFile(IsOneFile(path, *options.store), path));
  }
  if (numbers) {
    ZT_ASSIGN_OR_RETURN(auto made,
                        WithFile(OpenDequantized(paths, options, {.numbers = *numbers}), path));
    return std::make_unique<Input>(std::move(made.source), path);
  }
  ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenInputs(paths, options), path));
  return std::make_unique<Input>(std::move(source), path);
}

StatusOr<std::unique_ptr<Input>> OpenBytes(std::shared_ptr<ByteSource> bytes, SourceOptions options,
                                           std::optional<DType> numbers) {
  const std::string name = bytes->name();
  options.as_stored = true;
  if (numbers) {
    ZT_ASSIGN_OR_RETURN(auto made,
                        OpenDequantizedBytes(std::move(bytes), options, {.numbers = *numbers}));
    return std::make_unique<Input>(std::move(made.source), name);
  }
  ZT_ASSIGN_OR_RETURN(auto source, zt::OpenBytes(std::move(bytes), options));
  return std::make_unique<Input>(std::move(source), name);
}

StatusOr<DType> NumbersNamed(std::string_view name) {
  const auto type = FindTypeName(std::string(name));
  for (const DType each : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (type == ElementType{each}) return each;
  }
  return InvalidArgument("dequantize: " + Quote(name) + " is not f32, f16 or bf16");
}

}  // namespace zt::capi
