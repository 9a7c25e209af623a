// zt.core:tensor — storage and logical types, shapes, checked sizes, object declarations (zTensor 1.2 §1-§3).
export module zt.core:tensor;

import zt.std;
import :small;
import :status;
import :value;

export namespace zt {

// The 13 storage types (zTensor 1.2 §2, "dtype"). A closed set: it alone fixes an element's width.
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};
inline constexpr int kDTypeCount = 13;  // values of DType

// Bytes of one storage element: 1, 2, 4 or 8.
std::size_t ByteWidth(DType dtype);
// The spec's spelling: "f64" ... "bool". A literal.
std::string_view Name(DType dtype);
// The dtype of that spelling; nothing for others. Aliases of other formats are not known.
std::optional<DType> ParseDType(std::string_view name);
bool IsFloat(DType dtype);        // f64 f32 f16 bf16
bool IsSignedInt(DType dtype);    // i64 i32 i16 i8
bool IsUnsignedInt(DType dtype);  // u64 u32 u16 u8; bool is none of the three

namespace core::internal {
// The dtype of a number of C++; nothing for characters and for what is no number.
template <class T>
consteval std::optional<DType> BuiltinDType() {
  if constexpr (std::same_as<T, double>) {
    return DType::kF64;
  } else if constexpr (std::same_as<T, float>) {
    return DType::kF32;
  } else if constexpr (std::same_as<T, bool>) {
    return DType::kBool;
  } else if constexpr (Integer<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> &&
                       !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
                       !std::same_as<T, char32_t>) {
    constexpr bool kSigned = static_cast<T>(-1) < T{0};
    switch (sizeof(T)) {
      case 8:
        return kSigned ? DType::kI64 : DType::kU64;
      case 4:
        return kSigned ? DType::kI32 : DType::kU32;
      case 2:
        return kSigned ? DType::kI16 : DType::kU16;
      case 1:
        return kSigned ? DType::kI8 : DType::kU8;
    }
  }
  return std::nullopt;
}
}  // namespace core::internal

// The dtype of a C++ type: double, float, bool and the integers have one. A type of your own with the bits of another
// dtype gets it so: template <> inline constexpr std::optional<zt::DType> zt::kDTypeOf<Half> = zt::DType::kF16;
template <class T>
inline constexpr std::optional<DType> kDTypeOf = core::internal::BuiltinDType<T>();
// A C++ type whose values can be written and read as they lie in memory.
template <class T>
concept Element = std::is_trivially_copyable_v<T> && kDTypeOf<T>.has_value();

// A logical type (zTensor 1.2 §2, "type") and how it is stored. The set is open; these are the ones we can size.
struct LogicalType {
  std::string_view name;  // as `type` spells it, "f8_e4m3fn"
  DType storage;          // its `dtype`
  // Storage elements for each logical element of the object's shape: 2 for complex, else 1. The packed types
  // (f4_e2m1, f6_*) count packed bytes in the shape, so for them it is 1 as well.
  std::uint64_t ratio;
  // Logical elements are narrower than a byte and share bytes: conversions must leave these alone.
  bool packed;
};
// f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz f8_e8m0 complex64 complex128 f4_e2m1 f6_e2m3 f6_e3m2; null otherwise.
const LogicalType* FindLogicalType(std::string_view name);

// What one element is: storage, and the logical type where it differs (empty otherwise).
struct ElementType {
  DType dtype = DType::kU8;  // of storage
  Word type = {};            // logical, empty where it is the dtype; any text, see LogicalType
  bool operator==(const ElementType&) const = default;  // both equal
};
// By either kind of name: "bf16" or "f8_e4m3fn".
std::optional<ElementType> ParseElementType(std::string_view name);
// The logical name: `type` where set, else the dtype's.
std::string_view Name(const ElementType& element);

// Dimensions in elements, the slowest first (C order); empty for a scalar. zTensor 1.2 §1 "shape".
using Shape = InlinedVector<std::uint64_t, 2>;
// The most dimensions a shape may have, in every file that is read or written.
inline constexpr std::size_t kMaxRank = 64;

// a * b, or nothing where the result exceeds 64 bits. For sizes that a file states.
std::optional<std::uint64_t> CheckedMul(std::uint64_t a, std::uint64_t b);
// a + b, or nothing where the result exceeds 64 bits.
std::optional<std::uint64_t> CheckedAdd(std::uint64_t a, std::uint64_t b);
// Product of the dimensions (1 for a scalar). An empty dimension makes it 0 whatever the others are.
std::optional<std::uint64_t> ElementCount(std::span<const std::uint64_t> shape);
// Bytes of a dense array of `shape` (zTensor 1.2 §2 "Computing data size"); nothing on overflow. An unknown logical
// type counts as ratio 1.
std::optional<std::uint64_t> DenseBytes(std::span<const std::uint64_t> shape,
                                        const ElementType& element);
// "[4096, 768]".
std::string ToString(std::span<const std::uint64_t> shape);

// A component's size when its writer does not know it in advance.
inline constexpr std::uint64_t kUnknownSize = ~std::uint64_t{0};

// One blob of an object, before it is stored: its role and what its decoded bytes are (zTensor 1.2 §1 "Component").
struct Component {
  Word role = {};                      // "data", "values", "indices", ...; unique within the object
  ElementType element = {};            // of one element; the bytes are little-endian and in C order
  std::uint64_t bytes = kUnknownSize;  // decoded size
};

// A tensor as zTensor sees it: a shape, a format that says how the components combine, and the components in
// the order their bytes are to be stored (zTensor 1.2 §1 "Object", §3).
struct Object {
  std::string name =
      {};  // UTF-8, unique within a file; empty in 1.x only, which most readers refuse
  Word format = "dense";       // one of §3's, or a name of one's own: "example.growing/1"
  Shape shape = {};            // logical, in elements
  Value::Map attributes = {};  // what the format needs beside the components, or metadata
  InlinedVector<Component, 1> components = {};  // at least one
};

// A dense object with its one component "data", sized from shape and element. kDataLoss on overflow and rank > 64: the
// shape is mostly one that a file states.
StatusOr<Object> DenseObject(std::string name, Shape shape, ElementType element);

// sparse_csr and sparse_coo.
bool IsSparse(std::string_view format);
// Whether a component of these says where values stand: "indices" and "indptr", or "coords".
bool IsIndexRole(std::string_view format, std::string_view role);

// Checks what every version of the format asks of a declaration: a name that is UTF-8, rank <= 64,
// no size overflow, at least one component, unique roles, and for the known formats (dense, sparse_csr,
// sparse_coo, quantized_group) the component set and every size that follows from the shape. kDataLoss, as of a file; see
// OfCaller. Errors do not name the object; callers do.
Status ValidateObject(const Object& object);

}  // namespace zt
