// zt.convert.composite — groups the tensors of each quantized module into one
// object, and ungroups them.
export module zt.convert.composite;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// The root attribute with the checkpoint's configuration: a map of "file" (its name) and "content".
inline constexpr std::string_view kQuantConfigAttribute = "quantization_config";
// The attribute of a grouped object that describes each component's tensor: role ->
// {name, dtype, shape}.
inline constexpr std::string_view kSourceTensorsAttribute = "source_tensors";

// The object that a JSON text is, in its order. kDataLoss if it is none, has a key twice, or nests
// deeper than 32 levels.
extern "C++" StatusOr<Value::Map> ParseJsonObject(std::string_view text);

// A checkpoint's quantization configuration.
struct QuantConfig {
  std::string file;       // its name; empty if there is none
  Value::Map content;     // the JSON object, in its order
  std::string path = {};  // of the file
};

// Finds the configuration of a checkpoint, given as the program's inputs: folders, or files, whose
// folders are searched. Searched are config.json (its member quantization_config, formerly
// compression_config), quantize_config.json and quant_config.json, in this order. kDataLoss if one
// is malformed or two inputs disagree. Errors name the file.
StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs, Store& store);

// Groups the program's inputs by folder, in the order of each folder's first input: every folder is
// a checkpoint with a configuration of its own.
std::vector<std::vector<std::string>> SplitByFolder(std::span<const std::string> inputs,
                                                    Store& store);

// Returns `source` with each module of a GPTQ, AWQ (GEMM) or compressed-tensors (pack-quantized)
// checkpoint as one object "quantized_group", named like the module. Its components are the
// module's tensors with unchanged bytes:
//
//   role             GPTQ      AWQ       compressed-tensors
//   packed_weight    qweight   qweight   weight_packed
//   scales           scales    scales    weight_scale
//   zeros            qzeros    qzeros    weight_zero_point, if asymmetric
//   g_idx            g_idx     -         weight_g_idx
//   weight_shape     -         -         weight_shape
//   shape            in, out   in, out   out, in
//
// All other tensors, such as the bias, remain separate objects. Attributes: quant_method; bits and
// group_size, derived from the shapes; packing and zeros_packing; zero_offset, to be added to a
// stored zero point, or zero_point if none is stored; checkpoint_format, version or format
// verbatim; source_tensors. A weight is (code - zero) * scale.
//
// A module that does not match its scheme or `config` exactly keeps its separate tensors, and a
// warning gives the reason. The same holds for all modules of a source that cannot be reordered (a
// pipe). Fails only if the source cannot be read.
StatusOr<std::unique_ptr<TensorSource>> GroupQuantized(std::unique_ptr<TensorSource> source,
                                                       const QuantConfig& config);

// True if an object is named like one by which GroupQuantized finds a module: it then groups the
// module, or warns.
bool NamesQuantized(const TensorSource& source);

// The inverse: objects made by GroupQuantized become the original tensors, and
// kQuantConfigAttribute is removed. The tensors of a renamed group get names with the group's new
// name. Other objects stay. kDataLoss if the attribute source_tensors contradicts the components,
// or two tensors would get the same name.
StatusOr<std::unique_ptr<TensorSource>> Ungroup(std::unique_ptr<TensorSource> source);

}  // namespace zt
