// zt.cli:extraction — writes a folder of --to disk-delta.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :extraction;
import :conversion;
import :paths;
import :signals;
import zt.convert.delta;
import zt.convert.diskdelta;
import zt.open;

namespace zt::cli::internal {
namespace {

// Tensors of a file, in bytes, unless --shard-size says it: each file is written by one thread.
constexpr std::uint64_t kFileBytes = std::uint64_t{1} << 30;

// The versions are the numbers in the names of the folder and the base; of a base that is named
// otherwise, the one before.
StatusOr<DiskForm> FormOf(const Args& args, const std::string& base) {
  DiskForm form;
  form.overwrite = args.to != kToDiskDelta;
  if (!args.digest.empty() && args.digest != "xxh3")
    return InvalidArgument("--digest " + args.digest + " is not of --to " + args.to +
                           ", which has Adler-32, or xxh3 of 128 bits");
  form.xxh3 = !args.digest.empty();
  const std::string name = BaseName(args.output);
  const auto number = VersionNumber(name);
  if (!number || *number == 0)
    return WithFile(InvalidArgument("the name of the folder must end with the number of its "
                                    "version, from 1, as weight_v000001 does"),
                    args.output);
  std::string below = BaseName(base);
  if (below.ends_with(".zt")) below.resize(below.size() - 3);
  const auto known = VersionStem(below) == VersionStem(name) ? VersionNumber(below) : std::nullopt;
  form.version = PartText(*number, 6);
  form.base = PartText(known.value_or(*number - 1), 6);
  if (known && *known >= *number)
    return WithFile(InvalidArgument("version " + form.version +
                                    " does not follow that of the base, " + Quote(base)),
                    args.output);
  return form;
}

// A warning of what the folder does not say.
std::vector<std::string> Losses(const TensorSource& source, const TensorSource& base,
                                std::span<const ComponentId> old) {
  std::vector<std::string> lines;
  if (const std::uint64_t files = CountFiles(source.objects()); files > 0)
    lines.push_back(Counted(files, "file") + " of the model " + (files == 1 ? "is" : "are") +
                    " left out: readers keep those of the base");
  std::vector<bool> used(base.objects().size());
  for (const ComponentId id : old) used[id.object] = true;
  NameList names;
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Object& object = base.objects()[i];
    if (used[i] || object.components[0].bytes == 0) continue;
    names.Add(Quote(object.name));
    ++left;
  }
  if (left > 0)
    lines.push_back(Counted(left, "tensor") + " of the base " + (left == 1 ? "is" : "are") +
                    " not in the model, and " + (left == 1 ? "stays" : "stay") +
                    " for those who apply it: " + names.ToString());
  return lines;
}

}  // namespace

Status WriteDiskFolder(const Args& args, TensorSource& source, const ChangedSource* changed) {
  if (args.base.empty() && args.used_bases->empty())
    return InvalidArgument("--to " + args.to +
                           " writes what differs from a model: name it by --base");
  const std::string path = args.base.empty() ? args.used_bases->front() : args.base.front();
  ZT_ASSIGN_OR_RETURN(const DiskForm form, FormOf(args, path));
  SourceOptions input = args.source_options();
  input.files = {"none"};
  input.left_out = nullptr;
  input.format.clear();
  std::erase(input.base, path);
  input.used_bases = std::make_shared<std::vector<std::string>>();
  ZT_ASSIGN_OR_RETURN(const auto base, Open(path, input));
  ZT_RETURN_IF_ERROR(CheckDepth(path, input.used_bases->size()));
  std::vector<std::uint32_t> tensors;
  for (std::uint32_t i = 0; i < source.objects().size(); ++i) {
    if (!IsFile(source.objects()[i])) tensors.push_back(i);
  }
  std::vector<std::vector<DiskPair>> cut;
  std::vector<ComponentId> fresh, old;
  for (const auto& part :
       CutBySize(source, tensors, args.shard_size == 0 ? kFileBytes : args.shard_size)) {
    ZT_ASSIGN_OR_RETURN(cut.emplace_back(), PairTensors(source, part, *base, form));
    for (const DiskPair& pair : cut.back()) {
      fresh.push_back(pair.fresh);
      old.push_back(pair.old);
    }
  }
  std::vector<std::string> warnings = WordedWarnings(args, source);
  for (std::string& line : Losses(source, *base, old)) warnings.push_back(std::move(line));
  WarnAll(args, warnings);
  ExtractRun run(args, source, warnings);

  std::uint64_t all = 0;
  for (const ComponentId id : fresh) all += source.objects()[id.object].components[0].bytes;
  run.Expect(0, all);

  NumberedOptions at_once = FilesAtOnce(args, source, fresh, 0);
  at_once.most = std::min(at_once.most, FilesAtOnce(args, *base, old, 0).most);
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> files;
  std::uint64_t count = 0, written = 0;
  ZT_RETURN_IF_ERROR(
      run.WriteFolder({.whole = true, .sync = !args.no_sync}, [&](FolderSink& folder) -> Status {
        source.WillRead(fresh);
        base->WillRead(old);
        ZT_RETURN_IF_ERROR(RunNumbered(
            cut.size(), at_once, [&](std::uint64_t number, const Share& share) -> Status {
              const std::string file = "model-" + PartText(number + 1, 6) + ".safetensors";
              const std::string staged = folder.Staged(file);
              ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Sink> sink,
                                  OpenSink(staged, folder.StagedOptions(file)));
              ZT_ASSIGN_OR_RETURN(std::vector<std::string> names,
                                  WriteDiskDelta(source, *base, cut[number], form, *sink,
                                                 [&](std::uint64_t bytes) -> Status {
                                                   if (Interrupted() || share.cancelled)
                                                     return Cancelled("interrupted");
                                                   run.Passed(bytes);
                                                   return OkStatus();
                                                 }));
              if (names.empty()) return OkStatus();
              std::error_code error;
              const std::lock_guard lock(mutex);
              written += std::filesystem::file_size(staged, error);
              count += names.size();
              files.emplace(file, std::move(names));
              return OkStatus();
            }));
        ZT_RETURN_IF_ERROR(base->Finish());
        const std::string index = DiskDeltaIndex(form, files);
        written += index.size();
        return WriteText(folder.Staged("model.safetensors.index.json"), index,
                         {.sync = false, .new_folder = true});
      }));
  run.Expect(written);
  Json output = {{"path", args.output},     {"format", args.to},         {"bytes", written},
                 {"version", form.version}, {"base_version", form.base}, {"differing", count}};
  std::vector<std::uint32_t> objects;
  for (const ComponentId id : fresh) objects.push_back(id.object);
  return run.Print(std::move(output), objects, 0, changed);
}

}  // namespace zt::cli::internal
