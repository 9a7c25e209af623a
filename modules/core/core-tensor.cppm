// zt.core:tensor — storage and logical types, shapes, checked sizes, object declarations
// (zTensor 1.2 §1-§3).
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
// The spec's name of the dtype, "f64" ... "bool", as a literal.
std::string_view Name(DType dtype);
// The dtype with that name, or nullopt. Does not know aliases of other formats.
std::optional<DType> ParseDType(std::string_view name);
bool IsFloat(DType dtype);        // f64 f32 f16 bf16
bool IsSignedInt(DType dtype);    // i64 i32 i16 i8
bool IsUnsignedInt(DType dtype);  // u64 u32 u16 u8; bool is in none of the three

namespace core::internal {
// The dtype of a C++ arithmetic type; nullopt for characters and other types.
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

// The dtype of a C++ type: defined for double, float, bool and integers. Specialize it for your own
// type:
// template <> inline constexpr std::optional<zt::DType> zt::kDTypeOf<Half> = zt::DType::kF16;
template <class T>
inline constexpr std::optional<DType> kDTypeOf = core::internal::BuiltinDType<T>();
// A C++ type that can be copied to and from tensor bytes.
template <class T>
concept Element = std::is_trivially_copyable_v<T> && kDTypeOf<T>.has_value();

// A logical type (zTensor 1.2 §2, "type") and how it is stored. The set is open; this library knows
// the size of those listed.
struct LogicalType {
  std::string_view name;  // the value of `type`: "f8_e4m3fn"
  DType storage;          // the value of `dtype`
  // Storage elements per logical element of the shape: 2 for complex, else 1. Shapes of packed
  // types (f4_e2m1, f6_*) count packed bytes, so their ratio is 1 too.
  std::uint64_t ratio;
  // True if logical elements are narrower than a byte and share bytes: conversions must not change
  // them.
  bool packed;
};
// Knows f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz f8_e8m0 complex64 complex128 f4_e2m1 f6_e2m3
// f6_e3m2; null for others.
const LogicalType* FindLogicalType(std::string_view name);

// The type of an element: storage, and the logical type if it differs.
struct ElementType {
  DType dtype = DType::kU8;  // of storage
  InternedString type = {};  // empty if the dtype is the logical type; any text, see LogicalType
  bool operator==(const ElementType&) const = default;  // dtype and type are equal
};
// Parses a dtype or a logical type: "bf16" or "f8_e4m3fn".
std::optional<ElementType> ParseElementType(std::string_view name);
// The logical type if set, else the dtype.
std::string_view Name(const ElementType& element);
// Bytes of an element; of one stored element if the logical type is packed or unknown.
std::size_t ElementBytes(const ElementType& element);

// Dimensions in elements, the slowest first (C order); empty for a scalar. zTensor 1.2 §1 "shape".
using Shape = InlinedVector<std::uint64_t, 2>;

// The attribute with the shape in elements of a packed tensor, whose own shape counts bytes.
inline constexpr std::string_view kLogicalShape = "logical_shape";
// The shape that an attribute holds as a list. Nothing if it is not a list of unsigned integers.
std::optional<Shape> ToShape(const Value& value);
// Limit on the dimensions of a shape, in every file read or written.
inline constexpr std::size_t kMaxRank = 64;

// a * b, or nullopt if it overflows 64 bits. For sizes from a file.
std::optional<std::uint64_t> CheckedMul(std::uint64_t a, std::uint64_t b);
// a + b, or nullopt if it overflows 64 bits.
std::optional<std::uint64_t> CheckedAdd(std::uint64_t a, std::uint64_t b);
// Product of the dimensions (1 for a scalar); nullopt on overflow. It is 0 if any dimension is 0,
// whatever the others.
std::optional<std::uint64_t> ElementCount(std::span<const std::uint64_t> shape);
// Bytes of a dense array of `shape` (zTensor 1.2 §2 "Computing data size"); nullopt on overflow.
std::optional<std::uint64_t> DenseBytes(std::span<const std::uint64_t> shape,
                                        const ElementType& element);
// "[4096, 768]".
std::string ToString(std::span<const std::uint64_t> shape);

// The size of a component whose writer does not know it in advance.
inline constexpr std::uint64_t kUnknownSize = ~std::uint64_t{0};

// One array of an object: its role, element type and decoded size (zTensor 1.2 §1 "Component").
struct Component {
  InternedString role = {};            // "data", "values", "indices", ...; unique within the object
  ElementType element = {};            // bytes are little-endian, in C order
  std::uint64_t bytes = kUnknownSize;  // decoded size
};

// A tensor: a shape, a format that says how the components combine, and the components in the order
// in which their bytes are stored (zTensor 1.2 §1 "Object", §3).
struct Object {
  // UTF-8, unique within a file. Only 1.x allows an empty name, and most readers refuse it.
  std::string name = {};
  InternedString format = "dense";              // of §3, or custom: "example.growing/1"
  Shape shape = {};                             // logical, in elements
  Value::Map attributes = {};                   // parameters of the format, or metadata
  InlinedVector<Component, 1> components = {};  // at least one
};

// Makes a dense object with one component "data", sized from shape and element. kDataLoss on
// overflow or rank > 64, because the shape usually comes from a file.
StatusOr<Object> DenseObject(std::string name, Shape shape, ElementType element);

// True for sparse_csr and sparse_coo.
bool IsSparse(std::string_view format);
// True if the component holds positions of values: "indices" and "indptr", or "coords".
bool IsIndexRole(std::string_view format, std::string_view role);

// Validates a declaration by the rules common to all versions: UTF-8 name, rank <= 64, no size
// overflow, at least one component, unique roles, and for the known formats (dense, sparse_csr,
// sparse_coo, quantized_group) the set of components and every size that follows from the shape.
// Errors are kDataLoss, as for a file (see AsInvalidArgument), and do not name the object; callers
// add the name.
Status ValidateObject(const Object& object);

}  // namespace zt
