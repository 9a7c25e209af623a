// zt.convert.strided — bands, tiles and runs: what is read when, and where its elements go.
module;

#include "core/status_macros.h"

module zt.convert.strided;

import zt.std;
import zt.core;
import zt.pipeline;
import zt.source;
import zt.transform;

namespace zt {
namespace {

constexpr std::uint64_t kMaxTile = std::uint64_t{1} << 20;  // fits a core's own cache
constexpr std::uint64_t kMaxBand = std::uint64_t{30} << 20;
// Runs this far apart or less are read as one: a page is fetched whole anyway.
constexpr std::uint64_t kGap = 4096;
// Runs side by side in a tile, so that a transposed row fills whole cache lines.
constexpr std::uint64_t kTileRows = 64;

// One dimension of a tile: how many indices, and how far apart they lie, in elements.
struct Axis {
  std::uint64_t count, from, to;
};

template <std::size_t kWidth>
void CopyFixed(const std::byte* in, const Axis& axis, std::byte* out) {
  for (std::uint64_t i = 0; i < axis.count; ++i) {
    std::memcpy(out + i * axis.to * kWidth, in + i * axis.from * kWidth, kWidth);
  }
}

void CopyAxis(const std::byte* in, const Axis& axis, std::byte* out, std::uint64_t width) {
  if (axis.from == 1 && axis.to == 1) {
    std::memcpy(out, in, axis.count * width);
    return;
  }
  switch (width) {
    case 1:
      return CopyFixed<1>(in, axis, out);
    case 2:
      return CopyFixed<2>(in, axis, out);
    case 4:
      return CopyFixed<4>(in, axis, out);
    case 8:
      return CopyFixed<8>(in, axis, out);
    default:
      return CopyFixed<16>(in, axis, out);
  }
}

// Copies axes[0..depth) in all combinations; the innermost work is a transposition of `fast`
// (adjacent in `in`) and `last` (adjacent in `out`) where both exist.
void Scatter(const std::byte* in, std::byte* out, std::span<const Axis> axes, const Axis& fast,
             const Axis& last, std::uint64_t width) {
  if (!axes.empty()) {
    const Axis& axis = axes.back();
    for (std::uint64_t i = 0; i < axis.count; ++i) {
      Scatter(in + i * axis.from * width, out + i * axis.to * width, axes.first(axes.size() - 1),
              fast, last, width);
    }
  } else if (fast.count == 1) {
    CopyAxis(in, last, out, width);
  } else if (last.count == 1) {
    CopyAxis(in, fast, out, width);
  } else if (fast.from == 1 && last.to == 1 && last.from >= fast.count && fast.to >= last.count) {
    Transpose(in, last.from, out, fast.to, last.count, fast.count, width);
  } else {
    for (std::uint64_t i = 0; i < fast.count; ++i) {
      CopyAxis(in + i * fast.from * width, last, out + i * fast.to * width, width);
    }
  }
}

}  // namespace

// How a band is cut into tiles. A run is what one read fetches: some dimensions, those of the least strides, in steps
// of `step`. The dimension that is adjacent in the output may lie across runs; then a tile has several.
struct StridedView::Tiling {
  std::vector<std::size_t> varying;  // dimensions, in the order of the output
  std::vector<bool> in_run;          // by dimension
  Shape step;                        // by dimension
  Shape out_strides;                 // by dimension
  std::size_t last = 0;              // adjacent in the output
  std::uint64_t run = 1;             // elements
  bool across = false;               // the last dimension lies across runs
  std::uint64_t tiles = 1;           // in the box
};

std::vector<StridedAxis> CollapseAxes(std::span<const std::uint64_t> shape,
                                      std::span<const std::uint64_t> strides) {
  std::vector<StridedAxis> axes;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) continue;
    if (!axes.empty() && axes.back().stride == strides[k] * shape[k]) {
      axes.back() = {axes.back().count * shape[k], strides[k]};
    } else {
      axes.push_back({shape[k], strides[k]});
    }
  }
  if (axes.empty()) axes.push_back({1, 1});
  return axes;
}

StridedView::StridedView(ByteSource& bytes, std::uint64_t data, std::vector<StridedAxis> axes,
                         Elements elements, std::shared_ptr<StridedBands> bands)
    : bytes_(bytes),
      data_(data),
      axes_(std::move(axes)),
      width_(elements.width),
      swap_(elements.swap),
      bands_(std::move(bands)) {
  total_ = width_;
  for (const StridedAxis& axis : axes_) total_ *= axis.count;
  const std::uint64_t limit = bands_ == nullptr ? 0 : bands_->limit();
  tile_ = std::clamp(limit / 4, width_, kMaxTile);
  // Two of them, with what a piece of work costs besides, fit where two of half the limit would.
  const std::uint64_t fit = std::clamp(limit / 32 * 15, width_, kMaxBand) / width_;
  split_ = axes_.size() - 1;
  inner_ = 1;
  while (split_ > 0 && axes_[split_].count <= fit / inner_) inner_ *= axes_[split_--].count;
  const std::uint64_t count = axes_[split_].count;
  block_ = std::min(fit / inner_, count);
  if (split_ == 0) return;
  // Bands of one size begin at multiples of it: better, if they are not much smaller then.
  const std::uint64_t least = (count + block_ - 1) / block_;
  for (std::uint64_t n = least; n < std::min(2 * least, least + 64); ++n) {
    if (count % n != 0) continue;
    block_ = count / n;
    return;
  }
}

StridedView::~StridedView() {
  if (bands_ != nullptr) bands_->Drop(*this);
}

std::uint64_t StridedView::preferred_read() const {
  if (adjacent() || (split_ > 0 && axes_[split_].count % block_ != 0)) return 0;
  return block_ * inner_ * width_;
}

StridedView::Box StridedView::BandBox(std::uint64_t prefix, std::uint64_t block) const {
  Box box{Shape(axes_.size(), 0), {}};
  for (const StridedAxis& axis : axes_) box.size.push_back(axis.count);
  for (std::size_t k = split_; k-- > 0;) {
    box.low[k] = prefix % axes_[k].count;
    box.size[k] = 1;
    prefix /= axes_[k].count;
  }
  box.low[split_] = block * block_;
  box.size[split_] = std::min(block_, axes_[split_].count - box.low[split_]);
  return box;
}

// Of elements that lie side by side in the other byte order: whole ones are turned around in place, one that `out` cuts
// in a buffer.
Status StridedView::ReadAdjacent(std::uint64_t offset, std::span<std::byte> out) {
  std::array<std::byte, 16> buffer;
  while (!out.empty()) {
    const std::uint64_t skip = offset % swap_;
    std::uint64_t take = out.size() / swap_ * swap_;
    if (skip == 0 && take > 0) {
      ZT_RETURN_IF_ERROR(bytes_.ReadAt(data_ + offset, out.first(take)));
      SwapBytes(out.first(take), swap_);
    } else {
      const std::span<std::byte> element = std::span(buffer).first(swap_);
      ZT_RETURN_IF_ERROR(bytes_.ReadAt(data_ + offset - skip, element));
      SwapBytes(element, swap_);
      take = std::min<std::uint64_t>(swap_ - skip, out.size());
      std::memcpy(out.data(), element.data() + skip, take);
    }
    out = out.subspan(take);
    offset += take;
  }
  return OkStatus();
}

Status StridedView::Read(std::uint64_t offset, std::span<std::byte> out) {
  if (adjacent()) return ReadAdjacent(offset, out);
  const std::uint64_t row = axes_[split_].count * inner_ * width_;  // bytes that share a prefix
  const std::uint64_t band_size = block_ * inner_ * width_;
  const std::uint64_t blocks = (row + band_size - 1) / band_size;
  const std::uint64_t wanted = out.size();
  while (!out.empty()) {
    const std::uint64_t prefix = offset / row, block = offset % row / band_size;
    const std::uint64_t begin = prefix * row + block * band_size;
    const std::uint64_t size = std::min(band_size, (prefix + 1) * row - begin);
    const std::uint64_t take = std::min<std::uint64_t>(out.size(), begin + size - offset);
    if (take == size) {
      std::atomic<std::uint64_t> next_tile{0};
      ZT_RETURN_IF_ERROR(Load(BandBox(prefix, block), next_tile, out.data()));
    } else {
      ZT_RETURN_IF_ERROR(CopyFromBand(prefix * blocks + block, BandBox(prefix, block), size,
                                      offset - begin, out.first(take)));
    }
    out = out.subspan(take);
    offset += take;
  }
  // The view has been served: what a later Read wants is gathered again.
  if ((served_ += wanted) % total_ == 0) bands_->Drop(*this);
  return OkStatus();
}

// How many dimensions, from the least stride on, fit a tile whole and reach so many elements that there is one for each
// page of the run: gaps between these do not matter.
std::size_t StridedView::DenseAxes(const Box& box, std::span<const std::size_t> by_stride,
                                   std::size_t last) const {
  const std::uint64_t rows = std::min(kTileRows, box.size[last]);
  std::size_t dense = 0;
  std::uint64_t reach = 1, elements = 1;
  bool across = true;
  for (std::size_t i = 0; i < by_stride.size(); ++i) {
    const std::size_t k = by_stride[i];
    reach += (box.size[k] - 1) * axes_[k].stride;
    elements *= box.size[k];
    if (k == last) across = false;
    if (reach <= (across ? tile_ / rows : tile_) / width_ && reach * width_ / kGap <= elements)
      dense = i + 1;
  }
  return dense;
}

StridedView::Tiling StridedView::Tile(const Box& box) const {
  const std::size_t rank = axes_.size();
  Tiling tiling;
  tiling.in_run.resize(rank);
  tiling.step = Shape(rank, 1);
  tiling.out_strides.resize(rank);
  std::uint64_t stride = 1;
  for (std::size_t k = rank; k-- > 0; stride *= box.size[k]) tiling.out_strides[k] = stride;
  for (std::size_t k = 0; k < rank; ++k) {
    if (box.size[k] > 1) tiling.varying.push_back(k);
  }
  if (tiling.varying.empty()) tiling.varying.push_back(rank - 1);
  tiling.last = tiling.varying.back();

  std::vector<std::size_t> by_stride = tiling.varying;
  std::sort(by_stride.begin(), by_stride.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(axes_[a].stride, a) < std::pair(axes_[b].stride, b);
  });
  const std::uint64_t rows = std::min(kTileRows, box.size[tiling.last]);
  const std::size_t dense = DenseAxes(box, by_stride, tiling.last);
  tiling.across = true;
  for (std::size_t i = 0; i < by_stride.size(); ++i) {
    const std::size_t k = by_stride[i];
    const std::uint64_t apart = axes_[k].stride;
    if (i >= dense && apart > tiling.run && (apart - tiling.run) * width_ > kGap) break;
    if (k == tiling.last) tiling.across = false;
    const std::uint64_t budget = (tiling.across && i >= dense ? tile_ / rows : tile_) / width_;
    std::uint64_t fit = box.size[k];
    if (apart > 0) fit = budget <= tiling.run ? 1 : 1 + (budget - tiling.run) / apart;
    tiling.in_run[k] = true;
    tiling.step[k] = std::min(fit, box.size[k]);
    tiling.run += (tiling.step[k] - 1) * apart;
    if (tiling.step[k] < box.size[k]) break;
  }
  if (tiling.across) {
    std::uint64_t fit = std::max<std::uint64_t>(tile_ / width_ / tiling.run, 1);
    if (fit > kTileRows) fit -= fit % kTileRows;
    tiling.step[tiling.last] = std::min(fit, box.size[tiling.last]);
  }
  for (const std::size_t k : tiling.varying) {
    tiling.tiles *= (box.size[k] + tiling.step[k] - 1) / tiling.step[k];
  }
  return tiling;
}

// Fills `tile` with the runs of one tile, which begins at element `from`.
Status StridedView::ReadTile(const Tiling& tiling, std::uint64_t from,
                             std::span<const std::uint64_t> count, std::span<std::byte> tile) {
  const std::uint64_t runs = tiling.across ? count[tiling.last] : 1;
  const std::uint64_t length = tile.size() / runs;
  for (std::uint64_t i = 0; i < runs; ++i) {
    ZT_RETURN_IF_ERROR(bytes_.ReadAt(data_ + (from + i * axes_[tiling.last].stride) * width_,
                                     tile.subspan(i * length, length)));
  }
  return OkStatus();
}

// Copies a tile's elements to where they belong; `out` is where its first one does.
void StridedView::PlaceTile(const Tiling& tiling, std::span<const std::uint64_t> count,
                            std::span<const std::byte> tile, std::byte* out) const {
  Axis last{1, 1, 1}, fast{1, 1, 1};
  std::vector<Axis> axes;
  axes.reserve(tiling.varying.size());
  for (const std::size_t k : tiling.varying) {
    if (k != tiling.last) {
      axes.push_back({count[k], axes_[k].stride, tiling.out_strides[k]});
      continue;
    }
    const std::uint64_t length = tiling.across ? tile.size() / count[k] / width_ : axes_[k].stride;
    last = {count[k], length, tiling.out_strides[k]};
  }
  const auto adjacent =
      std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.from == 1; });
  if (last.from != 1 && adjacent != axes.end()) {
    fast = *adjacent;
    axes.erase(adjacent);
  }
  Scatter(tile.data(), out, axes, fast, last, width_);
}

// The tile of this number, which goes to where it belongs in the band at `out`.
Status StridedView::LoadTile(const Box& box, const Tiling& tiling, std::uint64_t number,
                             std::span<std::byte> tile, std::byte* out) {
  const std::size_t rank = axes_.size();
  Shape at(rank, 0), count(rank, 1);
  // The dimension that is adjacent in the output changes last, as runs then follow each other.
  for (const std::size_t k : tiling.varying) {
    const std::uint64_t steps = (box.size[k] + tiling.step[k] - 1) / tiling.step[k];
    at[k] = number % steps * tiling.step[k];
    number /= steps;
  }
  std::uint64_t from = 0, to = 0, length = 1;
  for (std::size_t k = 0; k < rank; ++k) {
    from += (box.low[k] + at[k]) * axes_[k].stride;
    to += at[k] * tiling.out_strides[k];
    count[k] = std::min(tiling.step[k], box.size[k] - at[k]);
    if (tiling.in_run[k]) length += (count[k] - 1) * axes_[k].stride;
  }
  const std::uint64_t runs = tiling.across ? count[tiling.last] : 1;
  const std::span<std::byte> filled = tile.first(length * runs * width_);
  ZT_RETURN_IF_ERROR(ReadTile(tiling, from, count, filled));
  SwapBytes(filled, swap_);
  PlaceTile(tiling, count, filled, out + to * width_);
  return OkStatus();
}

// The tiles of `box` from `next_tile` on, which other threads may take as well.
Status StridedView::Load(const Box& box, std::atomic<std::uint64_t>& next_tile, std::byte* out) {
  const Tiling tiling = Tile(box);
  const std::uint64_t room = tiling.run * (tiling.across ? tiling.step[tiling.last] : 1) * width_;
  const auto tile = std::make_unique_for_overwrite<std::byte[]>(room);
  for (;;) {
    const std::uint64_t number = next_tile++;
    if (number >= tiling.tiles) return OkStatus();
    ZT_RETURN_IF_ERROR(LoadTile(box, tiling, number, {tile.get(), room}, out));
  }
}

}  // namespace zt
