// zt.cli:support — what the commands share: inputs, outputs, signals. Internal.
module zt.cli:support;

import zt.std;
import :output;

namespace zt::cli::internal {

// Sources for MergeSources.
struct Inputs {
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
};
// Inputs of any format: files, "-", folders. Errors name the file.
StatusOr<Inputs> OpenEach(const std::vector<std::string>& paths, const InputArgs& options);
// The same as one source.
StatusOr<std::unique_ptr<TensorSource>> OpenInputs(const std::vector<std::string>& paths,
                                                   const InputArgs& options);
// The same with quantized modules grouped, those of each folder by the configuration that lies in it.
StatusOr<std::unique_ptr<TensorSource>> OpenGrouped(const std::vector<std::string>& paths,
                                                    const InputArgs& options);
// The same with grouped quantized modules as the tensors they were: what came in, for commands that give it back.
StatusOr<std::unique_ptr<TensorSource>> OpenUngrouped(const std::vector<std::string>& paths,
                                                      const InputArgs& options);
// OpenFile, whose error says where the index of a .zt file's shards lies that is not there itself.
StatusOr<std::shared_ptr<ByteSource>> OpenNamed(const std::string& path);
// The index of the .zt shards in a folder, or their root; nullopt where it holds files of another format, or none.
// An error where several can be meant, or the shards have not been joined.
StatusOr<std::optional<std::string>> FindZtIn(const std::string& folder, const InputArgs& options);
// kUnimplemented for `what`, "a .zt file", on a pipe.
Status NotFromPipe(std::string_view what);

// The file at `output`, or standard output for "-", which must not be a terminal. Errors name it.
StatusOr<std::unique_ptr<Sink>> OpenSink(const std::string& output, const FileSinkOptions& options);
// A file that holds `text`, in place of what is there where the options allow it. Errors name it.
Status WriteText(const std::string& path, std::string_view text, const FileSinkOptions& options);
// A .zt file. Errors of the reader do not name it: every command adds the names itself.
StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& path,
                                             const InputOptions& options = {});
// kAlreadyExists where `output` is a file that may not be replaced: found before any work is done.
Status CheckOutput(const std::string& output, bool force);

// Of the components whose sizes are known.
std::uint64_t Bytes(const Object& object);

// True once a signal has asked the run to end: what can be cancelled looks at it.
const std::atomic<bool>& Interrupted();

// While it lives, a signal cancels the writer (from a thread of its own); one that came before does so at once.
class CancelsWriter {
 public:
  explicit CancelsWriter(Writer& writer);
  ~CancelsWriter();
  CancelsWriter(const CancelsWriter&) = delete;
  CancelsWriter& operator=(const CancelsWriter&) = delete;
};

// A run that a signal has come to is ended two seconds later if it still goes on; not while one of these lives, so that of
// files that appear together all do or none does.
class Publishing {
 public:
  Publishing();
  ~Publishing();
  Publishing(const Publishing&) = delete;
  Publishing& operator=(const Publishing&) = delete;
};

// ---- one .zt file of a conversion, written and published ---------------------------------------------------------

// Streams what `plan` says of `source` into `sink` and finishes both; the writer knows what became of them. A signal cancels it.
StatusOr<std::unique_ptr<Writer>> WriteFile(std::unique_ptr<Sink> sink, TensorSource& source,
                                            const Plan& plan, WriterOptions options);
// Warns of values that did not come over whole, and adds the lines to `warnings`, an array.
void Report(const Common& common, const std::vector<NumericFinding>& findings, const Plan& plan,
            Json& warnings);
Json ToJson(const std::vector<NumericFinding>& findings);

// Whether some of it may be stored compressed.
bool Compresses(const Plan& plan);
// What convert prints with --json, up to what only writing tells.
Json SummaryJson(const Args& args, const TensorSource& source, const Plan& plan,
                 const std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
