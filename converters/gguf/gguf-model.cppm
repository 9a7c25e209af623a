// zt.convert.gguf:model — what parser, encoder, source, the sets of shards and the plan of a file share. Internal.
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

// Whether an array of `count` numbers is held as their bytes rather than as a list.
bool KeepAsBytes(KvType type, std::uint64_t count);

// The value of a number or bool from its bytes, little-endian. A NaN is held as these bytes: neither CBOR nor a conversion
// keeps its payload.
Value LoadNumber(KvType type, std::span<const std::byte> little);
// The inverse: the bytes as an integer. kDataLoss where `value` is of another kind or out of the type's range.
StatusOr<std::uint64_t> StoreNumber(KvType type, const Value& value);
// Text, or bytes if it is not UTF-8.
Value TextValue(std::string_view text);

// Reads and parses the header of `bytes`; on a pipe the bytes after it are kept.
StatusOr<GgufHeader> ReadHeader(ByteSource& bytes);

struct File {
  std::shared_ptr<ByteSource> bytes;
  GgufHeader header;
};

// A source over the files; `header.kv` of the first is the metadata. Of several files no offsets are recorded.
std::unique_ptr<TensorSource> MakeSource(std::vector<File> files,
                                         std::vector<std::string> warnings);

// How the bytes of a type become those of the other byte order: in each unit of `unit` bytes the listed 2-byte fields
// are swapped, or the unit as a whole if it is one element.
struct ByteOrder {
  std::uint32_t unit = 1;
  std::uint32_t fields = 0;  // 0: the unit is one element; nothing is to be done if that is a byte
  std::array<std::uint32_t, 2> at = {};
};
// kUnimplemented for the block types of which it is not certain what writers of big-endian files do.
StatusOr<ByteOrder> ByteOrderOf(const GgmlType& type);
// Swaps whole units, in place.
void SwapUnits(const ByteOrder& order, std::span<std::byte> data);

// The key of a metadata entry; null if the entry has none, or one that is not UTF-8.
const std::string* KeyOf(const Value& entry);
// True for the keys that say which shard of a set a file is.
bool IsSplitKey(const Value& entry);

}  // namespace zt::gguf::internal
