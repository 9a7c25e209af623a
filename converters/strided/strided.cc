// zt.convert.strided — bands, tiles and runs: what is read when, and where its elements go.
module;

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.strided;

import zt.core;
import zt.source;
import zt.transform;

namespace zt {
namespace {

constexpr std::uint64_t kMaxTile = std::uint64_t{1} << 20;  // fits a core's own cache
constexpr std::uint64_t kMaxBand = std::uint64_t{128} << 20;
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
                         Elements elements, std::uint64_t memory_limit)
    : bytes_(bytes),
      data_(data),
      axes_(std::move(axes)),
      width_(elements.width),
      swap_(elements.swap) {
  total_ = width_;
  for (const StridedAxis& axis : axes_) total_ *= axis.count;
  tile_ = std::clamp(memory_limit / 8, width_, kMaxTile);
  const std::uint64_t left = memory_limit - std::min(memory_limit, 2 * tile_);
  const std::uint64_t fit = std::clamp(left / 2, width_, kMaxBand) / width_;
  split_ = axes_.size() - 1;
  inner_ = 1;
  while (split_ > 0 && axes_[split_].count <= fit / inner_) inner_ *= axes_[split_--].count;
  block_ = std::min(fit / inner_, axes_[split_].count);
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

Status StridedView::Read(std::uint64_t offset, std::span<std::byte> out) {
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
      ZT_RETURN_IF_ERROR(Load(BandBox(prefix, block), out.first(size)));
    } else {
      const std::uint64_t index = prefix * blocks + block;
      Band& band = bands_[index % bands_.size()];
      const std::lock_guard lock(band.mutex);
      if (band.index != index) {
        band.index = ~std::uint64_t{0};
        band.bytes.resize(size);
        ZT_RETURN_IF_ERROR(Load(BandBox(prefix, block), band.bytes));
        band.index = index;
      }
      std::memcpy(out.data(), band.bytes.data() + (offset - begin), take);
    }
    out = out.subspan(take);
    offset += take;
  }
  served_ += wanted;
  if (served_ == total_) Release();
  return OkStatus();
}

// The view has been served: what a later Read wants is gathered again.
void StridedView::Release() {
  for (Band& band : bands_) {
    const std::lock_guard lock(band.mutex);
    band.index = ~std::uint64_t{0};
    std::vector<std::byte>().swap(band.bytes);
  }
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
  tiling.across = true;
  for (const std::size_t k : by_stride) {
    const std::uint64_t apart = axes_[k].stride;
    if (apart > tiling.run && (apart - tiling.run) * width_ > kGap) break;
    if (k == tiling.last) tiling.across = false;
    const std::uint64_t budget = (tiling.across ? tile_ / rows : tile_) / width_;
    std::uint64_t fit = box.size[k];
    if (apart > 0) fit = budget <= tiling.run ? 1 : 1 + (budget - tiling.run) / apart;
    tiling.in_run[k] = true;
    tiling.step[k] = std::min(fit, box.size[k]);
    tiling.run += (tiling.step[k] - 1) * apart;
    if (tiling.step[k] < box.size[k]) break;
  }
  if (tiling.across) {
    tiling.step[tiling.last] =
        std::clamp<std::uint64_t>(tile_ / width_ / tiling.run, 1, box.size[tiling.last]);
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

Status StridedView::Load(const Box& box, std::span<std::byte> out) {
  const std::size_t rank = axes_.size();
  const Tiling tiling = Tile(box);
  std::vector<std::byte> tile(tiling.run * (tiling.across ? tiling.step[tiling.last] : 1) * width_);
  Shape at(rank, 0), count(rank, 1);
  for (;;) {
    std::uint64_t from = 0, to = 0, length = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      from += (box.low[k] + at[k]) * axes_[k].stride;
      to += at[k] * tiling.out_strides[k];
      count[k] = std::min(tiling.step[k], box.size[k] - at[k]);
      if (tiling.in_run[k]) length += (count[k] - 1) * axes_[k].stride;
    }
    const std::uint64_t runs = tiling.across ? count[tiling.last] : 1;
    const std::span<std::byte> filled = std::span(tile).first(length * runs * width_);
    ZT_RETURN_IF_ERROR(ReadTile(tiling, from, count, filled));
    PlaceTile(tiling, count, filled, out.data() + to * width_);

    // The next tile: the dimension that is adjacent in the output changes last, as runs then follow each other.
    std::size_t next = 0;
    for (; next < tiling.varying.size(); ++next) {
      const std::size_t k = tiling.varying[next];
      at[k] += tiling.step[k];
      if (at[k] < box.size[k]) break;
      at[k] = 0;
    }
    if (next == tiling.varying.size()) break;
  }
  SwapBytes(out, swap_);
  return OkStatus();
}

}  // namespace zt
