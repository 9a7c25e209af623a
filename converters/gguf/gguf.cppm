// zt.convert.gguf — GGUF files and split sets as a TensorSource, and the layout of a GGUF to be written.
module;

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

export module zt.convert.gguf;

import zt.core;
import zt.source;
export import :header;

export namespace zt {

// True where `head` (the first bytes, at least 4) begins like a GGUF file of either byte order.
bool LooksLikeGguf(std::span<const std::byte> head);

// How GGUF files are opened.
struct GgufOptions {
  // Accept one shard of a split set by itself. Otherwise it is kDataLoss: tensors would be missing.
  bool allow_single_shard = false;
};

// One file, or a pipe. Objects come in the order their bytes lie:
//   plain types      format dense, the dimensions reversed to row-major
//   quantized types  format "gguf.<type>/1" ("gguf.q4_k/1"), one component "data" of u8 holding the blocks as they
//                    are, the logical shape, attributes elems_per_block and block_bytes
// Big-endian files are served little-endian: plain types by element, blocks by field where the fields are certain
// (q4_0 q8_0 q4_k q6_k mxfp4), other block types are kUnimplemented.
//
// The root attribute "gguf" holds what is needed to write the header back: version, byte_order ("little", "big"),
// alignment, kv (see GgufHeader), tensors: in the header's order [name, type, offset in the data section], and
// file_bytes where the size is known. Read is thread-safe unless `bytes` is a pipe.
StatusOr<std::unique_ptr<TensorSource>> OpenGguf(std::shared_ptr<ByteSource> bytes,
                                                 GgufOptions options = {});

// The file at `path`, and if it is a shard of a split set (NAME-00002-of-00005.gguf) its siblings in the same folder
// as well, as one source. Metadata is the first shard's without the split.* keys; `tensors` then holds no offsets.
// kDataLoss naming the file where a shard is missing, is of another set, or the shards' counts disagree, and naming
// the tensor that two shards declare.
StatusOr<std::unique_ptr<TensorSource>> OpenGgufSet(const std::string& path,
                                                    GgufOptions options = {});

// ---- writing -------------------------------------------------------------------------------------------------

// One tensor of a file to be written.
struct GgufPiece {
  std::size_t object = 0;     // index into the objects given
  std::uint64_t padding = 0;  // zeros to write before the bytes
  std::uint64_t offset = 0;   // from the start of the file
  std::uint64_t bytes = 0;    // of the object's one component
};

// A GGUF file to be written front to back: `header`, then for each piece its padding and its bytes, then
// `end_padding` zeros.
struct GgufLayout {
  std::vector<std::byte> header;  // magic to the last tensor's info
  std::vector<GgufPiece> pieces;  // in the order of the file
  std::uint64_t end_padding = 0;  // zeros after the last piece
  std::uint64_t file_bytes = 0;   // of the whole
  // True where the result has the bytes of the GGUF the objects came from: nothing dropped, added, renamed or
  // converted, the file little-endian, one file and with zeros between its tensors.
  bool exact = false;
};

// Plans a GGUF of `objects`. `root_attributes` may hold the attribute "gguf" that OpenGguf made; its metadata,
// order and version are then used (byte order is always little). Without it the metadata is empty, version 3.
// Fails with kUnimplemented naming the tensor where GGUF has no type for it: formats other than dense and
// gguf.*, dtypes u8 u16 u32 u64 bool, logical types, more than 4 dimensions.
StatusOr<GgufLayout> PlanGguf(const Value::Map& root_attributes, std::span<const Object> objects);

}  // namespace zt
