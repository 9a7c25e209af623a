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

using Stages = RangePipeline<Batch>::Stages;

// A step on each chunk by itself.
StageOf<Batch> EachChunk(StageOrder order, std::function<Status(WriterChunk&)> step) {
  return {order, [step = std::move(step)](Batch& batch) -> Status {
            for (WriterChunk& chunk : batch.ranges) {
              const Status status = CatchAsStatus([&] { return step(chunk); });
              if (!status.ok()) return chunk.Named(status);
            }
            return OkStatus();
          }};
}

// Borrows the bytes if the source has them in memory.
Status View(WriterChunk& chunk) {
  const ComponentState& state = *chunk.state;
  if (state.copied != nullptr) return OkStatus();
  return chunk.Named(CatchAsStatus([&] {
    const auto view = state.source->View(state.id);
    if (view) chunk.Borrow(view->subspan(chunk.input_offset, chunk.input_bytes));
    return OkStatus();
  }));
}

// Reads chunks from sources.
Status Read(Batch& batch, BufferPool& pool) {
  std::vector<WriterChunk*> chunks;
  std::vector<ComponentRange> ranges;
  for (WriterChunk& chunk : batch.ranges) {
    const ComponentState& state = *chunk.state;
    if (state.source == nullptr) continue;
    ZT_RETURN_IF_ERROR(View(chunk));
    if (!chunk.bytes().empty() || chunk.input_bytes == 0) continue;
    chunks.push_back(&chunk);
    ranges.push_back({.source = state.source,
                      .id = state.id,
                      .offset = chunk.input_offset,
                      .count = chunk.input_bytes,
                      .apart = state.apart,
                      .stream = state.copied == nullptr ? nullptr : &state.copied->stream.extent,
                      .name = &chunk.object->name});
  }
  std::vector<ComponentRange*> all;
  for (ComponentRange& range : ranges) all.push_back(&range);
  ZT_RETURN_IF_ERROR(ReadComponents(all, pool, batch.input));
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->Borrow(ranges[i].bytes);
  return OkStatus();
}

// Passes the bytes that were read to the source's digest, in order; components in parallel.
Status Check(WriterChunk& chunk) {
  UnorderedReader* const apart = chunk.state->apart.get();
  return apart == nullptr ? OkStatus() : apart->Check(chunk.input_offset, chunk.bytes());
}

class TransformStage {
 public:
  explicit TransformStage(BufferPool& pool) : pool_(pool) {}
  Status operator()(Batch& batch) const {
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

// Checks the frames of a chunk of a copied stream. If its digest does not match, that is the error.
Status CheckCopied(const WriterChunk& chunk) {
  const auto& [stream, frames] = *chunk.state->copied;
  const Codec& codec = *FindCodec(stream.encoding);
  auto frame = std::ranges::lower_bound(frames, chunk.input_offset, {}, &Frame::offset);
  Status status;
  for (; status.ok() && frame != frames.end() &&
         frame->offset < chunk.input_offset + chunk.input_bytes;
       ++frame) {
    status = codec.CheckFrame(
        stream.parameters, chunk.bytes().subspan(frame->offset - chunk.input_offset, frame->bytes),
        frame->content_bytes);
  }
  if (status.ok()) return status;
  const auto& [bytes, begin, length] = stream.extent;
  ZT_RETURN_IF_ERROR(ReadThrough(*bytes, begin, begin + length, [](auto...) { return true; }));
  return status;
}

// Validates bools and sparse indices, whose bytes readers would refuse. The record stage reports
// the result. If a stage may have changed the size of chunks, they must come in order.
StageOf<Batch> ValidateDataStage(bool sizes_change) {
  const auto step = [sizes_change](WriterChunk& chunk) {
    ComponentState& state = *chunk.state;
    if (sizes_change)
      chunk.offset =
          std::exchange(state.validated_bytes, state.validated_bytes + chunk.bytes().size());
    if (state.check != nullptr) chunk.found = state.check->Look(chunk.offset, chunk.bytes());
    return state.copied == nullptr ? OkStatus() : CheckCopied(chunk);
  };
  return EachChunk(sizes_change ? StageOrder::kInChain : StageOrder::kParallel, step);
}

class CompressStage {
 public:
  CompressStage(BufferPool& pool, const Codecs& codecs, SpecVersion spec)
      : pool_(pool), codecs_(codecs), traits_(Traits(spec)) {}
  Status operator()(Batch& batch) const {
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
class PlaceStage {
 public:
  PlaceStage(Placer& placer, const Codecs& codecs, SpecVersion spec)
      : placer_(placer), codecs_(codecs), traits_(Traits(spec)) {}
  Status operator()(WriterChunk& chunk) {
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
StageOf<Batch> HashStage(bool decoded) {
  return EachChunk(StageOrder::kInChain, [decoded](WriterChunk& chunk) {
    ComponentState& state = *chunk.state;
    if (!IsHashed(state)) return OkStatus();
    if (chunk.first) state.hasher = MakeHasher(state.storage.digest);
    state.hasher->Update(decoded ? chunk.bytes() : chunk.stored);
    if (!decoded) state.hasher->Update(chunk.trailer);
    if (chunk.last) state.digest = state.hasher->Finish();
    return OkStatus();
  });
}

Status Crc(WriterChunk& chunk) {
  if (chunk.state->storage.digest == DigestKind::kCrc32c) {
    chunk.crc = Crc32c(chunk.trailer, Crc32c(chunk.stored));
  }
  return OkStatus();
}

// Writes the batch to the sink with one call, unless long gaps divide it: in parallel if the sink
// can place bytes, else in order.
Status Write(Batch& batch, Sink& sink) {
  constexpr std::uint64_t kLongGap = 4096;
  const WriterChunk* first = &batch.ranges.front();
  PieceList pieces;
  const auto write = [&] {
    return WithTensor(pieces.WriteTo(sink, first->place), first->object->name);
  };
  for (const WriterChunk& chunk : batch.ranges) {
    // A sink that can place bytes reads as zero where nothing was written, so the first gap and
    // long gaps need no bytes.
    if (!sink.can_place() || (&chunk != first && chunk.padding < kLongGap)) {
      pieces.AddZeros(chunk.padding);
    } else {
      if (&chunk != first) ZT_RETURN_IF_ERROR(write());
      first = &chunk;
    }
    pieces.Add(chunk.stored);
    pieces.Add(chunk.trailer);
  }
  return write();
}

}  // namespace

Stages MakeChain(const ChainParts& parts, const WriterOptions& options) {
  BufferPool& pool = parts.pool;
  Sink& sink = parts.sink;
  Stages chain = {{StageOrder::kIfOrdered, [&pool](Batch& batch) { return Read(batch, pool); }},
                  EachChunk(StageOrder::kInChain, Check),
                  {StageOrder::kParallel, TransformStage(pool)}};
  for (const auto& stage : options.stages) {
    chain.push_back(
        EachChunk(stage->order(), [stage](WriterChunk& chunk) { return stage->Process(chunk); }));
  }
  const bool decoded = Traits(options.spec).digests_decoded;
  chain.push_back(ValidateDataStage(!options.stages.empty()));
  if (decoded) chain.push_back(HashStage(true));
  chain.push_back({StageOrder::kParallel, CompressStage(pool, parts.codecs, options.spec)});
  chain.push_back(
      EachChunk(StageOrder::kInOrder, PlaceStage(parts.placer, parts.codecs, options.spec)));
  if (!decoded) {
    chain.push_back(HashStage(false));
    chain.push_back(EachChunk(StageOrder::kParallel, Crc));
  }
  chain.push_back(MakeEntryStage(parts.record.manifest, options.spec));
  chain.push_back({WriteOrder(sink), [&sink](Batch& batch) { return Write(batch, sink); }});
  chain.push_back(EachChunk(StageOrder::kInOrder, MakeRecordStage(parts.record, options.spec)));
  return chain;
}

}  // namespace zt::writer::internal
