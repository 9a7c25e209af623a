// zt.convert.torch:source — tensors served from storages, wherever the container keeps them.
module;

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

module zt.convert.torch:source;

import :contents;
import zt.convert.strided;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// Where a storage lies.
struct Place {
  std::shared_ptr<ByteSource> bytes;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t order = 0;  // storages of a higher one lie further back in the input
  bool big_endian = false;
  bool as_is =
      false;  // `bytes` may be read without its owner's knowing: no CRC is computed on the way
};

// The tensors of a checkpoint. Derived classes say what Finish checks.
class StorageSource : public TensorSource {
 public:
  StorageSource();
  ~StorageSource() override;
  // Declares what `contents` describes. `places` are of contents.storages. `pipe`: the input is read front to back.
  Status Init(Contents contents, std::vector<Place> places, bool pipe, std::uint64_t memory_limit);

  std::string_view format() const override { return "torch"; }
  Status CheckReadable(std::uint32_t object) const override;
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  bool sequential(ComponentId id) const override;
  bool seekable() const override { return !pipe_; }
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<Identity> identity(ComponentId id) const override;
  std::uint64_t preferred_read(ComponentId id) const override;

 protected:
  std::vector<Place> places_;

 private:
  enum class Kind : std::uint8_t { kBytes, kIndices, kPointers };
  // What a component's bytes are made of.
  struct Part {
    Kind kind = Kind::kBytes;
    DType dtype = DType::kI64;  // of indices and pointers, as stored
    std::uint32_t storage = 0;
    std::uint64_t first = 0;   // byte in the storage
    std::uint64_t bytes = 0;   // as declared
    std::uint64_t column = 0;  // of indices: how many follow each other that have one bound
    std::vector<std::uint64_t>
        bounds;  // of indices: one for each dimension; of pointers: what the last one is
    std::uint64_t number = 0;       // equal numbers: equal bytes
    bool held = false;              // its storage is read whole first
    std::vector<StridedAxis> axes;  // until the view is made
    StridedView::Elements elements;
    std::unique_ptr<StridedView>
        view;  // null where the elements lie side by side in our byte order
    inline bool direct() const {
      return axes.size() == 1 && axes[0].stride == 1 && elements.swap == 1;
    }
  };
  struct Entry {
    std::vector<Part> parts;
    std::string problem;
  };
  class Held;

  StatusOr<Object> Declare(Tensor& tensor, Entry& entry);
  StatusOr<Object> DeclareSparse(Tensor& tensor, Entry& entry);
  StatusOr<Part> MakePart(const StorageView& view, Kind kind = Kind::kBytes);
  Status Number(Part& part);
  void Sort();
  void HoldWhereNeeded();
  Status CheckOrder() const;
  void MakeViews(std::uint64_t memory_limit);
  Status ReadRaw(const Part& part, std::uint64_t offset, std::span<std::byte> out);
  Status Follow(const Part& part, std::uint64_t offset, std::uint64_t size);
  Status ReadIndices(const Part& part, std::uint64_t first, std::span<std::uint64_t> out);
  Status CheckPointers(const Part& part, std::uint64_t first,
                       std::span<const std::uint64_t> values);

  std::vector<Entry> entries_;  // of each object
  std::map<std::vector<std::uint64_t>, std::uint64_t> numbers_;
  std::vector<std::shared_ptr<ByteSource>>
      readers_;                        // of each storage: its place's bytes, or what holds them
  std::uint64_t stored_ = 0;           // bytes of all storages
  std::vector<std::uint64_t> viewed_;  // bytes of parts that a storage has, each once
  std::uint64_t expanded_ = 0;         // bytes of the other distinct parts so far
  std::set<std::uint64_t> excessive_;  // numbers of parts that would be too many bytes more
  bool pipe_ = false;

  // Storages that can be read front to back only.
  struct Stream {
    std::uint64_t reached = 0;  // by the last range of it that was read
    std::uint64_t returns = 0;  // to what went before
  };
  std::mutex mutex_;                          // of what follows
  std::vector<Stream> streams_;               // of each
  std::vector<std::vector<std::byte>> held_;  // of each, its bytes or none
  std::deque<std::uint32_t> loaded_;          // those that are held, the first of them first
  std::uint64_t held_bytes_ = 0;              // together
  std::uint64_t held_room_ = 0;               // for them
};

}  // namespace zt::torch::internal
