// zt.open — opens inputs: files by their content, folders by their files.
module;

#include <unistd.h>

#include "core/status_macros.h"

module zt.open;

import zt.std;
import :deltas;
import :files;
import :formats;
import :options;
import zt.convert.composite;
import zt.convert.files;
import zt.convert.gguf;
import zt.convert.parts;
import zt.convert.shards;
import zt.convert.torch;
import zt.core;
import zt.source;
import zt.text;

namespace zt {
namespace {

using namespace open::internal;

namespace fs = std::filesystem;

StatusOr<std::unique_ptr<TensorSource>> OpenFrom(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path, const std::string& stem,
                                                 const SourceOptions& options) {
  const Format* format = FindFormat(options.format);
  if (format == nullptr) {
    ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> head, Peek(*bytes, kHeadBytes));
    ZT_ASSIGN_OR_RETURN(format, RecogniseFile(head, path, *options.store));
  }
  if (bytes->sequential() && !format->read_from_end.empty())
    return NotFromPipe(bytes->name(), format->read_from_end);
  return format->open({std::move(bytes), path, stem, options});
}

StatusOr<std::vector<FolderFiles>> ListFolder(const std::string& path,
                                              const SourceOptions& options) {
  std::vector<FolderFiles> found;
  for (const Format& format : Formats()) {
    if (options.format.empty() || options.format == format.name) found.push_back({&format, {}});
  }
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, options.store->List(path));
  for (const std::string& name : names) {
    for (FolderFiles& files : found) {
      // In a folder only .zt files with an index are a checkpoint.
      if (IsIndexOf(*files.format, name) ||
          (files.format->name != "zt" && HasSuffix(*files.format, name)))
        files.names.push_back(name);
    }
  }
  std::erase_if(found, [](const FolderFiles& files) { return files.names.empty(); });
  for (FolderFiles& files : found) std::sort(files.names.begin(), files.names.end());
  return found;
}

// kInvalidArgument if a variant is asked for of what has none.
Status RefuseVariant(const SourceOptions& options) {
  return options.variant.empty() ? OkStatus() : NoVariant(options.variant, {});
}

// "model.zt" for each set of .zt files with names of its shards, and the number of these files.
StatusOr<std::map<std::string, std::size_t>> ZtShardsIn(const std::string& path,
                                                        const SourceOptions& options) {
  std::map<std::string, std::size_t> sets;
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> files, options.store->List(path));
  for (const std::string& file : files) {
    if (const auto name = ParseShardName(file, ".zt")) ++sets[name->stem + ".zt"];
  }
  return sets;
}

// FindZtIn for a folder that has been listed.
StatusOr<std::optional<std::string>> ChooseZt(const std::string& folder,
                                              const std::vector<FolderFiles>& found,
                                              const SourceOptions& options) {
  std::vector<std::string> names;
  for (const FolderFiles& files : found) {
    if (files.format->name != "zt") return std::nullopt;
    names = files.names;
  }
  if (names.empty() && (options.format.empty() || options.format == "zt")) {
    ZT_ASSIGN_OR_RETURN(const auto sets, ZtShardsIn(folder, options));
    for (const auto& [root, shards] : sets) {
      ZT_ASSIGN_OR_RETURN(const bool there,
                          options.store->IsFile((fs::path(folder) / root).string()));
      if (there) names.push_back(root);
    }
    if (names.empty() && !sets.empty()) {
      const auto& [root, shards] = *sets.begin();
      return InvalidArgument(Counted(shards, "shard") + " of " + root +
                             (shards == 1 ? " is" : " are") +
                             " there; 'ztstream join' writes their index");
    }
  }
  if (names.size() > 1) {
    return InvalidArgument("the folder has several checkpoints in shards, " + Quote(names[0]) +
                           " and " + Quote(names[1]) + " among them; name one");
  }
  if (names.empty()) return std::nullopt;
  ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(folder, names[0], options), names[0]));
  return (fs::path(folder) / names[0]).string();
}

// Explains why a checkpoint does not open: by the first of its files that is of another kind, else
// by `error`.
Status ExplainFolder(const std::string& path, const FolderFiles& files, Store& store,
                     const Status& error) {
  if (error.code() != StatusCode::kDataLoss) return error;
  for (const std::string& name : files.names) {
    const std::string file = (fs::path(path) / name).string();
    if (name.ends_with(".json")) continue;
    const auto bytes = store.Open(file);
    if (!bytes.ok()) continue;
    const auto head = Peek(**bytes, kHeadBytes);
    if (!head.ok()) continue;
    if (const auto foreign = NameForeign(*head))
      return Annotate(Unsupported("it is " + *foreign), name);
  }
  return error;
}

StatusOr<std::unique_ptr<TensorSource>> OpenOne(const std::string& path,
                                                const SourceOptions& options);

// The files of PyTorch in a folder that ranks wrote, by the pattern of their names.
StatusOr<std::map<std::string, std::vector<std::string>>> RankFilesIn(
    const std::string& path, const SourceOptions& options) {
  std::map<std::string, std::vector<std::string>> sets;
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, options.store->List(path));
  for (const std::string& name : names) {
    const auto rank = ParseRankName(name);
    if (rank && IsTorchName(name)) sets[rank->set].push_back(name);
  }
  return sets;
}

// Opens the files of a set that RankFilesIn has found as one checkpoint.
StatusOr<std::unique_ptr<TensorSource>> OpenRanks(const std::string& path, const std::string& set,
                                                  std::vector<std::string> names,
                                                  const SourceOptions& options) {
  std::ranges::sort(names);
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::set<std::uint64_t> ranks;
  bool parts = false;
  for (const std::string& name : names) {
    ranks.insert(ParseRankName(name)->rank);
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, name, options), name));
    const std::string file = (fs::path(path) / name).string();
    ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenOne(file, options), file));
    if (source->file({}).empty()) source->SetFile(file);
    parts = parts || HoldsParts(*source);
    sources.push_back(std::move(source));
  }
  // Parts say themselves whether they are all.
  const std::string gaps = parts ? "" : MissingParts(ranks, 0, *ranks.rbegin(), 1);
  if (!gaps.empty()) {
    return InvalidArgument("the folder has no files " + gaps + " of " + Quote(set) +
                           "; name the files that are meant");
  }
  auto merged = PutTogether(std::move(sources), std::move(names));
  if (merged.ok() || merged.status().code() == StatusCode::kUnimplemented) return merged;
  return WithFact(merged.status(), std::string(merged.status().message()) + "; the files of " +
                                       Quote(set) + " are those of several ranks, and do not say " +
                                       "which part of a tensor each has: have the program that " +
                                       "wrote them write whole tensors");
}

// Opens the checkpoint whose files are in the folder itself.
StatusOr<std::unique_ptr<TensorSource>> OpenCheckpoint(const std::string& path,
                                                       const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const bool distributed, LooksLikeDcpFolder(path, *options.store));
  if (distributed && (options.format.empty() || options.format == "torch")) {
    ZT_RETURN_IF_ERROR(RefuseVariant(options));
    return FindFormat("torch")->open_folder(path, {}, options);
  }
  ZT_ASSIGN_OR_RETURN(std::vector<FolderFiles> found, ListFolder(path, options));
  ZT_ASSIGN_OR_RETURN(const std::optional<std::string> shards, ChooseZt(path, found, options));
  if (shards) {
    const std::string name = fs::path(*shards).filename().string();
    auto source = OpenOne(*shards, options);
    if (!source.ok() && !IsIndexPath(*shards)) return Annotate(source.status(), name);
    if (source.ok() && (*source)->file({}).empty()) (*source)->SetFile(*shards);
    return source;
  }
  // A .zt file beside a checkpoint was made from it.
  if (found.size() > 1) {
    std::erase_if(found, [](const FolderFiles& files) { return files.format->name == "zt"; });
  }
  // Formats that cannot be a checkpoint folder hold the same weights again, or other data.
  const bool empty = found.empty();
  NameList archives;
  for (const FolderFiles& files : found) {
    for (const std::string& name : files.names) {
      if (files.format->name == "npz") archives.Add(name);
    }
  }
  std::erase_if(found, [](const auto& files) { return files.format->open_folder == nullptr; });
  if (!options.variant.empty()) {
    const auto lacks = [&](const FolderFiles& files) {
      return !HasVariant(files, options.variant);
    };
    if (!std::ranges::all_of(found, lacks)) std::erase_if(found, lacks);
  }
  // Repositories hold the same weights as *.safetensors and *.bin, and other data as *.bin.
  const auto is = [](std::string_view format) {
    return [=](const FolderFiles& files) { return files.format->name == format; };
  };
  const std::vector<FolderFiles> all = found;
  const bool torch_meant = options.variant.empty() && IsTorchMeant(found);
  if (torch_meant) std::erase_if(found, is("safetensors"));
  const bool again = std::ranges::any_of(found, is("safetensors"));
  std::optional<FolderFiles> torch;  // for safetensors without tensors
  if (found.size() > 1) {
    const auto files = std::ranges::find_if(found, is("torch"));
    if (again && files != found.end() && HoldsWeights(*files)) torch = *files;
    std::erase_if(found, [&](const FolderFiles& files) {
      return is("torch")(files) && (again || !HoldsWeights(files));
    });
  }
  if (found.size() > 1) {
    std::vector<std::string> examples;
    for (const FolderFiles& files : found) examples.push_back(Quote(files.names.front()));
    return WithAdvice(InvalidArgument("the folder holds files of several formats: " +
                                      Joined(examples, "and") + "; name the files that are meant"),
                      Advice::kFormat);
  }
  if (found.empty()) {
    std::vector<std::string> suffixes;
    const bool any = options.format.empty() || FindFormat(options.format)->open_folder == nullptr;
    for (const Format& format : Formats()) {
      if (format.open_folder == nullptr || (!any && format.name != options.format)) continue;
      suffixes.push_back("*" + std::string(Words(format.suffixes)[0]) +
                         (format.name == "zt" ? ".index.json" : ""));
    }
    ZT_ASSIGN_OR_RETURN(auto ranks, RankFilesIn(path, options));
    if (ranks.size() > 1) {
      return InvalidArgument("the folder holds files of ranks of several kinds, " +
                             Quote(ranks.begin()->first) + " and " +
                             Quote(std::next(ranks.begin())->first) +
                             " among them; name the files of one kind");
    }
    if (ranks.size() == 1 && (any || options.format == "torch")) {
      ZT_RETURN_IF_ERROR(RefuseVariant(options));
      return OpenRanks(path, ranks.begin()->first, std::move(ranks.begin()->second), options);
    }
    // Files that are one model, and no sign that the folder is a checkpoint.
    ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, options.store->List(path));
    if (std::ranges::count_if(names, IsKerasIndex) == 1) {
      ZT_RETURN_IF_ERROR(RefuseVariant(options));
      const std::string index = *std::ranges::find_if(names, IsKerasIndex);
      return WithFile(OpenKerasIndex((fs::path(path) / index).string(), options), index);
    }
    const bool single = std::ranges::any_of(
        names, [](const std::string& name) { return IsTorchName(name) || name.ends_with(".zt"); });
    const auto holds = [&](const char* folder) {
      std::error_code error;
      return !IsUrl(path) && fs::is_directory(fs::path(path) / folder, error);
    };
    if (holds("snapshots") && (holds("blobs") || holds("refs"))) {
      return InvalidArgument(
          "the folder is a model's in a hub's cache; name one of its revisions: " +
          (fs::path(path) / "snapshots" / "REV").string());
    }
    return InvalidArgument(
        "the folder holds no checkpoint" + (any ? "" : " of format " + options.format) + ": no " +
        Joined(suffixes, "or") + " file" + (empty && !single ? "" : "; name the files in it"));
  }
  const FolderFiles& files = found.front();
  if (is("npy")(files)) ZT_RETURN_IF_ERROR(RefuseVariant(options));
  auto source = files.format->open_folder(path, files.names, options);
  if (source.ok() && (*source)->objects().empty() && torch) {
    ZT_ASSIGN_OR_RETURN(auto other, torch->format->open_folder(path, torch->names, options));
    if (!other->objects().empty()) return other;
  }
  if (!source.ok()) return ExplainFolder(path, files, *options.store, source.status());
  if (options.variant.empty()) WarnOfOtherFormat(all, files.format->name, **source);
  if (is("npy")(files) && !archives.empty()) {
    (*source)->AddWarning("the tensors of " + archives.ToString() +
                          " are not read, for a folder of .npy files is; name the files that are "
                          "meant");
  }
  return source;
}

// The components of a pipeline, which have a library and a class in model_index.json.
StatusOr<std::vector<std::string>> ComponentsOf(const std::string& path, Store& store) {
  constexpr std::uint64_t kMostIndex = std::uint64_t{16} << 20;
  const std::string file = (fs::path(path) / "model_index.json").string();
  auto bytes = store.Open(file);
  if (!bytes.ok()) return WithFile(bytes.status(), file);
  const auto text = ReadAll(**bytes, kMostIndex);
  if (!text.ok()) return WithFile(text.status(), file);
  const auto index = ParseJsonObject(*text);
  std::vector<std::string> names;
  if (!index.ok()) return names;
  for (const auto& [name, value] : *index) {
    const Value::Array* const pair = value.AsArray();
    if (pair != nullptr && pair->size() == 2 && (*pair)[0].AsString() != nullptr &&
        (*pair)[1].AsString() != nullptr)
      names.push_back(name);
  }
  return names;
}

// Opens the checkpoints in the folders of a pipeline. The names of their tensors begin with the
// folder and '/'. Null if no folder holds a checkpoint.
StatusOr<std::unique_ptr<TensorSource>> OpenPipeline(const std::string& path,
                                                     const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, options.store->ListFolders(path));
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> folders;
  ZT_ASSIGN_OR_RETURN(std::vector<std::string> missing, ComponentsOf(path, *options.store));
  std::erase_if(missing, [&](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  });
  bool any = options.variant.empty();
  std::vector<std::string> variants;
  NameList without;  // folders that lack the variant
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const std::string folder = (fs::path(path) / name).string();
    ZT_ASSIGN_OR_RETURN(std::vector<FolderFiles> found, ListFolder(folder, options));
    std::erase_if(found, [](const FolderFiles& files) {
      return files.format->name != "safetensors" && files.format->name != "torch";
    });
    if (found.empty()) continue;
    const auto chosen = std::ranges::find_if(
        found, [&](const FolderFiles& files) { return HasVariant(files, options.variant); });
    SourceOptions each = options;
    each.format = chosen != found.end() ? chosen->format->name
                  : IsTorchMeant(found) ? "torch"
                                        : found.front().format->name;
    if (chosen == found.end()) {  // as diffusers does
      each.variant.clear();
      without.Add(name);
      for (const FolderFiles& files : found) {
        for (std::string& variant : VariantsOf(files.names, Words(files.format->suffixes)[0]))
          variants.push_back(std::move(variant));
      }
    } else {
      any = true;
    }
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source,
                        WithFile(OpenCheckpoint(folder, each), folder));
    if (source->file({}).empty()) source->SetFile(folder);
    if (options.variant.empty()) WarnOfOtherFormat(found, each.format, *source);
    source->PlaceWarnings(name);
    sources.push_back(PrefixNames(std::move(source), name + "/"));
    folders.push_back(folder);
  }
  if (sources.empty()) return std::unique_ptr<TensorSource>();
  if (!any) return NoVariant(options.variant, variants);
  ZT_ASSIGN_OR_RETURN(auto merged, MergeSources(std::move(sources), std::move(folders)));
  if (!options.variant.empty() && !without.empty()) {
    merged->AddWarning("no weights of the variant " + Quote(options.variant) + " are in " +
                       without.ToString() + ", so those without a variant are read");
  }
  NameList list;
  for (const std::string& name : missing) list.Add(name);
  if (!list.empty()) {
    merged->AddWarning("model_index.json names " + list.ToString() +
                       (missing.size() == 1 ? ", which has no folder" : ", which have no folders"));
  }
  return merged;
}

StatusOr<std::unique_ptr<TensorSource>> OpenFolder(const std::string& path,
                                                   const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const bool pipeline, IsPipeline(path, *options.store));
  if (pipeline) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenPipeline(path, options));
    if (source != nullptr) return source;
  }
  return OpenCheckpoint(path, options);
}

StatusOr<std::unique_ptr<TensorSource>> OpenOne(const std::string& path,
                                                const SourceOptions& options) {
  if (IsStandardInput(path) || IsPipe(path)) {
    ZT_ASSIGN_OR_RETURN(auto bytes, OpenPipe(path));
    return OpenFrom(std::move(bytes), "", "data", options);
  }
  ZT_ASSIGN_OR_RETURN(const bool folder, options.store->IsFolder(path));
  if (folder) return OpenFolder(path, options);
  for (const Format& format : Formats()) {
    if (IsIndexOf(format, path)) return format.open_folder(path, {path}, options);
  }
  if (IsKerasIndex(path)) return OpenKerasIndex(path, options);
  ZT_ASSIGN_OR_RETURN(auto bytes, OpenNamed(path, *options.store));
  return OpenFrom(std::move(bytes), path, fs::path(path).stem().string(), options);
}

// A base, with its files.
StatusOr<std::unique_ptr<TensorSource>> OpenAsBase(const std::string& path,
                                                   const SourceOptions& options) {
  if (IsPipe(path)) return NotFromPipe(path, "a base");
  ZT_ASSIGN_OR_RETURN(auto source, OpenOne(path, options));
  if (source->file({}).empty()) source->SetFile(path);
  return AddModelFiles(std::move(source), path, true, options);
}

}  // namespace

StatusOr<bool> IsOneFile(const std::string& path, Store& store) {
  if (IsIndexPath(path)) return false;
  ZT_ASSIGN_OR_RETURN(const bool folder, store.IsFolder(path));
  return !folder;
}

StatusOr<std::shared_ptr<ByteSource>> OpenNamed(const std::string& path, Store& store) {
  if (IsStandardInput(path)) return OpenPipe(path);
  auto bytes = store.Open(path);
  std::error_code error;
  if (bytes.ok() || IsUrl(path) || fs::exists(path, error)) return bytes;
  const fs::path index = path + ".index.json";
  if (!IsIndexPath(index.string()) || !fs::exists(index, error)) return bytes;
  return WithFact(bytes.status(), std::string(bytes.status().message()) +
                                      "; its shards are there: name their index, " +
                                      index.filename().string());
}

StatusOr<std::optional<std::string>> FindZtIn(const std::string& folder,
                                              const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const std::vector<FolderFiles> found, ListFolder(folder, options));
  return ChooseZt(folder, found, options);
}

StatusOr<std::string> FileOfInput(const std::string& input, const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const bool folder, WithFile(options.store->IsFolder(input), input));
  if (!folder) return input;
  ZT_ASSIGN_OR_RETURN(const auto found, WithFile(FindZtIn(input, options), input));
  return found.value_or("");
}

StatusOr<Inputs> OpenEach(const std::vector<std::string>& paths, const SourceOptions& given) {
  SourceOptions options = given;
  if (options.used_bases == nullptr)
    options.used_bases = std::make_shared<std::vector<std::string>>();
  Inputs inputs;
  std::set<fs::path> sets;  // of GGUF shards, of which any opens all
  for (const std::string& path : paths) {
    const std::string name = IsStandardInput(path) ? "standard input" : path;
    if ((IsStandardInput(path) || IsPipe(path)) && std::ranges::count(paths, path) > 1)
      return InvalidArgument(name + " can be given once");
    std::string set;
    if (paths.size() > 1) {
      ZT_ASSIGN_OR_RETURN(set, WithFile(GgufSetOf(path, *options.store), name));
    }
    if (!set.empty() && !sets.insert(fs::path(set).lexically_normal()).second) continue;
    ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenOne(path, options), name));
    if (source->file({}).empty()) source->SetFile(name);
    ZT_ASSIGN_OR_RETURN(source, ResolveDelta(std::move(source), path, options, OpenAsBase));
    if (!options.variant.empty() && source->format() != "zt") {
      ZT_ASSIGN_OR_RETURN(const bool folder, WithFile(options.store->IsFolder(path), name));
      if (!folder) {
        return WithFile(InvalidArgument("it is one file, and a variant is chosen in a folder; name "
                                        "the folder, or the file that is meant"),
                        name);
      }
    }
    if (paths.size() == 1) WarnOfRank(path, *source);
    if (options.void_type && !source->format().starts_with("np"))
      source->AddWarning("a type for npy's '|V' arrays is named, and there are none");
    WarnOfNothing(*source);
    ZT_ASSIGN_OR_RETURN(
        source, WithFile(AddModelFiles(std::move(source), path, paths.size() == 1, options), name));
    inputs.sources.push_back(std::move(source));
    inputs.names.push_back(name);
  }
  // Of several that are named some may be of no use; of those of which none is, one is wrong.
  const std::vector<std::string>& used = *options.used_bases;
  const auto is_used = [&](const std::string& base) {
    return std::ranges::find(used, base) != used.end();
  };
  if (used.empty() || options.base.empty() || std::ranges::any_of(options.base, is_used))
    return inputs;
  return WithFile(
      InvalidArgument("it is not the base of any delta here, by its name or its id: that is " +
                      Joined(used, "and")),
      options.base.front());
}

StatusOr<std::unique_ptr<TensorSource>> MergeInputs(Inputs inputs) {
  if (inputs.sources.size() == 1) return RefuseParts(std::move(inputs.sources.front()));
  return PutTogether(std::move(inputs.sources), std::move(inputs.names));
}

StatusOr<std::unique_ptr<TensorSource>> OpenInputs(const std::vector<std::string>& paths,
                                                   const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(Inputs inputs, OpenEach(paths, options));
  auto merged = MergeInputs(std::move(inputs));
  if (merged.ok() || paths.size() < 2) return merged;
  return WithFact(merged.status(), std::string(merged.status().message()) +
                                       "; several inputs are taken as one model");
}

namespace {

// OpenInputs, with each checkpoint changed by the configuration in its folder.
template <class Change>
StatusOr<std::unique_ptr<TensorSource>> OpenConfigured(const std::vector<std::string>& paths,
                                                       const SourceOptions& options,
                                                       const Change& change) {
  // Refuses configurations that disagree.
  ZT_RETURN_IF_ERROR(FindQuantConfig(paths, options).status());
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
  ZT_ASSIGN_OR_RETURN(const auto checkpoints, SplitByFolder(paths, *options.store));
  SourceOptions each = options;
  if (checkpoints.size() > 1 && each.files.empty()) each.files = {"none"};
  for (const std::vector<std::string>& checkpoint : checkpoints) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenInputs(checkpoint, each));
    ZT_ASSIGN_OR_RETURN(const QuantConfig config, FindQuantConfig(checkpoint, options));
    if (!config.path.empty()) source->AddOtherFile(config.path);
    ZT_ASSIGN_OR_RETURN(source, change(std::move(source), config));
    sources.push_back(std::move(source));
    names.push_back(checkpoint.front());
  }
  if (sources.size() == 1) return std::move(sources.front());
  return MergeSources(std::move(sources), std::move(names));
}

}  // namespace

StatusOr<std::unique_ptr<TensorSource>> OpenGrouped(const std::vector<std::string>& paths,
                                                    const SourceOptions& options) {
  return OpenConfigured(paths, options, GroupQuantized);
}

StatusOr<Dequantized> OpenDequantized(const std::vector<std::string>& paths,
                                      const SourceOptions& options, DequantizeOptions numbers) {
  numbers.memory = options.memory_limit;
  Dequantized out;
  const auto change = [&](std::unique_ptr<TensorSource> source,
                          const QuantConfig& config) -> StatusOr<std::unique_ptr<TensorSource>> {
    // A .zt file has its configuration within; that beside it may be of what it was made from.
    const bool within = source->format() == "zt";
    ZT_ASSIGN_OR_RETURN(Dequantized made,
                        Dequantize(std::move(source), within ? QuantConfig{} : config, numbers));
    for (std::string& each : made.names) out.names.push_back(std::move(each));
    return std::move(made.source);
  };
  ZT_ASSIGN_OR_RETURN(out.source, OpenConfigured(paths, options, change));
  return out;
}

StatusOr<std::unique_ptr<TensorSource>> OpenUngrouped(const std::vector<std::string>& paths,
                                                      const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenInputs(paths, options));
  return WithFile(Ungroup(std::move(source)), paths.front());
}

StatusOr<std::unique_ptr<TensorSource>> Open(const std::string& path,
                                             const SourceOptions& options) {
  return OpenInputs({path}, options);
}

StatusOr<std::unique_ptr<TensorSource>> OpenBase(const std::string& path,
                                                 const SourceOptions& options) {
  SourceOptions own = options;
  own.as_stored = true;
  own.format.clear();
  own.left_out = nullptr;
  std::erase(own.base, path);  // others are for its own bases
  ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenAsBase(path, own), path));
  return ResolveDelta(std::move(source), path, own, OpenAsBase);
}

StatusOr<std::unique_ptr<TensorSource>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                                  const SourceOptions& options) {
  const std::string name = bytes->name();
  ZT_ASSIGN_OR_RETURN(auto source, WithFile(OpenFrom(std::move(bytes), "", "data", options), name));
  if (source->file({}).empty()) source->SetFile(name);
  ZT_ASSIGN_OR_RETURN(source, ResolveDelta(std::move(source), "", options, OpenAsBase));
  return RefuseParts(std::move(source));
}

StatusOr<Dequantized> OpenDequantizedBytes(std::shared_ptr<ByteSource> bytes,
                                           const SourceOptions& options,
                                           DequantizeOptions numbers) {
  numbers.memory = options.memory_limit;
  const std::string name = bytes->name();
  ZT_ASSIGN_OR_RETURN(auto source, OpenBytes(std::move(bytes), options));
  return WithFile(Dequantize(std::move(source), {}, numbers), name);
}

}  // namespace zt
