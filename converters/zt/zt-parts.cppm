// zt.convert.zt:parts — how each component that is served comes out of what is stored. Internal.
module zt.convert.zt:parts;

import zt.std;
import zt.core;
import zt.reader;
import zt.source;

namespace zt::zt_source::internal {

struct Part {
  enum class Kind : std::uint8_t {
    kWhole,    // the stored component as it is
    kWidened,  // its integers, as u64
    kRange,    // `object.components[].bytes` of its bytes from `base`
    kCoords,   // of interleaved entries: the indices, dimension by dimension
    kValues,   // of interleaved entries: the values
    kInline,   // `bytes`, which stood in the manifest
  };
  Kind kind = Kind::kWhole;
  ComponentId stored;
  std::uint64_t base = 0;
  std::uint64_t entries = 0;  // interleaved: how many
  std::vector<std::byte> bytes;
};

// An object as it is served; where `refusal` is not OK, as it is stored.
struct Served {
  Object object;
  std::vector<Part> parts;
  Status refusal;
};

// Whether the object is one of 0.1.0's sparse entries: one blob under a layout of its own.
bool IsSparse01(const Reader& reader, std::uint32_t index);
// Fails only where the file cannot be read; what is wrong with the entry is its refusal.
StatusOr<Served> ServeSparse01(const Reader& reader, std::uint32_t index);

// Whole elements of a part, from the element at byte `offset` of what is served.
Status ReadWidened(const Reader& reader, const Part& part, std::uint64_t offset,
                   std::span<std::byte> out);
Status ReadCoords(const Reader& reader, const Object& object, const Part& part,
                  std::uint64_t offset, std::span<std::byte> out);
Status ReadValues(const Reader& reader, const Object& object, const Part& part,
                  std::uint64_t offset, std::span<std::byte> out);

inline constexpr std::size_t kIndexBytes = 8;
void StoreIndex(std::uint64_t index, std::byte* to);

}  // namespace zt::zt_source::internal
