// zt.transform:bytes — byte order, index widening, transposition: transforms that
// preserve every value.
export module zt.transform:bytes;

import zt.std;
import zt.core;

export namespace zt {

// Reverses the bytes of each `width`-byte element (1, 2, 4 or 8; 1 changes nothing). The length
// must be a whole number of elements; no alignment is required.
void SwapBytes(std::span<std::byte> data, std::size_t width);
// The same from `in` to `out`, which have the same size and do not overlap.
void SwapBytes(std::span<const std::byte> in, std::span<std::byte> out, std::size_t width);

// Converts in place between the host's byte order and little-endian, the byte order of tensors:
// SwapBytes on a big-endian host, nothing on others.
void LittleEndian(std::span<std::byte> data, std::size_t width);

// Widens little-endian integers of type `from` to u64 in the host's byte order. kDataLoss for a
// negative value: indices have none.
Status WidenToU64(std::span<const std::byte> in, DType from, std::span<std::uint64_t> out);

// out[c * rows + r] = in[r * cols + c] for elements of `width` bytes (1, 2, 4, 8 or 16), in
// cache-sized tiles. Rows of `in` are in_stride elements apart (>= cols), rows of `out` out_stride
// (>= rows). No overlap.
void Transpose(const std::byte* in, std::size_t in_stride, std::byte* out, std::size_t out_stride,
               std::size_t rows, std::size_t cols, std::size_t width);

}  // namespace zt
