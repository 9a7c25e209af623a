// zt.cli:restore — extract into a folder of safetensors: weights, their index and files, as the model came or anew. Internal.
module zt.cli:restore;

import zt.std;
import :args;
import :changed;

namespace zt::cli::internal {

// Writes these objects of the source, and its files, as a folder: byte for byte the one that the model came from, where its
// attribute says how that was and nothing changes it, else with new files of weights. All is written beside it, below a folder
// that nobody else can write to, and renamed once it is whole. Prints what came of it. `changed` is the source, or null.
Status RestoreFolder(const Args& args, TensorSource& source,
                     const std::vector<std::uint32_t>& selected, const ChangedSource* changed);

// Writes one file of the model to the output.
Status ExtractFile(const Args& args, TensorSource& source, const FileEntry& file);

}  // namespace zt::cli::internal
