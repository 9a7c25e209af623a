// zt.convert.npy:arrays — an array's bytes as zTensor wants them, little-endian and in C order, by range; and the tensor
// sources that serve arrays as they are.
module zt.convert.npy:arrays;

import zt.std;
import :header;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// What the arrays of a source hold together while they are turned from Fortran order: half of the limit each.
struct ArrayMemory {
  explicit ArrayMemory(std::uint64_t limit)
      : bands(std::make_shared<StridedBands>(limit / 2)),
        held(std::make_shared<HeldBytes>(limit / 2)) {}
  std::shared_ptr<StridedBands> bands;
  std::shared_ptr<HeldBytes> held;  // what can be read front to back only
};

// One array of a file or an entry.
class ArrayReader {
 public:
  // `bytes` hold the header and the array. Refuses one that has to be held and for which there is no room.
  static StatusOr<std::unique_ptr<ArrayReader>> Make(std::shared_ptr<ByteSource> bytes,
                                                     const Header& header, const ArrayType& type,
                                                     const ArrayMemory& memory);

  // Thread-safe unless sequential(). The range lies within size().
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  // See TensorSource::preferred_read.
  inline std::uint64_t preferred_read() const {
    return sequential() || view_ == nullptr ? 0 : view_->preferred_read();
  }
  inline bool sequential() const { return bytes_->sequential(); }
  // True where the bytes are served as they lie, from data() of bytes().
  inline bool direct() const { return !fortran_ && type_.swap == 1; }
  inline ByteSource& bytes() const { return *bytes_; }
  inline std::uint64_t data() const { return data_; }
  inline std::uint64_t size() const { return size_; }

 private:
  ArrayReader() = default;

  std::shared_ptr<ByteSource> bytes_;
  ArrayType type_;
  std::uint64_t data_ = 0, size_ = 0;
  bool fortran_ = false;  // and the order makes a difference

  std::unique_ptr<StridedView> view_;  // where direct() is false
  std::shared_ptr<ByteSource> held_;   // of a sequential Fortran-ordered array
};

// Serves arrays as dense objects, and lists those that are not tensors. Derived classes say what Finish checks.
class ArraySource : public TensorSource {
 public:
  ArraySource(std::string_view format, std::uint64_t memory_limit)
      : format_(format), memory_(memory_limit) {}

  // Declares an array. `bytes` hold its header and its data.
  Status Add(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
             const ArrayType& type);
  // Lists an array that cannot be served, as `bytes` bytes of format "npy." and its descr. CheckReadable returns `why`.
  void AddUnreadable(std::string name, std::string_view file, std::string_view descr, Shape shape,
                     std::uint64_t bytes, Status why);
  inline Object& object(std::size_t index) { return objects_[index]; }

  std::string_view format() const override { return format_; }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  const std::string& file(ComponentId id) const override;
  std::uint64_t preferred_read(ComponentId id) const override {
    return readers_[id.object] == nullptr ? 0 : readers_[id.object]->preferred_read();
  }
  bool sequential(ComponentId id) const override {
    return readers_[id.object] != nullptr && readers_[id.object]->sequential();
  }

 protected:
  std::string_view format_;
  // Of each object; null where it is unreadable.
  std::vector<std::unique_ptr<ArrayReader>> readers_;

 private:
  std::map<std::uint32_t, std::string> unreadable_;  // by object: its file
  const ArrayMemory memory_;
};

// An archive's entry that holds an array.
struct EntryArray {
  std::size_t index = 0;  // in ZipArchive::entries
  std::string name;       // without ".npy"
  Header header;
  // Why there is no header to read: encrypted, an unknown method or version.
  Status unreadable = OkStatus();
};

// The kind of scipy sparse matrix these entries are ("csr"), or nullopt where they are none.
StatusOr<std::optional<std::string>> ScipyFormat(ZipArchive& archive,
                                                 std::span<const EntryArray> arrays);

// True where scipy's entry '_is_array' says that it is a sparse array, not a matrix.
StatusOr<bool> IsSparseArray(ZipArchive& archive, std::span<const EntryArray> arrays);

// The matrix as one object. `format` is what ScipyFormat said.
StatusOr<std::unique_ptr<TensorSource>> OpenScipy(std::shared_ptr<ZipArchive> archive,
                                                  std::span<const EntryArray> arrays,
                                                  std::string_view format, std::string name,
                                                  const std::optional<ElementType>& void_type,
                                                  std::uint64_t memory_limit);

}  // namespace zt::npy::internal
