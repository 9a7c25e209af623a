// zt.convert.gguf — plans a GGUF file, from the recorded header if there is one.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.gguf;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;
import zt.transform;
import :model;

namespace zt {
using namespace gguf::internal;
namespace {

// Limit on a recorded gap between tensors; larger gaps are closed, so that an attribute cannot
// demand a file full of zeros.
constexpr std::uint64_t kMaxGap = std::uint64_t{1} << 20;
constexpr std::size_t kMaxName = 64;  // GGUF's own limit, for names from other formats

// The contents of the attribute "gguf".
struct Record {
  GgufHeader header;
  struct Tensor {
    std::string_view name, type;
    std::optional<std::uint64_t> offset;
  };
  std::vector<Tensor> tensors;
  std::optional<std::uint64_t> file_bytes;
};

Status Malformed(std::string_view what) {
  return InvalidData("root attribute 'gguf': " + std::string(what));
}

const Value* FindKey(const Value::Array& kv, std::string_view key) {
  for (const Value& entry : kv) {
    const std::string* name = KeyOf(entry);
    if (name != nullptr && *name == key) return &entry;
  }
  return nullptr;
}

// The value of an integer key, or null.
const std::uint64_t* FindCount(const Value::Array& kv, std::string_view key) {
  const Value* entry = FindKey(kv, key);
  return entry != nullptr && entry->AsArray()->size() == 3 ? (*entry->AsArray())[2].AsUint()
                                                           : nullptr;
}

// The alignment that a reader derives from the metadata.
std::uint64_t AlignmentOf(const Value::Array& kv) {
  const std::uint64_t* stated = FindCount(kv, "general.alignment");
  return stated == nullptr ? kGgufDefaultAlignment : *stated;
}

StatusOr<Record> ReadRecord(const Value& value) {
  Record out;
  const Value::Map* map = value.AsMap();
  if (map == nullptr) return Malformed("it is not a map");
  const auto number = [&](std::string_view key) -> const std::uint64_t* {
    const Value* member = FindMember(*map, key);
    return member == nullptr ? nullptr : member->AsUint();
  };
  const std::uint64_t* version = number("version");
  if (version == nullptr || *version < 1 || *version > 3)
    return Malformed("it has no version from 1 to 3");
  out.header.version = static_cast<std::uint32_t>(*version);
  const std::uint64_t* alignment = number("alignment");
  if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment > kMaxGap) {
    return Malformed("it has no alignment that is a power of two");
  }
  out.header.alignment = *alignment;
  const Value* order = FindMember(*map, "byte_order");
  const std::string* order_name = order == nullptr ? nullptr : order->AsString();
  if (order_name == nullptr || (*order_name != "little" && *order_name != "big")) {
    return Malformed("it has no byte_order, little or big");
  }
  out.header.big_endian = *order_name == "big";
  out.header.swapped_magic = FindMember(*map, "magic") != nullptr;
  const Value* kv = FindMember(*map, "kv");
  if (kv == nullptr || kv->AsArray() == nullptr) return Malformed("it has no list 'kv'");
  out.header.kv = *kv->AsArray();
  const std::uint64_t effective = AlignmentOf(out.header.kv);
  if (effective != *alignment) {
    const bool stated = FindCount(out.header.kv, "general.alignment") != nullptr;
    return Malformed("its alignment is " + std::to_string(*alignment) + ", its metadata says " +
                     (stated ? "" : "nothing, which means ") + std::to_string(effective));
  }
  const Value* tensors = FindMember(*map, "tensors");
  if (tensors == nullptr || tensors->AsArray() == nullptr)
    return Malformed("it has no list 'tensors'");
  for (const Value& entry : *tensors->AsArray()) {
    const Value::Array* parts = entry.AsArray();
    if (parts == nullptr || parts->size() < 2 || (*parts)[0].AsString() == nullptr ||
        (*parts)[1].AsString() == nullptr) {
      return Malformed("an entry of 'tensors' is not a list of name, type and offset");
    }
    Record::Tensor& tensor = out.tensors.emplace_back();
    tensor.name = *(*parts)[0].AsString();
    tensor.type = *(*parts)[1].AsString();
    if (parts->size() > 2 && (*parts)[2].AsUint() != nullptr) {
      tensor.offset = *(*parts)[2].AsUint();
    }
  }
  if (const std::uint64_t* bytes = number("file_bytes")) out.file_bytes = *bytes;
  return out;
}

// The type of `object` in the file. Its shape and size must be whole blocks.
StatusOr<GgmlType> TypeOf(const Object& object) {
  if (object.components.size() != 1) {
    return Unsupported("format " + Quote(object.format) + " cannot be written to GGUF");
  }
  const Component& data = object.components[0];
  std::optional<GgmlType> type;
  if (object.format == "dense") {
    if (data.element.type.empty()) type = FindGgmlType(Name(data.element.dtype));
    if (!type || type->plain != data.element.dtype) {
      return Unsupported("GGUF has no type for " + std::string(Name(data.element)) +
                         "; convert it to one of f64 f32 f16 bf16 i64 i32 i16 i8");
    }
  } else {
    if (const GgmlBlock* block = FindGgmlBlockOfFormat(object.format)) {
      type = FindGgmlType(block->name);
    }
    if (!type) {
      return Unsupported("format " + Quote(object.format) + " cannot be written to GGUF");
    }
  }
  if (object.shape.size() > kGgufMaxDims) {
    return Unsupported("shape " + ToString(object.shape) + " has more than " +
                       std::to_string(kGgufMaxDims) + " dimensions");
  }
  const std::uint64_t row = object.shape.empty() ? 1 : object.shape.back();
  const auto count = ElementCount(object.shape);
  const auto bytes = count ? CheckedMul(*count / type->elems, type->bytes) : std::nullopt;
  if (row % type->elems != 0 || !bytes || *bytes != data.bytes) {
    return InvalidData("shape " + ToString(object.shape) + " of " + std::string(type->name) +
                       " does not fit its " + std::to_string(data.bytes) + " bytes");
  }
  return *type;
}

// True if the recorded offsets can be kept: aligned, ascending, without overlap or large gaps.
bool OffsetsHold(const GgufHeader& header, std::span<const std::size_t> order) {
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    const GgufTensor& tensor = header.tensors[i];
    if (tensor.offset % header.alignment != 0) return false;
    if (tensor.bytes == 0) {
      if (tensor.offset > end + kMaxGap) return false;
      continue;
    }
    if (tensor.offset < end || tensor.offset - end > kMaxGap) return false;
    const auto next = CheckedAdd(tensor.offset, tensor.bytes);
    if (!next) return false;
    end = *next;
  }
  return true;
}

// llama.cpp's general.file_type for a file with mostly this type, if there is one.
std::optional<std::uint64_t> FileTypeOf(std::string_view type) {
  if (type == "f32") return 0;
  if (type == "f16") return 1;
  if (type == "bf16") return 32;
  return std::nullopt;
}

class GgufPlanner {
 public:
  GgufPlanner(const TensorSource& source, std::span<const std::uint32_t> selected)
      : source_(source), selected_(selected) {}

  StatusOr<FileLayout> Run() {
    const Value* attribute = FindMember(source_.attributes(), "gguf");
    unchanged_ = attribute != nullptr;
    if (attribute != nullptr) {
      ZT_ASSIGN_OR_RETURN(record_, ReadRecord(*attribute));
    }
    ZT_RETURN_IF_ERROR(AddTensors());
    DropSplitKeys();
    if (converted_) UpdateFileType();
    ZT_RETURN_IF_ERROR(PlaceTensors());
    ZT_RETURN_IF_ERROR(LayOut());
    ZT_RETURN_IF_ERROR(CheckReadableAgain());
    (layout_.pieces.empty() ? layout_.end : layout_.pieces.front().before) = std::move(head_);
    static constexpr std::string_view kKept[] = {"elems_per_block", "block_bytes"};
    const std::string lost = LostAttributes(source_, which_, kKept, "GGUF does not keep");
    if (!lost.empty()) layout_.warnings.push_back(lost);
    return std::move(layout_);
  }

 private:
  Status Add(std::uint32_t index) {
    const Object& object = source_.objects()[index];
    ZT_ASSIGN_OR_RETURN(auto type, WithTensor(TypeOf(object), object.name));
    header().tensors.push_back({object.name, type, object.shape, 0, object.components[0].bytes});
    which_.push_back(index);
    return OkStatus();
  }

  // Adds the recorded tensors in their order, then all others in the order given.
  Status AddTensors() {
    // Objects not added yet.
    std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> by_name;
    for (const std::uint32_t index : selected_) {
      if (!by_name.emplace(source_.objects()[index].name, index).second) {
        return InvalidData("two objects have the same name");
      }
    }
    unchanged_ = unchanged_ && record_.tensors.size() == selected_.size();
    for (const Record::Tensor& tensor : record_.tensors) {
      const auto found = by_name.find(tensor.name);
      if (found == by_name.end()) {
        unchanged_ = false;
        continue;
      }
      ZT_RETURN_IF_ERROR(Add(found->second));
      by_name.erase(found);
      GgufTensor& added = header().tensors.back();
      if (added.type.name != tensor.type) converted_ = true;
      if (!tensor.offset) unchanged_ = false;
      added.offset = tensor.offset.value_or(0);
    }
    unchanged_ = unchanged_ && !converted_;
    for (const std::uint32_t index : selected_) {
      const std::string& name = source_.objects()[index].name;
      if (!by_name.contains(name)) continue;
      unchanged_ = false;
      if (name.empty() || name.size() > kMaxName) {
        return WithTensor(
            Unsupported("a name in GGUF has 1 to " + std::to_string(kMaxName) + " bytes"), name);
      }
      ZT_RETURN_IF_ERROR(Add(index));
    }
    return OkStatus();
  }

  // Keeps the keys of a split set only if they count exactly the tensors that are written:
  // otherwise readers would take the file for one shard of several.
  void DropSplitKeys() {
    const std::uint64_t* total = FindCount(header().kv, "split.tensors.count");
    if (total != nullptr && *total == header().tensors.size()) return;
    std::erase_if(header().kv, IsSplitKey);
  }

  // Corrects general.file_type, which is wrong once blocks were dequantized.
  void UpdateFileType() {
    std::map<std::string_view, std::uint64_t> bytes;
    for (const GgufTensor& tensor : header().tensors) {
      if (!tensor.type.plain) return;  // still mixed: the recorded type remains valid
      bytes[tensor.type.name] += tensor.bytes;
    }
    const auto most = std::ranges::max_element(
        bytes, {}, &std::pair<const std::string_view, std::uint64_t>::second);
    const auto type = most == bytes.end() ? std::nullopt : FileTypeOf(most->first);
    const Value* entry = FindKey(header().kv, "general.file_type");
    if (entry == nullptr) return;
    const auto at = header().kv.begin() + (entry - header().kv.data());
    if (!type) {
      header().kv.erase(at);
      return;
    }
    *at = Value(Value::Array{Value("general.file_type"), Value("u32"), Value(*type)});
  }

  // Assigns offsets: the recorded ones if no tensor has changed.
  Status PlaceTensors() {
    order_.resize(header().tensors.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    if (unchanged_) {
      std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
        const GgufTensor &x = header().tensors[a], &y = header().tensors[b];
        if (x.offset != y.offset) return x.offset < y.offset;
        return x.bytes != y.bytes ? x.bytes < y.bytes : a < b;
      });
      unchanged_ = OffsetsHold(header(), order_);
    }
    if (unchanged_) return OkStatus();
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      order_[i] = i;
      GgufTensor& tensor = header().tensors[i];
      tensor.offset = at;
      ZT_ASSIGN_OR_RETURN(const std::uint64_t end, EndOf(tensor, at));
      at = header().Align(end);
    }
    return OkStatus();
  }

  StatusOr<std::uint64_t> EndOf(const GgufTensor& tensor, std::uint64_t offset) {
    const auto end = CheckedAdd(offset, tensor.bytes);
    if (!end || *end > ~std::uint64_t{0} - kMaxGap) {
      return WithTensor(InvalidData("the sizes overflow 64 bits"), tensor.name);
    }
    return *end;
  }

  Status LayOut() {
    auto head = EncodeGgufHeader(header());
    if (!head.ok()) return Annotate(head.status(), "root attribute 'gguf'");
    std::vector<std::byte> encoded = *std::move(head);
    header().kv = {};  // it may be large, and is parsed again below
    const std::uint64_t data = header().Align(encoded.size());
    std::uint64_t at = encoded.size();
    for (const std::size_t i : order_) {
      const GgufTensor& tensor = header().tensors[i];
      if (tensor.bytes == 0) continue;
      const auto offset = CheckedAdd(data, tensor.offset);
      ZT_ASSIGN_OR_RETURN(const std::uint64_t end, EndOf(tensor, offset.value_or(kUnknownSize)));
      LayoutPiece& piece = layout_.pieces.emplace_back();
      piece.zeros = *offset - at;
      piece.source = {which_[i], 0};
      piece.bytes = tensor.bytes;
      ZT_RETURN_IF_ERROR(WithTensor(SetByteOrder(tensor.type, piece), tensor.name));
      at = end;
    }
    layout_.bytes = header().Align(at);
    // The padding after the last tensor may be absent; bytes beyond it were not kept.
    if (unchanged_ && record_.file_bytes && *record_.file_bytes >= at &&
        *record_.file_bytes <= layout_.bytes) {
      layout_.bytes = *record_.file_bytes;
    }
    layout_.end_zeros = layout_.bytes - at;
    head_ = std::move(encoded);
    return OkStatus();
  }

  Status SetByteOrder(const GgmlType& type, LayoutPiece& piece) {
    if (!header().big_endian) return OkStatus();
    ZT_ASSIGN_OR_RETURN(const ByteOrder order, ByteOrderOf(type));
    if (order.unit == 1) return OkStatus();
    piece.unit = order.unit;
    piece.change = [order](std::span<std::byte> bytes) { SwapUnits(order, bytes); };
    return OkStatus();
  }

  // Checks that our own reader accepts the file, and reads the same tensors.
  Status CheckReadableAgain() {
    auto again = ParseGgufHeader(head_, layout_.bytes);
    Status status = again.status();
    if (status.ok() && !again->has_value()) status = InvalidData("the header is truncated");
    if (status.ok() && (*again)->alignment != header().alignment) {
      status = InvalidData("another alignment would be read");
    }
    return Annotate(status, "the GGUF file to be written would be damaged");
  }

  GgufHeader& header() { return record_.header; }

  const TensorSource& source_;
  const std::span<const std::uint32_t> selected_;
  Record record_;                     // its header becomes that of the new file
  std::vector<std::uint32_t> which_;  // by tensor of the header: the object
  std::vector<std::size_t> order_;    // indices of the header's tensors, sorted by offset
  std::vector<std::byte> head_;
  FileLayout layout_;
  bool unchanged_ = false;  // exactly the recorded tensors, with their types
  bool converted_ = false;  // a recorded tensor has got another type
};

}  // namespace

StatusOr<FileLayout> PlanGguf(const TensorSource& source, std::span<const std::uint32_t> objects) {
  return GgufPlanner(source, objects).Run();
}

}  // namespace zt
