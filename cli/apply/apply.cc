// zt.cli — apply: a checkpoint is changed where it lies, to what a delta makes of it.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :paths;
import :options;
import :output;
import :signals;
import zt.convert.delta;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

// The model of a delta; its base is the checkpoint.
StatusOr<std::unique_ptr<TensorSource>> OpenModel(const std::string& path, SourceOptions options) {
  options.deltas_as_stored = true;
  ZT_ASSIGN_OR_RETURN(auto delta, Open(path, options));
  ZT_ASSIGN_OR_RETURN(const auto origin, WithFile(FindDelta(delta->attributes()), path));
  const bool disk =
      delta->format() != "zt" && FindMember(delta->attributes(), kDiskDelta) != nullptr;
  if (disk)
    return WithFile(
        Unsupported("a \"disk delta\" is not applied where a checkpoint lies; "
                    "'ztstream convert --base' writes the new version to another place"),
        path);
  if (!origin)
    return WithFile(InvalidArgument("it is no delta; 'ztstream convert --base' makes one"), path);
  return WithFile(OpenDelta(std::move(delta), *origin, nullptr, ""), path);
}

StatusOr<std::unique_ptr<TensorSource>> OpenCheckpoint(const std::string& path,
                                                       SourceOptions options) {
  options.deltas_as_stored = true;
  ZT_ASSIGN_OR_RETURN(auto checkpoint, OpenBase(path, options));
  if (FindMember(checkpoint->attributes(), kDeltaAttribute))
    return WithFile(
        InvalidArgument("it is a delta, and the second is the checkpoint that is changed"), path);
  if (checkpoint->format() == "safetensors" || checkpoint->format() == "zt") return checkpoint;
  return WithFile(Unsupported("safetensors and whole .zt files are changed where they lie; "
                              "'ztstream convert' writes the new version to another place"),
                  path);
}

// `went_on`: with what was interrupted.
StatusOr<Applied> Apply(const Args& args, bool& went_on) {
  const std::string& path = args.inputs[1];
  const SourceOptions options = args.source_options();
  if (IsUrl(path))
    return WithFile(InvalidArgument("a checkpoint is changed where it lies on this machine; "
                                    "'ztstream convert' writes to a bucket"),
                    path);
  ZT_ASSIGN_OR_RETURN(const auto lock, LockPath(path));
  ZT_ASSIGN_OR_RETURN(went_on, FinishJournal(path));
  if (went_on) Note(path + ": the last apply to it was interrupted, and is complete now");
  ZT_ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(path, options));
  ZT_ASSIGN_OR_RETURN(const auto model, OpenModel(args.inputs[0], options));
  ProgressBar bar(args, "apply");
  auto applied = ApplyInPlace(path, *checkpoint, *model,
                              {.threads = args.threads,
                               .memory_bytes = args.memory,
                               .cancelled = &Interrupted(),
                               .progress = [&](std::uint64_t done, std::uint64_t total) {
                                 bar.Update(done, total, 0, 0);
                               }});
  if (applied.ok()) Completed();  // before files are closed, which may take its time
  bar.End();
  return applied;
}

}  // namespace

int RunApply(const Args& args) {
  bool went_on = false;
  const auto done = Apply(args, went_on);
  if (!done.ok()) return Fail(args, done.status());
  const Applied& applied = *done;
  const bool already = applied.bytes == 0;
  WarnAll(args, applied.warnings);
  if (args.json) {
    Json json = Envelope(args, true);
    json["delta"] = args.inputs[0];
    json["checkpoint"] = args.inputs[1];
    json["already"] = already;
    json["went_on"] = went_on;
    json["tensors"] = applied.tensors;
    json["files_changed"] = applied.files;
    json["bytes_journal"] = applied.bytes;
    json["warnings"] = applied.warnings;
    return Done(args, PrintJson(args, json));
  }
  if (args.quiet) return 0;
  Note(args.inputs[1] +
       (already ? ": it is that version already"
                : ": " + Counted(applied.tensors, "tensor") + " changed" +
                      (applied.files > 0 ? ", and " + Counted(applied.files, "file") : "") + ", " +
                      HumanBytes(applied.bytes) + " written twice"));
  return 0;
}

}  // namespace zt::cli::internal
