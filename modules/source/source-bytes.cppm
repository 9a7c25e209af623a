// zt.source:bytes — bytes by offset: files, pipes, memory.
export module zt.source:bytes;

import zt.std;
import zt.core;

export namespace zt {

// ---- bytes --------------------------------------------------------------------------------------

// The bytes from `begin` to `end`, without the one at `end`.
struct ByteRange {
  std::uint64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;  // the same bytes
};

// Bytes that can be read by offset. A file or memory serves any range to any number of threads at
// once; a pipe (`sequential()`) serves one caller at a time, ranges in ascending order only, and
// discards what is skipped.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // For messages: the path as given, or "standard input".
  virtual const std::string& name() const = 0;
  // Total bytes; nullopt if the size is only known at the end of the stream.
  virtual std::optional<std::uint64_t> size() const = 0;
  // True for a pipe: one caller, ascending ranges.
  virtual bool sequential() const = 0;

  // Fills all of `out` from `offset`, or fails: kDataLoss if the bytes end first, kUnavailable if
  // the system refuses. Errors do not name the source; callers add name().
  virtual Status ReadAt(std::uint64_t offset, std::span<std::byte> out) = 0;

  // kDataLoss if a file's size or modification time has changed since it was opened. Changes of
  // links, names and permissions are allowed. A writer that restores the time is not noticed.
  virtual Status CheckUnchanged() { return OkStatus(); }

  // The descriptor of an open regular file with exactly these bytes, for mmap and fadvise; nullopt
  // if there is none. It is closed with the source.
  virtual std::optional<int> descriptor() const { return std::nullopt; }

  // True if `offset` is the end. On a pipe this waits for a byte or the end, and keeps the byte.
  virtual StatusOr<bool> AtEnd(std::uint64_t offset);

  // A hint: these ranges will be read, about in this order. A remote source reads them ahead.
  virtual void WillRead(std::span<const ByteRange> /*ranges*/) {}
};

// A regular file, read with pread (never mapped: a file that shrinks is an error, not a SIGBUS).
// kUnavailable if it cannot be opened; kInvalidArgument for a directory. A Store opens URLs, too.
StatusOr<std::shared_ptr<ByteSource>> OpenFile(const std::string& path);

// As OpenFile, for folders of more files than a process may open: opens the file anew for each
// read. kDataLoss if it is not the same unchanged file as the first time. Has no descriptor.
StatusOr<std::shared_ptr<ByteSource>> OpenFileForEachRead(const std::string& path);

// ---- opening ------------------------------------------------------------------------------------

// A file descriptor that may be a pipe. A regular file becomes a seekable source that begins at its
// current offset; anything else is sequential. Does not close `fd`.
StatusOr<std::shared_ptr<ByteSource>> OpenDescriptor(int fd, std::string name);

// As an input of the program, "-" is standard input.
inline bool IsStandardInput(std::string_view path) { return path == "-"; }
// True if an input gives its bytes once, in order: a named pipe, `<(...)` of a shell, or standard
// input that is no file.
bool IsPipe(const std::string& path);
// Opens an input that is standard input or a pipe; waits for a named pipe's writer, as `cat` does.
StatusOr<std::shared_ptr<ByteSource>> OpenPipe(const std::string& path);

// The error of bytes that end at `end`, where `wanted` bytes from `offset` are to be read: kDataLoss.
Status EndsEarly(std::uint64_t offset, std::uint64_t wanted, std::uint64_t end);

// The error of a pipe at `position` that is to read an earlier `offset`: kUnimplemented.
Status CannotGoBack(std::uint64_t position, std::uint64_t offset);

// The error of bytes called `name` that are read in order, and may be `what`, "a .zt file", only
// where any range can be read: it says whether a pipe or a server is in the way. kUnimplemented.
Status NotFromPipe(const std::string& name, std::string_view what);
// The size; NotFromPipe if it is not known or the bytes are read in order.
StatusOr<std::uint64_t> KnownSize(const ByteSource& source, std::string_view what);
// All bytes, of a pipe too. kDataLoss if there are more than `most`.
StatusOr<std::string> ReadAll(ByteSource& source, std::uint64_t most);

// Bytes that come once, in order: ReadAt, AtEnd and Peek of a pipe, by what ReadSome gives.
class PipedBytes : public ByteSource {
 public:
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  bool sequential() const override { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override;
  StatusOr<bool> AtEnd(std::uint64_t offset) override;

  // Buffers `count` bytes from the current position in ahead(), or all up to the end.
  Status Ahead(std::size_t count);
  std::span<const std::byte> ahead() const { return std::span(ahead_).subspan(taken_); }
  std::uint64_t position() const { return position_; }

 private:
  // Reads until `out` is full or the bytes end; returns how many.
  virtual StatusOr<std::size_t> ReadSome(std::span<std::byte> out) = 0;

  void Take(std::size_t count);
  Status SkipTo(std::uint64_t offset);

  // Bytes that were read ahead; those before taken_ are consumed.
  std::vector<std::byte> ahead_;
  std::size_t taken_ = 0;
  std::uint64_t position_ = 0;
};

// Bytes in memory, which must outlive the source.
std::shared_ptr<ByteSource> MemoryBytes(std::span<const std::byte> bytes, std::string name);

// Reads the first `count` bytes, or all if there are fewer. A pipe keeps them: a later
// ReadAt(0, ...) serves them again, unless bytes beyond them have been read.
StatusOr<std::vector<std::byte>> Peek(ByteSource& source, std::size_t count);

// Fills `out` from byte `offset` of data that `read` serves in whole units of `unit` bytes, at most
// 512. Parts of units go through a buffer.
Status ReadUnits(std::uint64_t offset, std::span<std::byte> out, std::uint64_t unit,
                 const std::function<Status(std::uint64_t, std::span<std::byte>)>& read);

// True if two readers serve the same first `bytes` bytes. Their first error ends it.
StatusOr<bool> ServeSameBytes(
    std::uint64_t bytes, const std::function<Status(std::uint64_t, std::span<std::byte>)>& one,
    const std::function<Status(std::uint64_t, std::span<std::byte>)>& two);

// Reads the bytes from `begin` to `end` in order with bounded memory. Calls `look` with the offset
// and the bytes of each piece, until it returns false.
Status ReadThrough(
    ByteSource& source, std::uint64_t begin, std::uint64_t end,
    const std::function<bool(std::uint64_t offset, std::span<const std::byte> piece)>& look);

// A range to be read.
struct RangeToRead {
  // The byte source that stores the range unchanged. Null if none does, or if it is sequential.
  ByteSource* from = nullptr;
  std::uint64_t offset = 0;         // in `from`
  std::span<std::byte> bytes = {};  // to be filled
};
// Fills all ranges. Neighbours, adjacent in a ByteSource and in memory, are read with one call.
// Calls `read(i)` for a range without a byte source (`from` is null), and for each range of a
// merged read that failed, so that the error names the range. Returns the first error of `read`.
Status ReadRanges(std::span<const RangeToRead> ranges,
                  const std::function<Status(std::size_t i)>& read);

}  // namespace zt
