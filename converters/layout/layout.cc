// zt.convert.layout — writes a planned file: several threads read, check and place ranges.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.convert.layout;

import zt.std;
import zt.convert.zip;
import zt.core;
import zt.pipeline;
import zt.sink;
import zt.source;

namespace zt {
namespace {

// Bytes stored unchanged are moved in ranges that fit the cache while they are read, summed and
// written. Other ranges are larger, because serving one may cost more than its bytes.
constexpr std::uint64_t kRawRange = std::uint64_t{256} << 10;
constexpr std::uint64_t kRange = std::uint64_t{4} << 20;
constexpr std::array<std::byte, 4096> kZeros{};

using PieceList = std::vector<std::span<const std::byte>>;

void AddZeros(std::uint64_t count, PieceList& pieces) {
  while (count > 0) {
    const std::size_t take = std::min<std::uint64_t>(count, kZeros.size());
    pieces.push_back(std::span(kZeros).first(take));
    count -= take;
  }
}

// A range of a piece in flight.
struct LayoutRange {
  std::uint32_t piece = 0;                // index in the layout
  bool first = false, last = false;       // whether it is the first or last range of its piece
  std::uint64_t offset = 0;               // in the component
  std::uint64_t count = 0;                // number of bytes
  std::uint64_t place = 0;                // offset in the file, including what precedes it
  std::span<const std::byte> bytes = {};  // in the batch's buffer, after reading
  std::uint32_t crc = 0;                  // of `bytes`, if the layout has a trailer
  std::vector<std::byte> trailer = {};    // written after `bytes` if `last`
  std::shared_ptr<CheckedApart> apart = nullptr;  // if set, reads the range; see CheckStage
};

using Batch = BatchOf<LayoutRange>;

// Caches blobs that several pieces use (tied weights, aliases) and that the source does not store
// unchanged, so that serving them costs more than a copy, or that pass in a pipe: each is read
// once. Thread-safe.
class SharedBlobs {
 public:
  // Caches at most `most_bytes`.
  SharedBlobs(TensorSource& source, const FileLayout& layout, std::uint64_t most_bytes)
      : source_(source), layout_(layout) {
    std::map<Identity, std::uint32_t> first;  // the first piece of each blob
    for (std::uint32_t i = 0; i < layout.pieces.size(); ++i) {
      const LayoutPiece& piece = layout.pieces[i];
      if (piece.bytes == 0) continue;
      if (source.extent(piece.source) && !source.sequential(piece.source)) continue;
      const auto identity = source.identity(piece.source);
      if (!identity || identity->length != piece.bytes) continue;
      const auto [found, fresh] = first.emplace(*identity, i);
      if (fresh) continue;
      std::shared_ptr<CachedBlob>& blob = blobs_[found->second];
      if (blob == nullptr) {
        if (piece.bytes > most_bytes) continue;
        most_bytes -= piece.bytes;
        blob = std::make_shared<CachedBlob>();
      }
      blobs_[i] = blob;
    }
    std::erase_if(blobs_, [](const auto& each) { return each.second == nullptr; });
  }

  // True if the bytes of this piece are cached.
  bool Has(std::uint32_t piece) const { return blobs_.contains(piece); }

  // As source.Read, for a cached piece.
  Status Read(std::uint32_t piece, std::uint64_t offset, std::span<std::byte> out) {
    CachedBlob& blob = *blobs_.at(piece);
    const zt::internal::MutexLock lock(blob.mutex);
    if (blob.bytes.empty() && blob.status.ok()) {
      blob.bytes.resize(layout_.pieces[piece].bytes);
      blob.status = source_.Read(layout_.pieces[piece].source, 0, blob.bytes);
    }
    if (blob.status.ok()) std::memcpy(out.data(), blob.bytes.data() + offset, out.size());
    return blob.status;
  }

 private:
  struct CachedBlob {
    zt::internal::Mutex mutex;
    std::vector<std::byte> bytes ZT_GUARDED_BY(mutex);
    Status status ZT_GUARDED_BY(mutex);
  };
  TensorSource& source_;
  const FileLayout& layout_;
  std::unordered_map<std::uint32_t, std::shared_ptr<CachedBlob>> blobs_;  // by piece
};

class ReadStage final : public StageOf<Batch> {
 public:
  ReadStage(TensorSource& source, const FileLayout& layout, BufferPool& pool,
            std::uint64_t shared_bytes)
      : source_(source), layout_(layout), pool_(pool), shared_(source, layout, shared_bytes) {}
  StageOrder order() const override { return StageOrder::kIfOrdered; }

  // How to read a piece whose digest needs its bytes in order; null if it is to be read in order. A
  // piece that is changed passes its digest before that, as it is read.
  std::shared_ptr<CheckedApart> ApartOf(std::uint32_t index) const {
    const LayoutPiece& piece = layout_.pieces[index];
    const Object& object = source_.objects()[piece.source.object];
    const bool whole = piece.bytes == object.components[piece.source.component].bytes;
    if (!whole || piece.change || shared_.Has(index) || !source_.sequential(piece.source))
      return nullptr;
    return source_.checked_apart(piece.source);
  }

  Status Process(Batch& batch) override {
    batch.input = pool_.Take(batch.bytes);
    std::span<std::byte> free = batch.input.bytes();
    std::vector<RangeToRead> ranges;
    for (LayoutRange& range : batch.ranges) {
      const std::span<std::byte> out = free.first(range.count);
      free = free.subspan(range.count);
      ranges.push_back(source_.RangeAt(layout_.pieces[range.piece].source, range.offset, out));
      range.bytes = out;
    }
    ZT_RETURN_IF_ERROR(ReadRanges(
        ranges, [&](std::size_t i) { return ReadRange(batch.ranges[i], ranges[i].bytes); }));
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      LayoutRange& range = batch.ranges[i];
      if (const auto& change = layout_.pieces[range.piece].change) change(ranges[i].bytes);
      if (layout_.trailer != nullptr) range.crc = Crc32(0, range.bytes);
    }
    return OkStatus();
  }

 private:
  Status ReadRange(const LayoutRange& range, std::span<std::byte> out) {
    const ComponentId id = layout_.pieces[range.piece].source;
    if (range.apart != nullptr) return AtTensor(source_, id, range.apart->Read(range.offset, out));
    return AtTensor(source_, id,
                    shared_.Has(range.piece) ? shared_.Read(range.piece, range.offset, out)
                                             : source_.Read(id, range.offset, out));
  }

  TensorSource& source_;
  const FileLayout& layout_;
  BufferPool& pool_;
  SharedBlobs shared_;
};

// Passes ranges that were read apart to the digest of their component, in order.
class CheckStage final : public StageOf<Batch> {
 public:
  CheckStage(TensorSource& source, const FileLayout& layout) : source_(source), layout_(layout) {}
  StageOrder order() const override { return StageOrder::kInChain; }
  Status Process(Batch& batch) override {
    for (const LayoutRange& range : batch.ranges) {
      if (range.apart == nullptr) continue;
      ZT_RETURN_IF_ERROR(AtTensor(source_, layout_.pieces[range.piece].source,
                                  range.apart->Check(range.offset, range.bytes)));
    }
    return OkStatus();
  }

 private:
  TensorSource& source_;
  const FileLayout& layout_;
};

// Combines the CRCs of the ranges of a piece and gets the bytes that follow it.
class TrailerStage final : public StageOf<Batch> {
 public:
  explicit TrailerStage(LayoutTrailer& trailer) : trailer_(trailer) {}
  StageOrder order() const override { return StageOrder::kInOrder; }
  Status Process(Batch& batch) override {
    for (LayoutRange& range : batch.ranges) {
      crc_ = range.first ? range.crc : CombineCrc32(crc_, range.crc, range.bytes.size());
      if (range.last) range.trailer = trailer_.AfterPiece(range.piece, crc_);
    }
    return OkStatus();
  }

 private:
  LayoutTrailer& trailer_;
  std::uint32_t crc_ = 0;
};

class WriteStage final : public StageOf<Batch> {
 public:
  WriteStage(const FileLayout& layout, Sink& sink) : layout_(layout), sink_(sink) {}
  StageOrder order() const override {
    return sink_.can_place() ? StageOrder::kParallel : StageOrder::kInOrder;
  }
  Status Process(Batch& batch) override {
    PieceList pieces;
    for (const LayoutRange& range : batch.ranges) {
      const LayoutPiece& piece = layout_.pieces[range.piece];
      if (range.first) {
        pieces.emplace_back(piece.before);
        AddZeros(piece.zeros, pieces);
      }
      pieces.push_back(range.bytes);
      pieces.emplace_back(range.trailer);
    }
    return Write(batch.ranges.front().place, pieces);
  }
  // Writes the end of the file, after the last piece.
  Status End(std::uint64_t place) {
    std::vector<std::byte> last;
    if (layout_.trailer != nullptr) last = layout_.trailer->End();
    PieceList pieces = {layout_.end, last};
    AddZeros(layout_.end_zeros, pieces);
    return Write(place, pieces);
  }

 private:
  Status Write(std::uint64_t place, const PieceList& pieces) {
    const Status status = sink_.can_place() ? sink_.WriteAt(place, pieces) : sink_.Append(pieces);
    return WithFile(status, sink_.name());
  }

  const FileLayout& layout_;
  Sink& sink_;
};

class LayoutWriter {
 public:
  LayoutWriter(TensorSource& source, const FileLayout& layout, Sink& sink,
               const LayoutOptions& options)
      : source_(source),
        layout_(layout),
        pool_(MemoryFor(options.memory_bytes, options.threads) / 2),
        read_(std::make_shared<ReadStage>(source, layout, pool_,
                                          MemoryFor(options.memory_bytes, options.threads) / 4)),
        write_(std::make_shared<WriteStage>(layout, sink)),
        pipeline_(Stages(), {.threads = options.threads,
                             .memory_bytes = options.memory_bytes,
                             .cancelled = options.cancelled,
                             .progress = options.progress}) {}

  Status Run() {
    ZT_RETURN_IF_ERROR(pipeline_.Drain(AddPieces()));
    return write_->End(at_);
  }

 private:
  PipelineOf<Batch>::Stages Stages() {
    PipelineOf<Batch>::Stages stages = {read_, std::make_shared<CheckStage>(source_, layout_)};
    if (layout_.trailer != nullptr) {
      stages.push_back(std::make_shared<TrailerStage>(*layout_.trailer));
    }
    stages.push_back(write_);
    return stages;
  }

  Status AddPieces() {
    for (std::uint32_t i = 0; i < layout_.pieces.size(); ++i) ZT_RETURN_IF_ERROR(AddPiece(i));
    return OkStatus();
  }

  Status AddPiece(std::uint32_t index) {
    const LayoutPiece& piece = layout_.pieces[index];
    const std::shared_ptr<CheckedApart> apart = read_->ApartOf(index);
    const bool ordered = apart == nullptr && source_.sequential(piece.source);
    const std::optional<Extent> extent = source_.extent(piece.source);
    // Ranges are whole units if the piece is changed, else whole frames if the source has them.
    const std::uint64_t preferred =
        piece.change ? piece.unit : source_.preferred_read(piece.source);
    const std::uint64_t unit = std::max<std::uint64_t>(preferred, 1);
    const std::uint64_t step =
        std::max<std::uint64_t>((extent ? kRawRange : kRange) / unit, 1) * unit;
    // Ends raw ranges at multiples of their size in the file, so that most are written in whole
    // pages.
    const std::uint64_t place = at_ + piece.before.size() + piece.zeros;
    const std::uint64_t shift = extent && preferred == 0 ? place - piece.offset : 0;
    const std::uint64_t end = piece.offset + piece.bytes;
    std::uint64_t at = piece.offset;
    do {
      LayoutRange range;
      range.piece = index;
      range.first = at == piece.offset;
      range.offset = at;
      range.count = std::min(end - at, step - (at + shift) % step);
      at += range.count;
      range.last = at == end;
      range.place = at_;
      if (range.first) at_ += piece.before.size() + piece.zeros;
      at_ += range.count;
      if (range.last && layout_.trailer != nullptr) at_ += layout_.trailer->BytesAfter(index);
      range.apart = apart;
      const RangeCost cost = {.bytes = range.count,
                              .weight = range.count + sizeof(LayoutRange),
                              .ordered = ordered,
                              .continues = apart != nullptr && !range.first,
                              .continued = apart != nullptr && !range.last};
      ZT_RETURN_IF_ERROR(pipeline_.Add(std::move(range), cost));
    } while (at < end);
    return OkStatus();
  }

  TensorSource& source_;
  const FileLayout& layout_;
  BufferPool pool_;
  std::uint64_t at_ = 0;  // offset of the next range in the file
  std::shared_ptr<ReadStage> read_;
  std::shared_ptr<WriteStage> write_;
  RangePipeline<Batch> pipeline_;
};

// Checks that a source that cannot seek is read in its order, each component once.
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
  ZT_RETURN_IF_ERROR(WithFile(sink.Reserve(layout.bytes), sink.name()));
  sink.Expect(layout.bytes);
  return LayoutWriter(source, layout, sink, options).Run();
}

}  // namespace zt
