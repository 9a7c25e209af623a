// zt.pipeline:components — implementation.
module;

#include "core/status_macros.h"

module zt.pipeline;

import zt.std;
import zt.core;
import zt.sink;
import zt.source;

namespace zt {
namespace {

constexpr std::array<std::byte, 4096> kZeros{};

RangeToRead PlaceOf(const ComponentRange& range) {
  if (range.apart != nullptr) {
    const auto at = range.apart->extent();
    if (!at) return {.bytes = range.bytes};
    return {at->bytes, at->offset + range.offset, range.bytes};
  }
  if (range.stream != nullptr)
    return {range.stream->bytes, range.stream->offset + range.offset, range.bytes};
  return range.source->RangeAt(range.id, range.offset, range.bytes);
}

Status Read(const ComponentRange& range) {
  if (range.apart != nullptr) return range.apart->Read(range.offset, range.bytes);
  if (range.stream != nullptr)
    return range.stream->bytes->ReadAt(range.stream->offset + range.offset, range.bytes);
  return range.source->Read(range.id, range.offset, range.bytes);
}

}  // namespace

Status ComponentRange::Named(const Status& status) const {
  if (status.ok()) return status;
  return WithFile(WithTensor(status, name != nullptr ? *name : source->objects()[id.object].name),
                  source->file(id));
}

Status ReadComponents(std::span<ComponentRange* const> ranges, BufferPool& pool, Buffer& buffer) {
  std::uint64_t total = 0;
  for (const ComponentRange* range : ranges) total += range->count;
  if (total == 0) return OkStatus();
  if (buffer.bytes().size() < total) buffer = pool.Take(total);
  std::span<std::byte> free = buffer.bytes();
  std::vector<RangeToRead> places;
  places.reserve(ranges.size());
  for (ComponentRange* const range : ranges) {
    range->bytes = free.first(range->count);
    free = free.subspan(range->count);
    ZT_RETURN_IF_ERROR(
        range->Named(CatchAsStatus([&] { return places.push_back(PlaceOf(*range)), OkStatus(); })));
  }
  return ReadRanges(places, [&](std::size_t i) {
    return ranges[i]->Named(CatchAsStatus([&] { return Read(*ranges[i]); }));
  });
}

void PieceList::Add(std::span<const std::byte> piece) {
  if (piece.empty()) return;
  if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == piece.data()) {
    pieces_.back() = {pieces_.back().data(), pieces_.back().size() + piece.size()};
  } else {
    pieces_.push_back(piece);
  }
}

void PieceList::AddZeros(std::uint64_t count) {
  while (count > 0) {
    const auto some = std::min<std::uint64_t>(count, kZeros.size());
    Add(std::span(kZeros).first(some));
    count -= some;
  }
}

Status PieceList::WriteTo(Sink& sink, std::uint64_t place) {
  const std::vector<std::span<const std::byte>> pieces = std::exchange(pieces_, {});
  if (pieces.empty()) return OkStatus();
  const Status status = CatchAsStatus(
      [&] { return sink.can_place() ? sink.WriteAt(place, pieces) : sink.Append(pieces); });
  return WithFile(status, sink.name());
}

}  // namespace zt
