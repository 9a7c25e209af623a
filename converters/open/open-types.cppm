// zt.open:types — the names by which people call element types.
export module zt.open:types;

import zt.std;
import zt.core;

export namespace zt {

// Finds an element type, also by the names of torch and numpy: float16, half, bfloat16. If `lower`
// is not null, it is set to the normalized name.
std::optional<ElementType> FindTypeName(std::string_view text, std::string* lower = nullptr);

// The types that conversions write, by their usual names, and the same for a sentence.
inline constexpr std::string_view kTypeNames =
    "f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz i64 i32 i16 i8 u64 u32 u16 u8 "
    "bool complex64 complex128";
std::string TypeNames();

}  // namespace zt
