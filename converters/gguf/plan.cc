// zt.convert.gguf — plans a GGUF file, with the recorded metadata if there is some.
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

// The contents of the attribute "gguf". The pointers point into the attribute.
struct Record {
  GgufHeader header;  // without metadata and tensors
  const Value::Array* kv = nullptr;
  struct Tensor {
    std::string_view name, type;
  };
  std::vector<Tensor> tensors;
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
  // llama.cpp no longer reads version 1.
  out.header.version = *version == 1 ? 3 : static_cast<std::uint32_t>(*version);
  const std::uint64_t* alignment = number("alignment");
  if (alignment == nullptr || !std::has_single_bit(*alignment) || *alignment > kGgufMaxAlignment) {
    return Malformed("it has no alignment that is a power of two");
  }
  out.header.alignment = *alignment;
  const Value* order = FindMember(*map, "byte_order");
  const std::string* order_name = order == nullptr ? nullptr : order->AsString();
  if (order_name == nullptr || (*order_name != "little" && *order_name != "big")) {
    return Malformed("it has no byte_order, little or big");
  }
  out.header.big_endian = *order_name == "big";
  const Value* kv = FindMember(*map, "kv");
  if (kv == nullptr || kv->AsArray() == nullptr) return Malformed("it has no list 'kv'");
  out.kv = kv->AsArray();
  const std::uint64_t effective = AlignmentOf(*out.kv);
  if (effective != *alignment) {
    const bool stated = FindCount(*out.kv, "general.alignment") != nullptr;
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
      return Malformed("an entry of 'tensors' is not a list of name and type");
    }
    out.tensors.push_back({*(*parts)[0].AsString(), *(*parts)[1].AsString()});
  }
  return out;
}

// The type of `object` in the file. Its shape and size must be whole blocks, of at most `most_dims`
// dimensions.
StatusOr<GgmlType> TypeOf(const Object& object, std::uint32_t most_dims) {
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
  if (object.shape.size() > most_dims) {
    return Unsupported("shape " + ToString(object.shape) + " has more than " +
                       std::to_string(most_dims) + " dimensions");
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

  StatusOr<FileLayout> Run(const Value* record) {
    if (record != nullptr) {
      ZT_ASSIGN_OR_RETURN(record_, ReadRecord(*record));
    }
    ZT_RETURN_IF_ERROR(AddTensors());
    ChoosePairs();
    ZT_RETURN_IF_ERROR(LayOut());
    static constexpr std::string_view kKept[] = {"elems_per_block", "block_bytes"};
    const std::string lost = LostAttributes(source_, which_, kKept, "GGUF does not keep");
    if (!lost.empty()) layout_.warnings.push_back(lost);
    if (!beyond_.empty()) {
      layout_.warnings.push_back("llama.cpp does not load names of more than " +
                                 std::to_string(kGgufMaxName) + " bytes, nor more than " +
                                 std::to_string(kGgufMaxDims) +
                                 " dimensions: " + beyond_.ToString());
    }
    return std::move(layout_);
  }

 private:
  // Adds a tensor behind the ones before it, as llama.cpp asks. One that is `recorded`, from a GGUF,
  // may be beyond llama.cpp's limits, as it was there.
  Status Add(std::uint32_t index, bool recorded) {
    const Object& object = source_.objects()[index];
    const std::uint32_t most_name = recorded ? kGgufMostName : kGgufMaxName;
    if (object.name.empty() || object.name.size() > most_name) {
      return WithTensor(
          WithAdvice(Unsupported("a name in GGUF has 1 to " + std::to_string(most_name) + " bytes"),
                     Advice::kRename),
          object.name);
    }
    const std::uint32_t most_dims = recorded ? kGgufMostDims : kGgufMaxDims;
    ZT_ASSIGN_OR_RETURN(auto type, WithTensor(TypeOf(object, most_dims), object.name));
    if (object.name.size() > kGgufMaxName || object.shape.size() > kGgufMaxDims)
      beyond_.Add(Quote(object.name));
    const std::uint64_t bytes = object.components[0].bytes;
    const auto end = CheckedAdd(end_, bytes);
    if (!end || *end > kUnknownSize - kGgufMaxAlignment - kGgufMaxHeader)
      return WithTensor(InvalidData("the sizes overflow 64 bits"), object.name);
    header().tensors.push_back({object.name, type, object.shape, end_, bytes});
    which_.push_back(index);
    end_ = header().Align(*end);
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
    for (const Record::Tensor& tensor : record_.tensors) {
      const auto found = by_name.find(tensor.name);
      if (found == by_name.end()) continue;
      ZT_RETURN_IF_ERROR(Add(found->second, true));
      by_name.erase(found);
      converted_ = converted_ || header().tensors.back().type.name != tensor.type;
    }
    for (const std::uint32_t index : selected_) {
      if (by_name.contains(source_.objects()[index].name)) ZT_RETURN_IF_ERROR(Add(index, false));
    }
    return OkStatus();
  }

  // Drops the keys of a split set unless they count exactly the tensors that are written, because
  // readers would take the file for one shard of several; corrects general.file_type.
  void ChoosePairs() {
    if (record_.kv == nullptr) return;
    const std::uint64_t* total = FindCount(*record_.kv, "split.tensors.count");
    const bool whole = total != nullptr && *total == header().tensors.size();
    const std::optional<Value> type = ChangedFileType();
    for (const Value& pair : *record_.kv) {
      const std::string* const key = KeyOf(pair);
      if (!whole && IsSplitKey(pair)) continue;
      if (type && key != nullptr && *key == "general.file_type") {
        file_type_ = Value(Value::Array{Value(*key), Value("u32"), *type});
        if (!type->is_null()) pairs_.push_back(&file_type_);
      } else {
        pairs_.push_back(&pair);
      }
    }
  }

  // The value of general.file_type once a conversion has left no blocks; null if no number stands
  // for the tensors. Nothing if the recorded one is still right.
  std::optional<Value> ChangedFileType() const {
    if (!converted_) return std::nullopt;
    std::map<std::string_view, std::uint64_t> bytes;
    for (const GgufTensor& tensor : record_.header.tensors) {
      if (!tensor.type.plain) return std::nullopt;
      bytes[tensor.type.name] += tensor.bytes;
    }
    const auto most = std::ranges::max_element(
        bytes, {}, &std::pair<const std::string_view, std::uint64_t>::second);
    const auto type = most == bytes.end() ? std::nullopt : FileTypeOf(most->first);
    return type ? Value(*type) : Value();
  }

  Status LayOut() {
    auto encoded = EncodeHeader(header(), pairs_);
    if (!encoded.ok()) return Annotate(encoded.status(), "root attribute 'gguf'");
    std::vector<std::byte> head = *std::move(encoded);
    const std::uint64_t data = header().Align(head.size());
    std::uint64_t at = head.size();
    for (std::size_t i = 0; i < which_.size(); ++i) {
      const GgufTensor& tensor = header().tensors[i];
      if (tensor.bytes == 0) continue;
      LayoutPiece& piece = layout_.pieces.emplace_back();
      piece.zeros = data + tensor.offset - at;
      piece.source = {which_[i], 0};
      piece.bytes = tensor.bytes;
      ZT_RETURN_IF_ERROR(WithTensor(SetByteOrder(tensor.type, piece), tensor.name));
      at = data + tensor.offset + tensor.bytes;
    }
    layout_.bytes = header().Align(at);
    layout_.end_zeros = layout_.bytes - at;
    ZT_RETURN_IF_ERROR(CheckReadableAgain(head));
    (layout_.pieces.empty() ? layout_.end : layout_.pieces.front().before) = std::move(head);
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
  Status CheckReadableAgain(std::span<const std::byte> head) {
    auto again = ParseHeader(head, layout_.bytes, Values::kChecked);
    Status status = again.status();
    if (status.ok() && !again->has_value()) status = InvalidData("the header is truncated");
    if (status.ok() && (*again)->alignment != header().alignment) {
      status = InvalidData("another alignment would be read");
    }
    return Annotate(status, "the GGUF file to be written would be damaged");
  }

  GgufHeader& header() { return record_.header; }

  const TensorSource& source_;
  NameList beyond_;  // tensors beyond llama.cpp's limits
  const std::span<const std::uint32_t> selected_;
  Record record_;                     // its header becomes that of the new file
  std::vector<const Value*> pairs_;   // metadata of the new file
  Value file_type_;                   // the corrected general.file_type
  std::vector<std::uint32_t> which_;  // by tensor of the header: the object
  std::uint64_t end_ = 0;             // aligned end of the tensors, from the start of the data
  FileLayout layout_;
  bool converted_ = false;  // a recorded tensor has got another type
};

}  // namespace

StatusOr<FileLayout> PlanGguf(const TensorSource& source, std::span<const std::uint32_t> objects,
                              const Value* record) {
  if (record == nullptr) record = FindMember(source.attributes(), "gguf");
  return GgufPlanner(source, objects).Run(record);
}

}  // namespace zt
