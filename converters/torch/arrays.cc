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
import zt.transform;

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
  NodeId node = 0;      // kText, kBytes or kFar
  bool latin1 = false;  // Latin-1 decoded to text, as protocol 2 encodes bytes
  bool empty = false;   // made by the call bytes()
};

std::optional<PickledBytes> FindBytes(const Graph& graph, NodeId id) {
  const bool far = graph.Is(id, NodeKind::kFar);
  // Text without a call to encode it is a Python 2 str, whose bytes are stored unchanged.
  if (graph.Is(id, NodeKind::kBytes) || graph.Is(id, NodeKind::kText) ||
      (far && !graph.is_latin1(id))) {
    return PickledBytes{id};
  }
  if (!graph.Is(id, NodeKind::kCall)) return std::nullopt;
  const NodeId callable = graph.callable(id);
  const auto args = graph.Items(graph.args(id));
  const auto encoded = [&](NodeId text) {
    return graph.Is(text, NodeKind::kText) ||
           (graph.Is(text, NodeKind::kFar) && graph.is_latin1(text));
  };
  if (graph.IsGlobal(callable, "_codecs.encode") && args.size() == 2 && encoded(args[0]) &&
      graph.Is(args[1], NodeKind::kText) &&
      (graph.Text(args[1]) == "latin1" || graph.Text(args[1]) == "latin-1")) {
    return PickledBytes{args[0], true};
  }
  const bool bytes =
      graph.IsGlobal(callable, "builtins.bytes") || graph.IsGlobal(callable, "__builtin__.bytes");
  if (bytes && args.empty()) return PickledBytes{id, false, true};
  return std::nullopt;
}

// Decodes Latin-1 from UTF-8, in which 0x80 to 0xff take two bytes. The text may come in pieces.
class Latin1 {
 public:
  // Decodes from `text`, whose beginning is taken off, to `out` until one of them ends; returns the
  // number of bytes decoded, or nullopt if a character is no byte.
  std::optional<std::size_t> Decode(std::span<const std::byte>& text, std::span<std::byte> out) {
    std::size_t count = 0;
    while (!text.empty() && count < out.size()) {
      const auto byte = std::to_integer<unsigned>(text.front());
      text = text.subspan(1);
      if (first_ != 0) {
        if ((byte & 0xc0) != 0x80) return std::nullopt;
        out[count++] = static_cast<std::byte>((std::exchange(first_, 0) & 3) << 6 | (byte & 0x3f));
      } else if (byte < 0x80) {
        out[count++] = static_cast<std::byte>(byte);
      } else if (byte == 0xc2 || byte == 0xc3) {
        first_ = byte;
      } else {
        return std::nullopt;
      }
    }
    return count;
  }
  bool within_character() const { return first_ != 0; }

 private:
  unsigned first_ = 0;  // the first byte of a character of two
};

// Copies the bytes to `out`; false if their number differs.
bool CopyBytes(const Graph& graph, const PickledBytes& from, std::span<std::byte> out) {
  if (!from.empty && graph.Is(from.node, NodeKind::kFar)) return false;
  const std::string_view text = from.empty ? std::string_view() : graph.Text(from.node);
  auto bytes = std::as_bytes(std::span(text));
  if (!from.latin1) {
    if (bytes.size() != out.size()) return false;
    std::ranges::copy(bytes, out.begin());
    return true;
  }
  Latin1 decoder;
  return decoder.Decode(bytes, out) == out.size() && bytes.empty() && !decoder.within_character();
}

// An array whose bytes are `size` characters of a text in a file, in Latin-1. Thread-safe. Earlier
// reads leave marks, one for each kStep bytes of the array, from which a read finds its text.
class Latin1Bytes final : public ByteSource {
 public:
  Latin1Bytes(std::shared_ptr<ByteSource> file, Graph::Place text, std::uint64_t size)
      : file_(std::move(file)), text_(text), size_(size) {}
  const std::string& name() const override { return file_->name(); }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  Status CheckUnchanged() override { return file_->CheckUnchanged(); }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size_ || out.size() > size_ - offset) return Wrong();
    if (out.empty()) return OkStatus();
    auto [at, position] = LastMark(offset);
    // A byte takes two of the text at most.
    std::vector<std::byte> buffer(
        std::min<std::uint64_t>(kBuffer, 2 * (offset - position + out.size()))),
        skipped;
    std::span<const std::byte> text;
    while (position < offset || !out.empty()) {
      // Up to the next mark, to `offset` or to the end, whichever is the first.
      std::uint64_t step = kStep - position % kStep;
      if (position < offset) step = std::min(step, offset - position);
      if (position >= offset) step = std::min<std::uint64_t>(step, out.size());
      skipped.resize(position < offset ? step : 0);
      const std::span<std::byte> to = position < offset ? std::span(skipped) : out.first(step);
      ZT_RETURN_IF_ERROR(Decode(at, text, buffer, to));
      if (position >= offset) out = out.subspan(step);
      position += step;
      if (position % kStep == 0) Mark(position / kStep, at - text.size());
    }
    const bool ended = at == text_.size && text.empty();
    return position < size_ || ended ? OkStatus() : Wrong();
  }

 private:
  // Short, since a transposed array is read in runs, each of which is found from a mark.
  static constexpr std::uint64_t kStep = 4096;
  static constexpr std::size_t kBuffer = std::size_t{64} << 10;

  Status Wrong() const {
    return InvalidData("its numpy array does not have the " + std::to_string(size_) +
                       " bytes that its shape needs");
  }
  // Fills `to`. `text` is what was read and not yet decoded, `at` the position after it.
  Status Decode(std::uint64_t& at, std::span<const std::byte>& text, std::span<std::byte> buffer,
                std::span<std::byte> to) {
    Latin1 decoder;
    while (!to.empty()) {
      if (text.empty()) {
        const auto take = std::min<std::uint64_t>(buffer.size(), text_.size - at);
        if (take == 0) return Wrong();
        ZT_RETURN_IF_ERROR(file_->ReadAt(text_.offset + at, buffer.first(take)));
        at += take;
        text = buffer.first(take);
      }
      const auto count = decoder.Decode(text, to);
      if (!count) return InvalidData("its numpy array holds a character that is no byte");
      to = to.subspan(*count);
    }
    return OkStatus();
  }
  // The last mark up to `offset`: the position in the text, and in the array.
  std::pair<std::uint64_t, std::uint64_t> LastMark(std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t last = std::min<std::uint64_t>(offset / kStep, marks_.size() - 1);
    return {marks_[last], last * kStep};
  }
  void Mark(std::uint64_t number, std::uint64_t at) {
    const std::lock_guard lock(mutex_);
    if (number == marks_.size()) marks_.push_back(at);
  }

  const std::shared_ptr<ByteSource> file_;
  const Graph::Place text_;
  const std::uint64_t size_;
  std::mutex mutex_;
  std::vector<std::uint64_t> marks_ = {0};  // in the text
};

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
  // From numpy 2.3 on, _frombuffer has the order of axes as fifth argument; None if the
  // fourth is "C" or "F".
  const bool axes = !built && parts.size() == 5;
  if ((parts.size() != (built ? 5 : 4) && !axes) || args.empty()) {
    return Unsupported("it is a numpy array of an unknown form; save it as a tensor");
  }
  const std::optional<ArrayDtype> dtype = ReadArrayDtype(graph_, parts[built ? 2 : 1]);
  if (!dtype) return Unsupported("it is a numpy array of an unknown dtype; save it as a tensor");
  if (!dtype->numbers) return std::optional<Tensor>();
  if (!dtype->element) {
    return Unsupported("it is a numpy array of dtype " + Quote(dtype->name) +
                       ", which is not supported; save it as another");
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
  if (axes && !graph_.Is(parts[4], NodeKind::kNone)) {
    ZT_RETURN_IF_ERROR(Permute(parts[4], view));
    tensor.shape = view.shape;
  }
  auto storage = AddArray(parts[built ? 4 : 0], dtype->big_endian, *size);
  if (storage.ok()) {
    view.storage = *storage;
  } else if (storage.status().code() == StatusCode::kUnimplemented) {
    tensor.problem = storage.status();
  } else {
    return storage.status();
  }
  return std::optional<Tensor>(std::move(tensor));
}

bool IsBytesObject(const Graph& graph, NodeId id) {
  if (!graph.IsCallOf(id, "_io.BytesIO")) return false;
  const NodeId state = graph.state(id);
  return state != Graph::kNoNode && !graph.Items(state).empty() &&
         FindBytes(graph, graph.Items(state)[0]);
}

// The bytes of an io.BytesIO, whose state is (bytes, position, attributes).
StatusOr<std::optional<Tensor>> TensorReader::ReadBytes(NodeId id) {
  const NodeId node = graph_.Items(graph_.state(id))[0];
  const PickledBytes from = *FindBytes(graph_, node);
  std::uint64_t size = from.empty ? 0 : graph_.PlaceOf(from.node).size;
  if (from.latin1) {
    if (!graph_.Is(from.node, NodeKind::kText)) return Unsupported("its bytes are Latin-1 text");
    for (const char c : graph_.Text(from.node))
      size -= (static_cast<unsigned char>(c) & 0xc0) == 0x80;
  }
  Tensor tensor;
  tensor.shape = {size};
  tensor.values.element = {DType::kU8, ""};
  tensor.values.shape = tensor.shape;
  tensor.values.strides = {1};
  tensor.values.window = size;
  auto storage = AddArray(node, false, size);
  if (storage.ok()) {
    tensor.values.storage = *storage;
  } else if (storage.status().code() == StatusCode::kUnimplemented) {
    tensor.problem = storage.status();
  } else {
    return storage.status();
  }
  return std::optional<Tensor>(std::move(tensor));
}

// Orders the dimensions of a view as `axes` says: the numbers that they had.
Status TensorReader::Permute(NodeId axes, StorageView& view) const {
  ZT_ASSIGN_OR_RETURN(const Shape order, ReadSizes(axes));
  Shape sorted = order;
  std::ranges::sort(sorted);
  const StorageView before = view;
  bool all = order.size() == view.shape.size();
  for (std::size_t k = 0; k < order.size(); ++k) all = all && sorted[k] == k;
  if (!all) {
    return InvalidData("its order of axes " + ToString(order) + " is not one of shape " +
                       ToString(view.shape));
  }
  for (std::size_t k = 0; k < order.size(); ++k) {
    view.shape[k] = before.shape[order[k]];
    view.strides[k] = before.strides[order[k]];
  }
  return OkStatus();
}

// Adds the array's bytes as a storage: a range of the file, or, if that can be read front to
// back only, a copy. Equal nodes and byte orders share one storage.
StatusOr<std::uint32_t> TensorReader::AddArray(NodeId id, bool big_endian, std::uint64_t size) {
  const std::optional<PickledBytes> from = FindBytes(graph_, id);
  if (!from) return Unsupported("its bytes are not in the pickle; save it as a tensor");
  const std::uint64_t key = std::uint64_t{from->node} << 1 | big_endian;
  const auto known = arrays_.find(key);
  const Status wrong = InvalidData("its numpy array does not have the " + std::to_string(size) +
                                   " bytes that its shape needs");
  if (known != arrays_.end()) {
    if (storages_[known->second].count != size) return wrong;
    return known->second;
  }
  const Graph::Place place = from->empty ? Graph::Place{} : graph_.PlaceOf(from->node);
  // A character takes one byte or two.
  if (place.size < size || (from->latin1 ? (place.size + 1) / 2 : place.size) > size) return wrong;
  Storage storage = {"", 1, size, nullptr, 0, big_endian};
  if (file_ == nullptr) {
    if (size > room_) {
      return WithAdvice(
          Unsupported("it is a numpy array of " + std::to_string(size) +
                      " bytes in a pickle that is deflated or comes from a pipe, so that it has to "
                      "be held in memory; all of these may take half the memory limit; give an "
                      "uncompressed file"),
          Advice::kMemory);
    }
    room_ -= size;
    std::vector<std::byte> bytes(size);
    if (!CopyBytes(graph_, *from, bytes)) return wrong;
    storage.bytes = Keep(std::move(bytes));
  } else if (from->latin1) {
    storage.bytes = std::make_shared<Latin1Bytes>(file_, place, size);
  } else {
    storage.bytes = file_;
    storage.offset = place.offset;
  }
  const auto next = static_cast<std::uint32_t>(storages_.size());
  storages_.push_back(std::move(storage));
  arrays_.emplace(key, next);
  return next;
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
    case DType::kF16: {
      std::array<std::byte, 8> wide;
      NumericCounts counts;
      const auto widen = MakeConversion({DType::kF16, ""}, {DType::kF64, ""}, OnOverflow::kError);
      (*widen)->Apply(own, wide, counts);
      return Value(std::bit_cast<double>(zt::internal::LoadLittle(wide.data(), wide.size())));
    }
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

}  // namespace torch::internal

std::optional<ElementType> ParseTorchDtype(std::string_view name) {
  using torch::internal::kDtypes;
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const auto& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? std::nullopt : ParseElementType(found->element);
}

}  // namespace zt
