// zt.compress:planes — floats as byte planes (profile ztstream.planes/1): the layout,
// and its zstd frames.
export module zt.compress:planes;

import zt.std;
import :codec;
import zt.core;

export namespace zt {

// The profile's name (docs/PLANES.md): the name of the codec, and the `format` of an object in a
// 1.2 file. It uses all of CodecParameters: elements of `width` bytes (2, 4 or 8) are rotated left
// by `rotate` bits (0 or 1); the elements of `group` bytes (a multiple of width) are stored plane
// by plane; `frame_content` bytes (a multiple of group) are the content of a frame.
inline constexpr std::string_view kPlanesName = "ztstream.planes/1";

// Limit on the content of a frame, and on a group.
inline constexpr std::uint32_t kMaxPlaneChunk = std::uint32_t{16} << 20;

// kDataLoss if parameters violate the rules above, naming the violation. With a frame_content of 0,
// frames may have any size.
Status CheckPlaneLayout(const CodecParameters& layout);

}  // namespace zt

// For the implementation, tests and benchmarks. CheckPlaneLayout must have accepted the layout.
export namespace zt::compress::internal {

// Splits groups into planes; the last group may be shorter. `in` is a whole number of
// elements; `out` has the same size and does not overlap. layout.frame_content is ignored, as
// chunks are whole groups.
void SplitPlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);
// The inverse.
void MergePlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);

// The maximum size of a frame of planes with `content` bytes of content.
std::size_t PlanesFrameBound(std::size_t content, const CodecParameters& layout);

}  // namespace zt::compress::internal

namespace zt::compress::internal {

// Encodes content as one frame whose blocks do not cross the ends of `pieces`, their sizes in
// order, and are coded as those of planes. `out` has PiecesFrameBound bytes. Returns the frame's
// size.
StatusOr<std::size_t> EncodePieces(std::span<const std::byte> content,
                                   std::span<const std::size_t> pieces, std::span<std::byte> out);
std::size_t PiecesFrameBound(std::size_t content, std::size_t pieces);

// Codec::DecodeFrame for frames of any zstd encoder. After an error the contents of
// `out` are undefined.
Status DecodePlanesFrame(const CodecParameters& layout, std::span<const std::byte> in,
                         std::span<std::byte> out);

}  // namespace zt::compress::internal
