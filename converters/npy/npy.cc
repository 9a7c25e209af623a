// zt.convert.npy — sources of arrays: .npy files, folders of them, and .npz archives.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :arrays;
import :header;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt {
namespace npy::internal {

Status ArraySource::Add(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
                        const ArrayType& type) {
  ZT_ASSIGN_OR_RETURN(Object object, DenseObject(std::move(name), header.shape, type.element));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  ZT_ASSIGN_OR_RETURN(auto reader, ArrayReader::Make(std::move(bytes), header, type, memory_));
  if (type.guessed) {
    if (guessed_.empty()) {
      guess_ = warnings_.size();
      AddWarning("");
    }
    guessed_.Add(Quote(object.name) + " (" + Quote(header.descr.text) + ")");
    warnings_[guess_] =
        "dtypes that do not say their byte order are read as little-endian: " + guessed_.ToString();
  }
  objects_.push_back(std::move(object));
  readers_.push_back(std::move(reader));
  return OkStatus();
}

void ArraySource::AddUnreadable(std::string name, std::string_view file, std::string_view descr,
                                Shape shape, std::uint64_t bytes, Status why) {
  const auto index = static_cast<std::uint32_t>(objects_.size());
  Object object;
  object.name = std::move(name);
  object.format = "npy." + std::string(descr);
  object.shape = std::move(shape);
  object.components.push_back({"data", {DType::kU8, ""}, bytes});
  objects_.push_back(std::move(object));
  readers_.push_back(nullptr);
  unreadable_.emplace(index, file);
  problems_.emplace(index, std::move(why));
}

const std::string& ArraySource::file(ComponentId id) const {
  if (id.object >= readers_.size()) return file_;
  const auto& reader = readers_[id.object];
  return reader != nullptr ? reader->bytes().name() : unreadable_.at(id.object);
}

Status ArraySource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(CheckRange(id, offset, out.size()));
  return readers_[id.object]->Read(offset, out);
}

namespace {

Status Trailing(std::uint64_t end) {
  return InvalidData("bytes follow the array, which ends at byte " + std::to_string(end) +
                     "; files of several arrays are not supported");
}

// Arrays in files of their own.
class NpySource final : public ArraySource {
 public:
  explicit NpySource(std::uint64_t memory_limit) : ArraySource("npy", memory_limit) {}

  // Adds a file of a folder. A well-formed file that cannot be read is listed, so that the
  // others can be converted.
  Status AddFileOfFolder(const std::string& name, const std::shared_ptr<ByteSource>& bytes,
                         const InputOptions& options) {
    StatusOr<Header> header = ReadHeader(*bytes);
    const Status status = header.ok() ? AddArray(name, bytes, *header, options) : header.status();
    if (status.code() != StatusCode::kUnimplemented) return status;
    if (!header.ok()) header = Header{};
    const std::uint64_t size = bytes->size().value_or(0);
    AddUnreadable(name, bytes->name(), DescrName(header->descr), header->shape,
                  size - std::min(size, header->size), status);
    return OkStatus();
  }
  Status AddFile(std::string name, std::shared_ptr<ByteSource> bytes, const InputOptions& options) {
    ZT_ASSIGN_OR_RETURN(const Header header, ReadHeader(*bytes));
    return AddArray(std::move(name), std::move(bytes), header, options);
  }
  Status AddArray(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
                  const InputOptions& options) {
    ZT_ASSIGN_OR_RETURN(const ArrayType type, TypeOf(header.descr, options.void_type));
    const std::optional<std::uint64_t> size = bytes->size();
    ZT_RETURN_IF_ERROR(Add(std::move(name), std::move(bytes), header, type));
    if (!size) return OkStatus();
    const std::uint64_t end = header.size + readers_.back()->size();
    if (*size < end) {
      return InvalidData("the array ends at byte " + std::to_string(end) + ", the file at byte " +
                         std::to_string(*size) + "; it is truncated");
    }
    return *size == end ? OkStatus() : Trailing(end);
  }

  bool seekable() const override {
    return std::none_of(readers_.begin(), readers_.end(), [](const auto& reader) {
      return reader != nullptr && reader->sequential();
    });
  }
  std::optional<Extent> extent(ComponentId id) const override {
    const ArrayReader* const reader = readers_[id.object].get();
    if (reader == nullptr || !reader->direct()) return std::nullopt;
    return Extent{&reader->bytes(), reader->data(), reader->size()};
  }
  // The size of a pipe is unknown when it is opened, so bytes after its array are only found here.
  Status Finish() override {
    for (const auto& reader : readers_) {
      if (reader == nullptr) continue;
      const std::string& name = reader->bytes().name();
      ZT_RETURN_IF_ERROR(WithFile(reader->bytes().CheckUnchanged(), name));
      if (!reader->sequential()) continue;
      const std::uint64_t end = reader->data() + reader->size();
      ZT_ASSIGN_OR_RETURN(const bool at_end, WithFile(reader->bytes().AtEnd(end), name));
      if (!at_end) return WithFile(Trailing(end), name);
    }
    return OkStatus();
  }
};

}  // namespace
}  // namespace npy::internal

StatusOr<std::unique_ptr<TensorSource>> OpenNpy(std::shared_ptr<ByteSource> bytes,
                                                std::string object_name,
                                                const InputOptions& options) {
  auto source = std::make_unique<npy::internal::NpySource>(options.memory_limit);
  ZT_RETURN_IF_ERROR(
      WithTensor(source->AddFile(object_name, std::move(bytes), options), object_name));
  return source;
}

StatusOr<std::unique_ptr<TensorSource>> OpenNpyFolder(const std::string& path,
                                                      const InputOptions& options) {
  std::vector<std::filesystem::path> arrays;
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, options.store->List(path));
  for (const std::string& name : names) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    std::error_code error;
    if (file.extension() == ".npy" && (IsUrl(path) || !std::filesystem::is_directory(file, error)))
      arrays.push_back(file);
  }
  if (arrays.empty()) return InvalidData("there is no .npy file in it");
  std::sort(arrays.begin(), arrays.end());

  auto source = std::make_unique<npy::internal::NpySource>(options.memory_limit);
  for (const std::filesystem::path& file : arrays) {
    const std::string name = file.stem().string();
    const std::string leaf = file.filename().string();
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, leaf, options), leaf));
    const auto bytes = options.store->OpenForEachRead(file.string());
    if (!bytes.ok()) return Annotate(WithTensor(bytes.status(), name), leaf);
    ZT_RETURN_IF_ERROR(
        Annotate(WithTensor(source->AddFileOfFolder(name, *bytes, options), name), leaf));
  }
  return source;
}

}  // namespace zt

namespace zt::npy::internal {

StatusOr<std::unique_ptr<ArrayReader>> ArrayReader::Make(std::shared_ptr<ByteSource> bytes,
                                                         const Header& header,
                                                         const ArrayType& type,
                                                         const ArrayMemory& memory) {
  std::unique_ptr<ArrayReader> reader(new ArrayReader);
  const auto size = DenseBytes(header.shape, type.element);
  if (!size || !CheckedAdd(*size, header.size)) {
    return InvalidData("shape " + ToString(header.shape) + " overflows 64 bits");
  }
  reader->bytes_ = std::move(bytes);
  reader->type_ = type;
  reader->data_ = header.size;
  reader->size_ = *size;
  Shape shape;  // without dimensions of 1
  for (const std::uint64_t dim : header.shape) {
    if (dim != 1) shape.push_back(dim);
  }
  reader->fortran_ = header.fortran_order && shape.size() > 1 && *size > 0;
  if (*size == 0 || reader->direct()) return reader;
  if (reader->sequential() && reader->fortran_) {
    if (*size > memory.held->room()) {
      return WithAdvice(
          Unsupported("it is in Fortran order, and its " + std::to_string(*size) +
                      " bytes cannot be read twice here (a pipe or a deflated entry): they would "
                      "have to be held, and half the memory limit is " +
                      std::to_string(memory.held->room()) + "; give an uncompressed file"),
          Advice::kMemory);
    }
    reader->held_ = HeldBytes::Make(memory.held, reader->bytes_, header.size, *size);
  }
  Shape strides(shape.size());
  std::uint64_t stride = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t k = reader->fortran_ ? i : shape.size() - 1 - i;
    strides[k] = stride;
    stride *= shape[k];
  }
  reader->view_ = std::make_unique<StridedView>(
      reader->held_ != nullptr ? *reader->held_ : *reader->bytes_, header.size,
      CollapseAxes(shape, strides), StridedView::Elements{type.width, type.swap}, memory.bands);
  return reader;
}

Status ArrayReader::Read(std::uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) return OkStatus();
  return view_ != nullptr ? view_->Read(offset, out) : bytes_->ReadAt(data_ + offset, out);
}

}  // namespace zt::npy::internal

namespace zt {
namespace npy::internal {
namespace {

class NpzSource final : public ArraySource {
 public:
  NpzSource(std::shared_ptr<ZipArchive> archive, std::uint64_t memory_limit)
      : ArraySource("npz", memory_limit), archive_(std::move(archive)) {}

  // Adds an entry. A well-formed array that cannot be read is listed, so that the
  // others can be converted.
  Status AddEntry(const EntryArray& array, const InputOptions& options) {
    entries_.push_back(array.index);
    const Status status = array.unreadable.ok() ? AddArray(array, options) : array.unreadable;
    if (status.code() != StatusCode::kUnimplemented) return status;
    const std::uint64_t size = archive_->entries()[array.index].size;
    AddUnreadable(array.name, archive_->name(), DescrName(array.header.descr), array.header.shape,
                  size - std::min(size, array.header.size), status);
    return OkStatus();
  }

  Status Finish() override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (std::uint32_t i = 0; i < entries_.size(); ++i) ZT_RETURN_IF_ERROR(Verify(i));
    return OkStatus();
  }
  Status CheckRead(std::span<const ComponentId> components) override {
    ZT_RETURN_IF_ERROR(WithFile(archive_->CheckUnchanged(), archive_->name()));
    for (const ComponentId id : components) ZT_RETURN_IF_ERROR(Verify(id.object));
    return OkStatus();
  }

 private:
  Status Verify(std::uint32_t object) {
    const ArrayReader* const reader = readers_[object].get();
    if (reader == nullptr) return OkStatus();
    return AtTensor(*this, {object, 0}, archive_->Verify(entries_[object], reader->data()));
  }
  Status AddArray(const EntryArray& array, const InputOptions& options) {
    const auto stated = TypeInComment(archive_->entries()[array.index].comment);
    ZT_ASSIGN_OR_RETURN(const ArrayType type,
                        TypeOf(array.header.descr, stated ? stated : options.void_type));
    ZT_ASSIGN_OR_RETURN(auto bytes, archive_->OpenEntry(array.index));
    const std::uint64_t entry_size = *bytes->size();
    ZT_RETURN_IF_ERROR(Add(array.name, std::move(bytes), array.header, type));
    const std::uint64_t needed = array.header.size + readers_.back()->size();
    if (needed != entry_size) {
      return InvalidData("its header declares " + std::to_string(needed) +
                         " bytes, its entry has " + std::to_string(entry_size));
    }
    return OkStatus();
  }

  std::shared_ptr<ZipArchive> archive_;
  std::vector<std::size_t> entries_;  // by object
};

struct Listing {
  std::vector<EntryArray> arrays;
  NameList others;
};

// Recognizes arrays by their first bytes, whatever their names, as numpy does.
StatusOr<Listing> ListArrays(ZipArchive& archive) {
  constexpr std::string_view kSuffix = ".npy";
  Listing listing;
  std::unordered_set<std::string_view, zt::internal::NameHash> names;
  for (std::size_t i = 0; i < archive.entries().size(); ++i) {
    const ZipEntry& entry = archive.entries()[i];
    std::string_view name = entry.name;
    if (name.ends_with('/')) continue;  // a folder
    const bool claims = name.ends_with(kSuffix);
    if (claims) name.remove_suffix(kSuffix.size());
    // The entry is opened again for reading data, as an open deflated entry holds buffers.
    auto bytes = archive.OpenEntry(i);
    StatusOr<Header> header = bytes.ok() ? ReadHeader(**bytes) : bytes.status();
    if (!header.ok()) {
      const StatusCode code = header.status().code();
      if (!claims && code != StatusCode::kUnavailable) {
        listing.others.Add(Quote(entry.name));
        continue;
      }
      // A read error says nothing about the entry, so it is an error of the whole file.
      if (code != StatusCode::kUnimplemented) return WithTensor(header.status(), name);
    }
    if (name.find('\0') != std::string_view::npos) {
      return WithTensor(InvalidData("the name holds a NUL"), name);
    }
    if (!names.insert(name).second) {
      return InvalidData(TensorContext(name) + " is in the archive twice");
    }
    listing.arrays.push_back(
        {i, std::string(name), header.ok() ? *header : Header{}, header.status()});
  }
  return listing;
}

StatusOr<std::unique_ptr<TensorSource>> OpenArrays(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   const InputOptions& options) {
  ZT_ASSIGN_OR_RETURN(std::shared_ptr<ZipArchive> archive, ZipArchive::Open(std::move(bytes)));
  ZT_ASSIGN_OR_RETURN(const Listing listing, ListArrays(*archive));
  if (listing.arrays.empty() && !listing.others.empty()) {
    return Unsupported("the zip archive holds no .npy array, but " + listing.others.ToString());
  }
  ZT_ASSIGN_OR_RETURN(const auto sparse, ScipyFormat(*archive, listing.arrays));
  std::string no_matrix;
  if (sparse && !options.keep_sparse) {
    auto matrix =
        OpenScipy(archive, listing.arrays, *sparse, stem, options.void_type, options.memory_limit);
    if (matrix.status().code() != StatusCode::kFailedPrecondition)
      return WithTensor(std::move(matrix), stem);
    no_matrix = Fact(matrix.status()) + "; the arrays of the archive stay as they are";
  }
  auto source = std::make_unique<NpzSource>(archive, options.memory_limit);
  if (!no_matrix.empty()) source->AddWarning(std::move(no_matrix));
  for (const EntryArray& array : listing.arrays) {
    if (sparse && array.name == "format") continue;  // a string; becomes an attribute below
    ZT_RETURN_IF_ERROR(WithTensor(source->AddEntry(array, options), array.name));
    if (sparse && array.name == "data") {
      Object& data = source->object(source->objects().size() - 1);
      SetMember(data.attributes, kScipyFormat, *sparse);
    }
  }
  if (!listing.others.empty()) {
    source->AddWarning("entries that are not arrays left out: " + listing.others.ToString());
  }
  return source;
}

}  // namespace
}  // namespace npy::internal

StatusOr<std::unique_ptr<TensorSource>> OpenNpz(std::shared_ptr<ByteSource> bytes,
                                                const std::string& stem,
                                                const InputOptions& options) {
  return npy::internal::OpenArrays(std::move(bytes), stem, options);
}

}  // namespace zt
