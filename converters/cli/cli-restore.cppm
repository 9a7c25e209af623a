// zt.cli:restore — extract into a folder of safetensors: the original files, or new weight files
// with an index. Internal.
module zt.cli:restore;

import zt.std;
import :args;
import :changed;

namespace zt::cli::internal {

// Writes the selected objects and the model's files as a folder. If the attribute ztstream.folder
// describes the original files and no tensor has changed, they are restored byte for byte;
// otherwise new weight files are written. Writes to a private hidden folder first and renames it at
// the end. Prints the result. `changed` is the source if rules changed it, else null.
Status RestoreFolder(const Args& args, TensorSource& source,
                     const std::vector<std::uint32_t>& selected, const ChangedSource* changed);

// Writes one file of the model to the output.
Status ExtractFile(const Args& args, TensorSource& source, const FileEntry& file);

}  // namespace zt::cli::internal
