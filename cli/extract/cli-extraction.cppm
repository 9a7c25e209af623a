// zt.cli:extraction — one run of extract, which writes a file or a folder; the folder that is a
// model; and a source to which the rules of the command line are applied. Internal.
module zt.cli:extraction;

import zt.std;
import :output;
import :rules;
import zt.convert.layout;

namespace zt::cli::internal {

// A source changed by a plan: tensors are left out, renamed, and converted when they are read.
// Finish fails if numbers do not fit and the plan does not allow that.
class ChangedSource final : public WrappedSource {
 public:
  // Appends a warning for each rule that applied to no tensor.
  static StatusOr<std::unique_ptr<ChangedSource>> Make(std::unique_ptr<TensorSource> source,
                                                       const Rules& rules,
                                                       std::vector<std::string>& warnings);

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  // Read in the order of what it is made of.
  bool sequential(ComponentId id) const override { return inner_->sequential(Planned(id).source); }
  std::uint64_t preferred_read(ComponentId id) const override;
  Status Finish() override;

  // The values that the conversion changed; complete after everything was read.
  std::vector<NumericFinding> Findings() const;
  const Plan& plan() const { return plan_; }

 private:
  explicit ChangedSource(std::unique_ptr<TensorSource> inner)
      : WrappedSource(*inner), inner_(std::move(inner)) {}
  const PlannedComponent& Planned(ComponentId id) const {
    return plan_.objects[id.object].components[id.component];
  }
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    return {*inner_, Planned(id).source};
  }
  bool passes(ComponentId id) const override { return Planned(id).transform == nullptr; }

  // Of a component's values: see AddOverflow.
  struct Counts {
    NumericCounts converted;
    std::uint64_t made = 0;
    std::uint64_t bytes = 0;  // counted; more are those of another pass
  };
  void Count(ComponentId id, std::uint64_t bytes, const NumericCounts& converted);
  NumericCounts Total(ComponentId id, const Counts& counts) const;

  const std::unique_ptr<TensorSource> inner_;
  Plan plan_;  // of inner_
  BufferPool pool_{std::uint64_t{64} << 20};
  mutable zt::internal::Mutex mutex_;
  std::map<ComponentId, Counts> counts_;  // under mutex_
};

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
      : args_(args),
        source_(source),
        told_(source.warnings().size()),
        warnings_(std::move(warnings)),
        bar_(args, "extract") {}

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
  // Writes the layout: one of `files`, unless that is 0, whose `share` may say how.
  Status WriteLayout(const FileLayout& layout, Sink& sink, const Share* share = nullptr,
                     std::size_t files = 0);

  // Prints the result, or the plan with --dry-run. `changed` is the source if rules changed it,
  // else null. `left_out`: the output has all that was not left out of a folder.
  Status Print(Json output, std::span<const std::uint32_t> selected, std::uint64_t files,
               const ChangedSource* changed, bool left_out = false);

 private:
  const Args& args_;
  TensorSource& source_;
  const std::size_t told_;  // of the source's warnings
  std::vector<std::string> warnings_;
  ProgressBar bar_;
  std::uint64_t bytes_ = 0, read_ = 0;
  std::vector<ComponentId> components_;  // that layouts have
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
