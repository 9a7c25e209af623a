// zt.open:files — which files of a checkpoint's folder, or of a .zt file, accompany the tensors.
// Internal.
module zt.open:files;

import zt.std;
import :options;
import zt.core;
import zt.source;

namespace zt::open::internal {

// True if the folder is a diffusers pipeline, whose models are in folders below it.
bool IsPipeline(const std::string& folder, Store& store);

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

}  // namespace zt::open::internal
