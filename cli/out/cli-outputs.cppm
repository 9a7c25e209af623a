// zt.cli:outputs — the files that a command writes. Internal.
module zt.cli:outputs;

import zt.std;
import :args;
import zt;

namespace zt::cli::internal {

// Creates the file at `output`, or returns standard output for "-", which must not be a terminal.
// Errors name it.
StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output, const FileSinkOptions& options);
// Writes `text` to the file at `path`, or to standard output for "-"; `options` say whether it may
// replace another file. Errors name it.
Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options);
// How RunNumbered writes the files of an output: as many at a time as --threads and --memory allow.
// One after another if these components, which are read for them, come in order or from a server;
// fewer if their frames, or those that are made, are large.
NumberedOptions FilesAtOnce(const Args& args, TensorSource& source,
                            std::span<const ComponentId> read, std::uint64_t frame_bytes);
// An error if the folder of `output` is missing. Called before any work is done.
Status CheckFolderOf(const std::string& output);
// CheckFolderOf; kAlreadyExists if `output` is an existing file that may not be replaced.
Status CheckOutput(const std::string& output, bool force);

}  // namespace zt::cli::internal
