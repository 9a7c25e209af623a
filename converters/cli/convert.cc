// zt.cli — convert: open, plan, stream, publish.
module;

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :formats;
import :output;
import :progress;
import :rules;
import :support;
import zt;

namespace zt::cli {

using namespace internal;

namespace {

StatusOr<WriterOptions> MakeWriterOptions(const ConvertArgs& args, const PlanOptions& plan) {
  WriterOptions options;
  options.spec = plan.spec;
  options.storage = plan.storage;
  options.threads = args.common.threads;
  options.memory_bytes = args.common.memory;
  options.min_gain = args.min_gain_percent / 100;
  options.zstd.frame_bytes = args.chunk;
  if (args.zstd == "huffman" || args.zstd == "planes") {  // what has no planes is Huffman-coded
    options.zstd.huffman = true;
  } else if (!args.zstd.empty()) {
    char* end = nullptr;
    const long level = std::strtol(args.zstd.c_str(), &end, 10);
    if (*end != '\0' || level < -1'000'000 || level > 1'000'000) {
      return InvalidArgument("--zstd takes a level, huffman or planes, not " + Quote(args.zstd));
    }
    options.zstd.level = static_cast<int>(level);
  }
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
         " out" + (args.zstd.empty() ? "" : " before compression");
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

Json SummaryJson(const ConvertArgs& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings) {
  Json out = Envelope(args.common, true);
  out["dry_run"] = args.dry_run;
  out["inputs"] = args.inputs;
  out["input_format"] = source.format();
  out["output"] = Json::object();
  if (!args.output.empty()) out["output"]["path"] = args.output;
  out["output"]["spec"] = args.spec;
  out["tensors"] = {{"input", source.objects().size()}, {"converted", plan.objects.size()}};
  out["bytes_in"] = plan.input_bytes(source);
  out["bytes_decoded"] = plan.output_bytes();
  out["warnings"] = warnings;
  return out;
}

// What a number that does not fit has become, in a tensor of this type.
std::string_view Replacement(const Object* object, OnOverflow policy) {
  if (policy == OnOverflow::kSaturate || object == nullptr) return "the largest value";
  for (const Component& component : object->components) {
    if (component.role != "data" && component.role != "values") continue;
    const ElementType& element = component.element;
    if (element.type == "f8_e5m2" || (element.type.empty() && IsFloat(element.dtype)) ||
        element.type.starts_with("complex")) {
      return "infinity";
    }
    if (element.type.starts_with("f8_")) return "NaN, for the type has no infinity";
  }
  return "the largest value";
}

void ReportFindings(const Writer& writer, const Plan& plan) {
  if (plan.on_overflow == OnOverflow::kError) return;  // the error has said it
  std::unordered_map<std::string_view, const Object*> objects;
  if (!writer.numeric_findings().empty()) {
    for (const PlannedObject& each : plan.objects)
      objects.emplace(each.object->name, each.object.get());
  }
  for (const NumericFinding& finding : writer.numeric_findings()) {
    const auto found = objects.find(finding.tensor);
    const Object* const object = found == objects.end() ? nullptr : found->second;
    std::string line = TensorContext(finding.tensor) + ": ";
    if (finding.counts.overflow > 0) {
      line += Counted(finding.counts.overflow, "value") + " did not fit and became " +
              std::string(Replacement(object, plan.on_overflow));
    }
    if (finding.counts.nan_lost > 0) {
      line += (finding.counts.overflow > 0 ? "; " : "") + std::to_string(finding.counts.nan_lost) +
              " NaN had no counterpart";
    }
    Warn(line);
  }
}

// A name that says another format is a mistake to be found before the work is done.
Status CheckOutputName(const ConvertArgs& args) {
  for (const Format& format : Formats()) {
    if (format.plan == nullptr || !HasSuffix(format, args.output)) continue;
    return InvalidArgument(args.output + ": convert writes .zt files, and this name ends like a " +
                           std::string(format.name) + " file; 'ztstream extract' writes those");
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TensorSource>> OpenSource(const ConvertArgs& args) {
  return args.group_quantized ? OpenGrouped(args.inputs, args.input)
                              : OpenInputs(args.inputs, args.input);
}

// Writes the file. What is known afterwards alone goes into `summary` and `json`.
Status Write(const ConvertArgs& args, TensorSource& source, const Plan& plan, WriterOptions options,
             RunSummary& summary, Json& json) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> sink,
                      OpenSink(args.output, {.overwrite = args.force, .sync = !args.no_sync}));
  ProgressBar bar(args.common, "convert");
  options.progress = [&](const Progress& p) {
    bar.Update(p.bytes, p.bytes_total, p.tensors, p.tensors_total);
  };
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      Writer::Create(std::move(sink), std::move(options)));
  {
    const OnSignal on_signal([&] { writer->Cancel(Cancelled("interrupted")); });
    ZT_RETURN_IF_ERROR(writer->AddSource(source, plan));
    ZT_RETURN_IF_ERROR(writer->Flush());
    ZT_RETURN_IF_ERROR(writer->Finish());
  }
  bar.End();
  ReportFindings(*writer, plan);
  summary = {.output = args.output,
             .tensors = plan.objects.size(),
             .bytes_in = plan.input_bytes(source),
             .bytes_out = writer->file_bytes(),
             .seconds = bar.seconds()};
  json = Json::array();
  for (const NumericFinding& finding : writer->numeric_findings()) {
    json.push_back({{"tensor", finding.tensor},
                    {"overflow", finding.counts.overflow},
                    {"nan_lost", finding.counts.nan_lost}});
  }
  return OkStatus();
}

Status Convert(const ConvertArgs& args) {
  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  ZT_ASSIGN_OR_RETURN(WriterOptions options, MakeWriterOptions(args, rules.plan));
  ZT_RETURN_IF_ERROR(CheckOutputName(args));
  if (!args.dry_run || !args.output.empty())
    ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenSource(args));
  ZT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*source, rules.plan));
  std::vector<std::string> warnings = source->warnings();
  for (std::string& warning : rules.Warnings()) warnings.push_back(std::move(warning));
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
  if (args.dry_run) {
    if (!args.common.json) return Print(PlanText(*source, plan, args));
    Json json = SummaryJson(args, *source, plan, warnings);
    json["plan"] = PlanJson(*source, plan);
    return Print(Dump(json));
  }
  RunSummary summary;
  Json numeric;
  ZT_RETURN_IF_ERROR(Write(args, *source, plan, std::move(options), summary, numeric));
  if (args.common.json) {
    Json json = SummaryJson(args, *source, plan, warnings);
    json["output"]["bytes"] = summary.bytes_out;
    json["timing"] = {{"wall_s", summary.seconds}};
    json["numeric"] = std::move(numeric);
    return PrintJson(args.common, json);
  }
  if (!args.common.quiet) Note(Text(summary));
  return OkStatus();
}

}  // namespace

int RunConvert(const ConvertArgs& args) {
  const Status status = Convert(args);
  return status.ok() ? 0 : Fail(args.common, status);
}

}  // namespace zt::cli
