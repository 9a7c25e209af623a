// zt.cli:folder — names that are safe in any folder, and files that appear together.
module;

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.cli;

import :folder;
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
  std::unordered_map<std::string, std::size_t> folded;
  for (const std::string_view name : tensors) ++folded[Folded(name)];
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const std::string_view name : tensors) {
    names.push_back(Escape(name, folded[Folded(name)] > 1));
    if (names.back().size() > kMaxStem) {
      return Annotate(
          Unsupported("as the name of a file it would have " + std::to_string(names.back().size()) +
                      " bytes, the limit is " + std::to_string(kMaxStem) + "; write to .npz"),
          TensorContext(name));
    }
  }
  return names;
}

OutputFolder::~OutputFolder() {
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
      return Annotate(AlreadyExists("the output exists already; use -f to replace it"), path);
    }
  }
  return OkStatus();
}

Status OutputFolder::Create() {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  if (::mkdir(path_.c_str(), 0777) == 0) {
    made_ = true;
  } else if (errno == ENOENT) {
    return Annotate(IoError("the folder it would lie in is missing; make that first"), path_);
  } else if (errno != EEXIST) {
    return Annotate(IoError(errno, "cannot make the folder"), path_);
  }
  const std::string staging = path_ + "/.extract." + std::to_string(::getpid()) + ".ztstream-tmp";
  if (::mkdir(staging.c_str(), 0777) != 0) {
    return Annotate(IoError(errno, "cannot make a folder in it"), path_);
  }
  staging_ = staging;
  return OkStatus();
}

Status OutputFolder::Publish(std::span<const std::string> files, bool sync) {
  ZT_RETURN_IF_ERROR(Check(files));
  const int folder = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Annotate(IoError(errno, "cannot open the folder"), path_);
  if (sync) ::syncfs(folder);
  std::vector<std::string> added;
  Status status = OkStatus();
  for (const std::string& file : files) {
    std::error_code error;
    const std::string path = path_ + "/" + file;
    const bool replaces = fs::exists(fs::symlink_status(path, error));
    fs::rename(Staged(file), path, error);
    if (error) {
      status = Annotate(IoError(error.value(), "cannot move the file into place"), path);
      break;
    }
    if (!replaces) added.push_back(path);
  }
  if (!status.ok()) {
    for (const std::string& path : added) ::unlink(path.c_str());
  } else {
    made_ = false;
    if (sync) ::fsync(folder);
  }
  ::close(folder);
  return status;
}

}  // namespace zt::cli::internal
