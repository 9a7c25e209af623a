// zt.cli:conversion — the files of a model in plans and comparisons.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :conversion;
import :output;
import zt.convert.files;
import zt.open;

namespace zt::cli::internal {
namespace {

// The attribute without the headers. It still names the files of weights.
Value WithoutHeaders(const Value& value) {
  auto files = FindWeightFiles({{std::string(kFolderAttribute), value}}, {});
  if (!files.ok()) return value;
  for (WeightFile& file : *files) file.header.clear();
  return ToValue(*files);
}

// What the plan does to tensors of the source; empty if it keeps each with its name and bytes.
std::vector<std::string_view> Changes(const TensorSource& source, const Plan& plan) {
  const auto renamed = [&](const PlannedObject& each) {
    return each.object->name != source.objects()[each.components[0].source.object].name;
  };
  const auto changed = [](const PlannedObject& each) {
    return std::ranges::any_of(each.components, [](const PlannedComponent& component) {
      return component.transform != nullptr;
    });
  };
  std::vector<std::string_view> how;
  if (plan.objects.size() != source.objects().size()) how.emplace_back("left out");
  if (std::ranges::any_of(plan.objects, renamed)) how.emplace_back("renamed");
  if (std::ranges::any_of(plan.objects, changed)) how.emplace_back("changed");
  return how;
}

}  // namespace

std::string WhyNoFiles(SpecVersion version) {
  if (Traits(version).files) return "";
  return "version " + std::string(Traits(version).text.substr(0, 3)) +
         " cannot hold it; --spec 1.2 and 2.0 can";
}

std::vector<std::string> PlanFiles(const Args& args, const TensorSource& source, Plan& plan) {
  std::vector<std::string> lines;
  for (PlannedObject& planned : plan.objects) {
    if (IsFile(*planned.object) && !args.raw && source.format() != "zt") {
      PlannedComponent& data = planned.components[0];
      data.storage.compression = Compression::kIfGain;
      data.storage.encoding = Encoding::kZstd;
    }
  }
  const Value* const weights = FindMember(plan.attributes, kFolderAttribute);
  if (weights == nullptr) return lines;
  const std::vector<std::string_view> how = Changes(source, plan);
  if (how.empty() && plan.attributes == source.attributes()) return lines;
  if (CountFiles(plan) == plan.objects.size()) return lines;  // an error: no tensor is left
  if (Value changed = WithoutHeaders(*weights); changed != *weights) {
    SetMember(plan.attributes, kFolderAttribute, std::move(changed));
    lines.emplace_back(
        (how.empty() ? "attributes are changed" : "tensors are " + Joined(how, "or")) +
        ", so 'ztstream extract' will write new files of weights instead of the original ones");
  }
  return lines;
}

StatusOr<std::uint64_t> MatchFiles(std::unique_ptr<TensorSource>& side, const TensorSource& other,
                                   const std::vector<std::string>& other_paths, const Args& args) {
  // A folder without files lacks them.
  if (CountFiles(other.objects()) > 0 || !args.files.empty()) return 0;
  if (other_paths.size() == 1 && other.format() != "zt") {
    ZT_ASSIGN_OR_RETURN(const bool folder, TheStore().IsFolder(other_paths[0]));
    if (folder) return 0;
  }
  const std::uint64_t before = CountFiles(side->objects());
  ZT_ASSIGN_OR_RETURN(side, SelectFiles(std::move(side), IsNamedLikeWeights));
  const std::uint64_t files = before - CountFiles(side->objects());
  if (files > 0 && !args.quiet) {
    Note(Counted(files, "file") + " of the model " + (files == 1 ? "is" : "are") +
         " not compared: the other side has none");
  }
  return files;
}

void AddLeftOut(const Args& args, Json& json) {
  for (const LeftOut& each : *args.left_out)
    json["left_out"].push_back(
        {{"path", each.path}, {"why", each.why + AdviceText(args, each.advice)}});
}

void NoteLeftOut(const Args& args) {
  if (args.quiet || args.left_out->empty()) return;
  if (args.verbose) {
    for (const LeftOut& each : *args.left_out)
      Note(each.path + ": left out: " + each.why + AdviceText(args, each.advice));
    return;
  }
  Note(Counted(args.left_out->size(), "file") + (args.left_out->size() == 1 ? " is" : " are") +
       " left out; -v tells which and why");
}

std::uint64_t CountFiles(const std::vector<Object>& objects) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(objects, [](const Object& object) { return IsFile(object); }));
}

std::uint64_t CountFiles(const Plan& plan) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      plan.objects, [](const PlannedObject& planned) { return IsFile(*planned.object); }));
}

}  // namespace zt::cli::internal
