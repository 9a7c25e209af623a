// zt.transform:bytes — byte order, index widening, transposition: changes that keep every value.
export module zt.transform:bytes;

import zt.std;
import zt.core;

export namespace zt {

// Reverses the bytes of each `width`-byte element (1, 2, 4 or 8; 1 changes nothing). Any length that is a whole
// number of elements, any alignment.
void SwapBytes(std::span<std::byte> data, std::size_t width);
// The same from `in` to `out`, which are of equal size and do not overlap.
void SwapBytes(std::span<const std::byte> in, std::span<std::byte> out, std::size_t width);

// Between the machine's byte order and little-endian, which is how tensor bytes travel, in place: SwapBytes on a
// big-endian machine, nothing on others.
void LittleEndian(std::span<std::byte> data, std::size_t width);

// Widens unsigned or signed integers of `from`, little-endian, to u64, the machine's own. kDataLoss on a negative value (indices have none).
Status WidenToU64(std::span<const std::byte> in, DType from, std::span<std::uint64_t> out);

// out[c * rows + r] = in[r * cols + c] for elements of `width` bytes (1, 2, 4, 8 or 16), in cache-sized tiles.
// `in` has in_stride elements from row to row (>= cols), `out` has out_stride (>= rows). No overlap.
void Transpose(const std::byte* in, std::size_t in_stride, std::byte* out, std::size_t out_stride,
               std::size_t rows, std::size_t cols, std::size_t width);

}  // namespace zt
