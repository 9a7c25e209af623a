// zt.sink — append-only outputs; the only module that calls write(2).
export module zt.sink;

import zt.std;
import zt.core;
import zt.digest;

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

  // A hint: the output will have about `bytes` in all, those already written included. Fails if
  // they certainly do not fit.
  virtual Status Reserve(std::uint64_t bytes);

  // A hint, given before the first byte: the output will have at most about `bytes`. A sink that
  // uploads parts of one size chooses the part size by it.
  virtual void Expect(std::uint64_t /*bytes*/) {}

  // Makes the `total` bytes durable and visible. On error there is no output, and an existing one
  // is intact.
  virtual Status Finish(std::uint64_t total) = 0;
  // Discards everything. Idempotent.
  virtual void Abort() = 0;
};

// Options of CreateFileSink.
struct FileSinkOptions {
  // Replaces an existing file; otherwise CreateFileSink and Finish return kAlreadyExists.
  bool overwrite = false;
  // Syncs the file and its folder before Finish returns. In any case most of a large file has left
  // the page cache by then: all beyond the first 256 MiB with a sync; without one, all beyond 1
  // GiB, unless the disk is slow.
  bool sync = true;
  // The folder was created for this run, so no leftovers are looked for. Listing the folder for
  // each of many files in it would take quadratic time.
  bool new_folder = false;
};

// A regular file that gets its name only when complete: bytes go to a sibling named
// ".NAME.PID-NUMBER.ztstream-tmp", which Finish syncs and renames, and which any failure removes.
// The next CreateFileSink for the same output removes the siblings that killed runs left (a live
// run holds a lock on its own). A path to something other than a regular file (a device, a named
// pipe) is written directly. Errors name the path.
// The path may be a URL after SetUrlSinks.
StatusOr<std::unique_ptr<Sink>> CreateFileSink(const std::string& path,
                                               const FileSinkOptions& options);

// Sets the function with which CreateFileSink makes sinks for URLs; its errors do not name the URL.
// Without it, or with null, URLs are kUnimplemented. Call it before the first sink is made.
void SetUrlSinks(StatusOr<std::unique_ptr<Sink>> (*create)(const std::string& url,
                                                           const FileSinkOptions& options));

// Unlinks the temporary files of all unfinished file sinks of this process; their Finish then
// fails. For a program that must exit at once. Thread-safe.
void AbandonTemporaryFiles();

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

}  // namespace zt
