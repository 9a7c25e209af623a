// zt.cli — id: the content digest (2.0 §6.4) of a model in any format.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :options;
import :rules;
import :conversion;

namespace zt::cli::internal {
namespace {

// The checked manifest of a file of version 2.0.
struct Stored {
  std::vector<std::byte> bytes;
  std::unordered_set<std::string> lacking;  // the objects of which a component has no digest
};

// nullopt for other inputs.
StatusOr<std::optional<Stored>> ReadManifest(const std::string& path) {
  const auto file = TheStore().Open(path);
  if (!file.ok() || !(*file)->size())
    return std::nullopt;  // a folder, a pipe, or a file that is refused later
  const std::uint64_t size = *(*file)->size();
  std::vector<std::byte> head(std::min<std::uint64_t>(size, 8));
  std::vector<std::byte> tail(std::min<std::uint64_t>(size, kTailBytes));
  ZT_RETURN_IF_ERROR((*file)->ReadAt(0, head));
  if (!LooksLikeZt(head)) return std::nullopt;
  ZT_RETURN_IF_ERROR((*file)->ReadAt(size - tail.size(), tail));
  ZT_ASSIGN_OR_RETURN(const Trailer trailer, LocateManifest(head, tail, size));
  if (!Traits(trailer.family).digests_decoded || trailer.manifest_bytes == 0) return std::nullopt;
  std::vector<std::byte> bytes(trailer.manifest_bytes);
  ZT_RETURN_IF_ERROR((*file)->ReadAt(trailer.manifest_offset, bytes));
  ZT_ASSIGN_OR_RETURN(const Manifest manifest, DecodeManifest(bytes, trailer));
  ZT_RETURN_IF_ERROR(CheckLayout(manifest, trailer.data_end));
  Stored stored{std::move(bytes), {}};
  for (const StoredObject& object : manifest.objects) {
    for (const StoredComponent& component : object.components) {
      if (component.digest.empty()) stored.lacking.insert(object.name);
    }
  }
  return stored;
}

// The manifest of a file of version 2.0 with this plan: reads all data and writes nothing.
StatusOr<std::vector<std::byte>> ComputeManifest(const Args& args, TensorSource& source,
                                                 const Plan& plan) {
  WriterOptions options;
  options.spec = plan.spec;
  options.threads = args.threads;
  options.memory_bytes = args.memory;
  ProgressBar bar(args, "id");
  options.progress = [&](const Progress& p) {
    bar.Update(p.bytes, p.bytes_total, p.tensors, p.tensors_total);
  };
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      WriteFile(DiscardSink(), source, plan, std::move(options)));
  bar.End();
  return writer->manifest_bytes();
}

StatusOr<std::string> Id(const Args& args) {
  const DigestKind kind = *ParseDigestKind(args.digest);  // the command line has been checked
  std::optional<Stored> stored;
  if (args.inputs.size() == 1 && args.inputs[0] != "-") {
    ZT_ASSIGN_OR_RETURN(const std::string file, FileOfInput(args.inputs[0], args.source_options()));
    ZT_ASSIGN_OR_RETURN(stored, WithFile(ReadManifest(file), file));
  }
  if (stored && stored->lacking.empty() && args.files.empty() && !HasRules(args))
    return ContentDigest(stored->bytes, kind);

  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  PlanOptions plan_options;
  plan_options.keep = rules.plan.keep;
  plan_options.spec = SpecVersion::k2_0;
  plan_options.attributes = false;  // the content digest does not cover them
  SourceOptions input = args.source_options();
  input.u32_indices = Traits(plan_options.spec).u32_indices;
  ZT_ASSIGN_OR_RETURN(Inputs inputs, OpenEach(args.inputs, input));
  auto merged = MergeInputs(std::move(inputs));
  if (!merged.ok()) {
    return WithFact(merged.status(), std::string(merged.status().message()) +
                                         "; inputs are taken as one model: run id once for each");
  }
  const std::unique_ptr<TensorSource> source = *std::move(merged);
  ZT_RETURN_IF_ERROR(rules.Resolve(*source));
  ZT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*source, plan_options));
  ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.inputs.front()));
  WarnAll(args, WordedWarnings(args, *source));
  WarnAll(args, rules.Warnings());
  std::unordered_set<std::string_view> kept;
  for (const PlannedObject& object : plan.objects) kept.insert(object.object->name);
  if (stored && std::ranges::none_of(stored->lacking, [&](const std::string& name) {
        return kept.contains(name);
      })) {
    return ContentDigest(stored->bytes, kind,
                         [&](std::string_view name) { return kept.contains(name); });
  }
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> computed, ComputeManifest(args, *source, plan));
  return ContentDigest(computed, kind);
}

}  // namespace

int RunId(const Args& args) {
  const StatusOr<std::string> id = Id(args);
  if (!id.ok()) return Fail(args, id.status());
  Json json = Envelope(args, true);
  json["inputs"] = args.inputs;
  json["id"] = *id;
  return Done(args, args.json ? PrintJson(args, json) : Print(*id + "\n"));
}

}  // namespace zt::cli::internal
