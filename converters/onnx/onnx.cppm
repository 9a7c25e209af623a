// zt.convert.onnx — the weights of ONNX models as a tensor source.
module;

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

export module zt.convert.onnx;

import zt.core;
import zt.source;

export namespace zt {

// How models are opened.
struct OnnxOptions {
  // Twice what a tensor may take whose elements are written as numbers of variable length: it is held in memory.
  std::uint64_t memory_limit = std::uint64_t{64} << 20;
};

// True where a file that begins with `head` (16 bytes suffice) may be an ONNX model: a protobuf message whose first
// fields are a model's.
bool LooksLikeOnnx(std::span<const std::byte> head);

// The initializers of a model's graph, raw and typed, by their names; metadata_props become attributes. The nodes are
// ignored. External data is read from files in the model's own folder and below it, never through a symbolic link:
// `path` is the model's, empty where it has none. kDataLoss for what is no model, or damaged; kUnimplemented, when
// they are kept, for tensors of strings and of 4-bit elements.
StatusOr<std::unique_ptr<TensorSource>> OpenOnnx(std::shared_ptr<ByteSource> bytes,
                                                 const std::string& path,
                                                 const OnnxOptions& options = {});

}  // namespace zt
