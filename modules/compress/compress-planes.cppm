// zt.compress:planes — floats as byte planes (profile ztstream.planes/1): the layout, and zstd frames of it.
export module zt.compress:planes;

import zt.std;
import :codec;
import zt.core;

export namespace zt {

// The profile's name (docs/PLANES.md): the name of the codec, and the `format` of an object in a 1.2 file. All of
// CodecParameters is used: of elements of `width` bytes (2, 4 or 8), rotated left by `rotate` bits (0 or 1), those of
// `group` bytes (a multiple of width) stand together plane by plane, and `chunk` bytes (a multiple of group) are the
// content of a frame.
inline constexpr std::string_view kPlanesName = "ztstream.planes/1";

// The most bytes a chunk may have.
inline constexpr std::uint32_t kMaxPlaneChunk = std::uint32_t{16} << 20;

// kDataLoss where parameters break what is said above, saying how. A chunk of 0 leaves open how long frames are.
Status CheckPlaneLayout(const CodecParameters& layout);

}  // namespace zt

// For the bodies, tests and measurements. Layouts have passed CheckPlaneLayout.
export namespace zt::compress::internal {

// Lays whole groups out as planes; the last may be shorter. `in` is a whole number of elements, `out` as large, and they
// do not overlap. The chunk plays no part: chunks are whole groups.
void SplitPlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);
// The same backwards.
void MergePlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);

// The most bytes a frame of `content` bytes in planes can take.
std::size_t PlanesFrameBound(std::size_t content, const CodecParameters& layout);

}  // namespace zt::compress::internal

namespace zt::compress::internal {

// Codec::DecodeFrame, of frames by any zstd encoder. What is in `out` after an error is not defined.
Status DecodePlanesFrame(const CodecParameters& layout, std::span<const std::byte> in,
                         std::span<std::byte> out);

}  // namespace zt::compress::internal
