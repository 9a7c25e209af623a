// zt.remote:object — ranges of an object: read-ahead, and the ranges that are held.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import zt.core;
import zt.pipeline;
import zt.source;

namespace zt::remote::internal {

namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
// The request for a read near the end, where manifests and directories are.
constexpr std::uint64_t kTail = 512 * kKiB;
// The largest request; see RemoteObject::most_bytes, too.
constexpr std::uint64_t kMostSegment = 8 * kMiB;
// The smallest request, and the largest gap between announced ranges that are requested together.
constexpr std::uint64_t kLeast = 64 * kKiB, kGap = 256 * kKiB;
// The distance within which several threads read out of order.
constexpr std::uint64_t kSlack = 32 * kMiB;
constexpr std::size_t kMostRequests = 16;
// The first bytes that all objects together hold for good, and those of an object that are
// requested at once.
constexpr std::uint64_t kMostHeads = 24 * kMiB, kHead = 256 * kKiB;

std::atomic<std::uint64_t> g_held = 0, g_heads = 0;
// Counts uses of segments, to find the least recently used one.
std::atomic<std::uint64_t> g_uses = 0;

// The memory of segments. Uses mmap: malloc returns memory that several threads used to the system
// only late.
BufferPool& SegmentPool() {
  static BufferPool* const pool = new BufferPool(kMostSegment / 2);
  return *pool;
}

// A range whose bytes have arrived or are in flight.
struct Segment {
  Segment(ByteRange bytes, std::uint64_t reads)
      : range(bytes), wanted(reads), data(SegmentPool().Take(bytes.end - bytes.begin)) {
    g_held += size();
  }
  ~Segment() { g_held -= size(); }
  std::uint64_t size() const { return range.end - range.begin; }

  const ByteRange range;
  // Of bytes: as many as there never are.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // When so many bytes were read, it is dropped.
  const std::uint64_t wanted;
  const Buffer data;
  // Guarded by the mutex of the source that holds the segment.
  std::uint64_t have = 0, taken = 0, used = 0;
  bool ended = false;
  HttpAnswer answer;
  std::weak_ptr<Exchange> exchange;
  // Notified when at least `awaited` bytes have arrived: the fewest that a reader waits for.
  CondVar arrived;
  std::uint64_t awaited = kNever;

  // Records that the first `bytes` have arrived. A reader is only woken when it can go on.
  void Arrived(std::uint64_t bytes) {
    have = bytes;
    if (have < awaited && !ended) return;
    awaited = kNever;
    arrived.NotifyAll();
  }
  // Waits until the first `bytes` have arrived, or the request has ended.
  void Await(std::uint64_t bytes, Mutex& mutex) ZT_REQUIRES(mutex) {
    while (have < bytes && !ended) {
      awaited = std::min(awaited, bytes);
      arrived.Wait(mutex);
    }
  }
};
using SharedSegment = std::shared_ptr<Segment>;

// The state that a source shares with callbacks of the transport, which may outlive it.
struct Shelf {
  Mutex mutex;
  // By their first bytes. Segments do not overlap.
  std::map<std::uint64_t, SharedSegment> segments ZT_GUARDED_BY(mutex);
  std::size_t under_way ZT_GUARDED_BY(mutex) = 0;
};

// The shelves of all sources, so that one source can free segments of another.
Living<Shelf>& Shelves() {
  static auto* const shelves = new Living<Shelf>;
  return *shelves;
}

// Drops segments that were not used recently.
void Trim() {
  constexpr std::uint64_t kLately = 256;
  for (const auto& shelf : Shelves().All()) {
    const MutexLock lock(shelf->mutex);
    std::erase_if(shelf->segments, [](const auto& each) {
      return each.second->ended && each.second->used + kLately < g_uses;
    });
  }
}

class RangedBytes final : public ByteSource {
 public:
  RangedBytes(SharedObject object, SharedPin pin, std::string head)
      : object_(std::move(object)),
        pin_(std::move(pin)),
        size_(pin_->known().size.value_or(0)),
        segment_(std::min(object_->most_bytes, kMostSegment)),
        most_ahead_(object_->settings->read_ahead) {
    Shelves().Add(shelf_);
    const MutexLock lock(shelf_->mutex);
    frontier_ = run_begin_ = head.size();
    if (HasRoomForHead(head.size())) {
      head_ = std::move(head);
      g_heads += head_.size();
    } else {
      ShelveLocked(head, ++g_uses);
    }
  }
  ~RangedBytes() override {
    g_heads -= head_.size();
    const MutexLock lock(shelf_->mutex);
    for (const auto& [begin, segment] : shelf_->segments) {
      if (const auto exchange = segment->exchange.lock()) exchange->Cancel();
    }
  }
  RangedBytes(const RangedBytes&) = delete;
  RangedBytes& operator=(const RangedBytes&) = delete;

  const std::string& name() const override { return object_->name; }
  std::optional<std::uint64_t> size() const override { return size_; }
  bool sequential() const override { return false; }

  void WillRead(std::span<const ByteRange> ranges) override {
    const MutexLock lock(shelf_->mutex);
    announced_.insert(announced_.end(), ranges.begin(), ranges.end());
  }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > size_ || out.size() > size_ - offset) return EndsEarly(offset, out.size(), size_);
    const std::uint64_t end = offset + out.size();
    {
      const MutexLock lock(shelf_->mutex);
      const std::size_t take =
          std::min<std::uint64_t>(out.size(), head_.size() - std::min(offset, head_.size()));
      if (take > 0) std::memcpy(out.data(), head_.data() + offset, take);
      out = out.subspan(take);
      offset += take;
      // What was read to its end is rarely read again.
      if (offset == size_ && take > 0) {
        g_heads -= head_.size();
        ShelveLocked(std::exchange(head_, {}), 0);
      }
      if (!out.empty()) NoteLocked(offset, end);
    }
    int refreshed = 0;
    while (!out.empty()) {
      ZT_ASSIGN_OR_RETURN(const SharedSegment segment, Find(offset, end));
      ZT_ASSIGN_OR_RETURN(const std::size_t got, Take(segment, offset, out, refreshed));
      out = out.subspan(got);
      offset += got;
    }
    return OkStatus();
  }

 private:
  // Holds the first bytes like any range, until there is need of their memory.
  void ShelveLocked(const std::string& head, std::uint64_t used) ZT_REQUIRES(shelf_->mutex) try {
    if (head.empty()) return;
    auto segment = std::make_shared<Segment>(ByteRange{0, head.size()}, Segment::kNever);
    std::memcpy(segment->data.bytes().data(), head.data(), head.size());
    segment->have = head.size();
    segment->used = used;
    segment->ended = true;
    shelf_->segments.emplace(0, std::move(segment));
  } catch (const std::bad_alloc&) {
    return;  // it is requested again
  }

  // Tracks the position of reads. Read-ahead follows them if they are near one another and skip
  // little: reads at the ends of many blobs are no reason to read the bytes between.
  void NoteLocked(std::uint64_t at, std::uint64_t end) ZT_REQUIRES(shelf_->mutex) {
    const bool near = at + kSlack >= frontier_ && at <= frontier_ + segment_;
    if (!near || frontier_ - run_begin_ > 8 * kSlack) {
      if (!near) {
        window_ = 0;
        frontier_ = asked_ = at;
      }
      run_begin_ = frontier_;
      run_bytes_ = 0;
    }
    run_bytes_ += end - at;
    frontier_ = std::max(frontier_, end);
    dense_ = 2 * run_bytes_ >= frontier_ - std::min(frontier_, run_begin_);
    if (!dense_) window_ = 0;
  }

  // The segment with byte `at`, requested now if necessary. Also requests the bytes that are likely
  // to be read next.
  StatusOr<SharedSegment> Find(std::uint64_t at, std::uint64_t end) {
    constexpr std::uint64_t kTrimEvery = 64;
    if (g_held + segment_ > most_ahead_ && g_uses % kTrimEvery == 0) Trim();
    std::vector<SharedSegment> fresh;
    SharedSegment found;
    const Status status = Choose(at, end, found, fresh);
    // All of them are launched or ended, because threads wait for them.
    for (const SharedSegment& segment : fresh) {
      const Status launched = status.ok() ? Launch(segment) : status;
      if (!launched.ok()) End(*shelf_, *segment, HttpAnswer{.status = launched});
    }
    if (!status.ok()) return status;
    return found;
  }

  // Finds the segment with byte `at`, or adds it, and others that are likely to be read next.
  Status Choose(std::uint64_t at, std::uint64_t end, SharedSegment& found,
                std::vector<SharedSegment>& fresh) try {
    const MutexLock lock(shelf_->mutex);
    PlanLocked();
    found = AtLocked(at);
    const bool missed = found == nullptr;
    if (missed) {
      const ByteRange demand = DemandLocked(at, end);
      MakeRoomLocked(demand.end - demand.begin);
      found = AddLocked(demand, demand.end - demand.begin, fresh);
      StrikeLocked(demand);
    }
    AheadLocked(at, end, missed, fresh);
    return OkStatus();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  SharedSegment AtLocked(std::uint64_t at) ZT_REQUIRES(shelf_->mutex) {
    auto next = shelf_->segments.upper_bound(at);
    if (next == shelf_->segments.begin()) return nullptr;
    const SharedSegment& segment = std::prev(next)->second;
    return at < segment->range.end ? segment : nullptr;
  }

  // The first range at or after `begin` and before `end` that is not in a segment.
  ByteRange FreeLocked(std::uint64_t begin, std::uint64_t end) ZT_REQUIRES(shelf_->mutex) {
    while (begin < end) {
      const SharedSegment there = AtLocked(begin);
      if (there == nullptr) break;
      begin = there->range.end;
    }
    const auto next = shelf_->segments.lower_bound(begin);
    if (next != shelf_->segments.end()) end = std::min(end, next->first);
    return {begin, std::max(begin, end)};
  }

  // The range to request for byte `at`, for a read up to `end`.
  ByteRange DemandLocked(std::uint64_t at, std::uint64_t end) ZT_REQUIRES(shelf_->mutex) {
    std::uint64_t begin = at;
    if (size_ - at <= kTail && LastEndLocked(at) + kTail < at) {
      begin = std::max(size_ - kTail, std::min(at, LastEndLocked(at)));
      end = size_;
    }
    end = std::max(end, at + kLeast);
    if (at < kHead) {
      begin = std::min(at, LastEndLocked(at));
      end = std::max(end, kHead);
    }
    if (next_planned_ < planned_.size() && planned_[next_planned_].begin <= at)
      end = std::max(end, planned_[next_planned_].end);
    return {begin, FreeLocked(at, std::min({end, begin + segment_, size_})).end};
  }

  // The end of the last segment before `at`.
  std::uint64_t LastEndLocked(std::uint64_t at) ZT_REQUIRES(shelf_->mutex) {
    const auto next = shelf_->segments.upper_bound(at);
    return next == shelf_->segments.begin() ? head_.size() : std::prev(next)->second->range.end;
  }

  SharedSegment AddLocked(ByteRange range, std::uint64_t wanted, std::vector<SharedSegment>& fresh)
      ZT_REQUIRES(shelf_->mutex) {
    fresh.reserve(fresh.size() + 1);
    auto segment = std::make_shared<Segment>(range, wanted);
    segment->used = ++g_uses;
    shelf_->segments.emplace(range.begin, segment);
    ++shelf_->under_way;
    fresh.push_back(segment);
    return segment;
  }

  // Adds the announced ranges to the plan. They are read about in the order of the announcement;
  // those that are read soon after one another are sorted, so that neighbours are one request.
  void PlanLocked() ZT_REQUIRES(shelf_->mutex) {
    if (announced_.empty()) return;
    planned_.erase(planned_.begin(), planned_.begin() + static_cast<std::ptrdiff_t>(next_planned_));
    next_planned_ = 0;
    const std::uint64_t soon = most_ahead_ / 2;
    std::size_t first = planned_.size();
    std::uint64_t bytes = 0;
    const auto sort_from = [&](std::size_t from) ZT_REQUIRES(shelf_->mutex) {
      std::ranges::sort(std::span(planned_).subspan(from), {}, &ByteRange::begin);
    };
    for (const ByteRange& range : announced_) {
      const ByteRange kept = {std::max<std::uint64_t>(range.begin, head_.size()),
                              std::min(range.end, size_)};
      if (kept.begin >= kept.end) continue;
      if (bytes > 0 && bytes + (kept.end - kept.begin) > soon) {
        sort_from(first);
        first = planned_.size();
        bytes = 0;
      }
      planned_.push_back(kept);
      bytes += kept.end - kept.begin;
    }
    sort_from(first);
    announced_.clear();
    ascending_ = std::ranges::is_sorted(planned_, {}, &ByteRange::begin);
  }

  // Requests ahead: announced ranges, or else the following bytes if reads are sequential.
  void AheadLocked(std::uint64_t at, std::uint64_t end, bool missed,
                   std::vector<SharedSegment>& fresh) ZT_REQUIRES(shelf_->mutex) {
    // A read that the plan does not have ends it.
    if (missed && next_planned_ == planned_.size()) {
      planned_.clear();
      next_planned_ = 0;
    }
    if (planned_.empty() || ascending_) DropBehindLocked(at);
    if (!planned_.empty()) return PlannedAheadLocked(fresh);
    if (!dense_) return;
    if (missed) window_ = std::clamp(window_ * 2, kMiB, std::max(kMiB, most_ahead_));
    const std::uint64_t until = std::min(size_, end + window_);
    // Waits until half of the requested bytes are read, so that requests are long.
    if (window_ == 0 || asked_ > end + window_ / 2) return;
    if (window_ < most_ahead_) window_ *= 2;
    for (std::uint64_t from = end; from < until && HasRoomLocked();) {
      const ByteRange next = FreeLocked(from, until);
      if (next.begin >= next.end) break;
      from = std::min(next.end, next.begin + segment_);
      AddLocked({next.begin, from}, from - next.begin, fresh);
      asked_ = from;
    }
  }

  void PlannedAheadLocked(std::vector<SharedSegment>& fresh) ZT_REQUIRES(shelf_->mutex) {
    while (next_planned_ < planned_.size() && HasRoomLocked()) {
      ByteRange& range = planned_[next_planned_];
      ByteRange next = FreeLocked(range.begin, range.end);
      if (next.begin >= next.end) {
        ++next_planned_;
        continue;
      }
      next.end = std::min(next.end, next.begin + segment_);
      range.begin = next.end;
      std::uint64_t wanted = next.end - next.begin;
      const bool whole = range.begin == range.end;
      while (whole && ++next_planned_ < planned_.size() &&
             JoinLocked(planned_[next_planned_], next, wanted)) {
      }
      AddLocked(next, wanted, fresh);
    }
  }

  // Takes `more`, a range of the plan, into a request if it is near and fits.
  bool JoinLocked(const ByteRange& more, ByteRange& request, std::uint64_t& wanted)
      ZT_REQUIRES(shelf_->mutex) {
    const std::uint64_t end = std::max(request.end, more.end);
    if (more.begin < request.begin || more.begin > request.end + kGap ||
        end - request.begin > segment_)
      return false;
    const ByteRange free = FreeLocked(request.end, end);
    if (end > request.end && (free.begin != request.end || free.end != end)) return false;
    wanted += more.end - more.begin;
    request.end = end;
    return true;
  }

  // Removes the range that is requested now from the next ranges of the plan.
  void StrikeLocked(ByteRange demand) ZT_REQUIRES(shelf_->mutex) {
    constexpr std::size_t kNear = 256;
    const std::size_t until = std::min(planned_.size(), next_planned_ + kNear);
    for (std::size_t i = next_planned_; i < until; ++i) {
      ByteRange& range = planned_[i];
      if (range.begin >= demand.begin && range.begin < demand.end)
        range.begin = std::min(range.end, demand.end);
    }
  }

  bool HasRoomLocked() const ZT_REQUIRES(shelf_->mutex) {
    return shelf_->under_way < kMostRequests && g_held + segment_ <= most_ahead_;
  }

  // Drops segments behind the reads, which are rarely read again.
  void DropBehindLocked(std::uint64_t at) ZT_REQUIRES(shelf_->mutex) {
    auto& segments = shelf_->segments;
    for (auto each = segments.begin();
         each != segments.end() && each->second->range.end + kSlack <= at;) {
      const Segment& segment = *each->second;
      each = segment.ended && segment.taken > 0 ? segments.erase(each) : std::next(each);
    }
  }

  // Frees the least recently used segments for a request that a read waits for. Such a request is
  // sent even if there is not enough room.
  void MakeRoomLocked(std::uint64_t bytes) ZT_REQUIRES(shelf_->mutex) {
    auto& segments = shelf_->segments;
    while (g_held + bytes > most_ahead_) {
      auto oldest = segments.end();
      for (auto it = segments.begin(); it != segments.end(); ++it) {
        if (it->second->ended &&
            (oldest == segments.end() || it->second->used < oldest->second->used))
          oldest = it;
      }
      if (oldest == segments.end()) return;
      segments.erase(oldest);
    }
  }

  Status Launch(const SharedSegment& segment) try {
    ZT_ASSIGN_OR_RETURN(HttpRequest request, object_->GetRange(segment->range, *pin_));
    request.into = segment->data.bytes();
    request.accept = [range = segment->range, pin = pin_](const HttpHead& head,
                                                          std::uint64_t have) {
      return CheckRangeHead(head, {range.begin + have, range.end}, *pin);
    };
    request.progress = [shelf = shelf_, segment](std::uint64_t have) {
      const MutexLock lock(shelf->mutex);
      segment->Arrived(have);
    };
    request.done = [shelf = shelf_, segment](HttpAnswer answer) {
      End(*shelf, *segment, std::move(answer));
    };
    const auto exchange = Start(std::move(request));
    const MutexLock lock(shelf_->mutex);
    segment->exchange = exchange;
    return OkStatus();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  static void End(Shelf& shelf, Segment& segment, HttpAnswer answer) {
    const MutexLock lock(shelf.mutex);
    const std::uint64_t have = answer.ok() ? segment.size() : segment.have;
    segment.answer = std::move(answer);
    segment.ended = true;
    --shelf.under_way;
    segment.Arrived(have);
  }

  // Copies the bytes of `segment` from `at` on when those asked for have arrived, or as many as have
  // before the request failed. Returns 0 if they must be requested again.
  StatusOr<std::size_t> Take(const SharedSegment& segment, std::uint64_t at,
                             std::span<std::byte> out, int& refreshed) {
    const std::uint64_t begin = at - segment->range.begin;
    std::size_t take = 0;
    {
      const MutexLock lock(shelf_->mutex);
      segment->used = ++g_uses;
      segment->Await(std::min(segment->size(), begin + out.size()), shelf_->mutex);
      take = std::min<std::uint64_t>(out.size(), segment->have - std::min(segment->have, begin));
      segment->taken += take;
      if (take == 0 || (segment->ended && segment->taken >= segment->wanted)) ForgetLocked(segment);
    }
    if (take == 0) return Failed(segment->answer, refreshed);
    std::memcpy(out.data(), segment->data.bytes().data() + begin, take);
    return take;
  }

  StatusOr<std::size_t> Failed(const HttpAnswer& answer, int& refreshed) {
    if (!answer.status.ok()) return answer.status;
    if (answer.head.status == 412) return Changed();
    if (++refreshed <= kMostRefreshed && object_->refresh(answer)) return 0;
    return answer.head.status == 404 ? Changed() : object_->explain(answer);
  }

  void ForgetLocked(const SharedSegment& segment) ZT_REQUIRES(shelf_->mutex) {
    const auto at = shelf_->segments.find(segment->range.begin);
    if (at != shelf_->segments.end() && at->second == segment) shelf_->segments.erase(at);
  }

  const SharedObject object_;
  const SharedPin pin_;
  const std::uint64_t size_;
  // The first bytes of the object, if there is room for them.
  std::string head_ ZT_GUARDED_BY(shelf_->mutex);
  const std::uint64_t segment_;     // the size of a request, at most
  const std::uint64_t most_ahead_;  // of all that is held
  const std::shared_ptr<Shelf> shelf_ = std::make_shared<Shelf>();
  // The start of the current run of near reads, the bytes read in it, and whether it skips little.
  std::uint64_t run_begin_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  std::uint64_t run_bytes_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  bool dense_ ZT_GUARDED_BY(shelf_->mutex) = false;
  // The furthest position of reads, the size of the read-ahead, and the end of the last request.
  std::uint64_t frontier_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  std::uint64_t window_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  std::uint64_t asked_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  // The ranges that will be read: new announcements, and the plan from next_planned_ on.
  std::vector<ByteRange> announced_ ZT_GUARDED_BY(shelf_->mutex);
  std::vector<ByteRange> planned_ ZT_GUARDED_BY(shelf_->mutex);
  std::size_t next_planned_ ZT_GUARDED_BY(shelf_->mutex) = 0;
  bool ascending_ ZT_GUARDED_BY(shelf_->mutex) = true;  // the plan is in the order of the object
};

}  // namespace

bool HasRoomForHead(std::uint64_t bytes) { return g_heads + bytes <= kMostHeads; }

std::shared_ptr<ByteSource> RangedObject(SharedObject object, SharedPin pin, std::string head) {
  return std::make_shared<RangedBytes>(std::move(object), std::move(pin), std::move(head));
}

}  // namespace zt::remote::internal
