// zt.convert.gguf:model — what the source, the sets of shards and the plan of a file share. Internal.
module zt.convert.gguf:model;

import zt.std;
import zt.core;
import zt.source;
import :header;

namespace zt::gguf::internal {

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
