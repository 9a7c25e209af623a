// zt.convert.strided — bands: which are held, and how threads gather one together.
module zt.convert.strided;

import zt.std;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt {
namespace {

// What a band costs at least, so that they are few enough to look through.
constexpr std::uint64_t kLeastCost = std::uint64_t{64} << 10;
constexpr std::uint64_t kNoTile = std::uint64_t{1} << 63;

}  // namespace

StridedBands::StridedBands(std::uint64_t limit) : limit_(limit) {}
StridedBands::~StridedBands() = default;

// The band, with one user more; it waits while others use so many that there is no room for this one. It comes to an
// end: who uses a band waits for no other.
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
    changed_.wait(lock);
  }
  Buffer bytes = MakeRoom(cost, size);
  if (bytes.empty()) bytes = pool_.Take(size);
  return bands_.emplace_back(&view, index, cost, std::move(bytes), 1);
}

// Called once its user is done with it, under the lock.
void StridedBands::Give(Band& band) {
  if (--band.users > 0) return;
  if (!band.status.ok()) bands_.remove_if([&](const Band& other) { return &other == &band; });
  changed_.notify_all();
}

// Drops bands that nobody uses, the one that was used longest ago first, until `cost` fits. The memory of one that was
// as large, if there was one: fresh memory costs page faults.
Buffer StridedBands::MakeRoom(std::uint64_t cost, std::uint64_t size) {
  Buffer spare;
  std::uint64_t held = 0;
  for (const Band& band : bands_) held += band.cost;
  for (auto band = bands_.begin(); band != bands_.end() && held + cost > limit_;) {
    if (band->users > 0) {
      ++band;
      continue;
    }
    held -= band->cost;
    if (band->cost == cost && band->bytes.bytes().size() >= size) spare = std::move(band->bytes);
    band = bands_.erase(band);
  }
  return spare;
}

// Drops those of a view that nobody uses.
void StridedBands::Drop(const StridedView& view) {
  const std::lock_guard lock(mutex_);
  bands_.remove_if([&](const Band& band) { return band.view == &view && band.users == 0; });
}

Status StridedView::CopyFromBand(std::uint64_t index, const Box& box, std::uint64_t size,
                                 std::uint64_t skip, std::span<std::byte> out) {
  std::unique_lock lock(bands_->mutex_);
  StridedBands::Band& band = bands_->Take(*this, index, size, lock);
  if (!band.begun) Gather(band, box, lock);
  bands_->changed_.wait(lock, [&] { return band.gathering == 0; });
  const Status status = band.status;
  if (status.ok()) {
    lock.unlock();
    std::memcpy(out.data(), band.bytes.bytes().data() + skip, out.size());
    lock.lock();
  }
  bands_->Give(band);
  return status;
}

// Takes tiles of the band until all are taken. `lock` is not held meanwhile.
void StridedView::Gather(StridedBands::Band& band, const Box& box,
                         std::unique_lock<std::mutex>& lock) {
  ++band.gathering;
  lock.unlock();
  Status status;
  try {
    status = Load(box, band.next_tile, band.bytes.bytes().data());
  } catch (const std::bad_alloc&) {
    status = IoError("out of memory");
  } catch (...) {  // of a caller's ByteSource; the other threads wait for this one
    status = OfException();
  }
  lock.lock();
  band.begun = true;
  if (!status.ok()) {
    band.next_tile = kNoTile;
    if (band.status.ok()) band.status = status;
  }
  if (--band.gathering == 0) bands_->changed_.notify_all();
}

}  // namespace zt
