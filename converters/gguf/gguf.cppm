// zt.convert.gguf — GGUF files and split sets as a TensorSource, and the layout of a GGUF to be written.
export module zt.convert.gguf;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;
export import :header;

export namespace zt {

// True if `head` (the first bytes, at least 4) begins like a GGUF file of either byte order.
bool LooksLikeGguf(std::span<const std::byte> head);

// One file, or a pipe. Objects come in the order their bytes lie:
//   plain types      format dense, the dimensions reversed to row-major
//   quantized types  format "gguf.<type>/1" ("gguf.q4_k/1"), one component "data" of u8 holding the blocks as they
//                    are, the logical shape, attributes elems_per_block and block_bytes
// Big-endian files are served little-endian: plain types by element, blocks by field if the fields are certain
// (q4_0 q8_0 q4_k q6_k mxfp4). Tensors of other block types in such a file, and tensors of a type we do not know (format
// "gguf.type_<number>/1", the bytes up to the next tensor), are listed, but cannot be read: see CheckReadable.
//
// The root attribute "gguf" holds what is needed to write the header back: version, byte_order ("little", "big"),
// alignment, kv (see GgufHeader), tensors: in the header's order [name, type, offset in the data section], and
// file_bytes if the size is known. Read is thread-safe unless `bytes` is a pipe.
StatusOr<std::unique_ptr<TensorSource>> OpenGguf(std::shared_ptr<ByteSource> bytes,
                                                 InputOptions options = {});

// The file at `path`, and if it is a shard of a split set (NAME-00002-of-00005.gguf) its siblings in the same folder
// as well, as one source. Metadata is the first shard's without the split.* keys; `tensors` then holds no offsets.
// kDataLoss naming the file where a shard is missing, is of another set, or the shards' counts disagree, and naming
// the tensor that two shards declare.
StatusOr<std::unique_ptr<TensorSource>> OpenGgufSet(const std::string& path,
                                                    InputOptions options = {});

// The path of the first shard of the set that the file at `path` belongs to, the same for all its shards. Empty if the
// file is one by itself, or is not a GGUF.
std::string GgufSetOf(const std::string& path);

// ---- writing -------------------------------------------------------------------------------------------------

// Plans a GGUF file of these objects (indices into source.objects()), each of one component. Where the source has the
// root attribute "gguf" that OpenGguf made, its metadata, order, version and byte order are used, and what came from one
// file is written back byte for byte if nothing was dropped, added, renamed or converted. Keys that no longer hold are
// dropped (split.*) or corrected (general.file_type, once no blocks are left). Without the attribute the metadata is
// empty and the version 3.
// kUnimplemented naming the tensor if GGUF has no type for it: formats other than dense and gguf.*, dtypes u8 u16 u32
// u64 bool, logical types, more than 4 dimensions. kDataLoss if the attribute is such that the file could not be read.
StatusOr<FileLayout> PlanGguf(const TensorSource& source, std::span<const std::uint32_t> objects);

}  // namespace zt
