// zt.writer:engine — the base of Writer and ObjectWriter: cuts, weighs, submits, publishes.
// Internal to the module.
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

// Writes header, manifest and footer, and publishes the output.
class Publisher {
 public:
  Publisher(Sink& sink, SpecVersion spec) : sink_(sink), spec_(spec) {}
  // Writes the header, once.
  Status Begin();
  // Writes the manifest at the place from the placer, and the footer; returns the output's size.
  StatusOr<std::uint64_t> End(Placer& placer, const EncodedManifest& manifest);

 private:
  Sink& sink_;
  const SpecVersion spec_;
  bool begun_ = false;
};

// Checks the format's name and the attributes by rules of the writer, which files by others may
// break. `whole`: all attributes are known. The message does not name the object.
Status CheckFormat(const Object& object, bool whole);

// The totals of a plan.
struct PlanSums {
  std::uint64_t input_bytes = 0, output_bytes = 0;  // as Plan's functions of these names
  std::size_t name_bytes = 0;                       // in Names
  std::size_t components = 0;                       // with aliases
  bool compressed = false;                          // some components may be
  bool shared = false;                              // some blobs are
};

class Engine;

// The part of an ObjectWriter that belongs to the engine; cleared if the engine is destroyed first.
struct OpenObject {
  Engine* engine = nullptr;
  std::shared_ptr<ComponentState> component;
  Buffer buffer;  // bytes of the current chunk
};

class Engine {
 public:
  Engine(std::unique_ptr<Sink> destination, WriterOptions writer_options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The first failure.
  const Status& failure() const { return failure_; }
  // Remembers the first failure and aborts the output. An earlier batch in flight may fail too; its
  // error then wins, so that the error does not depend on the number of threads.
  Status Fail(const Status& status);
  Status Check(const Status& status) { return status.ok() ? status : Fail(status); }
  // Calls `call`; an exception, also std::bad_alloc, becomes the failure.
  template <class Call>
  Status Guarded(const Call& call) {
    try {
      return CatchAsStatus(call, [&](const Status& status) { return Fail(status); });
    } catch (const std::bad_alloc&) {
      return Fail(OutOfMemory());
    }
  }
  // Stops the workers as soon as possible. Thread-safe.
  void Cancel(const Status& status) { pipeline_.Cancel(status); }

  // Validates a plan for this writer and source, and sums it up. One pass does both: a plan of a
  // million objects does not stay in the cache.
  StatusOr<PlanSums> CheckPlan(const TensorSource& source, const Plan& plan) const;
  // Validates an object that a caller declares, and checks that the output's version can express
  // it. `whole`: all its sizes and attributes are known.
  Status CheckDeclared(const Object& object, std::span<const ResolvedStorage> storage,
                       bool whole) const;
  // ResolveStorage with this writer's options.
  StatusOr<ResolvedStorage> Resolve(const Object& object, std::size_t component,
                                    const Storage& wanted,
                                    const Transform* transform = nullptr) const;
  // Adds the names of a plan and submits its chunks. If `owner` is null, source and plan must
  // outlive Flush; else it holds both until their last chunk is written.
  Status AddPlanned(TensorSource& source, const Plan& plan, const PlanSums& sums,
                    std::shared_ptr<const void> owner);
  // Gives the sink the expected size of the output, and checks that it fits.
  Status Reserve(const PlanSums& sums);
  // Tells a remote source which components will be read.
  static void Announce(TensorSource& source, const Plan& plan);
  // Registers the source, so that Flush calls its Finish, or CheckRead if others read it, too.
  void RegisterForFinish(TensorSource& source, const Plan& plan);
  Status AddName(std::string_view name, std::uint32_t object);
  // Notes the path of an object that is a file; passes over others.
  Status AddPath(const Object& object, std::uint32_t index);
  Status AddAlias(std::string name, std::string_view of);
  // Adds objects whose blobs are in another file.
  Status AddShard(const StoredShard& shard, std::vector<StoredObject> stored);
  // Waits until everything is written, and calls Finish of the sources.
  Status Flush();
  // Flush; then writes the manifest and publishes the file.
  Status Publish(const Value::Map& attributes);

  // For an object whose bytes come in pieces; one at a time.
  void Open(OpenObject& object);
  void Close() { open_ = nullptr; }
  bool is_open() const { return open_ != nullptr; }
  // A new component state. States share blocks of memory: a block is freed when none of its states
  // is in use.
  std::shared_ptr<ComponentState> NewState();
  // A buffer for the next chunk of a component with `left` bytes to come, if that is known.
  Buffer Room(const ComponentState& component, std::uint64_t left);
  // Moves the first `filled` bytes to a buffer of that size, if that saves much.
  Buffer Shrink(Buffer buffer, std::size_t filled);
  // Submits a chunk of `bytes` bytes after its transform; `held` is the memory that it brings.
  Status Send(WriterChunk&& chunk, std::uint64_t bytes, std::uint64_t held);

  const WriterOptions options;
  std::uint32_t objects = 0;  // objects begun, without aliases
  const std::vector<NumericFinding>& findings() const { return findings_; }
  const EncodedManifest& manifest() const { return manifest_; }
  std::uint64_t file_bytes() const { return file_bytes_; }

 private:
  using StateBlock = std::array<ComponentState, 32>;
  std::uint64_t ChunkBytes(const ComponentState& component) const;
  CutRule RuleOf(const ComponentState& component) const;
  std::uint64_t Weight(const WriterChunk& chunk, std::uint64_t bytes, std::uint64_t held) const;
  // Decides whether the source's stream is copied whole (`copied`), frame by frame (`kept`), or
  // encoded anew.
  Status KeepFrames(ComponentState& state) const;
  Status EnqueueComponent(const std::shared_ptr<ComponentState>& component,
                          std::uint64_t input_bytes);
  Status AddObject(TensorSource& source, const std::shared_ptr<PlanState>& run,
                   std::uint32_t index);

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
  std::vector<std::shared_ptr<PlanState>> plans_;  // in flight, of sources that outlive Flush
  // Whose Finish or CheckRead is to be called, and the plans of what was read.
  std::vector<std::pair<TensorSource*, std::vector<const Plan*>>> sources_;
  std::shared_ptr<StateBlock> states_;
  std::size_t states_used_ = 0;
  std::uint64_t promised_ = 0;  // the least size of the output, from the plans so far
  OpenObject* open_ = nullptr;
  Status failure_;
  std::vector<NumericFinding> findings_;
  EncodedManifest manifest_;  // its parts point into record_
  std::uint64_t file_bytes_ = 0;
  RangePipeline<Batch> pipeline_;  // destroyed before the members that its stages use
};

}  // namespace zt::writer::internal
