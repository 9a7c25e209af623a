// zt.convert.zt — a .zt file of any version as a source: upgrading, merging and filtering are conversions like others.
export module zt.convert.zt;

import zt.std;
import zt.convert.shards;
import zt.core;
import zt.reader;
import zt.source;

export namespace zt {

// Opens a .zt file; `find_shard` says where the shards of a root are, `digest` is that of the whole file where an index names
// one. Objects keep their format, attributes and logical types; components are served decoded and
// little-endian. What differs from the file:
//   - objects and components come in the order of their bytes, not of the manifest;
//   - indices of sparse_csr and sparse_coo are widened to u64, unless InputOptions::u32_indices keeps u32; a negative
//     index is kDataLoss;
//   - the one blob of a sparse 0.1.0 entry becomes the components of sparse_csr or sparse_coo (see TakeApart); an entry
//     whose structure nothing describes is kUnimplemented.
// The bytes that a digest covers are checked against it as they pass, so that reading a component whole either yields what was
// written or fails with kDataLoss. A digest of an unknown algorithm is a warning. An object of a layout, a type or an
// encoding that is not known is listed and cannot be read (CheckReadable).
// The digest of a whole file, and of each shard that a root names, is its identity (2.0 §7.1). A file of which any bytes are
// read is hashed as they pass, and what has not passed by then at Finish: kDataLoss where it is another file. Opening and
// listing hash nothing.
// What a file says of itself as a shard (kShardAttribute) is no attribute of the source: it holds for that file alone.
StatusOr<std::unique_ptr<TensorSource>> OpenZt(std::shared_ptr<ByteSource> bytes,
                                               const InputOptions& options = {},
                                               ShardFinder find_shard = {},
                                               const std::string& digest = {});

// The most shards of one conversion: what five digits count.
inline constexpr std::uint64_t kMaxShards = 99'999;
// What a file that is one of several says of itself, in this attribute: a map of plan, shard and shards.
inline constexpr std::string_view kShardAttribute = "ztstream.shard";
struct ShardStamp {
  std::string plan;                     // the digest of the plan that all shards are of
  std::uint64_t number = 0, count = 0;  // this one of so many, from 1
  bool operator==(const ShardStamp&) const = default;  // the same shard of the same plan
};
Value ToValue(const ShardStamp& stamp);
// The stamp among a file's attributes; nullopt where there is none of that form.
std::optional<ShardStamp> FindShardStamp(const Value::Map& attributes);

// Shards as one source: a *.zt.index.json, or the folder it lies in. Besides what OpenShards checks, each shard has to
// be of the index's plan, where the index names one.
StatusOr<std::unique_ptr<TensorSource>> OpenZtShards(const std::string& path,
                                                     const InputOptions& options = {});

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::zt_source::internal {

// OpenZt, which hands over the stamp that it leaves out.
StatusOr<std::unique_ptr<TensorSource>> OpenStamped(std::shared_ptr<ByteSource> bytes,
                                                    const InputOptions& options,
                                                    ShardFinder find_shard,
                                                    const std::string& digest,
                                                    std::optional<ShardStamp>* stamp);

inline constexpr std::size_t kIndexBytes = 8;
// Whole elements of a stored component as u64, from the element at byte `offset` of what is served. kDataLoss for a negative
// one.
Status ReadWidened(const Reader& reader, ComponentId stored, std::uint64_t offset,
                   std::span<std::byte> out);

}  // namespace zt::zt_source::internal
