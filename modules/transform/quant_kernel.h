// quant_kernel — codes of quantized checkpoints to f32, and their scales, for every CPU target;
// independent of the modules.
//
// No kernel allocates or fails. No alignment is required, and `in` and `out` do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

// The nibbles of each byte, the low one first, or the high one: out[2 * bytes].
void UnpackNibbles(const std::uint8_t* in, std::size_t bytes, bool high_first, std::uint8_t* out);

// out[i] is the nibble at bit `shift`, a multiple of 4, of the i-th unit of `unit` bytes, 1 or 4.
void PickNibbles(const std::uint8_t* in, std::size_t unit, unsigned shift, std::uint8_t* out,
                 std::size_t count);

// out[i] = table[codes[i]], bit for bit; the table has 16 entries.
void LookUp16(const std::uint8_t* codes, const float* table, float* out, std::size_t count);

// Unsigned and signed bytes as numbers.
void WidenU8(const std::uint8_t* in, float* out, std::size_t count);
void WidenI8(const std::uint8_t* in, float* out, std::size_t count);

// 2^(in[i] - 127); 255 is NaN.
void ExpandE8m0(const std::uint8_t* in, float* out, std::size_t count);

// x[i] = (x[i] - zeros[k]) * scales[k], k = (into + i) / group: runs of elements with one scale.
// `zeros` may be null. Two roundings, never fused. A NaN is 0x7fc00000, the positive
// quiet one.
void ScaleRuns(float* x, std::size_t count, const float* scales, const float* zeros,
               std::size_t into, std::size_t group);
// The same with a scale for each element.
void ScaleEach(float* x, std::size_t count, const float* scales, const float* zeros);
// The same with those of groups[i], which is below 2^31.
void ScaleGathered(float* x, std::size_t count, const std::uint32_t* groups, const float* scales,
                   const float* zeros);

}  // namespace zt::kernel
