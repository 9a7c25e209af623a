// zt.cli — convert: open, plan, stream, publish.
module;

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :support;
import :rules;
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
  ZT_ASSIGN_OR_RETURN(options.zstd.frame_bytes, ParseSize(args.chunk));
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

// The plan, for people: what each tensor is and becomes.
std::string PlanText(const TensorSource& source, const Plan& plan, const ConvertArgs& args) {
  std::string out;
  for (const PlannedObject& planned : plan.objects) {
    const Object& from = source.objects()[planned.components.front().source.object];
    const std::string before = Describe(from), after = Describe(*planned.object);
    out += planned.object->name;
    if (from.name != planned.object->name) out += "  (was " + from.name + ")";
    out += "  " + before;
    if (before != after) out += " -> " + after;
    if (planned.components.front().shared_with) {
      out += "  = " + plan.objects[planned.components.front().shared_with->object].object->name;
    }
    out += "\n";
  }
  out += args.output + ": zTensor " + args.spec + ", " + std::to_string(plan.objects.size()) +
         " of " + std::to_string(source.objects().size()) + " tensors, " +
         HumanBytes(plan.input_bytes(source)) + " in, " + HumanBytes(plan.output_bytes()) +
         (args.zstd.empty() ? "" : " before compression") + "\n";
  return out;
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

Json Summary(const ConvertArgs& args, const TensorSource& source, const Plan& plan, bool dry_run) {
  Json out = {{"schema", "ztstream/1"}, {"cmd", "convert"}, {"ok", true}, {"dry_run", dry_run}};
  out["inputs"] = args.inputs;
  out["input_format"] = source.format();
  out["output"] = {{"path", args.output}, {"spec", args.spec}};
  out["tensors"] = {{"input", source.objects().size()}, {"converted", plan.objects.size()}};
  out["bytes_in"] = plan.input_bytes(source);
  out["bytes_decoded"] = plan.output_bytes();
  out["warnings"] = source.warnings();
  return out;
}

void ReportFindings(const Writer& writer, OnOverflow policy) {
  if (policy == OnOverflow::kError) return;  // the error has said it
  for (const NumericFinding& finding : writer.numeric_findings()) {
    std::string line = TensorContext(finding.tensor) + ": ";
    if (finding.counts.overflow > 0) {
      line += std::to_string(finding.counts.overflow) + " values did not fit and became " +
              (policy == OnOverflow::kInf ? "infinity" : "the largest value");
    }
    if (finding.counts.nan_lost > 0) {
      line += (finding.counts.overflow > 0 ? "; " : "") + std::to_string(finding.counts.nan_lost) +
              " NaN had no counterpart";
    }
    Warn(line);
  }
}

Status Convert(const ConvertArgs& args) {
  ZT_ASSIGN_OR_RETURN(const PlanOptions plan_options, MakePlanOptions(args));
  ZT_ASSIGN_OR_RETURN(WriterOptions options, MakeWriterOptions(args, plan_options));
  ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source,
                      args.group_quantized ? OpenGrouped(args.inputs, args.input)
                                           : OpenInputs(args.inputs, args.input));
  if (!args.common.quiet) {
    for (const std::string& warning : source->warnings()) Warn(warning);
  }
  ZT_ASSIGN_OR_RETURN(const Plan plan, MakePlan(*source, plan_options));
  if (args.dry_run) {
    if (!args.common.json) return Print(PlanText(*source, plan, args));
    Json json = Summary(args, *source, plan, true);
    json["plan"] = PlanJson(*source, plan);
    return Print(json.dump() + "\n");
  }

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
    ZT_RETURN_IF_ERROR(writer->AddSource(*source, plan));
    ZT_RETURN_IF_ERROR(writer->Flush());
    ZT_RETURN_IF_ERROR(source->Finish());
    ZT_RETURN_IF_ERROR(writer->Finish());
  }
  bar.End();
  ReportFindings(*writer, plan.on_overflow);
  const double seconds = bar.seconds();
  const std::uint64_t bytes = plan.input_bytes(*source);
  if (args.common.json) {
    Json json = Summary(args, *source, plan, false);
    json["output"]["bytes"] = writer->file_bytes();
    json["timing"] = {{"wall_s", seconds}};
    Json numeric = Json::array();
    for (const NumericFinding& finding : writer->numeric_findings()) {
      numeric.push_back({{"tensor", finding.tensor},
                         {"overflow", finding.counts.overflow},
                         {"nan_lost", finding.counts.nan_lost}});
    }
    json["numeric"] = std::move(numeric);
    const std::string line = json.dump() + "\n";
    if (args.output != "-") return Print(line);
    std::fputs(line.c_str(), stderr);
  } else if (!args.common.quiet) {
    char text[64];
    std::snprintf(text, sizeof text, "%.2f s", seconds);
    std::fprintf(stderr, "ztstream: %s: %zu tensors, %s in, %s out, %s, %s\n", args.output.c_str(),
                 plan.objects.size(), HumanBytes(bytes).c_str(),
                 HumanBytes(writer->file_bytes()).c_str(), text,
                 HumanRate(static_cast<double>(bytes) / std::max(seconds, 1e-6)).c_str());
  }
  return OkStatus();
}

}  // namespace

int RunConvert(const ConvertArgs& args) {
  const Status status = Convert(args);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace zt::cli
