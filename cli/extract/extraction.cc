// zt.cli:extraction — writes a file or a folder, and prints what came of it; reads components through
// the transforms of a plan.
module;

#include <errno.h>
#include <sys/stat.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :conversion;
import :extraction;
import :paths;
import :signals;

namespace zt::cli::internal {
namespace fs = std::filesystem;

void ExtractRun::Expect(std::uint64_t bytes, std::uint64_t read) {
  bytes_ += bytes;
  read_ += read;
}

void ExtractRun::Expect(const FileLayout& layout) {
  Expect(layout.bytes);
  for (const LayoutPiece& piece : layout.pieces) {
    read_ += piece.bytes;
    if (piece.bytes > 0) components_.push_back(piece.source);
  }
}

Status ExtractRun::WriteFile(const std::function<Status(Sink&)>& write) {
  if (args_.dry_run) return OkStatus();
  source_.WillRead(components_);
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                      OpenSink(args_.output, {.overwrite = args_.force, .sync = !args_.no_sync}));
  ZT_RETURN_IF_ERROR(write(*sink));
  ZT_RETURN_IF_ERROR(source_.Finish());
  ZT_RETURN_IF_ERROR(WithFile(sink->Finish(bytes_), sink->name()));
  Completed();
  bar_.End();
  return OkStatus();
}

Status ExtractRun::WriteFolder(const FolderSinkOptions& options,
                               const std::function<Status(FolderSink&)>& write) {
  if (args_.dry_run) return OkStatus();
  source_.WillRead(components_);
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<FolderSink> folder,
                      FolderSink::Create(args_.output, options));
  ZT_RETURN_IF_ERROR(folder->Reserve(bytes_));
  ZT_RETURN_IF_ERROR(write(*folder));
  ZT_RETURN_IF_ERROR(source_.Finish());
  bar_.End();
  ZT_RETURN_IF_ERROR(folder->Finish());
  Completed();  // before the folder is closed, which may take its time
  return OkStatus();
}

Status ExtractRun::WriteLayouts(std::span<const NamedLayout> files, FolderSink& folder,
                                bool shown) {
  return RunNumbered(
      files.size(), FilesAtOnce(args_, source_, components_, 0),
      [&](std::uint64_t number, const Share& share) -> Status {
        if (Interrupted()) return Cancelled("interrupted");
        const auto& [path, layout, executable] = files[number];
        // In a folder that nobody else can change: no link is on the way.
        const fs::path staged = folder.Staged(path);
        const FileSinkOptions options = folder.StagedOptions(path);
        std::error_code error;
        fs::create_directories(staged.parent_path(), error);
        if (error)
          return WithFile(IoError(error.value(), "cannot make its folder"), options.shown_as);
        ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink, OpenSink(staged.string(), options));
        ZT_RETURN_IF_ERROR(WriteLayout(layout, *sink, &share, shown ? files.size() : 0));
        ZT_RETURN_IF_ERROR(WithFile(sink->Finish(layout.bytes), sink->name()));
        struct stat made;  // who may read it may run it
        if (!executable ||
            (::stat(staged.c_str(), &made) == 0 &&
             ::chmod(staged.c_str(), made.st_mode | (made.st_mode & 0444) >> 2) == 0))
          return OkStatus();
        return WithFile(IoError(errno, "cannot make it executable"), sink->name());
      });
}

Status ExtractRun::WriteLayout(const FileLayout& layout, Sink& sink, const Share* share,
                               std::size_t files) {
  constexpr std::uint64_t kOneThread = 8 << 20;  // smaller files are written by one thread
  LayoutOptions options;
  if (layout.bytes < kOneThread) {
    options.threads = 1;
    options.memory_bytes = share == nullptr ? args_.memory : share->memory_bytes.load();
  } else {
    options.threads = args_.threads;
    options.memory_bytes = args_.memory;
    options.share = share;
  }
  options.cancelled = &Interrupted();
  options.progress = [&, last = std::uint64_t{0}](std::uint64_t bytes) mutable {
    bar_.Add(bytes - std::exchange(last, bytes), read_, 0, files);
  };
  ZT_RETURN_IF_ERROR(zt::WriteLayout(source_, layout, sink, options));
  bar_.Add(0, read_, files == 0 ? 0 : 1, files);
  return OkStatus();
}

Status ExtractRun::Print(Json output, std::span<const std::uint32_t> selected, std::uint64_t files,
                         const ChangedSource* changed, bool left_out) {
  const std::size_t tensors = selected.size();
  if (args_.dry_run && !args_.json) {
    std::string text;
    for (const std::uint32_t index : selected) {
      const Object& object = source_.objects()[index];
      text += Printable(object.name) + "  " + Printable(Describe(object)) + "  " +
              HumanBytes(Bytes(object)) + "\n";
    }
    return cli::internal::Print(text + Printable(args_.output) + ": " + Counted(tensors, "tensor") +
                                (files > 0 ? ", " + Counted(files, "file") : "") + ", " +
                                HumanBytes(read_) + " in, " + HumanBytes(bytes_) + " out\n");
  }
  std::vector<std::string> lines = WordedWarnings(args_, source_, told_);
  if (changed != nullptr)
    std::ranges::copy(WarningsOf(changed->Findings(), changed->plan()), std::back_inserter(lines));
  WarnAll(args_, lines);
  std::ranges::copy(lines, std::back_inserter(warnings_));
  if (!args_.json) {
    if (!args_.quiet)
      Note(SummaryText(args_.output, tensors, read_, bytes_, bar_.seconds(), files));
    return OkStatus();
  }
  Json json = Envelope(args_, true);
  json["dry_run"] = args_.dry_run;
  json["inputs"] = args_.inputs;
  json["input_format"] = source_.format();
  json["output"] = std::move(output);
  json["tensors"] = tensors;
  if (left_out) AddLeftOut(args_, json);
  json["bytes_in"] = read_;
  json["warnings"] = warnings_;
  json["timing"] = {{"wall_s", bar_.seconds()}};
  return PrintJson(args_, json);
}

namespace {

constexpr std::uint64_t kStep = std::uint64_t{4} << 20;

}  // namespace

StatusOr<std::unique_ptr<ChangedSource>> ChangedSource::Make(std::unique_ptr<TensorSource> source,
                                                             const Rules& rules,
                                                             std::vector<std::string>& warnings) {
  std::unique_ptr<ChangedSource> changed(new ChangedSource(std::move(source)));
  TensorSource& inner = *changed->inner_;
  ZT_ASSIGN_OR_RETURN(changed->plan_, rules.PlanOf(inner));
  for (const PlannedObject& planned : changed->plan_.objects)
    changed->objects_.push_back(*planned.object);
  changed->attributes_ = changed->plan_.attributes;
  for (std::string& line : rules.Warnings()) warnings.push_back(std::move(line));
  return changed;
}

Status ChangedSource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  const Transform* const transform = Planned(id).transform.get();
  if (transform == nullptr) {
    ZT_RETURN_IF_ERROR(inner_->Read(Planned(id).source, offset, out));
    Count(id, out.size(), {});
    return OkStatus();
  }
  // Reads the whole units that `out` overlaps.
  const std::uint64_t unit = transform->output_unit();
  const std::uint64_t first = offset / unit;
  const std::uint64_t units = (offset + out.size() + unit - 1) / unit - first;
  const Buffer input = pool_.Take(units * transform->input_unit());
  ZT_RETURN_IF_ERROR(
      inner_->Read(Planned(id).source, first * transform->input_unit(), input.bytes()));
  const bool whole = out.size() == units * unit;
  const Buffer output = whole ? Buffer() : pool_.Take(units * unit);
  NumericCounts counts;
  transform->Apply(input.bytes(), whole ? out : output.bytes(), counts);
  if (!whole) std::memcpy(out.data(), &output.bytes()[offset - first * unit], out.size());
  Count(id, out.size(), counts);
  return OkStatus();
}

void ChangedSource::Count(ComponentId id, std::uint64_t bytes, const NumericCounts& converted) {
  const std::uint64_t overflow = inner_->TakeOverflow(Planned(id).source);
  const zt::internal::MutexLock lock(mutex_);
  Counts& counts = counts_[id];
  if (counts.bytes >= objects_[id.object].components[id.component].bytes) return;
  counts.bytes += bytes;
  counts.converted += converted;
  counts.made += overflow;
}

NumericCounts ChangedSource::Total(ComponentId id, const Counts& counts) const {
  NumericCounts total = counts.converted;
  AddOverflow(counts.made, objects_[id.object].components[id.component].element, plan_.on_overflow,
              total);
  return total;
}

std::uint64_t ChangedSource::preferred_read(ComponentId id) const {
  const Transform* const transform = Planned(id).transform.get();
  if (transform == nullptr) return WrappedSource::preferred_read(id);
  const std::uint64_t input = std::max(inner_->preferred_read(Planned(id).source), kStep);
  return std::max<std::uint64_t>(input / transform->input_unit(), 1) * transform->output_unit();
}

Status ChangedSource::Finish() {
  ZT_RETURN_IF_ERROR(WrappedSource::Finish());
  const zt::internal::MutexLock lock(mutex_);
  for (const auto& [id, counts] : counts_) {
    const Object& object = objects_[id.object];
    const Status fits = CheckFit(Total(id, counts), object.components[id.component].element, plan_);
    ZT_RETURN_IF_ERROR(WithFile(WithTensor(fits, object.name), file(id)));
  }
  return OkStatus();
}

std::vector<NumericFinding> ChangedSource::Findings() const {
  std::vector<NumericFinding> findings;
  const zt::internal::MutexLock lock(mutex_);
  for (const auto& [id, counts] : counts_) {
    const Component& component = objects_[id.object].components[id.component];
    const NumericCounts total = Total(id, counts);
    if (!total.any()) continue;
    findings.push_back(
        {objects_[id.object].name, total, component.bytes / ByteWidth(component.element.dtype)});
  }
  return findings;
}

}  // namespace zt::cli::internal
