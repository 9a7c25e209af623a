// zt.reader — opens .zt files of every version: checks first, then ranges, mapped views and verification.
export module zt.reader;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.source;

export namespace zt {

// How ranges of a component are best read.
struct Access {
  bool sequential = false;  // in ascending order (see Reader::Read)
  std::uint64_t frame_bytes =
      0;  // whole frames of so many bytes of content; 0 where it does not matter
};

// Finds the bytes of a file that a root names as a shard (2.0 §7): of the size that it states, with a 2.0 footer.
using ShardFinder = std::function<StatusOr<std::shared_ptr<ByteSource>>(const StoredShard& shard)>;
// Beside the root at `path`, ROOT.zt: ROOT-NAME.zt, or else any file of the folder with the shard's size and digest.
ShardFinder ShardsBeside(const std::string& path, const InputOptions& options = {});

// What else a Reader may be told.
struct OpenOptions {
  ShardFinder find_shard =
      {};  // where the shards of a root are; a shard is opened when it is read first
  // Given the bytes of the file, and of its shards behind them, returns what is read in their place: a source that
  // looks at what passes.
  std::function<std::shared_ptr<ByteSource>(std::shared_ptr<ByteSource>)> wrap = {};
  // The digest of a shard is its identity (2.0 §7.1): Read hashes all of a shard before it returns the first bytes of it.
  // False for a caller that checks the digests itself, as the bytes pass.
  bool check_shards = true;
};

// An open .zt file (zTensor 1.2 §5). Opening reads header, footer and manifest and checks all that they say
// (CheckLayout), before any byte of data is used. Thread-safe once open.
//
// Errors of a reader that was opened by its path name the file, and the tensor where it is one's. Those of a reader of
// bytes name neither where the caller gave an id and knows both, as those of a TensorSource. What the bytes' own code
// throws is an error, too.
class Reader {
 public:
  // kDataLoss where the file breaks a rule of its version, kUnimplemented for a newer major version and for a data shard
  // of 2.0, which says nothing of itself. Shards are looked for beside the file.
  static StatusOr<std::unique_ptr<Reader>> Open(const std::string& path);
  // The same from bytes of any kind that can be read by offset; a pipe is kInvalidArgument.
  static StatusOr<std::unique_ptr<Reader>> Open(std::shared_ptr<ByteSource> bytes,
                                                const OpenOptions& options = {});
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // What the file says of itself, checked.
  const Manifest& manifest() const;
  // Short for the entry in manifest(). `id` must be one of its indices; everywhere else another id is kInvalidArgument.
  const StoredComponent& component(ComponentId id) const;
  // The files among its objects (ListFiles): those that Find finds as "__meta__/files/config.json".
  std::vector<FileEntry> files() const;
  // The index of the object with this name in manifest().objects.
  std::optional<std::uint32_t> Find(std::string_view name) const;
  // The id of a component by names: that with this role, or, without one, the object's only one. kInvalidArgument where
  // there is none.
  StatusOr<ComponentId> Locate(std::string_view name, std::string_view role = {}) const;
  // The file, with its shards behind it (StoredShard::begin), and the path it was opened by: empty where it was opened
  // from bytes.
  ByteSource& bytes() const;
  const std::string& path() const;
  std::uint64_t data_end() const;  // no blob of the file itself reaches further

  // The component's decoded size. Where the version leaves it open (1.1 and 0.1 zstd whose shape does not tell), it
  // is that of the seek table, or else counted by decoding once.
  StatusOr<std::uint64_t> DecodedBytes(ComponentId id) const;

  // Decoded bytes of a component from `offset`, little-endian: decompressed, swapped where the file is big-endian, and 1
  // where a bool of a version that has others (ContainerTraits::loose_bools) is not 0.
  // A compressed component with a seek table serves any range by decoding only the frames it touches; without one, or
  // with frames beyond 16 MiB (Access::sequential), ranges must ascend, or decoding begins anew; so it does after an
  // error. Digests are not checked here: see Verify. kUnimplemented where StoredComponent::undecodable says why not.
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  // The whole component: frames, or ranges of a raw one, by several threads at once;
  // 0 means UsableThreads(). `out` has DecodedBytes(id).
  Status ReadAll(ComponentId id, std::span<std::byte> out, unsigned threads = 0) const;
  // The same as numbers, by name (see Locate): Read<float>("lm_head.weight"). T must be of the component's dtype;
  // kInvalidArgument otherwise. A logical type is not looked at:
  // complex64 is read as pairs of float, f8 and bool as std::uint8_t.
  template <Element T>
    requires(!std::same_as<T, bool>)
  StatusOr<std::vector<T>> Read(std::string_view name, std::string_view role = {}) const {
    std::vector<T> values;
    const Status status = ReadAs(name, role, *kDTypeOf<T>, [&values](std::uint64_t count) {
      values.resize(count);
      return std::as_writable_bytes(std::span(values));
    });
    if (!status.ok()) return status;
    return values;
  }
  // How ranges of a component are best read. Reads the seek table of a compressed one.
  StatusOr<Access> FindAccess(ComponentId id) const;
  // The frames of a compressed component, in order, as its seek table says. None of a raw one, and where the stream has to
  // be read in order.
  StatusOr<std::vector<Frame>> Frames(ComponentId id) const;

  // The bytes of a raw little-endian component in memory, mapped on first use and valid as long as the reader. A file
  // that shrinks while mapped kills the process (SIGBUS); Read does not.
  StatusOr<std::span<const std::byte>> Map(ComponentId id) const;
  // The same as numbers, by name, for the same T as Read. kFailedPrecondition where they do not lie as T is aligned.
  template <Element T>
    requires(!std::same_as<T, bool>)
  StatusOr<std::span<const T>> Map(std::string_view name, std::string_view role = {}) const {
    const auto bytes = MapAs(name, role, *kDTypeOf<T>, alignof(T));
    if (!bytes.ok()) return bytes.status();
    return std::span(reinterpret_cast<const T*>(bytes->data()), bytes->size() / sizeof(T));
  }

 private:
  // Where the values of a component go, once their number is known.
  using MakeRoom = std::function<std::span<std::byte>(std::uint64_t count)>;
  Status ReadAs(std::string_view name, std::string_view role, DType dtype,
                const MakeRoom& room) const;
  StatusOr<std::span<const std::byte>> MapAs(std::string_view name, std::string_view role,
                                             DType dtype, std::size_t alignment) const;
  StatusOr<ComponentId> LocateAs(std::string_view name, std::string_view role, DType dtype) const;
  Status Named(ComponentId id, const Status& status) const;
  Status Named(std::string_view name, const Status& status) const;
  // The bodies of the calls of the same names, without names in errors.
  Status ReadRange(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  Status ReadDecoded(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  StatusOr<std::span<const std::byte>> MapWhole(ComponentId id) const;
  // Where a component of `bytes` is best cut to be read by several threads: 0, ..., bytes.
  StatusOr<std::vector<std::uint64_t>> Cuts(ComponentId id, std::uint64_t bytes) const;

  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// ---- rules of data --------------------------------------------------------------------------------------------

// What 2.0 asks of the indices of a sparse object together: those of a row ascend, a cell is named once. OK where the version
// asks nothing, and of other objects. kDataLoss where it is broken; kUnimplemented where it was not looked at, because that
// would take more than `memory_bytes`. Errors are those of Reader::Read; each index is taken to be in range.
Status CheckIndices(const Reader& reader, std::uint32_t object, std::uint64_t memory_bytes);

// ---- sparse entries of 0.1.0 ----------------------------------------------------------------------------------

// How a component comes out of the one blob of a sparse entry, which mixes values and indices.
struct MixedPart {
  enum class Kind : std::uint8_t {
    kRange,   // so many of its bytes, from `base`
    kCoords,  // of interleaved entries: the indices, dimension by dimension
    kValues,  // of interleaved entries: the values
    kInline,  // `bytes`, which stood in the manifest
  };
  Kind kind = Kind::kRange;
  std::uint64_t base = 0;
  std::uint64_t entries = 0;  // interleaved: how many
  std::vector<std::byte> bytes = {};
};
// Such an entry as the sparse_csr or sparse_coo object that it stands for.
struct MixedObject {
  Object object = {};
  std::vector<MixedPart> parts = {};  // of each component
};
// Whether the object is one.
bool IsMixed(const Reader& reader, std::uint32_t object);
// Takes it apart. kDataLoss where its blob does not fit what it says, kUnimplemented where nothing describes its structure.
StatusOr<MixedObject> TakeApart(const Reader& reader, std::uint32_t object);
// Whole elements of a component, from the one at byte `offset`. kDataLoss where an index is beyond its dimension.
Status ReadMixed(const Reader& reader, std::uint32_t object, const MixedObject& mixed,
                 std::uint32_t component, std::uint64_t offset, std::span<std::byte> out);

// ---- verification ---------------------------------------------------------------------------------------------

// How Verify works.
struct VerifyOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // for chunks under way, see MemoryFor
  // Called with the bytes done, by one thread at a time, in ascending order.
  std::function<void(std::uint64_t stored_bytes, std::uint64_t total)> progress = {};
  bool canonical = false;  // the file has to be in its version's canonical form (2.0 §6.3)
};

// One thing that is wrong with a file, or that was not looked at. Names are raw: to be quoted where they are printed.
struct VerifyProblem {
  std::string object;     // its name, empty where it is the file's
  std::string component;  // its role, empty where it is the object's
  std::string message;    // what is wrong, in one line
};

// What Verify found.
struct VerifyReport {
  std::vector<VerifyProblem> problems;  // empty: the file is good
  // Components whose digest algorithm is unknown, with its name as the message.
  std::vector<VerifyProblem> unverified;
  std::uint64_t objects = 0;     // in the file
  std::uint64_t components = 0;  // in the file
  std::uint64_t digests = 0;     // checked
  // Components whose content no digest was compared with: they have none, one of an algorithm that is not known, or an
  // encoding that is not. The rules of their type are all that was checked.
  std::uint64_t unhashed = 0;
  std::uint64_t stored_bytes = 0;   // read, shared blobs once
  std::uint64_t decoded_bytes = 0;  // what they decoded to
  // Bytes that no blob covers, from the first to the last that is not zero of each gap, in a version whose readers pass over
  // them: what earlier generations left, or padding that was not written as zeros (2.0 §2.4, §2.5).
  std::uint64_t unreferenced_bytes = 0;
  // Components that are listed and cannot be decoded, with the reason; their bytes match their digest where they are raw.
  std::vector<VerifyProblem> undecodable;
  // Objects with a rule that was not looked at, because that would take too much memory, and what would be needed.
  std::vector<VerifyProblem> unchecked;
};

// Reads every byte: padding is zero, digests match the bytes they cover, zstd streams decode to exactly the declared size,
// bool bytes are 0 or 1, sparse indices are in range and row pointers ascend, shards have their size and digest. What a file
// has no digest for can be damaged all the same: see VerifyReport::unhashed. Fails
// only where the file cannot be read, and with kInvalidArgument where the options are out of range; what is wrong with the
// file is in the report.
StatusOr<VerifyReport> Verify(const Reader& reader, const VerifyOptions& options = {});

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::reader::internal {

// A seek table may promise frames of up to 4 GiB. Beyond 16 MiB of content, or of more stored bytes than so much content
// needs, the stream is decoded in order instead: a lie then costs no memory, and the memory of a reader with several
// threads stays bounded.
bool CanReadByFrame(const Codec& codec, std::span<const Frame> frames);

// Whether a layout of 0.1.0 has values and indices in one blob.
bool IsMixedLayout(std::string_view format);

// The file with its shards behind it. Sets StoredShard::begin, and moves the offsets of the components in shards.
StatusOr<std::shared_ptr<ByteSource>> JoinShards(std::shared_ptr<ByteSource> file,
                                                 Manifest& manifest, ShardFinder find);
// The digest of shard `index` of the manifest, in a file that JoinShards has made or something around it. A file that is
// several shards is read once.
StatusOr<std::string> DigestOfShard(ByteSource& joined, const StoredShard& shard, std::size_t index,
                                    DigestKind kind);
// kDataLoss where `found` is not the digest that the root states for the shard.
Status CompareDigest(const StoredShard& shard, const DigestText& stated, const std::string& found);

// Of the file as a whole: what its bytes outside of blobs are, and whether its shards are what it says. What is wrong is
// added to `wrong`, the rest to the report, the numbers of shards that cannot be read to `missing`.
Status CheckGaps(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong);
Status CheckShards(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong,
                   std::set<std::uint32_t>& missing);

// An error as a finding: of the component that it names, or of `component`.
VerifyProblem ProblemOf(const Status& status, std::string object, std::string component = "");

// What keeps a file from being canonical (2.0 §6.3): its bytes are compared with those that it would have.
Status CheckCanonical(const Reader& reader, std::uint64_t unreferenced_bytes,
                      std::vector<VerifyProblem>& wrong);

// The rules of the components that the blobs of sparse entries of 0.1.0 mix, of objects that are not `bad` already. What is
// broken goes to `wrong`, what cannot be taken apart to `undecodable`.
Status CheckMixed(const Reader& reader, const std::set<std::uint32_t>& bad,
                  const std::function<void(std::uint32_t object, VerifyProblem what)>& wrong,
                  std::vector<VerifyProblem>& undecodable);

// The rules of CellFacts, of objects that are not `bad` already, can be decoded, and lie in no shard that is `missing`. What
// is broken goes to `wrong`, what the memory does not suffice for to `unchecked`.
Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const std::function<void(std::uint32_t object, VerifyProblem what)>& wrong,
                   std::vector<VerifyProblem>& unchecked);

}  // namespace zt::reader::internal
