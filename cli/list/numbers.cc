// zt.cli:numbers — which numbers the bytes of a component are.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :numbers;

namespace zt::cli::internal {
namespace {

// Elements of less than a byte, the first in the lowest bits of one, and those of f8_e8m0.
class SmallNumbers final : public Transform {
 public:
  // `values`: what the codes mean; of f8_e8m0, of 8 bits, they are not asked.
  SmallNumbers(unsigned bits, const std::array<float, 16>& values, DType to)
      : layout_{.kind = Codes::kLowFirst, .bits = bits, .values = values},
        convert_(*MakeConversion({DType::kF32, ""}, {to, ""}, OnOverflow::kInf)) {}
  std::size_t input_unit() const override { return 1; }
  std::size_t output_unit() const override { return 8 / layout_.bits * convert_->output_unit(); }
  void Apply(std::span<const std::byte> in, std::span<std::byte> out,
             NumericCounts& counts) const override {
    std::vector<float> numbers(in.size() * 8 / layout_.bits);
    if (layout_.bits == 8) {
      (void)DecodeScales({DType::kU8, "f8_e8m0"}, in, numbers.data());
    } else {
      DecodeCodes(layout_, in.data(), 0, 0, numbers);
    }
    if (layout_.bits == 2) {  // these are the codes still
      for (float& each : numbers) each = layout_.values[static_cast<std::size_t>(each)];
    }
    const auto bytes = std::as_writable_bytes(std::span(numbers));
    LittleEndian(bytes, sizeof(float));
    convert_->Apply(bytes, out, counts);
  }

 private:
  const CodeLayout layout_;
  const std::shared_ptr<const Transform> convert_;
};

// The formats of ONNX's elements that share bytes; their shape counts elements.
struct PackedFormat {
  std::string_view format, name;
  unsigned bits;
  const std::array<float, 16>& values;
  DType decoded;
};
constexpr std::array<float, 16> kInt4 = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
constexpr std::array<float, 16> kInt2 = {0, 1, -2, -1};
constexpr PackedFormat kPacked[] = {
    {"onnx.int4/1", "int4", 4, kInt4, DType::kI8},
    {"onnx.uint4/1", "uint4", 4, kPlainValues, DType::kI8},
    {"onnx.int2/1", "int2", 2, kInt2, DType::kI8},
    {"onnx.uint2/1", "uint2", 2, kPlainValues, DType::kI8},
    {"onnx.float4e2m1/1", "float4e2m1", 4, kE2m1Values, DType::kF32},
};

Status NotKnown(std::string_view what) {
  return Unsupported("the numbers of " + std::string(what) + " are not known");
}

StatusOr<std::shared_ptr<const Transform>> DecoderOf(const ElementType& element) {
  const std::string_view name = Name(element);
  if (const bool e2m1 = name == "f4_e2m1"; e2m1 || name == "f8_e8m0")
    return std::make_shared<const SmallNumbers>(e2m1 ? 4 : 8, kE2m1Values, DType::kF32);
  if (element.dtype == DType::kBF16 || name.starts_with("f8_")) {
    auto made = MakeConversion(element, {DType::kF32, ""}, OnOverflow::kInf);
    if (!made.ok()) return NotKnown(name);
    return made;
  }
  if (!ParseDType(name) && !name.starts_with("complex")) return NotKnown(name);
  return std::shared_ptr<const Transform>();
}

}  // namespace

std::vector<std::byte> NumberForm::Decoded(std::span<const std::byte> units) const {
  if (decode == nullptr) return {units.begin(), units.end()};
  std::vector<std::byte> out(units.size() / unit_bytes * decode->output_unit());
  NumericCounts ignored;
  decode->Apply(units, out, ignored);
  return out;
}

StatusOr<NumberForm> FormOf(const Object& object, std::size_t component) {
  const Component& stored = object.components[component];
  NumberForm form{.stored = std::string(Name(stored.element)),
                  .element = stored.element,
                  .shape = object.shape,
                  .numbers = 0};
  const auto* const packed = std::ranges::find_if(
      kPacked, [&](const PackedFormat& each) { return object.format == each.format; });
  const bool is_packed =
      packed != std::end(kPacked) && stored.element == ElementType{DType::kU8, ""};
  if (const GgmlBlock* block = FindGgmlBlockOfFormat(object.format); block != nullptr) {
    ZT_ASSIGN_OR_RETURN(form.decode, MakeDequantize(block->name, DType::kF32));
    form.unit_numbers = block->elems;
    form.stored = block->name;
    form.element = {DType::kF32, ""};
  } else if (is_packed) {
    form.decode =
        std::make_shared<const SmallNumbers>(packed->bits, packed->values, packed->decoded);
    form.stored = packed->name;
    form.element = {packed->decoded, ""};
    form.unit_numbers = form.decode->output_unit() / ByteWidth(packed->decoded);
  } else if (object.format.starts_with("gguf.")) {
    return NotKnown(object.format);
  } else {
    ZT_ASSIGN_OR_RETURN(form.decode, DecoderOf(stored.element));
    if (form.decode != nullptr) {
      form.unit_numbers = form.decode->output_unit() / sizeof(float);
      form.element = {DType::kF32, ""};
    }
  }
  form.unit_bytes =
      form.decode != nullptr ? form.decode->input_unit() : ElementBytes(stored.element);
  if (stored.bytes == kUnknownSize || stored.bytes % form.unit_bytes != 0)
    return NotKnown(object.format + " of " + std::to_string(stored.bytes) + " bytes");
  form.numbers = stored.bytes / form.unit_bytes * form.unit_numbers;
  if (Name(stored.element) == "f4_e2m1") {
    const auto shape = LogicalShape(object.attributes);
    const auto count = shape && shape->size() <= kMaxRank ? ElementCount(*shape) : std::nullopt;
    if (count && *count / 2 + *count % 2 == stored.bytes) {
      form.shape = *shape;
      form.numbers = *count;
    } else if (!form.shape.empty()) {
      form.shape.back() *= form.unit_numbers;
    }
  }
  if (const auto count = ElementCount(form.shape);
      is_packed && count &&
      (*count / form.unit_numbers + (*count % form.unit_numbers != 0)) == stored.bytes)
    form.numbers = *count;
  if (object.components.size() > 1 || ElementCount(form.shape) != form.numbers)
    form.shape = {form.numbers};
  return form;
}

}  // namespace zt::cli::internal
