// zt.convert.onnx — serves tensors from the model file and from external files.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.onnx;

import zt.std;
import :model;
import zt.core;
import zt.source;

namespace zt {
namespace onnx::internal {
namespace {

// By number of TensorProto.DataType: the element type, and the field that holds typed elements.
struct DataType {
  std::string_view element;  // empty: cannot be converted
  // 4 float_data, 5 int32_data, 7 int64_data, 10 double_data, 11 uint64_data.
  std::uint64_t field = 0;
  std::string_view name = {};  // of what cannot be converted
  // The format of elements that share bytes, and their bits. The first is in the lowest bits.
  std::string_view packed = {};
  std::uint64_t bits = 8;
};
constexpr std::array kTypes = std::to_array<DataType>({
    {"", 0, "of no type"},
    {"f32", 4},
    {"u8", 5},
    {"i8", 5},
    {"u16", 5},
    {"i16", 5},
    {"i32", 5},
    {"i64", 7},
    {"", 0, "strings"},
    {"bool", 5},
    {"f16", 5},
    {"f64", 10},
    {"u32", 11},
    {"u64", 11},
    {"complex64", 4},
    {"complex128", 10},
    {"bf16", 5},
    {"f8_e4m3fn", 5},
    {"f8_e4m3fnuz", 5},
    {"f8_e5m2", 5},
    {"f8_e5m2fnuz", 5},
    {"u8", 5, "", "onnx.uint4/1", 4},
    {"u8", 5, "", "onnx.int4/1", 4},
    {"u8", 5, "", "onnx.float4e2m1/1", 4},
    {"f8_e8m0", 5},
    {"u8", 5, "", "onnx.uint2/1", 2},
    {"u8", 5, "", "onnx.int2/1", 2},
});
constexpr std::uint64_t kI64 = 7;
// Limit on the dimensions of a sparse tensor: its indices are read once for each, and may grow as
// many times.
constexpr std::size_t kMaxSparseRank = 8;

StatusOr<DataType> TypeOf(std::uint64_t number) {
  if (number >= kTypes.size()) {
    return Unsupported("its data type has the number " + std::to_string(number) +
                       ", which is not known");
  }
  if (!kTypes[number].element.empty()) return kTypes[number];
  return Unsupported("its elements are " + std::string(kTypes[number].name) +
                     ", which are not converted");
}

// Opens a file in the model's folder or below it.
StatusOr<std::shared_ptr<ByteSource>> OpenBelow(const std::string& folder,
                                                const std::string& location,
                                                const InputOptions& options) {
  if (location.empty() || location.find('\0') != location.npos) {
    return InvalidData("its external data is in a file without a name");
  }
  const std::filesystem::path below(location);
  if (below.is_absolute() || std::ranges::find(below, "..") != below.end()) {
    return InvalidData("its external data " + Quote(location) +
                       " leads out of the model's folder, and is not followed");
  }
  const std::string context = "its external data " + Quote(location);
  ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(folder, location, options), context));
  using std::filesystem::file_type;
  const std::string path = (std::filesystem::path(folder) / below).string();
  const auto type = options.store->TypeOf(path);
  if (!type.ok()) return Annotate(type.status(), context);
  if (*type == file_type::not_found || *type == file_type::symlink)
    return InvalidData("the file of its external data, " + Quote(location) +
                       ", is missing; put it into the model's folder");
  if (*type != file_type::regular && *type != file_type::unknown)
    return InvalidData(context + " is not a regular file");
  auto file = options.store->Open(path);
  if (!file.ok()) return Annotate(file.status(), context);
  return file;
}

// The origin of a component's bytes: a range of a file, or a stream.
struct Part {
  ByteSource* bytes = nullptr;
  std::uint64_t offset = 0;
  std::unique_ptr<Stream> stream = nullptr;

  Status Read(std::uint64_t at, std::span<std::byte> out) const {
    return stream != nullptr ? stream->Read(at, out) : bytes->ReadAt(offset + at, out);
  }
};

class OnnxSource final : public TensorSource, public ModelTaker {
  struct Declared {
    Object object;
    std::vector<Part> parts;  // one for each component
  };

 public:
  OnnxSource(std::shared_ptr<ByteSource> bytes, std::string folder, const InputOptions& options)
      : bytes_(std::move(bytes)),
        folder_(std::move(folder)),
        options_(options),
        zeros_(MemoryBytes(kZeros, bytes_->name())) {}

  Status Init() {
    ZT_ASSIGN_OR_RETURN(const bool has_graph, ReadModel(*bytes_, *this));
    if (!has_graph) return InvalidData("it is not an ONNX model: it has no graph");
    if (objects_.empty()) AddWarning("the model holds no weights");
    if (!texts_.empty())
      AddWarning("texts among the attributes of nodes are left out: " + texts_.ToString());
    if (!metadata_.empty()) {
      AddWarning(
          "entries of metadata_props that are not UTF-8, too long, without a key or there before "
          "are left out: " +
          metadata_.ToString());
    }
    names_ = {};
    keys_ = {};
    return OkStatus();
  }

  std::string_view format() const override { return "onnx"; }
  const std::string& file(ComponentId id) const override {
    const ByteSource* const bytes = objects_.empty() ? nullptr : PartOf(id).bytes;
    return bytes == nullptr ? bytes_->name() : bytes->name();
  }
  bool sequential(ComponentId id) const override { return PartOf(id).stream != nullptr; }
  std::optional<Extent> extent(ComponentId id) const override {
    const Part& part = PartOf(id);
    if (problems_.contains(id.object) || part.stream != nullptr) return std::nullopt;
    return Extent{part.bytes, part.offset, objects_[id.object].components[id.component].bytes};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    return PartOf(id).Read(offset, out);
  }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(bytes_->CheckUnchanged(), bytes_->name()));
    for (const auto& [location, file] : files_) {
      ZT_RETURN_IF_ERROR(WithFile(file->CheckUnchanged(), file->name()));
    }
    return OkStatus();
  }

  Status TakeTensor(TensorProto tensor) override {
    if (!IsUtf8(tensor.name)) {
      tensor.name = EscapeUnlessUtf8(tensor.name);
      tensor.problem = InvalidData("its name is not UTF-8");
    }
    const auto name_of = [this](std::uint64_t i) -> std::string_view { return objects_[i].name; };
    if (const auto known = names_.Find(tensor.name, name_of)) {
      const auto object = static_cast<std::uint32_t>(*known);
      ZT_ASSIGN_OR_RETURN(const bool one, IsOne(object, tensor));
      if (one) return OkStatus();
      NameApart(object, tensor);
    }
    auto declared = Declare(tensor);
    Status problem = declared.status();
    if (!declared.ok()) declared = Listed(tensor);
    // An object that cannot even be listed has a hostile name or shape.
    ZT_RETURN_IF_ERROR(WithTensor(ValidateObject(declared->object), tensor.name));
    names_.Add(tensor.name, objects_.size(), name_of);
    if (!problem.ok()) AddProblem(static_cast<std::uint32_t>(objects_.size()), problem);
    objects_.push_back(std::move(declared->object));
    graphs_.push_back(tensor.graph);
    first_part_.push_back(static_cast<std::uint32_t>(parts_.size()));
    for (Part& part : declared->parts) parts_.push_back(std::move(part));
    return OkStatus();
  }
  void TakeMetadata(std::string key, std::optional<std::string> text) override {
    if (!text || key.empty() || !IsUtf8(key) || !IsUtf8(*text) ||
        attributes_.size() == kMaxMetadata || !keys_.insert(key).second) {
      metadata_.Add(Quote(key));
    } else {
      attributes_.emplace_back(std::move(key), Value(*std::move(text)));
    }
  }
  void TakeTexts(std::string_view name) override { texts_.Add(Quote(name)); }

 private:
  static constexpr std::size_t kMaxMetadata = std::size_t{1} << 18;
  static constexpr std::array<std::byte, 8> kZeros{};

  const Part& PartOf(ComponentId id) const { return parts_[first_part_[id.object] + id.component]; }

  void AddProblem(std::uint32_t object, const Status& problem) {
    problems_.try_emplace(object, problem);
  }

  // True if a tensor is the object that has its name: both are equal, and belong to different
  // graphs.
  StatusOr<bool> IsOne(std::uint32_t object, const TensorProto& tensor) {
    if (problems_.contains(object) || graphs_[object] == tensor.graph) return false;
    return IsSame(object, tensor);
  }
  // Gives a tensor whose name another one has a name by which it can be left out.
  void NameApart(std::uint32_t object, TensorProto& tensor) {
    const auto name_of = [this](std::uint64_t i) -> std::string_view { return objects_[i].name; };
    const std::string own = std::move(tensor.name);
    std::uint64_t& count = twins_.try_emplace(object, 1).first->second;
    do {
      tensor.name = own + " (" + std::to_string(++count) + ")";
    } while (names_.Find(tensor.name, name_of));
    if (!tensor.problem.ok()) return;
    tensor.problem = graphs_[object] == tensor.graph || problems_.contains(object)
                         ? InvalidData("another tensor of the model is named " + Quote(own))
                         : Unsupported("another of the model's graphs holds a tensor named " +
                                       Quote(own) + ", and they are not stored alike");
  }

  // True if a tensor has the declaration of an object, and the same bytes in the model or the same
  // range of an external file.
  StatusOr<bool> IsSame(std::uint32_t index, const TensorProto& tensor) {
    const auto other = Declare(tensor);
    const Object& object = objects_[index];
    ZT_RETURN_IF_UNAVAILABLE(other.status());
    if (!other.ok() || object.format != other->object.format ||
        object.shape != other->object.shape) {
      return false;
    }
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const Component &mine = object.components[c], &theirs = other->object.components[c];
      const Part &one = PartOf({index, c}), &two = other->parts[c];
      if (!(mine.element == theirs.element) || mine.bytes != theirs.bytes) return false;
      const bool in_model = one.bytes == bytes_.get() && two.bytes == bytes_.get();
      if (!in_model && (one.bytes != two.bytes || one.offset != two.offset)) return false;
      if (!in_model) continue;
      ZT_ASSIGN_OR_RETURN(const bool same, HasSameBytes(one, two, mine.bytes));
      if (!same) return false;
    }
    return true;
  }
  // Bytes that cannot be decoded count as different.
  static StatusOr<bool> HasSameBytes(const Part& one, const Part& two, std::uint64_t bytes) {
    const auto reader = [](const Part& part) {
      return [&part](std::uint64_t at, std::span<std::byte> out) { return part.Read(at, out); };
    };
    const auto same = ServeSameBytes(bytes, reader(one), reader(two));
    ZT_RETURN_IF_UNAVAILABLE(same.status());
    return same.ok() && *same;
  }

  // A tensor that cannot be converted: its name, its shape if it can be, and no bytes.
  static StatusOr<Declared> Listed(const TensorProto& tensor) {
    Declared out{{.name = tensor.name, .format = "onnx.other", .shape = tensor.dims}, {}};
    if (!ElementCount(tensor.dims) || std::ranges::any_of(tensor.dims, [](std::uint64_t dim) {
          return dim > ~std::uint64_t{0} / 2;
        })) {
      out.object.shape = {0};
    }
    out.object.components.push_back({"data", {DType::kU8, ""}, 0});
    out.parts.resize(1);
    return out;
  }

  StatusOr<Declared> Declare(const TensorProto& tensor) {
    ZT_RETURN_IF_ERROR(tensor.problem);
    if (!tensor.sparse.empty()) return DeclareSparse(tensor);
    ZT_ASSIGN_OR_RETURN(const DataType type, TypeOf(tensor.type));
    Declared out;
    if (type.packed.empty()) {
      ZT_ASSIGN_OR_RETURN(out.object,
                          DenseObject(tensor.name, tensor.dims, *ParseElementType(type.element)));
    } else {
      const auto count = ElementCount(tensor.dims);
      const auto bits = count ? CheckedMul(*count, type.bits) : std::nullopt;
      if (!bits) return InvalidData("shape " + ToString(tensor.dims) + " overflows 64 bits");
      out.object = {.name = tensor.name, .format = std::string(type.packed), .shape = tensor.dims};
      out.object.components.push_back({"data", {DType::kU8, ""}, *bits / 8 + (*bits % 8 != 0)});
    }
    const Component& data = out.object.components[0];
    ZT_ASSIGN_OR_RETURN(Part part, PartFor(tensor, type, data));
    out.parts.push_back(std::move(part));
    return out;
  }

  // A SparseTensorProto as coordinates and values.
  StatusOr<Declared> DeclareSparse(const TensorProto& tensor) {
    const TensorProto &values = tensor.sparse[0], &indices = tensor.sparse[1];
    ZT_RETURN_IF_ERROR(Annotate(values.problem, "its values"));
    ZT_RETURN_IF_ERROR(Annotate(indices.problem, "its indices"));
    ZT_ASSIGN_OR_RETURN(const DataType type, TypeOf(values.type));
    const std::size_t rank = tensor.dims.size();
    const bool linear = indices.dims.size() == 1;
    if (!type.packed.empty() || values.dims.size() != 1 || indices.type != kI64 || rank == 0 ||
        rank > kMaxSparseRank || indices.dims.empty() || indices.dims[0] != values.dims[0] ||
        (!linear && (indices.dims.size() != 2 || indices.dims[1] != rank))) {
      return Unsupported(
          "it is sparse, and its values and indices are not such as can be converted; save it "
          "dense");
    }
    const std::uint64_t count = values.dims[0];
    const auto cells = ElementCount(tensor.dims);
    const auto bytes = CheckedMul(count, 8 * rank);
    const ElementType element = *ParseElementType(type.element);
    const auto value_bytes = DenseBytes(values.dims, element);
    if (!cells || !bytes || !value_bytes)
      return InvalidData("shape " + ToString(tensor.dims) + " overflows 64 bits");
    if (*cells == 0 && count > 0) return InvalidData("it has values and no cells");
    Declared out{{.name = tensor.name, .format = "sparse_coo", .shape = tensor.dims}, {}};
    const Component of_values{"values", element, *value_bytes};
    const Component of_indices{"coords", {DType::kU64, ""}, *bytes / (linear ? rank : 1)};
    ZT_ASSIGN_OR_RETURN(Part first, Annotated(PartFor(values, type, of_values), "its values"));
    ZT_ASSIGN_OR_RETURN(Part second,
                        Annotated(PartFor(indices, kTypes[kI64], of_indices), "its indices"));
    if (rank > 1 && count > 0) {
      auto stream = second.stream != nullptr ? std::move(second.stream)
                                             : MakeRangeStream(*second.bytes, second.offset);
      second.stream = MakeCoordStream(std::move(stream), tensor.dims, count, linear);
    }
    out.object.components = {of_values, {"coords", {DType::kU64, ""}, *bytes}};
    out.parts.push_back(std::move(first));
    out.parts.push_back(std::move(second));
    return out;
  }
  static StatusOr<Part> Annotated(StatusOr<Part> part, std::string_view context) {
    if (!part.ok()) return Annotate(part.status(), context);
    return part;
  }

  // The origin of the elements of a TensorProto.
  StatusOr<Part> PartFor(const TensorProto& tensor, const DataType& type,
                         const Component& component) {
    const bool typed = tensor.numbers.fields > 0;
    if (tensor.external) {
      if (tensor.raw || typed) return InvalidData("it has data in the model and outside it");
      return PartOutside(tensor.where, component.bytes);
    }
    if (!tensor.raw) return PartOfNumbers(tensor, type, component);
    if (typed) return InvalidData("it has raw data and typed data");
    if (tensor.raw->length != component.bytes) {
      return InvalidData("its raw data has " + std::to_string(tensor.raw->length) +
                         " bytes, its shape needs " + std::to_string(component.bytes));
    }
    return Part{bytes_.get(), tensor.raw->offset};
  }

  StatusOr<Part> PartOfNumbers(const TensorProto& tensor, const DataType& type,
                               const Component& component) {
    const Numbers& numbers = tensor.numbers;
    if (numbers.fields == 0 && (component.bytes == 0 || tensor.attribute))
      return Part{zeros_.get(), 0};
    if (numbers.field == 0) return InvalidData("it has no data");
    if (tensor.mixed || (!tensor.attribute && numbers.field != type.field))
      return InvalidData("its data is not in the field of its type");
    const std::uint64_t width = ByteWidth(component.element.dtype);
    if (!numbers.varints) {
      if (numbers.bytes != component.bytes) {
        return InvalidData("its data has " + std::to_string(numbers.bytes) +
                           " bytes, its shape needs " + std::to_string(component.bytes));
      }
      if (numbers.fields == 1) return Part{bytes_.get(), numbers.first.offset};
      // A varint has at least one byte in the file, and at most ten.
    } else if (component.bytes / width > numbers.bytes) {
      return InvalidData("it has fewer elements than its shape needs, " +
                         std::to_string(component.bytes / width));
    } else if (component.bytes == 0) {
      return InvalidData("it has more than 0 elements");
    }
    const bool to_bool = component.element.dtype == DType::kBool;
    return Part{bytes_.get(), numbers.message.offset,
                MakeNumberStream(*bytes_, numbers, component.bytes, width, to_bool)};
  }

  StatusOr<Part> PartOutside(const External& where, std::uint64_t size) {
    if (where.length.value_or(size) != size) {
      return InvalidData("its external data has " + std::to_string(*where.length) +
                         " bytes, its shape needs " + std::to_string(size));
    }
    if (folder_.empty()) {
      return Unsupported("its data is in another file, " + Quote(where.location) +
                         "; name the model's file, not standard input");
    }
    auto found = files_.find(where.location);
    if (found == files_.end()) {
      ZT_ASSIGN_OR_RETURN(auto opened, OpenBelow(folder_, where.location, options_));
      found = files_.emplace(where.location, std::move(opened)).first;
    }
    ByteSource& file = *found->second;
    ZT_ASSIGN_OR_RETURN(const std::uint64_t have,
                        KnownSize(file, "its external data " + Quote(where.location)));
    if (where.offset > have || size > have - where.offset) {
      const auto end = CheckedAdd(where.offset, size);
      return InvalidData("its external data ends at byte " +
                         (end ? std::to_string(*end) : "2^64 or beyond it") + ", the file " +
                         Quote(where.location) + " at byte " + std::to_string(have));
    }
    return Part{&file, where.offset};
  }

  std::shared_ptr<ByteSource> bytes_;
  const std::string folder_;
  const InputOptions options_;
  const std::shared_ptr<ByteSource> zeros_;  // of a number that is 0 because it is not there
  std::vector<Part> parts_;
  std::vector<std::uint32_t> first_part_;  // by object
  std::vector<std::uint64_t> graphs_;      // by object: its graph
  std::map<std::string, std::shared_ptr<ByteSource>> files_;

  // While the model is read.
  zt::internal::NameTable names_;
  std::unordered_map<std::uint32_t, std::uint64_t> twins_;  // by object: tensors of its name
  std::unordered_set<std::string, zt::internal::NameHash> keys_;
  NameList texts_, metadata_;  // what is left out
};

}  // namespace
}  // namespace onnx::internal

bool LooksLikeOnnx(std::span<const std::byte> head) {
  // ir_version, a small number, then another field of ModelProto.
  if (head.size() < 3 || head[0] != std::byte{0x08}) return false;
  if (head[1] < std::byte{1} || head[1] > std::byte{0x1f}) return false;
  // A TensorFlow SavedModel begins with 1, too, and then has a message, never an empty one, where
  // ONNX has the producer's name.
  if (head[1] == std::byte{1} && head[2] == std::byte{0x12}) {
    return head.size() > 4 && head[3] < std::byte{0x80} &&
           (head[3] == std::byte{0} || head[4] >= std::byte{0x20});
  }
  for (const unsigned tag : {0x12u, 0x1au, 0x22u, 0x28u, 0x32u, 0x3au, 0x42u, 0x72u}) {
    if (head[2] == static_cast<std::byte>(tag)) return true;
  }
  return false;
}

StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const InputOptions& options) {
  ZT_RETURN_IF_ERROR(KnownSize(*bytes, "an ONNX model").status());
  std::string folder;
  if (!path.empty()) {
    folder = std::filesystem::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
  }
  auto source =
      std::make_unique<onnx::internal::OnnxSource>(std::move(bytes), std::move(folder), options);
  ZT_RETURN_IF_ERROR(source->Init());
  return source;
}

}  // namespace zt
