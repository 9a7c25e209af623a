// zt.convert.layout — reading ahead in parallel, appending in order.
module;

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.layout;

import zt.core;
import zt.pipeline;
import zt.sink;
import zt.source;

namespace zt {
namespace {

constexpr std::uint64_t kRange = std::uint64_t{4} << 20;  // of one read
constexpr std::uint64_t kSmall = std::uint64_t{1} << 20;  // pieces are gathered up to this
constexpr std::size_t kMostParts = 256;                   // of one batch
constexpr std::array<std::byte, 4096> kZeros{};

Status AtTensor(const TensorSource& source, ComponentId id, const Status& status) {
  if (status.ok()) return status;
  const Status named = Annotate(status, TensorContext(source.objects()[id.object].name));
  return source.file(id).empty() ? named : Annotate(named, source.file(id));
}

std::uint32_t Crc32(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// A range of a piece on its way.
struct Part {
  std::uint32_t piece = 0;                // its index in the layout
  std::uint64_t offset = 0;               // in the component
  std::uint64_t count = 0;                // of bytes
  bool first = false, last = false;       // of its piece
  std::span<const std::byte> bytes = {};  // in the batch's buffer, once read
  std::uint32_t crc = 0;                  // of them, where the layout asks for it
};

// Consecutive parts that travel together.
struct Batch final : Task {
  std::vector<Part> parts;
  Buffer buffer;
};

ComponentId SourceOf(const FileLayout& layout, const Part& part) {
  return layout.pieces[part.piece].source;
}

// Fills the batch's buffer, part after part.
Status ReadBatch(TensorSource& source, const FileLayout& layout, BufferPool& pool, Batch& batch) {
  std::uint64_t total = 0;
  for (const Part& part : batch.parts) total += part.count;
  if (total > 0) batch.buffer = pool.Take(total);
  std::size_t at = 0;
  for (Part& part : batch.parts) {
    const auto out = batch.buffer.bytes().subspan(at, part.count);
    at += out.size();
    if (!out.empty()) {
      const ComponentId id = SourceOf(layout, part);
      ZT_RETURN_IF_ERROR(AtTensor(source, id, source.Read(id, part.offset, out)));
      const LayoutPiece& piece = layout.pieces[part.piece];
      if (piece.change) piece.change(out);
    }
    part.bytes = out;
    if (layout.trailer != nullptr) part.crc = Crc32(out);
  }
  return OkStatus();
}

class ReadStage final : public StageOf<Batch> {
 public:
  ReadStage(TensorSource& source, const FileLayout& layout, BufferPool& pool)
      : source_(source), layout_(layout), pool_(pool) {}
  Status Process(Batch& batch) override {
    if (!batch.buffer.empty()) return OkStatus();  // read already, where order mattered
    return ReadBatch(source_, layout_, pool_, batch);
  }

 private:
  TensorSource& source_;
  const FileLayout& layout_;
  BufferPool& pool_;
};

class AppendStage final : public StageOf<Batch> {
 public:
  AppendStage(const FileLayout& layout, Sink& sink, const LayoutOptions& options)
      : layout_(layout), sink_(sink), options_(options) {}
  StageOrder order() const override { return StageOrder::kInOrder; }

  Status Process(Batch& batch) override {
    if (options_.cancelled != nullptr && *options_.cancelled) return Cancelled("interrupted");
    std::vector<std::span<const std::byte>> pieces;
    std::vector<std::vector<std::byte>> trailers;
    trailers.reserve(batch.parts.size());
    for (const Part& part : batch.parts) {
      const LayoutPiece& piece = layout_.pieces[part.piece];
      if (part.first) {
        pieces.emplace_back(piece.before);
        AddZeros(piece.zeros, pieces);
        crc_ = 0;
      }
      pieces.push_back(part.bytes);
      done_ += part.bytes.size();
      if (layout_.trailer == nullptr) continue;
      crc_ = static_cast<std::uint32_t>(
          crc32_combine(crc_, part.crc, static_cast<z_off_t>(part.bytes.size())));
      if (!part.last) continue;
      trailers.push_back(layout_.trailer->AfterPiece(part.piece, crc_));
      pieces.emplace_back(trailers.back());
    }
    ZT_RETURN_IF_ERROR(Annotate(sink_.Append(pieces), sink_.name()));
    if (options_.progress) options_.progress(done_);
    return OkStatus();
  }

  Status End() {
    std::vector<std::byte> last;
    if (layout_.trailer != nullptr) last = layout_.trailer->End();
    std::vector<std::span<const std::byte>> pieces = {layout_.end, last};
    AddZeros(layout_.end_zeros, pieces);
    return Annotate(sink_.Append(pieces), sink_.name());
  }

 private:
  void AddZeros(std::uint64_t count, std::vector<std::span<const std::byte>>& pieces) {
    while (count > 0) {
      const std::size_t take = std::min<std::uint64_t>(count, kZeros.size());
      pieces.push_back(std::span(kZeros).first(take));
      count -= take;
    }
  }

  const FileLayout& layout_;
  Sink& sink_;
  const LayoutOptions& options_;
  std::uint32_t crc_ = 0;
  std::uint64_t done_ = 0;
};

class LayoutWriter {
 public:
  LayoutWriter(TensorSource& source, const FileLayout& layout, Sink& sink,
               const LayoutOptions& options)
      : source_(source),
        layout_(layout),
        pool_(options.memory_bytes / 2),
        append_(std::make_shared<AppendStage>(layout, sink, options)),
        pipeline_({std::make_shared<ReadStage>(source, layout, pool_), append_},
                  {.threads = options.threads == 0 ? UsableThreads() : options.threads,
                   .window_bytes = options.memory_bytes / 2}) {}

  Status Run() {
    for (std::uint32_t i = 0; i < layout_.pieces.size(); ++i) ZT_RETURN_IF_ERROR(AddPiece(i));
    ZT_RETURN_IF_ERROR(Send());
    ZT_RETURN_IF_ERROR(pipeline_.Drain());
    return append_->End();
  }

 private:
  Status AddPiece(std::uint32_t index) {
    const LayoutPiece& piece = layout_.pieces[index];
    const bool ordered = source_.sequential(piece.source);
    // Whole frames where the source is made of them, whole units where they are changed on their way.
    const std::uint64_t preferred =
        piece.change ? piece.unit : source_.preferred_read(piece.source);
    const std::uint64_t range =
        preferred == 0 ? kRange : std::max<std::uint64_t>(kRange / preferred, 1) * preferred;
    std::uint64_t at = piece.offset;
    const std::uint64_t end = piece.offset + piece.bytes;
    do {
      Part part;
      part.piece = index;
      part.first = at == piece.offset;
      part.offset = at;
      part.count = std::min(end - at, range - at % range);
      at += part.count;
      part.last = at == end;
      ZT_RETURN_IF_ERROR(AddPart(std::move(part), ordered));
    } while (at < end);
    return OkStatus();
  }

  Status AddPart(Part part, bool ordered) {
    const std::uint64_t bytes = part.count;
    if (batch_ != nullptr && (batch_->weight + bytes > kSmall || ordered != ordered_ ||
                              batch_->parts.size() == kMostParts)) {
      ZT_RETURN_IF_ERROR(Send());
    }
    if (batch_ == nullptr) batch_ = std::make_unique<Batch>();
    ordered_ = ordered;
    batch_->weight += bytes;
    batch_->parts.push_back(std::move(part));
    return OkStatus();
  }

  Status Send() {
    if (batch_ == nullptr) return OkStatus();
    if (ordered_) ZT_RETURN_IF_ERROR(ReadBatch(source_, layout_, pool_, *batch_));
    return pipeline_.Submit(std::exchange(batch_, nullptr));
  }

  TensorSource& source_;
  const FileLayout& layout_;
  BufferPool pool_;
  std::unique_ptr<Batch> batch_;
  bool ordered_ = false;
  std::shared_ptr<AppendStage> append_;
  PipelineOf<Batch> pipeline_;
};

// A source that cannot seek gives its components in their order, each once.
Status CheckOrder(const TensorSource& source, const FileLayout& layout) {
  if (source.seekable()) return OkStatus();
  std::pair<std::uint64_t, std::uint64_t> last = {0, 0};
  std::uint64_t end = 0;
  for (const LayoutPiece& piece : layout.pieces) {
    const std::pair<std::uint64_t, std::uint64_t> at = {piece.source.object,
                                                        piece.source.component};
    if (at < last || (at == last && piece.offset < end)) {
      return AtTensor(
          source, piece.source,
          Unsupported("this output has its tensors in another order, and a pipe cannot be read "
                      "out of order; name a file as input"));
    }
    last = at;
    end = piece.offset + piece.bytes;
  }
  return OkStatus();
}

}  // namespace

Status WriteLayout(TensorSource& source, const FileLayout& layout, Sink& sink,
                   const LayoutOptions& options) {
  ZT_RETURN_IF_ERROR(CheckOrder(source, layout));
  ZT_RETURN_IF_ERROR(Annotate(sink.Reserve(layout.bytes), sink.name()));
  return LayoutWriter(source, layout, sink, options).Run();
}

}  // namespace zt
