// zt.writer:engine — cuts components into chunks, and submits them to the pipeline.
module;

#include "core/status_macros.h"
#include "writer/names.h"
#include "writer/placement.h"

module zt.writer;

import zt.std;
import :chain;
import :chunk;
import :engine;
import :options;
import :plan;
import zt.compress;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;
import zt.transform;

namespace zt::writer::internal {

namespace {

// Size of a raw chunk: small enough to stay in a core's second-level cache between read, checksum
// and write.
constexpr std::uint64_t kRawChunk = 256 << 10;
// Weight of a chunk that owns the plan and the source of its object.
constexpr std::uint64_t kAddedCost = 1024;
// Approximate size of a component's manifest entry.
constexpr std::uint64_t kEntryBytes = 512;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

WriterOptions WithLimits(WriterOptions options) {
  if (options.share != nullptr) {
    options.threads = options.share->threads;
    options.memory_bytes = options.share->memory_bytes;
  }
  options.memory_bytes = MemoryFor(options.memory_bytes, options.threads);
  return options;
}

RangeOptions OptionsOf(const WriterOptions& options, const Record& record) {
  RangeOptions out = {.threads = options.threads,
                      .memory_bytes = options.memory_bytes,
                      .share = options.share,
                      .cancelled = options.cancelled};
  if (options.progress) {
    out.progress = [&options, &record](std::uint64_t) {
      options.progress({.bytes = record.bytes_done,
                        .bytes_total = record.bytes_total,
                        .tensors = record.tensors_done,
                        .tensors_total = record.tensors_total,
                        .stored_bytes = record.stored_done});
    };
  }
  return out;
}

// Fails if the source cannot provide a planned object.
Status CheckObject(const TensorSource& source, const PlannedObject& planned) {
  if (planned.object == nullptr) {
    return InvalidArgument("the plan has an object without a declaration");
  }
  const auto& declared = planned.object->components;
  const auto wrong = [&](const std::string& what) {
    return WithTensor(InvalidArgument(what), planned.object->name);
  };
  if (declared.empty()) return wrong("the declaration has no component");
  if (planned.components.size() != declared.size()) {
    return wrong("the plan has " + std::to_string(planned.components.size()) +
                 " components, the declaration " + std::to_string(declared.size()));
  }
  for (std::size_t c = 0; c < declared.size(); ++c) {
    const ComponentId id = planned.components[c].source;
    if (id.object >= source.objects().size() ||
        id.component >= source.objects()[id.object].components.size()) {
      return wrong("the plan names a component that the source does not have");
    }
    if (source.objects()[id.object].components[id.component].bytes != kUnknownSize) continue;
    const Status status = wrong("the source does not know the size of component " +
                                Quote(declared[c].role) + "; Writer::Begin takes such bytes");
    return WithFile(status, source.file(id));
  }
  return OkStatus();
}

// Adds the names of the first component's file and of the tensor.
Status NamedBy(const TensorSource& source, const PlannedObject& planned, const Status& status) {
  const ComponentId id = planned.components.empty() ? ComponentId{} : planned.components[0].source;
  return WithFile(WithTensor(status, planned.object->name), source.file(id));
}

// The components that are read for these plans.
std::vector<ComponentId> ReadFor(const std::vector<const Plan*>& plans) {
  std::vector<ComponentId> read;
  for (const Plan* const plan : plans) {
    for (const PlannedObject& object : plan->objects) {
      for (const PlannedComponent& component : object.components) {
        if (!component.shared_with) read.push_back(component.source);
      }
    }
  }
  return read;
}

// True for the name of a custom format, which ends in a slash and a version: "example.growing/1".
bool IsVersionedName(std::string_view format) {
  const std::size_t slash = format.rfind('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < format.size() &&
         format.find_first_not_of("0123456789.", slash + 1) == std::string_view::npos;
}

// True if the writer can cut a component into chunks that are these frames, and the version allows
// them.
bool CanKeep(const EncodedStream& stream, std::span<const Frame> frames, std::size_t width,
             const ContainerTraits& traits) {
  const Codec& codec = *FindCodec(stream.encoding);
  if (frames.front().content_bytes == 0 || !codec.IsBounded(stream.parameters)) return false;
  const std::uint64_t content = frames.front().content_bytes;
  if (content % width != 0 && frames.size() > 1) return false;
  for (const Frame& frame : frames) {
    if (frame.content_bytes == 0 || frame.content_bytes > content) return false;
    if (frame.content_bytes < content && &frame != &frames.back()) return false;
    if (frame.bytes > codec.Bound(frame.content_bytes)) return false;
  }
  StoredComponent stored;
  stored.encoding = stream.encoding;
  stored.parameters = stream.parameters;
  return content <= traits.max_frame_bytes && CheckFrames(stored, traits, frames).ok();
}

// The bytes of a copied stream from `at` to the end of a frame: about kRawChunk, and one frame at
// least, so that a chunk holds whole frames.
std::uint64_t WholeFrames(std::span<const Frame> frames, std::uint64_t at) {
  const auto first = std::ranges::lower_bound(frames, at, {}, &Frame::offset);
  if (first == frames.end()) return kRawChunk;  // the seek table
  const auto end = [](const Frame& frame) { return frame.offset + frame.bytes; };
  const auto after = std::ranges::upper_bound(frames, at + kRawChunk, {}, end);
  return end(after > first ? after[-1] : *first) - at;
}

// Notes which blobs of the plan others share.
Status IndexSharedBlobs(PlanState& run) {
  const std::vector<PlannedObject>& objects = run.plan.objects;
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    const auto& components = objects[i].components;
    for (std::uint32_t c = 0; c < components.size(); ++c) {
      const auto& with = components[c].shared_with;
      if (!with) continue;
      if (!(*with < ComponentId{i, c}) ||
          with->component >= objects[with->object].components.size() ||
          objects[with->object].components[with->component].shared_with) {
        return WithTensor(
            InvalidArgument("the plan shares the blob of a component that has no blob"),
            objects[i].object->name);
      }
      run.shared[*with].by.push_back({i, c});
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckFormat(const Object& object, bool whole) {
  constexpr std::array<std::string_view, 7> kKnown = {
      "dense", "sparse_csr", "sparse_coo", "quantized_group", "sparse", "sparsecoo", "sparsecsr"};
  if (std::find(kKnown.begin(), kKnown.end(), object.format) == kKnown.end() &&
      !IsVersionedName(object.format)) {
    return InvalidArgument("format " + Quote(object.format) +
                           " is not a format of zTensor; the name of another format ends in a "
                           "version, such as 'example.growing/1'");
  }
  if (object.format != "quantized_group" || !whole) return OkStatus();
  for (const std::string_view key : {"bits", "group_size"}) {
    const Value* value = FindMember(object.attributes, key);
    const auto number = value == nullptr ? std::nullopt : value->Number<std::uint64_t>();
    if (!number || *number == 0) {
      return InvalidArgument("quantized_group needs an attribute " + Quote(key) +
                             ", a whole number from 1 up");
    }
  }
  return OkStatus();
}

// ---- publishing ---------------------------------------------------------------------------------

Status Publisher::Begin() {
  if (begun_) return OkStatus();
  begun_ = true;
  PieceList pieces;
  pieces.Add(Bytes(Traits(spec_).header_magic));
  return pieces.WriteTo(sink_, 0);
}

StatusOr<std::uint64_t> Publisher::End(Placer& placer, const EncodedManifest& manifest) {
  ZT_RETURN_IF_ERROR(Begin());
  const std::uint64_t end = placer.end();
  const bool aligned = Traits(spec_).manifest_is_blob;
  const Placer::Gap gap = aligned ? placer.Open() : Placer::Gap{end, 0};
  const std::vector<std::byte> footer = EncodeFooter(gap.begin, manifest.parts, spec_);
  PieceList pieces;
  pieces.AddZeros(gap.padding);
  for (const std::span<const std::byte> part : manifest.parts) pieces.Add(part);
  pieces.Add(footer);
  ZT_RETURN_IF_ERROR(pieces.WriteTo(sink_, end));
  const std::uint64_t total = gap.begin + manifest.bytes + footer.size();
  ZT_RETURN_IF_ERROR(WithFile(CatchAsStatus([&] { return sink_.Finish(total); }), sink_.name()));
  return total;
}

// ---- the engine ---------------------------------------------------------------------------------

Engine::Engine(std::unique_ptr<Sink> destination, WriterOptions writer_options)
    : options(WithLimits(std::move(writer_options))),
      sink_(std::move(destination)),
      pool_(options.memory_bytes / 2),
      codecs_(options.zstd, options.min_gain),
      placer_(Traits(options.spec).header_magic.size(),
              options.alignment != 0 ? options.alignment : Traits(options.spec).placement),
      record_(options.spec),
      publisher_(*sink_, options.spec),
      cutter_(placer_),
      promised_(placer_.end()),
      pipeline_(MakeChain({pool_, codecs_, placer_, *sink_, record_}, options),
                OptionsOf(options, record_)) {}

Engine::~Engine() {
  if (open_ != nullptr) *open_ = OpenObject();
}

Status Engine::Fail(const Status& status) {
  if (failure_.ok()) {
    failure_ = pipeline_.Drain(status);
    sink_->Abort();
  }
  return failure_;
}

Status Engine::AddName(std::string_view name, std::uint32_t object) {
  if (names_.Add(name, object)) return OkStatus();
  return WithTensor(InvalidArgument("the name was added before"), name);
}

Status Engine::AddPath(const Object& object, std::uint32_t index) {
  if (!IsFile(object)) return OkStatus();
  file_objects_.insert(index);
  Status status = CheckFile(object);
  if (status.ok()) status = paths_.Add(FileEntryOf(object, 0).path);
  return WithTensor(AsInvalidArgument(status), object.name);
}

Status Engine::AddAlias(std::string name, std::string_view of) {
  ZT_RETURN_IF_ERROR(WithTensor(CheckName(name, options.spec), name));
  const auto object = names_.Find(of);
  if (!object) return WithTensor(InvalidArgument("there is no " + TensorContext(of)), name);
  if (file_objects_.contains(*object)) {
    return WithTensor(InvalidArgument(TensorContext(of) + " is a file, which has one name"), name);
  }
  ZT_RETURN_IF_ERROR(AddName(name, *object));
  aliases_.push_back({std::move(name), *object});
  return OkStatus();
}

Status Engine::AddShard(const StoredShard& shard, std::vector<StoredObject> stored) {
  ZT_RETURN_IF_ERROR(Flush());  // no stage uses the manifest any more
  ZT_RETURN_IF_ERROR(Annotate(record_.manifest.AddShard(shard), "shard " + Quote(shard.name)));
  ++shards_;
  for (StoredObject& object : stored) {
    for (StoredComponent& component : object.components) component.shard = shards_;
    ZT_RETURN_IF_ERROR(AddName(object.name, objects));
    ZT_RETURN_IF_ERROR(AddPath(Declare(object), objects++));
    ZT_RETURN_IF_ERROR(WithTensor(record_.manifest.Add(object), object.name));
  }
  return OkStatus();
}

Status Engine::Reserve(const PlanSums& sums) {
  // Padding before each blob, and its manifest entry.
  const std::uint64_t around = placer_.alignment() + kEntryBytes;
  const auto most = CheckedAdd(promised_ + sums.name_bytes + sums.components * around,
                               sums.output_bytes + sums.output_bytes / 256);
  if (most) sink_->Expect(*most);
  // Fail before hours of work if the output certainly does not fit. A compressed one may turn out
  // smaller.
  if (sums.compressed) return OkStatus();
  const auto wanted = CheckedAdd(promised_, sums.output_bytes);
  if (!wanted) return OkStatus();
  promised_ = *wanted;
  return WithFile(CatchAsStatus([&] { return sink_->Reserve(promised_); }), sink_->name());
}

void Engine::Announce(TensorSource& source, const Plan& plan) {
  std::vector<ComponentId> components;
  for (const PlannedObject& object : plan.objects) {
    for (const PlannedComponent& component : object.components) {
      if (component.shared_with) continue;
      // If the first component is in a local file, all are: do not scan a plan of a million
      // objects.
      if (components.empty() && !IsUrl(source.file(component.source))) return;
      components.push_back(component.source);
    }
  }
  source.WillRead(components);
}

void Engine::RegisterForFinish(TensorSource& source, const Plan& plan) {
  auto known = std::ranges::find(sources_, &source, &decltype(sources_)::value_type::first);
  if (known == sources_.end()) known = sources_.insert(known, {&source, {}});
  if (options.share != nullptr) known->second.push_back(&plan);
}

// The stream is copied as a whole if its table of frames adds up to the declared size, a digest of
// the stored bytes tells whether it is damaged, the output's digests cover stored bytes too, and no
// rule concerns the content: then its frames are checked, and not decoded. Otherwise each frame is
// copied, and also decoded for rules and digest.
// A stream without a table is encoded anew: only decoding it tells how much it holds.
Status Engine::KeepFrames(ComponentState& state) const {
  const auto stream = state.source->encoded(state.id);
  if (!stream || stream->extent.bytes == nullptr || !options.stages.empty() ||
      stream->encoding != state.storage.encoding) {
    return OkStatus();
  }
  ZT_ASSIGN_OR_RETURN(std::vector<Frame> frames, state.source->Frames(state.id));
  if (frames.empty()) return OkStatus();
  const ContainerTraits& traits = Traits(options.spec);
  if (!traits.digests_decoded && stream->guarded && state.check == nullptr &&
      std::ranges::none_of(frames, [](const Frame& frame) { return frame.bytes == 0; })) {
    state.copied = std::make_unique<const KeptFrames>(KeptFrames{*stream, std::move(frames)});
    state.storage.compression = Compression::kNone;
    state.storage.codec = nullptr;
    return OkStatus();
  }
  const DType dtype = state.object->components[state.at.component].element.dtype;
  if (!CanKeep(*stream, frames, ByteWidth(dtype), traits)) return OkStatus();
  state.storage.compression = Compression::kAlways;
  state.storage.parameters = stream->parameters;
  state.kept = std::make_unique<const KeptFrames>(KeptFrames{*stream, std::move(frames)});
  return OkStatus();
}

// Bytes of content a chunk of this component holds: whole units of its transform.
std::uint64_t Engine::ChunkBytes(const ComponentState& component) const {
  if (component.copied != nullptr) return kRawChunk;
  if (component.kept != nullptr) return component.kept->frames.front().content_bytes;
  const bool raw = component.storage.codec == nullptr;
  const std::uint64_t fixed = component.storage.parameters.frame_content;
  std::uint64_t wanted = raw ? kRawChunk : (fixed != 0 ? fixed : options.zstd.frame_bytes);
  if (raw && component.source != nullptr) {
    std::uint64_t preferred = component.source->preferred_read(component.id);
    const Transform* const transform = component.transform.get();
    if (transform != nullptr && transform->output_unit() < transform->input_unit()) {
      preferred = preferred / transform->input_unit() * transform->output_unit();
    }
    wanted = std::max(wanted, preferred);
  }
  const std::uint64_t unit =
      component.transform == nullptr
          ? ByteWidth(component.object->components[component.at.component].element.dtype)
          : component.transform->output_unit();
  return std::max(unit, wanted / unit * unit);
}

CutRule Engine::RuleOf(const ComponentState& component) const {
  CutRule rule;
  rule.raw = component.storage.codec == nullptr;
  rule.content = ChunkBytes(component);
  if (component.copied != nullptr) {
    rule.bytes = component.copied->stream.extent.length;
    return rule;
  }
  if (component.declared_bytes != kUnknownSize) rule.bytes = component.declared_bytes;
  rule.whole = component.source != nullptr && component.source->preferred_read(component.id) != 0;
  if (component.transform != nullptr) {
    rule.in_unit = component.transform->input_unit();
    rule.out_unit = component.transform->output_unit();
  }
  return rule;
}

Status Engine::EnqueueComponent(const std::shared_ptr<ComponentState>& component,
                                std::uint64_t input_bytes) {
  Cuts cuts = cutter_.Begin(RuleOf(*component), input_bytes);
  while (!cuts.done()) {
    if (component->copied != nullptr) cuts.Take(WholeFrames(component->copied->frames, cuts.at()));
    const Cut cut = cuts.Next();
    WriterChunk chunk;
    chunk.object = component->object.get();
    chunk.component = component->at.component;
    chunk.state = component;
    chunk.input_offset = cut.input_offset;
    chunk.input_bytes = cut.input_bytes;
    chunk.offset = cut.offset;
    chunk.first = cut.first;
    chunk.last = cut.last;
    ZT_RETURN_IF_ERROR(Send(std::move(chunk), cut.bytes, 0));
  }
  return OkStatus();
}

std::shared_ptr<ComponentState> Engine::NewState() {
  if (states_ == nullptr || states_used_ == states_->size()) {
    states_.reset(new StateBlock);  // make_shared would set it to zero first
    states_used_ = 0;
  }
  return {states_, &(*states_)[states_used_++]};
}

StatusOr<PlanSums> Engine::CheckPlan(const TensorSource& source, const Plan& plan) const {
  if (plan.spec != options.spec) {
    return InvalidArgument("the plan is for version " + std::string(Traits(plan.spec).text) +
                           ", the writer writes " + std::string(Traits(options.spec).text));
  }
  PlanSums sums;
  const auto last = static_cast<std::uint32_t>(objects + plan.objects.size());
  for (const PlannedObject& planned : plan.objects) {
    ZT_RETURN_IF_ERROR(CheckObject(source, planned));
    sums.name_bytes += Names::Taken(planned.object->name.size(), last);
    for (std::size_t c = 0; c < planned.components.size(); ++c) {
      const PlannedComponent& component = planned.components[c];
      ++sums.components;
      sums.compressed |= component.storage.compression != Compression::kNone;
      if (component.shared_with) {
        sums.shared = true;
        continue;
      }
      const ComponentId id = component.source;
      sums.input_bytes += source.objects()[id.object].components[id.component].bytes;
      if (const std::uint64_t bytes = planned.object->components[c].bytes; bytes != kUnknownSize) {
        sums.output_bytes += bytes;
      } else {
        sums.compressed = true;  // a stage decides
      }
    }
  }
  return sums;
}

StatusOr<ResolvedStorage> Engine::Resolve(const Object& object, std::size_t component,
                                          const Storage& wanted, const Transform* transform) const {
  return ResolveStorage(object, component, wanted, options.spec, options.zstd.frame_bytes,
                        transform);
}

Status Engine::CheckDeclared(const Object& object, std::span<const ResolvedStorage> storage,
                             bool whole) const {
  const auto check = [&]() -> Status {
    ZT_RETURN_IF_ERROR(AsInvalidArgument(ValidateObject(object)));
    for (const ResolvedStorage& each : storage) {
      ZT_RETURN_IF_ERROR(CheckExpressible(object, each.encoding, Name(each.digest), options.spec));
    }
    return CheckFormat(object, whole);
  };
  return WithTensor(check(), object.name);
}

Status Engine::AddPlanned(TensorSource& source, const Plan& plan, const PlanSums& sums,
                          std::shared_ptr<const void> owner) {
  record_.bytes_total += sums.input_bytes;
  record_.tensors_total += plan.objects.size();
  const auto run = std::make_shared<PlanState>(plan, std::move(owner));
  if (!run->of_caller) plans_.push_back(run);
  if (sums.shared) ZT_RETURN_IF_ERROR(IndexSharedBlobs(*run));
  names_.Expect(plan.objects.size(), sums.name_bytes);
  for (std::size_t i = 0; i < plan.objects.size(); ++i) {
    const std::size_t ahead = i + zt::internal::kNamesAhead;
    if (ahead < plan.objects.size()) names_.Prefetch(plan.objects[ahead].object->name);
    ZT_RETURN_IF_ERROR(AddName(plan.objects[i].object->name, objects));
    ZT_RETURN_IF_ERROR(AddPath(*plan.objects[i].object, objects++));
  }
  for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
    const Status status = CatchAsStatus(
        [&] { return AddObject(source, run, i); },
        [&](const Status& thrown) { return NamedBy(source, plan.objects[i], thrown); });
    ZT_RETURN_IF_ERROR(status);
  }
  return OkStatus();
}

Status Engine::AddObject(TensorSource& source, const std::shared_ptr<PlanState>& run,
                         std::uint32_t index) {
  const PlannedObject& planned = run->plan.objects[index];
  auto end = static_cast<std::uint32_t>(planned.components.size());
  while (end > 0 && planned.components[end - 1].shared_with) --end;
  for (std::uint32_t c = 0; c < end; ++c) {
    const PlannedComponent& component = planned.components[c];
    if (component.shared_with) continue;
    const std::shared_ptr<ComponentState> state = NewState();
    state->object = planned.object;
    state->plan = run.get();
    if (run->of_caller) state->keeps = run;
    state->at = {index, c};
    state->declared_bytes = planned.object->components[c].bytes;
    state->check = MakeCheck(*state, options);
    auto resolved = Resolve(*planned.object, c, component.storage, component.transform.get());
    if (!resolved.ok()) return NamedBy(source, planned, resolved.status());
    state->storage = *std::move(resolved);
    state->source = &source;
    state->id = component.source;
    source.TakeOverflow(state->id);  // of reads before these, as for a canonical file
    state->sequential = source.sequential(component.source);
    state->transform = component.transform;
    state->ends_object = c + 1 == end;
    if (component.storage.compression == Compression::kKeep) {
      ZT_RETURN_IF_ERROR(NamedBy(source, planned, KeepFrames(*state)));
    }
    if (state->sequential && state->copied == nullptr) {
      state->apart = source.unordered_reader(state->id);
      state->sequential = state->apart == nullptr;
    }
    const std::uint64_t bytes =
        source.objects()[state->id.object].components[state->id.component].bytes;
    ZT_RETURN_IF_ERROR(EnqueueComponent(
        state, state->copied != nullptr ? state->copied->stream.extent.length : bytes));
  }
  return OkStatus();
}

Status Engine::Flush() {
  ZT_RETURN_IF_ERROR(pipeline_.Drain());
  findings_ = record_.findings;
  plans_.clear();
  states_ = nullptr;
  for (const auto& [source, plans] : std::exchange(sources_, {})) {
    ZT_RETURN_IF_ERROR(CatchAsStatus([&] {
      return options.share == nullptr ? source->Finish() : source->CheckRead(ReadFor(plans));
    }));
  }
  return OkStatus();
}

Status Engine::Publish(const Value::Map& attributes) {
  ZT_RETURN_IF_ERROR(Flush());
  ZT_RETURN_IF_ERROR(
      WithAdvice(AsInvalidArgument(CheckWeightFiles(attributes, paths_)), Advice::kMetadata));
  ZT_RETURN_IF_ERROR(publisher_.Begin());
  for (Alias& alias : aliases_) record_.manifest.AddAlias(std::move(alias.name), alias.of);
  auto manifest = record_.manifest.Finish(attributes);
  if (!manifest.ok()) return manifest.status();
  manifest_ = *std::move(manifest);
  auto total = publisher_.End(placer_, manifest_);
  if (!total.ok()) return total.status();
  file_bytes_ = *total;
  return OkStatus();
}

// ---- objects whose bytes come in pieces ---------------------------------------------------------

void Engine::Open(OpenObject& object) {
  object.engine = this;
  open_ = &object;
  cutter_.StopPredicting();
}

Buffer Engine::Room(const ComponentState& component, std::uint64_t left) {
  return pool_.Take(std::min(ChunkBytes(component), left));
}

Buffer Engine::Shrink(Buffer buffer, std::size_t filled) {
  if (BufferPool::Capacity(filled) > buffer.capacity() / 2) return buffer;
  Buffer small = pool_.Take(filled);
  if (filled > 0) std::memcpy(small.bytes().data(), buffer.bytes().data(), filled);
  return small;
}

std::uint64_t Engine::Weight(const WriterChunk& chunk, std::uint64_t bytes,
                             std::uint64_t held) const {
  const ComponentState& state = *chunk.state;
  std::uint64_t weight = sizeof(WriterChunk) + (chunk.first ? sizeof(ComponentState) : 0);
  if (chunk.first && chunk.last) weight += EntryBytes(*state.object);
  weight += state.source != nullptr ? chunk.input_bytes : held;
  if (state.transform != nullptr) weight += bytes + 64;
  weight += options.stages.size() * BufferPool::Capacity(bytes);
  if (state.storage.codec != nullptr) weight += state.storage.codec->Bound(bytes);
  if (state.keeps != nullptr) weight += kAddedCost;
  return weight;
}

Status Engine::Send(WriterChunk&& chunk, std::uint64_t bytes, std::uint64_t held) {
  ZT_RETURN_IF_ERROR(publisher_.Begin());
  const bool chained = !options.stages.empty() || IsChained(*chunk.state);
  const RangeCost cost = {.bytes = chunk.input_bytes,
                          .weight = Weight(chunk, bytes, held),
                          .ordered = chunk.state->sequential,
                          .continues = chained && !chunk.first,
                          .continued = chained && !chunk.last};
  chunk.pool = &pool_;
  return pipeline_.Add(std::move(chunk), cost);
}

}  // namespace zt::writer::internal
