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
// The same, with about so many bytes of the header parsed at once. OpenSafetensors takes a number with which what the parser
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
