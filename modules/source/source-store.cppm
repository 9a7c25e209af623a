// zt.source:store — a store: the files that names stand for, of this machine or of servers.
export module zt.source:store;

import zt.std;
import :bytes;
import zt.core;
import zt.sink;

export namespace zt {

// A file below a folder: its path there, of names between slashes, and its size in bytes.
struct ListedFile {
  std::string path;
  std::uint64_t bytes = 0;
  auto operator<=>(const ListedFile&) const = default;  // by path, then size
};

// Where the journal of a file or folder lies that is changed where it lies: what is still to be
// written to it. As long as there is one, a Store opens neither it nor the files in the folder.
std::string JournalOf(const std::string& path);

// Opens, lists and makes the files that names stand for: here those of this machine, for which a
// URL is kUnimplemented. A derived store serves URLs, too (MakeRemoteStore of zt.remote). It is
// passed in options; what is opened of it may keep it. Thread-safe. Errors do not name the file.
class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // As OpenFile.
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& name);
  // What a name leads to. May ask a server; an error if that fails. `symlink`: a link that leads
  // nowhere. `unknown`: the server refuses to tell, as S3 does of what is not there where it may not
  // be listed; opening the name tells why. Of a server, IsFolder alone knows folders.
  virtual StatusOr<std::filesystem::file_type> TypeOf(const std::string& name);
  virtual StatusOr<bool> IsFolder(const std::string& name);
  // True for all but `not_found`, `symlink` and, with a warning, `unknown`.
  virtual StatusOr<bool> Exists(const std::string& name);
  StatusOr<bool> IsFile(const std::string& name);
  // True for all but `not_found`: opening it tells what it lacks.
  StatusOr<bool> HasName(const std::string& name);
  // Names of a folder's entries, in no order; of a server, of the files only. kUnimplemented if the
  // server lists none.
  virtual StatusOr<std::vector<std::string>> List(const std::string& folder);
  // All files in a folder of a server and in those below it, in order. The server is not trusted
  // with their paths. kUnimplemented for a folder of this machine.
  virtual StatusOr<std::vector<ListedFile>> ListBelow(const std::string& folder);
  // What a server says of the version of an open file, its ETag or date; empty if it says nothing,
  // and for the Hub, some of whose files may lie in a cache.
  virtual std::string VersionOf(const std::string& /*name*/) { return ""; }
  // As CreateFileSink.
  virtual StatusOr<std::unique_ptr<Sink>> Create(const std::string& name,
                                                 const FileSinkOptions& options);

  // As OpenFileForEachRead.
  StatusOr<std::shared_ptr<ByteSource>> OpenForEachRead(const std::string& name);
  // The size of a file in bytes; nullopt if it is no regular file, or its server does not say.
  StatusOr<std::optional<std::uint64_t>> SizeOf(const std::string& name);
  // Names of the folders in a folder, in order, without links.
  StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);
};

// The files of this machine.
const std::shared_ptr<Store>& LocalStore();

}  // namespace zt
