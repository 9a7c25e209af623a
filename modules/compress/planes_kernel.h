// planes_kernel — splits the elements of a group into byte planes and merges them; plain loops
// for every CPU target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// Results of at least this size are stored past the caches (non-temporal stores), which saves
// reading each line before it is written. It is larger than any chunk of a pipeline, whose planes
// are read again at once.
inline constexpr std::size_t kStreamedPlanes = std::size_t{12} << 20;

// Splits `count` elements of `width` bytes (2, 4 or 8), little-endian, into `width` planes, the
// most significant byte first: out[p * count + i] is byte width - 1 - p of element i, after a
// rotation left by one bit if `rotate` is set. `in` and `out` do not overlap. `streamed` stores
// whole cache lines past the caches; call FlushPlanes() after the last such call.
void SplitPlanes(const std::uint8_t* in, std::uint8_t* out, std::size_t count, std::size_t width,
                 bool rotate, bool streamed);

// The inverse. in[p] is plane p, of `count` bytes.
void MergePlanes(const std::uint8_t* const* in, std::uint8_t* out, std::size_t count,
                 std::size_t width, bool rotate, bool streamed);

void FlushPlanes();

}  // namespace zt::kernel
