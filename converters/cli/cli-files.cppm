// zt.cli:files — which files of a checkpoint's folder, or of a .zt file, accompany the tensors.
// Internal.
module zt.cli:files;

import zt.std;
import :args;

namespace zt::cli::internal {

// True if the folder is a diffusers pipeline, whose models are in folders below it.
bool IsPipeline(const std::string& folder);

// Adds to `source`, which was opened from `path`, the files that --files selects: it adds files of
// a folder in another format, and keeps or removes files of a .zt file. If `only` is false, there
// are several inputs, and files are taken only if --files asks for them. Files that are left out
// are appended to options.left_out.
StatusOr<std::unique_ptr<TensorSource>> TakeFiles(std::unique_ptr<TensorSource> source,
                                                  const std::string& path, bool only,
                                                  const InputArgs& options);

// For InputArgs::no_files: why a file of this version can hold none; empty if it can.
std::string WhyNoFiles(SpecVersion version);

// Plans the files. Files of a folder are compressed if that saves space. The headers that restore
// the original weight files are removed if the plan changes tensors. Returns warnings.
std::vector<std::string> PlanFiles(const Args& args, const TensorSource& source, Plan& plan);

// For the comparison of two sources: if `other` has no files, and none were asked for, removes
// those of `side`, prints a note and returns how many they were.
StatusOr<std::uint64_t> MatchFiles(std::unique_ptr<TensorSource>& side, const TensorSource& other,
                                   const InputArgs& asked, const Common& common);

// Prints how many files were left out, or, if `verbose`, each of them with the reason.
void NoteLeftOut(const Args& args);

// The number of files among the objects.
std::uint64_t CountFiles(const std::vector<Object>& objects);
std::uint64_t CountFiles(const Plan& plan);

}  // namespace zt::cli::internal
