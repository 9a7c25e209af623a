// zt.convert.npy — .npy files, alone and by the folder.
module;

#include "core/status_macros.h"

module zt.convert.npy;

import zt.std;
import :array;
import :arrays;
import :header;
import zt.core;
import zt.source;

namespace zt {
namespace npy::internal {

Status ArraySource::Add(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
                        const ArrayType& type) {
  ZT_ASSIGN_OR_RETURN(Object object, DenseObject(std::move(name), header.shape, type.element));
  ZT_RETURN_IF_ERROR(ValidateObject(object));
  ZT_ASSIGN_OR_RETURN(auto reader,
                      ArrayReader::Make(std::move(bytes), header, type, memory_limit_, bands_));
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
  unreadable_.emplace(index, Unreadable{std::string(file), std::move(why)});
}

Status ArraySource::CheckReadable(std::uint32_t object) const {
  const auto found = unreadable_.find(object);
  return found == unreadable_.end() ? OkStatus() : found->second.why;
}

const std::string& ArraySource::file(ComponentId id) const {
  if (id.object >= readers_.size()) return file_;
  const auto& reader = readers_[id.object];
  return reader != nullptr ? reader->bytes().name() : unreadable_.at(id.object).file;
}

Status ArraySource::Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) {
  ZT_RETURN_IF_ERROR(CheckReadable(id.object));
  return readers_[id.object]->Read(offset, out);
}

std::string ListNames(std::string_view what, std::span<const std::string> names) {
  constexpr std::size_t kMost = 20;
  std::string line(what);
  for (const std::string& name : names.first(std::min(names.size(), kMost))) {
    line += " " + Quote(name);
  }
  if (names.size() > kMost) line += " and " + std::to_string(names.size() - kMost) + " more";
  return line;
}

namespace {

Status Trailing(std::uint64_t end) {
  return InvalidData("bytes follow the array, which ends at byte " + std::to_string(end) +
                     "; files of several arrays are not supported");
}

// Arrays of which each is a file of its own.
class NpySource final : public ArraySource {
 public:
  explicit NpySource(std::uint64_t memory_limit) : ArraySource("npy", memory_limit) {}

  // A file of a folder: what is well formed but cannot be served is listed, so that the others can be had without it.
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
  // Bytes after the array of a pipe can only be found here: its size is not known when it is opened.
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

// Keeps the files used last open, so that a folder may hold more than a process may open.
class OpenFiles {
 public:
  StatusOr<std::shared_ptr<ByteSource>> Get(const std::string& path) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(files_.begin(), files_.end(),
                                    [&](const auto& file) { return file->name() == path; });
    if (found != files_.end()) {
      files_.splice(files_.begin(), files_, found);
    } else {
      ZT_ASSIGN_OR_RETURN(auto file, OpenFile(path));
      files_.push_front(std::move(file));
      if (files_.size() > kMaxOpen) files_.pop_back();  // who reads it holds it until done
    }
    return files_.front();
  }

 private:
  static constexpr std::size_t kMaxOpen = 64;
  std::mutex mutex_;
  std::list<std::shared_ptr<ByteSource>> files_;
};

// A file that is open only while it is used.
class FolderFile final : public ByteSource {
 public:
  FolderFile(std::shared_ptr<OpenFiles> files, std::string path, std::uint64_t size)
      : files_(std::move(files)), path_(std::move(path)), size_(size) {}
  const std::string& name() const override { return path_; }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const auto file, files_->Get(path_));
    return file->ReadAt(offset, out);
  }
  Status CheckUnchanged() override {
    ZT_ASSIGN_OR_RETURN(const auto file, files_->Get(path_));
    return file->size() == size_ ? file->CheckUnchanged()
                                 : InvalidData("its size has changed since it was opened");
  }
  Status ReadScattered(std::uint64_t offset, std::span<const std::span<std::byte>> parts) override {
    ZT_ASSIGN_OR_RETURN(const auto file, files_->Get(path_));
    return file->ReadScattered(offset, parts);
  }

 private:
  std::shared_ptr<OpenFiles> files_;
  std::string path_;
  std::uint64_t size_;
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
  std::vector<std::string> others;
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (!IsUrl(path) && IsFolder(file.string())) continue;
    if (file.extension() == ".npy") {
      arrays.push_back(file);
    } else {
      others.push_back(name);
    }
  }
  if (arrays.empty()) return InvalidData("there is no .npy file in it");
  std::sort(arrays.begin(), arrays.end());
  std::sort(others.begin(), others.end());

  auto source = std::make_unique<npy::internal::NpySource>(options.memory_limit);
  auto files = std::make_shared<npy::internal::OpenFiles>();
  for (const std::filesystem::path& file : arrays) {
    const std::string name = file.stem().string();
    const std::string leaf = file.filename().string();
    ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(path, leaf, options), leaf));
    const auto opened = files->Get(file.string());
    if (!opened.ok()) return Annotate(WithTensor(opened.status(), name), leaf);
    auto bytes = std::make_shared<npy::internal::FolderFile>(files, file.string(),
                                                             (*opened)->size().value_or(0));
    ZT_RETURN_IF_ERROR(
        Annotate(WithTensor(source->AddFileOfFolder(name, bytes, options), name), leaf));
  }
  if (!others.empty()) {
    source->AddWarning(npy::internal::ListNames("files left out:", others));
  }
  return source;
}

}  // namespace zt
