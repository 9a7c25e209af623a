// zt.sink — folders whose files get their names together.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/sync.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::Retry;

namespace {

namespace fs = std::filesystem;

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

}  // namespace

StatusOr<std::unique_ptr<FolderSink>> FolderSink::Create(std::string path,
                                                         const FolderSinkOptions& options) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::unique_ptr<FolderSink> sink(new FolderSink);
  sink->path_ = path;
  sink->options_ = options;
  sink->beside_ = options.whole || !IsDirectory(path);
  const fs::path parent = fs::path(path).parent_path();
  // In a folder that is there, which may be another file system's root, the name is that of older
  // versions.
  const std::string holder = !sink->beside_ ? path : parent.empty() ? "." : parent.string();
  const std::string name = sink->beside_ ? fs::path(path).filename().string() : "extract";
  sink::internal::RemoveLeftovers(holder, name);
  const int error = sink->staging_.Make(holder, name, true, 0700);
  if (error == ENOENT) {
    return WithFile(IoError("the folder it would lie in is missing; make that first"), path);
  }
  if (error != 0) return WithFile(IoError(error, "cannot make a folder in " + holder), path);
  sink->holder_ = sink::internal::OpenFolder(holder);
  if (sink->holder_ < 0) return WithFile(IoError(errno, "cannot open " + holder), path);
  return sink;
}

FolderSink::~FolderSink() {
  if (holder_ >= 0) ::close(holder_);
}

Status FolderSink::CheckFiles(const std::string& path, std::span<const std::string> files,
                              bool overwrite) {
  for (const std::string& file : files) {
    const fs::path at = fs::path(path) / file;
    std::error_code error;
    const fs::file_status found = fs::symlink_status(at, error);
    if (!fs::exists(found)) continue;
    if (fs::is_directory(found))
      return WithFile(AlreadyExists("a folder has the name of an output file"), at.string());
    if (!overwrite)
      return WithFile(AlreadyExists("the output exists already; use -f to replace it"),
                      at.string());
  }
  return OkStatus();
}

Status FolderSink::CheckNew(const std::string& path) {
  std::error_code error;
  const fs::file_status found = fs::symlink_status(path, error);
  if (!fs::exists(found) || (fs::is_directory(found) && fs::is_empty(path, error)))
    return OkStatus();
  return WithFile(AlreadyExists("the output exists already; a folder is never replaced: name "
                                "another, or remove it"),
                  path);
}

Status FolderSink::Reserve(std::uint64_t bytes) const {
  return WithFile(sink::internal::CheckSpace(staging_.fd(), bytes), path_);
}

std::string FolderSink::Staged(const std::string& file) {
  files_.push_back(file);
  return staging_.path() + "/" + file;
}

int FolderSink::descriptor() const { return staging_.fd(); }

Status FolderSink::Finish() {
  if (options_.sync) {
    const int error = sink_io::SyncError([&] { return ::syncfs(staging_.fd()); });
    if (error != 0) return WithFile(IoError(error, "cannot sync the file system it is on"), path_);
  }
  const Publication publication;
  ZT_RETURN_IF_ERROR(beside_ ? Appear() : MoveFiles());
  staging_.Remove();  // empty by now, or gone
  if (!options_.sync) return OkStatus();
  const int error = sink_io::SyncError([&] { return ::fsync(holder_); });
  if (error == 0) return OkStatus();
  return WithFile(
      IoError(error, "it is complete and in place, but a crash may undo that: cannot sync"), path_);
}

// Renames the folder. rename(2) replaces an empty folder and nothing else.
Status FolderSink::Appear() {
  if (options_.whole) ZT_RETURN_IF_ERROR(CheckNew(path_));
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(staging_.fd(), 0777 & ~mask) != 0)
    return WithFile(IoError(errno, "cannot set the folder's mode"), path_);
  const int error = sink::internal::Rename(staging_.path(), path_, true);
  if (error == 0) return OkStatus();
  if (options_.whole) ZT_RETURN_IF_ERROR(CheckNew(path_));
  // Another run has made the folder since.
  if ((error == ENOTEMPTY || error == EEXIST) && !options_.whole) return MoveFiles();
  return WithFile(IoError(error, "cannot move the folder into place"), path_);
}

Status FolderSink::MoveFiles() {
  const int into = sink::internal::OpenFolder(path_);
  if (into < 0) return WithFile(IoError(errno, "cannot open the folder"), path_);
  // One run after another, so that of two for the same files one is refused. Not all file systems
  // have locks. Closing unlocks.
  (void)Retry([&] { return ::flock(into, LOCK_EX); });
  Status status = CheckFiles(path_, files_, options_.overwrite);
  for (std::size_t i = 0; i < files_.size() && status.ok(); ++i) {
    const std::string to = path_ + "/" + files_[i];
    const int error =
        sink::internal::Rename(staging_.path() + "/" + files_[i], to, options_.overwrite);
    if (error == 0) continue;
    status = WithFile(IoError(error, "cannot move the file into place; " + std::to_string(i) +
                                         " of " + std::to_string(files_.size()) + " are there"),
                      to);
  }
  if (status.ok() && options_.sync && beside_) {
    const int error = sink_io::SyncError([&] { return ::fsync(into); });
    if (error != 0) status = WithFile(IoError(error, "cannot sync the folder"), path_);
  }
  ::close(into);
  return status;
}

}  // namespace zt
