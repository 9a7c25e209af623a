// zt.cli:files — which files of a checkpoint's folder go with its weights, and which of a .zt file's stay. Internal.
module zt.cli:files;

import zt.std;
import :args;

namespace zt::cli::internal {

// The source with the files that --files asks for, of an input at `path`: those of a folder of another format are added,
// those that a .zt file has are kept or left out. `only` is false where there are several inputs: none are taken then, unless
// they are asked for. What is left out goes to options.left_out.
StatusOr<std::unique_ptr<TensorSource>> TakeFiles(std::unique_ptr<TensorSource> source,
                                                  const std::string& path, bool only,
                                                  const InputArgs& options);

// What becomes of files in a plan: those of a folder are compressed where that gains, and what keeps the weights' files goes
// where the plan changes tensors; the lines say so.
std::vector<std::string> PlanFiles(const Args& args, const TensorSource& source, Plan& plan);

// Of two sources that are compared: where one is no .zt file and has no files, those of the other are left out, and a line
// says so.
Status MatchFiles(std::unique_ptr<TensorSource>& first, std::unique_ptr<TensorSource>& second,
                  const Common& common);

// Says how many files were left out, or with `verbose` which and why.
void NoteLeftOut(const Args& args);

// How many of the objects are files.
std::uint64_t CountFiles(const std::vector<Object>& objects);
std::uint64_t CountFiles(const Plan& plan);

}  // namespace zt::cli::internal
