// zt.open:files — lists the files of a folder, and selects those of --files.
module;

#include <fnmatch.h>

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.open;

import zt.std;
import :files;
import :formats;
import zt.convert.delta;
import zt.convert.files;
import zt.convert.safetensors;
import zt.convert.shards;
import zt.convert.torch;
import zt.convert.zip;
import zt.core;
import zt.digest;
import zt.format;
import zt.reader;
import zt.source;
import zt.text;

namespace zt::open::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostPointerBytes = 1024;  // of Git LFS

constexpr const char* kHidden = "its name begins with a dot";
constexpr const char* kNotNamed = "it is not among those that are asked for";

bool HasOneOf(std::string_view name, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return name.find(word) != name.npos; });
}

// True if the name is one of the state from which a training is resumed, which nothing else holds:
// of transformers, accelerate, DeepSpeed, FSDP.
bool IsTrainingState(std::string_view path) {
  return HasOneOf(
      path, {"optimizer", "optim_", "optim.", "scheduler", "rng_state", "random_states", "scaler",
             "sampler", "training_args", "custom_checkpoint", "model_states", ".distcp"});
}

// The path of a file of weights without the number of a shard and the suffix, as transformers and
// diffusers name it in any format.
std::string StemOf(const std::string& name) {
  constexpr std::string_view kTorch = "pytorch_model";
  const std::string suffix = fs::path(name).extension().string();
  const auto shard = ParseShardName(name, suffix);
  std::string stem = shard ? shard->stem + shard->tail : name;
  stem.erase(stem.size() - suffix.size());
  const std::size_t begin = stem.rfind('/') + 1;
  if (std::string_view(stem).substr(begin).starts_with(kTorch))
    stem.replace(begin, kTorch.size(), "model");
  return stem;
}

// The pattern of the set of shards that a file is of; empty if it is none.
std::string SetOf(const std::string& name) {
  const auto shard = ParseShardName(name, fs::path(name).extension().string());
  return shard ? shard->set : "";
}

// The parsed words of --files.
struct FileChoice {
  bool all = false;  // given explicitly
  bool none = false;
  // Shell patterns of paths; empty: all files that are not weights.
  std::vector<std::string> patterns;
};
constexpr std::string_view kGlob = "glob:";  // a pattern whose '*' stands for a leading dot, too

StatusOr<FileChoice> ChoiceOf(const std::vector<std::string>& words) {
  FileChoice choice;
  for (const std::string& word : words) {
    choice.all = choice.all || word == "all";
    choice.none = choice.none || word == "none";
    if (word != "all" && word != "none") choice.patterns.push_back(word);
  }
  if (choice.none && words.size() > 1) {
    return InvalidArgument("no files are wanted, and yet some are named");
  }
  return choice;
}

// True for the name of the digest of a shard: "model-00001-of-00008.zt.xxh3".
bool IsDigestOfShard(std::string_view name) {
  return std::ranges::any_of(kFileDigests, [&](DigestKind kind) {
    const std::string suffix = DigestPath("", kind);
    return name.ends_with(suffix) &&
           ParseShardName(name.substr(0, name.size() - suffix.size()), ".zt");
  });
}

bool Matches(const FileChoice& choice, const std::string& path) {
  return std::ranges::any_of(choice.patterns, [&](const std::string& pattern) {
    const bool glob = pattern.starts_with(kGlob);
    return ::fnmatch(pattern.c_str() + (glob ? kGlob.size() : 0), path.c_str(),
                     glob ? 0 : FNM_PERIOD) == 0;
  });
}

// The first folder on a path whose name begins with a dot, with its slash; empty if there is none.
std::string_view HiddenFolderOf(std::string_view path) {
  std::size_t begin = 0;
  for (std::size_t slash; (slash = path.find('/', begin)) != path.npos; begin = slash + 1) {
    if (path[begin] == '.') return path.substr(0, slash + 1);
  }
  return "";
}

// The files of a folder, without the files of weights that the source reads.
class FolderListing {
 public:
  FolderListing(const std::string& folder, const TensorSource& source, const FileChoice& choice,
                const SourceOptions& options)
      : folder_(folder), source_(source), choice_(choice), options_(options) {
    const fs::path root = fs::path(folder).lexically_normal();
    std::string last;
    const auto add = [&](const std::string& file) {
      weights_.push_back(
          fs::path(file).lexically_normal().lexically_relative(root).generic_string());
    };
    for (std::uint32_t i = 0; i < source.objects().size(); ++i) {
      const std::string& file = source.file({i, 0});
      if (file != last) add(file);
      last = file;
    }
    std::ranges::for_each(source.part_files(), add);
    std::ranges::sort(weights_);
    weights_.erase(std::unique(weights_.begin(), weights_.end()), weights_.end());
    for (const std::string& name : weights_) {
      stems_.insert(StemOf(name));
      sets_.insert(SetOf(name));
    }
    sets_.erase("");
    taken_.insert(weights_.begin(), weights_.end());
  }

  Status Run() {
    ZT_ASSIGN_OR_RETURN(std::vector<Candidate> found, IsUrl(folder_) ? FindUrls() : FindFiles());
    std::ranges::stable_sort(found, {}, &Candidate::order);
    const auto is_index = [](const Candidate& each) {
      return ParseIndexName(each.name).has_value();
    };
    for (const Candidate& each : found) {
      if (!is_index(each)) ZT_RETURN_IF_ERROR(Look(each));
    }
    for (const Candidate& each : found) {  // once it is known which shards are taken
      if (is_index(each)) ZT_RETURN_IF_ERROR(Look(each));
    }
    std::ranges::stable_sort(files_, {},
                             [](const FolderEntry& file) { return fs::path(file.path); });
    return OkStatus();
  }

  const std::vector<FolderEntry>& files() const { return files_; }
  // For weights whose files are not restored: then parts of their sets would be in the way.
  void LeaveOutEmptyShards() {
    std::erase_if(files_, [&](const FolderEntry& file) {
      const bool empty = IsEmptyShard(file.path);
      if (empty) LeaveOut(file.path, "it has no tensors");
      return empty;
    });
  }
  // The files of weights that the source reads, relative to the folder.
  const std::vector<std::string>& weights() const { return weights_; }
  // Warns of files that are left out, or are not what they should be.
  void Warn(TensorSource& source) const {
    const auto warn = [&](const std::vector<std::string>& names, const char* one, const char* more,
                          std::optional<Advice> advice = std::nullopt) {
      NameList list;
      for (const std::string& name : names) list.Add(name);
      if (!names.empty())
        source.AddWarning(list.ToString() + (names.size() == 1 ? one : more), advice);
    };
    warn(large_, " is left out: it has more than 64 MiB",
         " are left out: they have more than 64 MiB", Advice::kFiles);
    warn(made_, " is left out: .zt files are made of a folder, and this one has other tensors",
         " are left out: .zt files are made of a folder, and these have other tensors");
    warn(lost_, " is left out, whether or not it holds weights: it is no file that can go along",
         " are left out, whether or not they hold weights: they are no files that can go along");
    warn(pointers_, " is a Git LFS pointer instead of the file; run 'git lfs pull' in the clone",
         " are Git LFS pointers instead of the files; run 'git lfs pull' in the clone");
  }

 private:
  // With its '/'; empty for the folder itself.
  static std::string FolderOf(const std::string& name) {
    return name.substr(0, name.rfind('/') + 1);
  }

  void LeaveOut(const std::string& name, std::string why,
                std::optional<Advice> advice = std::nullopt) {
    if (options_.left_out != nullptr) options_.left_out->push_back({name, std::move(why), advice});
  }

  // Leaves out what may be weights: not without a warning.
  void Lose(const std::string& name, std::string why, std::optional<Advice> advice = std::nullopt) {
    if (IsNamedLikeWeights(name)) lost_.push_back(name);
    LeaveOut(name, std::move(why), advice);
  }

  // What lies in the folder or below it.
  struct Candidate {
    std::string name;         // its path there; as its server wrote it, which a path might not be
    fs::path order;           // by whose parts they are sorted
    std::uint64_t bytes = 0;  // of a URL, as its server says
  };

  StatusOr<std::vector<Candidate>> FindFiles() {
    std::vector<Candidate> found;
    std::error_code error;
    const auto follow = fs::directory_options::none;
    for (fs::recursive_directory_iterator it(folder_, follow, error), end; !error && it != end;
         it.increment(error)) {
      const fs::path path = it->path().lexically_relative(folder_);
      std::error_code none;
      if (!it->is_directory(none) || it->is_symlink(none)) {
        found.push_back({path.generic_string(), path, 0});
      } else if (path.filename().string().starts_with('.')) {
        it.disable_recursion_pending();
        LeaveOut(path.generic_string() + "/", kHidden);
      }
    }
    if (error) return WithFile(IoError(error.value(), "cannot list the folder"), folder_);
    return found;
  }

  StatusOr<std::vector<Candidate>> FindUrls() {
    ZT_ASSIGN_OR_RETURN(const std::vector<ListedFile> files,
                        WithFile(options_.store->ListBelow(folder_), folder_));
    std::vector<Candidate> found;
    std::string last;  // hidden folder
    for (const auto& [path, bytes] : files) {
      const std::string_view hidden = HiddenFolderOf(path);
      if (hidden.empty()) {
        found.push_back({path, path, bytes});
      } else if (hidden != last) {
        last = hidden;
        LeaveOut(last, kHidden);
      }
    }
    return found;
  }

  // Takes it, or leaves it out. An error if a server does not give what decides.
  Status Look(const Candidate& candidate) {
    const std::string& name = candidate.name;
    const std::string file = candidate.order.filename().string();
    if (std::ranges::binary_search(weights_, name)) return OkStatus();
    // The index of a distributed checkpoint.
    if (source_.format() == "torch" && name == ".metadata") return OkStatus();
    const bool asked = Matches(choice_, name);
    const char* why = nullptr;
    if (!choice_.patterns.empty() && !asked && !IsEmptyShard(name)) {
      why = kNotNamed;
    } else if (!asked && file.starts_with('.') && (file != ".metadata" || file == name)) {
      why = kHidden;
    } else if (!asked && IsDigestOfShard(file)) {
      why = "it is the digest of a shard";
    }
    if (why != nullptr) {
      LeaveOut(name, why);
      return OkStatus();
    }
    FolderEntry entry{.path = name, .bytes = candidate.bytes, .executable = false};
    if (!IsUrl(folder_) && !Measure(entry)) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const bool wanted, asked ? StatusOr<bool>(true) : IsWanted(entry));
    if (!wanted) return OkStatus();
    if (const Status fit = paths_.Add(name); !fit.ok()) {
      Lose(name, Fact(fit));
      return OkStatus();
    }
    if (IsPointer(entry)) pointers_.push_back(name);
    taken_.insert(name);
    files_.push_back(std::move(entry));
    return OkStatus();
  }

  // False, and it is left out, for what the source has already or what is too large.
  StatusOr<bool> IsWanted(const FolderEntry& entry) {
    const std::string& name = entry.path;
    const auto refuse = [&](std::string why) {
      LeaveOut(name, std::move(why));
      return false;
    };
    if (ParseIndexName(name)) {
      ZT_ASSIGN_OR_RETURN(const bool has_shards, HasItsShards(name));
      return has_shards || refuse("it is the index of weights that are not taken");
    }
    const bool zt = name.ends_with(".zt");
    ZT_ASSIGN_OR_RETURN(const bool copy, IsSecondCopy(name, !zt));
    if (zt) {
      if (!copy) made_.push_back(name);
      return refuse("it is a .zt file, which is made of a folder");
    }
    if (copy)
      return refuse("it holds tensors of the weights again, with their names, shapes and types");
    if (entry.bytes <= kMostFileBytes || choice_.all || options_.any_size || IsTrainingState(name))
      return true;
    large_.push_back(name + " (" + HumanBytes(entry.bytes) + ")");
    return refuse("it has " + HumanBytes(entry.bytes) + ", more than 64 MiB");
  }

  // An error of a server that fails. A file of this machine that cannot be read is reported where
  // it is taken.
  Status Unanswered(const Status& opened) const {
    if (IsUrl(folder_)) ZT_RETURN_IF_UNAVAILABLE(opened);
    return OkStatus();
  }

  // True for a file that is not read and is one of a set that is: it has no tensors, and the set is
  // not whole without it.
  bool IsEmptyShard(const std::string& name) const { return sets_.contains(SetOf(name)); }

  // True if a shard that the index names is among the weights or files; or if it is no index.
  StatusOr<bool> HasItsShards(const std::string& name) const {
    const std::string folder = FolderOf(name);
    const std::string path = (fs::path(folder_) / name).string();
    if (std::ranges::find(source_.other_files(), path) != source_.other_files().end()) return true;
    const auto index = ReadShardIndex(path, *options_.store);
    ZT_RETURN_IF_ERROR(Unanswered(WithFile(index.status(), path)));
    if (!index.ok()) return true;
    return std::ranges::any_of(index->weight_map, [&](const auto& entry) {
      return taken_.contains(folder + entry.second);
    });
  }

  // True if the file has tensors, and all have the names of those that the source reads in its
  // folder, or share their bytes with one that has; with `alike` also their shapes and types, and the
  // file the name of the one that is read.
  StatusOr<bool> IsSecondCopy(const std::string& name, bool alike) {
    const std::string folder = FolderOf(name);
    if (!IsNamedLikeWeights(name) || !CheckFilePath(name).ok() ||
        (alike && !stems_.contains(StemOf(name))))
      return false;
    SourceOptions alone = options_;
    alone.format.clear();
    alone.files = {"none"};
    alone.left_out = nullptr;
    alone.deltas_as_stored = true;
    const auto copy = OpenInputs({(fs::path(folder_) / name).string()}, alone);
    ZT_RETURN_IF_ERROR(Unanswered(copy.status()));
    if (!copy.ok()) return false;
    if (ours_.empty()) {
      for (const Object& object : source_.objects()) ours_.emplace(object.name, &object);
    }
    std::set<Identity> held;
    std::vector<std::uint32_t> others;
    const std::vector<Object>& objects = (*copy)->objects();
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      if (!DeltaFilePath(objects[i]).empty()) continue;
      const auto found = ours_.find(folder + objects[i].name);
      if (found == ours_.end()) {
        others.push_back(i);
      } else if (alike && !AreAlike(objects[i], *found->second)) {
        return false;
      } else if (const auto identity = (*copy)->identity({i, 0})) {
        held.insert(*identity);
      }
    }
    return others.size() < objects.size() && std::ranges::all_of(
                                                 others,
                                                 [&](std::uint32_t i) {
                                                   const auto identity = (*copy)->identity({i, 0});
                                                   return identity && held.contains(*identity);
                                                 });
  }

  static bool AreAlike(const Object& a, const Object& b) {
    return a.format == b.format && a.shape == b.shape &&
           std::ranges::equal(a.components, b.components, [](const auto& mine, const auto& other) {
             return mine.element == other.element && mine.bytes == other.bytes;
           });
  }

  // True if it is what Git has in place of a large file. Servers give the file itself.
  bool IsPointer(const FolderEntry& entry) const {
    if (IsUrl(folder_) || entry.bytes > kMostPointerBytes) return false;
    const auto bytes = options_.store->Open((fs::path(folder_) / entry.path).string());
    if (!bytes.ok()) return false;
    const auto head = Peek(**bytes, kMostPointerBytes);
    return head.ok() && IsLfsPointer(*head);
  }

  // Sets the size of a file of this machine. False, and it is left out, if it is not a regular one.
  bool Measure(FolderEntry& entry) {
    const fs::path path = fs::path(folder_) / entry.path;
    const auto refuse = [&](std::string why) {
      Lose(entry.path, std::move(why));
      return false;
    };
    if (const Status inside = CheckStaysInside(folder_, entry.path, options_); !inside.ok()) {
      const std::vector<Advice> advice = AdviceOf(inside);
      Lose(entry.path, Fact(inside), advice.empty() ? std::nullopt : std::optional(advice.front()));
      return false;
    }
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::is_regular_file(status)) return refuse("it is not a regular file");
    entry.bytes = fs::file_size(path, error);
    if (error) return refuse("it cannot be read: " + error.message());
    const auto bits = static_cast<unsigned>(status.permissions());
    entry.executable = (bits & static_cast<unsigned>(fs::perms::owner_exec)) != 0;
    return true;
  }

  const std::string folder_;
  const TensorSource& source_;
  const FileChoice& choice_;
  const SourceOptions& options_;
  std::vector<std::string> weights_;  // sorted, relative to the folder
  std::set<std::string> stems_;       // of them
  std::set<std::string> sets_;        // of shards that they are of
  std::set<std::string> taken_;       // weights and files
  std::unordered_map<std::string_view, const Object*, zt::internal::NameHash> ours_;  // on demand
  std::vector<FolderEntry> files_;
  std::vector<std::string> large_, made_, lost_, pointers_;  // see Warnings
  FilePaths paths_;
};

// The attribute that says in which files the weights lay, with the headers of those of safetensors,
// from which extract restores them; empty if a path is not allowed, or for other formats.
StatusOr<Value::Map> KeepWeightFiles(const std::string& folder, const FolderListing& listing,
                                     Store& store) {
  std::vector<WeightFile> weights;
  FilePaths paths;
  for (const FolderEntry& file : listing.files()) (void)paths.Add(file.path);
  ZT_ASSIGN_OR_RETURN(const bool pipeline, IsPipeline(folder, store));
  std::map<std::string, std::string> formats;  // of the weights, by folder
  for (const std::string& name : listing.weights()) {
    WeightFile file{name, pipeline ? name.substr(0, name.find('/') + 1) : ""};
    if (!name.ends_with(".bin") && !name.ends_with(".safetensors")) return Value::Map{};
    const std::string path = (fs::path(folder) / name).string();
    const auto bytes = store.Open(path);
    if (!bytes.ok()) return WithFile(bytes.status(), path);
    const auto head = Peek(**bytes, kHeadBytes);
    if (!head.ok()) return WithFile(head.status(), path);
    if (LooksLikeSafetensors(*head)) {  // whatever its name says
      auto header = ReadSafetensorsHeader(**bytes);
      if (!header.ok()) return WithFile(header.status(), path);
      file.header = *std::move(header);
    } else if (LooksLikeZip(*head) || LooksLikeTorchStream(*head)) {
      file.from = "torch";
      file.path = StemOf(name) + ".safetensors";
      const auto same = [&](const WeightFile& other) { return other.path == file.path; };
      if (std::ranges::any_of(weights, same)) continue;  // of one set
      if (std::ranges::any_of(listing.files(),
                              [&](const auto& each) { return each.path == file.path; }))
        file.path = fs::path(name).replace_extension(".safetensors").string();
    } else {
      return Value::Map{};
    }
    // A set of which some files are restored and others made anew would not be whole.
    const auto [known, fresh] =
        formats.try_emplace(fs::path(name).parent_path().string(), file.from);
    if (!fresh && known->second != file.from) return Value::Map{};
    if (!paths.Add(file.path).ok()) return Value::Map{};
    weights.push_back(std::move(file));
  }
  if (weights.empty()) return Value::Map{};
  return Value::Map{{std::string(kFolderAttribute), ToValue(weights)}};
}

// A folder's path without trailing slashes, as in the file names of sources.
std::string WithoutSlashes(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// Appends all files to options.left_out, and warns of those that may hold weights.
Status LeaveOutAll(const std::string& folder, TensorSource& source, const FileChoice& choice,
                   const SourceOptions& options, const std::string& why,
                   std::optional<Advice> advice) {
  FolderListing listing(WithoutSlashes(folder), source, choice, options);
  ZT_RETURN_IF_ERROR(listing.Run());
  NameList weights;
  for (const FolderEntry& file : listing.files()) {
    if (IsNamedLikeWeights(file.path)) weights.Add(file.path);
    if (options.left_out != nullptr) options.left_out->push_back({file.path, why, advice});
  }
  listing.Warn(source);
  if (!weights.empty()) source.AddWarning("left out: " + weights.ToString() + ": " + why, advice);
  return OkStatus();
}

StatusOr<std::unique_ptr<TensorSource>> AddFolderFiles(std::unique_ptr<TensorSource> source,
                                                       const std::string& given, bool single_input,
                                                       const FileChoice& choice,
                                                       const SourceOptions& options) {
  const std::string folder = WithoutSlashes(given);
  FolderListing listing(folder, *source, choice, options);
  ZT_RETURN_IF_ERROR(listing.Run());
  listing.Warn(*source);
  Value::Map attributes;
  // Files of several ranks cannot be restored from whole tensors.
  if (single_input && source->part_files().empty()) {
    ZT_ASSIGN_OR_RETURN(attributes, KeepWeightFiles(folder, listing, *options.store));
  }
  if (attributes.empty()) listing.LeaveOutEmptyShards();
  if (listing.files().empty() && attributes.empty()) return source;
  std::vector<std::unique_ptr<TensorSource>> both;
  both.push_back(std::move(source));
  both.push_back(OpenFiles(folder, listing.files(), std::move(attributes), options));
  return MergeSources(std::move(both), {given, given});
}

}  // namespace

StatusOr<bool> IsPipeline(const std::string& folder, Store& store) {
  return store.IsFile((fs::path(folder) / "model_index.json").string());
}

StatusOr<std::unique_ptr<TensorSource>> AddModelFiles(std::unique_ptr<TensorSource> source,
                                                      const std::string& path, bool single_input,
                                                      const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const FileChoice choice, ChoiceOf(options.files));
  const bool refused = !choice.none && !options.no_files.empty();
  const bool none =
      choice.none || refused || (!single_input && !choice.all && choice.patterns.empty());
  const std::string why = choice.none ? "no files are taken"
                          : refused   ? options.no_files
                                      : "there are several inputs";
  const auto advice = choice.none || refused ? std::nullopt : std::optional<Advice>(Advice::kFiles);
  // A delta has the files of its base.
  const bool own = source->format() != "zt" && source->format() != kDiskDelta;
  bool folder = false;
  if (!IsStandardInput(path) && own) {
    ZT_ASSIGN_OR_RETURN(folder, options.store->IsFolder(path));
  }
  if (folder) {
    if (!none) {
      ZT_ASSIGN_OR_RETURN(source,
                          AddFolderFiles(std::move(source), path, single_input, choice, options));
    } else if (!choice.none) {
      ZT_RETURN_IF_ERROR(LeaveOutAll(path, *source, choice, options, why, advice));
    }
  }
  // A file that is one of a set of weights is a shard without tensors.
  std::set<std::string> sets;
  const auto weights = FindWeightFiles(source->attributes(), {});  // which may be refused later
  if (weights.ok()) {
    for (const WeightFile& each : *weights) sets.insert(SetOf(each.path));
  }
  sets.erase("");
  const auto keep = [&](const std::string& file) {
    const bool stays =
        !none && (choice.patterns.empty() || Matches(choice, file) || sets.contains(SetOf(file)));
    if (!stays && options.left_out != nullptr)
      options.left_out->push_back({file, none ? why : kNotNamed, none ? advice : std::nullopt});
    return stays;
  };
  ZT_ASSIGN_OR_RETURN(source, SelectFiles(std::move(source), keep));
  const auto is_file = [](const Object& each) { return IsFile(each); };
  if (single_input && !choice.patterns.empty() && std::ranges::none_of(source->objects(), is_file))
    source->AddWarning("no file of the model matches " + Joined(choice.patterns, "or"));
  return source;
}

}  // namespace zt::open::internal
