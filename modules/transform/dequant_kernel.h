// Kernels that convert blocks of ggml's quantized types to f32. They do not allocate, cannot fail,
// and are independent of the modules.
//
// Each reads `blocks` whole blocks from `in` and writes their elements to `out`. No
// alignment is required. Products and sums are rounded separately, never fused, so the bits
// are those of gguf-py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zt::kernel {

using DequantFn = void(const std::uint8_t* in, float* out, std::size_t blocks);

// Blocks of 32 to 128 elements: dequant_small_kernel.cc.
DequantFn DequantQ4_0, DequantQ4_1, DequantQ5_0, DequantQ5_1, DequantQ8_0, DequantIQ4_NL,
    DequantMXFP4, DequantNVFP4, DequantQ1_0, DequantQ2_0;
// Blocks of 256: dequant_k_kernel.cc.
DequantFn DequantQ2_K, DequantQ3_K, DequantQ4_K, DequantQ5_K, DequantQ6_K, DequantQ8_K,
    DequantIQ4_XS, DequantTQ1_0, DequantTQ2_0;
// Blocks of 256 that index grids: dequant_iq_kernel.cc.
DequantFn DequantIQ2_XXS, DequantIQ2_XS, DequantIQ2_S, DequantIQ3_XXS, DequantIQ3_S, DequantIQ1_S,
    DequantIQ1_M;

}  // namespace zt::kernel
