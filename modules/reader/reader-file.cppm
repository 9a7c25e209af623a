// zt.reader:file — an open .zt file: its manifest, and ranges of its components.
export module zt.reader:file;

import zt.std;
import zt.compress;
import zt.core;
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
// The path that a shard has beside the root at `path` by its name: on a server, the only one.
std::string ShardPath(const std::string& path, const StoredShard& shard);

// Options for opening a Reader.
struct OpenOptions {
  ShardFinder find_shard = {};  // for a root; a shard is opened at its first read
};

class Reader;

}  // namespace zt

// Shared by the units of the module, not exported.
namespace zt::reader::internal {

// Makes the source that the reader reads, of the file followed by its shards.
using Observe = std::function<std::shared_ptr<ByteSource>(std::shared_ptr<ByteSource>)>;
// Opens a reader that reads what `observe` makes. It maps nothing, and leaves the digests of shards
// to those who observe.
StatusOr<std::unique_ptr<Reader>> OpenObserved(std::shared_ptr<ByteSource> bytes,
                                               const OpenOptions& options, const Observe& observe);

}  // namespace zt::reader::internal

export namespace zt {

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
  // (ContainerTraits::loose_bools); in others such a bool is kDataLoss. A compressed component with
  // a seek table serves any range by decoding only the frames it touches. Without one, or with
  // frames of more than 16 MiB (Access::sequential), ranges should ascend: going back, like an
  // error, restarts decoding. Does not check digests of components: see Verify. kUnimplemented if
  // StoredComponent::undecodable gives a reason.
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
  Status ReadUnnamed(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  Status ReadDecoded(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const;
  StatusOr<std::span<const std::byte>> MapWhole(ComponentId id) const;
  // Offsets at which to split a component of `bytes` for several threads: 0, ..., bytes.
  StatusOr<std::vector<std::uint64_t>> Cuts(ComponentId id, std::uint64_t bytes) const;

  friend StatusOr<std::unique_ptr<Reader>> reader::internal::OpenObserved(
      std::shared_ptr<ByteSource> bytes, const OpenOptions& options,
      const reader::internal::Observe& observe);

  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zt
