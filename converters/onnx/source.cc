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
  std::string_view name = {};
};
constexpr std::array kTypes = std::to_array<DataType>({
    {"", 0, "no type"},
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
    {"", 0, "4-bit integers"},
    {"", 0, "4-bit integers"},
    {"", 0, "4-bit floats"},
    {"f8_e8m0", 5},
});

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
  std::error_code error;
  const std::filesystem::path path = std::filesystem::path(folder) / below;
  const bool remote = IsUrl(folder);
  const std::filesystem::file_type type =
      remote ? std::filesystem::file_type::regular : std::filesystem::status(path, error).type();
  if (remote ? !Exists(path.string()) : type == std::filesystem::file_type::not_found)
    return InvalidData("the file of its external data, " + Quote(location) + ", is missing");
  if (!error && type != std::filesystem::file_type::regular)
    return InvalidData(context + " is not a regular file");
  auto file = OpenFile(path.string());
  if (!file.ok()) return Annotate(file.status(), context);
  return file;
}

class OnnxSource final : public TensorSource {
  struct Initializer {
    std::shared_ptr<ByteSource> bytes;
    std::uint64_t offset = 0;
    bool decoded = false;  // decoded when read, from `fixed` or `varints`
    std::vector<FileRange> fixed, varints;
    std::uint64_t width = 1;  // bytes of an element of `varints`
    std::string problem;
  };

 public:
  OnnxSource(std::shared_ptr<ByteSource> bytes, std::string folder, const InputOptions& options)
      : bytes_(std::move(bytes)), folder_(std::move(folder)), options_(options) {}

  Status Init(Model model) {
    struct First {
      std::size_t tensor, object;
    };
    std::unordered_map<std::string_view, First, zt::internal::NameHash> names;
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
      const TensorProto& tensor = model.tensors[i];
      const auto [known, fresh] = names.emplace(tensor.name, First{i, objects_.size()});
      const auto [first, object] = known->second;
      ZT_RETURN_IF_ERROR(WithTensor(
          fresh ? Add(tensor) : AddAgain(model.tensors[first], tensor, initializers_[object]),
          tensor.name));
    }
    for (std::uint32_t i = 0; i < initializers_.size(); ++i) {
      if (!initializers_[i].problem.empty())
        problems_.emplace(i, Unsupported(initializers_[i].problem));
    }
    std::unordered_set<std::string_view, zt::internal::NameHash> keys;
    for (const auto& [key, value] : model.metadata) {
      if (!key.empty() && IsUtf8(key) && IsUtf8(value) && keys.insert(key).second) {
        attributes_.emplace_back(key, Value(value));
      }
    }
    if (objects_.empty() && model.others == 0) AddWarning("the model holds no weights");
    if (model.others > 0) {
      AddWarning(std::to_string(model.others) +
                 (model.others == 1 ? " tensor that a node has" : " tensors that nodes have") +
                 " among the attributes left out");
    }
    return OkStatus();
  }

  std::string_view format() const override { return "onnx"; }
  const std::string& file(ComponentId id) const override {
    return initializers_.empty() ? bytes_->name() : initializers_[id.object].bytes->name();
  }
  std::optional<Extent> extent(ComponentId id) const override {
    const Initializer& initializer = initializers_[id.object];
    if (!initializer.problem.empty() || initializer.decoded) return std::nullopt;
    return Extent{initializer.bytes.get(), initializer.offset,
                  objects_[id.object].components[0].bytes};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const Initializer& initializer = initializers_[id.object];
    ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
    if (!initializer.decoded) return initializer.bytes->ReadAt(initializer.offset + offset, out);
    const std::lock_guard lock(mutex_);
    if (held_object_ != id.object) {
      held_object_ = ~std::uint32_t{0};
      ZT_RETURN_IF_ERROR(Decode(initializer, objects_[id.object].components[0].bytes));
      held_object_ = id.object;
    }
    std::copy_n(held_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return OkStatus();
  }
  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(bytes_->CheckUnchanged(), bytes_->name()));
    for (const auto& [location, file] : files_) {
      ZT_RETURN_IF_ERROR(WithFile(file->CheckUnchanged(), file->name()));
    }
    return OkStatus();
  }

 private:
  // Adds a tensor whose name another graph also uses. Both are one tensor if they are equal.
  Status AddAgain(const TensorProto& first, const TensorProto& tensor, Initializer& initializer) {
    if (first.graph == tensor.graph) return InvalidData("it is in the model twice");
    ZT_ASSIGN_OR_RETURN(const bool same, SameTensor(*bytes_, first, tensor));
    if (!same && initializer.problem.empty()) {
      initializer.problem =
          "two of the model's graphs hold a tensor of this name, and they are not stored alike";
    }
    return OkStatus();
  }

  Status Add(const TensorProto& tensor) {
    if (tensor.negative_dim) return InvalidData("a dimension is negative");
    const bool known = tensor.type < kTypes.size();
    const DataType& type = kTypes[known ? tensor.type : 0];
    Initializer initializer;
    initializer.bytes = bytes_;
    if (type.element.empty() || tensor.sparse) {
      initializer.problem =
          tensor.sparse ? "it is sparse, which is not supported; save it dense"
          : known       ? "its elements are " + std::string(type.name) + ", which are not supported"
                        : "its data type has the number " + std::to_string(tensor.type) +
                        ", which is not known";
      ZT_ASSIGN_OR_RETURN(Object object, DenseObject(tensor.name, tensor.dims, {DType::kU8, ""}));
      return Keep(std::move(object), std::move(initializer));
    }
    ZT_ASSIGN_OR_RETURN(Object object,
                        DenseObject(tensor.name, tensor.dims, *ParseElementType(type.element)));
    const std::uint64_t size = object.components[0].bytes;
    const bool typed = !tensor.fixed.empty() || !tensor.varints.empty();
    if (tensor.location == 1) {
      if (tensor.raw || typed) return InvalidData("it has data in the model and outside it");
      ZT_RETURN_IF_ERROR(AddExternal(tensor, size, initializer));
    } else if (tensor.raw) {
      if (typed) return InvalidData("it has raw data and typed data");
      if (tensor.raw->length != size) {
        return InvalidData("its raw data has " + std::to_string(tensor.raw->length) +
                           " bytes, its shape needs " + std::to_string(size));
      }
      initializer.offset = tensor.raw->offset;
    } else {
      ZT_RETURN_IF_ERROR(AddTyped(tensor, type, object, initializer));
    }
    return Keep(std::move(object), std::move(initializer));
  }
  Status Keep(Object object, Initializer initializer) {
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    objects_.push_back(std::move(object));
    initializers_.push_back(std::move(initializer));
    return OkStatus();
  }

  Status AddTyped(const TensorProto& tensor, const DataType& type, const Object& object,
                  Initializer& initializer) {
    const std::uint64_t size = object.components[0].bytes;
    if (size == 0 && tensor.number_field == 0) return OkStatus();
    if (tensor.number_field == 0) return InvalidData("it has no data");
    if (tensor.mixed || tensor.number_field != type.field) {
      return InvalidData("its data is not in the field of its type");
    }
    initializer.width = ByteWidth(object.components[0].element.dtype);
    initializer.fixed = tensor.fixed;
    initializer.varints = tensor.varints;
    if (!initializer.fixed.empty()) {
      std::uint64_t have = 0;
      for (const FileRange& range : initializer.fixed) have += range.length;
      if (have != size) {
        return InvalidData("its data has " + std::to_string(have) + " bytes, its shape needs " +
                           std::to_string(size));
      }
      initializer.offset = initializer.fixed[0].offset;
      if (initializer.fixed.size() == 1) return OkStatus();
    }
    initializer.decoded = true;
    // A varint has at least one byte in the file, and decodes to eight.
    std::uint64_t most = 0;
    for (const FileRange& range : initializer.varints) most += range.length;
    if (initializer.fixed.empty() && size / initializer.width > most) {
      return InvalidData("it has fewer elements than its shape needs, " +
                         std::to_string(size / initializer.width));
    }
    const std::uint64_t limit = options_.memory_limit;
    if (size > limit / 2 || size / initializer.width > limit / 16) {
      initializer.problem =
          "its elements are numbers of variable length and would have to be held in memory, more "
          "than half the "
          "memory limit; raise the limit (--memory)";
    }
    return OkStatus();
  }

  Status AddExternal(const TensorProto& tensor, std::uint64_t size, Initializer& initializer) {
    std::string location;
    std::uint64_t length = size;
    for (const auto& [key, value] : tensor.external) {
      if (key == "location") location = value;
      if (key != "offset" && key != "length") continue;
      const char* const past = value.data() + value.size();
      const auto [end, error] =
          std::from_chars(value.data(), past, key == "offset" ? initializer.offset : length);
      if (error != std::errc() || end != past)
        return InvalidData("the " + key + " of its external data is " + Quote(value));
    }
    if (length != size) {
      return InvalidData("its external data has " + std::to_string(length) +
                         " bytes, its shape needs " + std::to_string(size));
    }
    if (folder_.empty()) {
      return Unsupported("its data is in another file, " + Quote(location) +
                         "; name the model's file, not standard input");
    }
    std::shared_ptr<ByteSource>& file = files_[location];
    if (file == nullptr) {
      auto opened = OpenBelow(folder_, location, options_);
      if (!opened.ok()) {
        files_.erase(location);
        return opened.status();
      }
      file = *std::move(opened);
    }
    if (initializer.offset > *file->size() || size > *file->size() - initializer.offset) {
      return InvalidData("its external data ends at byte " + std::to_string(initializer.offset) +
                         " + " + std::to_string(size) + ", the file " + Quote(location) +
                         " at byte " + std::to_string(*file->size()));
    }
    initializer.bytes = file;
    return OkStatus();
  }

  // Decodes the tensor into held_.
  Status Decode(const Initializer& initializer, std::uint64_t size) {
    held_.resize(size);
    std::uint64_t at = 0;
    for (const FileRange& range : initializer.fixed) {
      ZT_RETURN_IF_ERROR(bytes_->ReadAt(range.offset, std::span(held_).subspan(at, range.length)));
      at += range.length;
    }
    if (initializer.varints.empty()) return OkStatus();
    const std::uint64_t count = size / initializer.width;
    ZT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers,
                        ReadVarints(*bytes_, initializer.varints, count));
    for (std::uint64_t i = 0; i < count; ++i) {
      zt::internal::StoreLittle(numbers[i], initializer.width,
                                held_.data() + i * initializer.width);
    }
    return OkStatus();
  }

  std::shared_ptr<ByteSource> bytes_;
  const std::string folder_;
  const InputOptions options_;
  std::vector<Initializer> initializers_;
  std::map<std::string, std::shared_ptr<ByteSource>> files_;
  std::mutex mutex_;
  std::uint32_t held_object_ = ~std::uint32_t{0};
  std::vector<std::byte> held_;
};

}  // namespace
}  // namespace onnx::internal

bool LooksLikeOnnx(std::span<const std::byte> head) {
  // ir_version, a small number, then another field of ModelProto.
  if (head.size() < 3 || head[0] != std::byte{0x08}) return false;
  // ONNX models have version 3 or later; a TensorFlow SavedModel begins with 1, then a name.
  if (head[1] < std::byte{3} || head[1] > std::byte{0x1f}) return false;
  for (const unsigned tag : {0x12u, 0x1au, 0x22u, 0x28u, 0x32u, 0x3au, 0x42u, 0x72u}) {
    if (head[2] == static_cast<std::byte>(tag)) return true;
  }
  return false;
}

StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const InputOptions& options) {
  if (bytes->sequential() || !bytes->size()) {
    return Unsupported("an ONNX model cannot be read from a pipe; name a file");
  }
  ZT_ASSIGN_OR_RETURN(onnx::internal::Model model, onnx::internal::ReadModel(*bytes));
  if (!model.has_graph) return InvalidData("it is not an ONNX model: it has no graph");
  std::string folder;
  if (!path.empty()) {
    folder = std::filesystem::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
  }
  auto source =
      std::make_unique<onnx::internal::OnnxSource>(std::move(bytes), std::move(folder), options);
  ZT_RETURN_IF_ERROR(source->Init(std::move(model)));
  return source;
}

}  // namespace zt
