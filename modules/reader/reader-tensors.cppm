// zt.reader:tensors — a .zt file of any version as a source, so that upgrading, merging and
// filtering are ordinary conversions.
export module zt.reader:tensors;

import zt.std;
import :file;
import zt.core;
import zt.digest;
import zt.source;

export namespace zt {

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

// What is known of a .zt file besides its bytes.
struct ZtOrigin {
  ShardFinder find_shard = {};                 // of a root
  std::string digest = {};                     // of the whole file, if an index states one
  std::optional<ShardStamp>* stamp = nullptr;  // if not null, set to the stamp that it has
};

// Opens a .zt file. Objects keep their format, attributes and logical types; components
// are served decoded and little-endian. Differences from the file:
//   - objects and components come in the order of their bytes, not of the manifest;
//   - indices of sparse_csr and sparse_coo are widened to u64, unless InputOptions::u32_indices
//     keeps u32; a negative index is kDataLoss;
//   - the single blob of a sparse 0.1.0 entry becomes the components of sparse_csr or sparse_coo
//     (see sparse_0_1.cc); an entry without a description of its structure is kUnimplemented.
// Bytes with a digest are checked as they pass, so that reading a whole component either yields the
// bytes that were written or fails with kDataLoss. A digest of an unknown algorithm is a warning.
// An object with an unknown layout, type or encoding is listed and cannot be read (CheckReadable).
// The digest of a whole file, and of each shard that a root names, is its identity (2.0 §7.1). If
// any bytes of such a file are read, they are hashed as they pass, and Finish hashes the remaining
// ones: kDataLoss if it is another file. Opening and listing hash nothing.
// The stamp of a shard (kShardAttribute) is not an attribute of the source, because it holds only
// for that file.
// InputOptions::as_stored leaves out all of that: the file as its manifest says.
StatusOr<std::unique_ptr<TensorSource>> OpenZt(std::shared_ptr<ByteSource> bytes,
                                               const InputOptions& options = {},
                                               const ZtOrigin& origin = {});
// The reader of a source that is, or wraps, a .zt file that was opened with as_stored; else null.
const Reader* ReaderOf(const TensorSource& source);

}  // namespace zt

// Shared by the units of the module, not exported.
namespace zt::reader::internal {

// OpenZt with as_stored.
StatusOr<std::unique_ptr<TensorSource>> OpenAsStored(std::shared_ptr<ByteSource> bytes,
                                                     const ZtOrigin& origin);

}  // namespace zt::reader::internal
