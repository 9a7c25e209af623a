// zt.writer — implementation: validates a caller's requests and passes them to the engine.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.writer;

import zt.std;
import :chain;
import :engine;
import :object;
import :options;
import :plan;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;

namespace zt {

using writer::internal::Engine;
using writer::internal::ResolvedStorage;

namespace {

constexpr std::uint64_t kMaxAlignment = 16 << 20;

// Sets every member of `from` in `into`, in linear time: a file may have a hundred thousand.
void MergeAttributes(const Value::Map& from, Value::Map& into) {
  into.reserve(into.size() + from.size());  // so that keys stay where they are
  std::unordered_map<std::string_view, std::size_t, zt::internal::NameHash> place;
  for (std::size_t i = 0; i < into.size(); ++i) place.emplace(into[i].first, i);
  for (const auto& [key, value] : from) {
    if (const auto found = place.find(key); found != place.end()) {
      into[found->second].second = value;
    } else {
      into.emplace_back(key, value);
      place.emplace(into.back().first, into.size() - 1);
    }
  }
}

// Checks the options by the version's rules.
Status CheckForVersion(const WriterOptions& options) {
  const ContainerTraits& traits = Traits(options.spec);
  const std::string version = "version " + std::string(traits.text);
  if (options.alignment % traits.alignment != 0 || options.alignment > kMaxAlignment) {
    return InvalidArgument("the alignment " + std::to_string(options.alignment) +
                           " is not a multiple of " + std::to_string(traits.alignment) +
                           " up to 16 MiB, as " + version + " needs");
  }
  if (options.zstd.frame_bytes > traits.max_frame_bytes) {
    return WithAdvice(InvalidArgument("frames of " + std::to_string(options.zstd.frame_bytes) +
                                      " bytes of content are larger than the " +
                                      std::to_string(traits.max_frame_bytes) + " that " + version +
                                      " allows; choose smaller ones"),
                      Advice::kFrames);
  }
  return OkStatus();
}

}  // namespace

Status Validate(const WriterOptions& options) {
  for (const std::shared_ptr<Stage>& stage : options.stages) {
    if (stage == nullptr) return InvalidArgument("one of the writer's stages is null");
  }
  if (!Traits(options.spec).writable) {
    return InvalidArgument("version " + std::string(Traits(options.spec).text) +
                           " cannot be written");
  }
  ZT_RETURN_IF_ERROR(Validate(options.zstd));
  ZT_RETURN_IF_ERROR(CheckForVersion(options));
  if (options.storage.compression == Compression::kNone &&
      options.storage.encoding != Storage().encoding) {
    return InvalidArgument(
        "storage has an encoding and no compression, which is kIfGain or "
        "kAlways");
  }
  if (!std::isfinite(options.min_gain) || options.min_gain > 1) {
    return InvalidArgument("min_gain is " + std::to_string(options.min_gain) +
                           ", not a number up to 1");
  }
  if (options.threads > kMaxThreads) {
    return InvalidArgument("threads is " + std::to_string(options.threads) + ", more than " +
                           std::to_string(kMaxThreads));
  }
  return OkStatus();
}

struct Writer::State {
  State(std::unique_ptr<Sink> sink, WriterOptions options)
      : engine(std::move(sink), std::move(options)) {}

  // The arguments of Add; freed when their last chunk is written.
  struct InMemory {
    MemorySource source;
    Plan plan;
    std::shared_ptr<const void> kept;  // owner of the bytes, if the writer keeps them
  };
  Value::Map attributes;
  std::uint64_t kept_bytes = 0;  // bytes kept by the writer until Flush
  bool finished = false;
  Engine engine;

  Status Usable() const {
    if (!engine.failure().ok()) return engine.failure();
    if (finished) return FailedPrecondition("the writer is finished");
    if (engine.is_open()) {
      return FailedPrecondition("an object is still open; call its Finish first");
    }
    return OkStatus();
  }

  // Runs a caller's request if the writer is usable. An error fails the writer.
  template <class Call>
  Status Do(const Call& call) {
    ZT_RETURN_IF_ERROR(Usable());
    return engine.Guarded([&] { return engine.Check(call()); });
  }

  // Makes sure that there is one entry for each component; fills in the default if none is given.
  Status FillStorage(const Object& object, std::vector<Storage>& storage) const {
    if (storage.empty()) storage.assign(object.components.size(), engine.options.storage);
    if (storage.size() == object.components.size()) return OkStatus();
    return WithTensor(
        InvalidArgument("storage is given for " + std::to_string(storage.size()) + " of " +
                        std::to_string(object.components.size()) + " components"),
        object.name);
  }

  Status AddSource(TensorSource& source, const Plan& plan) {
    ZT_ASSIGN_OR_RETURN(const writer::internal::PlanSums sums, engine.CheckPlan(source, plan));
    MergeAttributes(plan.attributes, attributes);
    ZT_RETURN_IF_ERROR(engine.Reserve(sums));
    engine.RegisterForFinish(source, plan);
    engine.Announce(source, plan);
    ZT_RETURN_IF_ERROR(engine.AddPlanned(source, plan, sums, nullptr));
    // Only at the end is it known whether a pipe held as many bytes as declared.
    return source.seekable() ? OkStatus() : Flush();
  }

  Status Add(Object object, std::vector<std::span<const std::byte>> components,
             std::vector<Storage> storage, std::shared_ptr<const void> kept) {
    ZT_RETURN_IF_ERROR(FillStorage(object, storage));
    const auto memory = std::make_shared<InMemory>();
    memory->kept = std::move(kept);
    MemorySource& source = memory->source;
    ZT_RETURN_IF_ERROR(source.Add(std::move(object), std::move(components)));
    const Object& declared = source.objects()[0];
    ZT_RETURN_IF_ERROR(WithTensor(writer::internal::CheckFormat(declared, true), declared.name));
    PlanOptions options;
    options.spec = engine.options.spec;
    options.storage.digest = storage.empty() ? std::nullopt : storage.front().digest;
    ZT_ASSIGN_OR_RETURN(memory->plan, MakePlan(source, options));
    ZT_RETURN_IF_ERROR(WithTensor(SetStorage(memory->plan.objects[0], storage), declared.name));
    ZT_ASSIGN_OR_RETURN(const writer::internal::PlanSums sums,
                        engine.CheckPlan(source, memory->plan));
    return engine.AddPlanned(source, memory->plan, sums, memory);
  }

  // Sets the requested storage of each component, in place of raw.
  Status SetStorage(PlannedObject& planned, std::span<const Storage> storage) const {
    for (std::size_t c = 0; c < storage.size(); ++c) {
      planned.components[c].storage = storage[c];
      // Equal bytes in one object share a blob only if they are stored alike.
      auto& shared = planned.components[c].shared_with;
      if (shared && storage[shared->component] != storage[c]) shared.reset();
      if (storage[c].compression == Compression::kNone && storage[c].digest == storage[0].digest) {
        continue;
      }
      ZT_ASSIGN_OR_RETURN(const ResolvedStorage resolved,
                          engine.Resolve(*planned.object, c, storage[c]));
      ZT_RETURN_IF_ERROR(CheckExpressible(*planned.object, resolved.encoding, Name(resolved.digest),
                                          engine.options.spec));
    }
    return OkStatus();
  }

  Status AddDense(const std::string& name, Shape shape, ElementType element,
                  std::span<const std::byte> bytes, std::shared_ptr<const void> kept) {
    auto object = DenseObject(name, std::move(shape), std::move(element));
    if (!object.ok()) return WithTensor(AsInvalidArgument(object.status()), name);
    return Add(*std::move(object), {bytes}, {}, std::move(kept));
  }

  // Resolves how each component of an object is stored, validates the object and takes its name.
  StatusOr<std::vector<ResolvedStorage>> Declare(const Object& object,
                                                 std::vector<Storage> storage) {
    ZT_RETURN_IF_ERROR(FillStorage(object, storage));
    std::vector<ResolvedStorage> resolved;
    for (std::size_t c = 0; c < storage.size(); ++c) {
      ZT_ASSIGN_OR_RETURN(resolved.emplace_back(),
                          WithTensor(engine.Resolve(object, c, storage[c]), object.name));
    }
    ZT_RETURN_IF_ERROR(engine.CheckDeclared(object, resolved, false));
    ZT_RETURN_IF_ERROR(engine.AddName(object.name, engine.objects));
    ZT_RETURN_IF_ERROR(engine.AddPath(object, engine.objects++));
    return resolved;
  }

  Status Flush() {
    kept_bytes = 0;
    return engine.Flush();
  }
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Writer::~Writer() {
  if (!state_->finished && state_->engine.failure().ok()) {
    (void)state_->engine.Guarded([&] {
      const Status dropped = Cancelled("the writer was dropped before Finish");
      state_->engine.Cancel(dropped);
      return state_->engine.Fail(dropped);
    });
  }
}

StatusOr<std::unique_ptr<Writer>> Writer::Create(std::unique_ptr<Sink> sink,
                                                 WriterOptions options) {
  try {
    if (sink == nullptr) return InvalidArgument("a writer needs a sink");
    ZT_RETURN_IF_ERROR(Validate(options));
    // This calls the caller's sink and stages, which may throw.
    const std::string name = sink->name();
    return CatchAsStatus(
        [&]() -> StatusOr<std::unique_ptr<Writer>> {
          return std::unique_ptr<Writer>(
              new Writer(std::make_unique<State>(std::move(sink), std::move(options))));
        },
        [&](const Status& status) { return WithFile(status, name); });
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

void Writer::SetAttribute(std::string_view key, Value value) {
  (void)state_->engine.Guarded([&] {
    SetMember(state_->attributes, key, std::move(value));
    return OkStatus();
  });
}

void Writer::SetAttributes(const Value::Map& attributes) {
  (void)state_->engine.Guarded([&] {
    MergeAttributes(attributes, state_->attributes);
    return OkStatus();
  });
}

Status Writer::AddSource(TensorSource& source, const Plan& plan) {
  return state_->Do([&] { return state_->AddSource(source, plan); });
}

Status Writer::Add(Object object, std::vector<std::span<const std::byte>> components,
                   std::vector<Storage> storage) {
  return state_->Do([&] {
    return state_->Add(std::move(object), std::move(components), std::move(storage), nullptr);
  });
}

Status Writer::Add(const std::string& name, Shape shape, ElementType element,
                   std::span<const std::byte> bytes) {
  return state_->Do(
      [&] { return state_->AddDense(name, std::move(shape), std::move(element), bytes, nullptr); });
}

Status Writer::AddFile(const std::string& path, std::span<const std::byte> bytes, bool executable) {
  return Add(FileObject(path, bytes.size(), executable), {bytes});
}

Status Writer::AddKept(const std::string& name, Shape shape, ElementType element,
                       std::span<const std::byte> bytes, std::shared_ptr<const void> kept) {
  State& s = *state_;
  return s.Do([&]() -> Status {
    ZT_RETURN_IF_ERROR(
        s.AddDense(name, std::move(shape), std::move(element), bytes, std::move(kept)));
    s.kept_bytes += bytes.size();
    return s.kept_bytes > s.engine.options.memory_bytes ? s.Flush() : OkStatus();
  });
}

Status Writer::AddAlias(std::string name, std::string_view of) {
  return state_->Do([&] { return state_->engine.AddAlias(std::move(name), of); });
}

Status Writer::AddShard(const StoredShard& shard, std::vector<StoredObject> objects) {
  return state_->Do([&] { return state_->engine.AddShard(shard, std::move(objects)); });
}

StatusOr<std::unique_ptr<ObjectWriter>> Writer::Begin(Object object, std::vector<Storage> storage) {
  std::unique_ptr<ObjectWriter> made;
  ZT_RETURN_IF_ERROR(state_->Do([&]() -> Status {
    ZT_ASSIGN_OR_RETURN(auto resolved, state_->Declare(object, std::move(storage)));
    made = ObjectWriter::Make(state_->engine, std::move(resolved), std::move(object));
    return OkStatus();
  }));
  return made;
}

Status Writer::Flush() {
  return state_->Do([&] { return state_->Flush(); });
}

Status Writer::Finish() {
  return state_->Do([&] {
    state_->finished = true;
    return state_->engine.Publish(state_->attributes);
  });
}

void Writer::Cancel(const Status& status) { state_->engine.Cancel(status); }

const std::vector<NumericFinding>& Writer::numeric_findings() const {
  return state_->engine.findings();
}
StatusOr<Manifest> Writer::manifest() const {
  return DecodeManifest(manifest_bytes(), state_->engine.options.spec);
}
std::vector<std::byte> Writer::manifest_bytes() const { return state_->engine.manifest().Joined(); }
std::uint64_t Writer::file_bytes() const { return state_->engine.file_bytes(); }

}  // namespace zt
