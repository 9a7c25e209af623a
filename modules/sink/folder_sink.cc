// zt.sink — folders whose files get their names together.
module;

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/permissions.h"
#include "sink/sync.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::Retry;

namespace {

namespace fs = std::filesystem;

// NAME of the hidden folder if the output folder exists: its own name cannot be used, as it may be
// "/". Older versions used the same word, so their leftovers are removed as well.
constexpr std::string_view kInside = "extract";

bool IsDirectory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Names of what is in a folder, sorted.
StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) return WithFile(IoError(error.value(), "cannot list the folder"), folder);
  std::ranges::sort(names);
  return names;
}

// Removes what killed runs for this folder left: beside it if it was new, else in it.
void RemoveLeftoversOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  sink::internal::RemoveLeftovers(parent.empty() ? "." : parent.string(),
                                  fs::path(path).filename().string());
  sink::internal::RemoveLeftovers(path, std::string(kInside));
}

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// For how long a folder that another process has locked is waited for.
constexpr int kLockSeconds = 10;

// Locks the folder. Returns false if another process keeps it locked.
bool Lock(int folder) {
  for (int attempt = 0; attempt < 50 * kLockSeconds; ++attempt) {
    if (Retry([&] { return ::flock(folder, LOCK_EX | LOCK_NB); }) == 0 || errno != EWOULDBLOCK)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace

StatusOr<std::unique_ptr<FolderSink>> FolderSink::Create(std::string path,
                                                         const FolderSinkOptions& options) {
  path = WithoutSlashes(std::move(path));
  std::unique_ptr<FolderSink> sink(new FolderSink);
  sink->path_ = path;
  sink->options_ = options;
  sink->beside_ = !IsDirectory(path);
  std::error_code missing;
  if (sink->beside_ && fs::exists(fs::symlink_status(path, missing)))
    return WithFile(AlreadyExists("it is there and no folder"), path);
  const fs::path parent = fs::path(path).parent_path();
  const std::string holder = !sink->beside_ ? path : parent.empty() ? "." : parent.string();
  const std::string name =
      sink->beside_ ? fs::path(path).filename().string() : std::string(kInside);
  RemoveLeftoversOf(path);
  // What lies in a folder that is there may stay: CheckFiles has looked at what will not.
  const std::string replaced = sink->beside_ ? name : "";
  ZT_RETURN_IF_ERROR(WithFile(sink::internal::CheckRenamable(holder, replaced), path));
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
  RemoveLeftoversOf(WithoutSlashes(path));
  for (const std::string& file : files) {
    const fs::path at = fs::path(path) / file;
    std::error_code error;
    const fs::file_status found = fs::symlink_status(at, error);
    if (error == std::errc::filename_too_long)
      return WithFile(IoError(error.value(), "cannot make a file of this name"), at.string());
    if (!fs::exists(found)) continue;
    if (fs::is_directory(found))
      return WithFile(AlreadyExists("a folder has the name of an output file"), at.string());
    if (fs::is_symlink(found) && !fs::exists(at, error))
      return WithFile(AlreadyExists("it is a link that leads nowhere; remove it, or name another"),
                      at.string());
    if (!overwrite)
      return WithFile(WithAdvice(AlreadyExists("the output exists already"), Advice::kReplace),
                      at.string());
    ZT_RETURN_IF_ERROR(
        WithFile(sink::internal::CheckRenamable(at.parent_path().string(), at.filename().string()),
                 at.string()));
  }
  return OkStatus();
}

Status FolderSink::CheckNew(const std::string& path) {
  RemoveLeftoversOf(WithoutSlashes(path));
  std::error_code error;
  const fs::file_status found = fs::symlink_status(path, error);
  if (error == std::errc::filename_too_long)
    return WithFile(IoError(error.value(), "cannot make a folder of this name"), path);
  if (!fs::exists(found)) return OkStatus();
  bool empty = fs::is_directory(found);
  if (empty) {
    ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(path));
    empty = std::ranges::all_of(names, [](const std::string& name) {
      return sink::internal::IsTemporary(name, std::string(kInside));
    });
  }
  if (empty) return OkStatus();
  return WithFile(AlreadyExists("the output exists already; a folder is never replaced: name "
                                "another, or remove it"),
                  path);
}

Status FolderSink::Reserve(std::uint64_t bytes) const {
  return WithFile(sink::internal::CheckSpace(staging_.fd(), bytes), path_);
}

std::string FolderSink::Staged(const std::string& file) const {
  return staging_.path() + "/" + file;
}

FileSinkOptions FolderSink::StagedOptions(const std::string& file) const {
  return {.sync = false, .new_folder = true, .shown_as = (fs::path(path_) / file).string()};
}

Status FolderSink::Finish() {
  if (options_.sync) {
    const int error = sink_io::SyncError([&] { return ::syncfs(staging_.fd()); });
    if (error != 0) return WithFile(IoError(error, "cannot sync the file system it is on"), path_);
  }
  // Lasts until the names are durable. Waiting for a lock is no part of it: a signal may end that.
  std::optional<Publication> publication;
  if (beside_) {
    publication.emplace();
    ZT_RETURN_IF_ERROR(Appear());
  }
  if (!beside_) {  // the folder was there, or another run has made it since
    publication.reset();
    ZT_RETURN_IF_ERROR(LockFolder());
    publication.emplace();
    ZT_RETURN_IF_ERROR(MoveFiles());
  }
  if (!options_.sync) return OkStatus();
  const int error = sink_io::SyncError([&] { return ::fsync(holder_); });
  if (error == 0) return OkStatus();
  return WithFile(
      IoError(error, "it is complete and in place, but a crash may undo that: cannot sync"), path_);
}

// Renames the folder. rename(2) replaces an empty folder and nothing else; where it is another,
// beside_ becomes false and nothing else is done.
Status FolderSink::Appear() {
  {
    // Has the mode that a new folder gets here: umask(2) cannot be read without being set.
    sink::internal::Temporary probe;
    struct stat made;
    int failed = probe.Make(staging_.path(), "mode", true, 0777);
    if (failed == 0 && ::fstat(probe.fd(), &made) != 0) failed = errno;
    if (failed != 0) return WithFile(IoError(failed, "cannot learn a new folder's mode"), path_);
    // Fails on file systems without such permissions; the folder then keeps its own.
    (void)::fchmod(staging_.fd(), made.st_mode & 07777);
  }
  const int error = sink::internal::Rename(staging_.path(), path_, true);
  if (error == 0) {
    staging_.Release();
    return OkStatus();
  }
  if (error == ENOTEMPTY || error == EEXIST) {
    beside_ = false;
    ::close(holder_);
    holder_ = sink::internal::OpenFolder(path_);
    return holder_ < 0 ? WithFile(IoError(errno, "cannot open the folder"), path_) : OkStatus();
  }
  return WithFile(IoError(error, "cannot move the folder into place"), path_);
}

// One run after another, so that of two for the same files one is refused. Not all file systems
// have locks.
Status FolderSink::LockFolder() const {
  if (Lock(holder_)) return OkStatus();
  return WithFile(IoError("another process has kept the folder locked (flock) for " +
                          std::to_string(kLockSeconds) + " seconds"),
                  path_);
}

// Moves files, and folders of them, into the folder.
Status FolderSink::MoveFiles() {
  ZT_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(staging_.path()));
  Status status = options_.whole ? CheckNew(path_) : CheckFiles(path_, names, options_.overwrite);
  for (std::size_t i = 0; i < names.size() && status.ok(); ++i) {
    const std::string from = Staged(names[i]), to = path_ + "/" + names[i];
    struct stat older;
    if (options_.overwrite && ::lstat(to.c_str(), &older) == 0 && S_ISREG(older.st_mode)) {
      const int fd = Retry([&] { return ::open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); });
      if (fd >= 0) sink_io::CopyPermissions(fd, older);
      if (fd >= 0) ::close(fd);
    }
    const int error = sink::internal::Rename(from, to, options_.overwrite);
    if (error == 0) continue;
    status = WithFile(IoError(error, "cannot move the file into place; " + std::to_string(i) +
                                         " of " + std::to_string(names.size()) + " are there"),
                      to);
  }
  ::flock(holder_, LOCK_UN);
  if (status.ok()) staging_.Remove();
  return status;
}

}  // namespace zt
