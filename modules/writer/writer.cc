// zt.writer — bodies: cuts components into chunks, keeps the manifest, publishes the file.
module;

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.writer;

import :chain;
import :chunk;
import :feed;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;
import zt.transform;

namespace zt {

using writer::internal::Batch;
using writer::internal::ComponentState;
using writer::internal::Ledger;
using writer::internal::MakeChain;
using writer::internal::Piece;
using writer::internal::PlanState;

namespace {

// Raw bytes travel in pieces that stay in a core's second-level cache between read, checksum and write.
constexpr std::uint64_t kRawChunk = 256 << 10;
// Smaller chunks share a batch of up to this many bytes and this many chunks.
constexpr std::uint64_t kBatchBytes = 256 << 10;
constexpr std::size_t kBatchChunks = 100;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Tells the caller where the run stands, after each batch, in order.
class ReportStage final : public StageOf<Batch> {
 public:
  ReportStage(const std::function<void(const Progress&)>& callback) : callback_(callback) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Batch&) override {
    Progress progress;
    progress.bytes = ledger->bytes_done;
    progress.tensors = ledger->tensors_done;
    progress.stored_bytes = ledger->stored_done;
    progress.bytes_total = bytes_total;
    progress.tensors_total = tensors_total;
    callback_(progress);
    return OkStatus();
  }
  const Ledger* ledger = nullptr;
  std::atomic<std::uint64_t> bytes_total = 0, tensors_total = 0;

 private:
  const std::function<void(const Progress&)>& callback_;
};

}  // namespace

struct Writer::State final : ObjectWriter::Feed {
  explicit State(std::unique_ptr<Sink> destination, WriterOptions writer_options)
      : options(std::move(writer_options)),
        sink(std::move(destination)),
        ledger(Traits(options.spec), *sink, options.zstd, options.min_gain,
               options.memory_bytes / 2) {
    if (options.progress) {
      report = std::make_shared<ReportStage>(options.progress);
      report->ledger = &ledger;
    }
    place = ledger.cursor = ledger.traits.header_magic.size();
    PipelineOptions pipeline_options;
    pipeline_options.threads = options.threads == 0 ? UsableThreads() : options.threads;
    pipeline_options.window_bytes = options.memory_bytes / 2;
    pipeline = std::make_unique<PipelineOf<Batch>>(MakeChain(ledger, options.stages, report),
                                                   pipeline_options);
  }

  WriterOptions options;
  std::unique_ptr<Sink> sink;
  Ledger ledger;
  std::shared_ptr<ReportStage> report;
  std::unique_ptr<PipelineOf<Batch>> pipeline;  // dropped before what its stages use
  std::unique_ptr<Batch> pending;               // small chunks not yet submitted
  std::uint64_t pending_bytes = 0;
  Value::Map attributes;
  // Names taken, and the number of the object each stands for. Names and nodes lie in one piece of memory.
  std::pmr::monotonic_buffer_resource name_memory;
  std::pmr::unordered_map<std::string_view, std::uint32_t> names{&name_memory};
  std::uint32_t objects = 0;  // begun, without aliases
  struct Alias {
    std::string name;
    std::uint32_t of;
  };
  std::vector<Alias> aliases;
  struct InMemory {
    MemorySource source;
    Plan plan;
  };
  std::deque<InMemory> memory;         // of Add, until Flush
  std::optional<std::uint64_t> place;  // end of what was enqueued, where known beforehand
  std::deque<PlanState> plans;         // under way
  using StateBlock = std::array<ComponentState, 32>;
  std::shared_ptr<StateBlock> states;
  std::size_t states_used = 0;
  bool header_written = false;
  bool object_open = false;
  bool finished = false;
  Status failure;
  std::vector<std::byte> manifest;
  std::vector<NumericFinding> findings;
  std::uint64_t file_bytes = 0;

  // Remembers the first failure and drops the output. Where a batch before the one that failed was still under way,
  // it may fail too, and its error is the one that every number of threads reports.
  Status Fail(const Status& status) override {
    if (failure.ok()) {
      pipeline->Fail(status);
      failure = pipeline->Drain();
      sink->Abort();
    }
    return failure;
  }

  Status Usable() const {
    if (!failure.ok()) return failure;
    if (finished) return FailedPrecondition("the writer is finished");
    if (object_open) return FailedPrecondition("an object is still open; call its Finish first");
    return OkStatus();
  }

  // One entry for each component: the default where none is given.
  Status SettleStorage(const Object& object, std::vector<Storage>& storage) const {
    if (storage.empty()) storage.assign(object.components.size(), options.storage);
    if (storage.size() == object.components.size()) {
      for (std::size_t c = 0; c < storage.size(); ++c) {
        storage[c] = writer::internal::Settled(object, c, storage[c]);
        if (storage[c].compression != Compression::kNone &&
            storage[c].encoding == Encoding::kPlanes) {
          ZT_RETURN_IF_ERROR(AnnotateTensor(
              CheckExpressible(object, Encoding::kPlanes, Name(storage[c].digest), options.spec),
              object.name));
        }
      }
      return OkStatus();
    }
    return InvalidArgument(TensorContext(object.name) + ": storage is given for " +
                           std::to_string(storage.size()) + " of " +
                           std::to_string(object.components.size()) + " components");
  }

  Status WriteHeader() {
    if (header_written) return OkStatus();
    header_written = true;
    const std::array pieces = {Bytes(ledger.traits.header_magic)};
    return Annotate(ledger.Write(0, pieces), sink->name());
  }

  Status SubmitPending() {
    if (pending == nullptr) return OkStatus();
    pending_bytes = 0;
    pending->continues = !pending->pieces.front().first;
    return pipeline->Submit(std::move(pending));
  }

  // The most memory a chunk holds at once, given its bytes before and after the transform.
  std::uint64_t Weight(const ComponentState& state, std::uint64_t in, std::uint64_t out) const {
    std::uint64_t weight = in;
    if (state.transform != nullptr || !options.stages.empty()) weight += out;
    if (state.storage.compression != Compression::kNone) {
      weight += ledger.CodecOf(state).Bound(out);
    }
    return weight;
  }

  Status Enqueue(Piece chunk, std::uint64_t weight, std::uint64_t bytes) {
    ZT_RETURN_IF_ERROR(WriteHeader());
    if (pending != nullptr &&
        (pending_bytes + bytes > kBatchBytes || pending->pieces.size() >= kBatchChunks)) {
      ZT_RETURN_IF_ERROR(SubmitPending());
    }
    if (pending == nullptr) pending = std::make_unique<Batch>();
    chunk.pool = &ledger.pool;
    pending->pieces.push_back(std::move(chunk));
    pending->weight += weight;
    pending_bytes += bytes;
    return pending_bytes >= kBatchBytes ? SubmitPending() : OkStatus();
  }

  // Bytes of content a chunk of this component holds: whole units of its transform.
  std::uint64_t ContentOfChunk(const ComponentState& state) const {
    std::uint64_t wanted =
        state.storage.compression == Compression::kNone ? kRawChunk : options.zstd.frame_bytes;
    if (state.storage.compression == Compression::kNone && state.source != nullptr) {
      wanted = std::max(wanted, state.source->preferred_read(state.id));
    }
    if (state.storage.compression != Compression::kNone) {
      const std::uint64_t chunk = ledger.ParametersOf(state).chunk;
      if (chunk != 0) wanted = chunk;
    }
    const std::uint64_t unit =
        state.transform == nullptr
            ? ByteWidth(state.object->components[state.at.component].element.dtype)
            : state.transform->output_unit();
    return std::max(unit, wanted / unit * unit);
  }

  // What an ObjectWriter asks for.
  const Status& Failure() const override { return failure; }
  Buffer Room(const ComponentState& state) override {
    return ledger.pool.Take(ContentOfChunk(state));
  }
  Status Send(Piece chunk) override {
    const std::uint64_t bytes = chunk.input_bytes;
    const ComponentState& state = *chunk.state;
    return Enqueue(std::move(chunk), Weight(state, bytes, bytes), bytes);
  }
  void Close() override { object_open = false; }

  // Where the next raw component will begin, as long as all before it are raw and of known size.
  std::optional<std::uint64_t> NextPlace(const ComponentState& state) {
    if (!place || state.storage.compression != Compression::kNone ||
        state.declared_bytes == kUnknownSize) {
      place.reset();
      return std::nullopt;
    }
    const std::uint64_t begin = ledger.BeginAfter(*place);
    place = begin + state.declared_bytes;
    return begin;
  }

  // Content of the first chunk: as much as makes the ones after it begin at multiples of their size in the output.
  // A file system handles such writes in whole pages (measured on ext4: 8 % less time).
  std::uint64_t ContentOfFirstChunk(const ComponentState& state, std::uint64_t content) {
    const std::optional<std::uint64_t> begin = NextPlace(state);
    if (!begin || (state.source != nullptr && state.source->preferred_read(state.id) != 0)) {
      return content;
    }
    const std::uint64_t unit = state.transform == nullptr ? 1 : state.transform->output_unit();
    const std::uint64_t first = (content - *begin % content) / unit * unit;
    return first == 0 ? content : first;
  }

  // Cuts a component of known size into chunks.
  Status EnqueueComponent(const std::shared_ptr<ComponentState>& state, std::uint64_t input_bytes) {
    const std::uint64_t in_unit = state->transform == nullptr ? 1 : state->transform->input_unit();
    const std::uint64_t out_unit =
        state->transform == nullptr ? 1 : state->transform->output_unit();
    const std::uint64_t content = ContentOfChunk(*state);
    std::uint64_t step = ContentOfFirstChunk(*state, content) / out_unit * in_unit;
    std::uint64_t at = 0;
    do {
      Piece chunk;
      chunk.object = state->object.get();
      chunk.component = state->at.component;
      chunk.state = state;
      chunk.input_offset = at;
      chunk.input_bytes = std::min(step, input_bytes - at);
      step = content / out_unit * in_unit;
      chunk.offset = at / in_unit * out_unit;
      chunk.first = at == 0;
      at += chunk.input_bytes;
      chunk.last = at == input_bytes;
      const std::uint64_t in = chunk.input_bytes;
      ZT_RETURN_IF_ERROR(
          Enqueue(std::move(chunk), Weight(*state, in, in / in_unit * out_unit), in));
    } while (at < input_bytes);
    return OkStatus();
  }

  // A component's state, in memory shared with those around it: it lives as long as one of them is under way.
  std::shared_ptr<ComponentState> NewState() override {
    if (states == nullptr || states_used == states->size()) {
      states = std::make_shared<StateBlock>();
      states_used = 0;
    }
    return {states, &(*states)[states_used++]};
  }

  // Takes a name for object number `of`.
  Status AddName(std::string_view name, std::uint32_t of) {
    auto* const kept = static_cast<char*>(name_memory.allocate(name.size(), 1));
    std::copy(name.begin(), name.end(), kept);
    if (names.try_emplace(std::string_view(kept, name.size()), of).second) return OkStatus();
    return InvalidArgument(TensorContext(name) + ": the name was added before");
  }

  Status AddPlanned(TensorSource& source, const Plan& plan) {
    if (report != nullptr) {
      report->bytes_total += plan.input_bytes(source);
      report->tensors_total += plan.objects.size();
    }
    PlanState& run = plans.emplace_back(plan);
    ZT_RETURN_IF_ERROR(NoteShared(run));
    // All names at once: between copies of data the table would not stay in the cache.
    if (plan.objects.size() > names.size()) names.reserve(names.size() + plan.objects.size());
    for (const PlannedObject& planned : plan.objects) {
      ZT_RETURN_IF_ERROR(AddName(planned.object->name, objects++));
    }
    for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
      const PlannedObject& planned = plan.objects[i];
      std::uint32_t end = static_cast<std::uint32_t>(planned.components.size());
      while (end > 0 && planned.components[end - 1].shared_with) --end;
      for (std::uint32_t c = 0; c < end; ++c) {
        const PlannedComponent& component = planned.components[c];
        if (component.shared_with) continue;
        const std::shared_ptr<ComponentState> state = NewState();
        state->object = planned.object;
        state->plan = &run;
        state->at = {i, c};
        state->declared_bytes = planned.object->components[c].bytes;
        state->storage = writer::internal::Settled(
            *planned.object, c, component.storage,
            component.transform == nullptr ? 1 : component.transform->output_unit());
        state->on_overflow = plan.on_overflow;
        state->source = &source;
        state->id = component.source;
        state->sequential = source.sequential(component.source);
        state->transform = component.transform;
        state->ends_object = c + 1 == end;
        ZT_RETURN_IF_ERROR(EnqueueComponent(
            state, source.objects()[state->id.object].components[state->id.component].bytes));
      }
    }
    return OkStatus();
  }

  // Notes which blobs of the plan others share.
  static Status NoteShared(PlanState& run) {
    const std::vector<PlannedObject>& objects = run.plan.objects;
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      const std::vector<PlannedComponent>& components = objects[i].components;
      for (std::uint32_t c = 0; c < components.size(); ++c) {
        const auto& with = components[c].shared_with;
        if (!with) continue;
        if (!(*with < ComponentId{i, c}) ||
            objects[with->object].components[with->component].shared_with) {
          return InvalidArgument(TensorContext(objects[i].object->name) +
                                 ": the plan has it share the blob of a component that has none");
        }
        run.shared.try_emplace(*with);
      }
    }
    return OkStatus();
  }

  Status FlushAll() {
    ZT_RETURN_IF_ERROR(SubmitPending());
    ZT_RETURN_IF_ERROR(pipeline->Drain());
    findings.clear();
    for (const auto& finding : ledger.findings)
      findings.push_back({finding.tensor, finding.counts});
    plans.clear();
    memory.clear();
    return OkStatus();
  }

  Status Publish() {
    ZT_RETURN_IF_ERROR(FlushAll());
    ZT_RETURN_IF_ERROR(WriteHeader());
    for (Alias& alias : aliases) ledger.manifest.AddAlias(std::move(alias.name), alias.of);
    ZT_ASSIGN_OR_RETURN(manifest, ledger.manifest.Finish(attributes));
    const std::vector<std::byte> footer = EncodeFooter(manifest.size(), options.spec);
    const std::array<std::span<const std::byte>, 2> pieces = {manifest, footer};
    ZT_RETURN_IF_ERROR(Annotate(ledger.Write(ledger.cursor, pieces), sink->name()));
    file_bytes = ledger.cursor + manifest.size() + footer.size();
    return Annotate(sink->Finish(file_bytes), sink->name());
  }
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Writer::~Writer() {
  if (!state_->finished && state_->failure.ok()) {
    Cancel(Cancelled("the writer was dropped before Finish"));
    (void)state_->Fail(Cancelled("the writer was dropped before Finish"));
  }
}

StatusOr<std::unique_ptr<Writer>> Writer::Create(std::unique_ptr<Sink> sink,
                                                 WriterOptions options) {
  if (!Traits(options.spec).writable) {
    return InvalidArgument("version " + std::string(Traits(options.spec).text) +
                           " cannot be written");
  }
  ZT_RETURN_IF_ERROR(Validate(options.zstd));
  return std::unique_ptr<Writer>(
      new Writer(std::make_unique<State>(std::move(sink), std::move(options))));
}

namespace {

// Sets every member of `from` in `into`, in one pass: a file may have a hundred thousand.
void MergeAttributes(const Value::Map& from, Value::Map& into) {
  into.reserve(into.size() + from.size());  // so that keys stay where they are
  std::unordered_map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < into.size(); ++i) place.emplace(into[i].first, i);
  for (const auto& [key, value] : from) {
    if (const auto held = place.find(key); held != place.end()) {
      into[held->second].second = value;
    } else {
      into.emplace_back(key, value);
      place.emplace(into.back().first, into.size() - 1);
    }
  }
}

}  // namespace

void Writer::SetAttribute(std::string_view key, Value value) {
  SetMember(state_->attributes, key, std::move(value));
}

Status Writer::AddSource(TensorSource& source, const Plan& plan) {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  if (plan.spec != s.options.spec) {
    return s.Fail(InvalidArgument("the plan is for version " + std::string(Traits(plan.spec).text) +
                                  ", the writer writes " + std::string(s.ledger.traits.text)));
  }
  MergeAttributes(plan.attributes, s.attributes);
  // What is certain not to fit should fail before hours of work; what compresses may come out smaller.
  const auto wanted = CheckedAdd(s.ledger.cursor, plan.output_bytes());
  bool compressed = false;
  for (const PlannedObject& object : plan.objects) {
    for (const auto& c : object.components)
      compressed |= c.storage.compression != Compression::kNone;
  }
  if (wanted && !compressed)
    ZT_RETURN_IF_ERROR(s.Check(Annotate(s.sink->Reserve(*wanted), s.sink->name())));
  ZT_RETURN_IF_ERROR(s.Check(s.AddPlanned(source, plan)));
  if (!source.seekable()) {
    // Only the end tells whether a pipe held what it promised.
    ZT_RETURN_IF_ERROR(s.Check(s.FlushAll()));
  }
  return OkStatus();
}

Status Writer::Add(Object object, std::vector<std::span<const std::byte>> components,
                   std::vector<Storage> storage) {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  ZT_RETURN_IF_ERROR(s.Check(s.SettleStorage(object, storage)));
  auto& [source, plan] = s.memory.emplace_back();
  ZT_RETURN_IF_ERROR(s.Check(source.Add(std::move(object), std::move(components))));
  PlanOptions options;
  options.spec = s.options.spec;
  auto made = MakePlan(source, options);
  if (!made.ok()) return s.Fail(made.status());
  plan = *std::move(made);
  std::vector<PlannedComponent>& planned = plan.objects[0].components;
  for (std::size_t c = 0; c < planned.size(); ++c) {
    planned[c].storage = storage[c];
    // The same bytes twice in one object share a blob only where they are to be stored alike.
    auto& shared = planned[c].shared_with;
    if (shared && storage[shared->component] != storage[c]) shared.reset();
  }
  return s.Check(s.AddPlanned(source, plan));
}

Status Writer::Add(const std::string& name, Shape shape, ElementType element,
                   std::span<const std::byte> bytes) {
  auto object = DenseObject(name, std::move(shape), std::move(element));
  if (!object.ok()) return state_->Fail(Annotate(object.status(), TensorContext(name)));
  return Add(*std::move(object), {bytes});
}

Status Writer::AddAlias(std::string name, std::string_view of) {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  const auto held = s.names.find(of);
  if (held == s.names.end()) {
    return s.Fail(InvalidArgument(TensorContext(name) + ": there is no " + TensorContext(of)));
  }
  if (!IsUtf8(name)) {
    return s.Fail(InvalidArgument("the name " + Quote(name) + " is not valid UTF-8"));
  }
  const std::uint32_t object = held->second;
  ZT_RETURN_IF_ERROR(s.Check(s.AddName(name, object)));
  s.aliases.push_back({std::move(name), object});
  return OkStatus();
}

Status Writer::Flush() {
  ZT_RETURN_IF_ERROR(state_->Usable());
  return state_->Check(state_->FlushAll());
}

Status Writer::Finish() {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  s.finished = true;
  return s.Check(s.Publish());
}

void Writer::Cancel(const Status& status) { state_->pipeline->Cancel(status); }

const std::vector<NumericFinding>& Writer::numeric_findings() const { return state_->findings; }
StatusOr<Manifest> Writer::manifest() const {
  return DecodeManifest(state_->manifest, state_->options.spec);
}
std::uint64_t Writer::file_bytes() const { return state_->file_bytes; }

StatusOr<std::unique_ptr<ObjectWriter>> Writer::Begin(Object object, std::vector<Storage> storage) {
  State& s = *state_;
  ZT_RETURN_IF_ERROR(s.Usable());
  ZT_RETURN_IF_ERROR(s.Check(s.SettleStorage(object, storage)));
  ZT_RETURN_IF_ERROR(s.Check(Annotate(ValidateObject(object), TensorContext(object.name))));
  for (const Storage& each : storage) {
    const Encoding encoding =
        each.compression == Compression::kNone ? Encoding::kRaw : each.encoding;
    ZT_RETURN_IF_ERROR(
        s.Check(Annotate(CheckExpressible(object, encoding, Name(each.digest), s.options.spec),
                         TensorContext(object.name))));
  }
  ZT_RETURN_IF_ERROR(s.Check(s.AddName(object.name, s.objects++)));
  auto state = std::make_unique<ObjectWriter::State>(s, std::move(storage), std::move(object));
  s.object_open = true;
  s.place.reset();
  return std::unique_ptr<ObjectWriter>(new ObjectWriter(std::move(state)));
}

}  // namespace zt
