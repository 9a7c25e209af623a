// zt.cli:writing — one output: the writer under a signal's eye, and what it could not carry over.
module;

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/status_macros.h"

module zt.cli;

import :args;
import :output;
import :support;
import :writing;
import zt;

namespace zt::cli::internal {
namespace {

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

}  // namespace

void ReportFindings(const std::vector<NumericFinding>& findings, const Plan& plan) {
  if (plan.on_overflow == OnOverflow::kError) return;  // the error has said it
  std::unordered_map<std::string_view, const Object*> objects;
  if (!findings.empty()) {
    for (const PlannedObject& each : plan.objects)
      objects.emplace(each.object->name, each.object.get());
  }
  for (const NumericFinding& finding : findings) {
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

StatusOr<WrittenFile> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source, const Plan& plan,
                                WriterOptions options) {
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      Writer::Create(std::move(sink), std::move(options)));
  {
    const OnSignal on_signal([&] { writer->Cancel(Cancelled("interrupted")); });
    ZT_RETURN_IF_ERROR(writer->AddSource(source, plan));
    ZT_RETURN_IF_ERROR(writer->Flush());
    ZT_RETURN_IF_ERROR(writer->Finish());
  }
  return WrittenFile{writer->file_bytes(), writer->numeric_findings()};
}

Json ToJson(const std::vector<NumericFinding>& findings) {
  Json out = Json::array();
  for (const NumericFinding& finding : findings) {
    out.push_back({{"tensor", finding.tensor},
                   {"overflow", finding.counts.overflow},
                   {"nan_lost", finding.counts.nan_lost}});
  }
  return out;
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

}  // namespace zt::cli::internal
