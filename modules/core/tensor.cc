// zt.core:tensor — the tables of element types, and the checks of declarations.
module;

#include "core/name_table.h"

module zt.core;

import zt.std;

namespace zt {
namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t width;
};
constexpr std::array<DTypeRow, kDTypeCount> kDTypes = {{{"f64", 8},
                                                        {"f32", 4},
                                                        {"f16", 2},
                                                        {"bf16", 2},
                                                        {"i64", 8},
                                                        {"i32", 4},
                                                        {"i16", 2},
                                                        {"i8", 1},
                                                        {"u64", 8},
                                                        {"u32", 4},
                                                        {"u16", 2},
                                                        {"u8", 1},
                                                        {"bool", 1}}};

constexpr LogicalType kLogicalTypes[] = {
    {"f8_e4m3fn", DType::kU8, 1, false},   {"f8_e5m2", DType::kU8, 1, false},
    {"f8_e4m3fnuz", DType::kU8, 1, false}, {"f8_e5m2fnuz", DType::kU8, 1, false},
    {"f8_e8m0", DType::kU8, 1, false},     {"complex64", DType::kF32, 2, false},
    {"complex128", DType::kF64, 2, false}, {"f4_e2m1", DType::kU8, 1, true},
    {"f6_e2m3", DType::kU8, 1, true},      {"f6_e3m2", DType::kU8, 1, true},
};

const Component* FindRole(const Object& object, std::string_view role) {
  for (const Component& component : object.components) {
    if (component.role == role) return &component;
  }
  return nullptr;
}

// The number of elements of a component of known size; an error if its bytes are not whole
// elements.
StatusOr<std::uint64_t> WholeElements(const Component& component) {
  const std::size_t width = ByteWidth(component.element.dtype);
  if (component.bytes % width != 0) {
    return InvalidData("component " + Quote(component.role) + " has " +
                       std::to_string(component.bytes) + " bytes, not a whole number of " +
                       std::string(Name(component.element.dtype)) + " elements");
  }
  return component.bytes / width;
}

Status RequireRoles(const Object& object, std::initializer_list<std::string_view> required,
                    bool exactly) {
  for (const std::string_view role : required) {
    if (FindRole(object, role) == nullptr) {
      return InvalidData(object.format + " needs a component " + Quote(role));
    }
  }
  if (exactly && object.components.size() != required.size()) {
    for (const Component& component : object.components) {
      if (std::find(required.begin(), required.end(), component.role) == required.end()) {
        return InvalidData(object.format + " has no component " + Quote(component.role));
      }
    }
  }
  return OkStatus();
}

Status RequireElements(const Component& component, std::uint64_t expected, std::string_view why) {
  if (component.bytes == kUnknownSize) return OkStatus();
  auto count = WholeElements(component);
  if (!count.ok()) return count.status();
  if (*count == expected) return OkStatus();
  return InvalidData("component " + Quote(component.role) + " has " + std::to_string(*count) +
                     " elements, " + std::string(why) + " needs " + std::to_string(expected));
}

// The number of values; a complex value counts once.
StatusOr<std::uint64_t> ValueCount(const Component& values) {
  auto count = WholeElements(values);
  if (!count.ok()) return count.status();
  const std::uint64_t ratio = ElementBytes(values.element) / ByteWidth(values.element.dtype);
  if (*count % ratio != 0) {
    return InvalidData("component 'values' holds half a complex number");
  }
  return *count / ratio;
}

// True if `values` packs two f4_e2m1 elements per byte, one for each index. An index has `each`
// coordinates.
bool SharesBytes(const Component& values, const Component& indices, std::size_t each) {
  const std::size_t step = ByteWidth(indices.element.dtype) * each;
  if (values.element.type != "f4_e2m1" || indices.bytes == kUnknownSize || step == 0) return false;
  const std::uint64_t count = indices.bytes / step;
  return indices.bytes % step == 0 && values.bytes == count / 2 + count % 2;
}

// Checks that a logical type is stored as its dtype. A type that is the name of a dtype must be the
// same dtype.
Status CheckElement(const ElementType& element) {
  if (element.type.empty()) return OkStatus();
  const LogicalType* const type = FindLogicalType(element.type);
  const auto storage = type != nullptr ? std::optional(type->storage) : ParseDType(element.type);
  if (!storage || *storage == element.dtype) return OkStatus();
  return InvalidData("type " + element.type + " is stored as " + std::string(Name(*storage)) +
                     ", not as " + std::string(Name(element.dtype)));
}

Status ValidateDense(const Object& object) {
  if (auto status = RequireRoles(object, {"data"}, true); !status.ok()) return status;
  const Component& data = object.components[0];
  const auto expected = DenseBytes(object.shape, data.element);
  if (!expected) return InvalidData("shape " + ToString(object.shape) + " overflows 64 bits");
  if (data.bytes == kUnknownSize) return OkStatus();
  // An unknown logical type may pack any number of storage elements: only whole storage elements
  // can be required.
  if (!data.element.type.empty() && FindLogicalType(data.element.type) == nullptr &&
      !ParseDType(data.element.type)) {
    return WholeElements(data).status();
  }
  if (data.bytes != *expected) {
    return InvalidData("data has " + std::to_string(data.bytes) + " bytes, shape " +
                       ToString(object.shape) + " of " + std::string(Name(data.element)) +
                       " needs " + std::to_string(*expected));
  }
  return OkStatus();
}

Status ValidateCsr(const Object& object) {
  if (auto status = RequireRoles(object, {"values", "indices", "indptr"}, true); !status.ok()) {
    return status;
  }
  if (object.shape.size() != 2) {
    return InvalidData("sparse_csr has shape " + ToString(object.shape) +
                       ", two dimensions are needed");
  }
  const auto pointers = CheckedAdd(object.shape[0], 1);
  if (!pointers) return InvalidData("shape " + ToString(object.shape) + " overflows 64 bits");
  if (auto status = RequireElements(*FindRole(object, "indptr"), *pointers, "the row count");
      !status.ok()) {
    return status;
  }
  const Component& values = *FindRole(object, "values");
  const Component& indices = *FindRole(object, "indices");
  if (values.bytes == kUnknownSize || SharesBytes(values, indices, 1)) return OkStatus();
  auto count = ValueCount(values);
  if (!count.ok()) return count.status();
  return RequireElements(indices, *count, "the number of values");
}

Status ValidateCoo(const Object& object) {
  if (auto status = RequireRoles(object, {"values", "coords"}, true); !status.ok()) return status;
  const Component& values = *FindRole(object, "values");
  const Component& indices = *FindRole(object, "coords");
  if (values.bytes == kUnknownSize || SharesBytes(values, indices, object.shape.size())) {
    return OkStatus();
  }
  auto count = ValueCount(values);
  if (!count.ok()) return count.status();
  const auto coords = CheckedMul(*count, object.shape.size());
  if (!coords) return InvalidData("coords overflow 64 bits");
  return RequireElements(indices, *coords, "values times rank");
}

}  // namespace

std::size_t ByteWidth(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].width; }
std::string_view Name(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> ParseDType(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) { return dtype <= DType::kBF16; }
bool IsSignedInt(DType dtype) { return dtype >= DType::kI64 && dtype <= DType::kI8; }
bool IsUnsignedInt(DType dtype) { return dtype >= DType::kU64 && dtype <= DType::kU8; }

const LogicalType* FindLogicalType(std::string_view name) {
  if (name.empty()) return nullptr;
  for (const LogicalType& type : kLogicalTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::optional<ElementType> ParseElementType(std::string_view name) {
  if (const auto dtype = ParseDType(name)) return ElementType{*dtype, ""};
  if (const LogicalType* type = FindLogicalType(name)) {
    return ElementType{type->storage, std::string(type->name)};
  }
  return std::nullopt;
}

std::string_view Name(const ElementType& element) {
  return element.type.empty() ? Name(element.dtype) : std::string_view(element.type);
}

std::size_t ElementBytes(const ElementType& element) {
  const LogicalType* type = FindLogicalType(element.type);
  return ByteWidth(element.dtype) * (type == nullptr ? 1 : type->ratio);
}

std::optional<std::uint64_t> CheckedMul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

std::optional<std::uint64_t> CheckedAdd(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

std::optional<Shape> ToShape(const Value& value) {
  const Value::Array* dims = value.AsArray();
  if (dims == nullptr) return std::nullopt;
  Shape shape;
  for (const Value& dim : *dims) {
    if (dim.AsUint() == nullptr) return std::nullopt;
    shape.push_back(*dim.AsUint());
  }
  return shape;
}

std::optional<std::uint64_t> ElementCount(std::span<const std::uint64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t count = 1;
  for (const std::uint64_t dim : shape) {
    const auto next = CheckedMul(count, dim);
    if (!next) return std::nullopt;
    count = *next;
  }
  return count;
}

std::optional<std::uint64_t> DenseBytes(std::span<const std::uint64_t> shape,
                                        const ElementType& element) {
  const auto count = ElementCount(shape);
  return count ? CheckedMul(*count, ElementBytes(element)) : std::nullopt;
}

std::string ToString(std::span<const std::uint64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

StatusOr<Object> DenseObject(std::string name, Shape shape, ElementType element) {
  if (shape.size() > kMaxRank) {
    return InvalidData("rank " + std::to_string(shape.size()) + " exceeds " +
                       std::to_string(kMaxRank));
  }
  const auto bytes = DenseBytes(shape, element);
  if (!bytes) return InvalidData("shape " + ToString(shape) + " overflows 64 bits");
  static const InternedString format = "dense", role = "data";
  Object object = {.name = std::move(name), .format = format, .shape = std::move(shape)};
  object.components.push_back(Component{role, std::move(element), *bytes});
  return object;
}

bool IsSparse(std::string_view format) { return format == "sparse_csr" || format == "sparse_coo"; }

bool IsIndexRole(std::string_view format, std::string_view role) {
  if (format == "sparse_csr") return role == "indices" || role == "indptr";
  return format == "sparse_coo" && role == "coords";
}

Status ValidateObject(const Object& object) {
  if (!IsUtf8(object.name)) return InvalidData("the name is not valid UTF-8");
  if (object.shape.size() > kMaxRank) {
    return InvalidData("rank " + std::to_string(object.shape.size()) + " exceeds " +
                       std::to_string(kMaxRank));
  }
  if (object.format.empty()) return InvalidData("the format is empty");
  if (object.components.empty()) return InvalidData("there is no component");
  for (const Component& component : object.components) {
    if (component.role.empty()) return InvalidData("a component's role is empty");
    if (!IsUtf8(component.role)) return InvalidData("a component's role is not valid UTF-8");
    if (auto status = CheckElement(component.element); !status.ok()) return status;
  }
  const auto role_of = [&](std::size_t i) { return std::string_view(object.components[i].role); };
  if (const auto twice = internal::FindTwice(object.components.size(), role_of)) {
    return InvalidData("component " + Quote(role_of(twice->again)) + " is declared twice");
  }
  if (object.format == "dense") return ValidateDense(object);
  if (object.format == "sparse_csr") return ValidateCsr(object);
  if (object.format == "sparse_coo") return ValidateCoo(object);
  if (object.format == "quantized_group") {
    if (auto status = RequireRoles(object, {"packed_weight", "scales"}, false); !status.ok())
      return status;
  }
  for (const Component& component : object.components) {
    if (component.bytes == kUnknownSize) continue;
    if (auto count = WholeElements(component); !count.ok()) return count.status();
  }
  return OkStatus();
}

}  // namespace zt
