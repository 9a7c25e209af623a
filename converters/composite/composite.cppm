// zt.convert.composite — quantized modules as one object each, and back to the tensors they came from.
export module zt.convert.composite;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// The root attribute that keeps the checkpoint's configuration: a map of "file", its name, and "content".
inline constexpr std::string_view kQuantConfigAttribute = "quantization_config";
// The attribute of a grouped object that says what each component was: role -> {name, dtype, shape}.
inline constexpr std::string_view kSourceTensorsAttribute = "source_tensors";

// What a checkpoint says of its own quantization.
struct QuantConfig {
  std::string file;    // where it stands, for messages; empty where the checkpoint has none
  Value::Map content;  // the object as it stands there, in its order
};

// The configuration of a checkpoint given as the program's inputs: files, whose folder is searched, and folders.
// Searched are config.json (its member quantization_config, once compression_config), quantize_config.json and
// quant_config.json, in this order. kDataLoss where one is malformed or two inputs disagree; errors name the file.
StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs);

// The program's inputs, those of one folder together, in the order of their first: each is a checkpoint with a
// configuration of its own.
std::vector<std::vector<std::string>> SplitByFolder(std::span<const std::string> inputs);

// `source` with each module of a GPTQ, AWQ (GEMM) or compressed-tensors (pack-quantized) checkpoint as one object
// "quantized_group", named as the module is. Its components are the module's tensors, their bytes unchanged:
//
//   role             GPTQ      AWQ       compressed-tensors
//   packed_weight    qweight   qweight   weight_packed
//   scales           scales    scales    weight_scale
//   zeros            qzeros    qzeros    weight_zero_point, where it is asymmetric
//   g_idx            g_idx     -         weight_g_idx
//   weight_shape     -         -         weight_shape
//   shape            in, out   in, out   out, in
//
// Anything else, such as the bias, stays an object of its own. Attributes: quant_method; bits and group_size, both
// derived from the shapes; packing and zeros_packing; zero_offset, what is to be added to a stored zero point, or
// zero_point where none is stored; checkpoint_format, version or format verbatim; source_tensors. A weight is
// (code - zero) * scale.
//
// A module that is not exactly of its scheme, or not as `config` says, stays as it is, and a warning tells why. So does
// everything in a source that cannot be reordered (a pipe). Fails only where the source cannot be read.
StatusOr<std::unique_ptr<TensorSource>> GroupQuantized(std::unique_ptr<TensorSource> source,
                                                       const QuantConfig& config);

// The inverse: objects that GroupQuantized made become the tensors they were, and kQuantConfigAttribute goes.
// A group that was renamed since gives its tensors back under its own name. Others stay. kDataLoss where the attribute source_tensors contradicts the components or two tensors would have
// one name.
StatusOr<std::unique_ptr<TensorSource>> Ungroup(std::unique_ptr<TensorSource> source);

}  // namespace zt
