// zt.convert.torch — torch's dtypes and storage classes as element types.
module zt.convert.torch;

import zt.std;
import :contents;
import zt.core;

namespace zt {
namespace torch::internal {
namespace {

struct Dtype {
  std::string_view name;     // torch's
  std::string_view element;  // zTensor's
};

constexpr std::array kDtypes = std::to_array<Dtype>({
    {"float64", "f64"},
    {"double", "f64"},
    {"float32", "f32"},
    {"float", "f32"},
    {"float16", "f16"},
    {"half", "f16"},
    {"bfloat16", "bf16"},
    {"int64", "i64"},
    {"long", "i64"},
    {"int32", "i32"},
    {"int", "i32"},
    {"int16", "i16"},
    {"short", "i16"},
    {"int8", "i8"},
    {"uint8", "u8"},
    {"uint16", "u16"},
    {"uint32", "u32"},
    {"uint64", "u64"},
    {"bool", "bool"},
    {"complex64", "complex64"},
    {"cfloat", "complex64"},
    {"complex128", "complex128"},
    {"cdouble", "complex128"},
    {"float8_e4m3fn", "f8_e4m3fn"},
    {"float8_e5m2", "f8_e5m2"},
    {"float8_e4m3fnuz", "f8_e4m3fnuz"},
    {"float8_e5m2fnuz", "f8_e5m2fnuz"},
    {"float8_e8m0fnu", "f8_e8m0"},
    {"float4_e2m1fn_x2", "f4_e2m1"},
    // Storage classes, without "Storage".
    {"Double", "f64"},
    {"Float", "f32"},
    {"Half", "f16"},
    {"BFloat16", "bf16"},
    {"Long", "i64"},
    {"Int", "i32"},
    {"Short", "i16"},
    {"Char", "i8"},
    {"Byte", "u8"},
    {"Bool", "bool"},
    {"ComplexFloat", "complex64"},
    {"ComplexDouble", "complex128"},
    // What quantized tensors are stored as: listed, not converted.
    {"QInt8", "i8"},
    {"QUInt8", "u8"},
    {"QInt32", "i32"},
    {"QUInt4x2", "u8"},
    {"QUInt2x4", "u8"},
});

}  // namespace

std::uint64_t WidthOf(const ElementType& element) {
  const LogicalType* const type = FindLogicalType(element.type);
  return ByteWidth(element.dtype) * (type == nullptr ? 1 : type->ratio);
}

}  // namespace torch::internal

std::optional<ElementType> ParseTorchDtype(std::string_view name) {
  using torch::internal::kDtypes;
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const auto& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? std::nullopt : ParseElementType(found->element);
}

}  // namespace zt
