// zt.convert.onnx:model — a model's tensors, as encoded in its protobuf messages. Internal.
module zt.convert.onnx:model;

import zt.std;
import :wire;
import zt.core;
import zt.source;

namespace zt::onnx::internal {

// Typed data: the fields `field` of a message, packed or one by one.
struct Numbers {
  FileRange message;
  std::uint64_t field = 0;              // its number; 0: there are none
  bool varints = false;                 // numbers of variable length; else floats, in 10 doubles
  std::uint64_t fields = 0, bytes = 0;  // how many are not empty, and the bytes of their content
  FileRange first;                      // the content of the first

  // True if `other` is one of the fields. Protobuf ignores a field of another wire type.
  inline bool Has(const Field& other) const {
    const int one = varints ? 0 : field == 10 ? 1 : 5;  // the wire type of a number by itself
    return other.number == field && (other.wire == one || other.wire == 2);
  }
};

// Data in another file.
struct External {
  std::string location;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
};

// A tensor as a TensorProto, a SparseTensorProto or an attribute declares it.
struct TensorProto {
  std::string name;
  Shape dims;                    // of a sparse tensor: of the whole
  std::uint64_t type = 0;        // TensorProto.DataType
  std::uint64_t graph = 0;       // number of the graph within the model
  Status problem;                // what is wrong with its dimensions or its external data
  std::optional<FileRange> raw;  // raw_data
  Numbers numbers;               // typed data
  bool mixed = false;            // more than one field of typed data is set
  bool attribute = false;        // `numbers` are those of an AttributeProto; without any, it is 0
  bool external = false;         // its data is in another file
  External where;
  std::vector<TensorProto> sparse;  // values and indices of a sparse tensor
};

// Takes what ReadModel finds.
class ModelTaker {
 public:
  virtual ~ModelTaker() = default;
  // An initializer, or a tensor or list of numbers among the attributes of nodes.
  virtual Status TakeTensor(TensorProto tensor) = 0;
  // An entry of metadata_props; nullopt for a text that is longer than 64 MiB.
  virtual void TakeMetadata(std::string key, std::optional<std::string> text) = 0;
  // An attribute that has texts instead of weights.
  virtual void TakeTexts(std::string_view name) = 0;
};

// Reads the needed parts of a ModelProto: its graph, nested graphs of nodes, functions and training
// graphs. Does not read tensor data. False if the model has no graph. kUnimplemented if graphs nest
// too deeply.
StatusOr<bool> ReadModel(ByteSource& bytes, ModelTaker& taker);

// Serves bytes that have to be made, in bounded memory. Reads in ascending order continue where the
// last one ended; others begin again. Not thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Status Read(std::uint64_t offset, std::span<std::byte> out) = 0;
};

// Typed data as `size` bytes of elements, `width` bytes each; `to_bool` makes each element 0 or 1.
// Read fails with kDataLoss if a number is truncated, or there are too few or too many.
std::unique_ptr<Stream> MakeNumberStream(ByteSource& bytes, const Numbers& numbers,
                                         std::uint64_t size, std::uint64_t width, bool to_bool);

// The coordinates of a sparse tensor of `shape`, all of its first dimension first, from `indices`:
// int64s, one for each value that counts cells (`linear`), or one for each dimension of each value.
std::unique_ptr<Stream> MakeCoordStream(std::unique_ptr<Stream> indices, Shape shape,
                                        std::uint64_t values, bool linear);
// A range of `bytes` as a stream.
std::unique_ptr<Stream> MakeRangeStream(ByteSource& bytes, std::uint64_t offset);

}  // namespace zt::onnx::internal
