// zt.convert.strided — serves arrays of any strides in C order, in bounded memory.
export module zt.convert.strided;

import zt.std;
import zt.core;
import zt.pipeline;
import zt.source;

export namespace zt {

// One dimension of a view: the number of indices, and their distance in elements.
struct StridedAxis {
  std::uint64_t count = 1;
  std::uint64_t stride = 1;
  bool operator==(const StridedAxis&) const = default;
};

class StridedView;

// Merges dimensions: the same elements in the same order with the fewest axes, outermost first.
// Dimensions of 1 are dropped; two adjacent ones are merged if one stride covers both. A contiguous
// view, or a scalar, becomes one axis of stride 1. `shape` must have no dimension of 0.
std::vector<StridedAxis> CollapseAxes(std::span<const std::uint64_t> shape,
                                      std::span<const std::uint64_t> strides);

// Memory for bands: parts of views that were gathered and not yet served as a whole, `limit` bytes
// together. The views of a source share one StridedBands. A band stays until it has been served, or
// another band needs the memory; the memory of some stays for the next ones. Thread-safe.
class StridedBands {
 public:
  explicit StridedBands(std::uint64_t limit);
  ~StridedBands();
  StridedBands(const StridedBands&) = delete;
  StridedBands& operator=(const StridedBands&) = delete;
  inline std::uint64_t limit() const { return limit_; }

 private:
  friend class StridedView;
  struct Band {
    const StridedView* view;
    std::uint64_t index;
    std::uint64_t cost;
    Buffer bytes;
    std::uint64_t users = 0;      // threads that gather it or copy from it; it is not dropped
    std::uint64_t gathering = 0;  // threads that gather it
    bool begun = false;           // gathering has begun all tiles
    std::uint64_t served = 0;     // bytes
    std::atomic<std::uint64_t> next_tile{0};  // the next tile to gather
    Status status = OkStatus();               // the first error of gathering
  };
  Band& Take(const StridedView& view, std::uint64_t index, std::uint64_t size,
             std::unique_lock<std::mutex>& lock);
  void Give(Band& band);
  Buffer MakeRoom(std::uint64_t cost, std::uint64_t size);
  void Drop(const StridedView& view);

  const std::uint64_t limit_;
  BufferPool pool_{0};  // freed buffers of the heap would stay with the process
  std::mutex mutex_;
  zt::internal::CondVar changed_;
  std::list<Band> bands_;  // the most recently used last
};

// A view of any strides (transposed, sliced, expanded) served in C order. The output is cut into
// bands: boxes of the view that are contiguous in C order. A band is gathered tile by tile from its
// runs in the file, and each tile is transposed in cache. A Read of a whole band gathers directly
// into the output. Reads of parts of a band gather it once, together, in the shared StridedBands,
// and wait while no memory is free. Each thread needs memory for one tile beyond that. Contiguous
// views hold no memory. Thread-safe.
class StridedView {
 public:
  // Elements of `width` bytes (1, 2, 4, 8 or 16), in which the bytes of each unit of `swap` bytes
  // are reversed (1: none).
  struct Elements {
    std::uint64_t width = 1;
    std::uint64_t swap = 1;
  };

  // Reads from `bytes` at offset `data`. `axes` must not be empty nor have a count of 0; the caller
  // has checked that all elements lie within `bytes`, and that the view's size fits 64 bits. A band
  // takes up to half of `bands`, which may be null if the elements are contiguous.
  StridedView(ByteSource& bytes, std::uint64_t data, std::vector<StridedAxis> axes,
              Elements elements, std::shared_ptr<StridedBands> bands);
  ~StridedView();
  StridedView(const StridedView&) = delete;
  StridedView& operator=(const StridedView&) = delete;

  // Fills `out` with bytes of the view in C order, from `offset` on.
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  // The size of a band if all bands begin at multiples of it; 0 if the size of
  // reads does not matter.
  std::uint64_t preferred_read() const;

 private:
  struct Box {
    Shape low, size;
  };
  struct Tiling;

  inline bool adjacent() const { return axes_.size() == 1 && axes_[0].stride == 1; }
  Box BandBox(std::uint64_t prefix, std::uint64_t block) const;
  Status Load(const Box& box, std::atomic<std::uint64_t>& next_tile, std::byte* out);
  Status CopyFromBand(std::uint64_t index, const Box& box, std::uint64_t size, std::uint64_t skip,
                      std::span<std::byte> out);
  void Gather(StridedBands::Band& band, const Box& box, std::unique_lock<std::mutex>& lock);
  std::size_t DenseAxes(const Box& box, std::span<const std::size_t> by_stride,
                        std::size_t last) const;
  Tiling Tile(const Box& box) const;
  Status LoadTile(const Box& box, const Tiling& tiling, std::uint64_t number,
                  std::span<std::byte> tile, std::byte* out);
  Status ReadTile(const Tiling& tiling, std::uint64_t from, std::span<const std::uint64_t> count,
                  std::span<std::byte> tile);
  void PlaceTile(const Tiling& tiling, std::span<const std::uint64_t> count,
                 std::span<const std::byte> tile, std::byte* out) const;

  ByteSource& bytes_;
  const std::uint64_t data_;
  const std::vector<StridedAxis> axes_;
  const std::uint64_t width_, swap_;
  const std::shared_ptr<StridedBands> bands_;
  std::uint64_t total_;  // size of the view in bytes
  std::uint64_t tile_;   // limit on the bytes of a tile
  // A band is a range of this dimension: all indices of the dimensions after it, one
  // index of each before it.
  std::size_t split_;
  std::uint64_t inner_;  // elements of one index of split_
  std::uint64_t block_;  // number of indices of split_ in a band
  std::atomic<std::uint64_t> served_ = 0;
};

// Byte ranges that are held in memory because their source can be read front to back only (a pipe,
// a deflated entry), and they are needed in another order. Thread-safe.
class HeldBytes {
 public:
  // `room`: limit on the bytes held together.
  explicit HeldBytes(std::uint64_t room);
  inline std::uint64_t room() const { return room_; }
  // Serves `size` bytes of `bytes` from `offset` on, under the same offsets; `size` must be
  // at most all->room(). They are read on the first ReadAt, and again if other ranges took
  // their memory meanwhile.
  static std::shared_ptr<ByteSource> Make(std::shared_ptr<HeldBytes> all,
                                          std::shared_ptr<ByteSource> bytes, std::uint64_t offset,
                                          std::uint64_t size);
  // Limit on how often a range is read; and the error beyond it.
  static constexpr std::uint64_t kMostLoads = 16;
  static Status TooOften(std::uint64_t size);

 private:
  class Range;

  const std::uint64_t room_;
  BufferPool pool_{0};  // freed buffers of the heap would stay with the process
  std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::list<Range*> loaded_;  // the most recently used last
};

}  // namespace zt
