// zt.cli:compare — a difference in words, and in JSON.
module zt.cli;

import zt.std;
import :compare;
import :output;
import zt;

namespace zt::cli::internal {
namespace {

std::string_view Name(DifferenceKind kind) {
  switch (kind) {
    case DifferenceKind::kOnlyFirst:
      return "only_first";
    case DifferenceKind::kOnlySecond:
      return "only_second";
    case DifferenceKind::kFormat:
      return "format";
    case DifferenceKind::kShape:
      return "shape";
    case DifferenceKind::kAttribute:
      return "attribute";
    case DifferenceKind::kComponents:
      return "components";
    case DifferenceKind::kDType:
      return "dtype";
    case DifferenceKind::kValues:
      return "values";
  }
  return "";
}

std::string NumberText(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::string Text(const Difference& d, std::string_view first, std::string_view second) {
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

}  // namespace zt::cli::internal
