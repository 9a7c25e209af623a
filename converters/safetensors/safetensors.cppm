// zt.convert.safetensors — safetensors files and sharded Hugging Face folders as TensorSource;
// plans safetensors files.
export module zt.convert.safetensors;

import zt.std;
import zt.convert.layout;
export import zt.convert.shards;
import zt.core;
import zt.source;

export namespace zt {

// The reference library's limit on the JSON header, in bytes.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// True if `head` (at least 9 bytes) can begin a safetensors file: a header length within the limit,
// and JSON at byte 8.
bool LooksLikeSafetensors(std::span<const std::byte> head);

// Opens a file, or a pipe with the content of one. Supports every dtype of the reference library
// 0.8; `__metadata__` becomes the root attributes. Validates as the reference library does: no
// duplicate keys, no overlap, no holes, nothing after the last tensor, sizes that match dtype and
// shape. Tensors with identical ranges are tied weights. F4 and F6 tensors become u8 with a shape
// in packed bytes; the attribute `logical_shape` has the logical shape. Tensors of a file of one rank
// (torch.distributed.checkpoint's `DCP_SHARDING_INFO`) are marked as parts (see zt.convert.parts).
// Objects are sorted by offset. Errors name the tensor, not the file.
StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(std::shared_ptr<ByteSource> bytes);

// Opens the shards of a folder (see OpenShards): those of its *.safetensors.index.json, else every
// *.safetensors file. `other` opens those of another format.
StatusOr<std::unique_ptr<TensorSource>> OpenSafetensorsFolder(const std::string& path,
                                                              const InputOptions& options = {},
                                                              OpenOther other = {});

// The root attribute, an empty map, that marks a file whose `__metadata__` is present but empty.
inline constexpr std::string_view kEmptyMetadata = "__metadata__";

// The members of `__metadata__`.
using SafetensorsMetadata = std::span<const std::pair<std::string, std::string>>;

// Plans a safetensors file of these objects of `source`, with this `__metadata__`; nullopt for
// none. Tensors are sorted as in the reference writer: by element type, widest first, then by name.
// Equal inputs give equal bytes. kUnimplemented, naming the tensor, for formats other than dense,
// and for element types that safetensors lacks.
StatusOr<FileLayout> PlanSafetensors(const TensorSource& source,
                                     std::span<const std::uint32_t> objects,
                                     std::optional<SafetensorsMetadata> metadata);

// The bytes of a safetensors file before its tensors: the length of the JSON, and the JSON.
StatusOr<std::vector<std::byte>> ReadSafetensorsHeader(ByteSource& bytes);

// Finds the index of a source's object by name; nullopt if there is none.
using FindObject = std::function<std::optional<std::uint32_t>(std::string_view name)>;

// Plans the file that had this header, byte for byte. kFailedPrecondition if the source lacks one
// of its tensors with the same type, shape and size, or has other bytes for one whose range was that
// of another; kDataLoss if it is no header.
StatusOr<FileLayout> PlanSafetensorsAgain(TensorSource& source, std::span<const std::byte> header,
                                          const FindObject& find);

}  // namespace zt

// Shared by the implementation units. Exported for entries.cc, a plain unit, because simdjson's
// header and the module zt.std cannot be used in the same unit.
export namespace zt::safetensors::internal {

// The member of `__metadata__` in which torch.distributed.checkpoint says of a rank's file where its
// tensors begin in the whole ones.
inline constexpr std::string_view kShardingInfo = "DCP_SHARDING_INFO";

// Bytes that simdjson may read behind the text. They must be zero.
inline constexpr std::size_t kPadding = 64;

// A tensor's entry in a header. Its views are valid during the call.
struct TensorEntry {
  std::string_view name, dtype;
  std::span<const std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets
};

// Receives the members of a header, in their order. An error ends the parsing; the parser
// adds the tensor's name.
class EntryTaker {
 public:
  virtual ~EntryTaker() = default;
  virtual Status TakeEntry(const TensorEntry& entry) = 0;
  virtual void TakeMetadata(std::string_view key, std::string_view text) = 0;
};

// What a header has as `__metadata__`. The reference library reads null as none.
enum class Metadata { kNone, kNull, kMap };

extern "C++" {

// Passes every member of the header `text` to `taker`. kPadding readable bytes must follow the text.
// A second `__metadata__` is an error.
StatusOr<Metadata> ParseEntries(std::string_view text, EntryTaker& taker);

// The first JSON error anywhere in `text`; OK if it is valid.
Status FindJsonFault(std::string_view text);

// Where a tensor of a rank's file begins in the whole one.
struct SavedOffsets {
  std::string name;
  std::vector<std::uint64_t> offsets;
};
// Parses the text under kShardingInfo.
StatusOr<std::vector<SavedOffsets>> ParseShardingInfo(std::string_view text);

}  // extern "C++"

}  // namespace zt::safetensors::internal
