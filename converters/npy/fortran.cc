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

// The array has been served: what a later Read wants is gathered again.
void FortranView::Release() {
  for (Band& band : bands_) {
    const std::lock_guard lock(band.mutex);
    band.index = ~std::uint64_t{0};
    std::vector<std::byte>().swap(band.bytes);
  }
}

Status FortranView::Load(const Box& box, std::span<std::byte> out) {
  const std::size_t rank = shape_.size();
  Shape out_strides(rank);
  std::uint64_t stride = 1;
  for (std::size_t k = rank; k-- > 0; stride *= box.size[k]) out_strides[k] = stride;

  // The dimensions that vary in this box; the first is the fastest in the file, the last in the output.
  std::vector<std::size_t> varying;
  for (std::size_t k = 0; k < rank; ++k) {
    if (box.size[k] > 1) varying.push_back(k);
  }
  if (varying.empty()) varying.push_back(0);
  const std::size_t last = varying.back();

  // A run is what one read fetches: dimensions before `partial` whole, `partial` in steps of step[partial].
  Shape step(rank, 1);
  std::uint64_t run = 1;  // elements
  std::size_t partial = varying.front();
  const std::uint64_t rows = std::min(kTileRows, box.size[last]);
  for (const std::size_t k : varying) {
    if ((strides_[k] - run) * width_ > kGap) break;
    partial = k;
    const std::uint64_t budget = (k == last ? tile_ : tile_ / rows) / width_;
    const std::uint64_t fit = budget <= run ? 1 : 1 + (budget - run) / strides_[k];
    step[k] = std::min(fit, box.size[k]);
    run += (step[k] - 1) * strides_[k];
    if (step[k] < box.size[k]) break;
  }
  const bool apart = partial != last;  // the last dimension lies across runs
  if (apart) step[last] = std::clamp<std::uint64_t>(tile_ / width_ / run, 1, box.size[last]);

  std::vector<std::byte> tile(run * (apart ? step[last] : 1) * width_);
  Shape at(rank, 0), count(rank, 1);
  for (;;) {
    std::uint64_t from = 0, to = 0, length = 1;
    for (std::size_t k = 0; k < rank; ++k) {
      from += (box.low[k] + at[k]) * strides_[k];
      to += at[k] * out_strides[k];
      count[k] = std::min(step[k], box.size[k] - at[k]);
      if (k <= partial) length += (count[k] - 1) * strides_[k];
    }
    const std::uint64_t runs = apart ? count[last] : 1;
    for (std::uint64_t i = 0; i < runs; ++i) {
      ZT_RETURN_IF_ERROR(
          bytes_.ReadAt(data_ + (from + i * strides_[last]) * width_,
                        std::span(tile).subspan(i * length * width_, length * width_)));
    }
    std::vector<Axis> axes;
    axes.reserve(varying.size());
    for (const std::size_t k : varying) {
      axes.push_back({count[k], apart && k == last ? length : strides_[k], out_strides[k]});
    }
    const Axis slow = axes.back();
    axes.pop_back();
    Axis fast{1, 1, 1};
    if (!axes.empty()) {
      fast = axes.front();
      axes.erase(axes.begin());
    }
    Scatter(tile.data(), out.data() + to * width_, axes, fast, slow, width_);

    std::size_t next = 0;
    for (; next < varying.size(); ++next) {
      const std::size_t k = varying[next];
      at[k] += step[k];
      if (at[k] < box.size[k]) break;
      at[k] = 0;
    }
    if (next == varying.size()) break;
  }
  SwapBytes(out, swap_);
  return OkStatus();
}

}  // namespace zt::npy::internal
