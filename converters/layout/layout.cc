// zt.convert.layout — writes a planned file: several threads read, check and place ranges.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.convert.layout;

import zt.std;
import zt.convert.zip;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;

namespace zt {
namespace {

// Bytes stored unchanged are moved in ranges that fit the cache while they are read, summed and
// written. Other ranges are larger, because serving one may cost more than its bytes.
constexpr std::uint64_t kRawRange = std::uint64_t{256} << 10;
constexpr std::uint64_t kRange = std::uint64_t{4} << 20;

// A range of a piece in flight.
struct LayoutRange {
  ComponentRange from;                  // read into the batch's buffer
  std::uint32_t piece = 0;              // index in the layout
  bool first = false, last = false;     // whether it is the first or last range of its piece
  std::uint64_t place = 0;              // offset in the file, including what precedes it
  std::uint32_t crc = 0;                // of the bytes, if the layout has a trailer
  std::vector<std::byte> trailer = {};  // written after the bytes if `last`
};

using Batch = BatchOf<LayoutRange>;

// A blob that several pieces use (tied weights, aliases): the first range reads all of it.
class CachedBlob final : public UnorderedReader {
 public:
  CachedBlob(TensorSource& source, ComponentId id, std::uint64_t bytes)
      : source_(source), id_(id), size_(bytes) {}
  Status Read(std::uint64_t offset, std::span<std::byte> out) override {
    const zt::internal::MutexLock lock(mutex_);
    if (bytes_.empty() && status_.ok()) {
      bytes_.resize(size_);
      status_ = source_.Read(id_, 0, bytes_);
    }
    if (status_.ok()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return status_;
  }
  // The source has done so.
  Status Check(std::uint64_t, std::span<const std::byte>) override { return OkStatus(); }

 private:
  TensorSource& source_;
  const ComponentId id_;
  const std::uint64_t size_;
  zt::internal::Mutex mutex_;
  std::vector<std::byte> bytes_ ZT_GUARDED_BY(mutex_);
  Status status_ ZT_GUARDED_BY(mutex_);
};

// The blobs to cache, by piece: those that are used twice where reading them again is impossible (a
// pipe) or costs decoding. At most `most_bytes` of them.
std::unordered_map<std::uint32_t, std::shared_ptr<UnorderedReader>> FindShared(
    TensorSource& source, const FileLayout& layout, std::uint64_t most_bytes) {
  std::unordered_map<std::uint32_t, std::shared_ptr<UnorderedReader>> blobs;
  std::map<Identity, std::uint32_t> first;  // the first piece of each blob
  for (std::uint32_t i = 0; i < layout.pieces.size(); ++i) {
    const LayoutPiece& piece = layout.pieces[i];
    if (piece.bytes == 0) continue;
    if (source.extent(piece.source) && !source.sequential(piece.source)) continue;
    const auto identity = source.identity(piece.source);
    if (!identity || identity->length != piece.bytes) continue;
    const auto [found, fresh] = first.emplace(*identity, i);
    if (fresh) continue;
    std::shared_ptr<UnorderedReader>& blob = blobs[found->second];
    if (blob == nullptr) {
      if (piece.bytes > most_bytes) continue;
      most_bytes -= piece.bytes;
      blob = std::make_shared<CachedBlob>(source, layout.pieces[found->second].source, piece.bytes);
    }
    const auto kept = blob;
    blobs[i] = kept;
  }
  std::erase_if(blobs, [](const auto& each) { return each.second == nullptr; });
  return blobs;
}

class LayoutWriter {
 public:
  LayoutWriter(TensorSource& source, const FileLayout& layout, Sink& sink,
               const LayoutOptions& options)
      : source_(source),
        layout_(layout),
        sink_(sink),
        pool_(MemoryFor(options.memory_bytes, options.threads) / 2),
        shared_(FindShared(source, layout, MemoryFor(options.memory_bytes, options.threads) / 4)),
        pipeline_({{StageOrder::kIfOrdered, [this](Batch& batch) { return Read(batch); }},
                   {StageOrder::kInChain, CheckDigests},
                   {layout.trailer == nullptr ? StageOrder::kParallel : StageOrder::kInOrder,
                    [this](Batch& batch) { return AddTrailers(batch); }},
                   {WriteOrder(sink), [this](Batch& batch) { return Write(batch); }}},
                  {.threads = options.threads,
                   .memory_bytes = options.memory_bytes,
                   .share = options.share,
                   .cancelled = options.cancelled,
                   .progress = options.progress}) {}

  Status Run() {
    ZT_RETURN_IF_ERROR(pipeline_.Drain(AddPieces()));
    std::vector<std::byte> last;
    if (layout_.trailer != nullptr) last = layout_.trailer->End();
    PieceList pieces;
    pieces.Add(layout_.end);
    pieces.Add(last);
    pieces.AddZeros(layout_.end_zeros);
    return pieces.WriteTo(sink_, at_);
  }

 private:
  Status Read(Batch& batch) {
    std::vector<ComponentRange*> ranges;
    for (LayoutRange& range : batch.ranges) ranges.push_back(&range.from);
    ZT_RETURN_IF_ERROR(ReadComponents(ranges, pool_, batch.input));
    for (LayoutRange& range : batch.ranges) {
      ZT_RETURN_IF_ERROR(CheckBools(range.from));
      if (const auto& change = layout_.pieces[range.piece].change) change(range.from.bytes);
      if (layout_.trailer != nullptr) range.crc = Crc32(0, range.from.bytes);
    }
    return OkStatus();
  }

  // As for a .zt file, each is 0 or 1.
  Status CheckBools(const ComponentRange& range) const {
    const Object& object = source_.objects()[range.id.object];
    const Component& component = object.components[range.id.component];
    const auto rule = RuleOf(object, range.id.component, component.bytes);
    if (!rule || rule->kind != DataRule::Kind::kBool) return OkStatus();
    DataValidator bools(*rule, range.offset);
    bools.Add(range.bytes);
    const Status status = bools.Check(object, std::nullopt);
    return AtTensor(source_, range.id,
                    object.components.size() == 1 ? status : WithComponent(status, component.role));
  }

  static Status CheckDigests(Batch& batch) {
    for (const LayoutRange& range : batch.ranges) ZT_RETURN_IF_ERROR(range.from.CheckDigest());
    return OkStatus();
  }

  // Combines the CRCs of the ranges of a piece and gets the bytes that follow it.
  Status AddTrailers(Batch& batch) {
    if (layout_.trailer == nullptr) return OkStatus();
    for (LayoutRange& range : batch.ranges) {
      crc_ = range.first ? range.crc : CombineCrc32(crc_, range.crc, range.from.count);
      if (range.last) range.trailer = layout_.trailer->AfterPiece(range.piece, crc_);
    }
    return OkStatus();
  }

  Status Write(Batch& batch) {
    PieceList pieces;
    for (const LayoutRange& range : batch.ranges) {
      if (range.first) {
        pieces.Add(layout_.pieces[range.piece].before);
        pieces.AddZeros(layout_.pieces[range.piece].zeros);
      }
      pieces.Add(range.from.bytes);
      pieces.Add(range.trailer);
    }
    return pieces.WriteTo(sink_, batch.ranges.front().place);
  }

  // How to read a piece whose digest needs its bytes in order; null if it is to be read in order. A
  // piece that is changed passes its digest before that, as it is read.
  std::shared_ptr<UnorderedReader> ApartOf(const LayoutPiece& piece) const {
    const Object& object = source_.objects()[piece.source.object];
    const bool whole = piece.bytes == object.components[piece.source.component].bytes;
    if (!whole || piece.change || !source_.sequential(piece.source)) return nullptr;
    return source_.unordered_reader(piece.source);
  }

  Status AddPieces() {
    for (std::uint32_t i = 0; i < layout_.pieces.size(); ++i) ZT_RETURN_IF_ERROR(AddPiece(i));
    return OkStatus();
  }

  Status AddPiece(std::uint32_t index) {
    const LayoutPiece& piece = layout_.pieces[index];
    const auto shared = shared_.find(index);
    const bool cached = shared != shared_.end();
    const std::shared_ptr<UnorderedReader> apart = cached ? shared->second : ApartOf(piece);
    const bool chained = !cached && apart != nullptr;
    const bool ordered = !chained && source_.sequential(piece.source);
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
      LayoutRange range = {.from = {.source = &source_,
                                    .id = piece.source,
                                    .offset = at,
                                    .count = std::min(end - at, step - (at + shift) % step),
                                    .apart = apart},
                           .piece = index,
                           .first = at == piece.offset};
      const std::uint64_t count = range.from.count;
      at += count;
      range.last = at == end;
      range.place = at_;
      if (range.first) at_ += piece.before.size() + piece.zeros;
      at_ += count;
      if (range.last && layout_.trailer != nullptr) at_ += layout_.trailer->BytesAfter(index);
      const RangeCost cost = {.bytes = count,
                              .weight = count + sizeof(LayoutRange),
                              .ordered = ordered,
                              .continues = chained && !range.first,
                              .continued = chained && !range.last};
      ZT_RETURN_IF_ERROR(pipeline_.Add(std::move(range), cost));
    } while (at < end);
    return OkStatus();
  }

  TensorSource& source_;
  const FileLayout& layout_;
  Sink& sink_;
  BufferPool pool_;
  const std::unordered_map<std::uint32_t, std::shared_ptr<UnorderedReader>> shared_;  // by piece
  std::uint64_t at_ = 0;   // offset of the next range in the file
  std::uint32_t crc_ = 0;  // of the piece whose ranges pass
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
                   const LayoutOptions& given) {
  LayoutOptions options = given;
  if (options.share != nullptr) {
    options.threads = options.share->threads;
    options.memory_bytes = options.share->memory_bytes;
  }
  ZT_RETURN_IF_ERROR(CheckOrder(source, layout));
  ZT_RETURN_IF_ERROR(WithFile(sink.Reserve(layout.bytes), sink.name()));
  sink.Expect(layout.bytes);
  return LayoutWriter(source, layout, sink, options).Run();
}

}  // namespace zt
