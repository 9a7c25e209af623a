// zt.convert.strided — arrays of any strides in C order, with bounded memory.
export module zt.convert.strided;

import zt.std;
import zt.core;
import zt.pipeline;
import zt.source;

export namespace zt {

// One dimension of a view of bytes: how many indices it has, and how far apart they lie, in elements.
struct StridedAxis {
  std::uint64_t count = 1;
  std::uint64_t stride = 1;
  bool operator==(const StridedAxis&) const = default;
};

class StridedView;

// The same elements in the same order with as few axes as can be, the slowest first: dimensions of 1 are dropped, and
// two that lie as one become one. A view whose elements lie side by side becomes one axis of stride 1; a scalar too.
// `shape` has no dimension 0.
std::vector<StridedAxis> CollapseAxes(std::span<const std::uint64_t> shape,
                                      std::span<const std::uint64_t> strides);

// The memory in which views keep what they gathered and could not hand out at once: bands, of `limit` bytes together.
// The views of a source share one. A band stays until its view has been served, or others need its room. Thread-safe.
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
    std::uint64_t users = 0;                  // threads that gather it or copy from it: it stays
    std::uint64_t gathering = 0;              // of those, threads that gather
    bool begun = false;                       // no tile is left to be begun
    std::atomic<std::uint64_t> next_tile{0};  // to be begun
    Status status = OkStatus();               // the first error of gathering
  };
  Band& Take(const StridedView& view, std::uint64_t index, std::uint64_t size,
             std::unique_lock<std::mutex>& lock);
  void Give(Band& band);
  Buffer MakeRoom(std::uint64_t cost, std::uint64_t size);
  void Drop(const StridedView& view);

  const std::uint64_t limit_;
  BufferPool pool_{0};  // not the heap, which would keep what was freed
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Band> bands_;  // the one that was used last at the end
};

// A view of any strides (transposed, sliced, expanded) served in C order. The output is cut into bands, boxes of the
// view whose C-ordered bytes are contiguous; a band is gathered tile by tile from the runs it consists of in the file,
// and each tile is transposed in cache. A Read of a whole band gathers it where it is wanted; for a part of one, threads
// gather it together among the bands that are shared, and wait where these are all in use. A tile a thread comes on top.
// Nothing is held where elements lie side by side. Thread-safe.
class StridedView {
 public:
  // What the elements are: `width` bytes each (1, 2, 4, 8 or 16), of which each `swap` bytes are turned around (1:
  // none are).
  struct Elements {
    std::uint64_t width = 1;
    std::uint64_t swap = 1;
  };

  // Reads are of `bytes` from byte `data`. `axes` are not empty and have no count of 0; the caller has checked that
  // all they reach lies in `bytes`, and that 64 bits can count the bytes of the view. A band takes up to half of
  // `bands`, which may be null where the elements lie side by side.
  StridedView(ByteSource& bytes, std::uint64_t data, std::vector<StridedAxis> axes,
              Elements elements, std::shared_ptr<StridedBands> bands);
  ~StridedView();
  StridedView(const StridedView&) = delete;
  StridedView& operator=(const StridedView&) = delete;

  // Fills `out` with the view's bytes in C order from `offset`.
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  // Bytes of a band, where all begin at multiples of them; 0 where it does not matter how much is read at once.
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
  std::uint64_t total_;  // bytes
  std::uint64_t tile_;   // bytes of a tile
  std::size_t split_;    // a band is a range of this dimension, whole in those after, one index in
                         // those before
  std::uint64_t inner_;  // elements of one index of split_
  std::uint64_t block_;  // indices of split_ in a band
  std::atomic<std::uint64_t> served_ = 0;
};

// Ranges of bytes that are held in memory because they can be read front to back only (a pipe, a deflated entry), and are
// wanted in another order. Thread-safe.
class HeldBytes {
 public:
  // They take `room` bytes together.
  explicit HeldBytes(std::uint64_t room);
  inline std::uint64_t room() const { return room_; }
  // Serves `size` bytes from `offset` of `bytes`, which `all` has room for, under their offsets there. They are read when
  // they are first asked for, and again where others took the room meanwhile.
  static std::shared_ptr<ByteSource> Hold(std::shared_ptr<HeldBytes> all,
                                          std::shared_ptr<ByteSource> bytes, std::uint64_t offset,
                                          std::uint64_t size);
  // How often a range is read, and the error of one more time.
  static constexpr std::uint64_t kMostLoads = 16;
  static Status TooOften(std::uint64_t size);

 private:
  class Range;

  const std::uint64_t room_;
  BufferPool pool_{0};  // not the heap, which would keep what was freed
  std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::list<Range*> loaded_;  // the one that was used last at the end
};

}  // namespace zt
