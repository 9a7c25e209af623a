// zt.cli:extraction — one run of extract, which writes a file or a folder; and the folder that is a
// model. Internal.
module zt.cli:extraction;

import zt.std;
import :args;
import :changed;
import :output;
import zt.convert.layout;

namespace zt::cli::internal {

// A file of a folder.
struct NamedLayout {
  std::string path;  // in it
  FileLayout layout;
  bool executable = false;
};

// Writes the outputs of a run, shows progress and prints the result.
class ExtractRun {
 public:
  // `warnings` have been printed.
  ExtractRun(const Args& args, TensorSource& source, std::vector<std::string> warnings)
      : args_(args), source_(source), warnings_(std::move(warnings)), bar_(args, "extract") {}

  // Counts what will be written, and what will be read for it.
  void Expect(std::uint64_t bytes, std::uint64_t read = 0);
  void Expect(const FileLayout& layout);
  // The bytes that will be written.
  std::uint64_t bytes() const { return bytes_; }
  // Counts bytes that were read, by any thread.
  void Passed(std::uint64_t bytes) { bar_.Add(bytes, read_, 0, 0); }

  // Write the output by `write`, and publish it.
  Status WriteFile(const std::function<Status(Sink&)>& write);
  Status WriteFolder(const FolderSinkOptions& options,
                     const std::function<Status(FolderSink&)>& write);
  // Writes files of the folder and the folders that they lie in, several at a time. `shown`: their
  // number is, with the progress.
  Status WriteLayouts(std::span<const NamedLayout> files, FolderSink& folder, bool shown);
  // Writes the layout.
  Status WriteLayout(const FileLayout& layout, Sink& sink);

  // Prints the result, or the plan with --dry-run. `changed` is the source if rules changed it, else null.
  Status Print(Json output, std::span<const std::uint32_t> selected, std::uint64_t files,
               const ChangedSource* changed);

 private:
  Status WriteLayout(const FileLayout& layout, Sink& sink, const Share* share, std::size_t files);

  const Args& args_;
  TensorSource& source_;
  std::vector<std::string> warnings_;
  ProgressBar bar_;
  std::uint64_t bytes_ = 0, read_ = 0;
};

// Writes the selected objects and the model's files as a folder. If the attribute ztstream.folder
// describes the original files and no tensor has changed, they are restored byte for byte;
// otherwise new weight files are written. Writes to a private hidden folder first and renames it at
// the end. Prints the result. `changed` is the source if rules changed it, else null.
Status RestoreFolder(const Args& args, TensorSource& source,
                     const std::vector<std::uint32_t>& selected, const ChangedSource* changed);

// Divides the tensors into new files, in order: each has at most `most` bytes, or one tensor.
std::vector<std::vector<std::uint32_t>> CutBySize(const TensorSource& source,
                                                  const std::vector<std::uint32_t>& selected,
                                                  std::uint64_t most);

// Writes what differs from --base as a folder of --to disk-delta, and prints the result. `changed` as
// above.
Status WriteDiskFolder(const Args& args, TensorSource& source, const ChangedSource* changed);

// Writes one file of the model to the output, and prints the result.
Status ExtractFile(const Args& args, TensorSource& source, const FileEntry& file);

}  // namespace zt::cli::internal
