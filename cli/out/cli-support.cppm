// zt.cli:support — inputs, outputs and signals, for all commands. Internal.
module zt.cli:support;

import zt.std;
import :output;
import zt.open;

namespace zt::cli::internal {

// The shards that the roots of 2.0 among the inputs name, where they are there. It may read them
// all: one that was renamed is found by its digest.
std::vector<std::string> ShardsOfRoots(const Args& args);
// The files that a command reads, which its outputs must not replace.
class FilesRead {
 public:
  // Those that are named, those of `source` if it is not null, and `shards`: see ShardsOfRoots.
  FilesRead(const Args& args, const TensorSource* source, const std::vector<std::string>& shards);
  // kInvalidArgument of the output if it is one of them; with `in_place` it may be the only one that
  // is named, under its own name.
  Status CheckOmits(const std::string& output, bool in_place) const;

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> files_;  // by device and inode
  std::set<std::string> urls_;
  std::string named_;  // if it is one
};
// True if no tensor is selected or left out.
bool TakesWhole(const Args& args);
// True if the output of `args` is a file that may be there and be replaced.
bool MayReplace(const Args& args);
// FilesRead::CheckOmits for the output of `args`; a part of the input is not put in its place.
Status CheckIsNoInput(const Args& args, const TensorSource* source, bool in_place);
// Warns of shards of a checkpoint that are named without the others.
void WarnOfOtherShards(const std::vector<std::string>& paths, TensorSource& source);
// An error that names the format if the file is of another one than .zt.
Status CheckIsZt(const std::string& path);

// Creates the file at `output`, or returns standard output for "-", which must not be a terminal.
// Errors name it.
StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output, const FileSinkOptions& options);
// The files of this run.
Store& TheStore();
// Writes `text` to the file at `path`, or to standard output for "-"; `options` say whether it may
// replace another file. Errors name it.
Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options);
// Opens a .zt file. Errors do not name it: the commands add the names.
StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                             const InputOptions& options = {});
// An error if the folder of `output` is missing. Called before any work is done.
Status CheckFolderOf(const std::string& output);
// CheckFolderOf; kAlreadyExists if `output` is an existing file that may not be replaced.
Status CheckOutput(const std::string& output, bool force);

// The bytes of all components whose sizes are known.
std::uint64_t Bytes(const Object& object);

// True once a signal has asked the program to end. Everything that can be cancelled reads it.
const std::atomic<bool>& Interrupted();

// As long as it exists, a signal cancels the writer, from another thread. After an earlier signal,
// the constructor cancels it.
class CancelsWriter {
 public:
  explicit CancelsWriter(Writer& writer);
  ~CancelsWriter();
  CancelsWriter(const CancelsWriter&) = delete;
  CancelsWriter& operator=(const CancelsWriter&) = delete;
};

// Marks the command's output as published: from now on a signal does not end the run, which reports
// its result and ends by itself.
void Completed();
// True if a signal arrived before Completed. The program then prints only that it was interrupted.
bool Ended();
// Sets the options for what the program prints after a signal.
void SetCommon(const Common& common);

// ---- one .zt file of a conversion, written and published ----------------------------------------

// Streams the planned objects of `source` into `sink` and finishes both. A signal cancels it. The
// returned writer has the results.
StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options);
// Warns of values that were changed by the conversion, and appends the warnings to `warnings`, an
// array.
void Report(const Common& common, const std::vector<NumericFinding>& findings, const Plan& plan,
            Json& warnings);
Json ToJson(const std::vector<NumericFinding>& findings);

// Estimates the size of the file that `plan` makes, from a sample of its input, at most 32 MiB.
// The estimate is exact if the sample is all of it. nullopt if the input can be read only once, or
// if the sample cannot be converted: the conversion then says why.
StatusOr<std::optional<std::uint64_t>> EstimateBytes(TensorSource& source, const Plan& plan,
                                                     const WriterOptions& options);
// True if some components may be stored compressed.
bool Compresses(const Plan& plan);
// The result of convert under --json, without what is known only after writing.
Json SummaryJson(const Args& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
