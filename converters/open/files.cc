// zt.open:files — lists the files of a folder, and selects those of --files.
module;

#include <fnmatch.h>

#include "core/status_macros.h"

module zt.open;

import zt.std;
import :files;
import :formats;
import zt.convert.files;
import zt.convert.safetensors;
import zt.convert.zt;
import zt.core;
import zt.format;
import zt.source;
import zt.text;

namespace zt::open::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;
// The limit for files with suffixes that are not only used for weights, such as .bin and .npy: a
// larger file, or one with the name of a model, is taken for weights.
constexpr std::uint64_t kMostOtherBytes = std::uint64_t{1} << 20;

constexpr const char* kHidden = "its name begins with a dot";

// Suffixes of weights in formats that are not in the table.
constexpr std::string_view kWeightSuffixes[] = {".onnx_data", ".msgpack", ".tflite",
                                                ".ot",        ".mlmodel", ".llamafile"};
constexpr std::string_view kSharedSuffixes[] = {".bin", ".pt",  ".pth", ".ckpt",
                                                ".npy", ".npz", ".h5",  ".hdf5"};

bool EndsLikeOne(std::span<const std::string_view> suffixes, std::string_view name) {
  return std::ranges::any_of(suffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// True if a file holds weights in another format than `taken`, judging by its name and size.
bool IsOtherWeights(std::string_view name, std::uint64_t bytes, const Format* taken) {
  if (taken != nullptr && HasSuffix(*taken, name)) return false;
  if (name.ends_with(".index.json") || EndsLikeOne(kWeightSuffixes, name)) return true;
  const bool shared = EndsLikeOne(kSharedSuffixes, name);
  if (!shared) {
    return std::ranges::any_of(Formats(),
                               [&](const Format& format) { return HasSuffix(format, name); });
  }
  return bytes > kMostOtherBytes ||
         std::ranges::any_of(std::initializer_list<std::string_view>{"model", "weights",
                                                                     "checkpoint", "consolidated"},
                             [&](std::string_view word) { return name.find(word) != name.npos; });
}

// The parsed words of --files.
struct FileChoice {
  bool all = false;  // given explicitly
  bool none = false;
  bool dense = false;  // store files as dense u8 objects
  // Shell patterns of paths; empty: all files that are not weights.
  std::vector<std::string> patterns;
};

StatusOr<FileChoice> ChoiceOf(const std::vector<std::string>& words) {
  FileChoice choice;
  for (const std::string& word : words) {
    choice.all = choice.all || word == "all";
    choice.none = choice.none || word == "none";
    choice.dense = choice.dense || word == "dense";
    if (word != "all" && word != "none" && word != "dense") choice.patterns.push_back(word);
  }
  if (choice.none && words.size() > 1) {
    return InvalidArgument("--files none cannot be combined with other values");
  }
  return choice;
}

bool Matches(const FileChoice& choice, const std::string& path) {
  return std::ranges::any_of(choice.patterns, [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), path.c_str(), FNM_PERIOD) == 0;
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
      : folder_(folder), choice_(choice), options_(options), taken_(FindFormat(source.format())) {
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
  }

  Status Run() {
    ZT_ASSIGN_OR_RETURN(std::vector<Candidate> found, IsUrl(folder_) ? FindUrls() : FindFiles());
    std::ranges::stable_sort(found, {}, &Candidate::order);
    for (const Candidate& each : found) Look(each);
    return OkStatus();
  }

  const std::vector<FolderEntry>& files() const { return files_; }
  // The files of weights that the source reads, relative to the folder.
  const std::vector<std::string>& weights() const { return weights_; }

 private:
  void LeaveOut(const std::string& name, std::string why) {
    if (options_.left_out != nullptr) options_.left_out->push_back({name, std::move(why)});
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
    ZT_ASSIGN_OR_RETURN(const std::vector<ListedFile> files, WithFile(ListBelow(folder_), folder_));
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

  void Look(const Candidate& candidate) {
    const std::string& name = candidate.name;
    const std::string file = candidate.order.filename().string();
    if (std::ranges::binary_search(weights_, name)) return;
    // The index of a distributed checkpoint.
    if (taken_ != nullptr && taken_->name == "torch" && name == ".metadata") return;
    const bool asked = Matches(choice_, name);
    if (!choice_.patterns.empty() && !asked) return LeaveOut(name, "--files does not name it");
    if (!asked && file.starts_with('.')) return LeaveOut(name, kHidden);
    if (!asked && IsDigestOfShard(file)) return LeaveOut(name, "it is the digest of a shard");
    FolderEntry entry{.path = name, .bytes = candidate.bytes, .executable = false};
    if (!IsUrl(folder_) && !Measure(entry)) return;
    if (!asked && IsOtherWeights(file, entry.bytes, taken_)) {
      return LeaveOut(name, "it holds weights of another format, as its name says");
    }
    if (!asked && entry.bytes > kMostFileBytes) {
      return LeaveOut(name, "it has " + HumanBytes(entry.bytes) + ", more than 64 MiB");
    }
    if (const Status fit = paths_.Add(name); !fit.ok()) return LeaveOut(name, Fact(fit));
    files_.push_back(std::move(entry));
  }

  // Sets the size of a file of this machine. False, and it is left out, if it is not a regular one.
  bool Measure(FolderEntry& entry) {
    const fs::path path = fs::path(folder_) / entry.path;
    const auto refuse = [&](std::string why) {
      LeaveOut(entry.path, std::move(why));
      return false;
    };
    if (const Status inside = CheckStaysInside(folder_, entry.path, options_); !inside.ok())
      return refuse(Fact(inside));
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
  const FileChoice& choice_;
  const SourceOptions& options_;
  const Format* const taken_;
  std::vector<std::string> weights_;  // sorted, relative to the folder
  std::vector<FolderEntry> files_;
  FilePaths paths_;
};

// The attribute with the headers of safetensors files, from which extract restores the files; empty
// if a path is not allowed.
StatusOr<Value::Map> KeepWeightFiles(const std::string& folder, const FolderListing& listing) {
  std::vector<WeightFile> weights;
  const bool pipeline = IsPipeline(folder);
  for (const std::string& name : listing.weights()) {
    if (!CheckFilePath(name).ok() || !name.ends_with(".safetensors")) return Value::Map{};
    const std::string path = (fs::path(folder) / name).string();
    const auto bytes = OpenFile(path);
    if (!bytes.ok()) return WithFile(bytes.status(), path);
    auto header = ReadSafetensorsHeader(**bytes);
    if (!header.ok()) return WithFile(header.status(), path);
    const std::string prefix = pipeline ? name.substr(0, name.find('/') + 1) : "";
    weights.push_back({name, prefix, *std::move(header)});
  }
  if (weights.empty()) return Value::Map{};
  return Value::Map{{std::string(kFolderAttribute), ToValue(weights)}};
}

// A folder's path without trailing slashes, as in the file names of sources.
std::string WithoutSlashes(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// Appends all files to options.left_out.
Status LeaveOutAll(const std::string& folder, const TensorSource& source, const FileChoice& choice,
                   const SourceOptions& options, const std::string& why) {
  if (options.left_out == nullptr) return OkStatus();
  FolderListing listing(WithoutSlashes(folder), source, choice, options);
  ZT_RETURN_IF_ERROR(listing.Run());
  for (const FolderEntry& file : listing.files()) options.left_out->push_back({file.path, why});
  return OkStatus();
}

StatusOr<std::unique_ptr<TensorSource>> AddFolderFiles(std::unique_ptr<TensorSource> source,
                                                       const std::string& given, bool only,
                                                       const FileChoice& choice,
                                                       const SourceOptions& options) {
  const std::string folder = WithoutSlashes(given);
  FolderListing listing(folder, *source, choice, options);
  ZT_RETURN_IF_ERROR(listing.Run());
  Value::Map attributes;
  // Files of several ranks cannot be restored from whole tensors.
  if (only && source->format() == "safetensors" && source->part_files().empty()) {
    ZT_ASSIGN_OR_RETURN(attributes, KeepWeightFiles(folder, listing));
  }
  if (listing.files().empty() && attributes.empty()) return source;
  std::vector<std::unique_ptr<TensorSource>> both;
  both.push_back(std::move(source));
  both.push_back(OpenFiles(folder, listing.files(), std::move(attributes), options));
  return MergeSources(std::move(both), {given, given});
}

}  // namespace

bool IsPipeline(const std::string& folder) {
  return IsRegularFile((fs::path(folder) / "model_index.json").string());
}

StatusOr<std::unique_ptr<TensorSource>> TakeFiles(std::unique_ptr<TensorSource> source,
                                                  const std::string& path, bool only,
                                                  const SourceOptions& options) {
  ZT_ASSIGN_OR_RETURN(const FileChoice choice, ChoiceOf(options.files));
  const bool refused = !choice.none && !options.no_files.empty();
  const bool none = choice.none || refused || (!only && !choice.all && choice.patterns.empty());
  const std::string why = choice.none ? "--files none"
                          : refused   ? options.no_files
                                      : "there are several inputs; --files all takes them";
  if (path != "-" && source->format() != "zt" && IsFolder(path)) {
    if (!none) {
      ZT_ASSIGN_OR_RETURN(source, AddFolderFiles(std::move(source), path, only, choice, options));
    } else if (!choice.none) {
      ZT_RETURN_IF_ERROR(LeaveOutAll(path, *source, choice, options, why));
    }
  }
  const auto keep = [&](const std::string& file) {
    const bool stays = !none && (choice.patterns.empty() || Matches(choice, file));
    if (!stays && options.left_out != nullptr)
      options.left_out->push_back({file, none ? why : "--files does not name it"});
    return stays;
  };
  return SelectFiles(std::move(source), keep, choice.dense);
}

}  // namespace zt::open::internal
