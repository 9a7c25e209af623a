// zt.convert.files — the sources: files of a folder, and a source without some of its files.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.convert.files;

import zt.std;
import zt.core;
import zt.format;
import zt.source;

namespace zt {
namespace {

using internal::Mutex;
using internal::MutexLock;

class FilesSource final : public TensorSource {
 public:
  FilesSource(std::string folder, const std::vector<FolderEntry>& files, Value::Map attributes,
              const InputOptions& options)
      : folder_(std::move(folder)), options_(options) {
    attributes_ = std::move(attributes);
    objects_.reserve(files.size());
    for (const FolderEntry& file : files) {
      objects_.push_back(FileObject(file.path, file.bytes, file.executable));
      paths_.push_back((std::filesystem::path(folder_) / file.path).string());
      names_.push_back(file.path);
    }
    file_ = folder_;
  }

  const std::string& file(ComponentId id) const override {
    return id.object < paths_.size() ? paths_[id.object] : file_;
  }
  std::string_view format() const override { return "files"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, Open(id.object));
    return bytes->ReadAt(offset, out);
  }
  Status Finish() override {
    const MutexLock lock(mutex_);
    for (const auto& [object, bytes] : read_) {
      ZT_RETURN_IF_ERROR(WithFile(bytes->CheckUnchanged(), paths_[object]));
    }
    return OkStatus();
  }

 private:
  StatusOr<std::shared_ptr<ByteSource>> Open(std::uint32_t object) {
    {
      const MutexLock lock(mutex_);
      if (const auto found = read_.find(object); found != read_.end()) return found->second;
    }
    ZT_RETURN_IF_ERROR(CheckStaysInside(folder_, names_[object], options_));
    ZT_ASSIGN_OR_RETURN(auto bytes, options_.store->OpenForEachRead(paths_[object]));
    const std::uint64_t size = bytes->size().value_or(0);
    if (size != objects_[object].shape[0]) {
      return InvalidData("the file has " + std::to_string(size) + " bytes, it had " +
                         std::to_string(objects_[object].shape[0]) + " when the run began");
    }
    const MutexLock lock(mutex_);
    return read_.emplace(object, std::move(bytes)).first->second;
  }

  const std::string folder_;
  const InputOptions options_;
  std::vector<std::string> names_, paths_;  // relative to the folder, and with it
  Mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<ByteSource>> read_ ZT_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TensorSource> OpenFiles(const std::string& folder,
                                        const std::vector<FolderEntry>& files,
                                        Value::Map attributes, const InputOptions& options) {
  return std::make_unique<FilesSource>(folder, files, std::move(attributes), options);
}

StatusOr<std::unique_ptr<TensorSource>> SelectFiles(
    std::unique_ptr<TensorSource> source,
    const std::function<bool(const std::string& path)>& keep) {
  ZT_ASSIGN_OR_RETURN(const std::vector<FileEntry> files, ListFiles(source->objects()));
  std::vector<bool> kept;  // keep is asked once for each file
  bool changed = false;
  for (const FileEntry& file : files) {
    kept.push_back(keep(file.path));
    changed = changed || !kept.back();
  }
  if (!changed) return source;
  auto selected = std::make_unique<RegroupedSource>(std::move(source));
  const std::vector<Object>& objects = selected->inner().objects();
  auto next = files.begin();
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    if (next == files.end() || next->object != i) {
      selected->Keep(i);
      continue;
    }
    if (kept[static_cast<std::size_t>(next++ - files.begin())]) selected->Keep(i);
  }
  return selected;
}

std::unique_ptr<TensorSource> PrefixNames(std::unique_ptr<TensorSource> source,
                                          const std::string& prefix) {
  auto prefixed = std::make_unique<RegroupedSource>(std::move(source));
  const std::vector<Object>& objects = prefixed->inner().objects();
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    Object object = objects[i];
    object.name = prefix + object.name;
    prefixed->Keep(i, std::move(object));
  }
  return prefixed;
}

}  // namespace zt
