// zt.convert.npy:arrays — the tensor sources that serve arrays as they are, and what builds them.
module zt.convert.npy:arrays;

import zt.std;
import :array;
import :header;
import zt.convert.strided;
import zt.convert.zip;
import zt.core;
import zt.source;

namespace zt::npy::internal {

// Serves arrays as dense objects, and lists those that are not tensors. Derived classes say what Finish checks.
class ArraySource : public TensorSource {
 public:
  ArraySource(std::string_view format, std::uint64_t memory_limit)
      : format_(format),
        memory_limit_(memory_limit),
        bands_(std::make_shared<StridedBands>(memory_limit / 2)) {}

  // Declares an array. `bytes` hold its header and its data.
  Status Add(std::string name, std::shared_ptr<ByteSource> bytes, const Header& header,
             const ArrayType& type);
  // Lists an array that cannot be served, as `bytes` bytes of format "npy." and its descr; `why` is the answer to
  // whoever asks for it.
  void AddUnreadable(std::string name, std::string_view file, std::string_view descr, Shape shape,
                     std::uint64_t bytes, Status why);
  inline Object& object(std::size_t index) { return objects_[index]; }

  std::string_view format() const override { return format_; }
  Status CheckReadable(std::uint32_t object) const override;
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
  std::vector<std::unique_ptr<ArrayReader>>
      readers_;  // of each object; null where it is unreadable

 private:
  struct Unreadable {
    std::string file;
    Status why;
  };
  std::map<std::uint32_t, Unreadable> unreadable_;  // by object
  const std::uint64_t memory_limit_;
  const std::shared_ptr<StridedBands> bands_;
};

// One line of `what` and the first twenty of `names`: "what 'a' 'b'".
std::string ListNames(std::string_view what, std::span<const std::string> names);

// An archive's entry that holds an array.
struct EntryArray {
  std::size_t index = 0;  // in ZipArchive::entries
  std::string name;       // without ".npy"
  Header header;
  Status unreadable =
      OkStatus();  // why there is no header to read: encrypted, an unknown method or version
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
