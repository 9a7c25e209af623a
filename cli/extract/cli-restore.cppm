// zt.cli:restore — extract into a folder of safetensors: the original files, or new weight files
// with an index. Internal.
module zt.cli:restore;

import zt.std;
import :args;
import :changed;
import :output;

namespace zt::cli::internal {

// Writes the selected objects and the model's files as a folder. If the attribute ztstream.folder
// describes the original files and no tensor has changed, they are restored byte for byte;
// otherwise new weight files are written. Writes to a private hidden folder first and renames it at
// the end. Prints the result. `changed` is the source if rules changed it, else null.
Status RestoreFolder(const Args& args, TensorSource& source,
                     const std::vector<std::uint32_t>& selected, const ChangedSource* changed);

// Writes one file of the model to the output, and prints the result.
Status ExtractFile(const Args& args, TensorSource& source, const FileEntry& file);

// What every run of extract prints with --json; `bytes` were read of tensors and files.
Json ExtractedJson(const Args& args, const TensorSource& source, Json output, std::size_t tensors,
                   std::uint64_t bytes, const std::vector<std::string>& warnings, double seconds);

}  // namespace zt::cli::internal
