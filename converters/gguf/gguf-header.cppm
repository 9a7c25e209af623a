// zt.convert.gguf:header — GGUF's header as a model: bytes to model to bytes, no I/O.
export module zt.convert.gguf:header;

import zt.std;
import zt.core;

export namespace zt {

// A tensor type as GGUF numbers it. Plain types have one element a block.
struct GgmlType {
  std::uint32_t id;            // as in the file
  std::string_view name;       // lower case: "f32", "q4_k"
  std::optional<DType> plain;  // set for plain types
  std::uint32_t elems = 1;     // elements a block
  std::uint32_t bytes = 0;     // bytes a block
};
// Fails with kUnimplemented on removed and unknown ids, naming them.
StatusOr<GgmlType> FindGgmlType(std::uint32_t id);
// The type with this lower-case name, if it can occur in a file.
std::optional<GgmlType> FindGgmlType(std::string_view name);

// GGUF's limit on dimensions.
inline constexpr std::uint32_t kGgufMaxDims = 4;
// In bytes; it holds if the metadata has no key general.alignment.
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
// A larger header cannot become a manifest (1 GiB at most), so it is refused.
inline constexpr std::uint64_t kGgufMaxHeader = std::uint64_t{1} << 30;

// A tensor's info in the header.
struct GgufTensor {
  std::string name;          // unique in the file
  GgmlType type;             // of its elements or blocks
  Shape shape;               // row-major: GGUF's dimensions reversed
  std::uint64_t offset = 0;  // from the start of the data section
  std::uint64_t bytes = 0;  // as type and shape ask; up to the next tensor if the type is not known
  Status unsupported = {};  // why the type is not known; such a tensor can be listed, but not read
};

// Metadata is held as it goes into the attribute "gguf" of a .zt file. `kv` has one array for each pair, in the
// file's order: [key, type, value]. Types are u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64. Values:
//   integers, bool  as they are
//   f32, f64        a double; a NaN is its 4 or 8 bytes, little-endian, so that its payload survives
//   string, key     text; bytes if it is not UTF-8
//   array           [element type, values]: a list, or, for u8, i8 and for more than 64 numbers, their
//                   little-endian bytes; an array of arrays is a list of such pairs
struct GgufHeader {
  std::uint32_t version = 3;   // 1, 2 or 3
  bool big_endian = false;     // all numbers, of header and tensors
  bool swapped_magic = false;  // "FUGG", as some converters to big-endian write
  std::uint64_t alignment = kGgufDefaultAlignment;  // of every tensor, in bytes
  // The first place for a tensor from `at` on.
  inline std::uint64_t Align(std::uint64_t at) const {
    return (at + alignment - 1) / alignment * alignment;
  }
  Value::Array kv;                  // metadata, as above
  std::vector<GgufTensor> tensors;  // in the order of the header
  std::uint64_t header_bytes = 0;   // magic to the last tensor's info, without padding
  std::uint64_t data_offset = 0;    // where the data section starts

  std::optional<std::uint64_t> split_no;       // the key split.no: this shard's number, from 0
  std::optional<std::uint64_t> split_count;    // the key split.count: shards in the set
  std::optional<std::uint64_t> split_tensors;  // the key split.tensors.count: tensors in the set
};

// Parses and checks the header of a file that begins with `head`. `file_bytes` is the file's size, nullopt if it is not
// known yet. Returns nullopt if `head` ends before the header does: call again with more. Never allocates more than a
// small multiple of head.size().
//
// A tensor whose type we do not know is not an error: see GgufTensor::unsupported. Errors (kDataLoss; kUnimplemented for
// versions and types of metadata that we do not know) name the key or tensor: truncation, counts beyond the file's size,
// duplicate or empty names, bad alignment, rows that are not whole blocks, sizes that overflow, tensors that overlap, are
// misaligned or lie beyond the end.
StatusOr<std::optional<GgufHeader>> ParseGgufHeader(std::span<const std::byte> head,
                                                    std::optional<std::uint64_t> file_bytes);

// The bytes of `header`: magic to the last tensor's info, in its version and byte order. Fails with
// kDataLoss if `kv` is not of the form above.
StatusOr<std::vector<std::byte>> EncodeGgufHeader(const GgufHeader& header);

}  // namespace zt
