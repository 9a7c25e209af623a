// zt.writer:chain — implementation of the stages.
module;

#include "core/status_macros.h"
#include "writer/placement.h"

module zt.writer;

import zt.std;
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

std::optional<DataRule> RuleOf(const Object& object, std::uint32_t component, bool planned) {
  const Component& declared = object.components[component];
  const bool fixed = planned || declared.role == "coords";
  return zt::RuleOf(object, component, fixed ? declared.bytes : kUnknownSize);
}

std::shared_ptr<ContentCheck> MakeCheck(const ComponentState& state, const WriterOptions& options) {
  std::shared_ptr<ContentCheck> check;
  const auto add = [&](const Object& object, std::uint32_t component) {
    const auto rule = RuleOf(object, component, state.plan != nullptr);
    if (!rule) return;
    if (check == nullptr)
      check = std::make_shared<ContentCheck>(options.spec, options.memory_bytes);
    check->Expect(*rule, object);
  };
  add(*state.object, state.at.component);
  if (state.plan == nullptr) return check;
  if (const auto found = state.plan->shared.find(state.at); found != state.plan->shared.end()) {
    for (const ComponentId id : found->second.by) {
      add(*state.plan->plan.objects[id.object].object, id.component);
    }
  }
  return check;
}

namespace {

// The component's digest needs its bytes in order. CRC-32C can be combined from parts.
bool IsHashed(const ComponentState& state) {
  return state.storage.digest != DigestKind::kNone && state.storage.digest != DigestKind::kCrc32c;
}

}  // namespace

bool IsChained(const ComponentState& state) { return state.apart != nullptr || IsHashed(state); }

Status WriterChunk::Named(const Status& status) const {
  if (status.ok()) return status;
  const Status named = WithTensor(status, object->name);
  return state->source == nullptr ? named : WithFile(named, state->source->file(state->id));
}

namespace {

// Passes the bytes that were read to the source's digest, in order; components in parallel.
class CheckStage final : public ChunkStage {
 public:
  StageOrder order() const override { return StageOrder::kInChain; }
  Status ProcessChunk(WriterChunk& chunk) override {
    CheckedApart* const apart = chunk.state->apart.get();
    return apart == nullptr ? OkStatus() : apart->Check(chunk.input_offset, chunk.bytes());
  }
};

// Runs one of the caller's stages.
class CustomStage final : public ChunkStage {
 public:
  explicit CustomStage(std::shared_ptr<Stage> stage) : stage_(std::move(stage)) {}
  StageOrder order() const override { return stage_->order(); }
  Status ProcessChunk(WriterChunk& chunk) override { return stage_->Process(chunk); }

 private:
  std::shared_ptr<Stage> stage_;
};

class TransformStage final : public StageOf<Batch> {
 public:
  explicit TransformStage(BufferPool& pool) : pool_(pool) {}
  Status Process(Batch& batch) override {
    std::size_t total = 0;
    for (const WriterChunk& chunk : batch.ranges) total += Room(chunk);
    if (std::none_of(batch.ranges.begin(), batch.ranges.end(), IsTransformed)) return OkStatus();
    batch.transformed = pool_.Take(total);
    std::span<std::byte> free = batch.transformed.bytes();
    for (WriterChunk& chunk : batch.ranges) {
      if (!IsTransformed(chunk)) continue;
      const std::span<std::byte> out = free.first(TransformedBytes(chunk));
      free = free.subspan(Room(chunk));
      const Status status = CatchAsStatus([&] {
        chunk.state->transform->Apply(chunk.bytes(), out, chunk.counts);
        return OkStatus();
      });
      if (!status.ok()) return chunk.Named(status);
      chunk.Borrow(out);
    }
    // If no chunk borrows the input any more, release it before compression needs memory.
    if (std::all_of(batch.ranges.begin(), batch.ranges.end(), IsTransformed)) {
      batch.input = Buffer();
    }
    return OkStatus();
  }

 private:
  static bool IsTransformed(const WriterChunk& chunk) { return chunk.state->transform != nullptr; }
  static std::size_t TransformedBytes(const WriterChunk& chunk) {
    const Transform* transform = chunk.state->transform.get();
    if (transform == nullptr) return 0;
    return chunk.bytes().size() / transform->input_unit() * transform->output_unit();
  }
  // Rounds up, so that each begins at a cache line.
  static std::size_t Room(const WriterChunk& chunk) {
    return (TransformedBytes(chunk) + 63) / 64 * 64;
  }
  BufferPool& pool_;
};

// Validates bools and sparse indices, whose bytes readers would refuse. The record stage reports
// the result. If a stage may have changed the size of chunks, they must come in order.
class ValidateDataStage final : public ChunkStage {
 public:
  explicit ValidateDataStage(bool sizes_change) : sizes_change_(sizes_change) {}
  StageOrder order() const override {
    return sizes_change_ ? StageOrder::kInChain : StageOrder::kParallel;
  }
  Status ProcessChunk(WriterChunk& chunk) override {
    ComponentState& state = *chunk.state;
    if (sizes_change_)
      chunk.offset =
          std::exchange(state.validated_bytes, state.validated_bytes + chunk.bytes().size());
    if (state.check != nullptr) chunk.found = state.check->Look(chunk.offset, chunk.bytes());
    return OkStatus();
  }

 private:
  const bool sizes_change_;
};

class CompressStage final : public StageOf<Batch> {
 public:
  CompressStage(BufferPool& pool, const Codecs& codecs, SpecVersion spec)
      : pool_(pool), codecs_(codecs), traits_(Traits(spec)) {}
  Status Process(Batch& batch) override {
    std::size_t bound = 0;
    for (const WriterChunk& chunk : batch.ranges) {
      if (Wanted(chunk)) bound += chunk.state->storage.codec->Bound(chunk.bytes().size());
    }
    if (bound == 0) return OkStatus();
    batch.encoded = pool_.Take(bound);
    std::span<std::byte> free = batch.encoded.bytes();
    for (WriterChunk& chunk : batch.ranges) {
      if (!Wanted(chunk)) continue;
      // Another worker may have set `choice` since the bound was computed; then less room is
      // needed, never more.
      auto size = CatchAsStatus([&] { return Encode(chunk, free); });
      if (!size.ok()) return chunk.Named(size.status());
      chunk.encoded = free.first(*size);
      free = free.subspan(*size);
    }
    return OkStatus();
  }

 private:
  // Chunks are compressed speculatively until the place stage has found that the component does not
  // gain. The stored bytes do not depend on it.
  static bool Wanted(const WriterChunk& chunk) {
    const ComponentState& state = *chunk.state;
    switch (state.storage.compression) {
      case Compression::kNone:
        return false;
      case Compression::kIfGain:
      case Compression::kKeep:
        return !chunk.bytes().empty() && state.choice != ComponentState::kStoreRaw;
      case Compression::kAlways:
        return true;
    }
    return false;
  }
  // Makes the chunk's frame, or copies the source's frame if the version allows it.
  StatusOr<std::size_t> Encode(const WriterChunk& chunk, std::span<std::byte> out) const {
    const ComponentState& state = *chunk.state;
    if (state.kept != nullptr && !chunk.bytes().empty()) {
      const auto& [stream, frames] = *state.kept;
      const Frame& frame = frames[chunk.offset / frames.front().content_bytes];
      const std::span<std::byte> copy = out.first(frame.bytes);
      ZT_RETURN_IF_ERROR(stream.extent.bytes->ReadAt(stream.extent.offset + frame.offset, copy));
      if (CheckFrameBytes(traits_, copy).ok()) return copy.size();
    }
    return codecs_.EncoderOf(state).Encode(state.storage.parameters, chunk.bytes(), out);
  }

  BufferPool& pool_;
  const Codecs& codecs_;
  const ContainerTraits& traits_;
};

// Decides encoding and offset, in declared order.
class PlaceStage final : public ChunkStage {
 public:
  PlaceStage(Placer& placer, const Codecs& codecs, SpecVersion spec)
      : placer_(placer), codecs_(codecs), traits_(Traits(spec)) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status ProcessChunk(WriterChunk& chunk) override {
    ComponentState& state = *chunk.state;
    if (chunk.first) {
      state.choice =
          Gains(chunk, state) ? ComponentState::kStoreEncoded : ComponentState::kStoreRaw;
      const Placer::Gap gap = placer_.Open();
      chunk.padding = gap.padding;
      begin_ = gap.begin;
      content_ = 0;
      frames_.clear();
    }
    if (state.choice == ComponentState::kStoreEncoded) {
      // An empty chunk, left by a stage, makes no frame unless it is the only one.
      if (!chunk.bytes().empty() || (chunk.last && frames_.empty())) {
        chunk.stored = chunk.encoded;
        frames_.push_back({placer_.end() - begin_, content_,
                           static_cast<std::uint32_t>(chunk.encoded.size()),
                           static_cast<std::uint32_t>(chunk.bytes().size())});
      }
      if (frames_.size() > (1u << 27)) {
        return WithAdvice(InvalidArgument("more than 2^27 frames; choose larger ones"),
                          Advice::kFrames);
      }
      if (chunk.last) {
        ZT_RETURN_IF_ERROR(CheckFramesOf(state));
        chunk.trailer = state.storage.codec->Trailer(frames_);
      }
    } else {
      chunk.stored = chunk.bytes();
    }
    content_ += chunk.bytes().size();
    chunk.place = placer_.end();
    placer_.Add(chunk.stored.size() + chunk.trailer.size());
    return OkStatus();
  }

 private:
  bool Gains(const WriterChunk& chunk, const ComponentState& state) const {
    const Compression compression = state.storage.compression;
    if (compression == Compression::kAlways) return true;
    if (compression == Compression::kNone || chunk.bytes().empty()) return false;
    return codecs_.Gains(
        chunk.encoded.size() + (chunk.last ? state.storage.codec->TrailerBytes(1) : 0),
        chunk.bytes().size());
  }

  // Frames that readers refuse can only come from a stage that changes the size of chunks.
  Status CheckFramesOf(const ComponentState& state) const {
    StoredComponent stored;
    stored.encoding = state.storage.encoding;
    stored.parameters = state.storage.parameters;
    return AsInvalidArgument(CheckFrames(stored, traits_, frames_));
  }

  Placer& placer_;
  const Codecs& codecs_;
  const ContainerTraits& traits_;
  // The current component.
  std::uint64_t begin_ = 0, content_ = 0;
  std::vector<Frame> frames_;
};

// Computes digests that need a component's bytes in order; different components are hashed in
// parallel. CRC-32C has its own stage. If digests cover decoded bytes, this stage comes before
// compression.
class HashStage final : public ChunkStage {
 public:
  explicit HashStage(bool decoded) : decoded_(decoded) {}
  StageOrder order() const override { return StageOrder::kInChain; }
  Status ProcessChunk(WriterChunk& chunk) override {
    ComponentState& state = *chunk.state;
    if (!IsHashed(state)) return OkStatus();
    if (chunk.first) state.hasher = MakeHasher(state.storage.digest);
    state.hasher->Update(decoded_ ? chunk.bytes() : chunk.stored);
    if (!decoded_) state.hasher->Update(chunk.trailer);
    if (chunk.last) state.digest = state.hasher->Finish();
    return OkStatus();
  }

 private:
  const bool decoded_;
};

class CrcStage final : public ChunkStage {
 public:
  Status ProcessChunk(WriterChunk& chunk) override {
    if (chunk.state->storage.digest == DigestKind::kCrc32c) {
      chunk.crc = Crc32c(chunk.trailer, Crc32c(chunk.stored));
    }
    return OkStatus();
  }
};

// Writes the batch to the sink with one call, unless long gaps divide it: in parallel if the sink
// can place bytes, else in order.
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
      // Chunks that were read with one call are usually adjacent in memory.
      if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data()) {
        pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
      } else {
        pieces.push_back(piece);
      }
    };
    const WriterChunk* first = &batch.ranges.front();
    for (const WriterChunk& chunk : batch.ranges) {
      std::uint64_t zeros = chunk.padding;
      // A sink that can place bytes reads as zero where nothing was written, so the first gap and
      // long gaps need no bytes.
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
  // Writes pieces, the first of which belongs to `first`.
  Status Write(const WriterChunk& first, Pieces pieces) {
    const Status status = CatchAsStatus(
        [&] { return place_ ? sink_.WriteAt(first.place, pieces) : sink_.Append(pieces); });
    return WithFile(WithTensor(status, first.object->name), sink_.name());
  }

  Sink& sink_;
  bool place_;
};

}  // namespace

Status WriteTo(Sink& sink, std::uint64_t place, Pieces pieces) {
  const Status status = CatchAsStatus(
      [&] { return sink.can_place() ? sink.WriteAt(place, pieces) : sink.Append(pieces); });
  return WithFile(status, sink.name());
}

PipelineOf<Batch>::Stages MakeChain(const ChainParts& parts, const WriterOptions& options) {
  PipelineOf<Batch>::Stages chain = {MakeReadStage(parts.pool), std::make_shared<CheckStage>(),
                                     std::make_shared<TransformStage>(parts.pool)};
  for (const auto& stage : options.stages) chain.push_back(std::make_shared<CustomStage>(stage));
  const bool decoded = Traits(options.spec).digests_decoded;
  chain.push_back(std::make_shared<ValidateDataStage>(!options.stages.empty()));
  if (decoded) chain.push_back(std::make_shared<HashStage>(true));
  chain.push_back(std::make_shared<CompressStage>(parts.pool, parts.codecs, options.spec));
  chain.push_back(std::make_shared<PlaceStage>(parts.placer, parts.codecs, options.spec));
  if (!decoded) {
    chain.push_back(std::make_shared<HashStage>(false));
    chain.push_back(std::make_shared<CrcStage>());
  }
  chain.push_back(std::make_shared<WriteStage>(parts.sink));
  chain.push_back(MakeRecordStage(parts.record, options.spec));
  return chain;
}

}  // namespace zt::writer::internal
