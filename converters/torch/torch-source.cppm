// zt.convert.torch:source — tensors served from storages, wherever the container keeps them.
module zt.convert.torch:source;

import zt.std;
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
  // `bytes` may be read without its owner's knowing: no CRC is computed on the way.
  bool as_is = false;
};

// What the sources of the files or chunks of one checkpoint take together.
struct SourceMemory {
  std::shared_ptr<StridedBands> bands;  // null where each source has its own
  std::shared_ptr<HeldBytes> held;
  // How many bytes of deflated pickles may still be more than these can be.
  std::shared_ptr<std::uint64_t> free_inflated;
  // Its one tensor alone is wanted of the source: it is a chunk of a distributed checkpoint.
  bool chunk = false;
};
// For the files of a checkpoint.
SourceMemory SharedMemory(std::uint64_t memory_limit);

// The tensors of a checkpoint. Derived classes say what Finish checks.
class StorageSource : public TensorSource {
 public:
  StorageSource();
  ~StorageSource() override;
  // Declares what `contents` describes. `places` are of contents.storages. `pipe`: the input is read front to back.
  Status Init(Contents contents, std::vector<Place> places, bool pipe, std::uint64_t memory_limit,
              const SourceMemory& memory);

  std::string_view format() const override { return "torch"; }
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
    Shape bounds;  // of indices: one for each dimension; of pointers: what the last one is
    std::uint64_t number = 0;       // equal numbers: equal bytes
    bool held = false;              // its storage is read whole first
    std::vector<StridedAxis> axes;  // until the view is made
    StridedView::Elements elements;
    // Null where the elements lie side by side in our byte order.
    std::unique_ptr<StridedView> view;
    inline bool direct() const {
      return axes.size() == 1 && axes[0].stride == 1 && elements.swap == 1;
    }
  };
  struct Entry {
    std::vector<Part> parts;
    std::string problem;
  };

  StatusOr<Object> Declare(Tensor& tensor, Entry& entry);
  StatusOr<Object> DeclareSparse(Tensor& tensor, Entry& entry);
  StatusOr<Part> MakePart(const StorageView& view, Kind kind = Kind::kBytes);
  Status Number(Part& part);
  void Sort();
  void HoldWhereNeeded();
  void Hold(std::uint32_t storage);
  Status CheckOrder() const;
  void MakeViews(std::uint64_t memory_limit, std::shared_ptr<StridedBands> bands);
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
  std::mutex mutex_;
  std::vector<Stream> streams_;  // of each
  std::shared_ptr<HeldBytes> held_;
};

// ---- the two containers of a checkpoint ----------------------------------------------------------------------------

// How a legacy stream of protocol 0 or 1 begins: the magic number, in digits.
inline constexpr std::string_view kOldMagic = "L119547037146038801333356L\n.";

// True where a file that begins with `head` (512 bytes) is one that OpenTorch reads, or refuses with a word.
bool LooksLikeTorch(std::span<const std::byte> head);

StatusOr<std::unique_ptr<TensorSource>> OpenArchive(std::shared_ptr<ByteSource> bytes,
                                                    const std::string& stem,
                                                    std::uint64_t memory_limit,
                                                    const SourceMemory& memory);
StatusOr<std::unique_ptr<TensorSource>> OpenStream(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   std::uint64_t memory_limit,
                                                   const SourceMemory& memory);
// OpenTorch, for one of the files that share `memory`.
StatusOr<std::unique_ptr<TensorSource>> OpenOneOf(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  std::uint64_t memory_limit,
                                                  const SourceMemory& memory);
// What is listed of an object that cannot be converted: under its name, as `what`, without a shape.
Object Unreadable(std::string name, std::string_view what);
// Says once what of the contents does not become part of the source.
void AddLeftOut(const Contents& contents, TensorSource& source);

}  // namespace zt::torch::internal
