// zt.source:store — the files of this machine.
module;

#include "core/status_macros.h"

module zt.source;

import zt.std;
import zt.core;
import zt.sink;

namespace zt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = ".ztstream-journal";

fs::path JournalOfFile(const fs::path& file) {
  return file.parent_path() / ("." + file.filename().string() + std::string(kJournal));
}

// Fails for a file that is changed at the moment, or where that was interrupted. It is looked for
// beside a link, and beside what that leads to.
Status CheckNoJournal(const std::string& name) {
  std::error_code error;
  fs::path path(name);
  for (;;) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    const bool own = fs::exists(JournalOfFile(path), error);
    if (own || fs::exists(folder / kJournal, error))
      return IoError("a delta is applied to " + (own ? path : folder).string() +
                     ", or that was interrupted; 'ztstream apply' to it goes on");
    if (!fs::is_symlink(fs::symlink_status(path, error))) return OkStatus();
    path = fs::canonical(path, error);
    if (error) return OkStatus();
  }
}

// What was opened before the journal was there is compared at its end with what it was.
template <class Bytes>
Bytes Checked(const std::string& name, Bytes bytes) {
  ZT_RETURN_IF_ERROR(CheckNoJournal(name));
  return bytes;
}

Status NoUrls() { return Unsupported("URLs are not read here; download the file"); }

}  // namespace

std::string JournalOf(const std::string& path) {
  std::error_code error;
  return (fs::is_directory(path, error) ? fs::path(path) / kJournal : JournalOfFile(path)).string();
}

StatusOr<std::shared_ptr<ByteSource>> Store::Open(const std::string& name) {
  return Checked(name, OpenFile(name));
}

StatusOr<fs::file_type> Store::TypeOf(const std::string& name) {
  if (IsUrl(name)) return NoUrls();
  std::error_code error, none;
  const fs::file_type type = fs::status(name, error).type();
  const bool absent = type == fs::file_type::not_found || error == std::errc::filename_too_long;
  if ((absent || error == std::errc::too_many_symbolic_link_levels) &&
      fs::is_symlink(fs::symlink_status(name, none)))
    return fs::file_type::symlink;
  if (absent) return fs::file_type::not_found;
  if (type == fs::file_type::none) return IoError(error.value(), "cannot open");
  return type;
}

StatusOr<bool> Store::IsFolder(const std::string& name) {
  ZT_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(name));
  return type == fs::file_type::directory;
}

StatusOr<bool> Store::Exists(const std::string& name) {
  ZT_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(name));
  return type != fs::file_type::not_found && type != fs::file_type::symlink;
}

StatusOr<bool> Store::IsFile(const std::string& name) {
  if (IsUrl(name)) return Exists(name);
  ZT_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(name));
  return type == fs::file_type::regular;
}

StatusOr<bool> Store::HasName(const std::string& name) {
  ZT_ASSIGN_OR_RETURN(const fs::file_type type, TypeOf(name));
  return type != fs::file_type::not_found;
}

StatusOr<std::vector<std::string>> Store::List(const std::string& folder) {
  if (IsUrl(folder)) return NoUrls();
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return IoError(error.value(), "cannot list the folder");
  return names;
}

StatusOr<std::vector<ListedFile>> Store::ListBelow(const std::string&) { return NoUrls(); }

StatusOr<std::unique_ptr<Sink>> Store::Create(const std::string& name,
                                              const FileSinkOptions& options) {
  ZT_RETURN_IF_ERROR(CheckNoJournal(name));
  return CreateFileSink(name, options);
}

StatusOr<std::shared_ptr<ByteSource>> Store::OpenForEachRead(const std::string& name) {
  if (!IsUrl(name)) {  // a URL has no descriptor
    return Checked(name, OpenFileForEachRead(name));
  }
  ZT_ASSIGN_OR_RETURN(auto bytes, Open(name));
  if (bytes->sequential()) return Unsupported("its server does not support ranges");
  return bytes;
}

StatusOr<std::optional<std::uint64_t>> Store::SizeOf(const std::string& name) {
  if (IsUrl(name)) {
    ZT_ASSIGN_OR_RETURN(const auto file, Open(name));
    return file->size();
  }
  ZT_ASSIGN_OR_RETURN(const bool file, IsFile(name));
  if (!file) return std::nullopt;
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(name, error);
  if (error) return IoError(error.value(), "cannot stat");
  return bytes;
}

StatusOr<std::vector<std::string>> Store::ListFolders(const std::string& folder) {
  std::vector<std::string> names;
  if (IsUrl(folder)) {
    ZT_ASSIGN_OR_RETURN(const std::vector<ListedFile> files, ListBelow(folder));
    for (const ListedFile& file : files) {
      std::string name = file.path.substr(0, file.path.find('/'));
      if (name.size() < file.path.size() && !name.empty()) names.push_back(std::move(name));
    }
  } else {
    ZT_ASSIGN_OR_RETURN(names, List(folder));
    std::erase_if(names, [&](const std::string& name) {
      std::error_code error;
      return !fs::is_directory(fs::symlink_status(fs::path(folder) / name, error));
    });
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

const std::shared_ptr<Store>& LocalStore() {
  static const auto* const store = new std::shared_ptr<Store>(std::make_shared<Store>());
  return *store;
}

}  // namespace zt
