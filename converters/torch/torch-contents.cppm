// zt.convert.torch:contents — what a checkpoint's pickle says: storages, tensors as views of them, and values.
module zt.convert.torch:contents;

import zt.std;
import :pickle;
import zt.core;
import zt.source;

namespace zt::torch::internal {

// Bytes that tensors are views of. They lie in the container under `key`.
struct Storage {
  std::string key;
  std::uint64_t width = 1;            // bytes of an element as the container counts them
  std::uint64_t count = 0;            // such elements
  std::shared_ptr<ByteSource> bytes;  // of a numpy array, which lay in the pickle; else null
  bool big_endian = false;            // of `bytes`
};

// Elements of a storage, as a tensor looks at them.
struct StorageView {
  std::uint32_t storage = 0;  // index into Contents::storages
  std::uint64_t first = 0;    // byte of the first element in the storage
  std::uint64_t window = 0;   // bytes of the storage from its beginning that the view may reach
  ElementType element;
  Shape shape;
  Shape strides;  // in elements
};

enum class Layout : std::uint8_t { kDense, kCoo, kCsr };

// One tensor: a view, or the views that make up a sparse one.
struct Tensor {
  std::string name;
  Layout layout = Layout::kDense;
  Shape shape;
  StorageView values;             // of a dense tensor the whole of it
  StorageView indices, pointers;  // of a sparse one; a coo tensor's `indices` are its coordinates
  std::string problem;            // why it can be listed but not converted; empty where it can
  std::string foreign;            // the class of an object that is no tensor, but holds some
};

// All of a checkpoint.
struct Contents {
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;        // in the order of the tree
  Value::Map attributes;              // numbers, texts, flags, and lists of these
  std::vector<std::string> left_out;  // the first of what became neither, with the reason
  std::uint64_t left_out_more = 0;    // those that follow
  std::vector<std::string> warnings;  // whole sentences
};

// Adds to what is left out.
void LeaveOut(Contents& contents, std::string what);

// What the graph describes, each tensor and value under its path in the tree. A tensor that is the whole tree is named
// `stem`. Errors name the path. Arrays that lie in the pickle itself are held in memory, half of `memory_limit` at most.
StatusOr<Contents> ReadContents(const Graph& graph, std::string_view stem,
                                std::uint64_t memory_limit);

// The bytes a dense array of these elements takes for each element of its shape.
std::uint64_t WidthOf(const ElementType& element);

}  // namespace zt::torch::internal
