// zt.convert.gguf:model — shared by parser, encoder, source, split sets and plan. Internal.
module zt.convert.gguf:model;

import zt.std;
import zt.core;
import zt.source;
import :header;

namespace zt::gguf::internal {

enum class KvType : std::uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

std::optional<KvType> ParseKvType(std::uint32_t raw);
std::optional<KvType> ParseKvType(std::string_view name);
std::string_view KvName(KvType type);
// Bytes of one value; 0 for strings and arrays.
std::size_t KvWidth(KvType type);
bool IsInteger(KvType type);

// True if an array of `count` numbers is stored as bytes rather than as a list.
bool KeepAsBytes(KvType type, std::uint64_t count);

// The value of a number or bool from its little-endian bytes. A NaN is stored as these bytes,
// because neither CBOR nor a conversion would preserve its payload.
Value LoadNumber(KvType type, std::span<const std::byte> little);
// The inverse: the bytes as an integer. kDataLoss if `value` has another kind or is out
// of the type's range.
StatusOr<std::uint64_t> StoreNumber(KvType type, const Value& value);
// Text, or bytes if it is not UTF-8.
Value TextValue(std::string_view text);

// A parser keeps the values of the metadata, or only checks them.
enum class Values { kKept, kChecked };
// ParseGgufHeader; with kChecked, `kv` stays empty.
StatusOr<std::optional<GgufHeader>> ParseHeader(std::span<const std::byte> head,
                                                std::optional<std::uint64_t> file_bytes,
                                                Values values);
// EncodeGgufHeader with these pairs of metadata in place of `header.kv`.
StatusOr<std::vector<std::byte>> EncodeHeader(const GgufHeader& header,
                                              std::span<const Value* const> pairs);

// Reads and parses the header of `bytes`. Of a pipe, the bytes read behind it are kept.
StatusOr<GgufHeader> ReadHeader(ByteSource& bytes);

struct File {
  std::shared_ptr<ByteSource> bytes;
  GgufHeader header;
};

// Makes a source over the files. Metadata is `header.kv` of the first.
std::unique_ptr<TensorSource> MakeSource(std::vector<File> files,
                                         std::vector<std::string> warnings);

// How a type's bytes are converted to the other byte order: in each unit of `unit` bytes,
// the 2-byte fields at `at` are swapped; if `fields` is 0, the unit is one element and is
// swapped as a whole.
struct ByteOrder {
  std::uint32_t unit = 1;
  std::uint32_t fields = 0;  // number of fields
  std::array<std::uint32_t, 2> at = {};
};
// kUnimplemented for block types whose big-endian form is not certain.
StatusOr<ByteOrder> ByteOrderOf(const GgmlType& type);
// Swaps whole units, in place.
void SwapUnits(const ByteOrder& order, std::span<std::byte> data);

// The key of a metadata entry; null if it has none, or one that is not UTF-8.
const std::string* KeyOf(const Value& entry);
// True for the keys of a split set.
bool IsSplitKey(const Value& entry);

}  // namespace zt::gguf::internal
