// zt.convert.strided — bands, tiles and runs: what is read when, where its elements go, and
// which bands are held.
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
// Gaps up to this size are read along with the runs around them: the kernel fetches
// whole pages anyway.
constexpr std::uint64_t kGap = 4096;
// Number of runs in a tile, so that a transposed row fills whole cache lines.
constexpr std::uint64_t kTileRows = 64;

// One dimension of a tile: the number of indices, and their distance in input and
// output, in elements.
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

// Copies all combinations of indices of axes[0..depth). The innermost loop transposes `fast`
// (adjacent in `in`) and `last` (adjacent in `out`).
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

// How a band is cut into tiles. A run is the range of one read: the dimensions with the smallest
// strides, in steps of `step`. If the dimension that is adjacent in the output is not part of a
// run, a tile has several runs.
struct StridedView::Tiling {
  std::vector<std::size_t> varying;  // dimensions, in the order of the output
  std::vector<bool> in_run;          // by dimension
  Shape step;                        // by dimension
  Shape out_strides;                 // by dimension
  std::size_t last = 0;              // the dimension that is adjacent in the output
  std::uint64_t run = 1;             // elements of a run
  bool across = false;               // `last` is not part of a run
  std::uint64_t tiles = 1;           // number of tiles in the box
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
  // 15/32 of the limit, so that two bands and the overhead of their buffers fit.
  const std::uint64_t fit = std::clamp(limit / 32 * 15, width_, kMaxBand) / width_;
  split_ = axes_.size() - 1;
  inner_ = 1;
  while (split_ > 0 && axes_[split_].count <= fit / inner_) inner_ *= axes_[split_--].count;
  const std::uint64_t count = axes_[split_].count;
  block_ = std::min(fit / inner_, count);
  if (split_ == 0) return;
  // Prefer bands of equal size, which begin at multiples of it, unless they are much smaller.
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

Status StridedView::Read(std::uint64_t offset, std::span<std::byte> out) {
  if (adjacent()) {
    return ReadUnits(offset, out, swap_, [&](std::uint64_t at, std::span<std::byte> elements) {
      const Status status = bytes_.ReadAt(data_ + at, elements);
      SwapBytes(elements, swap_);
      return status;
    });
  }
  // bytes with the same indices before split_
  const std::uint64_t row = axes_[split_].count * inner_ * width_;
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
  // The view has been served as a whole: a later Read gathers again.
  if ((served_ += wanted) % total_ == 0) bands_->Drop(*this);
  return OkStatus();
}

// The number of dimensions, from the smallest stride on, that fit a tile as a whole and leave no
// page of a run without an element: a run over these may include the gaps between elements.
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

// Reads the runs of one tile, the first at element `from`, into `tile`.
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

// Copies a tile's elements to the output; the first one goes to `out`.
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

// Reads tile `number` of the box and copies its elements to their places in the band at `out`.
Status StridedView::LoadTile(const Box& box, const Tiling& tiling, std::uint64_t number,
                             std::span<std::byte> tile, std::byte* out) {
  const std::size_t rank = axes_.size();
  Shape at(rank, 0), count(rank, 1);
  // The dimension that is adjacent in the output varies slowest, so that consecutive tiles
  // have consecutive runs.
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

// Gathers the tiles of `box` from `next_tile` on; other threads may take tiles at the same time.
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

namespace {

// Minimum cost of a band, which limits their number: bands_ is searched linearly.
constexpr std::uint64_t kLeastCost = std::uint64_t{64} << 10;
constexpr std::size_t kMostSpare = 4;  // bands whose views were served
constexpr std::uint64_t kNoTile = std::uint64_t{1} << 63;

}  // namespace

StridedBands::StridedBands(std::uint64_t limit) : limit_(limit) {}
StridedBands::~StridedBands() = default;

// Finds or adds the band, and adds a user. Waits while the bands in use leave no room for it; no
// deadlock, because a thread that uses a band waits for no other band.
StridedBands::Band& StridedBands::Take(const StridedView& view, std::uint64_t index,
                                       std::uint64_t size, std::unique_lock<std::mutex>& lock) {
  const std::uint64_t cost = std::max<std::uint64_t>(BufferPool::Capacity(size), kLeastCost);
  for (;;) {
    std::uint64_t in_use = 0;
    for (auto band = bands_.begin(); band != bands_.end(); ++band) {
      if (band->view == &view && band->index == index) {
        bands_.splice(bands_.end(), bands_, band);
        ++band->users;
        return *band;
      }
      if (band->users > 0) in_use += band->cost;
    }
    if (in_use == 0 || in_use + cost <= limit_) break;
    changed_.Wait(lock);
  }
  Buffer bytes = MakeRoom(cost, size);
  if (bytes.empty()) bytes = pool_.Take(size);
  return bands_.emplace_back(&view, index, cost, std::move(bytes), 1);
}

// Removes a user from the band. The lock must be held.
void StridedBands::Give(Band& band) {
  if (--band.users > 0) return;
  if (!band.status.ok()) bands_.remove_if([&](const Band& other) { return &other == &band; });
  changed_.NotifyAll();
}

// Drops unused bands until `cost` fits, the least recently used first. Returns the memory of one of
// the same size that has no view any more, or that was dropped: fresh memory costs page faults.
Buffer StridedBands::MakeRoom(std::uint64_t cost, std::uint64_t size) {
  Buffer spare;
  std::uint64_t held = 0;
  for (const Band& band : bands_) held += band.cost;
  for (const bool reuses : {true, false}) {
    for (auto band = bands_.begin(); band != bands_.end();) {
      const bool fits = band->cost == cost && band->bytes.bytes().size() >= size;
      if (reuses ? band->view != nullptr || !fits || !spare.empty()
                 : band->users > 0 || held + cost <= limit_) {
        ++band;
        continue;
      }
      held -= band->cost;
      if (fits) spare = std::move(band->bytes);
      band = bands_.erase(band);
    }
  }
  return spare;
}

// Leaves the memory of one unused band of a view for the next views, drops the others.
void StridedBands::Drop(const StridedView& view) {
  const std::lock_guard lock(mutex_);
  std::size_t spare = 0;
  bool left = false;
  for (auto band = bands_.end(); band != bands_.begin();) {
    --band;
    const bool own = band->view == &view && band->users == 0;
    if (band->view != nullptr && !own) continue;
    if ((own && std::exchange(left, true)) || ++spare > kMostSpare) {
      band = bands_.erase(band);
    } else {
      band->view = nullptr;
    }
  }
}

Status StridedView::CopyFromBand(std::uint64_t index, const Box& box, std::uint64_t size,
                                 std::uint64_t skip, std::span<std::byte> out) {
  std::unique_lock lock(bands_->mutex_);
  StridedBands::Band& band = bands_->Take(*this, index, size, lock);
  if (!band.begun) Gather(band, box, lock);
  while (band.gathering > 0) bands_->changed_.Wait(lock);
  const Status status = band.status;
  if (status.ok()) {
    lock.unlock();
    std::memcpy(out.data(), band.bytes.bytes().data() + skip, out.size());
    lock.lock();
    band.served += out.size();
  }
  // Its memory is the next band's.
  const bool served = band.served >= size && skip + out.size() == size && band.users == 1;
  if (served && status.ok()) band.view = nullptr;
  bands_->Give(band);
  return status;
}

// Gathers tiles of the band until all are taken. Releases `lock` meanwhile.
void StridedView::Gather(StridedBands::Band& band, const Box& box,
                         std::unique_lock<std::mutex>& lock) {
  ++band.gathering;
  lock.unlock();
  Status status;
  try {
    status = Load(box, band.next_tile, band.bytes.bytes().data());
  } catch (const std::bad_alloc&) {
    status = IoError("out of memory");
  } catch (...) {  // from the ByteSource; other threads wait for this one
    status = ExceptionAsStatus();
  }
  lock.lock();
  band.begun = true;
  if (!status.ok()) {
    band.next_tile = kNoTile;
    if (band.status.ok()) band.status = status;
  }
  if (--band.gathering == 0) bands_->changed_.NotifyAll();
}

// ---- HeldBytes ----------------------------------------------------------------------------------

class HeldBytes::Range final : public ByteSource {
 public:
  Range(std::shared_ptr<HeldBytes> all, std::shared_ptr<ByteSource> bytes, std::uint64_t offset,
        std::uint64_t size)
      : all_(std::move(all)), bytes_(std::move(bytes)), offset_(offset), size_(size) {}
  ~Range() override {
    const std::lock_guard lock(all_->mutex_);
    if (!held_.empty()) Free();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  const std::string& name() const override { return bytes_->name(); }
  std::optional<std::uint64_t> size() const override { return offset_ + size_; }
  bool sequential() const override { return false; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(all_->mutex_);
    if (held_.empty()) {
      ZT_RETURN_IF_ERROR(Load());
    } else {
      all_->loaded_.splice(all_->loaded_.end(), all_->loaded_, at_);
    }
    std::ranges::copy(held_.bytes().subspan(offset - offset_, out.size()), out.begin());
    return OkStatus();
  }

 private:
  Status Load() {
    if (++loads_ > kMostLoads) return TooOften(size_);
    while (!all_->loaded_.empty() && all_->used_ + size_ > all_->room_) {
      all_->loaded_.front()->Free();
    }
    Buffer loading = all_->pool_.Take(size_);
    ZT_RETURN_IF_ERROR(bytes_->ReadAt(offset_, loading.bytes()));
    at_ = all_->loaded_.insert(all_->loaded_.end(), this);
    held_ = std::move(loading);
    all_->used_ += size_;
    return OkStatus();
  }
  void Free() {
    all_->used_ -= size_;
    held_ = Buffer();
    all_->loaded_.erase(at_);
  }

  const std::shared_ptr<HeldBytes> all_;
  const std::shared_ptr<ByteSource> bytes_;
  const std::uint64_t offset_, size_;
  Buffer held_;
  std::list<Range*>::iterator at_;  // position in loaded_, if loaded
  std::uint64_t loads_ = 0;
};

HeldBytes::HeldBytes(std::uint64_t room) : room_(room) {}

std::shared_ptr<ByteSource> HeldBytes::Make(std::shared_ptr<HeldBytes> all,
                                            std::shared_ptr<ByteSource> bytes, std::uint64_t offset,
                                            std::uint64_t size) {
  return std::make_shared<Range>(std::move(all), std::move(bytes), offset, size);
}

Status HeldBytes::TooOften(std::uint64_t size) {
  return WithAdvice(
      Unsupported("its storage of " + std::to_string(size) +
                  " bytes is deflated, and its tensors are not read in the order in which they are "
                  "stored; this takes more than half the memory limit; give an uncompressed file"),
      Advice::kMemory);
}

}  // namespace zt
