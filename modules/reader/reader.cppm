// zt.reader — opens .zt files of every version: checks them, reads and maps ranges, verifies.
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
  bool sequential = false;        // ranges should ascend (see Reader::Read)
  std::uint64_t frame_bytes = 0;  // content of a frame, of which ranges should be whole; 0: any
};

// Finds the file that a root names as a shard (2.0 §7), of its size and with a footer of 2.0.
using ShardFinder = std::function<StatusOr<std::shared_ptr<ByteSource>>(const StoredShard& shard)>;
// Looks beside the root, ROOT.zt: for ROOT-NAME.zt, then for a file of the shard's size and digest.
ShardFinder ShardsBeside(const std::string& path, const InputOptions& options = {});

// Options for opening a Reader.
struct OpenOptions {
  ShardFinder find_shard = {};  // for a root; a shard is opened at its first read
  // Wraps the bytes of the file, followed by its shards, in the source that the reader then reads:
  // for a source that observes the reads.
  std::function<std::shared_ptr<ByteSource>(std::shared_ptr<ByteSource>)> wrap = {};
  // The digest of a shard is its identity (2.0 §7.1): Read hashes a whole shard before it returns
  // bytes of it. Set it to false if the caller checks digests itself while reading.
  bool check_shards = true;
};

// An open .zt file (zTensor 1.2 §5). Opening reads header, footer and manifest and validates all of
// them (CheckLayout) before any data is used. Thread-safe once open.
//
// Errors of a reader opened by path name the file, and the tensor if one is affected. A reader of
// bytes names neither if the caller passed an id, as TensorSource does, because the caller knows
// both. Exceptions of the byte source become errors.
class Reader {
 public:
  // kDataLoss if the file breaks a rule of its version; kUnimplemented for a newer major version
  // and for a data shard of 2.0, which cannot be read without its root. Shards are looked for in
  // the folder of the file.
  static StatusOr<std::unique_ptr<Reader>> Open(const std::string& path);
  // Opens any ByteSource that is not sequential; a pipe is kUnimplemented.
  static StatusOr<std::unique_ptr<Reader>> Open(std::shared_ptr<ByteSource> bytes,
                                                const OpenOptions& options = {});
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The validated manifest.
  const Manifest& manifest() const;
  // The entry in manifest(). `id` must be valid here; all other functions return kInvalidArgument
  // for an invalid id.
  const StoredComponent& component(ComponentId id) const;
  // The files among its objects (ListFiles): those that Find finds as "__meta__/files/config.json".
  std::vector<FileEntry> files() const;
  // The index of the object with this name in manifest().objects.
  std::optional<std::uint32_t> Find(std::string_view name) const;
  // The id of the component with this role or, without a role, of the only component of the object.
  // kInvalidArgument if there is none.
  StatusOr<ComponentId> Locate(std::string_view name, std::string_view role = {}) const;
  // The file, followed by its shards (StoredShard::begin); and the path it was opened by, empty if
  // it was opened from bytes.
  ByteSource& bytes() const;
  const std::string& path() const;
  std::uint64_t data_end() const;  // no blob of the file itself ends after it

  // The component's decoded size. If the manifest leaves it open (1.1 and 0.1 zstd whose shape does
  // not determine it), it is read from the seek table, or counted by decoding once.
  StatusOr<std::uint64_t> DecodedBytes(ComponentId id) const;

  // Reads decoded bytes of a component from `offset`, little-endian: decompressed, byte-swapped if
  // the file is big-endian, and with nonzero bools set to 1 in a version that allows others
  // (ContainerTraits::loose_bools); in others such a bool is kDataLoss. A compressed component with a seek table serves any range by
  // decoding only the frames it touches. Without one, or with frames of more than 16 MiB
  // (Access::sequential), ranges should ascend: going back, like an error, restarts decoding. Does
  // not check digests of components: see Verify. kUnimplemented if StoredComponent::undecodable
  // gives a reason.
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  // Reads the whole component with several threads, in frames, or in ranges if it is raw; 0 threads
  // means UsableThreads(). `out` must have DecodedBytes(id).
  Status ReadAll(ComponentId id, std::span<std::byte> out, unsigned threads = 0) const;
  // Reads the whole component as numbers, by name (see Locate): Read<float>("lm_head.weight").
  // kInvalidArgument unless T matches the dtype. Ignores a logical type: complex64 is read as pairs
  // of float, f8 and bool as std::uint8_t.
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
  // Reads values `first` to `first` + out.size() of a component, by name and for the same T.
  // kInvalidArgument if they lie beyond its end.
  template <Element T>
    requires(!std::same_as<T, bool>)
  Status ReadRange(std::string_view name, std::uint64_t first, std::span<T> out,
                   std::string_view role = {}) const {
    return ReadRangeAs(name, role, *kDTypeOf<T>, first, std::as_writable_bytes(out));
  }
  // How ranges of a component are best read. Reads the seek table of a compressed component.
  StatusOr<Access> FindAccess(ComponentId id) const;
  // The frames of a compressed component, in order, from its seek table. Empty for a raw component,
  // and if the stream has to be read in order.
  StatusOr<std::vector<Frame>> Frames(ComponentId id) const;

  // The bytes of a raw little-endian component in memory, mapped on first use and valid as long as
  // the reader: those of the file that was opened, whatever has its name by now. If the file
  // shrinks while mapped, access kills the process (SIGBUS); Read returns an error instead.
  StatusOr<std::span<const std::byte>> Map(ComponentId id) const;
  // OK if Map can map the component. Errors name neither file nor tensor.
  Status CheckMappable(ComponentId id) const;
  // Maps the component as numbers, by name, for the same T as Read. kFailedPrecondition if the
  // bytes are not aligned for T.
  template <Element T>
    requires(!std::same_as<T, bool>)
  StatusOr<std::span<const T>> Map(std::string_view name, std::string_view role = {}) const {
    const auto bytes = MapAs(name, role, *kDTypeOf<T>, alignof(T));
    if (!bytes.ok()) return bytes.status();
    return std::span(reinterpret_cast<const T*>(bytes->data()), bytes->size() / sizeof(T));
  }

 private:
  // Allocates space for `count` values and returns it.
  using MakeRoom = std::function<std::span<std::byte>(std::uint64_t count)>;
  Status ReadAs(std::string_view name, std::string_view role, DType dtype,
                const MakeRoom& room) const;
  Status ReadRangeAs(std::string_view name, std::string_view role, DType dtype, std::uint64_t first,
                     std::span<std::byte> out) const;
  StatusOr<std::span<const std::byte>> MapAs(std::string_view name, std::string_view role,
                                             DType dtype, std::size_t alignment) const;
  StatusOr<ComponentId> LocateAs(std::string_view name, std::string_view role, DType dtype) const;
  Status Named(ComponentId id, const Status& status) const;
  Status Named(std::string_view name, const Status& status) const;
  // The public functions without names in errors.
  Status ReadRange(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  Status ReadDecoded(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  StatusOr<std::span<const std::byte>> MapWhole(ComponentId id) const;
  // Offsets at which to split a component of `bytes` for several threads: 0, ..., bytes.
  StatusOr<std::vector<std::uint64_t>> Cuts(ComponentId id, std::uint64_t bytes) const;

  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// ---- rules of data ------------------------------------------------------------------------------

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

// ---- sparse entries of 0.1.0 --------------------------------------------------------------------

// How to extract a component from the single blob of a sparse entry, which mixes values and
// indices.
struct MixedPart {
  enum class Kind : std::uint8_t {
    kRange,   // a range of the blob, from `base`
    kCoords,  // the indices of interleaved entries, dimension by dimension
    kValues,  // the values of interleaved entries
  };
  Kind kind = Kind::kRange;
  std::uint64_t base = 0;
  std::uint64_t entries = 0;  // number of interleaved entries
};
// The sparse_csr or sparse_coo object that such an entry stands for.
struct MixedObject {
  Object object = {};
  std::vector<MixedPart> parts = {};  // one for each component
};
// True if the object is such an entry.
bool IsMixed(const Reader& reader, std::uint32_t object);
// Splits such an entry into components. kDataLoss if its blob has another size than they,
// kUnimplemented if its structure is not described.
StatusOr<MixedObject> TakeApart(const Reader& reader, std::uint32_t object);
// Reads whole elements of a component from byte `offset`. Indices may be out of range.
Status ReadMixed(const Reader& reader, std::uint32_t object, const MixedObject& mixed,
                 std::uint32_t component, std::uint64_t offset, std::span<std::byte> out);

// ---- verification -------------------------------------------------------------------------------

// Options of Verify.
struct VerifyOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // limit on data in flight, see MemoryFor
  // Called with the stored bytes verified so far, in ascending order, by one thread at a time.
  std::function<void(std::uint64_t stored_bytes, std::uint64_t total)> progress = {};
  bool canonical = false;  // require the canonical form of the version (2.0 §6.3)
  // Verify returns kCancelled soon after it becomes true, but only while it reads components.
  const std::atomic<bool>* cancelled = nullptr;
};

// A finding about a file: an error, or a check that was not made. Names are raw: quote them when
// printing.
struct VerifyProblem {
  std::string object;     // name, cut by Repeated; empty if it concerns the file
  std::string component;  // role; empty if it concerns the object
  std::string message;    // one line
};

// The result of Verify.
struct VerifyReport {
  std::vector<VerifyProblem> problems;  // empty if the file is valid
  // Components with an unknown digest algorithm; the message is its name.
  std::vector<VerifyProblem> unverified;
  std::uint64_t objects = 0;     // in the file
  std::uint64_t components = 0;  // in the file
  std::uint64_t digests = 0;     // checked
  // Components whose content was compared with no digest: they have none, or an unknown algorithm
  // or encoding. Only the rules of their type were checked.
  std::uint64_t unhashed = 0;
  std::uint64_t stored_bytes = 0;   // bytes read, shared blobs counted once
  std::uint64_t decoded_bytes = 0;  // their decoded size
  // Bytes outside of blobs, counted in each gap from the first nonzero byte to the last, in
  // versions whose readers ignore them: remains of earlier generations, or padding that is not zero
  // (2.0 §2.4, §2.5).
  std::uint64_t unreferenced_bytes = 0;
  // Components that cannot be decoded, with the reason; of several of an object for one reason, the
  // object. The digest of a raw one was still checked.
  std::vector<VerifyProblem> undecodable;
  // Objects with a rule that would take too much memory, and was not checked, with the amount.
  std::vector<VerifyProblem> unchecked;
};

// Reads every byte and checks: padding is zero, digests match, streams decode to exactly the
// declared size, bool bytes are 0 or 1, sparse indices are in range, row pointers ascend, shards
// have their size and digest. Damage to data without a digest may go unnoticed: see `unhashed`.
// Fails only if the file cannot be read, or with kInvalidArgument if options are out of range.
StatusOr<VerifyReport> Verify(const Reader& reader, const VerifyOptions& options = {});

}  // namespace zt

// Shared by the units of the module, not exported.
namespace zt::reader::internal {

// True if the frames can be decoded one by one. A stream with a frame of more than 16 MiB of
// content, or of more stored bytes than that much can need, is decoded in order instead: so a
// forged table costs no memory, and the memory of a reader with several threads stays bounded.
bool CanReadByFrame(const Codec& codec, std::span<const Frame> frames);

// True for the layouts of 0.1.0 that store values and indices in one blob.
bool IsMixedLayout(std::string_view format);

// The file followed by its shards. Sets StoredShard::begin, and moves the offsets in shards.
StatusOr<std::shared_ptr<ByteSource>> JoinShards(std::shared_ptr<ByteSource> file,
                                                 Manifest& manifest, ShardFinder find);
// The digest of shard `index` of the manifest. `joined` comes from JoinShards, or wraps such a
// source. A file that serves as several shards is read once.
StatusOr<std::string> DigestOfShard(ByteSource& joined, const StoredShard& shard, std::size_t index,
                                    DigestKind kind);
// kDataLoss if `found` differs from the digest in the root.
Status CompareDigest(const StoredShard& shard, const DigestText& stated, const std::string& found);

// Check the file as a whole: the bytes outside of blobs, and the shards. Errors go to `wrong`,
// other results to the report, numbers of unreadable shards to `missing`.
Status CheckGaps(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong);
Status CheckShards(const Reader& reader, VerifyReport& report, std::vector<std::string>& wrong,
                   std::set<std::uint32_t>& missing);

VerifyProblem ProblemOf(const Status& status, std::string_view object, std::string component = "");
Status CheckCanonical(const Reader& reader, std::uint64_t unreferenced_bytes,
                      std::vector<VerifyProblem>& wrong);

// Equal for components with the same stored bytes, decoded in the same way.
InlinedVector<std::uint64_t, 16> KeyOf(const StoredComponent& component);

using AddProblem = std::function<void(std::uint32_t object, VerifyProblem what)>;

// Checks the parts of mixed blobs (0.1.0). Skips objects in `bad`. Entries of unknown structure go to
// `undecodable`.
Status CheckMixed(const Reader& reader, const std::set<std::uint32_t>& bad, const AddProblem& wrong,
                  std::vector<VerifyProblem>& undecodable);

// Checks what IndexChecker does. Skips objects in `bad` and shards in `missing`. Objects that need
// too much memory go to `unchecked`.
Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const AddProblem& wrong, std::vector<VerifyProblem>& unchecked);

}  // namespace zt::reader::internal
