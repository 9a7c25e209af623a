// zt.source — where bytes come from: byte sources (:bytes), and TensorSource, the seam every input format implements.
export module zt.source;

import zt.std;
export import :bytes;
import zt.compress;
import zt.core;

export namespace zt {

// ---- tensors -------------------------------------------------------------------------------------------------

// Names one component of a TensorSource: indices into objects() and into that object's components.
struct ComponentId {
  std::uint32_t object = 0;                              // index into objects()
  std::uint32_t component = 0;                           // index into that object's components
  auto operator<=>(const ComponentId&) const = default;  // by object, then component
};

// How an input is opened, whatever its format: every converter takes all of it, and passes over what it has no use for.
struct InputOptions {
  // Shards, parts of a set, files of a folder and external data may be symbolic links that lead out of the folder, as in the
  // Hugging Face cache.
  bool follow_links = false;
  // Bytes that may be held at once where data has to be re-sorted, transposed, decoded as a whole or read from a pipe. Each
  // converter says what it counts.
  std::uint64_t memory_limit = std::uint64_t{64} << 20;
  // npy: what the elements of '|V1', '<V2', '<f1' arrays are (ml_dtypes' bfloat16 and fp8 lose their name in the file).
  // Nothing is guessed: without it such arrays are refused, and so is one whose width differs.
  std::optional<ElementType> void_type = std::nullopt;
  // npz: leaves the entries of a scipy sparse archive as the dense arrays they are.
  bool keep_sparse = false;
  // GGUF: accepts one shard of a split set by itself. Otherwise it is kDataLoss: tensors would be missing.
  bool allow_single_shard = false;
  // zt: sparse objects of a version that has u32 indices (Traits) keep them, for an output whose version has them too.
  bool u32_indices = false;
};

// Fails with kDataLoss where `name`, a file below `folder`, is or lies behind a symbolic link that leads out of the folder. For
// names that an index or a listing gives: what lies outside is read only where `options` allow it.
Status CheckStaysInside(const std::string& folder, const std::string& name,
                        const InputOptions& options);

// Where a component's declared bytes lie, unchanged, in a ByteSource: neighbouring extents are read with one call.
struct Extent {
  ByteSource* bytes = nullptr;                     // owned by the TensorSource
  std::uint64_t offset = 0;                        // of the first byte in `bytes`
  std::uint64_t length = 0;                        // in bytes
  bool operator==(const Extent&) const = default;  // the same bytes of the same source
};

// What tells components with the same bytes: of two that have equal identities the declared bytes are equal. They
// are tied weights and share one blob.
struct Identity {
  const void* space = nullptr;  // an address of the source's, which keeps its numbers from others'
  std::uint64_t value = 0;      // the source's own number for these bytes: an offset, an index
  std::uint64_t length = 0;     // of the declared bytes
  auto operator<=>(const Identity&) const =
      default;  // by space, value, length; the order means nothing
};

// The stream of a codec that a component is stored as. Its frames can be copied to another file without being decoded.
struct EncodedStream {
  Encoding encoding = Encoding::kRaw;  // the codec's
  CodecParameters parameters = {};     // what that has to know of the component
  // Where the stream lies. `bytes` is null where it cannot be copied, because it holds something else than the declared
  // bytes: an index that is widened as it is read.
  Extent extent = {};
  // A digest of the stored bytes is compared as they pass: damage is found without decoding.
  bool guarded = false;
};

// An input: declarations first, then the bytes of each component by range. Everything format-specific is hidden
// here; what Read serves is exactly the declared component, little-endian and in C order.
//
// Derived classes fill the protected members before the source is handed out; afterwards they do not change.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // What there is, in the order the bytes lie in the input (the order in which a sequential source must be read).
  inline const std::vector<Object>& objects() const { return objects_; }
  // Attributes of the whole file, for the manifest's root.
  inline const Value::Map& attributes() const { return attributes_; }
  // One line each, for the user: what was ignored or looks wrong but does no harm.
  inline const std::vector<std::string>& warnings() const { return warnings_; }
  // Adds a warning; before the source is handed out.
  inline void AddWarning(std::string line) { warnings_.push_back(std::move(line)); }
  // The file (or "standard input") that holds this component, for messages. Set by whoever opened it. A source without
  // components is asked for {} too.
  virtual const std::string& file(ComponentId) const { return file_; }
  // Names the file; before the source is handed out.
  inline void SetFile(std::string name) { file_ = std::move(name); }
  // The input format's name, as --from spells it: "safetensors", "npy", "npz", "gguf", "zt".
  virtual std::string_view format() const = 0;

  // Why an object that is listed cannot be converted; asked of those that are kept, before anything is written. By default,
  // what problems_ says of it.
  virtual Status CheckReadable(std::uint32_t object) const;

  // Fills `out` with the component's declared bytes from `offset`. Thread-safe for components that are not
  // sequential; those may ask for whole elements where they convert them. Errors name neither tensor nor file; the caller
  // adds both.
  virtual Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) = 0;

  // True where this component's ranges must be read in ascending order by one thread at a time (deflated entries,
  // pipes). If seekable() is false, components too must be read in the order of objects().
  virtual bool sequential(ComponentId) const { return false; }
  // False for an input that can be read front to back only: a pipe.
  virtual bool seekable() const { return true; }

  // Bytes that are best read at once, from offsets that are multiples of it; 0 where it does not matter. Serving a
  // part of a compressed frame costs as much as the whole.
  virtual std::uint64_t preferred_read(ComponentId) const { return 0; }

  // A hint: these components will be read, about in this order. By default passed on by where the bytes lie.
  virtual void WillRead(std::span<const ComponentId> components);

  // Where the bytes lie, if they are served as they lie.
  virtual std::optional<Extent> extent(ComponentId) const { return std::nullopt; }
  // So many of the component's bytes from `offset`, by its extent: for ReadRanges.
  RangeToRead RangeAt(ComponentId id, std::uint64_t offset, std::span<std::byte> bytes) const;

  // Of the bytes as declared; nullopt where the source does not know. By default, where they lie.
  virtual std::optional<Identity> identity(ComponentId id) const;

  // The component's declared bytes, where they are in memory anyway. Valid as long as the source.
  virtual std::optional<std::span<const std::byte>> View(ComponentId) const { return std::nullopt; }

  // How the component is stored, where a codec encoded it; nullopt where it is raw.
  virtual std::optional<EncodedStream> encoded(ComponentId) const { return std::nullopt; }
  // The frames of that stream, in order; none where they cannot be read one by one. An error as of Read.
  virtual StatusOr<std::vector<Frame>> Frames(ComponentId) const { return std::vector<Frame>(); }

  // Called once after the last Read: checks what only the end can tell (trailing bytes of a pipe, an entry's CRC, a
  // file that has grown). Errors name the file, and the tensor where it is one tensor's: the caller cannot know.
  virtual Status Finish() { return OkStatus(); }

 protected:
  // The first lines of a Read: CheckReadable, and kInvalidArgument where the component has no `size` bytes from `offset`.
  Status CheckRange(ComponentId id, std::uint64_t offset, std::uint64_t size) const;

  std::unordered_map<std::uint32_t, Status> problems_;  // by object: why it cannot be converted
  std::vector<Object> objects_;                         // see objects()
  Value::Map attributes_;                               // see attributes()
  std::vector<std::string> warnings_;                   // see warnings()
  std::string file_;                                    // see file()
};

// A source whose components are those of other sources, under objects of its own.
class WrappedSource : public TensorSource {
 public:
  const std::string& file(ComponentId id) const override;
  Status CheckReadable(std::uint32_t object) const override;
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  bool sequential(ComponentId id) const override;
  std::uint64_t preferred_read(ComponentId id) const override;
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<Identity> identity(ComponentId id) const override;
  std::optional<std::span<const std::byte>> View(ComponentId id) const override;
  std::optional<EncodedStream> encoded(ComponentId id) const override;
  StatusOr<std::vector<Frame>> Frames(ComponentId id) const override;

 protected:
  // The source that serves a component, and the component's place in it.
  virtual std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const = 0;
};

// Tensors in memory. Spans stay the caller's and must outlive the source; equal spans are tied weights.
class MemorySource final : public TensorSource {
 public:
  // Adds an object. `components` gives the bytes of object.components in the same order; declared sizes must agree,
  // or be kUnknownSize. kInvalidArgument otherwise, and where ValidateObject refuses; the message names the tensor.
  Status Add(Object object, std::vector<std::span<const std::byte>> components);
  // The attributes of the whole file, in place of those before.
  void SetAttributes(Value::Map attributes);

  std::string_view format() const override { return "memory"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<std::span<const std::byte>> View(ComponentId id) const override;

 private:
  std::vector<std::vector<std::span<const std::byte>>> bytes_;
};

// An error of a source's, with the tensor and the file that it is about.
Status AtTensor(const TensorSource& source, ComponentId id, const Status& status);

// Several inputs as one, in the order given. A name in two of them is kDataLoss naming both files; of attributes
// that disagree the first is kept, with a warning. `names`, one for each source, are for messages: they become the
// file() of those sources that have none.
StatusOr<std::unique_ptr<TensorSource>> MergeSources(
    std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names);

// What a format that keeps no attributes of tensors loses of these objects, as a line for the user: "NAME the attributes of 3
// tensors, 'a' the first", where `verb` is NAME. Empty where nothing is lost; `kept` are attributes that the format does keep.
std::string LostAttributes(const TensorSource& source, std::span<const std::uint32_t> objects,
                           std::span<const std::string_view> kept, std::string_view verb);

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::source::internal {

// OpenFile of a URL.
StatusOr<std::shared_ptr<ByteSource>> OpenUrl(const std::string& url);

}  // namespace zt::source::internal
