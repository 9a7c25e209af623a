// zt.source:bytes — bytes by offset: files, pipes, memory, and names that stand for files elsewhere.
export module zt.source:bytes;

import zt.std;
import zt.core;

export namespace zt {

// ---- bytes ---------------------------------------------------------------------------------------------------

// Bytes from `begin` up to `end`, which is not among them.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;  // the same bytes
};

// Bytes that can be read by offset. A file or memory serves any range to any number of threads at once; a pipe
// (`sequential()`) serves one caller at a time, ranges in ascending order only, and discards what is skipped.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // For messages: the path as given, or "standard input".
  virtual const std::string& name() const = 0;
  // Total bytes; nullopt where only the end of the stream will tell.
  virtual std::optional<std::uint64_t> size() const = 0;
  // True for a pipe: one caller, ascending ranges.
  virtual bool sequential() const = 0;

  // Fills `out` from `offset`, whole, or fails: kDataLoss where the bytes end first, kUnavailable where the
  // system refuses. Errors do not name the source; callers add name().
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) = 0;

  // Fails with kDataLoss where a file has another size or time of modification now than when it was opened: somebody
  // writes to it. Links, names and permissions may change. Not noticed is who writes and sets the time back.
  virtual Status CheckUnchanged() { return OkStatus(); }

  // The descriptor of an open regular file with exactly these bytes, for mmap and fadvise; nullopt
  // if there is none. It is closed with the source.
  virtual std::optional<int> descriptor() const { return std::nullopt; }

  // True where `offset` is the end. On a pipe this waits for a byte or the end, and the byte is kept.
  virtual StatusOr<bool> AtEnd(std::uint64_t offset);

  // A hint: these ranges will be read, about in this order. A source whose bytes come from far away asks for them ahead.
  virtual void WillRead(std::span<const ByteRange> /*ranges*/) {}
};

// A regular file, read with pread (never mapped: a file that shrinks is an error, not a SIGBUS). Fails with
// kUnavailable where it cannot be opened; a directory is kInvalidArgument.
StatusOr<std::shared_ptr<ByteSource>> OpenFile(const std::string& path);

// As OpenFile, for folders of more files than a process may open: it is opened anew for each read, fails with kDataLoss
// where that is not the file that was opened first, unchanged, and has no descriptor.
StatusOr<std::shared_ptr<ByteSource>> OpenFileForEachRead(const std::string& path);

// ---- names ---------------------------------------------------------------------------------------------------

// Names with a scheme, "https://host/model.zt", stand for files that are read over a network. OpenFile and the functions
// below take them once SetUrlFiles was called (zt.remote does), and refuse them before with kUnimplemented.
class UrlFiles {
 public:
  virtual ~UrlFiles() = default;
  // As OpenFile.
  virtual StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url) = 0;
  // Whether the name is one of a folder. It may ask a server.
  virtual StatusOr<bool> IsFolder(const std::string& url) = 0;
  // Names of the files in a folder; kUnimplemented where its server lists none.
  virtual StatusOr<std::vector<std::string>> List(const std::string& url) = 0;
  // Whether there is a file of that name.
  virtual StatusOr<bool> Exists(const std::string& url) = 0;
};
// `files` must outlive all use of names; null: names are those of the file system alone. Call it before names are opened.
void SetUrlFiles(UrlFiles* files);

// Whether a path or URL names a folder, something that exists, a regular file. False where that cannot be found out:
// opening the name says why.
bool IsFolder(const std::string& path);
bool Exists(const std::string& path);
bool IsRegularFile(const std::string& path);
// Bytes of a file; nullopt where that cannot be found out.
std::optional<std::uint64_t> SizeOfFile(const std::string& path);
// Names of what is in a folder, in no order; of a URL the files alone.
StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// ---- opening -------------------------------------------------------------------------------------------------

// A file descriptor that may be a pipe. A regular file becomes a seekable source that begins at its current
// offset; anything else is sequential. Does not close `fd`.
StatusOr<std::shared_ptr<ByteSource>> OpenDescriptor(int fd, std::string name);

// The error of a pipe that has served its bytes up to `position` and is asked for earlier ones: kUnimplemented.
Status CannotGoBack(std::uint64_t position, std::uint64_t offset);

// `bytes` stay the caller's and must outlive the source.
std::shared_ptr<ByteSource> MemoryBytes(std::span<const std::byte> bytes, std::string name);

// Reads the first `count` bytes, or all there are. On a pipe the bytes are kept: a later ReadAt(0, ...) still
// sees them, provided nothing beyond them was read.
StatusOr<std::vector<std::byte>> Peek(ByteSource& source, std::size_t count);

// Fills `out` from byte `offset` of data that `read` serves in whole units of `unit` bytes, 512 at most: what begins or ends
// within a unit goes through a buffer.
Status ReadUnits(std::uint64_t offset, std::span<std::byte> out, std::uint64_t unit,
                 const std::function<Status(std::uint64_t, std::span<std::byte>)>& read);

// Reads the bytes from `begin` to `end` front to back with bounded memory. `look` is given piece after piece, and where each
// begins; where it returns false, that is the end.
Status ReadThrough(
    ByteSource& source, std::uint64_t begin, std::uint64_t end,
    const std::function<bool(std::uint64_t offset, std::span<const std::byte> piece)>& look);

// A range to be read.
struct RangeToRead {
  ByteSource* from =
      nullptr;  // where its bytes lie as they are; null where they do not, or `from` is a pipe
  std::uint64_t offset = 0;         // in `from`
  std::span<std::byte> bytes = {};  // to be filled
};
// Fills all of them. Neighbours, which lie one after another in a ByteSource as in memory, are read with one call;
// `read(i)` fills range `i` where it has none, or where reading them failed: which of them it was is not known then. What
// `read` says is wrong with the first is returned.
Status ReadRanges(std::span<const RangeToRead> ranges,
                  const std::function<Status(std::size_t i)>& read);

}  // namespace zt
