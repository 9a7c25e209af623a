// zt.reader:checks — what verification and the source check of a file. Internal.
module zt.reader:checks;

import zt.std;
import :file;
import :verify;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

namespace zt::reader::internal {

// True if the frames can be decoded one by one. A stream with a frame of more than 16 MiB of
// content, or of more stored bytes than that much can need, is decoded in order instead: so a
// forged table costs no memory, and the memory of a reader with several threads stays bounded.
bool CanReadByFrame(const Codec& codec, std::span<const Frame> frames);

// The file followed by its shards. Sets StoredShard::begin, and moves the offsets in shards.
StatusOr<std::shared_ptr<ByteSource>> JoinShards(std::shared_ptr<ByteSource> file,
                                                 Manifest& manifest, ShardFinder find);
// The digest of shard `index` of the manifest. `joined` comes from JoinShards, or wraps such a
// source. A file that serves as several shards is read once.
StatusOr<std::string> DigestOfShard(ByteSource& joined, const StoredShard& shard, std::size_t index,
                                    DigestKind kind);
// kDataLoss if `found` differs from the digest in the root.
Status CompareDigest(const StoredShard& shard, const DigestText& stated, const std::string& found);

// Check the file as a whole: the bytes outside of blobs, and the shards, or those that have bytes of
// one object. Errors go to `wrong`,
// other results to the report, numbers of unreadable shards to `missing`.
Status CheckGaps(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong);
Status CheckShards(const Reader& reader, std::optional<std::uint32_t> object, VerifyReport& report,
                   std::vector<std::string>& wrong, std::set<std::uint32_t>& missing);

VerifyProblem ProblemOf(const Status& status, std::string_view object, std::string component = "");
Status CheckCanonical(const Reader& reader, std::uint64_t unreferenced_bytes,
                      std::vector<VerifyProblem>& wrong);

inline constexpr std::size_t kIndexBytes = 8;
// Reads whole elements of a stored component as u64. `offset` counts bytes of the widened elements.
// kDataLoss for a negative index.
Status ReadWideIndices(const Reader& reader, ComponentId stored, std::uint64_t offset,
                       std::span<std::byte> out);

// Checks the rules of 2.0 about the indices of sparse objects: those of a row ascend, no cell
// occurs twice. Indices and row pointers that objects share are read once. Takes at most about
// twice `memory_bytes`; `reader` must outlive it. Not thread-safe.
class IndexChecker {
 public:
  IndexChecker(const Reader& reader, std::uint64_t memory_bytes);
  // OK for other versions and objects. kDataLoss if a rule is broken, kUnimplemented if the memory
  // is too little, else an error of Reader::Read. Assumes that indices are in range.
  Status Check(std::uint32_t object);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Checks all sparse objects, or only one, but those in `bad` and in shards in `missing`. Takes about
// twice `memory_bytes`. Errors go to `wrong`, what could not be checked to the report.
Status CheckSparse(const Reader& reader, std::optional<std::uint32_t> only,
                   const std::set<std::uint32_t>& bad, const std::set<std::uint32_t>& missing,
                   std::uint64_t memory_bytes, VerifyReport& report,
                   const std::function<void(std::uint32_t object, VerifyProblem what)>& wrong);

}  // namespace zt::reader::internal
