// zt.writer:engine — what Writer and ObjectWriter stand on: cuts, weighs, submits, publishes. Internal to the module.
module;

#include "writer/names.h"
#include "writer/placement.h"

module zt.writer:engine;

import zt.std;
import :chain;
import :chunk;
import :options;
import :plan;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;

namespace zt::writer::internal {

// Writes what is no blob: the header before all of them, manifest and footer behind them; and publishes the output.
class Publisher {
 public:
  Publisher(Sink& sink, SpecVersion spec) : sink_(sink), spec_(spec) {}
  // Writes the header, once.
  Status Begin();
  // Ends the output with a manifest, which takes the place that the placer gives it; returns the output's size.
  StatusOr<std::uint64_t> End(Placer& placer, const EncodedManifest& manifest);

 private:
  Sink& sink_;
  const SpecVersion spec_;
  bool begun_ = false;
};

// What the writer asks of a format's name and attributes, and files by others need not keep. With `whole` all attributes
// are known. The message does not name the object.
Status CheckFormat(const Object& object, bool whole);

// What a plan comes to.
struct PlanSums {
  std::uint64_t input_bytes = 0, output_bytes = 0;  // as Plan's functions of these names
  std::size_t name_bytes = 0;                       // that Names takes for its names
  std::size_t components = 0;                       // with aliases
  bool compressed = false;                          // some of it may be
  bool shared = false;                              // some blobs are
  bool sparse = false;                              // some objects are
};

class Engine;

// What an ObjectWriter holds that is the engine's. Where the engine goes first, it is left empty.
struct OpenObject {
  Engine* engine = nullptr;
  std::shared_ptr<ComponentState> component;
  Buffer buffer;  // bytes of the chunk under way
};

class Engine {
 public:
  Engine(std::unique_ptr<Sink> destination, WriterOptions writer_options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The first failure.
  const Status& failure() const { return failure_; }
  // Remembers the first failure and drops the output. Where a batch before it was still under way, that may fail too,
  // and its error is the one that every number of threads reports.
  Status Fail(const Status& status);
  Status Check(const Status& status) { return status.ok() ? status : Fail(status); }
  // Calls; what is thrown, memory that runs out too, is a failure like others.
  template <class Call>
  Status Guarded(const Call& call) {
    try {
      return Caught(call, [&](const Status& status) { return Fail(status); });
    } catch (const std::bad_alloc&) {
      return Fail(OutOfMemory());
    }
  }
  // Stops the workers as soon as possible. Thread-safe.
  void Cancel(const Status& status) { pipeline_.Cancel(status); }

  // Whether the plan is one for this writer and this source, and what it comes to: in one pass, for a plan of a million
  // objects does not stay in the cache.
  StatusOr<PlanSums> CheckPlan(const TensorSource& source, const Plan& plan) const;
  // Whether an object that a caller declares is one, and the output's version can say it. With `whole` all its sizes and
  // attributes are known.
  Status CheckDeclared(const Object& object, std::span<const ResolvedStorage> storage,
                       bool whole) const;
  // ResolveStorage, for this writer.
  StatusOr<ResolvedStorage> Resolve(const Object& object, std::size_t component,
                                    const Storage& wanted,
                                    const Transform* transform = nullptr) const;
  // Notes the names of a plan and submits its chunks. `owner` is null where source and plan stay until Flush; else it
  // holds both, and goes when their last chunk is written.
  Status AddPlanned(TensorSource& source, const Plan& plan, const PlanSums& sums,
                    std::shared_ptr<const void> owner);
  // Tells the sink what the plan comes to at most, and asks it whether it can be that large.
  Status Reserve(const PlanSums& sums);
  // Tells a source that is far away what will be read of it.
  static void Announce(TensorSource& source, const Plan& plan);
  // Has the source's Finish called once all is written.
  void FinishLater(TensorSource& source);
  Status AddName(std::string_view name, std::uint32_t object);
  // Notes the path of an object that is a file; passes over others.
  Status AddPath(const Object& object, std::uint32_t index);
  Status AddAlias(std::string name, std::string_view of);
  // Notes objects that lie in another file.
  Status AddShard(const StoredShard& shard, std::vector<StoredObject> stored);
  // Waits until everything is written, and finishes the sources.
  Status Flush();
  // Flush, and what makes the output a file.
  Status Publish(const Value::Map& attributes);

  // For an object whose bytes come piece by piece; one at a time.
  void Open(OpenObject& object);
  void Close() { open_ = nullptr; }
  bool is_open() const { return open_ != nullptr; }
  // A component's state, in memory shared with those around it: it lives as long as one of them is under way.
  std::shared_ptr<ComponentState> NewState();
  // Memory for a chunk of a component of which `left` bytes are still to come, if that is known.
  Buffer Room(const ComponentState& component, std::uint64_t left);
  // Moves the first `filled` bytes of a buffer to one of their size, where that saves much.
  Buffer Shrink(Buffer buffer, std::size_t filled);
  // Submits a chunk that will hold `bytes` once it is transformed; `held` are those it brings with it.
  Status Send(Piece&& piece, std::uint64_t bytes, std::uint64_t held);

  const WriterOptions options;
  std::uint32_t objects = 0;  // begun, without aliases
  const std::vector<NumericFinding>& findings() const { return findings_; }
  const EncodedManifest& manifest() const { return manifest_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  using StateBlock = std::array<ComponentState, 32>;
  std::uint64_t ContentOfChunk(const ComponentState& component) const;
  CutRule RuleOf(const ComponentState& component) const;
  std::uint64_t Weight(const Piece& piece, std::uint64_t bytes, std::uint64_t held) const;
  // Has the frames of the source copied, as far as that is allowed.
  Status KeepFrames(ComponentState& state) const;
  Status EnqueueComponent(const std::shared_ptr<ComponentState>& component,
                          std::uint64_t input_bytes);
  Status AddObject(TensorSource& source, const std::shared_ptr<PlanState>& run,
                   std::uint32_t index);
  void NoteCells(PlanState& run) const;

  std::unique_ptr<Sink> sink_;
  BufferPool pool_;
  Codecs codecs_;
  Placer placer_;
  Record record_;
  Publisher publisher_;
  Cutter cutter_;
  Names names_;
  FilePaths paths_;
  std::unordered_set<std::uint32_t> file_objects_;
  struct Alias {
    std::string name;
    std::uint32_t of;
  };
  std::vector<Alias> aliases_;
  std::uint32_t shards_ = 0;
  std::vector<std::shared_ptr<PlanState>> plans_;  // under way, of sources that stay until Flush
  std::vector<TensorSource*> sources_;             // to be finished
  std::unordered_set<TensorSource*> known_sources_;
  std::shared_ptr<StateBlock> states_;
  std::size_t states_used_ = 0;
  std::uint64_t promised_ = 0;  // the least the output will have, by the plans that were added
  OpenObject* open_ = nullptr;
  Status failure_;
  std::vector<NumericFinding> findings_;
  EncodedManifest manifest_;  // its parts are the record's
  std::uint64_t file_bytes_ = 0;
  RangePipeline<Batch> pipeline_;  // dropped before what its stages use
};

}  // namespace zt::writer::internal
