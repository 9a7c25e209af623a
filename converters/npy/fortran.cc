// zt.convert.npy:array — column-major arrays in C order, with bounded memory.
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

module zt.convert.npy;

import :array;
import :header;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::npy::internal {
namespace {

constexpr std::uint64_t kMaxTile = std::uint64_t{1} << 20;  // fits a core's own cache
constexpr std::uint64_t kMaxBand = std::uint64_t{128} << 20;
// Runs that lie at most this many bytes apart are read with one call: a page is fetched whole anyway.
constexpr std::uint64_t kGap = 4096;
// The number of runs side by side in a tile, so that a transposed row fills whole cache lines.
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
  } else if (fast.from == 1 && last.to == 1) {
    Transpose(in, last.from, out, fast.to, last.count, fast.count, width);
  } else {
    for (std::uint64_t i = 0; i < fast.count; ++i) {
      CopyAxis(in + i * fast.from * width, last, out + i * fast.to * width, width);
    }
  }
}

}  // namespace

FortranView::FortranView(ByteSource& bytes, std::uint64_t data, Shape shape, const ArrayType& type,
                         std::uint64_t memory_limit)
    : bytes_(bytes), data_(data), shape_(std::move(shape)), width_(type.width), swap_(type.swap) {
  std::uint64_t stride = 1;
  for (const std::uint64_t dim : shape_) {
    strides_.push_back(stride);
    stride *= dim;
  }
  total_ = stride * width_;
  tile_ = std::clamp(memory_limit / 8, width_, kMaxTile);
  const std::uint64_t left = memory_limit - std::min(memory_limit, 2 * tile_);
  const std::uint64_t elements = std::clamp(left / 2, width_, kMaxBand) / width_;
  split_ = shape_.size() - 1;
  inner_ = 1;
  while (split_ > 0 && inner_ * shape_[split_] <= elements) inner_ *= shape_[split_--];
  block_ = std::min(elements / inner_, shape_[split_]);
}

FortranView::Box FortranView::BandBox(std::uint64_t prefix, std::uint64_t block) const {
  Box box{Shape(shape_.size(), 0), shape_};
  for (std::size_t k = split_; k-- > 0;) {
    box.low[k] = prefix % shape_[k];
    box.size[k] = 1;
    prefix /= shape_[k];
  }
  box.low[split_] = block * block_;
  box.size[split_] = std::min(block_, shape_[split_] - box.low[split_]);
  return box;
}

Status FortranView::Read(std::uint64_t offset, std::span<std::byte> out) {
  const std::uint64_t row = shape_[split_] * inner_ * width_;  // bytes that share a prefix
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

// Frees the bands once the whole array has been served. A later Read gathers what it needs again.
void FortranView::Release() {
  for (Band& band : bands_) {
    const std::lock_guard lock(band.mutex);
    band.index = ~std::uint64_t{0};
    std::vector<std::byte>().swap(band.bytes);
  }
}

FortranView::Tiling FortranView::TilesOf(const Box& box) const {
  Tiling tiling;
  for (std::size_t k = 0; k < shape_.size(); ++k) {
    if (box.size[k] > 1) tiling.varying.push_back(k);
  }
  if (tiling.varying.empty()) tiling.varying.push_back(0);
  const std::size_t last = tiling.varying.back();
  tiling.step = Shape(shape_.size(), 1);
  tiling.partial = tiling.varying.front();
  const std::uint64_t rows = std::min(kTileRows, box.size[last]);
  for (const std::size_t k : tiling.varying) {
    if ((strides_[k] - tiling.run) * width_ > kGap) break;
    tiling.partial = k;
    const std::uint64_t budget = (k == last ? tile_ : tile_ / rows) / width_;
    const std::uint64_t fit = budget <= tiling.run ? 1 : 1 + (budget - tiling.run) / strides_[k];
    tiling.step[k] = std::min(fit, box.size[k]);
    tiling.run += (tiling.step[k] - 1) * strides_[k];
    if (tiling.step[k] < box.size[k]) break;
  }
  tiling.apart = tiling.partial != last;
  if (tiling.apart) {
    tiling.step[last] = std::clamp<std::uint64_t>(tile_ / width_ / tiling.run, 1, box.size[last]);
  }
  return tiling;
}

Status FortranView::LoadTile(const Box& box, const Tiling& tiling, const Shape& at,
                             const Shape& out_strides, std::span<std::byte> tile,
                             std::span<std::byte> out) {
  const std::size_t rank = shape_.size(), last = tiling.varying.back();
  Shape count(rank, 1);
  std::uint64_t from = 0, to = 0, length = 1;
  for (std::size_t k = 0; k < rank; ++k) {
    from += (box.low[k] + at[k]) * strides_[k];
    to += at[k] * out_strides[k];
    count[k] = std::min(tiling.step[k], box.size[k] - at[k]);
    if (k <= tiling.partial) length += (count[k] - 1) * strides_[k];
  }
  const std::uint64_t runs = tiling.apart ? count[last] : 1;
  for (std::uint64_t i = 0; i < runs; ++i) {
    ZT_RETURN_IF_ERROR(bytes_.ReadAt(data_ + (from + i * strides_[last]) * width_,
                                     tile.subspan(i * length * width_, length * width_)));
  }
  std::vector<Axis> axes;
  axes.reserve(tiling.varying.size());
  for (const std::size_t k : tiling.varying) {
    const std::uint64_t stride = tiling.apart && k == last ? length : strides_[k];
    axes.push_back({count[k], stride, out_strides[k]});
  }
  const Axis slow = axes.back();
  axes.pop_back();
  Axis fast{1, 1, 1};
  if (!axes.empty()) {
    fast = axes.front();
    axes.erase(axes.begin());
  }
  Scatter(tile.data(), out.data() + to * width_, axes, fast, slow, width_);
  return OkStatus();
}

Status FortranView::Load(const Box& box, std::span<std::byte> out) {
  const std::size_t rank = shape_.size();
  Shape out_strides(rank);
  std::uint64_t stride = 1;
  for (std::size_t k = rank; k-- > 0; stride *= box.size[k]) out_strides[k] = stride;

  const Tiling tiling = TilesOf(box);
  const std::uint64_t runs = tiling.apart ? tiling.step[tiling.varying.back()] : 1;
  std::vector<std::byte> tile(tiling.run * runs * width_);
  Shape at(rank, 0);
  for (bool more = true; more;) {
    ZT_RETURN_IF_ERROR(LoadTile(box, tiling, at, out_strides, tile, out));
    more = false;
    for (const std::size_t k : tiling.varying) {  // the next tile, the first dimension fastest
      at[k] += tiling.step[k];
      more = at[k] < box.size[k];
      if (more) break;
      at[k] = 0;
    }
  }
  SwapBytes(out, swap_);
  return OkStatus();
}

}  // namespace zt::npy::internal
