// zt.writer:chain — bodies of the stages.
module;

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status_macros.h"
#include "writer/placement.h"

module zt.writer;

import :chain;
import :chunk;
import :options;
import :plan;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;
import zt.transform;

namespace zt::writer::internal {

bool OnlyShares(const PlannedObject& object) {
  return std::all_of(object.components.begin(), object.components.end(),
                     [](const PlannedComponent& each) { return each.shared_with.has_value(); });
}

std::vector<DataRule> RulesOf(const ComponentState& state) {
  std::vector<DataRule> rules;
  const auto add = [&](const Object& object, std::uint32_t component) {
    const auto rule = RuleOf(object, component, state.declared_bytes);
    if (rule && std::ranges::find(rules, *rule) == rules.end()) rules.push_back(*rule);
  };
  add(*state.object, state.at.component);
  if (state.plan == nullptr) return rules;
  if (const auto held = state.plan->shared.find(state.at); held != state.plan->shared.end()) {
    for (const ComponentId id : held->second.by) {
      add(*state.plan->plan.objects[id.object].object, id.component);
    }
  }
  return rules;
}

Status CheckFit(const NumericCounts& counts, const ElementType& element) {
  const std::string target(Name(element));
  std::string what;
  if (counts.overflow > 0) {
    what = std::to_string(counts.overflow) +
           (counts.overflow == 1 ? " value does not fit " : " values do not fit ") + target;
  }
  if (counts.nan_lost > 0) {
    what += (what.empty() ? "" : ", ") + std::to_string(counts.nan_lost) +
            (counts.nan_lost == 1 ? " NaN has" : " NaN have") + " no counterpart in " + target;
  }
  if (what.empty()) return OkStatus();
  return NumericError(what + "; choose --on-overflow inf or saturate, or another type");
}

Status Piece::Named(const Status& status) const {
  if (status.ok()) return status;
  const Status named = Annotate(status, TensorContext(object->name));
  const std::string_view file =
      state->source == nullptr ? std::string_view() : state->source->file(state->id);
  return file.empty() ? named : Annotate(named, file);
}

namespace {

ComponentState& StateOf(const Piece& piece) { return *piece.state; }

// A step on each piece by itself.
class PieceStage : public StageOf<Batch> {
 public:
  virtual Status ProcessPiece(Piece& piece) = 0;
  Status Process(Batch& batch) override {
    for (Piece& piece : batch.pieces) {
      const Status status = Caught([&] { return ProcessPiece(piece); });
      if (!status.ok()) return piece.Named(status);
    }
    return OkStatus();
  }
};

// A stage of the caller's.
class CustomStage final : public PieceStage {
 public:
  explicit CustomStage(std::shared_ptr<Stage> stage) : stage_(std::move(stage)) {}
  StageOrder order() const override { return stage_->order(); }
  Status ProcessPiece(Piece& piece) override { return stage_->Process(piece); }

 private:
  std::shared_ptr<Stage> stage_;
};

class TransformStage final : public StageOf<Batch> {
 public:
  explicit TransformStage(BufferPool& pool) : pool_(pool) {}
  Status Process(Batch& batch) override {
    std::size_t total = 0;
    for (const Piece& piece : batch.pieces) total += Room(piece);
    if (std::none_of(batch.pieces.begin(), batch.pieces.end(), IsTransformed)) return OkStatus();
    batch.transformed = pool_.Take(total);
    std::span<std::byte> free = batch.transformed.bytes();
    for (Piece& piece : batch.pieces) {
      if (!IsTransformed(piece)) continue;
      const std::span<std::byte> out = free.first(TransformedBytes(piece));
      free = free.subspan(Room(piece));
      const Status status = Caught([&] {
        StateOf(piece).transform->Apply(piece.bytes(), out, piece.counts);
        return OkStatus();
      });
      if (!status.ok()) return piece.Named(status);
      piece.Borrow(out);
    }
    // Where nobody borrows the input any more it goes back before compression asks for more.
    if (std::all_of(batch.pieces.begin(), batch.pieces.end(), IsTransformed)) {
      batch.input = Buffer();
    }
    return OkStatus();
  }

 private:
  static bool IsTransformed(const Piece& piece) { return StateOf(piece).transform != nullptr; }
  static std::size_t TransformedBytes(const Piece& piece) {
    const Transform* transform = StateOf(piece).transform.get();
    if (transform == nullptr) return 0;
    return piece.bytes().size() / transform->input_unit() * transform->output_unit();
  }
  // Each begins at a cache line.
  static std::size_t Room(const Piece& piece) { return (TransformedBytes(piece) + 63) / 64 * 64; }
  BufferPool& pool_;
};

// Looks for what readers would refuse in the bytes of a bool or of a sparse index. The verdict is record's.
class LookStage final : public PieceStage {
 public:
  Status ProcessPiece(Piece& chunk) override {
    for (const DataRule& rule : StateOf(chunk).rules) {
      chunk.facts.emplace_back(rule, chunk.offset).Add(chunk.bytes());
    }
    return OkStatus();
  }
};

class CompressStage final : public StageOf<Batch> {
 public:
  CompressStage(BufferPool& pool, const Codecs& codecs) : pool_(pool), codecs_(codecs) {}
  Status Process(Batch& batch) override {
    std::size_t bound = 0;
    for (const Piece& chunk : batch.pieces) {
      if (Wanted(chunk)) bound += codecs_.Of(StateOf(chunk)).Bound(chunk.bytes().size());
    }
    if (bound == 0) return OkStatus();
    batch.encoded = pool_.Take(bound);
    std::span<std::byte> free = batch.encoded.bytes();
    for (Piece& chunk : batch.pieces) {
      if (!Wanted(chunk)) continue;
      // The wish may have changed since the bound was summed (another chunk of the component was found
      // incompressible); then less room is used, never more.
      const ComponentState& state = StateOf(chunk);
      auto size = codecs_.EncoderOf(state).Encode(codecs_.ParametersOf(state), chunk.bytes(), free);
      if (!size.ok()) return chunk.Named(size.status());
      chunk.encoded = free.first(*size);
      free = free.subspan(*size);
    }
    return OkStatus();
  }

 private:
  // Chunks are compressed before it is known whether the component gains; only once it is known that it does not is
  // the work saved. What is stored does not depend on it.
  static bool Wanted(const Piece& chunk) {
    const ComponentState& state = StateOf(chunk);
    switch (state.storage.compression) {
      case Compression::kNone:
        return false;
      case Compression::kIfGain:
        return !chunk.bytes().empty() && state.choice != ComponentState::kRaw;
      case Compression::kAlways:
        return true;
    }
    return false;
  }
  BufferPool& pool_;
  const Codecs& codecs_;
};

// Decides encoding and offset, in declared order.
class PlaceStage final : public PieceStage {
 public:
  PlaceStage(Placer& placer, const Codecs& codecs, SpecVersion spec)
      : placer_(placer), codecs_(codecs), traits_(Traits(spec)) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status ProcessPiece(Piece& chunk) override {
    ComponentState& state = StateOf(chunk);
    if (chunk.first) {
      state.choice = Gains(chunk, state) ? ComponentState::kEncoded : ComponentState::kRaw;
      const Placer::Gap gap = placer_.Open();
      chunk.padding = gap.padding;
      begin_ = gap.begin;
      content_ = 0;
      frames_.clear();
    }
    if (state.choice == ComponentState::kEncoded) {
      chunk.stored = chunk.encoded;
      frames_.push_back({placer_.end() - begin_, content_,
                         static_cast<std::uint32_t>(chunk.encoded.size()),
                         static_cast<std::uint32_t>(chunk.bytes().size())});
      ZT_RETURN_IF_ERROR(CheckFrames());
      if (chunk.last) chunk.trailer = codecs_.Of(state).Trailer(frames_);
    } else {
      chunk.stored = chunk.bytes();
    }
    content_ += chunk.bytes().size();
    chunk.place = placer_.end();
    placer_.Add(chunk.stored.size() + chunk.trailer.size());
    return OkStatus();
  }

 private:
  bool Gains(const Piece& chunk, const ComponentState& state) const {
    const Compression compression = state.storage.compression;
    if (compression == Compression::kAlways) return true;
    if (compression == Compression::kNone || chunk.bytes().empty()) return false;
    return codecs_.Gains(
        chunk.encoded.size() + (chunk.last ? codecs_.Of(state).TrailerBytes(1) : 0),
        chunk.bytes().size());
  }

  Status CheckFrames() const {
    if (frames_.size() > (1u << 27)) {
      return InvalidArgument("more than 2^27 frames; choose a larger --chunk");
    }
    if (!traits_.equal_frames || frames_.size() == 1) return OkStatus();
    const std::uint32_t first = frames_.front().content_bytes;
    if (frames_[frames_.size() - 2].content_bytes == first &&
        frames_.back().content_bytes <= first) {
      return OkStatus();
    }
    return InvalidArgument("its frames have different sizes, which version " +
                           std::string(traits_.text) +
                           " does not allow: a stage has changed how many bytes a chunk has");
  }

  Placer& placer_;
  const Codecs& codecs_;
  const ContainerTraits& traits_;
  // Of the component under way.
  std::uint64_t begin_ = 0, content_ = 0;
  std::vector<Frame> frames_;
};

// Digests that must see a component's bytes in order. Different components are hashed at once. CRC-32C, which can be
// put together from parts, has a stage of its own. Where digests cover decoded bytes it stands before compression.
class HashStage final : public PieceStage {
 public:
  explicit HashStage(bool decoded) : decoded_(decoded) {}
  StageOrder order() const override { return StageOrder::kInChain; }
  Status ProcessPiece(Piece& chunk) override {
    ComponentState& state = StateOf(chunk);
    const DigestKind kind = *state.storage.digest;
    if (kind == DigestKind::kNone || kind == DigestKind::kCrc32c) return OkStatus();
    if (chunk.first) state.hasher = MakeHasher(kind);
    state.hasher->Update(decoded_ ? chunk.bytes() : chunk.stored);
    if (!decoded_) state.hasher->Update(chunk.trailer);
    return OkStatus();
  }

 private:
  const bool decoded_;
};

class CrcStage final : public PieceStage {
 public:
  Status ProcessPiece(Piece& chunk) override {
    if (StateOf(chunk).storage.digest == DigestKind::kCrc32c) {
      chunk.crc = Crc32c(chunk.trailer, Crc32c(chunk.stored));
    }
    return OkStatus();
  }
};

// Hands the batch to the sink, with one call unless long gaps divide it: by several workers where the sink can place, in
// order where not.
class WriteStage final : public StageOf<Batch> {
 public:
  explicit WriteStage(Sink& sink) : sink_(sink), place_(sink.can_place()) {}
  StageOrder order() const override {
    return place_ ? StageOrder::kParallel : StageOrder::kInOrder;
  }
  Status Process(Batch& batch) override {
    static constexpr std::array<std::byte, 4096> kZeros{};
    std::vector<std::span<const std::byte>> pieces;
    const auto append = [&pieces](std::span<const std::byte> piece) {
      // Chunks that were read with one call mostly lie one after another here as well.
      if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data()) {
        pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
      } else {
        pieces.push_back(piece);
      }
    };
    const Piece* first = &batch.pieces.front();
    for (const Piece& chunk : batch.pieces) {
      std::uint64_t zeros = chunk.padding;
      // A placed file reads as zero where nothing was written: its first gap, and those that are long, need no bytes.
      if (place_ && (&chunk == first || zeros >= kZeros.size())) {
        if (&chunk != first) {
          ZT_RETURN_IF_ERROR(Write(*first, pieces));
          pieces.clear();
        }
        first = &chunk;
        zeros = 0;
      }
      for (; zeros > 0;) {
        const auto some = std::min<std::uint64_t>(zeros, kZeros.size());
        append(std::span(kZeros).first(some));
        zeros -= some;
      }
      append(chunk.stored);
      if (!chunk.trailer.empty()) append(chunk.trailer);
    }
    return Write(*first, pieces);
  }

 private:
  // Writes pieces that begin with those of `first`.
  Status Write(const Piece& first, Pieces pieces) {
    const Status status =
        Caught([&] { return place_ ? sink_.WriteAt(first.place, pieces) : sink_.Append(pieces); });
    if (status.ok()) return status;
    return Annotate(Annotate(status, TensorContext(first.object->name)), sink_.name());
  }

  Sink& sink_;
  bool place_;
};

// Writes down what was stored, in declared order: an object's entry is complete with its last blob.
class RecordStage final : public PieceStage {
 public:
  RecordStage(Record& record, const Codecs& codecs) : record_(record), codecs_(codecs) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status ProcessPiece(Piece& chunk) override {
    const std::uint64_t bytes = chunk.stored.size() + chunk.trailer.size();
    if (chunk.first) {
      sums_ = {};
      sums_.begin = chunk.place;
    }
    sums_.crc = sums_.stored == 0 ? chunk.crc : Crc32cCombine(sums_.crc, chunk.crc, bytes);
    sums_.stored += bytes;
    sums_.content += chunk.bytes().size();
    sums_.counts.overflow += chunk.counts.overflow;
    sums_.counts.nan_lost += chunk.counts.nan_lost;
    sums_.counts.fraction_lost += chunk.counts.fraction_lost;
    if (sums_.facts.empty()) {
      sums_.facts = std::move(chunk.facts);
    } else {
      for (std::size_t i = 0; i < sums_.facts.size(); ++i) sums_.facts[i].Merge(chunk.facts[i]);
    }
    record_.bytes_done += chunk.input_bytes;
    record_.stored_done += bytes;
    return chunk.last ? Complete(StateOf(chunk), chunk.closing.get()) : OkStatus();
  }

 private:
  // `closing` is the object's declaration where it has changed since it was begun.
  Status Complete(ComponentState& state, const Object* closing) {
    const Component& component = state.object->components[state.at.component];
    if (state.declared_bytes != kUnknownSize && sums_.content != state.declared_bytes) {
      return InvalidArgument("component " + Quote(component.role) + " came out as " +
                             std::to_string(sums_.content) + " bytes, " +
                             std::to_string(state.declared_bytes) + " were declared");
    }
    ZT_RETURN_IF_ERROR(CheckFacts(state));
    Blob blob;
    blob.offset = sums_.begin;
    blob.length = sums_.stored;
    blob.decoded_bytes = sums_.content;
    if (state.choice == ComponentState::kEncoded) {
      blob.encoding = state.storage.encoding;
      blob.parameters = codecs_.ParametersOf(state);
    }
    if (state.storage.digest == DigestKind::kCrc32c) {
      blob.digest = Crc32cText(sums_.crc);
    } else if (state.hasher != nullptr) {
      blob.digest = state.hasher->Finish();
    }
    ZT_RETURN_IF_ERROR(CheckNumbers(state, component.element));
    if (state.plan != nullptr && !state.plan->shared.empty()) {
      const auto shared = state.plan->shared.find(state.at);
      if (shared != state.plan->shared.end()) shared->second.blob = blob;
    }
    if (!begun_) Begin(*state.object);
    if (closing != nullptr) {
      entry_.shape = closing->shape;
      entry_.attributes = closing->attributes;
    }
    Fill(state.at.component, std::move(blob));
    return state.ends_object ? End(state) : OkStatus();
  }

  // Whether the bytes keep the rule of the component, and those of all that share its blob.
  Status CheckFacts(const ComponentState& state) const {
    if (sums_.facts.empty()) return OkStatus();
    ZT_RETURN_IF_ERROR(CheckFacts(state, *state.object, state.at.component));
    if (state.plan == nullptr) return OkStatus();
    const auto shared = state.plan->shared.find(state.at);
    if (shared == state.plan->shared.end()) return OkStatus();
    for (const ComponentId id : shared->second.by) {
      const Object& object = *state.plan->plan.objects[id.object].object;
      if (auto status = CheckFacts(state, object, id.component); !status.ok()) {
        return Annotate(status, TensorContext(object.name) + ", which has the same bytes");
      }
    }
    return OkStatus();
  }

  // Whether they are what component `index` of `object` may have.
  Status CheckFacts(const ComponentState& state, const Object& object, std::uint32_t index) const {
    const auto rule = RuleOf(object, index, state.declared_bytes);
    if (!rule) return OkStatus();
    const auto at = std::ranges::find(state.rules, *rule) - state.rules.begin();
    Status status = sums_.facts[static_cast<std::size_t>(at)].Check(object, CountIndices(object));
    if (state.plan == nullptr || state.plan->of_caller) status = OfCaller(status);
    if (status.ok() || object.components.size() == 1) return status;
    return Annotate(status, "component " + Quote(object.components[index].role));
  }

  Status CheckNumbers(const ComponentState& state, const ElementType& element) {
    const NumericCounts& counts = sums_.counts;
    if (counts.overflow == 0 && counts.nan_lost == 0 && counts.fraction_lost == 0)
      return OkStatus();
    const std::uint64_t values = sums_.content / ByteWidth(element.dtype);
    record_.findings.push_back({state.object->name, counts, values});
    return state.on_overflow == OnOverflow::kError ? CheckFit(counts, element) : OkStatus();
  }

  void Begin(const Object& object) {
    begun_ = true;
    entry_.name = object.name;
    entry_.format = object.format;
    entry_.shape = object.shape;
    entry_.attributes = object.attributes;
    entry_.components.resize(object.components.size());
    for (std::size_t c = 0; c < object.components.size(); ++c) {
      entry_.components[c].role = object.components[c].role;
      entry_.components[c].element = object.components[c].element;
    }
  }

  void Fill(std::uint32_t component, Blob blob) {
    StoredComponent& stored = entry_.components[component];
    stored.offset = blob.offset;
    stored.length = blob.length;
    stored.decoded_bytes = blob.decoded_bytes;
    stored.encoding = blob.encoding;
    stored.parameters = blob.parameters;
    stored.digest = std::move(blob.digest);
  }

  // The object's last blob is known; so is all of those objects that follow and only share blobs.
  Status End(const ComponentState& state) {
    if (state.plan == nullptr) return Add();
    const std::vector<PlannedObject>& objects = state.plan->plan.objects;
    std::size_t i = state.at.object;
    do {
      if (!begun_) Begin(*objects[i].object);
      const auto& components = objects[i].components;
      for (std::uint32_t c = 0; c < components.size(); ++c) {
        if (components[c].shared_with) {
          Fill(c, state.plan->shared.at(*components[c].shared_with).blob);
        }
      }
      ZT_RETURN_IF_ERROR(Add());
      ++i;
    } while (i < objects.size() && OnlyShares(objects[i]));
    return OkStatus();
  }

  Status Add() {
    begun_ = false;
    ++record_.tensors_done;
    return record_.manifest.Add(entry_);
  }

  Record& record_;
  const Codecs& codecs_;
  // Of the component under way.
  struct Sums {
    std::uint64_t begin = 0, stored = 0, content = 0;
    std::uint32_t crc = 0;
    NumericCounts counts;
    std::vector<DataFacts> facts;  // one for each rule of the component
  } sums_;
  StoredObject entry_;  // the object under way; its memory serves one after the other
  bool begun_ = false;
};

// Tells the caller where the run stands, after each batch, in order.
class ReportStage final : public StageOf<Batch> {
 public:
  ReportStage(const Record& record, const std::function<void(const Progress&)>& callback)
      : record_(record), callback_(callback) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Batch&) override {
    Progress progress;
    progress.bytes = record_.bytes_done;
    progress.tensors = record_.tensors_done;
    progress.stored_bytes = record_.stored_done;
    progress.bytes_total = record_.bytes_total;
    progress.tensors_total = record_.tensors_total;
    callback_(progress);
    return OkStatus();
  }

 private:
  const Record& record_;
  const std::function<void(const Progress&)>& callback_;
};

}  // namespace

Status WriteTo(Sink& sink, std::uint64_t place, Pieces pieces) {
  const Status status =
      Caught([&] { return sink.can_place() ? sink.WriteAt(place, pieces) : sink.Append(pieces); });
  return Annotate(status, sink.name());
}

PipelineOf<Batch>::Stages MakeChain(const ChainParts& parts, const WriterOptions& options) {
  PipelineOf<Batch>::Stages chain = {MakeReadStage(parts.pool, true),
                                     MakeReadStage(parts.pool, false),
                                     std::make_shared<TransformStage>(parts.pool)};
  for (const auto& stage : options.stages) chain.push_back(std::make_shared<CustomStage>(stage));
  const bool decoded = Traits(options.spec).digests_decoded;
  chain.push_back(std::make_shared<LookStage>());
  if (Traits(options.spec).unique_indices) {
    chain.push_back(MakeCellsStage(options.memory_bytes));
  }
  if (decoded) chain.push_back(std::make_shared<HashStage>(true));
  chain.push_back(std::make_shared<CompressStage>(parts.pool, parts.codecs));
  chain.push_back(std::make_shared<PlaceStage>(parts.placer, parts.codecs, options.spec));
  if (!decoded) {
    chain.push_back(std::make_shared<HashStage>(false));
    chain.push_back(std::make_shared<CrcStage>());
  }
  chain.push_back(std::make_shared<WriteStage>(parts.sink));
  chain.push_back(std::make_shared<RecordStage>(parts.record, parts.codecs));
  if (options.progress) {
    chain.push_back(std::make_shared<ReportStage>(parts.record, options.progress));
  }
  return chain;
}

}  // namespace zt::writer::internal
