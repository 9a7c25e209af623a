// bytes_kernel — byte order, widening, transposition and streaming stores; for every CPU target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// Results of at least this size are stored past the caches (non-temporal stores), which saves
// reading each line before it is written. Smaller ones should stay in cache: they are read again at
// once (digest, write).
inline constexpr std::size_t kStreamedBytes = std::size_t{12} << 20;

// Reverses each `width` bytes (2, 4 or 8); `bytes` is a multiple of it. `out` equals `in` or
// does not overlap it.
void SwapBytes(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes, std::size_t width);

// Widens `count` integers of `width` bytes. False if one was negative; `out` is then undefined.
bool WidenToU64(const std::uint8_t* in, std::size_t width, bool is_signed, std::size_t count,
                std::uint8_t* out);

// out[c * out_stride + r] = in[r * in_stride + c], strides in elements of `width` bytes (1, 2, 4,
// 8, 16).
void Transpose(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out,
               std::size_t out_stride, std::size_t rows, std::size_t cols, std::size_t width);

// Copies past the caches. `in` and `out` are 64-byte aligned. Call FlushStreamed()
// after the last copy.
void CopyStreamed(const std::uint8_t* in, std::uint8_t* out, std::size_t bytes);
void FlushStreamed();

}  // namespace zt::kernel
