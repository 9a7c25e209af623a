// zt.cli:shards — converts shards, several at a time, and keeps complete ones.
module;

#include <sys/stat.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :conversion;
import :shards;
import :paths;
import :signals;
import zt.convert.delta;

namespace zt::cli::internal {
namespace {

// What files that are being written will still take of the disk.
class Promises {
 public:
  // Checks that `bytes` of one more file fit beside what the others promised, by their sink's Reserve.
  Status Reserve(Sink& file, std::uint64_t bytes, std::uint64_t& promised) {
    const std::lock_guard lock(mutex_);
    ZT_RETURN_IF_ERROR(file.Reserve(due_ - promised + bytes));
    due_ += bytes - promised;
    promised = bytes;
    return OkStatus();
  }
  // So many have been written, or will not be.
  void Settle(std::uint64_t bytes, std::uint64_t& promised) {
    const std::lock_guard lock(mutex_);
    bytes = std::min(bytes, promised);
    due_ -= bytes;
    promised -= bytes;
  }

 private:
  std::mutex mutex_;
  std::uint64_t due_ = 0;
};

// The file of a shard. Finish removes the digest file of an existing shard just before it replaces
// the shard, and writes it again if the older shard is still there afterwards. Finish begins a
// Publication in `publishing`: a signal then waits until the caller has written the new digest
// file.
class ShardSink final : public Sink {
 public:
  ShardSink(std::unique_ptr<Sink> file, std::string path, Promises& promises,
            std::optional<Publication>& publishing)
      : file_(std::move(file)),
        path_(std::move(path)),
        promises_(promises),
        publishing_(publishing) {}
  ~ShardSink() override { promises_.Settle(promised_, promised_); }
  ShardSink(const ShardSink&) = delete;
  ShardSink& operator=(const ShardSink&) = delete;

  const std::string& name() const override { return file_->name(); }
  Status Append(Pieces pieces) override {
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    ZT_RETURN_IF_ERROR(file_->Append(pieces));
    promises_.Settle(bytes, promised_);
    return OkStatus();
  }
  Status Reserve(std::uint64_t bytes) override {
    return promises_.Reserve(*file_, bytes, promised_);
  }
  void Expect(std::uint64_t bytes) override { file_->Expect(bytes); }
  Status Finish(std::uint64_t total) override {
    publishing_.emplace();
    if (Interrupted()) return Cancelled("interrupted");
    const StatusOr<std::string> digest = ReadDigestFile(path_);
    const std::optional<ino_t> older = Inode();
    RemoveDigestFiles(path_);
    const Status status = file_->Finish(total);
    if (!status.ok() && digest.ok() && !digest->empty() && Inode() == older)
      (void)WriteDigestFile(path_, *digest, false);
    return status;
  }
  void Abort() override { file_->Abort(); }

 private:
  std::optional<ino_t> Inode() const {
    struct stat info;
    return ::stat(path_.c_str(), &info) == 0 ? std::optional(info.st_ino) : std::nullopt;
  }

  const std::unique_ptr<Sink> file_;
  const std::string path_;
  Promises& promises_;
  std::uint64_t promised_ = 0;
  std::optional<Publication>& publishing_;
};

std::uint64_t TensorsIn(const Plan& shard) { return shard.objects.size() - CountFiles(shard); }

// What came of a shard.
struct Outcome {
  Json row;
  std::string note = {};                   // printed unless --quiet, as the warnings are
  std::vector<std::string> warnings = {};  // of findings
  std::vector<NumericFinding> findings = {};
  std::uint64_t bytes_in = 0, bytes_out = 0;
  bool kept = false;
};

// Writes the shards of a plan.
struct ShardRun {
  const Args& args;
  TensorSource& source;
  const Plan& plan;
  const ShardPlan& cut;
  const WriterOptions& options;
  DeltaMaker* const delta;
  const std::optional<std::filesystem::file_time_type> inputs;

  // What was done. `bytes_in` counts the inputs of written shards, not of kept ones.
  std::uint64_t bytes_all = 0, tensors_all = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0, written = 0, kept = 0;
  Json rows = Json::array(), numeric = Json::array(), warnings = Json::array();
  double seconds = 0;

  Promises promises = {};
  std::mutex mutex = {};
  std::map<std::uint64_t, Outcome> outcomes = {};  // of shards whose predecessors have none yet
  std::uint64_t next = 0;                          // the first of those

  std::string PathOf(std::uint64_t number) const {
    return ShardPath(args.output.empty() ? "model.zt" : args.output, number, cut.shards.size());
  }

  Json Row(std::uint64_t number, const Plan& shard, const Json& more) const {
    Json row = {{"path", PathOf(number)},
                {"shard", number},
                {"tensors", TensorsIn(shard)},
                {"bytes_decoded", shard.output_bytes()}};
    row.update(more);
    return row;
  }

  // Lists the shards `first` to `last` with their planned contents.
  std::string Describe(std::uint64_t first, std::uint64_t last) {
    std::string text;
    for (std::uint64_t number = first; number <= last; ++number) {
      const Plan shard = PlanOfShard(plan, cut, number);
      rows.push_back(Row(number, shard, Json::object()));
      text += Printable(PathOf(number)) + ": " + Counted(TensorsIn(shard), "tensor") + ", " +
              HumanBytes(shard.output_bytes()) + (Compresses(shard) ? " before compression" : "") +
              "\n";
    }
    return text;
  }

  Status Write(std::uint64_t first, std::uint64_t last) {
    const bool all = last - first + 1 == cut.shards.size();
    const Plan one = all ? Plan() : PlanOfShard(plan, cut, first);
    const Plan& whole = all ? plan : one;
    bytes_all = whole.input_bytes(source);
    tensors_all = TensorsIn(whole);
    std::vector<ComponentId> read;
    for (const PlannedObject& object : whole.objects) {
      for (const PlannedComponent& component : object.components) read.push_back(component.source);
    }
    ProgressBar bar(args, "convert");
    next = first;
    NumberedOptions at_once =
        FilesAtOnce(args, source, read, Compresses(whole) ? options.zstd.frame_bytes : 0);
    if (delta != nullptr) at_once.most = 1;  // it makes one after another
    Status status = RunNumbered(
        last - first + 1, at_once, [&](std::uint64_t index, const Share& share) -> Status {
          ZT_ASSIGN_OR_RETURN(Outcome outcome, WriteOne(first + index, share, bar));
          const std::lock_guard lock(mutex);
          outcomes.emplace(first + index, std::move(outcome));
          for (; outcomes.contains(next); ++next) Tell(outcomes.extract(next).mapped());
          return OkStatus();
        });
    for (Outcome& outcome : std::views::values(outcomes)) WarnAll(args, outcome.warnings);
    if (status.ok() && written > 0) status = source.Finish();
    bar.End();
    seconds = bar.seconds();
    return status;
  }

  StatusOr<Outcome> WriteOne(std::uint64_t number, const Share& share, ProgressBar& bar) {
    const Plan shard = PlanOfShard(plan, cut, number);
    const ShardStamp stamp{cut.digest, number, cut.shards.size()};
    const std::string path = PathOf(number);
    ZT_ASSIGN_OR_RETURN(ShardState state, FindShard(path, stamp, args.force, inputs));
    if (state != ShardState::kWhole) {
      const bool replace = args.force || state == ShardState::kUnvouched;
      StatusOr<Outcome> made = Convert(number, path, shard, replace, share, bar);
      if (made.ok() || made.status().code() != StatusCode::kAlreadyExists) return made;
      // Another task with the same shard may have finished it first.
      ZT_ASSIGN_OR_RETURN(state, FindShard(path, stamp, args.force, inputs));
      if (state != ShardState::kWhole) return made;  // the file has been removed again
    }
    bar.Add(shard.input_bytes(source), bytes_all, TensorsIn(shard), tensors_all);
    ZT_ASSIGN_OR_RETURN(const auto known, WithFile(TheStore().SizeOf(path), path));
    const std::uint64_t size = known.value_or(0);
    ZT_ASSIGN_OR_RETURN(const std::string digest, ReadDigestFile(path));
    return Outcome{.row = Row(number, shard, {{"bytes", size}, {"digest", digest}, {"kept", true}}),
                   .note = path + ": kept, it is whole and of this plan",
                   .bytes_out = size,
                   .kept = true};
  }

  StatusOr<Outcome> Convert(std::uint64_t number, const std::string& path, const Plan& shard,
                            bool replace, const Share& share, ProgressBar& bar) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> file,
                        OpenSink(path, {.overwrite = replace, .sync = !args.no_sync}));
    std::string digest;
    std::optional<Publication> publishing;
    WriterOptions own = options;
    own.share = &share;
    own.progress = [&, last = Progress()](const Progress& p) mutable {
      bar.Add(p.bytes - last.bytes, bytes_all, p.tensors - last.tensors, tensors_all);
      last = p;
    };
    auto sink = std::make_unique<ShardSink>(std::move(file), path, promises, publishing);
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                        WriteFile(HashingSink(std::move(sink), FileDigestOf(options), digest),
                                  source, shard, std::move(own), delta, false));
    ZT_RETURN_IF_ERROR(WriteDigestFile(path, digest, !args.no_sync));
    return Outcome{
        .row = Row(number, shard,
                   {{"bytes", writer->file_bytes()}, {"digest", digest}, {"kept", false}}),
        .warnings = WarningsOf(writer->numeric_findings(), shard),
        .findings = writer->numeric_findings(),
        .bytes_in = shard.input_bytes(source),
        .bytes_out = writer->file_bytes()};
  }

  // Prints what came of a shard, which is published: this may wait for its reader.
  void Tell(Outcome outcome) {
    ++(outcome.kept ? kept : written);
    bytes_in += outcome.bytes_in;
    bytes_out += outcome.bytes_out;
    rows.push_back(std::move(outcome.row));
    WarnAll(args, outcome.warnings);
    if (!outcome.note.empty() && !args.quiet) Note(outcome.note);
    for (std::string& line : outcome.warnings) warnings.push_back(std::move(line));
    for (Json& row : ToJson(outcome.findings)) numeric.push_back(std::move(row));
  }
};

// Refuses an existing index of other shards before the work is done.
Status CheckIndex(const Args& args, const ShardPlan& cut, SpecVersion version) {
  const std::string path = IndexPath(args.output, version);
  if (args.force) return OkStatus();
  ZT_ASSIGN_OR_RETURN(const bool there, WithFile(TheStore().Exists(path), path));
  if (!there) return OkStatus();
  ZT_ASSIGN_OR_RETURN(const std::string plan, WithFile(PlanOfIndex(path, version), path));
  return plan == cut.digest ? OkStatus() : WithFile(OtherIndex(), path);
}

}  // namespace

Status ConvertShards(const Args& args, const ShardRequest& request, TensorSource& source,
                     const Plan& plan, const WriterOptions& options, DeltaMaker* delta,
                     const std::vector<std::string>& warnings) {
  ZT_ASSIGN_OR_RETURN(std::vector<std::string> others, ShardsOfRoots(args));
  if (delta != nullptr) std::ranges::copy(delta->base_files(), std::back_inserter(others));
  const FilesRead inputs(args, &source, others);
  ZT_ASSIGN_OR_RETURN(const ShardPlan cut, CutPlan(source, plan, inputs.paths(), options, request));
  const std::uint64_t count = cut.shards.size();
  const std::uint64_t first = request.only == 0 ? 1 : request.only;
  const std::uint64_t last = request.only == 0 ? count : request.only;
  const Status expressible = CheckExpressible(PlanOfShard(plan, cut, 1).attributes, plan.spec);
  if (!expressible.ok() && CheckExpressible(plan.attributes, plan.spec).ok()) {
    return InvalidArgument("version " + args.spec +
                           " cannot hold the stamp of a shard; leave out --spec");
  }
  ZT_RETURN_IF_ERROR(expressible);
  ShardRun run{args, source, plan, cut, options, delta, LastChange(inputs.paths())};
  // For a single shard, its own contents.
  Json json = SummaryJson(
      args, source, request.only == 0 ? plan : PlanOfShard(plan, cut, request.only), warnings);
  json["plan_digest"] = cut.digest;
  json["shards"] = count;
  if (delta != nullptr) json["base"] = DeltaJson(args, delta->Count(plan));
  Status place = CheckFolderOf(args.output);
  if (place.ok())
    place = CheckShardFolder(args, inputs, cut,
                             request.only == 0 ? IndexPath(args.output, plan.spec) : std::string());
  if (place.ok() && request.only == 0) place = CheckIndex(args, cut, plan.spec);
  if (args.dry_run && !place.ok()) {
    const std::string line = "without --dry-run this fails: " + Worded(args, place);
    WarnAll(args, std::span(&line, 1));
    json["warnings"].push_back(line);
  }
  if (args.dry_run) {
    std::string text = run.Describe(first, last);
    text += "the plan: " + Counted(count, "shard") + ", " + cut.digest;
    if (delta == nullptr && Compresses(plan) && request.only == 0) {
      ZT_ASSIGN_OR_RETURN(const auto estimated, EstimateBytes(source, plan, options));
      if (estimated) {
        text += "; estimated size " + HumanBytes(*estimated);
        json["output"]["bytes_estimated"] = *estimated;
      }
    }
    if (delta != nullptr) text += "\n" + DeltaText(args, delta->Count(plan));
    if (!args.json) return Print(delta == nullptr ? text + "\n" : text);
    json["output"]["files"] = std::move(run.rows);
    return PrintJson(args, json);
  }
  ZT_RETURN_IF_ERROR(place);
  ZT_RETURN_IF_ERROR(run.Write(first, last));
  if (request.only == 0) {
    std::vector<std::string> paths;
    for (std::uint64_t number = 1; number <= count; ++number) paths.push_back(run.PathOf(number));
    ZT_ASSIGN_OR_RETURN(
        const JoinResult joined,
        WriteShardIndex(paths, args.output, {.overwrite = args.force, .sync = !args.no_sync}));
    json["output"]["path"] = joined.path;
  } else {
    json["output"]["path"] = run.PathOf(request.only);
  }
  Completed();
  if (args.json) {
    json["output"]["bytes"] = run.bytes_out;
    json["output"]["files"] = std::move(run.rows);
    json["timing"] = {{"wall_s", run.seconds}};
    json["numeric"] = std::move(run.numeric);
    for (Json& line : run.warnings) json["warnings"].push_back(std::move(line));
    return PrintJson(args, json);
  }
  if (args.quiet) return OkStatus();
  const auto& what = json["output"]["path"].get_ref<const std::string&>();
  const std::string line = what + ": " + Counted(run.written, "shard") + " written, " +
                           std::to_string(run.kept) + " kept";
  Note(run.written == 0
           ? line
           : SummaryText(line, run.tensors_all, run.bytes_in, run.bytes_out, run.seconds));
  return OkStatus();
}

}  // namespace zt::cli::internal
