// zt.capi — the C++ side of the C interface: inputs of all formats with one interface, reads by
// many threads, mappings, attributes as JSON. No C type crosses into it.
export module zt.capi;

import zt.std;
import zt;
import zt.convert.delta;
import zt.open;
import zt.remote;

export namespace zt::capi {

// ---- long calls ---------------------------------------------------------------------------------

// The progress of a long call, and a request to end it. Any thread may read and change it.
struct Watch {
  std::atomic<std::uint64_t> done = 0, total = 0;
  std::atomic<bool> cancelled = false;
};

// The error of a cancelled call.
Status CancelledStatus();

// Runs `body` in another thread while this one calls `poll` every 50 ms. When `poll` returns false,
// it calls `cancel`. If `poll` is empty, it runs `body` in this thread. Exceptions of `body` are
// thrown here.
Status RunWatched(const std::function<bool()>& poll, const std::function<void()>& cancel,
                  const std::function<Status()>& body);

// ---- inputs -------------------------------------------------------------------------------------

// A listed object. Valid as long as the input. Its texts end in a zero byte.
struct ObjectView {
  const std::string* name = nullptr;
  std::string_view format = {};
  std::span<const std::uint64_t> shape = {};
  std::size_t components = 0;
  const Value::Map* attributes = nullptr;
  const std::string* path = nullptr;  // the path of a model's file; null for a tensor
};

// A listed component. The same applies to it.
struct ComponentView {
  std::string_view role = "";
  std::string_view dtype = "";          // the logical type, or else the storage type
  std::string_view storage = "";        // the storage type
  std::string_view encoding = "";       // empty if the format does not tell
  std::string_view digest = "";         // empty if the format has none
  std::string_view file = "";           // the file in which it lies
  std::uint64_t offset = kUnknownSize;  // of the stored bytes in that file
  std::uint64_t length = kUnknownSize;  // of the stored bytes
  std::uint64_t bytes = kUnknownSize;   // decoded
  std::string_view unreadable = "";     // the reason if it cannot be decoded, else empty
  ByteSource* container = nullptr;      // the source to which `offset` applies, if it is known
  bool mappable = false;  // `container` has a descriptor, and the stored bytes are the decoded ones
};

// An open input. Thread-safe.
class Input {
 public:
  Input(std::unique_ptr<TensorSource> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}

  const TensorSource& source() const { return *source_; }
  std::size_t size() const { return source_->objects().size(); }  // objects
  ObjectView object(std::uint32_t index) const;
  ComponentView component(ComponentId id) const;
  // The file name for errors that concern no component.
  const std::string& name() const { return name_; }
  // The file name of a component, for errors.
  std::string_view file(ComponentId id) const;
  // Reads decoded bytes, or does another step with a range of them. Errors name tensor and file.
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out,
              const RangeStep& step = {}) const;
  // See UpdateFromDelta.
  Status Update(std::span<const MemoryRange> ranges, const RangeRun& run) const {
    return UpdateFromDelta(*source_, ranges, run);
  }
  // A hint: these components will be read, roughly in this order.
  void WillRead(std::span<const ComponentId> components) const { source_->WillRead(components); }
  // Reads everything, or only one object, and verifies it.
  StatusOr<VerifyReport> Verify(std::optional<std::uint32_t> object, unsigned threads,
                                Watch& watch) const;

  // The number of the object with this name.
  std::optional<std::uint32_t> Find(std::string_view name) const;
  // Stores the text, with a zero byte at its end, as long as the input exists.
  std::string_view Keep(std::string_view text) const;

 private:
  Status Examine(std::uint32_t object, VerifyReport& report, Watch& watch) const;
  Status ReadWhole(std::uint32_t object, Watch& watch) const;
  // Held while a component is read that only one thread at a time may read; of a pipe all are one.
  std::unique_lock<std::mutex> Lock(ComponentId id) const;

  std::unique_ptr<TensorSource> source_;
  std::string name_;
  mutable std::mutex sequential_;
  mutable std::mutex mutex_;  // guards the members below
  mutable NameIndex names_;
  mutable std::set<std::string, std::less<>> texts_;
};

// What the options of a reader or writer, which are structs of the caller, say of servers.
template <typename Options>
RemoteOptions RemoteOf(const Options& options) {
  const auto text = [](const char* given) { return std::string(given == nullptr ? "" : given); };
  RemoteOptions remote;
  remote.no_sign_request = options.no_sign_request != 0;
  remote.profile = text(options.profile);
  remote.region = text(options.region);
  remote.endpoint_url = text(options.endpoint_url);
  remote.s3_headers.assign(options.s3_headers, options.s3_headers + options.s3_header_count);
  if constexpr (requires { options.resume; }) remote.resume = options.resume != 0;
  return remote;
}

// How an input is opened.
struct OpenOptions : SourceOptions {
  RemoteOptions remote = {};
  std::optional<DType> numbers = {};  // that stand for quantized tensors
};
// The type of numbers of that name; kInvalidArgument if it is not f32, f16 or bf16.
StatusOr<DType> NumbersNamed(std::string_view name);
// What the options of a reader, a struct of the caller, say.
template <typename Options>
StatusOr<OpenOptions> OptionsOf(const Options& chosen) {
  OpenOptions args;
  if (chosen.format != nullptr) args.format = chosen.format;
  if (!args.format.empty() && FindFormat(args.format) == nullptr) {
    return InvalidArgument("no such format: " + Quote(args.format));
  }
  if (chosen.npy_void != nullptr) {
    args.void_type = FindTypeName(chosen.npy_void);
    if (!args.void_type) {
      return InvalidArgument("npy_void: " + Quote(chosen.npy_void) + " is not a type; types are " +
                             TypeNames());
    }
  }
  if (chosen.dequantize != nullptr) {
    const auto numbers = NumbersNamed(chosen.dequantize);
    if (!numbers.ok()) return numbers.status();
    args.numbers = *numbers;
  }
  if (chosen.variant != nullptr) args.variant = chosen.variant;
  args.base.assign(chosen.base, chosen.base + chosen.bases);
  args.base_in_memory = chosen.base_in_memory != 0;
  args.follow_links = chosen.follow_links != 0;
  args.keep_sparse = chosen.keep_sparse != 0;
  args.memory_limit = chosen.memory_bytes;
  args.remote = RemoteOf(chosen);
  return args;
}

// Opens any input of the program, URLs too, by a store of its own: each input asks the servers
// anew. Errors name the file. With `numbers`, those of this type stand for quantized tensors.
StatusOr<std::unique_ptr<Input>> OpenPaths(std::vector<std::string> paths, SourceOptions options,
                                           RemoteOptions remote, std::optional<DType> numbers);
StatusOr<std::unique_ptr<Input>> OpenBytes(std::shared_ptr<ByteSource> bytes, SourceOptions options,
                                           std::optional<DType> numbers);

using Range = MemoryRange;
// Reads all ranges, or does another step with each, with `threads` threads (0: UsableThreads()).
// Returns the error of the first range that fails.
Status ReadMany(const Input& input, std::span<const Range> ranges, unsigned threads, Watch& watch,
                const RangeStep& step = {});
// Changes memory that holds these ranges of another version, once all of it is known to be right.
Status UpdateMany(const Input& input, std::span<const Range> ranges, unsigned threads,
                  Watch& watch);

// ---- mappings -----------------------------------------------------------------------------------

// A file mapped copy-on-write.
class Pages {
 public:
  // Maps a whole file, which must have a descriptor. kDataLoss if its size has changed since it was
  // opened.
  static StatusOr<std::unique_ptr<Pages>> Of(ByteSource& file);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Bytes of the file, valid as long as this.
  StatusOr<std::span<std::byte>> Part(std::uint64_t offset, std::uint64_t length) const;

 private:
  explicit Pages(std::span<std::byte> file) : file_(file) {}
  std::span<std::byte> file_;
};

// Files that are mapped once. Thread-safe.
class Mappings {
 public:
  // Maps bytes of a file, which must outlive this.
  StatusOr<std::span<std::byte>> Map(ByteSource& file, std::uint64_t offset, std::uint64_t length);

 private:
  std::mutex mutex_;
  std::map<const ByteSource*, std::unique_ptr<Pages>> files_;
};

// A hint that a component will be read soon, or not again, for its source and the kernel.
void Advise(const ComponentView& component, bool needed);

// ---- attributes ---------------------------------------------------------------------------------

// Parses a JSON object to attributes, the inverse of AppendJson. kInvalidArgument if it
// is invalid.
StatusOr<Value::Map> ParseAttributes(std::string_view json);

}  // namespace zt::capi
