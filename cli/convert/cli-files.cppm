// zt.cli:files — the files of a model in plans and comparisons. Internal.
module zt.cli:files;

import zt.std;
import :args;
import zt.open;

namespace zt::cli::internal {

// For SourceOptions::no_files: why a file of this version can hold none; empty if it can.
std::string WhyNoFiles(SpecVersion version);

// Plans the files. Files of a folder are compressed if that saves space. The headers that restore
// the original weight files are removed if the plan changes tensors. Returns warnings.
std::vector<std::string> PlanFiles(const Args& args, const TensorSource& source, Plan& plan);

// For the comparison of two sources: if `other`, opened from these paths, has no files, is no folder
// that could have some, and none were asked for, removes those of `side` that are not named like
// weights, prints a note and returns how many they were.
StatusOr<std::uint64_t> MatchFiles(std::unique_ptr<TensorSource>& side, const TensorSource& other,
                                   const std::vector<std::string>& other_paths, const Args& args);

// Prints how many files were left out, or, if `verbose`, each of them with the reason.
void NoteLeftOut(const Args& args);

// The number of files among the objects.
std::uint64_t CountFiles(const std::vector<Object>& objects);
std::uint64_t CountFiles(const Plan& plan);

}  // namespace zt::cli::internal
