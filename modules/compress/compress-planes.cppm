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

// Lays whole groups out as planes; the last may be shorter. `in` is a whole number of elements, `out` as large, and they
// do not overlap. The chunk plays no part: chunks are whole groups.
void SplitPlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);
// The same backwards.
void MergePlanes(std::span<const std::byte> in, std::span<std::byte> out,
                 const CodecParameters& layout);

// The most bytes a frame of `content` bytes in planes can take.
std::size_t PlanesFrameBound(std::size_t content, const CodecParameters& layout);

// Writes one frame after another, each of one chunk in planes. What becomes of a plane is decided from its own bytes:
// one value is stored once, noise as it is, all else Huffman-coded. Thread-safe: contexts are pooled.
class PlanesCompressor {
 public:
  PlanesCompressor();
  ~PlanesCompressor();
  PlanesCompressor(const PlanesCompressor&) = delete;
  PlanesCompressor& operator=(const PlanesCompressor&) = delete;

  // Writes one frame of `in`, whole elements, to `out` (at least PlanesFrameBound of it); its size. The same input and
  // layout give the same bytes, whichever thread calls and whatever instructions the machine has.
  StatusOr<std::size_t> Compress(std::span<const std::byte> in, const CodecParameters& layout,
                                 std::span<std::byte> out) const;

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

// Decodes whole frames. Thread-safe: contexts are pooled.
class PlanesDecompressor {
 public:
  PlanesDecompressor();
  ~PlanesDecompressor();
  PlanesDecompressor(const PlanesDecompressor&) = delete;
  PlanesDecompressor& operator=(const PlanesDecompressor&) = delete;

  // Decodes the one frame in `in`, of any zstd encoder, to exactly out.size() bytes of elements; kDataLoss otherwise. The
  // frame's checksum, where it has one, is checked. What is in `out` after an error is not defined.
  Status Decompress(std::span<const std::byte> in, const CodecParameters& layout,
                    std::span<std::byte> out) const;

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace zt
