// zt.convert.safetensors — safetensors files and sharded Hugging Face folders as TensorSource, and their layout.
export module zt.convert.safetensors;

import zt.std;
import zt.convert.layout;
export import zt.convert.shards;
import zt.core;
import zt.source;

export namespace zt {

// The reference library's limit on the JSON header, in bytes.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// True where `head` (the first 9 bytes or more) can begin a safetensors file: a header length within the limit and
// JSON at byte 8.
bool LooksLikeSafetensors(std::span<const std::byte> head);

// One file, or a pipe that delivers one. Every dtype of the reference library 0.8; `__metadata__` becomes the root
// attributes. As the reference demands: no key twice, no overlap, no holes, nothing after the last tensor, sizes as
// dtype and shape ask. Tensors with identical ranges are tied weights. F4 and F6 tensors become u8 whose shape counts
// packed bytes, with the logical shape in the attribute `logical_shape`. Objects come in the order of their offsets.
// Errors name the tensor, not the file.
StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(std::shared_ptr<ByteSource> bytes);
// The same, with about this many bytes of the header parsed at once. OpenSafetensors takes a number with which what the parser
// makes of them stays in a core's cache.
StatusOr<std::unique_ptr<TensorSource>> OpenSafetensorsInParts(std::shared_ptr<ByteSource> bytes,
                                                               std::size_t part_bytes);

// The shards of a folder, see OpenShards: with a *.safetensors.index.json, or every *.safetensors file.
StatusOr<std::unique_ptr<TensorSource>> OpenSafetensorsFolder(const std::string& path,
                                                              const InputOptions& options = {});

// The root attribute, an empty map, of a file whose `__metadata__` is there and empty.
inline constexpr std::string_view kEmptyMetadata = "__metadata__";

// The members of `__metadata__`: key and text.
using SafetensorsMetadata = std::span<const std::pair<std::string, std::string>>;

// Plans a safetensors file of these objects of `source`, with this `__metadata__`; nullopt for none. Tensors lie as the
// reference writer orders them: by element type, widest first, then by name. Equal inputs give equal bytes. Fails with
// kUnimplemented naming the tensor where safetensors cannot say it: formats other than dense, types it lacks.
StatusOr<FileLayout> PlanSafetensors(const TensorSource& source,
                                     std::span<const std::uint32_t> objects,
                                     std::optional<SafetensorsMetadata> metadata);

}  // namespace zt

// Shared by the bodies. Exported for entries.cc, a plain unit: simdjson's header and the module zt.std cannot meet in one.
export namespace zt::safetensors::internal {

// Bytes that simdjson may read behind the text. They hold zeros.
inline constexpr std::size_t kPadding = 64;

// A tensor's entry in a header as it stands there. Views are valid during the call.
struct Entry {
  std::string_view name, dtype;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets
};

// Takes what a header holds, in its order. An error, to which the parser adds the tensor, ends the parsing.
class EntryTaker {
 public:
  virtual ~EntryTaker() = default;
  virtual Status TakeEntry(const Entry& entry) = 0;
  virtual void TakeMetadata(std::string_view key, std::string_view text) = 0;
};

extern "C++" {

// Parses headers, or parts of them, each an object with the members of the whole; keeps its memory from one to the next.
class EntryParser {
 public:
  EntryParser();
  ~EntryParser();
  EntryParser(const EntryParser&) = delete;
  EntryParser& operator=(const EntryParser&) = delete;

  // Hands every member of the object `text` to `taker`. Behind the text lie kPadding bytes that can be read.
  Status Parse(std::string_view text, EntryTaker& taker);
  // `__metadata__` has been there; only once is allowed, in all parts together.
  bool has_metadata() const { return has_metadata_; }
  void ForgetMetadata() { has_metadata_ = false; }

 private:
  struct Json;
  Json* json_;
  bool has_metadata_ = false;
};

// What is wrong with `text` as JSON, wherever in it.
Status FindJsonFault(std::string_view text);

}  // extern "C++"

}  // namespace zt::safetensors::internal
