// zt.cli:shards — one conversion into several files: the plan cut into shards, and the files beside
// each shard. Internal.
module zt.cli:shards;

import zt.std;
import :args;
import :paths;
import zt;
import zt.convert.delta;

namespace zt::cli::internal {

// The latest time at which one of the files was written; nullopt if no file has a time.
std::optional<std::filesystem::file_time_type> LastChange(std::span<const std::string> files);
// The digest of samples of their bytes, spread evenly over each file, and its end. It distinguishes
// inputs of the same shapes, and does not depend on where and when the files were copied.
StatusOr<std::string> SampleInputs(std::span<const std::string> files);

// The requested number or size of shards; one of the two is not 0.
struct ShardRequest {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;     // the most decoded data in a shard
  std::uint64_t only = 0;      // number of the shard to write; 0: all
  std::uint64_t expected = 0;  // number of shards that the plan must have; 0: any
};
// The request of --shards, --shard-size and --shard; nullopt if none of them was given.
StatusOr<std::optional<ShardRequest>> FindShardRequest(const Args& args);

// A plan cut into shards. It depends on the inputs and the options alone, so that every task
// computes the same plan.
struct ShardPlan {
  // The digest of all that determines the bytes of the shards: the declarations, sizes and sampled
  // bytes of the inputs, the plan, the storage options and the cuts.
  std::string digest;
  // Indices in Plan::objects, ascending.
  std::vector<std::vector<std::uint32_t>> shards;
};
// Cuts in the order of the source. Tensors that share a blob, and the tensors of one quantized
// module, stay in one shard.
StatusOr<ShardPlan> CutPlan(const TensorSource& source, const Plan& plan,
                            std::span<const std::string> inputs, const WriterOptions& options,
                            const ShardRequest& request);
// The plan of shard `number`, counted from 1, with its stamp.
Plan PlanOfShard(const Plan& plan, const ShardPlan& cut, std::uint64_t number);

// "DIR/model-00001-of-00008.zt" for the output "DIR/model.zt".
std::string ShardPath(const std::string& output, std::uint64_t number, std::uint64_t count);

// The digest for the whole file of a shard: SHA-256 if its components have SHA-256 digests, else
// XXH3, which is as fast as memory.
DigestKind FileDigestOf(const WriterOptions& options);

// Writes the digest of a file beside it, to "FILE.xxh3" or "FILE.sha256", in the format that xxhsum
// and sha256sum check.
Status WriteDigestFile(const std::string& path, const std::string& digest, bool sync);
// Called before a file is replaced, so that it never lies beside the digest of another file.
void RemoveDigestFiles(const std::string& path);
// Empty if the file has no digest beside it.
StatusOr<std::string> ReadDigestFile(const std::string& path);
// Computes the digest of the file: reads all of it.
StatusOr<std::string> DigestOfFile(const std::string& path, DigestKind kind);

// Checks that none of the shards, and no index if `index` is not empty, would replace an input, and
// that no shard would lie beside shards with the same name and another count.
Status CheckShardFolder(const Args& args, const FilesRead& inputs, const ShardPlan& cut,
                        const std::string& index);

// The refusal to replace an index.
Status OtherIndex();

// What a shard's path holds, for those who write it.
enum class ShardState {
  kAbsent,     // no file
  kUnvouched,  // a file that may be replaced: --force is given, or the shard lacks its digest, as
               // after a task that was killed between the two
  kWhole,      // that shard, with the digest beside it, and not older than `inputs`
};
// kAlreadyExists with the reason if it is another file, or damaged, and `force` is false.
StatusOr<ShardState> FindShard(const std::string& path, const ShardStamp& stamp, bool force,
                               std::optional<std::filesystem::file_time_type> inputs);

// Runs convert for a ShardRequest: writes the missing shards and, if all were requested, the index.
Status ConvertShards(const Args& args, const ShardRequest& request, TensorSource& source,
                     const Plan& plan, const WriterOptions& options, DeltaMaker* delta,
                     const std::vector<std::string>& warnings);

// The result of join.
struct JoinResult {
  std::string path;  // the index or root
  std::string plan;
  std::uint64_t shards = 0, tensors = 0, files = 0;
  std::uint64_t bytes = 0;             // decoded bytes, shared ones counted once
  std::vector<std::uint64_t> missing;  // numbers
};
// Reads headers, footers and manifests of the shards and writes the index of `output`. An existing
// index with the same content is kept. An error if the shards are of different plans.
StatusOr<JoinResult> WriteShardIndex(const std::vector<std::string>& paths,
                                     const std::string& output, const FileSinkOptions& options);

// The file that join writes for "DIR/model.zt": "DIR/model.zt.index.json", or that file itself in a
// version that names shards.
std::string IndexPath(const std::string& output, SpecVersion version);
// The digest of the plan of an index or root; empty if the file is neither.
StatusOr<std::string> PlanOfIndex(const std::string& path, SpecVersion version);

}  // namespace zt::cli::internal
