// zt.cli:inputs — the files that a command reads. Internal.
module zt.cli:inputs;

import zt.std;
import :output;
import zt.open;

namespace zt::cli::internal {

// The shards that the roots and indices among inputs and bases name, where they are there. It may read
// those of a root: one that was renamed is found by its digest.
std::vector<std::string> ShardsOfRoots(const Args& args);
// The files that a command reads, which its outputs must not replace.
class FilesRead {
 public:
  // The command's inputs, the files that `source` read (it may be null), and `shards`.
  // `losses` are what the output would lack of them.
  FilesRead(const Args& args, const TensorSource* source, const std::vector<std::string>& shards,
            const std::vector<std::string>& losses = {});
  // Fails if `output` is one of them; `in_place` lets a single input be replaced by the whole of
  // itself, of which no part would be lost.
  Status CheckOmits(const std::string& output, bool in_place) const;

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> files_;  // by device and inode
  std::set<std::string> urls_;
  std::string named_;  // if it is one
  std::string lost_;   // why its place cannot be taken; empty if it can
};
// True if no tensor is selected or left out.
bool TakesWhole(const Args& args);
// True if the output of `args` is a file that may be there and be replaced.
bool MayReplace(const Args& args);
// FilesRead::CheckOmits for the output of `args`.
Status CheckIsNoInput(const Args& args, const TensorSource* source, bool in_place,
                      const std::vector<std::string>& losses = {});
// Warns of shards of a checkpoint that are named without the others.
void WarnOfOtherShards(const std::vector<std::string>& paths, TensorSource& source);
// An error that names the format if the file is of another one than .zt.
Status CheckIsZt(const std::string& path);
// Opens a .zt file. Errors do not name it: the commands add the names.
StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                             const InputOptions& options = {});

}  // namespace zt::cli::internal
