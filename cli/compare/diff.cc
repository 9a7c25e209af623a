// zt.cli — diff: two inputs of any format, by content.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :compare;
import :conversion;
import :numbers;
import :options;
import :rules;

namespace zt::cli::internal {
namespace {

// By their places in the enumeration.
constexpr std::string_view kKindNames[] = {"only_first", "only_second", "format",
                                           "shape",      "attribute",   "components",
                                           "dtype",      "values",      "file_attribute"};

std::string_view Name(DifferenceKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

constexpr int kDigits = 9;  // of a float, which tell any two f32 apart

// An element, as ValueCounts has it; all digits of a double only if `exact`.
std::string ElementText(const Json& value, bool exact) {
  if (value.is_array())
    return "(" + ElementText(value[0], exact) + ", " + ElementText(value[1], exact) + ")";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() && !exact ? NumberText(value.get<double>(), kDigits)
                                           : value.dump();
}

double RootMeanSquare(const Difference& d) {
  return std::sqrt(d.counts.squares / static_cast<double>(d.elements));
}

// "1 is", "2 are".
std::string Are(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " is" : " are");
}

// The same of what may be files.
std::string Are(const Comparison::Count& count) {
  return count.files == 0 ? Are(count.all) : CountText(count) + (count.all == 1 ? " is" : " are");
}

// "1 of 57 tensors differs, 0 of 6 files differ".
std::string DifferingText(const Comparison& found) {
  const auto part = [](std::uint64_t differing, std::uint64_t all, std::string_view noun) {
    return std::to_string(differing) + " of " + Counted(all, noun) +
           (differing == 1 || all == 1 ? " differs" : " differ");
  };
  const std::uint64_t files = found.both.files, tensors = found.both.all - files;
  const std::string of_files = part(found.differing.files, files, "file");
  if (tensors == 0 && files > 0) return of_files;
  return part(found.differing.all - found.differing.files, tensors, "tensor") +
         (files == 0 ? "" : ", " + of_files);
}

std::string ValuesText(const Difference& d, const std::string& first, const std::string& second) {
  const ValueCounts& counts = d.counts;
  std::string out =
      std::to_string(counts.differing) + " of " + std::to_string(d.elements) + " elements differ";
  if (counts.largest) out += ", by at most " + NumberText(*counts.largest, kDigits);
  if (counts.relative) out += ", relatively " + NumberText(*counts.relative, kDigits);
  if (counts.largest) out += ", RMS " + NumberText(RootMeanSquare(d), kDigits);
  out += "; first at " + ToString(d.at);
  if (!counts.values[0].is_null()) {
    const bool exact = ElementText(counts.values[0], false) == ElementText(counts.values[1], false);
    out += ": " + ElementText(counts.values[0], exact) + " in " + first + ", " +
           ElementText(counts.values[1], exact) + " in " + second;
  }
  const std::uint64_t one_nan = counts.nan - counts.both_nan;
  if (one_nan > 0) out += "; " + Are(one_nan) + " NaN on one side";
  if (counts.both_nan > 0) out += "; " + Are(counts.both_nan) + " NaN on both, with other bits";
  if (counts.zeros > 0) out += "; " + Are(counts.zeros) + " -0 against 0";
  return out;
}

std::optional<Tolerance> ToleranceOf(const Args& args) {
  if (args.atol < 0 && args.rtol < 0) return std::nullopt;
  return Tolerance{std::max(args.atol, 0.0), std::max(args.rtol, 0.0)};
}

// The names that --rename gives the objects of the first input.
StatusOr<std::vector<std::string>> Renamed(const TensorSource& first, const Rules& rules) {
  std::vector<std::string> names;
  if (!rules.plan.rename) return names;
  for (const Object& object : first.objects()) names.push_back(rules.plan.rename(object.name));
  const auto name_of = [&](std::size_t i) -> std::string_view { return names[i]; };
  const auto twice = zt::internal::FindTwice(names.size(), name_of);
  if (!twice) return names;
  const auto at = [&](std::size_t i) { return first.objects()[i].name; };
  return WithFile(
      WithTensor(InvalidArgument("--rename would give it and " + TensorContext(at(twice->first)) +
                                 " the name " + Quote(names[twice->again])),
                 at(twice->again)),
      first.file({}));
}

StatusOr<Comparison> Diff(const Args& args) {
  ZT_ASSIGN_OR_RETURN(const Rules rules, MakeRules(args));
  SourceOptions input = args.source_options();
  input.any_size = true;
  const std::vector<std::string> paths[] = {{args.inputs[0]}, {args.inputs[1]}};
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> first,
                      rules.Open(args, paths[0], input, true, true));
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> second,
                      rules.Open(args, paths[1], input, true, true));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t of_first, MatchFiles(first, *second, paths[1], args));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t of_second, MatchFiles(second, *first, paths[0], args));
  CompareOptions options;
  ZT_ASSIGN_OR_RETURN(options.names, Renamed(*first, rules));
  std::vector<std::string_view> names = NamesOf(*second), more = NamesOf(*first);
  if (!options.names.empty()) more.assign(options.names.begin(), options.names.end());
  names.insert(names.end(), more.begin(), more.end());
  std::ranges::sort(names);
  ZT_RETURN_IF_ERROR(rules.Resolve(names));
  options.tolerance = ToleranceOf(args);
  options.attributes = args.attributes == "all"    ? AttributeChoice::kAll
                       : args.attributes == "none" ? AttributeChoice::kNone
                                                   : AttributeChoice::kTensors;
  options.selector = &rules.selector();
  ZT_ASSIGN_OR_RETURN(Comparison found,
                      CompareSources(*first, *second, args, "diff", std::move(options)));
  found.files_not_compared = of_first + of_second;
  WarnAll(args, rules.Warnings());
  ZT_RETURN_IF_ERROR(rules.selector().CheckAnyLeft(args.inputs[1]));
  return found;
}

// The last line of the output.
std::string Summary(const Args& args, const Comparison& found) {
  const bool equal = found.differences.empty();
  std::string out = "equal: " + CountText(found.both);
  if (ToleranceOf(args)) out = "equal within the tolerance: " + CountText(found.both);
  if (!equal) {
    const auto files =
        std::ranges::count(found.differences, DifferenceKind::kFileAttribute, &Difference::kind);
    out = DifferingText(found);
    const Comparison::Count only[] = {found.only_first, found.only_second};
    for (const std::size_t side : {0, 1}) {
      if (only[side].all > 0) out += "; " + Are(only[side]) + " only in " + args.inputs[side];
    }
    if (files > 0)
      out += "; " + Counted(static_cast<std::uint64_t>(files), "attribute") + " of the files";
  }
  out += equal ? ", " + HumanBytes(found.bytes) : "; " + HumanBytes(found.bytes) + " compared";
  const auto error = [&](std::string_view what, const Comparison::Error& largest) {
    if (!largest.value) return;
    out += "; " + std::string(what) + " " + NumberText(*largest.value, kDigits) + " in " +
           TensorContext(largest.tensor);
  };
  error("largest error", found.largest);
  error("largest relative error", found.relative);
  return Printable(out) + "\n";
}

Json ResultJson(const Args& args, const Comparison& found) {
  const bool equal = found.differences.empty();
  Json json = Envelope(args, equal);
  json["first"] = args.inputs[0];
  json["second"] = args.inputs[1];
  json["equal"] = equal;
  json["tensors"] = found.both.all;
  json["differing"] = found.differing.all;
  json["only_first"] = found.only_first.all;
  json["only_second"] = found.only_second.all;
  json["bytes_compared"] = found.bytes;
  if (found.files_not_compared > 0) json["files_not_compared"] = found.files_not_compared;
  const auto error = [&](const char* key, const Comparison::Error& largest) {
    if (largest.value)
      json[key] = {{"value", NumberJson(*largest.value)}, {"tensor", largest.tensor}};
  };
  error("largest_error", found.largest);
  error("relative_error", found.relative);
  json["differences"] = Json::array();
  for (const Difference& each : found.differences) json["differences"].push_back(ToJson(each));
  return json;
}

std::string ResultText(const Args& args, const Comparison& found) {
  const std::vector<Difference>& differences = found.differences;
  const std::size_t shown =
      std::min(args.verbose ? differences.size() : kMostDifferences, differences.size());
  std::string text;
  for (std::size_t i = 0; i < shown; ++i)
    text += Printable(FormatDifference(differences[i], args.inputs[0], args.inputs[1])) + "\n";
  if (shown < differences.size()) {
    text += "and " + Counted(differences.size() - shown, "more difference") + "; -v lists all\n";
  }
  return args.quiet ? text : text + Summary(args, found);
}

}  // namespace

std::string CountText(const Comparison::Count& count) {
  const std::string files = Counted(count.files, "file");
  if (count.files > 0 && count.files == count.all) return files;
  const std::string tensors = Counted(count.all - count.files, "tensor");
  return count.files == 0 ? tensors : tensors + " and " + files;
}

std::string FormatDifference(const Difference& d, std::string_view first, std::string_view second) {
  const std::string in_first = " in " + std::string(first),
                    in_second = " in " + std::string(second);
  std::string where = d.kind == DifferenceKind::kFileAttribute ? ""
                      : d.file                                 ? "file " + Quote(d.tensor) + ": "
                                                               : TensorContext(d.tensor) + ": ";
  if (!d.component.empty() && d.component != "data")
    where += "component " + Quote(d.component) + ": ";
  switch (d.kind) {
    case DifferenceKind::kOnlyFirst:
      return where + "only" + in_first;
    case DifferenceKind::kOnlySecond:
      return where + "only" + in_second;
    case DifferenceKind::kValues:
      return where + ValuesText(d, std::string(first), std::string(second));
    case DifferenceKind::kAttribute:
    case DifferenceKind::kFileAttribute: {
      const bool file = d.kind == DifferenceKind::kFileAttribute;
      const auto side = [](const std::string& value) { return value.empty() ? "none" : value; };
      return where + (file ? "attribute of the file " : "attribute ") + Quote(d.attribute) + " " +
             side(d.first) + in_first + ", " + side(d.second) + in_second;
    }
    default:
      return where + std::string(Name(d.kind)) + " " + d.first + in_first + ", " + d.second +
             in_second + (d.equal_values ? "; the values do not differ" : "");
  }
}

Json ToJson(const Difference& d) {
  Json out = Json::object();
  if (d.kind != DifferenceKind::kFileAttribute) out[d.file ? "file" : "tensor"] = d.tensor;
  out["kind"] = Name(d.kind);
  if (!d.component.empty()) out["component"] = d.component;
  if (d.kind == DifferenceKind::kValues) {
    out["elements"] = d.elements;
    out["differing"] = d.counts.differing;
    if (d.counts.nan > 0) out["nan"] = d.counts.nan;
    if (d.counts.both_nan > 0) out["both_nan"] = d.counts.both_nan;
    if (d.counts.zeros > 0) out["zeros"] = d.counts.zeros;
    out["at"] = d.at;
    if (!d.counts.values[0].is_null()) {
      out["first"] = d.counts.values[0];
      out["second"] = d.counts.values[1];
    }
    if (d.counts.largest) {
      out["largest"] = NumberJson(*d.counts.largest);
      if (d.counts.relative) out["relative"] = NumberJson(*d.counts.relative);
      out["rms"] = NumberJson(RootMeanSquare(d));
    }
  } else if (d.kind == DifferenceKind::kAttribute || d.kind == DifferenceKind::kFileAttribute) {
    out["attribute"] = d.attribute;
    if (!d.first.empty()) out["first"] = d.first;
    if (!d.second.empty()) out["second"] = d.second;
  } else if (d.kind != DifferenceKind::kOnlyFirst && d.kind != DifferenceKind::kOnlySecond) {
    out["first"] = d.first;
    out["second"] = d.second;
    if (d.equal_values) out["equal_values"] = true;
  }
  return out;
}

int RunDiff(const Args& args) {
  const auto found = Diff(args);
  if (!found.ok()) return Fail(args, found.status());
  const int done = Done(args, args.json ? PrintJson(args, ResultJson(args, *found))
                                        : Print(ResultText(args, *found)));
  return done == 0 && !found->differences.empty() ? 1 : done;
}

}  // namespace zt::cli::internal
