// zt.sink — append-only outputs; the only module that calls write(2).
export module zt.sink;

import zt.std;
import zt.core;
import zt.digest;

// Shared by the units of the module, not exported.
namespace zt::sink::internal {

// A file or folder under a hidden name, locked, so that another run does not take it for a
// leftover. The destructor removes it.
class Temporary {
 public:
  Temporary() = default;
  ~Temporary() { Remove(); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  // Makes and locks ".NAME.PID-NUMBER.ztstream-tmp" in `folder`. Returns 0 or errno.
  int Make(const std::string& folder, const std::string& name, bool is_folder, unsigned mode);
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  // Closes it and removes it from the disk.
  void Remove();
  // Closes it. It has got its name.
  void Release();

 private:
  int MakeFile(const std::string& path, unsigned mode);
  int MakeFolder(const std::string& path, unsigned mode);
  int Lock();
  void Remember(const std::string& path);
  void Forget();

  std::string path_;  // empty: there is none
  int fd_ = -1;
};

// True if a file of this name is one that Temporary makes for the output `name`.
bool IsTemporary(std::string_view found, const std::string& name);
// Fails if no file in `folder` can get the name `name` by a rename, whatever is there: what else
// only Rename would find, after all the work. An empty name is nobody's.
Status CheckRenamable(const std::string& folder, const std::string& name);
// Removes what killed runs for the output `name` left in `folder`: what is not locked.
void RemoveLeftovers(const std::string& folder, const std::string& name);
// Renames, and replaces a file there if `overwrite`; else that is EEXIST. Returns 0 or errno.
int Rename(const std::string& from, const std::string& to, bool overwrite);
// Fails if fewer bytes are free for this user on the file system of `fd`.
Status CheckSpace(int fd, std::uint64_t bytes);
// A descriptor of a folder, or -1 and errno.
int OpenFolder(const std::string& path);

}  // namespace zt::sink::internal

export namespace zt {

// Spans to write one after another; not copied.
using Pieces = std::span<const std::span<const std::byte>>;

// An output. Its one owner (zt.writer) appends, then calls either Finish once or Abort; the
// destructor aborts an unfinished output and reports nothing. Only WriteAt is thread-safe. Errors
// do not name the sink; callers add name().
class Sink {
 public:
  virtual ~Sink() = default;

  // For messages: the path as given, "standard output", ...
  virtual const std::string& name() const = 0;

  // True if WriteAt works. Bytes may then come in any order and from several threads, each byte
  // once; skipped bytes read as zero. Use either Append or WriteAt on a sink, never both.
  virtual bool can_place() const { return false; }

  // Appends all pieces, in order.
  virtual Status Append(Pieces pieces) = 0;
  // Writes all pieces one after another from `offset`. Thread-safe for disjoint ranges.
  virtual Status WriteAt(std::uint64_t offset, Pieces pieces);

  // Fails if an output of about `bytes` bytes in all, with those already written, certainly does
  // not fit. Reserves nothing.
  virtual Status Reserve(std::uint64_t bytes);

  // A hint, given before the first byte: the output will have at most about `bytes` bytes. A sink
  // that uploads parts of equal size chooses the part size by it.
  virtual void Expect(std::uint64_t /*bytes*/) {}

  // Makes the `total` bytes durable and visible. On error there is no output, and an existing one
  // is intact; except that if the folder cannot be synced after the rename, the output is there,
  // and the error says so.
  virtual Status Finish(std::uint64_t total) = 0;
  // Discards everything. Idempotent.
  virtual void Abort() = 0;
};

// Options of CreateFileSink.
struct FileSinkOptions {
  // Replaces an existing file, whose permissions the new one gets, and its owner where that is
  // allowed; otherwise CreateFileSink and Finish return kAlreadyExists.
  bool overwrite = false;
  // Syncs the file and its folder before Finish returns. In any case most of a large file has left
  // the page cache by then: all beyond the first 256 MiB with a sync; without one, all beyond 1
  // GiB, unless the disk is slow.
  bool sync = true;
  // The folder was created for this run, so no leftovers are looked for. Listing the folder for
  // each of many files in it would take quadratic time.
  bool new_folder = false;
  // What errors and Sink::name give in place of the path, if not empty.
  std::string shown_as = {};
  // A file whose permissions and owner a new file gets that replaces none, if not empty.
  std::string like = {};
};

// A regular file that gets its name only when complete: bytes go to a sibling named
// ".NAME.PID-NUMBER.ztstream-tmp", which Finish syncs and renames, and which any failure removes.
// The next CreateFileSink for the same output removes the siblings that killed runs left (a live
// run holds a lock on its own). Through a symbolic link the file it leads to is replaced; a link
// that leads nowhere is refused. A path to something other than a regular file (a device, a
// named pipe) is written directly. Errors name the path.
// A Store makes sinks for URLs, too.
StatusOr<std::unique_ptr<Sink>> CreateFileSink(const std::string& path,
                                               const FileSinkOptions& options);

// A regular file that is changed where it lies. WriteAt alone writes; what is not written stays.
// Finish sets the size and syncs; Abort takes nothing back. Who needs all or nothing keeps a journal.
// kInvalidArgument if the file is a link or has several names. Errors name the path.
StatusOr<std::unique_ptr<Sink>> OpenInPlace(const std::string& path);
// Locks a file or folder against others that call this, as long as the result exists. kUnavailable
// if another process holds the lock. Errors name the path.
StatusOr<std::shared_ptr<void>> LockPath(const std::string& path);
// Removes a file and syncs its folder. Errors name the path.
Status RemoveFile(const std::string& path);

// Marks a section in which outputs get their names: AbandonTemporaryFiles does nothing as long as
// one exists. File and folder sinks hold one during a rename. A program that publishes several
// outputs together holds one around all of them. Publications nest. Thread-safe.
class Publication {
 public:
  Publication();
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  // The number of publications that this process has begun, those that ended included.
  static std::uint64_t Begun();
};

// Removes the temporary files and folders of all unfinished sinks of this process; their Finish
// then fails. For a program that must exit at once. Does nothing and returns false if a Publication
// exists, or if one has been made since Publication::Begun returned `begun`. Thread-safe.
bool AbandonTemporaryFiles(std::uint64_t begun);

// An open descriptor, written in order and not closed. For standard output and pipes.
std::unique_ptr<Sink> DescriptorSink(int fd, std::string name);

// Appends to `out`, which must outlive the sink. Abort clears it.
std::unique_ptr<Sink> MemorySink(std::vector<std::byte>& out);

// Discards all bytes; for measurements. WriteAt works.
std::unique_ptr<Sink> DiscardSink();

// Writes the same bytes to each of `sinks`, and finishes them one after another: if one fails,
// those after it are aborted and those before it stay published. Null if any of them is null.
std::unique_ptr<Sink> TeeSink(std::vector<std::unique_ptr<Sink>> sinks);

// Forwards everything to `to`, in order. After `to` is finished it sets `digest` to the digest of
// all bytes, in the format of Hasher::Finish, so that a checksum of the file costs no second read.
// `digest` must outlive the sink. Null if `to` is null or `kind` is DigestKind::kNone.
std::unique_ptr<Sink> HashingSink(std::unique_ptr<Sink> to, DigestKind kind, std::string& digest);

// ---- folders ------------------------------------------------------------------------------------

// Options of FolderSink.
struct FolderSinkOptions {
  bool overwrite = false;  // of files in the folder, as FileSinkOptions::overwrite
  bool whole = false;      // the folder must be new, or empty
  bool sync = true;        // as FileSinkOptions::sync
};

// Files of a folder that get their names together, when all are complete. A new folder appears
// whole, by one rename. Into an existing folder files are moved one after another, each replaced
// at once: only a crash or kill -9 in that moment leaves some. Links, pipes and devices that have
// their names are replaced, not written through. Until then they lie in a locked
// hidden folder named ".NAME.PID-NUMBER.ztstream-tmp". Any failure removes it; after a kill, the
// next run for the same output does. Not thread-safe.
class FolderSink {
 public:
  // The folder in which `path` lies must exist. Errors name the path.
  static StatusOr<std::unique_ptr<FolderSink>> Create(std::string path,
                                                      const FolderSinkOptions& options);
  ~FolderSink();
  FolderSink(const FolderSink&) = delete;
  FolderSink& operator=(const FolderSink&) = delete;

  // kAlreadyExists if one of these files is in the folder and may not be replaced, or is a folder;
  // kUnavailable if it cannot be replaced. Removes what killed runs left, as CheckNew does.
  static Status CheckFiles(const std::string& path, std::span<const std::string> files,
                           bool overwrite);
  // kAlreadyExists if `path` exists and is not an empty folder.
  static Status CheckNew(const std::string& path);

  // Fails if fewer bytes are free.
  Status Reserve(std::uint64_t bytes) const;
  // The path to write the file at until Finish.
  std::string Staged(const std::string& file) const;
  // How to open it there; errors name it as if it were in the folder already.
  FileSinkOptions StagedOptions(const std::string& file) const;

  // Syncs all files and gives them their names. On error the folder is unchanged, unless the error
  // says which files it has.
  Status Finish();

 private:
  FolderSink() = default;
  Status Appear();
  Status LockFolder() const;
  Status MoveFiles();

  std::string path_;
  FolderSinkOptions options_;
  // The output folder does not exist yet: Finish renames the hidden folder to it.
  bool beside_ = false;
  int holder_ = -1;  // descriptor of the folder that contains the hidden one
  sink::internal::Temporary staging_;
};

}  // namespace zt
