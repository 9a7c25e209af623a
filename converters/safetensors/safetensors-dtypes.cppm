// zt.convert.safetensors:dtypes — the element types of safetensors. Internal.
module zt.convert.safetensors:dtypes;

import zt.std;

namespace zt::safetensors::internal {

struct DTypeRow {
  std::string_view tag;   // safetensors' name
  std::string_view name;  // zTensor's name
  unsigned bits;
};

// In the reference library's order. Its writer sorts the tensors of a file by the
// reverse of this order.
inline constexpr DTypeRow kDTypes[] = {
    {"BOOL", "bool", 8},
    {"F4", "f4_e2m1", 4},
    {"F6_E2M3", "f6_e2m3", 6},
    {"F6_E3M2", "f6_e3m2", 6},
    {"U8", "u8", 8},
    {"I8", "i8", 8},
    {"F8_E5M2", "f8_e5m2", 8},
    {"F8_E4M3", "f8_e4m3fn", 8},
    {"F8_E8M0", "f8_e8m0", 8},
    {"F8_E4M3FNUZ", "f8_e4m3fnuz", 8},
    {"F8_E5M2FNUZ", "f8_e5m2fnuz", 8},
    {"I16", "i16", 16},
    {"U16", "u16", 16},
    {"F16", "f16", 16},
    {"BF16", "bf16", 16},
    {"I32", "i32", 32},
    {"U32", "u32", 32},
    {"F32", "f32", 32},
    {"C64", "complex64", 64},
    {"F64", "f64", 64},
    {"I64", "i64", 64},
    {"U64", "u64", 64},
};

}  // namespace zt::safetensors::internal
