// zt.source — where bytes come from: byte sources (:bytes), and TensorSource, the interface that
// every input format implements, with what it says of components (:component).
export module zt.source;

import zt.std;
export import :bytes;
export import :component;
export import :store;
import zt.compress;
import zt.core;

export namespace zt {

// ---- tensors ------------------------------------------------------------------------------------

// Options for opening an input. Every converter takes all, and ignores those that do not apply.
struct InputOptions {
  // What opens the input, and the files that belong to it.
  std::shared_ptr<Store> store = LocalStore();
  // Allows shards, parts of a set, files of a folder and external data to be symbolic links that
  // leave the folder. Those of a snapshot in the Hugging Face cache may lead to its blobs anyway.
  bool follow_links = false;
  // Memory budget for data that has to be re-sorted, transposed, decoded as a whole or read from a
  // pipe. Each converter documents what it counts.
  std::uint64_t memory_limit = std::uint64_t{64} << 20;
  // npy: the element type of '|V1', '<V2' and '<f1' arrays (ml_dtypes' bfloat16 and fp8 have no
  // name in the file). Without it, or if its width differs, such arrays are refused.
  std::optional<ElementType> void_type = std::nullopt;
  // Folders: the variant of the weights that is read, "fp16" for "model.fp16.safetensors". Empty: the
  // files without one, or, if there are none, those of the only variant.
  std::string variant = {};
  // npz: keeps the entries of a scipy sparse archive as separate dense arrays.
  bool keep_sparse = false;
  // GGUF: accepts a single shard of a split file. Otherwise kDataLoss: tensors are missing.
  bool allow_single_shard = false;
  // zt: sparse objects keep u32 indices (Traits). Only for output versions that have them.
  bool u32_indices = false;
  // zt: the objects and components of the manifest, in its order and with its types, for those who
  // list a file or read ranges of it. Bytes are served without their digests; a size that the
  // manifest leaves open is kUnknownSize (see TensorSource::Size).
  bool as_stored = false;
};

// kDataLoss if `name`, a file below `folder`, is or lies behind a symbolic link that leaves the
// folder, unless `options` allow it or it is a blob of the hub's cache. For names from an index or
// a listing.
Status CheckStaysInside(const std::string& folder, const std::string& name,
                        const InputOptions& options);

// Reads a component that is sequential only because its digest needs the bytes in order: ranges in
// any order, without the digest; `Check` updates the digest later, in order. Valid as long as the
// source.
class UnorderedReader {
 public:
  virtual ~UnorderedReader() = default;
  // As TensorSource::Read, without the digest. Thread-safe.
  virtual Status Read(std::uint64_t offset, std::span<std::byte> out) = 0;
  // Updates the digest with the bytes from `offset`; ranges in ascending order, each once.
  // kDataLoss if the digest differs after the last range.
  virtual Status Check(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Where the bytes lie, if Read returns them unchanged from a byte source.
  virtual std::optional<Extent> extent() const { return std::nullopt; }
};

// An input: declarations first, then the bytes of each component by range. Everything
// format-specific is hidden here; Read serves exactly the declared component, little-endian and in
// C order.
//
// Derived classes fill the protected members first; once the source is in use they are constant.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The objects, in the order of their bytes in the input; a sequential source is read in it.
  inline const std::vector<Object>& objects() const { return objects_; }
  // Attributes of the whole file, for the manifest's root.
  inline const Value::Map& attributes() const { return attributes_; }
  // Lines for the user: what was ignored, or looks wrong but does no harm. Finish may add some.
  inline const std::vector<std::string>& warnings() const { return warnings_; }
  // What would help about some of them, by their numbers.
  inline const std::map<std::size_t, Advice>& warning_advice() const { return warning_advice_; }
  // Adds a warning, and what would help. Only before the source is used, or by Finish.
  void AddWarning(std::string line, std::optional<Advice> advice = std::nullopt);
  // Puts `place` and ": " before each of its warnings.
  void PlaceWarnings(std::string_view place);
  // Adds what another source says beside its tensors: warnings, with their advice, and other_files(),
  // part_files() and shards(). Only before the source is used.
  void AddNotesOf(const TensorSource& other);
  // The file (or "standard input") that holds this component, for messages; the code that opens the
  // source sets it. For a source without components, {} is a valid argument.
  virtual const std::string& file(ComponentId) const { return file_; }
  // Sets the file. Only before the source is used.
  inline void SetFile(std::string name) { file_ = std::move(name); }
  // The files that were read and hold no component: an index, metadata, an empty part of a set.
  inline const std::vector<std::string>& other_files() const { return other_files_; }
  // Adds one of them. Only before the source is used.
  inline void AddOtherFile(std::string name) { other_files_.push_back(std::move(name)); }
  // The files that hold parts of components, as of a tensor that several ranks wrote: `file` names
  // one for each component.
  inline const std::vector<std::string>& part_files() const { return part_files_; }
  // Adds one of them. Only before the source is used.
  inline void AddPartFile(std::string name) { part_files_.push_back(std::move(name)); }
  // The files that its root or index names, if it is a .zt file.
  inline const std::vector<ShardFile>& shards() const { return shards_; }
  // Adds one of them. Only before the source is used.
  inline void AddShard(ShardFile shard) { shards_.push_back(std::move(shard)); }
  // The input format's name in kReadFormats: "safetensors", "npy", "npz", "gguf", "zt".
  virtual std::string_view format() const = 0;
  // The version of a .zt file; empty for other formats.
  virtual std::string_view version() const { return {}; }

  // An error if a listed object cannot be converted. Called for the objects to keep, before
  // anything is written. By default its entry in problems_.
  virtual Status CheckReadable(std::uint32_t object) const;

  // Fills `out` with the component's declared bytes from `offset`. Thread-safe for components that
  // are not sequential. A component that is converted may require ranges of whole elements. Errors
  // name neither tensor nor file; the caller adds both.
  virtual Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) = 0;

  // True if one thread at a time must read this component in ascending order (deflated entries,
  // pipes). If not seekable(), components must also be read in the order of objects().
  virtual bool sequential(ComponentId) const { return false; }
  // Reads a sequential component in any order; null if that is not possible.
  virtual std::shared_ptr<UnorderedReader> unordered_reader(ComponentId) { return nullptr; }
  // False if the input can only be read from front to back: a pipe.
  virtual bool seekable() const { return true; }

  // The best read size, at offsets that are multiples of it; 0 if any will do. Reading part of a
  // compressed frame costs as much as reading all of it.
  virtual std::uint64_t preferred_read(ComponentId) const { return 0; }

  // A hint: these components will be read, roughly in this order. By default hints their extents.
  virtual void WillRead(std::span<const ComponentId> components);

  // Where the bytes lie, if Read returns them unchanged from a byte source.
  virtual std::optional<Extent> extent(ComponentId) const { return std::nullopt; }
  // Makes the range of `bytes` at `offset` of the component for ReadRanges, by its extent.
  RangeToRead RangeAt(ComponentId id, std::uint64_t offset, std::span<std::byte> bytes) const;

  // How the component is stored; nullopt if the format has no manifest that says so.
  virtual std::optional<StoredForm> stored(ComponentId) const { return std::nullopt; }
  // The declared bytes, found by decoding where they are kUnknownSize. Errors as of Read.
  virtual StatusOr<std::uint64_t> Size(ComponentId id) const {
    return objects_[id.object].components[id.component].bytes;
  }

  // The identity of the declared bytes; nullopt if unknown. By default made from the extent.
  virtual std::optional<Identity> identity(ComponentId id) const;

  // The component's declared bytes if they are in memory already. Valid as long as the source.
  virtual std::optional<std::span<const std::byte>> View(ComponentId) const { return std::nullopt; }

  // The encoded stream of the component; nullopt if it is raw.
  virtual std::optional<EncodedStream> encoded(ComponentId) const { return std::nullopt; }
  // The frames of that stream, in order; empty if they cannot be read one by one. Errors as of
  // Read.
  virtual StatusOr<std::vector<Frame>> Frames(ComponentId) const { return std::vector<Frame>(); }

  // How many values of the component did not fit the type in which the source made them, in the
  // reads since the last call. Thread-safe.
  virtual std::uint64_t TakeOverflow(ComponentId) { return 0; }

  // Called once after the last Read: checks what is only known then (trailing bytes of a pipe, an
  // entry's CRC, a file that has grown). Errors name the file, and the tensor if they concern one:
  // the caller cannot know.
  virtual Status Finish() { return OkStatus(); }
  // The same as far as it concerns these components, which have been read, for one of several
  // outputs. Thread-safe, also while others are read. By default Finish, which must be so then.
  virtual Status CheckRead(std::span<const ComponentId>) { return Finish(); }

 protected:
  // The checks at the start of a Read: CheckReadable, and kInvalidArgument if out of range.
  Status CheckRange(ComponentId id, std::uint64_t offset, std::uint64_t size) const;

  std::unordered_map<std::uint32_t, Status> problems_;  // why an object cannot be converted
  std::vector<Object> objects_;                         // see objects()
  Value::Map attributes_;                               // see attributes()
  std::vector<std::string> warnings_;                   // see warnings()
  std::map<std::size_t, Advice> warning_advice_;        // see warning_advice()
  std::string file_;                                    // see file()
  std::vector<std::string> other_files_;                // see other_files()
  std::vector<std::string> part_files_;                 // see part_files()
  std::vector<ShardFile> shards_;                       // see shards()
};

// Serves the components of other sources as other objects. A derived class says by Origin which
// component each of its own is. Every virtual function of TensorSource is forwarded here, so that no
// wrapper hides one. An object in problems_ is refused before its origin is asked.
class WrappedSource : public TensorSource {
 public:
  // The other sources.
  inline const std::vector<TensorSource*>& wrapped() const { return wrapped_; }
  std::string_view format() const override;
  std::string_view version() const override;
  bool seekable() const override;
  Status Finish() override;
  Status CheckRead(std::span<const ComponentId> components) override;
  void WillRead(std::span<const ComponentId> components) override;
  const std::string& file(ComponentId id) const override;
  Status CheckReadable(std::uint32_t object) const override;
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  bool sequential(ComponentId id) const override;
  std::shared_ptr<UnorderedReader> unordered_reader(ComponentId id) override;
  std::uint64_t preferred_read(ComponentId id) const override;
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<StoredForm> stored(ComponentId id) const override;
  StatusOr<std::uint64_t> Size(ComponentId id) const override;
  std::optional<Identity> identity(ComponentId id) const override;
  std::optional<std::span<const std::byte>> View(ComponentId id) const override;
  std::optional<EncodedStream> encoded(ComponentId id) const override;
  StatusOr<std::vector<Frame>> Frames(ComponentId id) const override;
  std::uint64_t TakeOverflow(ComponentId id) override;

 protected:
  // Takes the attributes, warnings and files of `inner`, which must outlive this.
  explicit WrappedSource(TensorSource& inner);
  explicit WrappedSource(std::vector<TensorSource*> inner) : wrapped_(std::move(inner)) {}
  // The source that serves a component, and the component's id there.
  virtual std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const = 0;
  // False if the derived class makes the component's bytes. Then it overrides Read, and what a
  // source says of its bytes (their order, place, form, size) is what TensorSource says.
  virtual bool passes(ComponentId) const { return true; }

 private:
  std::vector<std::vector<ComponentId>> Origins(std::span<const ComponentId> components) const;
  const std::vector<TensorSource*> wrapped_;
};

// Serves the components of another source, which it owns, as the objects that are added.
class RegroupedSource : public WrappedSource {
 public:
  explicit RegroupedSource(std::unique_ptr<TensorSource> inner)
      : WrappedSource(*inner), inner_(std::move(inner)) {}
  // Adds `object`. components[i] is its component i in the inner source.
  void Add(Object object, InlinedVector<ComponentId, 1> components);
  // Adds object `index` of the inner source, as it is or as `object`.
  inline void Keep(std::uint32_t index) { Keep(index, inner_->objects()[index]); }
  void Keep(std::uint32_t index, Object object);
  // Makes the object that was added last unreadable.
  void Refuse(Status reason);
  // The source whose components they are.
  inline TensorSource& inner() const { return *inner_; }
  // The attributes, to be changed before the source is used.
  inline Value::Map& root() { return attributes_; }

 protected:
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override;

 private:
  const std::unique_ptr<TensorSource> inner_;
  std::vector<InlinedVector<ComponentId, 1>> origin_;
};

// Tensors in memory. Does not copy: spans must outlive the source. Equal spans are tied weights.
class MemorySource final : public TensorSource {
 public:
  // Adds an object. `components` are the bytes of object.components, in the same order; declared
  // sizes must match or be kUnknownSize. kInvalidArgument otherwise, and if ValidateObject fails;
  // the message names the tensor.
  Status Add(Object object, std::vector<std::span<const std::byte>> components);
  // Replaces the attributes of the whole file.
  void SetAttributes(Value::Map attributes);

  std::string_view format() const override { return "memory"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<std::span<const std::byte>> View(ComponentId id) const override;

 private:
  std::vector<std::vector<std::span<const std::byte>>> bytes_;
};

// Limit on the expansion ratio of what a file declares over fewer stored bytes: views that repeat
// elements, chunks that are absent or highly compressed (deflate alone reaches 1032). The first GiB
// is free.
inline constexpr std::uint64_t kMaxExpansion = 2048;
inline bool ExceedsExpansion(std::uint64_t declared, std::uint64_t stored) {
  return declared > std::uint64_t{1} << 30 && declared / kMaxExpansion > stored;
}

// The files that hold components of `source`, each once, in the order of components.
std::vector<std::string> FilesOf(const TensorSource& source);

// Adds the tensor and the file of a component to an error of `source`.
Status AtTensor(const TensorSource& source, ComponentId id, const Status& status);

// Merges several inputs, in the order given. A duplicate name is kDataLoss and names both files; of
// conflicting attributes the first is kept, with a warning. `names`, one for each source, are for
// messages: a source without file() gets its name.
StatusOr<std::unique_ptr<TensorSource>> MergeSources(
    std::vector<std::unique_ptr<TensorSource>> sources, std::vector<std::string> names);

// A warning about the tensor attributes that an output format does not keep: "NAME the attributes
// of 3 tensors, 'a' the first", where `verb` is NAME. Empty if nothing is lost; `kept` are the
// attributes that the format keeps.
std::string LostAttributes(const TensorSource& source, std::span<const std::uint32_t> objects,
                           std::span<const std::string_view> kept, std::string_view verb);

}  // namespace zt
