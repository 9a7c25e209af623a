// zt.convert.composite — groups the tensors of each quantized module into one
// object, and ungroups them.
export module zt.convert.composite;

import zt.std;
import zt.core;
import zt.source;
import zt.transform;

export namespace zt {

// The root attribute with the checkpoint's configuration: a map of "file" (its name) and "content".
inline constexpr std::string_view kQuantConfigAttribute = "quantization_config";
// The attribute of a grouped object that describes each component's tensor: role ->
// {name, dtype, shape}.
inline constexpr std::string_view kSourceTensorsAttribute = "source_tensors";

// The files of a model in which a quantization may be configured, in the order of the search.
inline constexpr std::array<std::string_view, 4> kQuantConfigFiles = {
    "config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"};

// The object that a JSON text is, in its order. kDataLoss if it is none, has a key twice, or nests
// deeper than 32 levels.
StatusOr<Value::Map> ParseJsonObject(std::string_view text);
// The same for a text of which members are taken one by one.
Status CheckJsonObject(std::string_view text);

// A checkpoint's quantization configuration.
struct QuantConfig {
  std::string file;       // its name; empty if there is none
  Value::Map content;     // the JSON object, in its order
  std::string path = {};  // of the file
};

// Finds the configuration of a checkpoint, given as the program's inputs: folders, or files, whose
// folders are searched. Searched are kQuantConfigFiles: of config.json the member quantization_config,
// formerly compression_config, of hf_quant_config.json the member quantization. kDataLoss if one
// is malformed, two inputs disagree, or it is a link out of its folder, which `options` may allow.
// Errors name the file.
StatusOr<QuantConfig> FindQuantConfig(std::span<const std::string> inputs,
                                      const InputOptions& options = {});

// Groups the program's inputs by folder, in the order of each folder's first input: every folder is
// a checkpoint with a configuration of its own.
StatusOr<std::vector<std::vector<std::string>>> SplitByFolder(std::span<const std::string> inputs,
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

// A quantized tensor of a checkpoint.
struct QuantizedTensor {
  std::string name;                    // of its numbers: "model.layers.0.mlp.up_proj.weight"
  std::string scheme;                  // "fp8 blocks, 8 bits, blocks of 128x128"
  std::vector<std::uint32_t> members;  // the objects that hold it: its codes first, its scales
};

// True if the name ends as that of a part of a quantized tensor does: "x.weight_scale", "x.qweight".
bool NamesQuantizedPart(std::string_view name);

// Of each object, the module that holds it, "x" of "x.weight" and "x.weight.absmax", if that holds
// codes and scales: tensors of integers or of a byte an element, and others with names of scales,
// by any scheme. Else empty. Shards are cut by it.
std::vector<std::string_view> QuantizedModulesOf(std::span<const Object* const> objects);

// Finds the quantized tensors: DeepSeek's FP8 and FP4, gpt-oss, compressed-tensors, ModelOpt, GPTQ,
// AWQ, bitsandbytes (docs/QUANTIZED.md). If `config` is empty, the configuration that the source has
// among its attributes or files is taken. kDataLoss, naming the tensor, if one contradicts itself or
// the configuration, or lacks its scales.
StatusOr<std::vector<QuantizedTensor>> FindQuantized(TensorSource& source,
                                                     const QuantConfig& config);

// A source with numbers in place of quantized tensors.
struct Dequantized {
  std::unique_ptr<TensorSource> source;
  std::vector<std::string> names;  // of the tensors that were quantized
};

// How numbers are made, for OpenDequantized.
struct DequantizeOptions {
  // The type of the numbers: f32, to which they are computed, or f16 or bf16, to which they are then
  // rounded.
  DType numbers = DType::kF32;
  ElementType torch_type = {DType::kF32};  // that the caller will convert to; config.json names it
  // What becomes of a number that does not fit its type.
  OnOverflow on_overflow = OnOverflow::kError;
  // Limits the bytes that are held to transpose codes, and, by itself, those of components that can
  // only be read in order.
  std::uint64_t memory = std::uint64_t{1} << 30;
};

// The source with each quantized tensor as dense numbers: a code's value times its scale, computed
// in f32. Scales, zero points and the like are left out, groups of GroupQuantized are split
// before. In the model's config.json, the quantization is left out and torch_dtype is set.
// kInvalidArgument if the configuration names a quantization and no tensor is stored so; else errors
// as of FindQuantized. Reads fail with kDataLoss where stored indices of groups are out of range,
// and with kOutOfRange where a number does not fit its type.
StatusOr<Dequantized> Dequantize(std::unique_ptr<TensorSource> source, const QuantConfig& config,
                                 const DequantizeOptions& options);

}  // namespace zt
