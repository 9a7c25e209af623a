// zt.cli:folder — names that are safe in any folder, and files that appear together.
module;

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/name_table.h"
#include "core/retry.h"
#include "core/status_macros.h"
#include "sink/sync.h"

module zt.cli;

import zt.std;
import :folder;
import :support;
import zt;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

// Leaves room for a suffix and for what a temporary file's name adds, below the 255 bytes of most file systems.
constexpr std::size_t kMaxStem = 200;

bool IsCapital(char c) { return c >= 'A' && c <= 'Z'; }

std::string Folded(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (IsCapital(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string Escape(std::string_view name, bool capitals) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const auto code = static_cast<unsigned char>(c);
    const bool edge = i == 0 || i + 1 == name.size();
    if (code < 0x20 || code == 0x7f ||
        std::string_view("%/\\<>:\"|?*").find(c) != std::string_view::npos ||
        (edge && (c == '.' || c == ' ')) || (capitals && IsCapital(c))) {
      out += '%';
      out += kHex[code >> 4];
      out += kHex[code & 15];
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

StatusOr<std::vector<std::string>> FileNames(std::span<const std::string_view> tensors) {
  std::unordered_map<std::string, std::size_t, zt::internal::NameHash> folded;
  for (const std::string_view name : tensors) ++folded[Folded(name)];
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const std::string_view name : tensors) {
    names.push_back(Escape(name, folded[Folded(name)] > 1));
    if (names.back().size() > kMaxStem) {
      return WithTensor(
          Unsupported("as the name of a file it would have " + std::to_string(names.back().size()) +
                      " bytes, the limit is " + std::to_string(kMaxStem) + "; write to .npz"),
          name);
    }
  }
  return names;
}

OutputFolder::~OutputFolder() {
  if (folder_ >= 0) ::close(folder_);
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
  if (made_) ::rmdir(path_.c_str());  // unless there is something in it
}

Status OutputFolder::Check(std::span<const std::string> files) const {
  std::error_code error;
  if (force_ || !fs::is_directory(path_, error)) return OkStatus();
  for (const std::string& file : files) {
    const std::string path = (fs::path(path_) / file).string();
    if (fs::exists(fs::symlink_status(path, error))) {
      return WithFile(AlreadyExists("the output exists already; use -f to replace it"), path);
    }
  }
  return OkStatus();
}

Status OutputFolder::Create() {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (::mkdir(path_.c_str(), 0777) == 0) {
    made_ = true;
  } else if (errno == ENOENT) {
    return IoError("the folder it would lie in is missing; make that first");
  } else if (errno != EEXIST) {
    return IoError(errno, "cannot make the folder");
  }
  const std::string staging = path_ + "/.extract." + std::to_string(::getpid()) + ".ztstream-tmp";
  if (::mkdir(staging.c_str(), 0777) != 0) {
    return IoError(errno, "cannot make a folder in it");
  }
  staging_ = staging;
  folder_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) return IoError(errno, "cannot open the folder");
  return OkStatus();
}

// Gives a staged file its name. 0, or errno.
int OutputFolder::Move(Moved& file) {
  const auto rename = [&](unsigned flags) {
    return zt::internal::ErrorOf([&] {
      return ::renameat2(AT_FDCWD, file.staged.c_str(), AT_FDCWD, file.path.c_str(), flags);
    });
  };
  struct stat older;
  file.how = Moved::How::kCreated;
  if (::lstat(file.path.c_str(), &older) != 0) return rename(0);
  file.how = Moved::How::kExchanged;
  int error = rename(RENAME_EXCHANGE);
  if (error == EINVAL || error == ENOSYS) {  // the file system cannot
    file.how = Moved::How::kReplaced;
    return rename(0);
  }
  if (error != 0) return error;
  if (::lstat(file.staged.c_str(), &older) != 0 || !S_ISDIR(older.st_mode)) return 0;
  error = rename(RENAME_EXCHANGE);  // a folder keeps its name
  return error == 0 ? EISDIR : error;
}

void OutputFolder::Undo(std::span<const Moved> files) {
  for (const Moved& file : files | std::views::reverse) {
    if (file.how == Moved::How::kCreated) ::unlink(file.path.c_str());
    if (file.how == Moved::How::kExchanged)
      (void)::renameat2(AT_FDCWD, file.staged.c_str(), AT_FDCWD, file.path.c_str(),
                        RENAME_EXCHANGE);
  }
}

Status OutputFolder::Publish(std::span<const std::string> files, bool sync) {
  ZT_RETURN_IF_ERROR(Check(files));
  const Publishing publishing;
  if (sync) {
    const int error = sink_io::SyncError([&] { return ::syncfs(folder_); });
    if (error != 0) return WithFile(IoError(error, "cannot sync the file system it is on"), path_);
  }
  if (Interrupted()) return Cancelled("interrupted");
  std::vector<Moved> moved;
  moved.reserve(files.size());
  Status status = OkStatus();
  for (const std::string& name : files) {
    Moved file{.staged = Staged(name), .path = path_ + "/" + name};
    if (const int error = Move(file); error != 0) {
      status = WithFile(IoError(error, "cannot move the file into place"), file.path);
      break;
    }
    moved.push_back(std::move(file));
  }
  if (status.ok() && sync) {
    const int error = sink_io::SyncError([&] { return ::fsync(folder_); });
    if (error != 0) status = WithFile(IoError(error, "cannot sync the folder"), path_);
  }
  if (!status.ok()) {
    Undo(moved);
  } else {
    made_ = false;
  }
  return status;
}

}  // namespace zt::cli::internal
