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

}  // namespace zt
