// zt.cli — id: the content digest (2.0 §6.4) of a model in any format.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :output;
import :options;
import :rules;
import :conversion;
import zt.convert.delta;

namespace zt::cli::internal {
namespace {

// The manifest of a file of version 2.0.
struct Stored {
  std::vector<std::byte> bytes;
  std::unordered_set<std::string> digested;  // the objects of which every component has a digest
  bool whole = true;                         // these are all objects
};

// nullopt for other inputs.
StatusOr<std::optional<Stored>> ReadManifest(const std::string& path) {
  if (path.empty()) return std::nullopt;  // a folder
  const auto file = OpenNamed(path, TheStore());
  ZT_RETURN_IF_UNAVAILABLE(file.status());
  // A pipe, a data shard, or a file that is refused later.
  if (!file.ok() || !(*file)->size()) return std::nullopt;
  const auto reader = Reader::Open(*file);
  ZT_RETURN_IF_UNAVAILABLE(reader.status());
  if (!reader.ok() || !Traits((*reader)->manifest().version).digests_decoded) return std::nullopt;
  const Manifest& manifest = (*reader)->manifest();
  // The id of a delta is that of the model it makes.
  if (FindMember(manifest.attributes, kDeltaAttribute) != nullptr) return std::nullopt;
  Stored stored;
  stored.bytes.resize(manifest.bytes);
  ZT_RETURN_IF_ERROR((*reader)->bytes().ReadAt(manifest.offset, stored.bytes));
  for (const StoredObject& object : manifest.objects) {
    const bool digested = std::ranges::none_of(
        object.components, [](const StoredComponent& each) { return each.digest.empty(); });
    if (digested) stored.digested.insert(object.name);
    stored.whole = stored.whole && digested;
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
  if (args.inputs.size() == 1 && !IsPipe(args.inputs[0])) {
    ZT_ASSIGN_OR_RETURN(const std::string file, FileOfInput(args.inputs[0], args.source_options()));
    ZT_ASSIGN_OR_RETURN(stored, WithFile(ReadManifest(file), file));
  }
  if (stored && stored->whole && args.files.empty() && !HasRules(args))
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
  StatusOr<Plan> planned = MakePlan(*source, plan_options);
  // Nobody has asked for 2.0: the tensor cannot have an id.
  if (planned.status().code() == StatusCode::kInvalidArgument && TensorOf(planned.status())) {
    return WithAdvice(WithCode(planned.status(), StatusCode::kUnimplemented), Advice::kExclude);
  }
  ZT_ASSIGN_OR_RETURN(const Plan plan, std::move(planned));
  WarnAll(args, WordedWarnings(args, *source));
  WarnAll(args, rules.Warnings());
  ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.inputs.front()));
  // Those that are kept as they are stored have their digests there.
  std::unordered_set<std::string_view> kept;
  bool as_stored = stored.has_value();
  for (const PlannedObject& object : plan.objects) {
    kept.insert(object.object->name);
    as_stored = as_stored && stored->digested.contains(object.object->name);
  }
  if (as_stored) {
    return ContentDigest(stored->bytes, kind,
                         [&](std::string_view name) { return kept.contains(name); });
  }
  const std::size_t told = source->warnings().size();
  ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> computed, ComputeManifest(args, *source, plan));
  WarnAll(args, WordedWarnings(args, *source, told));
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
