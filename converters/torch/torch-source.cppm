// zt.convert.torch:source — serves tensors from storages, for either container.
module zt.convert.torch:source;

import zt.std;
import :contents;
import :pickle;
import zt.convert.strided;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// The location of a storage.
struct StorageLocation {
  std::shared_ptr<ByteSource> bytes;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t order = 0;  // position in the input: a storage with a higher `order` comes later
  bool big_endian = false;
  // `bytes` may be read directly, without this source (see extent): it computes no CRC.
  bool as_is = false;
};

// Memory budgets shared by the files or chunks of one checkpoint.
struct SourceMemory {
  std::shared_ptr<StridedBands> bands;  // null if each source has its own
  std::shared_ptr<HeldBytes> held;
  std::shared_ptr<Allowance::Shared> shared;
  // If not null, the values that are left out are added to it instead of a warning.
  NameList* left_out = nullptr;
};
// Budgets for the files of one checkpoint.
SourceMemory SharedMemory(std::uint64_t memory_limit);

// The tensors of a checkpoint. Derived classes implement Finish.
class StorageSource : public TensorSource {
 public:
  StorageSource();
  ~StorageSource() override;
  // Declares the tensors of `contents`. places[i] is the location of contents.storages[i]. `pipe`:
  // the input can be read front to back only.
  Status Init(Contents contents, std::vector<StorageLocation> places, bool pipe,
              std::uint64_t memory_limit, const SourceMemory& memory);

  std::string_view format() const override { return "torch"; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  bool sequential(ComponentId id) const override;
  bool seekable() const override { return !pipe_; }
  std::optional<Extent> extent(ComponentId id) const override;
  std::optional<Identity> identity(ComponentId id) const override;
  std::uint64_t preferred_read(ComponentId id) const override;
  // Gives tensors whose names are taken others, under which they cannot be converted.
  void NameApart(TensorNames& taken);

 protected:
  // The storages that hold these components.
  std::set<std::uint32_t> StoragesOf(std::span<const ComponentId> components) const;
  std::vector<StorageLocation> places_;

 private:
  // kColumns: coordinates of entries that lie by columns: the stored rows, then the column of each,
  // by the pointers, which are a part of their own behind those of the components.
  enum class Kind : std::uint8_t { kBytes, kIndices, kPointers, kColumns };
  // How a component's bytes are made from a storage.
  struct StoragePart {
    Kind kind = Kind::kBytes;
    DType dtype = DType::kI64;  // of indices and pointers: the stored dtype
    std::uint32_t storage = 0;
    std::uint64_t first = 0;   // offset in the storage, in bytes
    std::uint64_t bytes = 0;   // size as declared
    std::uint64_t column = 0;  // of indices: number of consecutive elements with the same bound
    // For indices, the bound in each dimension; for pointers, the value of the last one.
    Shape bounds;
    std::uint64_t pointers = 0;     // of kColumns: the number of the pointers
    std::uint64_t number = 0;       // equal numbers mean equal bytes
    bool held = false;              // the storage is first read into memory as a whole
    std::vector<StridedAxis> axes;  // empty once `view` is made
    StridedView::Elements elements;
    // Null if the elements are contiguous and little-endian.
    std::unique_ptr<StridedView> view;
    inline bool direct() const {
      return axes.size() == 1 && axes[0].stride == 1 && elements.swap == 1;
    }
  };
  struct ServedTensor {
    std::vector<StoragePart> parts;
    Status problem;
  };

  StatusOr<Object> Declare(Tensor& tensor, ServedTensor& entry);
  StatusOr<Object> DeclareSparse(Tensor& tensor, ServedTensor& entry);
  StatusOr<StoragePart> MakePart(const StorageView& view, Kind kind = Kind::kBytes);
  Status AssignNumber(StoragePart& part);
  void Sort();
  void HoldWhereNeeded();
  void HoldStorage(std::uint32_t storage);
  Status CheckOrder() const;
  void MakeViews(std::uint64_t memory_limit, std::shared_ptr<StridedBands> bands);
  Status ReadRaw(const StoragePart& part, std::uint64_t offset, std::span<std::byte> out);
  Status HoldIfReadBack(const StoragePart& part, std::uint64_t offset, std::uint64_t size);
  // True if the object's last part is pointers to columns.
  inline bool HasOwnPointers(std::size_t object) const {
    return entries_[object].parts.size() > objects_[object].components.size();
  }
  Status ReadStored(const StoragePart& part, std::uint64_t first, std::span<std::uint64_t> out);
  Status ReadIndices(const StoragePart& part, std::uint64_t first, std::span<std::uint64_t> out);
  Status CheckAllPointers(const StoragePart& part);
  Status ReadColumns(const StoragePart& pointers, std::uint64_t first,
                     std::span<std::uint64_t> out);
  Status CheckPointers(const StoragePart& part, std::uint64_t first,
                       std::span<const std::uint64_t> values);

  std::vector<ServedTensor> entries_;  // by object
  std::map<InlinedVector<std::uint64_t, 8>, std::uint64_t> numbers_;
  // By storage: its place's bytes, or the source that holds them in memory.
  std::vector<std::shared_ptr<ByteSource>> readers_;
  std::uint64_t stored_ = 0;  // bytes of all storages
  // by storage: bytes of its distinct parts, up to the storage's size
  std::vector<std::uint64_t> viewed_;
  std::uint64_t expanded_ = 0;         // bytes of the other distinct parts
  std::set<std::uint64_t> excessive_;  // numbers of parts beyond the limit on expansion
  bool pipe_ = false;

  // State of a storage that can be read front to back only.
  struct Stream {
    std::uint64_t reached = 0;  // end of the last range read
    std::uint64_t returns = 0;  // number of reads that went back
  };
  std::mutex mutex_;
  std::vector<Stream> streams_;  // by storage
  std::shared_ptr<HeldBytes> held_;
  std::mutex checked_mutex_;
  // Of pointers to columns, by their number and what the last one must be: whether they are valid.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Status> checked_;
};

// ---- the two containers of a checkpoint ---------------------------------------------------------

// First bytes of a legacy stream of protocol 0 or 1: the magic number in decimal.
inline constexpr std::string_view kOldMagic = "L119547037146038801333356L\n.";

// True if OpenTorch should be called for a file that begins with `head` (512 bytes): it reads the
// file, or its error says what to do.
bool LooksLikeTorch(std::span<const std::byte> head);

StatusOr<std::unique_ptr<StorageSource>> OpenArchive(std::shared_ptr<ByteSource> bytes,
                                                     const std::string& stem,
                                                     std::uint64_t memory_limit,
                                                     const SourceMemory& memory,
                                                     Root root = Root::kCheckpoint);
StatusOr<std::unique_ptr<TensorSource>> OpenStream(std::shared_ptr<ByteSource> bytes,
                                                   const std::string& stem,
                                                   std::uint64_t memory_limit,
                                                   const SourceMemory& memory);
// OpenTorch for one of the files that share `memory`.
StatusOr<std::unique_ptr<TensorSource>> OpenOneOf(std::shared_ptr<ByteSource> bytes,
                                                  const std::string& stem,
                                                  std::uint64_t memory_limit,
                                                  const SourceMemory& memory);
// The listing of an object that cannot be converted: its name, format `what`, no shape.
Object Unreadable(std::string name, std::string_view what);
// torch counts a byte of two 4-bit floats as one element: adds the shape in numbers as attribute.
void AddLogicalShape(Object& object);
// Adds the warnings, one of which lists contents.left_out.
void AddLeftOut(const Contents& contents, TensorSource& source);

}  // namespace zt::torch::internal
