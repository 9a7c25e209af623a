// zt.convert.zt — a .zt file of any version as a source, so that upgrading, merging and filtering
// are ordinary conversions.
export module zt.convert.zt;

import zt.std;
import zt.convert.shards;
import zt.core;
import zt.digest;
import zt.reader;
import zt.source;

export namespace zt {

// Opens a .zt file. `find_shard` finds the shards of a root; `digest` is the digest of the whole
// file if an index states one. Objects keep their format, attributes and logical types; components
// are served decoded and little-endian. Differences from the file:
//   - objects and components come in the order of their bytes, not of the manifest;
//   - indices of sparse_csr and sparse_coo are widened to u64, unless InputOptions::u32_indices
//     keeps u32; a negative index is kDataLoss;
//   - the single blob of a sparse 0.1.0 entry becomes the components of sparse_csr or sparse_coo
//     (see TakeApart); an entry without a description of its structure is kUnimplemented.
// Bytes with a digest are checked as they pass, so that reading a whole component either yields the
// bytes that were written or fails with kDataLoss. A digest of an unknown algorithm is a warning.
// An object with an unknown layout, type or encoding is listed and cannot be read (CheckReadable).
// The digest of a whole file, and of each shard that a root names, is its identity (2.0 §7.1). If
// any bytes of such a file are read, they are hashed as they pass, and Finish hashes the remaining
// ones: kDataLoss if it is another file. Opening and listing hash nothing.
// The stamp of a shard (kShardAttribute) is not an attribute of the source, because it holds only
// for that file.
StatusOr<std::unique_ptr<TensorSource>> OpenZt(std::shared_ptr<ByteSource> bytes,
                                               const InputOptions& options = {},
                                               ShardFinder find_shard = {},
                                               const std::string& digest = {});

// The largest number of shards: numbers have five digits.
inline constexpr std::uint64_t kMaxShards = 99'999;
// The attribute by which a shard identifies itself: a map of plan, shard and shards.
inline constexpr std::string_view kShardAttribute = "ztstream.shard";
struct ShardStamp {
  std::string plan;                     // the digest of the plan of all shards
  std::uint64_t number = 0, count = 0;  // the number of this shard, from 1, and of all
  bool operator==(const ShardStamp&) const = default;  // true for the same shard of the same plan
};
Value ToValue(const ShardStamp& stamp);
// Finds the stamp among the attributes of a file; nullopt if there is none of that form.
std::optional<ShardStamp> FindShardStamp(const Value::Map& attributes);

// The digests that a whole shard may have, and the file beside it that holds one: "FILE.xxh3".
inline constexpr DigestKind kFileDigests[] = {DigestKind::kXxh3, DigestKind::kSha256};
std::string DigestPath(const std::string& path, DigestKind kind);
// True for the name of the digest of a shard: "model-00001-of-00008.zt.xxh3".
bool IsDigestOfShard(std::string_view name);

// Opens shards as one source: a *.zt.index.json, or its folder. Checks the same as OpenShards, and
// that each shard has the plan of the index, if the index states one.
StatusOr<std::unique_ptr<TensorSource>> OpenZtShards(const std::string& path,
                                                     const InputOptions& options = {});

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::zt_source::internal {

// OpenZt, with the stamp as a result.
StatusOr<std::unique_ptr<TensorSource>> OpenStamped(std::shared_ptr<ByteSource> bytes,
                                                    const InputOptions& options,
                                                    ShardFinder find_shard,
                                                    const std::string& digest,
                                                    std::optional<ShardStamp>* stamp);

inline constexpr std::size_t kIndexBytes = 8;
// Reads whole elements of a stored component as u64. `offset` counts bytes of the widened elements.
// kDataLoss for a negative index.
Status ReadWidened(const Reader& reader, ComponentId stored, std::uint64_t offset,
                   std::span<std::byte> out);

}  // namespace zt::zt_source::internal
