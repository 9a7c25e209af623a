// zt.convert.torch — torch's dtypes as element types; numpy arrays and numbers, whose
// bytes are in the pickle.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.torch;

import zt.std;
import :contents;
import :pickle;
import zt.core;
import zt.source;

namespace zt::torch::internal {
namespace {

// True if `id` is a function of numpy's core package, under its old or new name.
bool IsNumpys(const Graph& graph, NodeId id, std::string_view name) {
  return graph.IsGlobal(id, "numpy.core." + std::string(name)) ||
         graph.IsGlobal(id, "numpy._core." + std::string(name));
}

// The contents of a numpy.dtype.
struct ArrayDtype {
  std::string name;                    // "f4"
  std::optional<ElementType> element;  // nothing if zTensor has none
  bool numbers = false;                // numeric: no strings, objects or dates
  bool big_endian = false;
};

// Reads the call numpy.dtype('f4', False, True) with the state (3, '<', ...). The name of an
// ml_dtypes type is its class.
std::optional<ArrayDtype> ReadArrayDtype(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kCall) || !graph.IsGlobal(graph.callable(id), "numpy.dtype")) {
    return std::nullopt;
  }
  const auto args = graph.Items(graph.args(id));
  if (args.empty()) return std::nullopt;
  // bytes of a name such as "c16" or "ml_dtypes.float8_e4m3fn"
  constexpr std::size_t kLongest = 64;
  ArrayDtype dtype;
  if (graph.Is(args[0], NodeKind::kGlobal)) {
    constexpr std::string_view kModule = "ml_dtypes.";
    if (graph.GlobalName(args[0]).size() > kLongest) return std::nullopt;
    dtype.name = graph.GlobalName(args[0]);
    if (dtype.name.starts_with(kModule)) {
      dtype.element = ParseTorchDtype(std::string_view(dtype.name).substr(kModule.size()));
    }
    dtype.numbers = true;
  } else if (graph.Is(args[0], NodeKind::kText)) {
    if (graph.Text(args[0]).size() > kLongest) return std::nullopt;
    dtype.name = graph.Text(args[0]);
    const char kind = dtype.name.empty() ? '\0' : dtype.name[0];
    const std::string_view width = std::string_view(dtype.name).substr(kind != '\0');
    const bool even = width == "2" || width == "4" || width == "8";
    dtype.numbers = kind != '\0' && std::string_view("biufcV").find(kind) != std::string_view::npos;
    if (kind == 'b' && width == "1") dtype.element = ParseElementType("bool");
    if (kind == 'c' && width == "8") dtype.element = ParseElementType("complex64");
    if (kind == 'c' && width == "16") dtype.element = ParseElementType("complex128");
    if ((kind == 'f' && even) || ((kind == 'i' || kind == 'u') && (even || width == "1"))) {
      dtype.element = ParseElementType(kind + std::to_string(8 * (width[0] - '0')));
    }
  } else {
    return std::nullopt;
  }
  const NodeId state = graph.state(id);
  const auto parts = state == Graph::kNoNode ? std::span<const NodeId>() : graph.Items(state);
  dtype.big_endian =
      parts.size() > 1 && graph.Is(parts[1], NodeKind::kText) && graph.Text(parts[1]) == ">";
  return dtype;
}

// Bytes as encoded in a pickle.
struct PickledBytes {
  NodeId node = 0;      // the text or the bytes
  bool latin1 = false;  // Latin-1 decoded to text, as protocol 2 encodes bytes
  bool empty = false;   // made by the call bytes()
};

std::optional<PickledBytes> FindBytes(const Graph& graph, NodeId id) {
  // Text without a call to encode it is a Python 2 str, whose bytes are stored unchanged.
  if (graph.Is(id, NodeKind::kBytes) || graph.Is(id, NodeKind::kText)) return PickledBytes{id};
  if (!graph.Is(id, NodeKind::kCall)) return std::nullopt;
  const NodeId callable = graph.callable(id);
  const auto args = graph.Items(graph.args(id));
  if (graph.IsGlobal(callable, "_codecs.encode") && args.size() == 2 &&
      graph.Is(args[0], NodeKind::kText) && graph.Is(args[1], NodeKind::kText) &&
      (graph.Text(args[1]) == "latin1" || graph.Text(args[1]) == "latin-1")) {
    return PickledBytes{args[0], true};
  }
  const bool bytes =
      graph.IsGlobal(callable, "builtins.bytes") || graph.IsGlobal(callable, "__builtin__.bytes");
  if (bytes && args.empty()) return PickledBytes{id, false, true};
  return std::nullopt;
}

// Copies the bytes to `out`; false if their number differs.
bool CopyBytes(const Graph& graph, const PickledBytes& from, std::span<std::byte> out) {
  const std::string_view text = from.empty ? std::string_view() : graph.Text(from.node);
  if (!from.latin1) {
    if (text.size() != out.size()) return false;
    std::ranges::copy(std::as_bytes(std::span(text)), out.begin());
    return true;
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80) {  // 0x80 to 0xff take two bytes of UTF-8
      if ((byte != 0xc2 && byte != 0xc3) || i + 1 == text.size()) return false;
      const auto low = static_cast<unsigned char>(text[++i]);
      if ((low & 0xc0) != 0x80) return false;
      byte = static_cast<unsigned char>((byte & 3) << 6 | (low & 0x3f));
    }
    if (count == out.size()) return false;
    out[count++] = static_cast<std::byte>(byte);
  }
  return count == out.size();
}

// Makes a source that owns its bytes.
std::shared_ptr<ByteSource> Keep(std::vector<std::byte> bytes) {
  struct Kept {
    std::vector<std::byte> bytes;
    std::shared_ptr<ByteSource> source;
  };
  auto kept = std::make_shared<Kept>();
  kept->bytes = std::move(bytes);
  kept->source = MemoryBytes(kept->bytes, "the pickle");
  return {kept, kept->source.get()};
}

}  // namespace

bool IsNumpyArray(const Graph& graph, NodeId id) {
  const NodeId callable = graph.callable(id);
  return IsNumpys(graph, callable, "multiarray._reconstruct") ||
         IsNumpys(graph, callable, "numeric._frombuffer");
}

bool IsNumericArray(const Graph& graph, NodeId id) {
  if (!graph.Is(id, NodeKind::kCall) || !IsNumpyArray(graph, id)) return false;
  const NodeId state = graph.state(id);
  const bool built = IsNumpys(graph, graph.callable(id), "multiarray._reconstruct");
  if (built && state == Graph::kNoNode) return false;
  const auto parts = graph.Items(built ? state : graph.args(id));
  const std::size_t at = built ? 2 : 1;
  const auto dtype = parts.size() > at ? ReadArrayDtype(graph, parts[at]) : std::nullopt;
  return dtype && dtype->numbers;
}

// Reads _reconstruct(class, ...) with the state (version, shape, dtype, is_fortran, bytes), or
// _frombuffer(bytes, dtype, shape, order). Nothing for an array of strings, objects or dates.
StatusOr<std::optional<Tensor>> TensorReader::ReadArray(NodeId id) {
  const auto args = graph_.Items(graph_.args(id));
  const bool built = IsNumpys(graph_, graph_.callable(id), "multiarray._reconstruct");
  const NodeId state = graph_.state(id);
  const auto parts = !built                    ? args
                     : state == Graph::kNoNode ? std::span<const NodeId>()
                                               : graph_.Items(state);
  // In numpy 2.3, _frombuffer has the order of axes as fifth argument, None if the
  // fourth is "C" or "F".
  const bool plain_order = !built && parts.size() == 5 && graph_.Is(parts[4], NodeKind::kNone);
  if ((parts.size() != (built ? 5 : 4) && !plain_order) || args.empty()) {
    return Unsupported("it is a numpy array of an unknown form; save it as a tensor");
  }
  const std::optional<ArrayDtype> dtype = ReadArrayDtype(graph_, parts[built ? 2 : 1]);
  if (!dtype) return Unsupported("it is a numpy array of an unknown dtype; save it as a tensor");
  if (!dtype->numbers) return std::optional<Tensor>();
  if (!dtype->element) {
    return Unsupported("it is a numpy array of dtype " + Quote(dtype->name) +
                       ", which is not supported");
  }
  if (built && !graph_.IsGlobal(args[0], "numpy.ndarray")) {
    return Unsupported("it is a numpy array of a derived class; save it with numpy.asarray()");
  }
  Tensor tensor;
  ZT_ASSIGN_OR_RETURN(tensor.shape, ReadSizes(parts[built ? 1 : 2]));
  StorageView& view = tensor.values;
  view.element = *dtype->element;
  view.shape = tensor.shape;
  const auto size = DenseBytes(view.shape, view.element);
  if (!size) return InvalidData("shape " + ToString(view.shape) + " overflows 64 bits");
  const NodeId order = parts[3];
  const bool fortran = graph_.Is(order, NodeKind::kText)
                           ? graph_.Text(order) == "F"
                           : graph_.Is(order, NodeKind::kBool) && graph_.Int(order) != 0;
  view.window = *size;
  view.strides.resize(view.shape.size());
  std::uint64_t stride = 1;  // may overflow for an empty array, which does not use it
  for (std::size_t k = 0; k < view.shape.size(); ++k) {
    const std::size_t axis = fortran ? k : view.shape.size() - 1 - k;
    view.strides[axis] = stride;
    stride *= view.shape[axis];
  }
  auto storage = HoldArray(parts[built ? 4 : 0], dtype->big_endian, *size);
  if (storage.ok()) {
    view.storage = *storage;
  } else if (storage.status().code() == StatusCode::kUnimplemented) {
    tensor.problem = std::string(storage.status().message());
  } else {
    return storage.status();
  }
  return std::optional<Tensor>(std::move(tensor));
}

// Adds the array's bytes as a storage. Equal nodes and byte orders share one storage.
StatusOr<std::uint32_t> TensorReader::HoldArray(NodeId id, bool big_endian, std::uint64_t size) {
  const std::optional<PickledBytes> from = FindBytes(graph_, id);
  if (!from) return Unsupported("its bytes are not in the pickle; save it as a tensor");
  const auto [known, fresh] = arrays_.emplace(std::uint64_t{from->node} << 1 | big_endian,
                                              static_cast<std::uint32_t>(storages_.size()));
  if (!fresh && storages_[known->second].count == size) return known->second;
  const auto refuse = [&](Status status) {
    if (fresh) arrays_.erase(known);
    return status;
  };
  const auto wrong = [&] {
    return refuse(InvalidData("its numpy array does not have the " + std::to_string(size) +
                              " bytes that its shape needs"));
  };
  const std::uint64_t have = from->empty ? 0 : graph_.Text(from->node).size();
  if (!fresh || have < size || (have + 1) / 2 > size) return wrong();
  if (size > room_) {
    return refuse(
        Unsupported("it is a numpy array of " + std::to_string(size) +
                    " bytes that lies in the pickle and has to be held in memory; all of these may "
                    "take half the memory limit: raise it (--memory), or save tensors"));
  }
  std::vector<std::byte> bytes(size);
  if (!CopyBytes(graph_, *from, bytes)) return wrong();
  room_ -= size;
  storages_.push_back({"", 1, size, Keep(std::move(bytes)), big_endian});
  return known->second;
}

std::optional<Value> TensorReader::ReadScalar(NodeId id) const {
  if (!graph_.Is(id, NodeKind::kCall)) return std::nullopt;
  const auto args = graph_.Items(graph_.args(id));
  if (args.size() != 2 || !IsNumpys(graph_, graph_.callable(id), "multiarray.scalar")) {
    return std::nullopt;
  }
  const std::optional<ArrayDtype> dtype = ReadArrayDtype(graph_, args[0]);
  const std::optional<PickledBytes> from = FindBytes(graph_, args[1]);
  if (!dtype || !dtype->element || !dtype->element->type.empty() || !from) return std::nullopt;
  std::byte bytes[8] = {};
  const std::size_t width = ByteWidth(dtype->element->dtype);
  const std::span<std::byte> own = std::span(bytes).first(width);
  if (!CopyBytes(graph_, *from, own)) return std::nullopt;
  if (dtype->big_endian) std::ranges::reverse(own);
  const std::uint64_t raw = zt::internal::LoadLittle(bytes, width);
  const auto spare = static_cast<int>(64 - 8 * width);
  switch (dtype->element->dtype) {
    case DType::kBool:
      return Value(raw != 0);
    case DType::kF64:
      return Value(std::bit_cast<double>(raw));
    case DType::kF32:
      return Value(double{std::bit_cast<float>(static_cast<std::uint32_t>(raw))});
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      return Value(static_cast<std::int64_t>(raw << spare) >> spare);
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
      return Value(raw);
    default:
      return std::nullopt;
  }
}

}  // namespace zt::torch::internal

namespace zt {
namespace torch::internal {
namespace {

struct Dtype {
  std::string_view name;     // torch's name
  std::string_view element;  // zTensor's name
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
    // Storage types of quantized tensors, which are listed, but not converted.
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
