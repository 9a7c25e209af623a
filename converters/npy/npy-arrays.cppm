// zt.convert.npy:arrays — reads arrays by range, converted to little-endian C order; and the base
// class of sources of arrays.
module zt.convert.npy:arrays;

import zt.std;
import :header;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// The memory that the arrays of a source share while they are converted from Fortran order: bands
// and held arrays may each take half of the limit.
struct ArrayMemory {
  explicit ArrayMemory(std::uint64_t limit)
      : bands(std::make_shared<StridedBands>(limit / 2)),
        held(std::make_shared<HeldBytes>(limit / 2)) {}
  std::shared_ptr<StridedBands> bands;
  std::shared_ptr<HeldBytes> held;  // arrays that can be read front to back only
};

// One array in a file or an archive entry.
class ArrayReader {
 public:
  // `bytes` contain the header and the array. kUnimplemented if the array would have to be held in
  // memory and exceeds the budget.
  static StatusOr<std::unique_ptr<ArrayReader>> Make(std::shared_ptr<ByteSource> bytes,
                                                     const Header& header, const ArrayType& type,
                                                     const ArrayMemory& memory);

  // Thread-safe unless sequential(). The range must lie within size().
  Status Read(std::uint64_t offset, std::span<std::byte> out);
  // See TensorSource::preferred_read.
  inline std::uint64_t preferred_read() const {
    return sequential() || view_ == nullptr ? 0 : view_->preferred_read();
  }
  inline bool sequential() const { return bytes_->sequential(); }
  // True if the bytes are served unchanged, from data() of bytes().
  inline bool direct() const { return !fortran_ && type_.swap == 1; }
  inline ByteSource& bytes() const { return *bytes_; }
  inline std::uint64_t data() const { return data_; }
  inline std::uint64_t size() const { return size_; }

 private:
  ArrayReader() = default;

  std::shared_ptr<ByteSource> bytes_;
  ArrayType type_;
  std::uint64_t data_ = 0, size_ = 0;
  bool fortran_ = false;  // Fortran order, and it differs from C order

  std::unique_ptr<StridedView> view_;  // null if direct()
  std::shared_ptr<ByteSource> held_;   // content of a sequential Fortran-ordered array
};

// Serves arrays as dense objects, and lists arrays that are not tensors. Derived
// classes implement Finish.
class ArraySource : public TensorSource {
 public:
  ArraySource(std::string_view format, std::uint64_t memory_limit)
      : format_(format), memory_(memory_limit) {}

  // Declares an array. `bytes` contain its header and its data.
  Status Add(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
             const ArrayType& type);
  // Lists an array that cannot be read: format "npy." followed by its descr, `bytes` bytes.
  // CheckReadable returns `why`.
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
  // By object; null if it cannot be read.
  std::vector<std::unique_ptr<ArrayReader>> readers_;

 private:
  std::map<std::uint32_t, std::string> unreadable_;  // file names, by object
  NameList guessed_;                                 // arrays of guessed byte order
  std::size_t guess_ = 0;                            // the warning that names them
  const ArrayMemory memory_;
};

// An entry of an archive that holds an array.
struct EntryArray {
  std::size_t index = 0;  // in ZipArchive::entries
  std::string name;       // without ".npy"
  Header header;
  // Why the header cannot be read: encrypted, unknown compression method, unknown version.
  Status unreadable = OkStatus();
};

// The format of the scipy sparse matrix ("csr") that these entries make up; nullopt if they do not.
StatusOr<std::optional<std::string>> ScipyFormat(ZipArchive& archive,
                                                 std::span<const EntryArray> arrays);

// True if scipy's entry '_is_array' marks a sparse array rather than a matrix.
StatusOr<bool> IsSparseArray(ZipArchive& archive, std::span<const EntryArray> arrays);

// Opens the sparse matrix as one object. `format` is the result of ScipyFormat.
StatusOr<std::unique_ptr<TensorSource>> OpenScipy(std::shared_ptr<ZipArchive> archive,
                                                  std::span<const EntryArray> arrays,
                                                  std::string_view format, std::string name,
                                                  const std::optional<ElementType>& void_type,
                                                  std::uint64_t memory_limit);

}  // namespace zt::npy::internal
