// zt.source — tests and lists names of files and folders, paths or URLs.
module;

#include "core/status_macros.h"

module zt.source;

import zt.std;
import zt.core;

namespace zt {
namespace {

namespace fs = std::filesystem;

UrlFiles* g_files = nullptr;

// The answer for a URL; false if none can be had.
bool Answer(const std::string& url, StatusOr<bool> (UrlFiles::*question)(const std::string&)) {
  if (g_files == nullptr) return false;
  const StatusOr<bool> answer = (g_files->*question)(url);
  return answer.ok() && *answer;
}

Status NoUrls() { return Unsupported("URLs are not read here; download the file"); }

}  // namespace

void SetUrlFiles(UrlFiles* files) { g_files = files; }

StatusOr<std::shared_ptr<ByteSource>> source::internal::OpenUrl(const std::string& url) {
  if (g_files == nullptr) return NoUrls();
  return g_files->Open(url);
}

bool IsFolder(const std::string& path) {
  if (IsUrl(path)) return Answer(path, &UrlFiles::IsFolder);
  std::error_code error;
  return fs::is_directory(path, error);
}

bool Exists(const std::string& path) {
  if (IsUrl(path)) return Answer(path, &UrlFiles::Exists);
  std::error_code error;
  return fs::exists(path, error);
}

bool IsRegularFile(const std::string& path) {
  if (IsUrl(path)) return Answer(path, &UrlFiles::Exists);
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::optional<std::uint64_t> SizeOfFile(const std::string& path) {
  if (IsUrl(path)) {
    const auto file = OpenFile(path);
    return file.ok() ? (*file)->size() : std::nullopt;
  }
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  return bytes;
}

StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  if (IsUrl(path)) {
    if (g_files == nullptr) return NoUrls();
    return g_files->List(path);
  }
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return IoError(error.value(), "cannot list the folder");
  return names;
}

StatusOr<std::vector<std::string>> ListFolders(const std::string& path) {
  std::vector<std::string> names;
  if (IsUrl(path)) {
    ZT_ASSIGN_OR_RETURN(const std::vector<ListedFile> files, ListBelow(path));
    for (const ListedFile& file : files) {
      std::string name = file.path.substr(0, file.path.find('/'));
      if (name.size() < file.path.size() && !name.empty()) names.push_back(std::move(name));
    }
  } else {
    ZT_ASSIGN_OR_RETURN(names, ListFolder(path));
    std::erase_if(names, [&](const std::string& name) {
      std::error_code error;
      return !fs::is_directory(fs::symlink_status(fs::path(path) / name, error));
    });
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

StatusOr<std::vector<ListedFile>> ListBelow(const std::string& url) {
  if (g_files == nullptr) return NoUrls();
  ZT_ASSIGN_OR_RETURN(std::vector<ListedFile> files, g_files->ListBelow(url));
  std::ranges::sort(files);
  return files;
}

}  // namespace zt
