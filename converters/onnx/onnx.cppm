// zt.convert.onnx — the weights of ONNX models as a tensor source.
export module zt.convert.onnx;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// True if a file that begins with `head` (16 bytes suffice) may be an ONNX model: a protobuf
// message that begins with fields of ModelProto.
bool LooksLikeOnnx(std::span<const std::byte> head);

// Opens a model. Its tensors are:
//   initializers     by their names; those of functions as "FUNCTION/NAME" (the function's domain
//                    and overload come before, if another one has its name)
//   Constant nodes   by the names of their outputs: tensors, numbers (f32, i64) and lists of them
//   other nodes      as "OUTPUT/ATTRIBUTE": tensors among their attributes, and in ai.onnx.ml lists
//                    of numbers
// of its graph and of nested ones, of functions and of training graphs. Elements of less than a
// byte keep their bytes as the format "onnx.int4/1" (uint4, float4e2m1, int2, uint2), component
// "data" of u8; sparse tensors become sparse_coo. metadata_props become attributes.
// External data is read from files in the model's folder and below it. `path` is the path of the
// model, empty if it has none. Numbers of variable length are decoded as they are read.
// kDataLoss for a file that is damaged or no model. What is wrong with one tensor is an error when
// it is read (CheckReadable): strings, data that does not fit its shape, a missing external file,
// different tensors of the same name in two graphs. It is listed with the format "onnx.other".
StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const InputOptions& options = {});

}  // namespace zt
