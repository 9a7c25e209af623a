// zt.cli:writing — one output: the writer under a signal's eye, and what it could not carry over.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
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

std::vector<std::string> WarningsOf(const std::vector<NumericFinding>& findings, const Plan& plan) {
  std::vector<std::string> lines;
  std::unordered_map<std::string_view, const Object*, zt::internal::NameHash> objects;
  if (!findings.empty()) {
    for (const PlannedObject& each : plan.objects)
      objects.emplace(each.object->name, each.object.get());
  }
  std::uint64_t tensors = 0, values = 0, fractions = 0;
  const NumericFinding* first = nullptr;
  for (const NumericFinding& finding : findings) {
    if (const std::uint64_t lost = finding.counts.fraction_lost; lost > 0) {
      if (++tensors == 1) first = &finding;
      fractions += lost;
      values += finding.values;
    }
    if (finding.counts.overflow == 0 && finding.counts.nan_lost == 0) continue;
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
    lines.push_back(std::move(line));
  }
  if (first != nullptr) {  // one line for all tensors: a rule takes hundreds of them
    lines.push_back(
        (tensors == 1 ? TensorContext(first->tensor)
                      : Counted(tensors, "tensor") + ", " + Quote(first->tensor) + " the first") +
        ": " + std::to_string(fractions) + " of " + Counted(values, "value") +
        " lost their fraction in an integer type; --dtype does not quantize");
  }
  return lines;
}

}  // namespace

void Report(const Common& common, const std::vector<NumericFinding>& findings, const Plan& plan,
            Json& warnings) {
  for (std::string& line : WarningsOf(findings, plan)) {
    if (!common.quiet) Warn(line);
    warnings.push_back(std::move(line));
  }
}

StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<Writer> writer,
                      Writer::Create(std::move(sink), std::move(options)));
  const CancelsWriter by_signal(*writer);
  ZT_RETURN_IF_ERROR(writer->AddSource(source, plan));
  ZT_RETURN_IF_ERROR(writer->Flush());
  ZT_RETURN_IF_ERROR(writer->Finish());
  return writer;
}

Json ToJson(const std::vector<NumericFinding>& findings) {
  Json out = Json::array();
  for (const NumericFinding& finding : findings) {
    out.push_back({{"tensor", finding.tensor},
                   {"overflow", finding.counts.overflow},
                   {"nan_lost", finding.counts.nan_lost},
                   {"fraction_lost", finding.counts.fraction_lost}});
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
