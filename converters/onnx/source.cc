// zt.convert.onnx — tensors served from the model, or from files beside it.
module;

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

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

// TensorProto.DataType by its number: zTensor's element type, and the field that typed elements come in.
struct DataType {
  std::string_view element;  // empty: cannot be converted
  std::uint64_t field =
      0;  // 4 float_data, 5 int32_data, 7 int64_data, 10 double_data, 11 uint64_data
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

// A file below the model's folder.
class OwnedFile final : public ByteSource {
 public:
  OwnedFile(int fd, std::shared_ptr<ByteSource> bytes) : fd_(fd), bytes_(std::move(bytes)) {}
  ~OwnedFile() override { ::close(fd_); }
  OwnedFile(const OwnedFile&) = delete;
  OwnedFile& operator=(const OwnedFile&) = delete;
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return bytes_->size(); }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(offset, out);
  }
  Status ReadScattered(std::uint64_t offset, std::span<const std::span<std::byte>> parts) override {
    return bytes_->ReadScattered(offset, parts);
  }
  Status CheckUnchanged() override { return bytes_->CheckUnchanged(); }

 private:
  const int fd_;
  std::shared_ptr<ByteSource> bytes_;
};

// Opened so that ".." never leads out of the folder, and a link only where links are followed.
StatusOr<std::shared_ptr<ByteSource>> OpenBeneath(const std::string& folder,
                                                  const std::string& location, bool follow_links) {
  if (location.empty() || location.find('\0') != location.npos) {
    return InvalidData("its external data is in a file without a name");
  }
  const std::filesystem::path below(location);
  if (below.is_absolute() || std::ranges::find(below, "..") != below.end()) {
    return InvalidData("its external data " + Quote(location) +
                       " leads out of the model's folder, and is not followed");
  }
  if (IsUrl(folder)) return OpenFile(folder + "/" + location);
  const int base = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (base < 0) return IoError(errno, "cannot open the model's folder");
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_NO_MAGICLINKS | (follow_links ? 0 : RESOLVE_BENEATH);
  const int fd = static_cast<int>(::syscall(SYS_openat2, base, location.c_str(), &how, sizeof how));
  const int error = errno;
  ::close(base);
  if (fd < 0 && error == ELOOP) {
    return InvalidData("its external data " + Quote(location) +
                       " is a symbolic link that leads nowhere");
  }
  if (fd < 0 && error == EXDEV) {
    return InvalidData("its external data " + Quote(location) +
                       " is a symbolic link that leaves the folder; --follow-links allows that");
  }
  if (fd < 0 && error == ENOENT)
    return InvalidData("the file of its external data, " + Quote(location) + ", is missing");
  if (fd < 0) return IoError(error, "cannot open the external data " + Quote(location));
  struct stat info;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidData("its external data " + Quote(location) + " is no regular file");
  }
  auto bytes = OpenDescriptor(fd, (std::filesystem::path(folder) / location).string());
  if (!bytes.ok()) {
    ::close(fd);
    return bytes.status();
  }
  return std::make_shared<OwnedFile>(fd, *std::move(bytes));
}

std::optional<std::uint64_t> ParseNumber(std::string_view text) {
  std::uint64_t value = 0;
  if (text.empty() || text.size() > 19) return std::nullopt;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  }
  return value;
}

class OnnxSource final : public TensorSource {
  struct Part {
    std::shared_ptr<ByteSource> bytes;
    std::uint64_t offset = 0;
    bool decoded = false;  // what follows is decoded when it is read
    std::vector<Stretch> fixed, varints;
    std::uint64_t width = 1;  // of varints: bytes of an element
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
      ZT_RETURN_IF_ERROR(
          WithTensor(fresh ? Add(tensor) : AddAgain(model.tensors[first], tensor, parts_[object]),
                     tensor.name));
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
    return parts_.empty() ? bytes_->name() : parts_[id.object].bytes->name();
  }
  Status CheckReadable(std::uint32_t object) const override {
    const std::string& problem = parts_[object].problem;
    return problem.empty() ? OkStatus() : Unsupported(problem);
  }
  std::optional<Extent> extent(ComponentId id) const override {
    const Part& part = parts_[id.object];
    if (!part.problem.empty() || part.decoded) return std::nullopt;
    return Extent{part.bytes.get(), part.offset, objects_[id.object].components[0].bytes};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    const Part& part = parts_[id.object];
    const std::uint64_t size = objects_[id.object].components[0].bytes;
    ZT_RETURN_IF_ERROR(CheckReadable(id.object));
    if (offset > size || out.size() > size - offset) {
      return InvalidArgument("a range beyond the tensor's " + std::to_string(size) + " bytes");
    }
    if (!part.decoded) return part.bytes->ReadAt(part.offset + offset, out);
    const std::lock_guard lock(mutex_);
    if (held_object_ != id.object) {
      held_object_ = ~std::uint32_t{0};
      ZT_RETURN_IF_ERROR(Decode(part, size));
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
  // Of a name that another graph has too. It is one tensor where both are alike.
  Status AddAgain(const TensorProto& first, const TensorProto& tensor, Part& part) {
    if (first.graph == tensor.graph) return InvalidData("it is in the model twice");
    ZT_ASSIGN_OR_RETURN(const bool same, SameTensor(*bytes_, first, tensor));
    if (!same && part.problem.empty()) {
      part.problem =
          "two of the model's graphs hold a tensor of this name, and they are not stored alike";
    }
    return OkStatus();
  }

  Status Add(const TensorProto& tensor) {
    if (tensor.negative_dim) return InvalidData("a dimension is negative");
    const bool known = tensor.type < kTypes.size();
    const DataType& type = kTypes[known ? tensor.type : 0];
    Part part;
    part.bytes = bytes_;
    if (type.element.empty() || tensor.sparse) {
      part.problem =
          tensor.sparse ? "it is sparse, which is not supported; save it dense"
          : known       ? "its elements are " + std::string(type.name) + ", which are not supported"
                        : "its data type has the number " + std::to_string(tensor.type) +
                        ", which is not known";
      ZT_ASSIGN_OR_RETURN(Object object, DenseObject(tensor.name, tensor.dims, {DType::kU8, ""}));
      return Keep(std::move(object), std::move(part));
    }
    ZT_ASSIGN_OR_RETURN(Object object,
                        DenseObject(tensor.name, tensor.dims, *ParseElementType(type.element)));
    const std::uint64_t size = object.components[0].bytes;
    const bool typed = !tensor.fixed.empty() || !tensor.varints.empty();
    if (tensor.location == 1) {
      if (tensor.raw || typed) return InvalidData("it has data in the model and outside it");
      ZT_RETURN_IF_ERROR(AddExternal(tensor, size, part));
    } else if (tensor.raw) {
      if (typed) return InvalidData("it has raw data and typed data");
      if (tensor.raw->length != size) {
        return InvalidData("its raw data has " + std::to_string(tensor.raw->length) +
                           " bytes, its shape asks for " + std::to_string(size));
      }
      part.offset = tensor.raw->offset;
    } else {
      ZT_RETURN_IF_ERROR(AddTyped(tensor, type, object, part));
    }
    return Keep(std::move(object), std::move(part));
  }
  Status Keep(Object object, Part part) {
    ZT_RETURN_IF_ERROR(ValidateObject(object));
    objects_.push_back(std::move(object));
    parts_.push_back(std::move(part));
    return OkStatus();
  }

  Status AddTyped(const TensorProto& tensor, const DataType& type, const Object& object,
                  Part& part) {
    const std::uint64_t size = object.components[0].bytes;
    if (size == 0 && tensor.number_field == 0) return OkStatus();
    if (tensor.number_field == 0) return InvalidData("it has no data");
    if (tensor.mixed || tensor.number_field != type.field) {
      return InvalidData("its data is not in the field that its type asks for");
    }
    part.width = ByteWidth(object.components[0].element.dtype);
    part.fixed = tensor.fixed;
    part.varints = tensor.varints;
    if (!part.fixed.empty()) {
      std::uint64_t have = 0;
      for (const Stretch& stretch : part.fixed) have += stretch.length;
      if (have != size) {
        return InvalidData("its data has " + std::to_string(have) + " bytes, its shape asks for " +
                           std::to_string(size));
      }
      part.offset = part.fixed[0].offset;
      if (part.fixed.size() == 1) return OkStatus();
    }
    part.decoded = true;
    // A number takes a byte at least, and eight once it is read.
    std::uint64_t most = 0;
    for (const Stretch& stretch : part.varints) most += stretch.length;
    if (part.fixed.empty() && size / part.width > most) {
      return InvalidData("it has fewer elements than its shape asks for, " +
                         std::to_string(size / part.width));
    }
    const std::uint64_t limit = options_.memory_limit;
    if (size > limit / 2 || size / part.width > limit / 16) {
      part.problem =
          "its elements are numbers of variable length and would have to be held in memory, more "
          "than half the "
          "memory limit; raise the limit (--memory)";
    }
    return OkStatus();
  }

  Status AddExternal(const TensorProto& tensor, std::uint64_t size, Part& part) {
    std::string location;
    std::uint64_t length = size;
    for (const auto& [key, value] : tensor.external) {
      if (key == "location") location = value;
      if (key != "offset" && key != "length") continue;
      const auto number = ParseNumber(value);
      if (!number) return InvalidData("the " + key + " of its external data is " + Quote(value));
      (key == "offset" ? part.offset : length) = *number;
    }
    if (length != size) {
      return InvalidData("its external data has " + std::to_string(length) +
                         " bytes, its shape asks for " + std::to_string(size));
    }
    if (folder_.empty()) {
      return Unsupported("its data is in another file, " + Quote(location) +
                         "; name the model's file, not standard input");
    }
    std::shared_ptr<ByteSource>& file = files_[location];
    if (file == nullptr) {
      auto opened = OpenBeneath(folder_, location, options_.follow_links);
      if (!opened.ok()) {
        files_.erase(location);
        return opened.status();
      }
      file = *std::move(opened);
    }
    if (part.offset > *file->size() || size > *file->size() - part.offset) {
      return InvalidData("its external data ends at byte " + std::to_string(part.offset) + " + " +
                         std::to_string(size) + ", the file " + Quote(location) + " at byte " +
                         std::to_string(*file->size()));
    }
    part.bytes = file;
    return OkStatus();
  }

  // Into held_.
  Status Decode(const Part& part, std::uint64_t size) {
    held_.resize(size);
    std::uint64_t at = 0;
    for (const Stretch& stretch : part.fixed) {
      ZT_RETURN_IF_ERROR(
          bytes_->ReadAt(stretch.offset, std::span(held_).subspan(at, stretch.length)));
      at += stretch.length;
    }
    if (part.varints.empty()) return OkStatus();
    const std::uint64_t count = size / part.width;
    ZT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> numbers,
                        ReadVarints(*bytes_, part.varints, count));
    for (std::uint64_t i = 0; i < count; ++i) {
      for (std::uint64_t k = 0; k < part.width; ++k) {
        held_[i * part.width + k] = static_cast<std::byte>(numbers[i] >> (8 * k) & 0xff);
      }
    }
    return OkStatus();
  }

  std::shared_ptr<ByteSource> bytes_;
  const std::string folder_;
  const InputOptions options_;
  std::vector<Part> parts_;
  std::map<std::string, std::shared_ptr<ByteSource>> files_;
  std::mutex mutex_;
  std::uint32_t held_object_ = ~std::uint32_t{0};
  std::vector<std::byte> held_;
};

}  // namespace
}  // namespace onnx::internal

bool LooksLikeOnnx(std::span<const std::byte> head) {
  // ir_version, a small number, then another of a model's fields.
  if (head.size() < 3 || head[0] != std::byte{0x08}) return false;
  // Models begin with version 3; a TensorFlow SavedModel with 1, and a name.
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
    return Unsupported("a model's tensors lie between its nodes; a pipe will not do, name a file");
  }
  ZT_ASSIGN_OR_RETURN(onnx::internal::Model model, onnx::internal::ReadModel(*bytes));
  if (!model.has_graph) return InvalidData("it is no ONNX model: it has no graph");
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
