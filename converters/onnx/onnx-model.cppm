// zt.convert.onnx:model — a model's tensors, as encoded in its protobuf messages.
module zt.convert.onnx:model;

import zt.std;
import zt.core;
import zt.source;

namespace zt::onnx::internal {

// A byte range of the model file.
struct FileRange {
  std::uint64_t offset = 0, length = 0;
};

// The fields of a TensorProto that describe its elements.
struct TensorProto {
  std::string name;
  Shape dims;
  std::uint64_t type = 0;  // TensorProto.DataType
  bool negative_dim = false;
  std::optional<FileRange> raw;    // raw_data
  std::vector<FileRange> fixed;    // float_data or double_data, packed or not
  std::vector<FileRange> varints;  // int32_data, int64_data or uint64_data
  std::uint64_t number_field = 0;  // the field number of `fixed` or `varints`
  bool mixed = false;              // more than one data field is set
  std::uint64_t location = 0;      // data_location: 1 means external
  std::vector<std::pair<std::string, std::string>> external;  // external_data
  bool sparse = false;      // `dims` are the shape of the whole tensor
  std::uint64_t graph = 0;  // number of the graph within the model
};

struct Model {
  std::vector<TensorProto> tensors;  // initializers and Constant nodes of all graphs
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t graphs = 0;
  std::uint64_t others = 0;  // tensors among the attributes of other nodes
  bool has_graph = false;
};

// Reads the needed parts of a ModelProto: its graph, nested graphs of nodes, functions and training
// graphs. Does not read tensor data. kUnimplemented if graphs nest too deeply.
StatusOr<Model> ReadModel(ByteSource& bytes);

// True if two tensors have equal declarations, and the same bytes in the model or the same range
// of an external file.
StatusOr<bool> SameTensor(ByteSource& bytes, const TensorProto& a, const TensorProto& b);

// Decodes the consecutive varints in `ranges`. kDataLoss if one is truncated, or there are
// not exactly `count`.
StatusOr<std::vector<std::uint64_t>> ReadVarints(ByteSource& bytes,
                                                 const std::vector<FileRange>& ranges,
                                                 std::uint64_t count);

}  // namespace zt::onnx::internal
