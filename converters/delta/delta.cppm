// zt.convert.delta — a model as what differs from another, its base (profile ztstream.delta/1): made
// of a conversion, and read together with the base as the model itself.
export module zt.convert.delta;

import zt.std;
import zt.core;
import zt.digest;
import zt.source;
import zt.writer;

export namespace zt {

// The attribute of a file that holds differences: a map of a DeltaOrigin's members.
inline constexpr std::string_view kDeltaAttribute = "ztstream.delta";
// The most deltas that may stand on each other.
inline constexpr std::size_t kMostDeltas = 64;

// What a file of differences says of itself and of its base. Ids are content digests, as of
// `ztstream id`; empty if the file does not say.
struct DeltaOrigin {
  std::string id;                  // of the model that it makes with its base
  std::string base_name, base_id;  // the base's name, without its folder
};
// nullopt if the attributes are not of such a file. kDataLoss if the attribute is malformed.
StatusOr<std::optional<DeltaOrigin>> FindDelta(const Value::Map& attributes);

// The path of the file of the model of which this object of a delta, as it is stored, holds what
// differs; empty if it holds another.
std::string DeltaFilePath(const Object& stored);

// The content digest of a source where that takes no reading of its tensors: of a file of 2.0 that
// was opened with as_stored, of a delta that says it. Else empty.
std::string KnownId(const TensorSource& source);

// The name by which a delta calls the base `path`: the last part of it.
std::string BaseName(std::string_view path);

// "NAME (sha256:...)", for messages.
std::string Described(const std::string& name, const std::string& id);

// The model of which `delta`, as OpenZt gives it, has the differences from `base`. Names, types and
// shapes of the base are compared here, and its id if both are known. Each chunk is compared with its
// digest before it is served. `base_path` is for messages. kInvalidArgument if it is another base.
// Without a base (null) UpdateFromDelta alone gets at what is made of it.
StatusOr<std::unique_ptr<TensorSource>> OpenDelta(std::unique_ptr<TensorSource> delta,
                                                  const DeltaOrigin& origin,
                                                  std::unique_ptr<TensorSource> base,
                                                  const std::string& base_path);

// A range of a component, and the memory of its bytes.
struct MemoryRange {
  ComponentId id;
  std::uint64_t offset = 0;
  std::span<std::byte> out;
};
// What is done with a range, or a part of one that is cut by preferred_read.
using RangeStep = std::function<Status(ComponentId id, std::uint64_t offset, std::span<std::byte>)>;
// Does it with each of them, on several threads for example.
using RangeRun = std::function<Status(std::span<const MemoryRange>, const RangeStep&)>;
// Makes ranges of `model` in memory that holds the same ranges of the base. The digest of each chunk
// is compared, before anything is changed; chunks that hold neither version are read with the base.
// kInvalidArgument if it is in memory alone; but of whole components that the delta ties, one that
// holds a version is enough. Of other sources, and of what is no difference, as TensorSource::Read.
Status UpdateFromDelta(TensorSource& model, std::span<const MemoryRange> ranges,
                       const RangeRun& run);

// What is wrong with an object, of a file of differences that was opened as it is stored.
struct DeltaProblem {
  std::string object, message;
};
// Checks the structure of all objects of a delta, and decodes their frames. Needs no base.
StatusOr<std::vector<DeltaProblem>> CheckDeltas(TensorSource& delta);

// A stage of a writer of `model`, of OpenDelta: compares the digests that the delta states of whole
// components, which readers of ranges do not.
std::shared_ptr<Stage> CheckDigests(const TensorSource& model, const Plan& plan);

// How a checkpoint is changed where it lies.
struct ApplyOptions {
  unsigned threads = 0;                          // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;                // see MemoryFor
  const std::atomic<bool>* cancelled = nullptr;  // may be null
  std::function<void(std::uint64_t bytes, std::uint64_t total)> progress = {};  // of reading
};
// What was changed.
struct Applied {
  std::uint64_t tensors = 0, files = 0;    // that changed; files of the model
  std::uint64_t bytes = 0;                 // that the journal had for them
  std::vector<std::string> warnings = {};  // what the checkpoint lacks of the model
};
// Goes on with an ApplyInPlace that was interrupted; false if none was. Errors name the file.
StatusOr<bool> FinishJournal(const std::string& path);
// Changes the checkpoint at `path`, a safetensors file, a folder of them or a raw .zt file, to
// `model`: OpenDelta without a base. All is read and checked, as by UpdateFromDelta, and written to a
// journal (JournalOf), before a byte is changed. kUnimplemented, and nothing is changed, if tensors
// come, go or change their shape, or do not lie raw in files of their own. `checkpoint` was opened with
// as_stored. Errors name the file.
StatusOr<Applied> ApplyInPlace(const std::string& path, TensorSource& checkpoint,
                               TensorSource& model, const ApplyOptions& options);

// How the objects of a plan are stored as differences.
struct DeltaCounts {
  std::uint64_t differing = 0;            // stored as differences; some may turn out equal
  std::uint64_t differing_tensors = 0;    // of them, those that are no files of the model
  std::uint64_t full = 0;                 // not in the base, or of another shape or type
  std::vector<std::string> removed = {};  // objects of the base that the plan lacks
};

// Turns conversions into those of differences from a base. It must outlive their writers.
class DeltaMaker {
 public:
  // `source` must outlive it. `base` was opened with as_stored. The results' digests are of `kind`,
  // sha256 or xxh3. kUnimplemented if the base can only be read in order.
  static StatusOr<std::unique_ptr<DeltaMaker>> Make(TensorSource& source,
                                                    std::unique_ptr<TensorSource> base,
                                                    const std::string& base_path, DigestKind kind);
  virtual ~DeltaMaker() = default;

  // What a plan of the source becomes.
  virtual DeltaCounts Count(const Plan& plan) const = 0;
  // The files of the base that hold tensors.
  virtual std::vector<std::string> base_files() const = 0;
  // The attribute of the file, as far as it is known before. The caller gives it to the plan.
  virtual Value attribute() const = 0;
  // Changes a plan of the source and the options of its writer, which reads `source()`.
  virtual StatusOr<Plan> Change(const Plan& plan, WriterOptions& options) = 0;
  virtual TensorSource& source() = 0;
  // After the writer's Flush: sets the attribute of the file. `whole`: the plan was all of it, so
  // that ids can be told. Checks that the base did not change meanwhile.
  virtual Status Finish(Writer& writer, bool whole) = 0;
};

}  // namespace zt
