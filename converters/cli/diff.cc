// zt.cli — diff: two inputs of any format, by content.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :compare;
import :files;
import :options;
import :support;

namespace zt::cli::internal {
namespace {

// By their places in the enumeration.
constexpr std::string_view kKindNames[] = {"only_first", "only_second", "format", "shape",
                                           "attribute",  "components",  "dtype",  "values"};

std::string_view Name(DifferenceKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

std::string NumberText(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

StatusOr<Comparison> Diff(const Args& args) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> first, OpenUngrouped({args.inputs[0]}, args));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> second, OpenUngrouped({args.inputs[1]}, args));
  ZT_RETURN_IF_ERROR(MatchFiles(first, second, args));
  return CompareSources(*first, *second, args, "diff");
}

}  // namespace

std::string FormatDifference(const Difference& d, std::string_view first, std::string_view second) {
  const std::string component =
      d.component.empty() || d.component == "data" ? "" : "component " + Quote(d.component) + ": ";
  switch (d.kind) {
    case DifferenceKind::kOnlyFirst:
      return "only in " + std::string(first);
    case DifferenceKind::kOnlySecond:
      return "only in " + std::string(second);
    case DifferenceKind::kValues: {
      std::string out = component + std::to_string(d.differing) + " of " +
                        std::to_string(d.elements) + " elements differ";
      if (d.largest) out += ", by at most " + NumberText(*d.largest);
      if (d.nan > 0) out += ", " + std::to_string(d.nan) + " of them with NaN";
      return out;
    }
    case DifferenceKind::kAttribute: {
      const auto side = [](const std::string& value, std::string_view where) {
        return (value.empty() ? "none" : value) + " in " + std::string(where);
      };
      return "attribute " + Quote(d.attribute) + " " + side(d.first, first) + ", " +
             side(d.second, second);
    }
    default:
      return component + std::string(Name(d.kind)) + " " + d.first + " in " + std::string(first) +
             ", " + d.second + " in " + std::string(second);
  }
}

Json ToJson(const Difference& d) {
  Json out = {{"tensor", d.tensor}, {"kind", Name(d.kind)}};
  if (!d.component.empty()) out["component"] = d.component;
  if (d.kind == DifferenceKind::kValues) {
    out["elements"] = d.elements;
    out["differing"] = d.differing;
    if (d.nan > 0) out["nan"] = d.nan;
    if (d.largest && std::isfinite(*d.largest)) out["largest"] = *d.largest;
    if (d.largest && !std::isfinite(*d.largest)) out["largest"] = "inf";
  } else if (d.kind == DifferenceKind::kAttribute) {
    out["attribute"] = d.attribute;
    if (!d.first.empty()) out["first"] = d.first;
    if (!d.second.empty()) out["second"] = d.second;
  } else if (d.kind != DifferenceKind::kOnlyFirst && d.kind != DifferenceKind::kOnlySecond) {
    out["first"] = d.first;
    out["second"] = d.second;
  }
  return out;
}

int RunDiff(const Args& args) {
  const auto found = Diff(args);
  if (!found.ok()) return Fail(args, found.status());
  const bool equal = found->differences.empty();
  Json json = Envelope(args, equal);
  json["first"] = args.inputs[0];
  json["second"] = args.inputs[1];
  json["equal"] = equal;
  json["tensors"] = found->tensors;
  json["bytes"] = found->bytes;
  json["differences"] = Json::array();
  std::string text;
  for (const Difference& each : found->differences) {
    if (args.json) {
      json["differences"].push_back(ToJson(each));
      continue;
    }
    text += Printable(TensorContext(each.tensor) + ": " +
                      FormatDifference(each, args.inputs[0], args.inputs[1])) +
            "\n";
  }
  if (equal && !args.quiet)
    text = "equal: " + Counted(found->tensors, "tensor") + ", " + HumanBytes(found->bytes) + "\n";
  const int done = Done(args, args.json ? PrintJson(args, json) : Print(text));
  return done == 0 && !equal ? 1 : done;
}

}  // namespace zt::cli::internal
