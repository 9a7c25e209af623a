// zt.cli:paths — the files that a command reads, and those that it writes. Internal.
module zt.cli:paths;

import zt.std;
import :output;
import zt.open;

namespace zt::cli::internal {

// The shards that the roots and indices among inputs and bases name, where they are there. It may read
// those of a root: one that was renamed is found by its digest.
StatusOr<std::vector<std::string>> ShardsOfRoots(const Args& args);
// The files that a command reads, which its outputs must not replace.
class FilesRead {
 public:
  // The command's inputs, the files that `source` reads (it may be null), and `shards`.
  FilesRead(const Args& args, const TensorSource* source, const std::vector<std::string>& shards);
  // Fails if `output` is one of them.
  Status CheckOmits(const std::string& output) const;
  // The files of the source, and `shards`: each once, in an order of theirs.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> files_;  // by device and inode
  std::set<std::string> urls_;
  std::vector<std::string> paths_;
};
// True if the name of an output ends like that of a folder, or a folder of this machine has it.
bool NamesFolder(const std::string& output);
// True if the output of `args` is a file that may be there and be replaced.
bool MayReplace(const Args& args);
// FilesRead::CheckOmits for the output of `args`.
Status CheckIsNoInput(const Args& args, const TensorSource* source);
// Warns of shards of a checkpoint that are named without the others.
void WarnOfOtherShards(const std::vector<std::string>& paths, TensorSource& source);
// An error that names the format if the file is of another one than .zt.
Status CheckIsZt(const std::string& path);
// Opens a .zt file. Errors do not name it: the commands add the names.
StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                             const InputOptions& options = {});

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
