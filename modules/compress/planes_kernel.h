// planes_kernel — the elements of a group to byte planes and back; plain loops for every CPU target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// From this size on results are stored past the caches, which spares reading each line before it is
// written. Above any chunk of a pipeline: the planes of those are read again at once.
inline constexpr std::size_t kStreamedPlanes = std::size_t{12} << 20;

// Lays `count` elements of `width` bytes (2, 4 or 8), little-endian, out as `width` planes, the most
// significant byte first: out[p * count + i] is byte width - 1 - p of element i, which was rotated
// left by one bit before where `rotate` is set. `in` and `out` do not overlap. `streamed` stores past
// the caches what stands at whole cache lines; FlushPlanes() follows the last such call.
void SplitPlanes(const std::uint8_t* in, std::uint8_t* out, std::size_t count, std::size_t width,
                 bool rotate, bool streamed);

// The same backwards. in[p] is plane p, of `count` bytes.
void MergePlanes(const std::uint8_t* const* in, std::uint8_t* out, std::size_t count,
                 std::size_t width, bool rotate, bool streamed);

void FlushPlanes();

}  // namespace zt::kernel
