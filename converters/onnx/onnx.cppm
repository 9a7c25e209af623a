// zt.convert.onnx — the weights of ONNX models as a tensor source.
export module zt.convert.onnx;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// True where a file that begins with `head` (16 bytes suffice) may be an ONNX model: a protobuf message whose first
// fields are a model's.
bool LooksLikeOnnx(std::span<const std::byte> head);

// The initializers of a model's graph, raw and typed, by their names, and the tensors of its Constant nodes by those of
// their outputs; also of graphs within nodes, and of functions ("FUNCTION/NAME"). metadata_props become attributes.
// External data is read from files in the model's own folder and below it: `path` is the model's, empty where it has
// none. InputOptions::memory_limit is twice what a tensor may take whose elements are written as numbers of variable length:
// it is held in memory. kDataLoss for what is no model, or damaged; kUnimplemented, when they are kept, for tensors of strings and of
// 4-bit elements, sparse ones, and for a name that two graphs give to tensors that differ.
StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const InputOptions& options = {});

}  // namespace zt
