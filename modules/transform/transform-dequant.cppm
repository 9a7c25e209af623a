// zt.transform:dequant — ggml's quantized block types: their block sizes, and conversion of
// their values to floats.
export module zt.transform:dequant;

import zt.std;
import zt.core;
import :stage;

export namespace zt {

// A ggml type whose elements are stored in blocks. Each row of a tensor is a
// whole number of blocks.
struct GgmlBlock {
  std::string_view name;  // lower case: "q4_k"
  std::uint32_t elems;    // elements per block
  std::uint32_t bytes;    // bytes per block
};

// By lower-case name; null for plain and unknown types.
const GgmlBlock* FindGgmlBlock(std::string_view name);

// The object format for unchanged blocks of that type: "gguf.q4_k/1".
std::string GgmlFormat(std::string_view name);
// The block type of such a format; null for other formats.
const GgmlBlock* FindGgmlBlockOfFormat(std::string_view format);

// A transform from blocks of `ggml_type` ("q4_k") to `to`, one of f32, f16 and bf16: input_unit is
// one block, output_unit its elements. The f32 values are bit for bit those of gguf-py (of ggml for
// q8_k, q1_0 and q2_0, which gguf-py lacks); f16 and bf16 are these values, rounded once to
// nearest, ties to even. A finite value that rounds beyond the largest of f16 or bf16 counts as
// overflow and becomes infinity, or the largest value if `saturate`. kUnimplemented for a type
// without defined values (q8_1) and for other targets.
StatusOr<std::shared_ptr<const Transform>> MakeDequantize(std::string_view ggml_type, DType to,
                                                          bool saturate = false);

}  // namespace zt
