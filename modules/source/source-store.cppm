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
  // True if a name is that of a folder, of something, of a regular file. May ask a server. False if
  // that cannot be found out: opening the name then reports the error.
  virtual bool IsFolder(const std::string& name);
  virtual bool Exists(const std::string& name);
  bool IsFile(const std::string& name);
  // Names of a folder's entries, in no order; of a server, of the files only. kUnimplemented if the
  // server lists none.
  virtual StatusOr<std::vector<std::string>> List(const std::string& folder);
  // All files in a folder of a server and in those below it, in order. The server is not trusted
  // with their paths. kUnimplemented for a folder of this machine.
  virtual StatusOr<std::vector<ListedFile>> ListBelow(const std::string& folder);
  // As CreateFileSink.
  virtual StatusOr<std::unique_ptr<Sink>> Create(const std::string& name,
                                                 const FileSinkOptions& options);

  // True if something has this name, be it a link that leads nowhere: opening it tells what it lacks.
  bool HasName(const std::string& name);
  // As OpenFileForEachRead.
  StatusOr<std::shared_ptr<ByteSource>> OpenForEachRead(const std::string& name);
  // The size of a file in bytes; nullopt if it cannot be found out.
  std::optional<std::uint64_t> SizeOf(const std::string& name);
  // Names of the folders in a folder, in order, without links.
  StatusOr<std::vector<std::string>> ListFolders(const std::string& folder);
};

// The files of this machine.
const std::shared_ptr<Store>& LocalStore();

}  // namespace zt
