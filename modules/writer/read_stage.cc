// zt.writer:chain — the stage that fetches bytes: views, neighbours with one call, sequential sources in order.
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

// Fetches bytes. Chunks of sequential components are read by the in-order instance, the others by the parallel
// one. Small chunks share the batch's arena, and neighbours in the file come with one call.
class ReadStage final : public StageOf<Batch> {
 public:
  ReadStage(BufferPool& pool, bool sequential) : pool_(pool), sequential_(sequential) {}
  StageOrder order() const override {
    return sequential_ ? StageOrder::kInOrder : StageOrder::kParallel;
  }

  Status Process(Batch& batch) override {
    std::vector<Piece>& chunks = batch.pieces;
    if (std::none_of(chunks.begin(), chunks.end(), [&](const Piece& c) { return Mine(c); })) {
      return OkStatus();
    }
    ZT_RETURN_IF_ERROR(LayOut(batch));
    for (std::size_t i = 0; i < chunks.size();) {
      if (!ToRead(batch, chunks[i])) {
        ++i;
        continue;
      }
      ZT_ASSIGN_OR_RETURN(const std::size_t run, RunOfNeighbours(batch, i));
      ZT_RETURN_IF_ERROR(ReadRun(std::span(chunks).subspan(i, run)));
      i += run;
    }
    return OkStatus();
  }

 private:
  bool Mine(const Piece& chunk) const {
    const ComponentState& state = *chunk.state;
    return state.source != nullptr && state.sequential == sequential_;
  }

  // Points every chunk to where its bytes are, or will be: one arena holds them for both instances, so that none of
  // them lies in a buffer of a single chunk, which a later stage may replace.
  Status LayOut(Batch& batch) {
    if (!batch.input.empty()) return OkStatus();
    std::uint64_t total = 0;
    for (Piece& chunk : batch.pieces) {
      const ComponentState& state = *chunk.state;
      if (state.source == nullptr) continue;
      using View = std::optional<std::span<const std::byte>>;
      ZT_ASSIGN_OR_RETURN(const View view,
                          Asked<View>(chunk, [&] { return state.source->View(state.id); }));
      if (view) {
        chunk.Borrow(view->subspan(chunk.input_offset, chunk.input_bytes));
      } else {
        total += chunk.input_bytes;
      }
    }
    batch.input = pool_.Take(total);
    std::span<std::byte> free = batch.input.bytes();
    for (Piece& chunk : batch.pieces) {
      if (chunk.state->source == nullptr || !chunk.bytes().empty()) continue;
      chunk.Borrow(free.first(chunk.input_bytes));
      free = free.subspan(chunk.input_bytes);
    }
    return OkStatus();
  }

  // What a source says of a chunk. Where it throws, that is the chunk's error.
  template <class T, class Call>
  static StatusOr<T> Asked(const Piece& chunk, const Call& call) {
    return Caught([&]() -> StatusOr<T> { return call(); },
                  [&](const Status& status) { return chunk.Named(status); });
  }

  bool ToRead(const Batch& batch, const Piece& chunk) const {
    const std::span<std::byte> arena = batch.input.bytes();
    return Mine(chunk) && !chunk.bytes().empty() &&
           !std::less<>()(chunk.bytes().data(), arena.data()) &&
           std::less<>()(chunk.bytes().data(), arena.data() + arena.size());
  }

  // Reads neighbours with one call.
  static Status ReadRun(std::span<Piece> run) {
    if (run.size() > 1) {
      std::size_t bytes = 0;
      for (const Piece& chunk : run) bytes += chunk.bytes().size();
      const ComponentState& state = *run[0].state;
      const Extent extent = *state.source->extent(state.id);
      // Which of the neighbours failed is not known: they are read one by one then, for the name.
      const std::span<std::byte> out = {const_cast<std::byte*>(run[0].bytes().data()), bytes};
      const std::uint64_t at = extent.offset + run[0].input_offset;
      if (Caught([&] { return extent.bytes->ReadAt(at, out); }).ok()) return OkStatus();
    }
    for (const Piece& chunk : run) {
      const ComponentState& from = *chunk.state;
      const auto out =
          std::span(const_cast<std::byte*>(chunk.bytes().data()), chunk.bytes().size());
      ZT_RETURN_IF_ERROR(
          chunk.Named(Caught([&] { return from.source->Read(from.id, chunk.input_offset, out); })));
    }
    return OkStatus();
  }

  // How many chunks from `first` on lie one after another in the same ByteSource.
  StatusOr<std::size_t> RunOfNeighbours(const Batch& batch, std::size_t first) const {
    std::optional<std::uint64_t> end;
    ByteSource* bytes = nullptr;
    std::size_t run = 0;
    for (std::size_t k = first; k < batch.pieces.size(); ++k, ++run) {
      const Piece& chunk = batch.pieces[k];
      if (!ToRead(batch, chunk)) break;
      const ComponentState& state = *chunk.state;
      using At = std::optional<Extent>;
      ZT_ASSIGN_OR_RETURN(const At extent,
                          Asked<At>(chunk, [&] { return state.source->extent(state.id); }));
      if (!extent || extent->bytes == nullptr || extent->bytes->sequential()) break;
      const std::uint64_t begin = extent->offset + chunk.input_offset;
      if (run > 0 && (extent->bytes != bytes || begin != *end)) break;
      bytes = extent->bytes;
      end = begin + chunk.input_bytes;
    }
    return std::max<std::size_t>(run, 1);
  }

  BufferPool& pool_;
  bool sequential_;
};

}  // namespace

std::shared_ptr<StageOf<Batch>> MakeReadStage(BufferPool& pool, bool sequential) {
  return std::make_shared<ReadStage>(pool, sequential);
}

}  // namespace zt::writer::internal
