// zt.cli — apply: a checkpoint is changed where it lies, to what a delta makes of it.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :inputs;
import :options;
import :output;
import :signals;
import zt.convert.delta;

namespace zt::cli::internal {
namespace {

struct Outcome {
  Applied applied;
  bool already = false, went_on = false;  // with what was interrupted
};

// The delta as it is stored, and what it says of its base.
StatusOr<std::pair<std::unique_ptr<TensorSource>, DeltaOrigin>> OpenStored(const std::string& path,
                                                                           SourceOptions options) {
  options.deltas_as_stored = options.as_stored = true;
  ZT_ASSIGN_OR_RETURN(auto delta, Open(path, options));
  ZT_ASSIGN_OR_RETURN(const auto origin, WithFile(FindDelta(delta->attributes()), path));
  if (!origin)
    return WithFile(InvalidArgument("it is no delta; 'ztstream convert --base' makes one"), path);
  return std::pair<std::unique_ptr<TensorSource>, DeltaOrigin>(std::move(delta), *origin);
}

StatusOr<std::unique_ptr<TensorSource>> OpenCheckpoint(const std::string& path,
                                                       const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(auto checkpoint, OpenBase(path, options));
  const bool fits = checkpoint->format() == "safetensors" || checkpoint->format() == "zt";
  if (fits && !FindMember(checkpoint->attributes(), kDeltaAttribute)) return checkpoint;
  return WithFile(Unsupported("safetensors and whole .zt files are changed where they lie; "
                              "'ztstream convert' writes the new version to another place"),
                  path);
}

StatusOr<Outcome> Apply(const Args& args) {
  const std::string& path = args.inputs[1];
  const SourceOptions options = args.source_options();
  if (IsUrl(path))
    return WithFile(InvalidArgument("a checkpoint is changed where it lies on this machine; "
                                    "'ztstream convert' writes to a bucket"),
                    path);
  ZT_ASSIGN_OR_RETURN(const auto lock, LockPath(path));
  Outcome out;
  ZT_ASSIGN_OR_RETURN(out.went_on, FinishJournal(path));
  if (out.went_on) Note(path + ": the last apply to it was interrupted, and is complete now");
  ProgressBar bar(args, "apply");
  const auto apply = [&]() -> StatusOr<Applied> {
    ZT_ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(path, options));
    ZT_ASSIGN_OR_RETURN(auto stored, OpenStored(args.inputs[0], options));
    TensorSource& old = *checkpoint;
    ZT_ASSIGN_OR_RETURN(const auto model, WithFile(OpenDelta(std::move(stored.first), stored.second,
                                                             std::move(checkpoint), path, true),
                                                   args.inputs[0]));
    return ApplyInPlace(path, old, *model,
                        {.threads = args.threads,
                         .memory_bytes = args.memory,
                         .cancelled = &Interrupted(),
                         .progress = [&](std::uint64_t done, std::uint64_t total) {
                           bar.Update(done, total, 0, 0);
                         }});
  };
  auto applied = apply();
  bar.End();
  if (applied.ok()) {
    out.applied = *std::move(applied);
    out.already = out.applied.tensors == 0 && out.applied.files == 0;
    return out;
  }
  // What is no base may be the result.
  if (applied.status().code() != StatusCode::kInvalidArgument) return applied.status();
  const auto checkpoint = OpenCheckpoint(path, options);
  auto stored = OpenStored(args.inputs[0], options);
  if (!checkpoint.ok() || !stored.ok()) return applied.status();
  ZT_ASSIGN_OR_RETURN(const auto model,
                      OpenDelta(std::move(stored->first), stored->second, nullptr, "", false));
  ZT_ASSIGN_OR_RETURN(out.already, HoldsResults(*model, **checkpoint));
  return out.already ? StatusOr<Outcome>(std::move(out)) : applied.status();
}

}  // namespace

int RunApply(const Args& args) {
  const auto done = Apply(args);
  if (!done.ok()) return Fail(args, done.status());
  Completed();
  const Applied& applied = done->applied;
  WarnAll(args, applied.warnings);
  if (args.json) {
    Json json = Envelope(args, true);
    json["delta"] = args.inputs[0];
    json["checkpoint"] = args.inputs[1];
    json["already"] = done->already;
    json["went_on"] = done->went_on;
    json["tensors"] = applied.tensors;
    json["files_changed"] = applied.files;
    json["bytes_journal"] = applied.bytes;
    json["warnings"] = applied.warnings;
    return Done(args, PrintJson(args, json));
  }
  if (args.quiet) return 0;
  Note(args.inputs[1] +
       (done->already ? ": it is that version already"
                      : ": " + Counted(applied.tensors, "tensor") + " changed" +
                            (applied.files > 0 ? ", and " + Counted(applied.files, "file") : "") +
                            ", " + HumanBytes(applied.bytes) + " written twice"));
  return 0;
}

}  // namespace zt::cli::internal
