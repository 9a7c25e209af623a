// zt.convert.onnx:model — a model's tensors as the wire format has them.
module zt.convert.onnx:model;

import zt.std;
import zt.core;
import zt.source;

namespace zt::onnx::internal {

// Bytes of the model.
struct Stretch {
  std::uint64_t offset = 0, length = 0;
};

// The fields of a TensorProto that say what its elements are.
struct TensorProto {
  std::string name;
  Shape dims;
  std::uint64_t type = 0;  // TensorProto.DataType
  bool negative_dim = false;
  std::optional<Stretch> raw;      // raw_data
  std::vector<Stretch> fixed;      // float_data or double_data, packed or not
  std::vector<Stretch> varints;    // int32_data, int64_data or uint64_data
  std::uint64_t number_field = 0;  // of `fixed` or `varints`: the field they came in
  bool mixed = false;              // several of the data fields are set
  std::uint64_t location = 0;      // data_location: 1 is external
  std::vector<std::pair<std::string, std::string>> external;  // external_data
  bool sparse = false;                                        // `dims` are those of the whole
  std::uint64_t graph = 0;  // which of the model's graphs it is in, by number
};

struct Model {
  std::vector<TensorProto> tensors;  // initializers and Constant nodes of all graphs
  std::vector<std::pair<std::string, std::string>> metadata;
  std::uint64_t graphs = 0;
  std::uint64_t others = 0;  // tensors that other nodes have among their attributes
  bool has_graph = false;
};

// Reads what is needed of a ModelProto: its graph, the graphs within its nodes, its functions and training graphs.
// Nothing of the tensors' bytes is read. kUnimplemented where graphs nest too deeply.
StatusOr<Model> ReadModel(ByteSource& bytes);

// True where two tensors are declared alike and have the same bytes in the model, or the same place in another file.
StatusOr<bool> SameTensor(ByteSource& bytes, const TensorProto& a, const TensorProto& b);

// The numbers of `stretches`, which are varints one after the other.
// kDataLoss where one is cut off or there are not `count`.
StatusOr<std::vector<std::uint64_t>> ReadVarints(ByteSource& bytes,
                                                 const std::vector<Stretch>& stretches,
                                                 std::uint64_t count);

}  // namespace zt::onnx::internal
