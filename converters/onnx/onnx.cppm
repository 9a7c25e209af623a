// zt.convert.onnx — the weights of ONNX models as a tensor source.
export module zt.convert.onnx;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// True if a file that begins with `head` (16 bytes suffice) may be an ONNX model: a protobuf
// message that begins with fields of ModelProto.
bool LooksLikeOnnx(std::span<const std::byte> head);

// Opens a model. Its tensors are the initializers of its graph, raw and typed, by their names, and
// the tensors of Constant nodes, by the names of their outputs; also those of nested graphs and of
// functions ("FUNCTION/NAME"). metadata_props become attributes.
// External data is read from files in the model's folder and below it. `path` is the path of the
// model, empty if it has none. A tensor of variable-length numbers is decoded in memory, and may
// take half of InputOptions::memory_limit.
// kDataLoss for a file that is damaged or no model; kUnimplemented, on reading, for tensors
// of strings or 4-bit elements, for sparse tensors, and for different tensors of the same
// name in two graphs.
StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const InputOptions& options = {});

}  // namespace zt
