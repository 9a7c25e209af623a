// zt.sink — where bytes go: append-only destinations; the only module that calls write(2).
export module zt.sink;

import zt.std;
import zt.core;
import zt.digest;

export namespace zt {

// Bytes to be written one after another; the pieces stay the caller's.
using Pieces = std::span<const std::span<const std::byte>>;

// A destination. Its one owner (zt.writer) appends, then calls Finish once or Abort; the destructor aborts what was
// not finished and reports nothing. Not thread-safe but for WriteAt. Errors do not name the sink; callers
// add name().
class Sink {
 public:
  virtual ~Sink() = default;

  // For messages: the path as given, "standard output", ...
  virtual const std::string& name() const = 0;

  // True where WriteAt works. Then bytes may come in any order and from several threads, each byte once; what
  // was skipped reads as zero. A sink is used through Append or through WriteAt, never both.
  virtual bool can_place() const { return false; }

  // Appends all pieces, in order.
  virtual Status Append(Pieces pieces) = 0;
  // Writes all pieces one after another from `offset`. Thread-safe for disjoint ranges.
  virtual Status WriteAt(std::uint64_t offset, Pieces pieces);

  // A hint: about `bytes` will be written in all, those that were written already included. Fails where it is certain
  // that they will not fit.
  virtual Status Reserve(std::uint64_t bytes);

  // A hint, given before the first byte: at most about `bytes` will be written in all. A sink that sends its bytes in parts of
  // one size chooses the size by it.
  virtual void Expect(std::uint64_t /*bytes*/) {}

  // Makes the `total` bytes durable and visible. After an error there is no output, and an older one is intact.
  virtual Status Finish(std::uint64_t total) = 0;
  // Drops everything. Idempotent.
  virtual void Abort() = 0;
};

// How CreateFileSink treats the file system.
struct FileSinkOptions {
  // Replace an existing file; without it CreateFileSink and Finish fail with kAlreadyExists.
  bool overwrite = false;
  // fsync the file and its folder before Finish returns. Either way most of a large file has left the page cache by
  // then: beyond the first 256 MiB with a sync; without one beyond 1 GiB, unless the disk is slow.
  bool sync = true;
  // The folder was made for this run, so it cannot hold leftovers of another one: they are not looked for. Listing a
  // folder for each of many files that are written to it takes time that grows with their square.
  bool new_folder = false;
};

// A regular file that appears under its name only when whole: bytes go to a sibling named
// ".NAME.PID-NUMBER.ztstream-tmp", which Finish syncs and renames; any failure removes it. Leftovers of runs that were
// killed carry that name and are removed by the next Create for the same output (a live run holds a lock on its
// own). A path that names something other than a regular file (a device, a named pipe) is written to directly. Errors
// name the path.
// The path may be a URL once SetUrlSinks was called.
StatusOr<std::unique_ptr<Sink>> CreateFileSink(const std::string& path,
                                               const FileSinkOptions& options);

// Has CreateFileSink make the sinks of names that are URLs with `create`, whose errors do not name the URL. Before it is
// called, or with null, they are kUnimplemented. Call it before sinks are made.
void SetUrlSinks(StatusOr<std::unique_ptr<Sink>> (*create)(const std::string& url,
                                                           const FileSinkOptions& options));

// Unlinks the temporary files of all file sinks of this process that are not finished; their Finish then fails. For a
// program that has to end at once. Thread-safe.
void AbandonTemporaryFiles();

// An open descriptor, written in order; not closed. For standard output and pipes.
std::unique_ptr<Sink> DescriptorSink(int fd, std::string name);

// Appends to `out`, which must outlive the sink. Abort clears it.
std::unique_ptr<Sink> MemorySink(std::vector<std::byte>& out);

// Forgets what it is given; for measuring. Bytes may be placed.
std::unique_ptr<Sink> DiscardSink();

// Writes the same to each of `sinks`, and finishes them one after the other: where one fails, those after it are
// aborted, and those before it stay published. Null where one of them is.
std::unique_ptr<Sink> TeeSink(std::vector<std::unique_ptr<Sink>> sinks);

// Passes everything on to `to`, in order, and sets `digest` to that of all bytes, as Hasher::Finish writes it, once `to`
// is finished: a checksum of the file that costs no second reading. `digest` must outlive the sink. Null where `to` is,
// and for DigestKind::kNone.
std::unique_ptr<Sink> HashingSink(std::unique_ptr<Sink> to, DigestKind kind, std::string& digest);

}  // namespace zt
