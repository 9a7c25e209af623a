// zt.cli — convert: open, plan, stream, publish.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :formats;
import :output;
import :progress;
import :rules;
import :shards;
import :support;
import :writing;
import zt;

namespace zt::cli {

using namespace internal;

namespace {

StatusOr<WriterOptions> MakeWriterOptions(const ConvertArgs& args, const Rules& rules) {
  WriterOptions options;
  options.spec = rules.plan.spec;
  options.storage = rules.plan.storage;
  options.alignment = args.alignment;
  options.threads = args.common.threads;
  options.memory_bytes = args.common.memory;
  options.min_gain = args.min_gain_percent / 100;
  options.zstd = rules.zstd;
  options.zstd.frame_bytes = args.chunk;
  ZT_RETURN_IF_ERROR(Annotate(Validate(options.zstd), "--zstd, --chunk"));
  return options;
}

std::string Describe(const Object& object) {
  std::string out;
  if (object.format != "dense") out = object.format + " ";
  for (const Component& component : object.components) {
    if (component.role == "data" || component.role == "values")
      out += std::string(Name(component.element)) + " ";
  }
  return out + ToString(object.shape);
}

std::uint64_t Bytes(const Object& object) {
  std::uint64_t bytes = 0;
  for (const Component& component : object.components)
    bytes += component.bytes == kUnknownSize ? 0 : component.bytes;
  return bytes;
}

// The plan, for people: what each tensor is and becomes.
std::string PlanText(const TensorSource& source, const Plan& plan, const ConvertArgs& args) {
  std::string out;
  std::uint64_t shared = 0;
  for (const PlannedObject& planned : plan.objects) {
    const Object& from = source.objects()[planned.components.front().source.object];
    const std::string before = Describe(from), after = Describe(*planned.object);
    out += Printable(planned.object->name);
    if (from.name != planned.object->name) out += "  (was " + Printable(from.name) + ")";
    out += "  " + Printable(before);
    if (before != after) out += " -> " + Printable(after);
    out += "  " + HumanBytes(Bytes(*planned.object));
    if (const auto& with = planned.components.front().shared_with) {
      out += "  = " + Printable(plan.objects[with->object].object->name);
      ++shared;
    }
    out += "\n";
  }
  out += Printable(args.output.empty() ? "plan" : args.output) + ": zTensor " + args.spec + ", " +
         std::to_string(plan.objects.size()) + " of " + Counted(source.objects().size(), "tensor") +
         ", " + HumanBytes(plan.input_bytes(source)) + " in, " + HumanBytes(plan.output_bytes()) +
         " out" + (args.zstd ? " before compression" : "");
  if (shared > 0) out += ", " + std::to_string(shared) + " shared with others";
  return out + "\n";
}

Json PlanJson(const TensorSource& source, const Plan& plan) {
  Json tensors = Json::array();
  for (const PlannedObject& planned : plan.objects) {
    Json components = Json::array();
    for (std::size_t c = 0; c < planned.components.size(); ++c) {
      const ComponentId id = planned.components[c].source;
      const Component& from = source.objects()[id.object].components[id.component];
      const Component& to = planned.object->components[c];
      Json row = {{"role", to.role},
                  {"from", Name(from.element)},
                  {"to", Name(to.element)},
                  {"bytes_in", from.bytes},
                  {"bytes_out", to.bytes}};
      if (const auto& shared = planned.components[c].shared_with) {
        row["shared_with"] = plan.objects[shared->object].object->name;
      }
      components.push_back(std::move(row));
    }
    const Object& from = source.objects()[planned.components.front().source.object];
    tensors.push_back({{"name", planned.object->name},
                       {"source_name", from.name},
                       {"format", planned.object->format},
                       {"shape", planned.object->shape},
                       {"components", std::move(components)}});
  }
  return tensors;
}

// A name that says another format is a mistake to be found before the work is done.
Status CheckOutputName(const ConvertArgs& args) {
  if (IsTorchName(args.output)) {
    return WithFile(InvalidArgument("convert writes .zt files; " + std::string(kNoTorch) +
                                    " ('ztstream extract')"),
                    args.output);
  }
  for (const Format& format : Formats()) {
    if (format.plan == nullptr || !HasSuffix(format, args.output)) continue;
    return WithFile(
        InvalidArgument("convert writes .zt files, and this name ends like a " +
                        std::string(format.name) + " file; 'ztstream extract' writes those"),
        args.output);
  }
  return OkStatus();
}

// /dev/null and the like, which have the names they have.
bool IsDevice(const std::string& path) {
  std::error_code error;
  return !IsUrl(path) && std::filesystem::exists(path, error) &&
         !std::filesystem::is_regular_file(path, error);
}

StatusOr<std::unique_ptr<TensorSource>> OpenSource(const ConvertArgs& args) {
  InputArgs input = args.input;
  input.u32_indices = Traits(*ParseSpecVersion(args.spec)).u32_indices;
  return args.group_quantized ? OpenGrouped(args.inputs, input) : OpenInputs(args.inputs, input);
}

// Writes the one output and says what came of it.
Status Write(const ConvertArgs& args, TensorSource& source, const Plan& plan, WriterOptions options,
             const std::vector<std::string>& warnings) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink,
                      OpenSink(args.output, {.overwrite = args.force, .sync = !args.no_sync}));
  ProgressBar bar(args.common, "convert");
  options.progress = [&](const Progress& p) {
    bar.Update(p.bytes, p.bytes_total, p.tensors, p.tensors_total);
  };
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      WriteFile(std::move(sink), source, plan, std::move(options)));
  bar.End();
  Json json =
      args.common.json ? SummaryJson(args, source, plan, warnings) : Json{{"warnings", warnings}};
  Report(args.common, writer->numeric_findings(), plan, json["warnings"]);
  if (args.common.json) {
    json["output"]["bytes"] = writer->file_bytes();
    json["timing"] = {{"wall_s", bar.seconds()}};
    json["numeric"] = ToJson(writer->numeric_findings());
    return PrintJson(args.common, json);
  }
  if (!args.common.quiet) {
    Note(Text({.output = args.output,
               .tensors = plan.objects.size(),
               .bytes_in = plan.input_bytes(source),
               .bytes_out = writer->file_bytes(),
               .seconds = bar.seconds()}));
  }
  return OkStatus();
}

Status Convert(const ConvertArgs& args) {
  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  ZT_ASSIGN_OR_RETURN(WriterOptions options, MakeWriterOptions(args, rules));
  ZT_RETURN_IF_ERROR(CheckOutputName(args));
  ZT_ASSIGN_OR_RETURN(const std::optional<ShardRequest> shards, FindShardRequest(args));
  if (!args.dry_run && !shards) ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenSource(args));
  ZT_ASSIGN_OR_RETURN(Plan plan, MakePlan(*source, rules.plan));
  if (args.canonical) ZT_RETURN_IF_ERROR(MakeCanonical(*source, plan));
  std::vector<std::string> warnings = source->warnings();
  for (std::string& warning : rules.Warnings()) warnings.push_back(std::move(warning));
  if (!args.output.empty() && args.output != "-" && !args.output.ends_with(".zt") && !shards &&
      !IsDevice(args.output)) {
    warnings.push_back(args.output + ": a .zt file is written, and its name does not end in .zt");
  }
  if (!args.common.quiet) {
    for (const std::string& warning : warnings) Warn(warning);
  }
  if (plan.objects.empty() && !source->objects().empty()) {
    return InvalidArgument("--include and --exclude leave none of " +
                           Counted(source->objects().size(), "tensor") +
                           "; ztstream inspect lists their names");
  }
  if (args.common.verbose) {
    for (const std::string& line : rules.Uses()) Note(line);
  }
  if (shards) return ConvertShards(args, *shards, *source, plan, options, warnings);
  if (args.dry_run) {
    if (const Status there = CheckOutput(args.output, args.force);
        !there.ok() && !args.common.quiet)
      Note(Message(there));
    if (!args.common.json) return Print(PlanText(*source, plan, args));
    Json json = SummaryJson(args, *source, plan, warnings);
    json["plan"] = PlanJson(*source, plan);
    return Print(Dump(json));
  }
  return Write(args, *source, plan, std::move(options), warnings);
}

}  // namespace

int RunConvert(const ConvertArgs& args) {
  const Status status = Convert(args);
  return status.ok() ? 0 : Fail(args.common, status);
}

}  // namespace zt::cli
