// zt.sink — what is not yet complete: hidden names, locks, leftovers of killed runs, and
// publication.
module;

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/retry.h"
#include "core/thread_annotations.h"

module zt.sink;

import zt.std;

namespace zt {

using internal::ErrorOf;
using internal::Mutex;
using internal::MutexLock;
using internal::Retry;

namespace {

constexpr std::string_view kSuffix = ".ztstream-tmp";

// Unfinished outputs, and outputs that are being published.
struct Unfinished {
  Mutex mutex;
  std::set<std::string> names ZT_GUARDED_BY(mutex);  // of temporary files and folders
  unsigned publishing ZT_GUARDED_BY(mutex) = 0;
  std::uint64_t begun ZT_GUARDED_BY(mutex) = 0;  // publications, ended ones too
};
Unfinished& Live() {
  static Unfinished* const live = new Unfinished;  // outlives every sink
  return *live;
}

// ".NAME.", the prefix of hidden names. Cut if the name is too long for the file system; then
// leftovers of names with the same beginning match too.
std::string PrefixOf(const std::string& name) { return "." + name.substr(0, 200) + "."; }

void RemoveAll(const std::string& path) {
  std::error_code error;
  // Another thread may still make files in the folder.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::filesystem::remove_all(path, error);
    if (!error) return;
  }
}

// Opens and locks a temporary file or folder. Returns a descriptor, or -1 if it is gone or another
// run holds it.
int OpenLocked(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// The hidden names of the folder that was listed last. A conversion opens thousands of sinks in one
// folder, which grows: it is listed again after a second, or as many calls as an eighth of its files.
class HiddenNames {
 public:
  static HiddenNames& Instance() {
    static HiddenNames* const names = new HiddenNames;
    return *names;
  }

  std::vector<std::string> In(const std::string& folder) {
    struct stat info;
    if (::stat(folder.c_str(), &info) != 0) return {};
    const MutexLock lock(mutex_);
    const auto key = std::pair(info.st_dev, info.st_ino);
    const bool old = std::chrono::steady_clock::now() - when_ > std::chrono::seconds(1);
    if (key != listed_ || old || ++calls_ > files_ / 8) List(folder, key);
    return names_;
  }

 private:
  void List(const std::string& folder, std::pair<dev_t, ino_t> key) ZT_REQUIRES(mutex_) {
    listed_ = key;
    when_ = std::chrono::steady_clock::now();
    calls_ = files_ = 0;
    names_.clear();
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      ++files_;
      std::string name = it->path().filename().string();
      if (name.starts_with('.') && name.ends_with(kSuffix)) names_.push_back(std::move(name));
    }
  }

  Mutex mutex_;
  std::pair<dev_t, ino_t> listed_ ZT_GUARDED_BY(mutex_) = {};
  std::chrono::steady_clock::time_point when_ ZT_GUARDED_BY(mutex_) = {};
  std::size_t files_ ZT_GUARDED_BY(mutex_) = 0, calls_ ZT_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> names_ ZT_GUARDED_BY(mutex_);
};

}  // namespace

Publication::Publication() {
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  ++live.publishing;
  ++live.begun;
}

Publication::~Publication() {
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  --live.publishing;
}

std::uint64_t Publication::Begun() {
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  return live.begun;
}

bool AbandonTemporaryFiles(std::uint64_t begun) {
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  if (live.publishing > 0 || live.begun != begun) return false;
  for (const std::string& name : live.names) RemoveAll(name);
  return true;
}

namespace sink::internal {

bool IsTemporary(std::string_view found, const std::string& name) {
  const std::string prefix = PrefixOf(name);
  if (!found.starts_with(prefix) || !found.ends_with(kSuffix)) return false;
  found.remove_prefix(prefix.size());
  found.remove_suffix(std::min(found.size(), kSuffix.size()));
  return !found.empty() && found.find_first_not_of("0123456789-") == found.npos;
}

Status CheckRenamable(const std::string& folder, const std::string& name) {
  constexpr unsigned kWanted = STATX_MODE | STATX_UID;
  constexpr std::uint64_t kFixed = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND;
  const std::string path = folder + "/" + name;
  struct statx around, file;
  if (::statx(AT_FDCWD, folder.c_str(), 0, kWanted, &around) != 0) return OkStatus();
  if ((around.stx_attributes & kFixed) != 0)
    return IoError("the folder " + folder + " is immutable or append-only (chattr)");
  if (name.empty()) return OkStatus();
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, kWanted, &file) != 0) return OkStatus();
  if ((file.stx_attributes & kFixed) != 0)
    return IoError("it cannot be replaced: it is immutable or append-only (chattr)");
  if ((file.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
    return IoError("it cannot be replaced: something is mounted on it");
  const uid_t user = ::geteuid();
  if ((around.stx_mode & S_ISVTX) != 0 && user != 0 && around.stx_uid != user &&
      file.stx_uid != user)
    return IoError("it cannot be replaced: it is another user's, and the folder is sticky");
  return OkStatus();
}

void RemoveLeftovers(const std::string& folder, const std::string& name) {
  for (const std::string& found : HiddenNames::Instance().In(folder)) {
    if (!IsTemporary(found, name)) continue;
    const std::string path = folder + "/" + found;
    const int fd = OpenLocked(path);
    if (fd < 0) continue;
    RemoveAll(path);
    ::close(fd);
  }
}

int Temporary::Make(const std::string& folder, const std::string& name, bool is_folder,
                    unsigned mode) {
  // No name is used twice, so that no sink removes the file of another.
  static std::atomic<unsigned> next = 0;
  const std::string start = folder + "/" + PrefixOf(name) + std::to_string(::getpid()) + "-";
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string path = start + std::to_string(next++) + std::string(kSuffix);
    int error = is_folder ? MakeFolder(path, mode) : MakeFile(path, mode);
    if (error == 0) error = Lock();
    if (error == 0) return 0;
    Forget();
    if (error != EEXIST) return error;
  }
  return EEXIST;
}

int Temporary::MakeFile(const std::string& path, unsigned mode) {
  fd_ = Retry([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode); });
  if (fd_ < 0) return errno;
  Remember(path);
  return 0;
}

int Temporary::MakeFolder(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) != 0) return errno;
  Remember(path);
  fd_ =
      Retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  if (fd_ >= 0) return 0;
  const int error = errno == ENOENT ? EEXIST : errno;
  ::rmdir(path.c_str());
  return error;
}

// Between creation and lock, another run may take it for a leftover, lock it and remove it: EEXIST
// then makes the caller try again. On a file system without locks no run removes leftovers.
int Temporary::Lock() {
  const int locked = Retry([&] { return ::flock(fd_, LOCK_EX | LOCK_NB); });
  struct stat info;
  if ((locked == 0 || errno != EWOULDBLOCK) && (::fstat(fd_, &info) != 0 || info.st_nlink > 0)) {
    return 0;
  }
  ::close(std::exchange(fd_, -1));
  return EEXIST;
}

// Called as soon as it exists: a lock may take its time, and a signal may end the program meanwhile.
void Temporary::Remember(const std::string& path) {
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  live.names.insert(path);
  path_ = path;
}

void Temporary::Forget() {
  if (path_.empty()) return;
  Unfinished& live = Live();
  const MutexLock lock(live.mutex);
  live.names.erase(path_);
  path_.clear();
}

void Temporary::Remove() {
  if (!path_.empty()) RemoveAll(path_);
  Release();
}

void Temporary::Release() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  Forget();
}

int Rename(const std::string& from, const std::string& to, bool overwrite) {
  const auto rename = [&](unsigned flags) {
    return ErrorOf(
        [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags); });
  };
  if (overwrite) return rename(0);
  int error = rename(RENAME_NOREPLACE);
  if (error != EINVAL && error != ENOSYS) return error;
  // The file system (NFS) or the kernel cannot refuse to replace: a link does.
  error = ErrorOf([&] { return ::link(from.c_str(), to.c_str()); });
  if (error == 0) ::unlink(from.c_str());
  if (error == 0 || error == EEXIST) return error;
  // It has no hard links either (exFAT, FUSE). Two runs that publish in the same moment can replace
  // each other's output.
  struct stat older;
  return ::lstat(to.c_str(), &older) == 0 ? EEXIST : rename(0);
}

Status CheckSpace(int fd, std::uint64_t bytes) {
  struct statvfs info;
  if (::fstatvfs(fd, &info) != 0) return OkStatus();
  const std::uint64_t blocks = ::geteuid() == 0 ? info.f_bfree : info.f_bavail;
  const std::uint64_t free = blocks * info.f_frsize;
  if (bytes <= free) return OkStatus();
  return IoError(
      ENOSPC, std::to_string(bytes) + " bytes are needed, " + std::to_string(free) + " are free");
}

int OpenFolder(const std::string& path) {
  return Retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
}

}  // namespace sink::internal
}  // namespace zt
