// zt.format — dtype names of old versions, and the roles that are indices.
module zt.format;

import zt.std;
import :dialect;
import zt.core;

namespace zt::format::internal {
namespace {

struct LongNameRow {
  std::string_view text;  // 0.1 §5.1
  DType dtype;
};
constexpr std::array<LongNameRow, kDTypeCount> kLongNames = {{{"float64", DType::kF64},
                                                              {"float32", DType::kF32},
                                                              {"float16", DType::kF16},
                                                              {"bfloat16", DType::kBF16},
                                                              {"int64", DType::kI64},
                                                              {"int32", DType::kI32},
                                                              {"int16", DType::kI16},
                                                              {"int8", DType::kI8},
                                                              {"uint64", DType::kU64},
                                                              {"uint32", DType::kU32},
                                                              {"uint16", DType::kU16},
                                                              {"uint8", DType::kU8},
                                                              {"bool", DType::kBool}}};

}  // namespace

std::optional<ElementType> ParseLongName(std::string_view text) {
  for (const LongNameRow& row : kLongNames) {
    if (row.text == text) return ElementType{row.dtype, ""};
  }
  return std::nullopt;
}

std::optional<std::string_view> LongName(const ElementType& element) {
  if (!element.type.empty()) return std::nullopt;
  for (const LongNameRow& row : kLongNames) {
    if (row.dtype == element.dtype) return row.text;
  }
  return std::nullopt;
}

}  // namespace zt::format::internal
