// zt.cli:extraction — writes a folder of safetensors, the original files or new ones.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :output;
import :shards;
import zt.convert.files;
import zt.convert.safetensors;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors", kIndexSuffix = ".safetensors.index.json";
constexpr std::uint64_t kMostIndexBytes = std::uint64_t{256} << 20;

using Selection = std::vector<std::uint32_t>;

// The folder that a name may begin with, with its '/'.
std::string_view PrefixOf(std::string_view name) { return name.substr(0, name.find('/') + 1); }

// The planned contents of a folder.
struct FolderPlan {
  std::vector<NamedLayout> weights;
  std::vector<FileEntry> files;      // of the model
  std::vector<NamedLayout> indices;  // new ones
  std::vector<NamedLayout> all;      // these together
  std::vector<std::string> warnings;
  bool verbatim = false;  // as the model came
};

// The files of which the model's attribute keeps the headers; what they do not hold stays in
// `selected`. If that has to be in them, there are none, and `why` says what is in the way.
StatusOr<std::vector<NamedLayout>> PlanAgain(TensorSource& source, Selection& selected,
                                             const std::vector<WeightFile>& files,
                                             std::string& why) {
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_name;
  for (const std::uint32_t index : selected) by_name.emplace(source.objects()[index].name, index);
  std::unordered_set<std::uint32_t> found;
  std::vector<NamedLayout> weights;
  std::set<std::string_view, std::less<>> anew;  // prefixes of what came in another format
  for (const WeightFile& file : files) {
    if (!file.from.empty()) {
      anew.insert(file.prefix);
      continue;
    }
    if (file.header.empty()) {
      why = "a conversion changed tensors or attributes";
      return std::vector<NamedLayout>();
    }
    const auto find = [&](std::string_view name) -> std::optional<std::uint32_t> {
      const auto at = by_name.find(file.prefix + std::string(name));
      if (at == by_name.end()) return std::nullopt;
      found.insert(at->second);
      return at->second;
    };
    auto layout = PlanSafetensorsAgain(source, file.header, find);
    if (layout.status().code() == StatusCode::kFailedPrecondition) {
      why = Message(layout.status());
      return std::vector<NamedLayout>();
    }
    if (!layout.ok()) return Annotate(layout.status(), Quote(file.path));
    weights.push_back({file.path, *std::move(layout)});
  }
  Selection rest;
  std::size_t strange = 0;
  for (const std::uint32_t index : selected) {
    if (found.contains(index)) continue;
    rest.push_back(index);
    strange += anew.contains(PrefixOf(source.objects()[index].name)) || anew.contains("") ? 0 : 1;
  }
  if (strange > 0) {
    why = Counted(strange, "tensor") + " came from elsewhere";
    return std::vector<NamedLayout>();
  }
  selected = std::move(rest);
  return weights;
}

// The tensors of new files in one folder: those whose names begin with `prefix`. The files leave it
// out.
struct Group {
  std::string prefix, stem;  // of the files' paths
  Selection objects;
};

// The path of a file of weights without its shard number and suffix.
std::string StemOf(const WeightFile& file) {
  if (const auto shard = ParseShardName(file.path, kSuffix))
    return shard->stem + shard->tail.substr(0, shard->tail.size() - kSuffix.size());
  const std::string_view path = file.path;
  if (path.ends_with(kSuffix)) return std::string(path.substr(0, path.size() - kSuffix.size()));
  return std::string(path.substr(0, path.rfind('/') + 1)) + "model";
}

// Groups the tensors by the prefixes of the known files. New files get the path of the known ones
// if these have one in common, else "model".
std::vector<Group> GroupByPrefix(const TensorSource& source, const Selection& selected,
                                 const std::vector<WeightFile>& known) {
  std::map<std::string, Group, std::less<>> groups;
  for (const WeightFile& file : known) {
    const std::string stem = StemOf(file);
    const auto [group, fresh] = groups.emplace(file.prefix, Group{file.prefix, stem, {}});
    if (!fresh && group->second.stem != stem) {
      group->second.stem = stem.substr(0, stem.rfind('/') + 1) + "model";
    }
  }
  groups.emplace("", Group{"", "model", {}});
  for (const std::uint32_t index : selected) {
    const auto group = groups.find(PrefixOf(source.objects()[index].name));
    (group == groups.end() ? groups.begin() : group)->second.objects.push_back(index);
  }
  std::vector<Group> out;
  for (auto& [prefix, group] : groups) {
    if (!group.objects.empty()) out.push_back(std::move(group));
  }
  return out;
}

// The objects of another source under their names in the new files.
class ShortNames final : public WrappedSource {
 public:
  ShortNames(TensorSource& inner, std::span<const Group> groups)
      : WrappedSource(inner), inner_(inner) {
    objects_ = inner.objects();
    for (const Group& group : groups) {
      for (const std::uint32_t index : group.objects)
        objects_[index].name.erase(0, group.prefix.size());
    }
  }

 private:
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    return {inner_, id};
  }
  TensorSource& inner_;
};

std::string NewName(const Group& group, std::size_t number, std::size_t count) {
  if (count == 1) return group.stem + std::string(kSuffix);
  return group.stem + "-" + PartText(number) + "-of-" + PartText(count) + std::string(kSuffix);
}

// The index of the files in one folder.
std::string TextOfIndex(const TensorSource& source, const std::vector<Selection>& parts,
                        std::span<const NamedLayout> files) {
  std::uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const std::uint32_t index : parts[i]) {
      const Object& object = source.objects()[index];
      total += object.components.front().bytes;
      map[object.name] = fs::path(files[i].path).filename().string();
    }
  }
  return IndexText({{"total_size", total}}, map);
}

Status PlanGroup(const TensorSource& source, const Group& group, std::uint64_t most,
                 FolderPlan& plan) {
  const std::vector<Selection> parts = CutBySize(source, group.objects, most);
  const std::size_t before = plan.weights.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    ZT_ASSIGN_OR_RETURN(FileLayout layout, PlanSafetensorsFile(source, parts[i]));
    plan.weights.push_back({NewName(group, i + 1, parts.size()), std::move(layout)});
  }
  if (plan.warnings.empty()) plan.warnings = plan.weights[before].layout.warnings;
  if (parts.size() == 1) return OkStatus();
  const std::string text = TextOfIndex(source, parts, std::span(plan.weights).subspan(before));
  const auto bytes = std::as_bytes(std::span(text));
  FileLayout layout;
  layout.end.assign(bytes.begin(), bytes.end());
  layout.bytes = text.size();
  plan.indices.push_back({group.stem + std::string(kIndexSuffix), std::move(layout)});
  return OkStatus();
}

Status PlanNew(TensorSource& source, const Selection& selected,
               const std::vector<WeightFile>& known, std::uint64_t most, FolderPlan& plan) {
  std::vector<Group> groups = GroupByPrefix(source, selected, known);
  // A folder of files alone has no weights.
  if (groups.empty() && plan.weights.empty() && plan.files.empty())
    groups.push_back({"", "model", {}});
  if (groups.empty()) return OkStatus();
  // A file of the model may have the name already.
  for (Group& group : groups) {
    const auto has_name = [&](const FileEntry& file) {
      return file.path == group.stem + std::string(kSuffix);
    };
    while (std::ranges::any_of(plan.files, has_name)) group.stem += "-weights";
  }
  std::optional<ShortNames> short_names;
  if (!groups.back().prefix.empty()) short_names.emplace(source, groups);
  const TensorSource& named = short_names ? *short_names : source;
  for (const Group& group : groups) ZT_RETURN_IF_ERROR(PlanGroup(named, group, most, plan));
  return OkStatus();
}

// A file of the model, as it is.
FileLayout LayoutOf(const FileEntry& file) {
  FileLayout layout;
  layout.bytes = file.bytes;
  if (file.bytes > 0) layout.pieces.push_back({.source = {file.object, 0}, .bytes = file.bytes});
  return layout;
}

// Leaves out indices of shards that are not written as they were, which the first `again` files of
// weights are, and those in whose place new ones come.
Status LeaveOutStaleIndices(TensorSource& source, std::size_t again, FolderPlan& plan) {
  std::set<std::string> kept, fresh;
  for (const FileEntry& file : plan.files) kept.insert(file.path);
  for (const NamedLayout& each : std::span(plan.weights).first(again)) kept.insert(each.path);
  for (const NamedLayout& each : plan.indices) fresh.insert(each.path);
  std::vector<FileEntry> files;
  for (const FileEntry& file : plan.files) {
    if (fresh.contains(file.path)) continue;
    if (ParseIndexName(file.path) && file.bytes <= kMostIndexBytes) {
      const ComponentId id{file.object, 0};
      std::string text(file.bytes, '\0');
      const auto bytes = std::as_writable_bytes(std::span(text));
      ZT_RETURN_IF_ERROR(AtTensor(source, id, source.Read(id, 0, bytes)));
      const auto index = ParseShardIndex(std::move(text));
      const std::string folder(file.path.substr(0, file.path.rfind('/') + 1));
      const auto is_changed = [&](const auto& entry) {
        return !kept.contains(folder + entry.second);
      };
      if (index.ok() && std::ranges::any_of(index->weight_map, is_changed)) continue;
    }
    files.push_back(file);
  }
  plan.files = std::move(files);
  return OkStatus();
}

StatusOr<FolderPlan> MakeFolderPlan(const Args& args, TensorSource& source, Selection selected) {
  for (const std::uint32_t index : selected) {
    ZT_RETURN_IF_ERROR(WithTensor(source.CheckReadable(index), source.objects()[index].name));
  }
  FolderPlan plan;
  ZT_ASSIGN_OR_RETURN(plan.files, ListFiles(source.objects()));
  ZT_ASSIGN_OR_RETURN(const std::vector<WeightFile> known,
                      FindWeightFiles(source.attributes(), plan.files));
  std::string why = args.shard_size != 0                       ? "--shard-size cuts them anew"
                    : !args.set.empty() || !args.unset.empty() ? "their metadata is changed"
                                                               : "";
  if (!known.empty() && why.empty()) {
    ZT_ASSIGN_OR_RETURN(plan.weights, PlanAgain(source, selected, known, why));
  }
  plan.verbatim = !plan.weights.empty() && selected.empty();
  const std::size_t again = plan.weights.size();
  if (!plan.verbatim) {
    const std::uint64_t most = args.shard_size == 0 ? kUnknownSize : args.shard_size;
    ZT_RETURN_IF_ERROR(PlanNew(source, selected, known, most, plan));
    NameList fresh;
    for (std::size_t i = again; i < plan.weights.size(); ++i) fresh.Add(plan.weights[i].path);
    if (!why.empty()) {
      if (!known.empty())
        plan.warnings.push_back("the files of weights are not those that the model had: " + why);
    } else if (!known.empty() && !fresh.empty()) {
      plan.warnings.push_back("PyTorch files are not written; their weights are in " +
                              fresh.ToString());
    }
  }
  ZT_RETURN_IF_ERROR(LeaveOutStaleIndices(source, again, plan));
  plan.all = std::move(plan.weights);
  for (const FileEntry& file : plan.files)
    plan.all.push_back({file.path, LayoutOf(file), file.executable});
  std::move(plan.indices.begin(), plan.indices.end(), std::back_inserter(plan.all));
  FilePaths paths;  // no two files of the folder may meet
  for (const NamedLayout& each : plan.all) ZT_RETURN_IF_ERROR(paths.Add(each.path));
  return plan;
}

}  // namespace

std::vector<Selection> CutBySize(const TensorSource& source, const Selection& selected,
                                 std::uint64_t most) {
  std::vector<Selection> cut(1);
  std::uint64_t held = 0;
  for (const std::uint32_t index : selected) {
    const std::uint64_t bytes = source.objects()[index].components.front().bytes;
    if (!cut.back().empty() && (bytes > most || held > most - bytes)) {
      cut.emplace_back();
      held = 0;
    }
    cut.back().push_back(index);
    held += bytes;
  }
  return cut;
}

Status RestoreFolder(const Args& args, TensorSource& source, const Selection& selected,
                     const ChangedSource* changed) {
  auto planned = MakeFolderPlan(args, source, selected);
  if (!planned.ok()) return WithFile(planned.status(), args.file());
  FolderPlan plan = *std::move(planned);
  const std::vector<std::string> warnings = WordedWarnings(args, source);
  plan.warnings.insert(plan.warnings.begin(), warnings.begin(), warnings.end());
  WarnAll(args, plan.warnings);
  ExtractRun run(args, source, plan.warnings);
  Json files = Json::array();
  for (const NamedLayout& each : plan.all) {
    run.Expect(each.layout);
    files.push_back({{"path", each.path}});
  }
  ZT_RETURN_IF_ERROR(run.WriteFolder(
      {.whole = true, .sync = !args.no_sync},
      [&](FolderSink& folder) { return run.WriteLayouts(plan.all, folder, false); }));
  Json output = {{"path", args.output},
                 {"format", "folder"},
                 {"bytes", run.bytes()},
                 {"verbatim", plan.verbatim},
                 {"files", std::move(files)}};
  return run.Print(std::move(output), selected, plan.files.size(), changed, true);
}

Status ExtractFile(const Args& args, TensorSource& source, const FileEntry& file) {
  ZT_RETURN_IF_ERROR(CheckOutput(args.output, args.force));
  ExtractRun run(args, source, WordedWarnings(args, source));
  const FileLayout layout = LayoutOf(file);
  run.Expect(layout);
  ZT_RETURN_IF_ERROR(run.WriteFile([&](Sink& sink) { return run.WriteLayout(layout, sink); }));
  return run.Print({{"path", args.output}, {"format", "file"}, {"bytes", file.bytes}}, {}, 1,
                   nullptr);
}

}  // namespace zt::cli::internal
