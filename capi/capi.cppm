// zt.capi — what stands behind the C interface: inputs of any format as one kind of thing, reads by many threads, mappings,
// attributes as JSON, and bytes that functions of a caller serve or take. No C crosses into it.
export module zt.capi;

import zt.std;
import zt;
import zt.cli;

export namespace zt::capi {

// ---- long calls ------------------------------------------------------------------------------------------------

// How far a long call has come, and whether it is to end. Any thread may look at it and change it.
struct Watch {
  std::atomic<std::uint64_t> done = 0, total = 0;
  std::atomic<bool> cancelled = false;
};

// What every cancelled call returns.
Status CancelledStatus();

// Runs `body` in a thread of its own while this one calls `poll` every 50 ms; once that returns false, `cancel` is called. An
// empty `poll`: runs it here. What `body` throws is thrown here.
Status RunWatched(const std::function<bool()>& poll, const std::function<void()>& cancel,
                  const std::function<Status()>& body);

// ---- inputs ----------------------------------------------------------------------------------------------------

// Which file a path stands for.
struct FileIdentity {
  std::uint64_t device = 0, number = 0, bytes = 0;
  bool operator==(const FileIdentity&) const = default;
};
// Of the regular file that a path stands for now; nullopt where there is none.
std::optional<FileIdentity> IdentityOf(const std::string& path);

// An object as it is listed. Valid as long as the input, its texts with a zero byte behind them.
struct ObjectView {
  const std::string* name = nullptr;
  std::string_view format = {};
  std::span<const std::uint64_t> shape = {};
  std::size_t components = 0;
  const Value::Map* attributes = nullptr;
};

// A component as it is listed. Valid likewise.
struct ComponentView {
  std::string_view role = "";
  std::string_view dtype = "";          // the logical type where there is one
  std::string_view storage = "";        // the storage type
  std::string_view encoding = "";       // empty where the format does not tell
  std::string_view digest = "";         // likewise
  std::string_view file = "";           // that it lies in
  std::uint64_t offset = kUnknownSize;  // of the stored bytes in that file
  std::uint64_t length = kUnknownSize;  // of the stored bytes
  std::uint64_t bytes = kUnknownSize;   // decoded
  std::string_view unreadable = "";     // why it cannot be decoded; empty where it can
  // The regular file that was opened, where the stored bytes are the decoded ones: they can be mapped.
  const FileIdentity* mappable = nullptr;
};

// An open input. Thread-safe.
class Input {
 public:
  virtual ~Input() = default;
  virtual std::string_view format() const = 0;  // "zt", "safetensors", ...
  virtual std::string version() const = 0;      // of a .zt file
  virtual const std::vector<std::string>& warnings() const = 0;
  virtual const Value::Map& attributes() const = 0;
  virtual std::size_t size() const = 0;  // objects
  virtual ObjectView object(std::uint32_t index) const = 0;
  virtual ComponentView component(ComponentId id) const = 0;
  // The file in errors that concern no component.
  virtual const std::string& name() const = 0;
  // That of a component; errors name it and the tensor.
  virtual std::string_view file(ComponentId id) const = 0;
  // Decoded bytes. Errors name tensor and file.
  virtual Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) const = 0;
  // How ranges are best read.
  virtual StatusOr<Access> FindAccess(ComponentId id) const = 0;
  // False for a pipe: ranges come in the order of the objects, from one thread.
  virtual bool seekable() const { return true; }
  // Reads everything and checks what can be checked.
  virtual StatusOr<VerifyReport> VerifyAll(unsigned threads, Watch& watch) const = 0;
  // The same of one object.
  virtual StatusOr<VerifyReport> VerifyOne(std::uint32_t object, Watch& watch) const = 0;

  // The number of the object with this name.
  virtual std::optional<std::uint32_t> Find(std::string_view name) const = 0;
  // The text, with a zero byte behind it, as long as the input.
  std::string_view Keep(std::string_view text) const;

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::string, std::less<>> texts_;
};

// Whatever the program opens. Errors name the file.
StatusOr<std::unique_ptr<Input>> OpenPaths(const std::vector<std::string>& paths,
                                           const InputOptions& options, const std::string& format);
StatusOr<std::unique_ptr<Input>> OpenBytes(std::shared_ptr<ByteSource> bytes,
                                           const InputOptions& options, const std::string& format);

// A range of a component, and where its bytes go.
struct Range {
  ComponentId id;
  std::uint64_t offset = 0;
  std::span<std::byte> out;
};
// Reads all of them with so many threads (0: UsableThreads()). The error is that of the first range that fails.
Status ReadMany(const Input& input, std::span<const Range> ranges, unsigned threads, Watch& watch);

// ---- mappings --------------------------------------------------------------------------------------------------

// Files mapped as pages of one's own (copy on write), each once. Thread-safe.
class Mappings {
 public:
  Mappings();  // remembers the working folder, which relative paths count from
  ~Mappings();
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;
  // Bytes of the file that was opened as `path`. kDataLoss where the path stands for another file
  // by now, or the file has another size.
  StatusOr<std::span<std::byte>> Map(const std::string& path, const FileIdentity& opened,
                                     std::uint64_t offset, std::uint64_t length);
  // Tells the kernel that bytes of the file will be read soon, or not again.
  Status Advise(const std::string& path, std::uint64_t offset, std::uint64_t length,
                bool needed) const;

 private:
  struct Mapped {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  std::string Absolute(const std::string& path) const;
  std::mutex mutex_;
  std::map<std::string, Mapped> files_;
  std::string folder_;
};

// Asks for large pages where bytes are about to be written: a page fault for every 4 KiB of new memory costs as much as decoding.
void WantLargePages(std::span<std::byte> bytes);

// ---- attributes, and bytes of a caller --------------------------------------------------------------------------

// A JSON object as attributes; the opposite of cli::AppendAttributes. kInvalidArgument.
StatusOr<Value::Map> ParseAttributes(std::string_view json);

// Bytes that functions serve; each returns 0 or an error number.
std::shared_ptr<ByteSource> CalledBytes(
    std::string name, std::uint64_t bytes,
    std::function<int(std::uint64_t offset, std::span<std::byte> out)> read);
// Keeps `kept` as long as the source.
std::shared_ptr<ByteSource> Keeping(std::shared_ptr<ByteSource> bytes, std::shared_ptr<void> kept);
// A sink of functions, all set; append and finish return 0 or an error number.
std::unique_ptr<Sink> CalledSink(std::string name,
                                 std::function<int(std::span<const std::byte>)> append,
                                 std::function<int(std::uint64_t total)> finish,
                                 std::function<void()> abort);

}  // namespace zt::capi
