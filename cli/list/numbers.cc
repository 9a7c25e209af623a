// zt.cli:numbers — which numbers the bytes of a component are.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :numbers;

namespace zt::cli::internal {
namespace {

// Bytes that each stand for `kEach` numbers out of a table.
template <std::size_t kEach, class Number = float>
class Lookup final : public Transform {
 public:
  using Table = std::array<std::array<Number, kEach>, 256>;
  explicit Lookup(const Table& table) : table_(table) {}
  std::size_t input_unit() const override { return 1; }
  std::size_t output_unit() const override { return sizeof(table_[0]); }
  void Apply(std::span<const std::byte> in, std::span<std::byte> out,
             NumericCounts&) const override {
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto& numbers = table_[static_cast<std::uint8_t>(in[i])];
      std::memcpy(&out[i * sizeof numbers], numbers.data(), sizeof numbers);
    }
    LittleEndian(out, sizeof(Number));
  }

 private:
  const Table table_;
};

// Powers of two; the last pattern is NaN.
std::shared_ptr<const Transform> DecodeE8m0() {
  Lookup<1>::Table table;
  for (int i = 0; i < 255; ++i) table[static_cast<std::size_t>(i)][0] = std::ldexp(1.0f, i - 127);
  table[255][0] = std::numeric_limits<float>::quiet_NaN();
  return std::make_shared<const Lookup<1>>(table);
}

// Two to a byte, the first in the low half.
std::shared_ptr<const Transform> DecodeE2m1() {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const auto value = [&](std::size_t bits) {
    return bits < 8 ? kValues[bits] : -kValues[bits - 8];
  };
  Lookup<2>::Table table;
  for (std::size_t i = 0; i < 256; ++i) table[i] = {value(i & 15), value(i >> 4)};
  return std::make_shared<const Lookup<2>>(table);
}

// Several to a byte, the first in the lowest bits.
template <std::size_t kBits, bool kSigned>
std::shared_ptr<const Transform> DecodeIntegers() {
  constexpr int kEnd = 1 << kBits;
  typename Lookup<8 / kBits, std::int8_t>::Table table;
  for (std::size_t i = 0; i < 256; ++i) {
    for (std::size_t k = 0; k < 8 / kBits; ++k) {
      const int code = static_cast<int>(i >> k * kBits) % kEnd;
      table[i][k] = static_cast<std::int8_t>(kSigned && code >= kEnd / 2 ? code - kEnd : code);
    }
  }
  return std::make_shared<const Lookup<8 / kBits, std::int8_t>>(table);
}

// The formats of ONNX's elements that share bytes; their shape counts elements.
struct PackedFormat {
  std::string_view format, name;
  std::shared_ptr<const Transform> (*decode)();
  DType decoded;
};
constexpr PackedFormat kPacked[] = {
    {"onnx.int4/1", "int4", DecodeIntegers<4, true>, DType::kI8},
    {"onnx.uint4/1", "uint4", DecodeIntegers<4, false>, DType::kI8},
    {"onnx.int2/1", "int2", DecodeIntegers<2, true>, DType::kI8},
    {"onnx.uint2/1", "uint2", DecodeIntegers<2, false>, DType::kI8},
    {"onnx.float4e2m1/1", "float4e2m1", DecodeE2m1, DType::kF32},
};

// The shape of packed elements by the attribute logical_shape, since the object's own counts bytes;
// nullopt if there is none, or another number of elements.
std::optional<Shape> LogicalShape(const Object& object, std::uint64_t bytes) {
  const Value* const logical = FindMember(object.attributes, kLogicalShape);
  std::optional<Shape> shape = logical == nullptr ? std::nullopt : ToShape(*logical);
  if (!shape || shape->size() > kMaxRank) return std::nullopt;
  const auto count = ElementCount(*shape);
  return count && *count / 2 + *count % 2 == bytes ? shape : std::nullopt;
}

Status NotKnown(std::string_view what) {
  return Unsupported("the numbers of " + std::string(what) + " are not known");
}

StatusOr<std::shared_ptr<const Transform>> DecoderOf(const ElementType& element) {
  const std::string_view name = Name(element);
  if (name == "f4_e2m1") return DecodeE2m1();
  if (name == "f8_e8m0") return DecodeE8m0();
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
    form.decode = packed->decode();
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
    if (const auto shape = LogicalShape(object, stored.bytes)) {
      form.shape = *shape;
      form.numbers = *ElementCount(*shape);
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
