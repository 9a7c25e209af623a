// zt.open:files — which files of a checkpoint's folder, or of a .zt file, accompany the tensors.
// Internal.
module zt.open:files;

import zt.std;
import :formats;
import :options;
import zt.core;
import zt.source;

namespace zt::open::internal {

// True if the folder is a diffusers pipeline, whose models are in folders below it.
StatusOr<bool> IsPipeline(const std::string& folder, Store& store);

// Adds to `source`, which was opened from `path`, the files that SourceOptions::files selects: it
// adds files of a folder in another format, and keeps or removes files of a .zt file. Of
// several inputs (`single_input` is false) files are taken only if they are asked for. Files that
// are left out are appended to options.left_out.
StatusOr<std::unique_ptr<TensorSource>> AddModelFiles(std::unique_ptr<TensorSource> source,
                                                      const std::string& path, bool single_input,
                                                      const SourceOptions& options);

// Warns of a file that one of several ranks wrote, if the file does not say which part it has.
void WarnOfRank(const std::string& path, TensorSource& source);
// Warns of a model whose tensors were saved while other ranks had their elements.
void WarnOfNothing(TensorSource& source);

// The files of one format in a folder.
struct FolderFiles {
  const Format* format = nullptr;
  std::vector<std::string> names;
};

// True if a file has the name of the variant that is asked for.
bool HasVariant(const FolderFiles& files, const std::string& variant);
// True if files of PyTorch have the names of a checkpoint: *.bin is a name of other data, too.
bool HoldsWeights(const FolderFiles& files);
// True if all files of safetensors are variants of what lies beside them as files of PyTorch.
bool IsTorchMeant(const std::vector<FolderFiles>& found);
// Warns of the files of a variant that the folder has only in a format that is not read.
void WarnOfOtherFormat(const std::vector<FolderFiles>& found, std::string_view format,
                       TensorSource& source);

}  // namespace zt::open::internal
