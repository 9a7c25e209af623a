// zt.cli:shards — one conversion as several files: the plan cut into shards, and what lies beside each. Internal.
module zt.cli:shards;

import zt.std;
import :args;
import zt.convert.zt;

namespace zt::cli::internal {

// A file that a plan reads.
struct InputFile {
  std::string path;
  std::vector<std::uint64_t> places;  // where components begin that lie in it as they are
};
// In the order of the plan.
std::vector<InputFile> FindInputFiles(const Args& args, const TensorSource& source,
                                      const Plan& plan);
// When they were last written; nullopt where none of them has a time.
std::optional<std::filesystem::file_time_type> LastChange(const std::vector<InputFile>& files);
// The digest of a sample of their bytes: where each component begins, at places spread evenly over each file, and its end. It
// tells the inputs of one shape apart, and it is the same wherever and whenever they are copied.
StatusOr<std::string> SampleInputs(const std::vector<InputFile>& files);

// How many shards are asked for, or how large: one of the two is not 0.
struct ShardRequest {
  std::uint64_t count = 0;     // so many
  std::uint64_t bytes = 0;     // of decoded data in each, at most
  std::uint64_t only = 0;      // the one to write; 0 for all
  std::uint64_t expected = 0;  // how many the plan must have; 0 where that is open
};
// What --shards, --shard-size and --shard say; nullopt where none was given.
StatusOr<std::optional<ShardRequest>> FindShardRequest(const Args& args);

// A plan cut into shards. It is a function of the inputs and the options alone: every task computes the same plan.
struct ShardPlan {
  // Of all that decides the shards' bytes: what the inputs declare, how large they are and a sample of their bytes, what
  // becomes of them, how it is stored and where it is cut.
  std::string digest;
  std::vector<std::vector<std::uint32_t>> shards;  // places in Plan::objects, ascending
};
// Cuts in the order of the source. Tensors that share a blob, and the parts of one quantized module, stay together.
StatusOr<ShardPlan> CutPlan(const TensorSource& source, const Plan& plan,
                            const std::vector<InputFile>& inputs, const WriterOptions& options,
                            const ShardRequest& request);
// What shard number `number`, from 1, is to hold, its stamp included.
Plan PlanOfShard(const Plan& plan, const ShardPlan& cut, std::uint64_t number);

// "DIR/model-00001-of-00008.zt" for the output "DIR/model.zt".
std::string ShardPath(const std::string& output, std::uint64_t number, std::uint64_t count);
// "00001".
std::string PartText(std::uint64_t number);

// Which digest a shard's file gets: SHA-256 where its components have it, else XXH3, at the speed of memory.
DigestKind FileDigestOf(const WriterOptions& options);

// The digest of a file lies beside it, in "FILE.xxh3" or "FILE.sha256", as xxhsum and sha256sum check them.
Status WriteDigestFile(const std::string& path, const std::string& digest, bool sync);
// Before a file is written anew, so that it never lies beside the digest of another.
void RemoveDigestFiles(const std::string& path);
// Empty where there is none.
StatusOr<std::string> ReadDigestFile(const std::string& path);
// Of the file as it is: reads all of it.
StatusOr<std::string> DigestOfFile(const std::string& path, DigestKind kind);

// That no shard would replace an input, or come to lie beside shards of the same name and another count.
Status CheckPlace(const Args& args, const std::vector<InputFile>& inputs, const ShardPlan& cut);

// True where `path` is that shard already, whole: its bytes have the digest that lies beside it, or, where that is missing,
// pass verification; and it is no older than `inputs`. False where there is nothing, or what is there may be replaced; else kAlreadyExists says why it is
// not that shard.
StatusOr<bool> IsThere(const std::string& path, const ShardStamp& stamp, DigestKind kind,
                       const Args& args, std::optional<std::filesystem::file_time_type> inputs);

// convert with a ShardRequest: writes the shards that are not there, and the index if all were asked for.
Status ConvertShards(const Args& args, const ShardRequest& request, TensorSource& source,
                     const Plan& plan, const WriterOptions& options,
                     const std::vector<std::string>& warnings);

// What join has found.
struct JoinResult {
  std::string path;  // of the index or root
  std::string plan;
  std::uint64_t shards = 0, tensors = 0, bytes = 0;  // bytes: decoded, shared ones once
  std::vector<std::uint64_t> missing;                // numbers
};
// Reads the shards' headers, footers and manifests, and writes the index of `output`. One that is there with the same
// content is left. An error where the shards are not of one plan.
StatusOr<JoinResult> WriteShardIndex(const std::vector<std::string>& paths,
                                     const std::string& output, const FileSinkOptions& options);

// What join writes for "DIR/model.zt": "DIR/model.zt.index.json", or that file itself in a version that names shards.
std::string IndexPath(const std::string& output, SpecVersion version);
// True where it is named as an index in JSON.
bool IsIndexPath(const std::string& path);
// The digest of the plan that an index, or a root, is of; empty where the file is none.
std::string PlanOfIndex(const std::string& path, SpecVersion version);

}  // namespace zt::cli::internal
