// zt.cli:shards — converts shards one after another, and keeps complete ones.
module;

#include <sys/stat.h>

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :files;
import :shards;
import :conversion;
import :inputs;
import :outputs;
import :signals;

namespace zt::cli::internal {
namespace {

// The file of a shard. Finish removes the digest file of an existing shard just before it replaces
// the shard, and writes it again if the older shard is still there afterwards. Finish begins a
// Publication in `publishing`: a signal then waits until the caller has written the new digest
// file.
class ShardSink final : public Sink {
 public:
  ShardSink(std::unique_ptr<Sink> file, std::string path, std::optional<Publication>& publishing)
      : file_(std::move(file)), path_(std::move(path)), publishing_(publishing) {}

  const std::string& name() const override { return file_->name(); }
  Status Append(Pieces pieces) override { return file_->Append(pieces); }
  Status Reserve(std::uint64_t bytes) override { return file_->Reserve(bytes); }
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
  std::optional<Publication>& publishing_;
};

std::uint64_t TensorsIn(const Plan& shard) { return shard.objects.size() - CountFiles(shard); }

// Writes the shards of a plan one after another.
struct ShardRun {
  const Args& args;
  TensorSource& source;
  const Plan& plan;
  const ShardPlan& cut;
  const WriterOptions& options;
  DeltaMaker* const delta;
  const std::optional<std::filesystem::file_time_type> inputs;

  // Progress. `bytes_in` counts the inputs of written shards, not of kept ones.
  std::uint64_t bytes = 0, tensors = 0, bytes_all = 0, tensors_all = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0, written = 0, kept = 0;
  Json rows = Json::array(), numeric = Json::array(), warnings = Json::array();
  double seconds = 0;

  std::string PathOf(std::uint64_t number) const {
    return ShardPath(args.output.empty() ? "model.zt" : args.output, number, cut.shards.size());
  }

  void AddRow(std::uint64_t number, const Plan& shard, const Json& more) {
    Json row = {{"path", PathOf(number)},
                {"shard", number},
                {"tensors", TensorsIn(shard)},
                {"bytes_decoded", shard.output_bytes()}};
    row.update(more);
    rows.push_back(std::move(row));
  }

  // Lists the shards `first` to `last` with their planned contents.
  std::string Describe(std::uint64_t first, std::uint64_t last) {
    std::string text;
    for (std::uint64_t number = first; number <= last; ++number) {
      const Plan shard = PlanOfShard(plan, cut, number);
      AddRow(number, shard, Json::object());
      text += Printable(PathOf(number)) + ": " + Counted(TensorsIn(shard), "tensor") + ", " +
              HumanBytes(shard.output_bytes()) + (Compresses(shard) ? " before compression" : "") +
              "\n";
    }
    return text;
  }

  Status Write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t number = first; number <= last; ++number) {
      const Plan shard = PlanOfShard(plan, cut, number);
      bytes_all += shard.input_bytes(source);
      tensors_all += TensorsIn(shard);
    }
    ProgressBar bar(args, "convert");
    for (std::uint64_t number = first; number <= last; ++number)
      ZT_RETURN_IF_ERROR(WriteOne(number, bar));
    bar.End();
    seconds = bar.seconds();
    return OkStatus();
  }

  Status WriteOne(std::uint64_t number, ProgressBar& bar) {
    const Plan shard = PlanOfShard(plan, cut, number);
    const ShardStamp stamp{cut.digest, number, cut.shards.size()};
    const std::string path = PathOf(number);
    ZT_ASSIGN_OR_RETURN(ShardState state, FindShard(path, stamp, args.force, inputs));
    if (state != ShardState::kWhole) {
      const bool replace = args.force || state == ShardState::kUnvouched;
      const Status status = Convert(number, path, shard, replace, bar);
      if (!status.ok() && status.code() != StatusCode::kAlreadyExists) return status;
      // Another task with the same shard may have finished it first.
      if (!status.ok()) {
        ZT_ASSIGN_OR_RETURN(state, FindShard(path, stamp, args.force, inputs));
        if (state != ShardState::kWhole) return status;  // the file has been removed again
      }
    }
    if (state == ShardState::kWhole) ZT_RETURN_IF_ERROR(Keep(number, path, shard));
    bytes += shard.input_bytes(source);
    tensors += TensorsIn(shard);
    return OkStatus();
  }

  Status Keep(std::uint64_t number, const std::string& path, const Plan& shard) {
    ++kept;
    const std::uint64_t size = TheStore().SizeOf(path).value_or(0);
    ZT_ASSIGN_OR_RETURN(const std::string digest, ReadDigestFile(path));
    AddRow(number, shard, {{"bytes", size}, {"digest", digest}, {"kept", true}});
    bytes_out += size;
    if (!args.quiet) Note(path + ": kept, it is whole and of this plan");
    return OkStatus();
  }

  Status Convert(std::uint64_t number, const std::string& path, const Plan& shard, bool replace,
                 ProgressBar& bar) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<Sink> file,
                        OpenSink(path, {.overwrite = replace, .sync = !args.no_sync}));
    std::string digest;
    std::optional<Publication> publishing;
    WriterOptions own = options;
    own.progress = [&](const Progress& p) {
      bar.Update(bytes + p.bytes, bytes_all, tensors + p.tensors, tensors_all);
    };
    auto sink = std::make_unique<ShardSink>(std::move(file), path, publishing);
    ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                        WriteFile(HashingSink(std::move(sink), FileDigestOf(options), digest),
                                  source, shard, std::move(own), delta, false));
    ZT_RETURN_IF_ERROR(WriteDigestFile(path, digest, !args.no_sync));
    publishing.reset();  // before warnings, which may wait for their reader
    Report(args, writer->numeric_findings(), shard, warnings);
    ++written;
    bytes_in += shard.input_bytes(source);
    bytes_out += writer->file_bytes();
    for (Json& row : ToJson(writer->numeric_findings())) numeric.push_back(std::move(row));
    AddRow(number, shard, {{"bytes", writer->file_bytes()}, {"digest", digest}, {"kept", false}});
    return OkStatus();
  }
};

// Refuses an existing index of other shards before the work is done.
Status CheckIndex(const Args& args, const ShardPlan& cut, SpecVersion version) {
  const std::string path = IndexPath(args.output, version);
  if (args.force || !TheStore().Exists(path)) return OkStatus();
  if (PlanOfIndex(path, version) == cut.digest) return OkStatus();
  return WithFile(OtherIndex(), path);
}

}  // namespace

Status ConvertShards(const Args& args, const ShardRequest& request, TensorSource& source,
                     const Plan& plan, const WriterOptions& options, DeltaMaker* delta,
                     const std::vector<std::string>& warnings) {
  const std::vector<std::string> shards = ShardsOfRoots(args);
  std::vector<InputFile> inputs = FindInputFiles(source, plan, shards);
  if (delta != nullptr) {
    for (std::string& file : delta->base_files()) inputs.push_back({std::move(file), {}});
  }
  ZT_ASSIGN_OR_RETURN(const ShardPlan cut, CutPlan(source, plan, inputs, options, request));
  const std::uint64_t count = cut.shards.size();
  const std::uint64_t first = request.only == 0 ? 1 : request.only;
  const std::uint64_t last = request.only == 0 ? count : request.only;
  const Status expressible = CheckExpressible(PlanOfShard(plan, cut, 1).attributes, plan.spec);
  if (!expressible.ok() && CheckExpressible(plan.attributes, plan.spec).ok()) {
    return InvalidArgument("version " + args.spec +
                           " cannot hold the stamp of a shard; leave out --spec");
  }
  ZT_RETURN_IF_ERROR(expressible);
  ShardRun run{args, source, plan, cut, options, delta, LastChange(inputs)};
  // For a single shard, its own contents.
  Json json = SummaryJson(
      args, source, request.only == 0 ? plan : PlanOfShard(plan, cut, request.only), warnings);
  json["plan_digest"] = cut.digest;
  json["shards"] = count;
  Status place = CheckFolderOf(args.output);
  if (place.ok())
    place = CheckShardFolder(args, FilesRead(args, &source, shards), cut,
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
    if (Compresses(plan) && request.only == 0) {
      ZT_ASSIGN_OR_RETURN(const auto estimated, EstimateBytes(source, plan, options));
      if (estimated) {
        text += "; estimated size " + HumanBytes(*estimated);
        json["output"]["bytes_estimated"] = *estimated;
      }
    }
    if (!args.json) return Print(text + "\n");
    json["files"] = std::move(run.rows);
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
    json["files"] = std::move(run.rows);
    json["timing"] = {{"wall_s", run.seconds}};
    json["numeric"] = std::move(run.numeric);
    for (Json& line : run.warnings) json["warnings"].push_back(std::move(line));
    return PrintJson(args, json);
  }
  if (args.quiet) return OkStatus();
  const auto& what = json["output"]["path"].get_ref<const std::string&>();
  Note(SummaryText(what + ": " + Counted(run.written, "shard") + " written, " +
                       std::to_string(run.kept) + " kept",
                   run.tensors, run.bytes_in, run.bytes_out, run.seconds));
  return OkStatus();
}

}  // namespace zt::cli::internal
