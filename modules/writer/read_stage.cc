// zt.writer:chain — the stage that reads from sources.
module;

#include "core/status_macros.h"

module zt.writer;

import zt.std;
import :chain;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt::writer::internal {
namespace {

// The range of the component, or of the stream that is copied in its place.
RangeToRead RangeOf(const ComponentState& state, std::uint64_t offset, std::span<std::byte> out) {
  if (state.copied == nullptr) return state.source->RangeAt(state.id, offset, out);
  const Extent& extent = state.copied->extent;
  return {extent.bytes, extent.offset + offset, out};
}

Status Read(const ComponentState& state, std::uint64_t offset, std::span<std::byte> out) {
  if (state.apart != nullptr) return state.apart->Read(offset, out);
  if (state.copied == nullptr) return state.source->Read(state.id, offset, out);
  return state.copied->extent.bytes->ReadAt(state.copied->extent.offset + offset, out);
}

// Reads chunks. Those of a batch share its buffer, and neighbours in the file are read with one
// call.
class ReadStage final : public StageOf<Batch> {
 public:
  explicit ReadStage(BufferPool& pool) : pool_(pool) {}
  StageOrder order() const override { return StageOrder::kIfOrdered; }

  Status Process(Batch& batch) override {
    std::uint64_t total = 0;
    for (WriterChunk& chunk : batch.ranges) {
      ZT_RETURN_IF_ERROR(View(chunk));
      if (IsToRead(chunk)) total += chunk.input_bytes;
    }
    if (total == 0) return OkStatus();
    batch.input = pool_.Take(total);
    std::span<std::byte> free = batch.input.bytes();
    std::vector<RangeToRead> ranges;
    std::vector<const WriterChunk*> of;
    for (WriterChunk& chunk : batch.ranges) {
      if (!IsToRead(chunk)) continue;
      const ComponentState& state = *chunk.state;
      const std::span<std::byte> out = free.first(chunk.input_bytes);
      free = free.subspan(out.size());
      ZT_RETURN_IF_ERROR(Asked(chunk, [&] {
        ranges.push_back(RangeOf(state, chunk.input_offset, out));
        return OkStatus();
      }));
      of.push_back(&chunk);
      chunk.Borrow(out);
    }
    return ReadRanges(ranges, [&](std::size_t i) {
      const ComponentState& state = *of[i]->state;
      return Asked(*of[i], [&] { return Read(state, of[i]->input_offset, ranges[i].bytes); });
    });
  }

 private:
  // Borrows the bytes if the source has them in memory.
  static Status View(WriterChunk& chunk) {
    const ComponentState& state = *chunk.state;
    if (state.source == nullptr || state.copied != nullptr) return OkStatus();
    return Asked(chunk, [&] {
      const auto view = state.source->View(state.id);
      if (view) chunk.Borrow(view->subspan(chunk.input_offset, chunk.input_bytes));
      return OkStatus();
    });
  }

  static bool IsToRead(const WriterChunk& chunk) {
    return chunk.state->source != nullptr && chunk.bytes().empty() && chunk.input_bytes > 0;
  }

  // Calls `call`, which calls the source; errors and exceptions get the chunk's tensor and file.
  template <class Call>
  static Status Asked(const WriterChunk& chunk, const Call& call) {
    return chunk.Named(CatchAsStatus(call));
  }

  BufferPool& pool_;
};

}  // namespace

std::shared_ptr<StageOf<Batch>> MakeReadStage(BufferPool& pool) {
  return std::make_shared<ReadStage>(pool);
}

}  // namespace zt::writer::internal
