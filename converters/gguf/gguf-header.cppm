// zt.convert.gguf:header — parses and encodes GGUF's header, without I/O.
export module zt.convert.gguf:header;

import zt.std;
import zt.core;

export namespace zt {

// A tensor type of GGUF. Plain types have one element per block.
struct GgmlType {
  std::uint32_t id;            // its number in the file
  std::string_view name;       // lower case: "f32", "q4_k"
  std::optional<DType> plain;  // set for plain types
  std::uint32_t elems = 1;     // elements per block
  std::uint32_t bytes = 0;     // bytes per block
};
// kUnimplemented for removed and unknown ids, naming them.
StatusOr<GgmlType> FindGgmlType(std::uint32_t id);
// The type with this lower-case name, if it can occur in a file.
std::optional<GgmlType> FindGgmlType(std::string_view name);

// llama.cpp's limits on the dimensions of a tensor, and on the bytes of its name.
inline constexpr std::uint32_t kGgufMaxDims = 4, kGgufMaxName = 63;
// What is read, and written again: files of image and video models have more of both.
inline constexpr std::uint32_t kGgufMostDims = 8, kGgufMostName = 127;
// In bytes; used if the metadata has no key general.alignment.
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
// Limit on a stated alignment, in bytes.
inline constexpr std::uint64_t kGgufMaxAlignment = std::uint64_t{1} << 20;
// Limit on the header: a larger one would not fit in a manifest (1 GiB at most).
inline constexpr std::uint64_t kGgufMaxHeader = std::uint64_t{1} << 30;
// Limit on the key-value pairs: one takes twenty times its bytes in memory. Models have hundreds.
inline constexpr std::uint64_t kGgufMaxPairs = std::uint64_t{1} << 18;

// A tensor's info in the header.
struct GgufTensor {
  std::string name;          // unique in the file
  GgmlType type;             // of its elements or blocks
  Shape shape;               // row-major: GGUF's dimensions reversed
  std::uint64_t offset = 0;  // from the start of the data section
  // As type and shape require; for an unknown type, up to the next tensor.
  std::uint64_t bytes = 0;
  // Why the type is not supported. Such a tensor can be listed, but not read.
  Status unsupported = {};
};

// Metadata in the form of the attribute "gguf" of a .zt file. `kv` has one array per pair, in
// the file's order: [key, type, value]. Types are u8 i8 u16 i16 u32 i32 f32 bool string array
// u64 i64 f64. Values:
//   integers, bool  as they are
//   f32, f64        a double; a NaN is its 4 or 8 bytes, little-endian, so that its payload
//                   survives
//   string, key     text; bytes if it is not UTF-8
//   array           [element type, values]: a list, or, for u8, i8 and for more than 64 numbers,
//                   their little-endian bytes; an array of arrays is a list of such pairs
struct GgufHeader {
  std::uint32_t version = 3;   // 1, 2 or 3
  bool big_endian = false;     // applies to all numbers, in header and tensors
  bool swapped_magic = false;  // magic "FUGG", as some big-endian writers have it
  std::uint64_t alignment = kGgufDefaultAlignment;  // of each tensor, in bytes
  // True if the tensors do not follow one another in the order of the header, with padding alone
  // between them, as llama.cpp asks.
  bool scattered = false;
  // The first aligned offset at or after `at`.
  inline std::uint64_t Align(std::uint64_t at) const {
    return (at + alignment - 1) / alignment * alignment;
  }
  Value::Array kv;                  // metadata, as above
  std::vector<GgufTensor> tensors;  // in the order of the header
  std::uint64_t header_bytes = 0;   // from the magic to the last tensor's info, without padding
  std::uint64_t data_offset = 0;    // offset of the data section

  std::optional<std::uint64_t> split_no;     // key split.no: number of this shard, from 0
  std::optional<std::uint64_t> split_count;  // key split.count: number of shards in the set
  // key split.tensors.count: number of tensors in the set
  std::optional<std::uint64_t> split_tensors;
};

// Parses and validates the header of a file that begins with `head`. `file_bytes` is the file's
// size, nullopt if not yet known. Returns nullopt if the header continues behind `head`: call again
// with more. Allocates at most a small multiple of head.size().
//
// A tensor of unknown type is no error: see GgufTensor::unsupported. Errors name the key or tensor:
// kUnimplemented for unknown versions and metadata types; kDataLoss for truncation, counts beyond
// the file's size, duplicate or empty names, bad alignment, rows that are not whole blocks, sizes
// that overflow, and tensors that overlap, are misaligned or lie beyond the end.
StatusOr<std::optional<GgufHeader>> ParseGgufHeader(std::span<const std::byte> head,
                                                    std::optional<std::uint64_t> file_bytes);

// Encodes `header`, from the magic to the last tensor's info, in its version and byte order.
// kDataLoss if `kv` does not have the form above.
StatusOr<std::vector<std::byte>> EncodeGgufHeader(const GgufHeader& header);

}  // namespace zt
