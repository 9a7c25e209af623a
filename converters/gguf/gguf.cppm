// zt.convert.gguf — GGUF files and split sets as a TensorSource; plans GGUF files.
export module zt.convert.gguf;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;
export import :header;

export namespace zt {

// True if `head` (at least 4 bytes) begins like a GGUF file of either byte order.
bool LooksLikeGguf(std::span<const std::byte> head);

// Opens a file or a pipe. Objects are sorted by offset:
//   plain types      format dense, the dimensions reversed to row-major
//   quantized types  format "gguf.<type>/1" ("gguf.q4_k/1"), one component "data" of u8 holding
//                    the blocks as they are, the logical shape, attributes elems_per_block and
//                    block_bytes
// Big-endian files are served little-endian: plain types by element, blocks by field if their
// fields are certain (q4_0 q8_0 q4_k q6_k mxfp4). Tensors of other block types in such a file, and
// of unknown types (format "gguf.type_<number>/1", all bytes up to the next tensor), are listed,
// but cannot be read: see CheckReadable.
//
// The root attribute "gguf" has everything needed to write the header again: version, byte_order
// ("little", "big"), alignment, kv (see GgufHeader), and tensors: in the header's order [name,
// type]. Read is thread-safe unless `bytes` is a pipe.
StatusOr<std::unique_ptr<TensorSource>> OpenGguf(std::shared_ptr<ByteSource> bytes,
                                                 InputOptions options = {});

// Opens the file at `path`. If it is a shard of a split set (NAME-00002-of-00005.gguf), its
// siblings in the same folder are part of the source. Metadata is that of the first shard,
// without the split.* keys. kDataLoss, naming the file, if a shard
// is missing or belongs to another set, or the shards' counts disagree; naming the tensor, if
// two shards declare it.
StatusOr<std::unique_ptr<TensorSource>> OpenGgufSet(const std::string& path,
                                                    InputOptions options = {});

// The path of the first shard of the set that the file at `path` belongs to, equal for all its
// shards. Empty if the file is not part of a set, or no GGUF; kUnavailable if it cannot be read.
StatusOr<std::string> GgufSetOf(const std::string& path, Store& store);

// ---- writing ------------------------------------------------------------------------------------

// Plans a GGUF file of these objects (indices into source.objects()), each of one component. If the
// source has the root attribute "gguf" of OpenGguf, its metadata, order, byte order and version (3
// for 1) are used. The tensors are laid out as llama.cpp asks, each behind the one before it, so a
// file that llama.cpp could have written is reproduced byte for byte. Keys that no longer hold are
// dropped (split.*) or corrected (general.file_type, once no blocks are left). Without the
// attribute the metadata is empty and the version 3. kUnimplemented, naming the tensor, if GGUF has
// no type for it: formats other than dense and gguf.*, dtypes u8 u16 u32 u64 bool, logical types,
// more than 4 dimensions; or if its name has more than 63 bytes. kDataLoss if a file with the
// attribute's metadata could not be read. `record`, if it is not null, stands for the attribute.
StatusOr<FileLayout> PlanGguf(const TensorSource& source, std::span<const std::uint32_t> objects,
                              const Value* record = nullptr);

}  // namespace zt
