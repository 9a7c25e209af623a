// zt.convert.composite:weights — recognizes quantized tensors by their names, types and shapes, and
// compares them with the configuration.
module;

#include "core/little_endian.h"
#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import :weights;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kMostStateBytes = std::uint64_t{64} << 10;

bool Is(const Object& object, std::string_view type) {
  return object.format == "dense" && Name(object.components[0].element) == type;
}
bool IsScale(const Object& object) {
  return Is(object, "f32") || Is(object, "bf16") || Is(object, "f16");
}

class Finder {
 public:
  Finder(const Tensors& tensors, const Configuration& config)
      : tensors_(tensors), config_(config), claims_(config), method_(MethodOf(config.content)) {
    used_.resize(tensors.source().objects().size());
  }

  StatusOr<std::vector<Weight>> Run() {
    const std::vector<Object>& objects = tensors_.source().objects();
    for (current_ = 0; current_ < objects.size(); ++current_) {
      const Status status = Look(objects[current_]);
      if (!status.ok()) return AtTensor(tensors_.source(), {current_, 0}, status);
    }
    for (current_ = 0; current_ < objects.size(); ++current_) {
      const Status status = CheckScaled(objects[current_]);
      if (!status.ok()) return AtTensor(tensors_.source(), {current_, 0}, status);
    }
    std::ranges::stable_sort(found_, {}, [](const Weight& each) { return each.codes.object; });
    return std::move(found_);
  }

 private:
  std::string Configured() const { return config_.file + " says " + Quote(method_); }

  // ---- what is there ----------------------------------------------------------------------------

  const Object* Find(const std::string& name) const {
    const auto index = tensors_.Find(name);
    return index ? &tensors_[*index] : nullptr;
  }
  std::uint32_t IndexOf(const Object& object) const { return *tensors_.Find(object.name); }
  // The module of a name that ends with the suffix.
  static std::optional<std::string> Before(const Object& object, std::string_view suffix) {
    const std::string_view name = object.name;
    if (name.size() <= suffix.size() || !name.ends_with(suffix)) return std::nullopt;
    return std::string(name.substr(0, name.size() - suffix.size()));
  }
  static Status Missing(const std::string& name, std::string_view why) {
    return InvalidData(TensorContext(name) + " is missing, " + std::string(why));
  }
  static Status Misshapen(const Object& object, const Shape& wanted, std::string_view why) {
    return InvalidData(TensorContext(object.name) + " has shape " + ToString(object.shape) + ", " +
                       std::string(why) + " needs " + ToString(wanted));
  }
  static Status Mistyped(const Object& object, std::string_view wanted) {
    return InvalidData(TensorContext(object.name) + " is " +
                       std::string(Name(object.components[0].element)) + ", not " +
                       std::string(wanted));
  }
  StatusOr<std::uint32_t> Need(const std::string& name, std::string_view type, const Shape* shape) {
    const Object* const object = Find(name);
    if (object == nullptr) return Missing(name, "which the scheme needs");
    if (!Is(*object, type)) return Mistyped(*object, type);
    if (shape != nullptr && object->shape != *shape)
      return Misshapen(*object, *shape, "its tensor");
    return IndexOf(*object);
  }
  // A tensor of one f32, of any rank.
  StatusOr<std::uint32_t> NeedNumber(const std::string& name) {
    ZT_ASSIGN_OR_RETURN(const std::uint32_t index, Need(name, "f32", nullptr));
    if (ElementCount(tensors_[index].shape) != 1)
      return Misshapen(tensors_[index], {1}, "one number");
    return index;
  }

  // ---- the configuration ------------------------------------------------------------------------

  // Compares a scheme with the configuration.
  Status CheckMethod(const Weight& weight, std::initializer_list<std::string_view> methods) const {
    if (claims_.IsIgnored(weight.name)) {
      return InvalidData(config_.file + " says that its module is not quantized, and " +
                         TensorContext(tensors_[weight.scales.object].name) + " holds its scales");
    }
    if (method_.empty() || std::ranges::find(methods, method_) != methods.end()) return OkStatus();
    return InvalidData("it is stored as " + std::string(weight.scheme) + ", with scales in " +
                       Quote(tensors_[weight.scales.object].name) + ", and " + Configured());
  }

  // ---- the schemes ------------------------------------------------------------------------------

  Status Look(const Object& object) {
    if (object.format != "dense" || object.components[0].element.type == "complex64")
      return OkStatus();
    if (auto name = Before(object, "_scale_inv")) return LookAtInverse(object, *name);
    if (auto module = Before(object, ".weight_scale")) return LookAtScale(object, *module);
    if (auto module = Before(object, ".scale")) return LookAtPlainScale(object, *module);
    if (auto module = Before(object, ".SCB")) return LookAtInt8(object, *module);
    if (auto name = Before(object, ".absmax")) return LookAtNf4(object, *name);
    if (auto name = Before(object, "_blocks")) return LookAtBlocks(object, *name, "_scales", true);
    if (auto name = Before(object, ".blocks")) return LookAtBlocks(object, *name, ".scales", false);
    if (Is(object, "i32")) {
      if (const auto split = SplitAnchor(object.name)) return LookAtPacked(object, split->first);
    }
    return OkStatus();
  }

  // A scale for each block of the last two dimensions.
  StatusOr<Blocks> BlocksOf(const Object& codes, const Object& scales, std::uint64_t rows,
                            std::uint64_t columns, std::uint64_t block_rows,
                            std::uint64_t block_columns, std::string_view why) const {
    Shape wanted = codes.shape;
    wanted[wanted.size() - 2] = CeilDiv(rows, block_rows);
    wanted.back() = CeilDiv(columns, block_columns);
    if (scales.shape != wanted) return Misshapen(scales, wanted, why);
    return Blocks{rows, block_rows, block_columns, wanted[wanted.size() - 2], wanted.back()};
  }

  Weight Start(std::string name, std::string_view scheme, const Object& codes,
               const Object& scales) {
    Weight weight;
    weight.name = std::move(name);
    weight.scheme = scheme;
    weight.shape = codes.shape;
    weight.columns = codes.shape.empty() ? 1 : codes.shape.back();
    weight.codes.object = IndexOf(codes);
    weight.scales.object = IndexOf(scales);
    weight.pitch = weight.columns;
    weight.members = {weight.codes.object, weight.scales.object};
    return weight;
  }

  // Codes of e2m1, two a byte, in the last dimension.
  static void SetNibbles(Weight& weight) {
    weight.bits = 4;
    weight.layout = {.kind = Codes::kLowFirst, .bits = 4, .values = kE2m1Values};
    weight.pitch = weight.columns;
    weight.columns *= 2;
    weight.shape.back() = weight.columns;
  }

  // Adds the weight, with the members of its module that serve activations.
  Status Add(Weight weight, const std::string& module) {
    for (const char* suffix :
         {".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale",
          ".weight_format", ".weight_shape", ".k_scale", ".v_scale"}) {
      if (const Object* const other = Find(module + suffix))
        weight.members.push_back(IndexOf(*other));
    }
    // What changes the numbers and no scheme here reads.
    for (const char* suffix : {".weight_g_idx", ".weight_zero_point", ".weight_global_scale",
                               ".weight_scale_2", ".pre_quant_scale"}) {
      const Object* const other = Find(module + suffix);
      if (other == nullptr ||
          std::ranges::find(weight.members, IndexOf(*other)) != weight.members.end())
        continue;
      return Unsupported("it is stored as " + std::string(weight.scheme) +
                         ", which is not read with " + TensorContext(other->name));
    }
    if (const auto taken = tensors_.Find(weight.name);
        taken && std::ranges::find(weight.members, *taken) == weight.members.end()) {
      return InvalidData("its numbers would be " + TensorContext(weight.name) +
                         ", and there is such a tensor");
    }
    if (used_[weight.codes.object] || !names_.insert(weight.name).second) {
      return InvalidData("another scheme has codes or scales of " + TensorContext(weight.name) +
                         ", too");
    }
    for (const std::uint32_t member : weight.members) used_[member] = true;
    found_.push_back(std::move(weight));
    return OkStatus();
  }

  static std::string ModuleOf(const std::string& name) {
    return name.substr(0, name.rfind('.') == name.npos ? 0 : name.rfind('.'));
  }

  Status AddFp8Blocks(const Object& codes, const Object& scales, std::string_view scheme) {
    if (codes.shape.size() < 2 || codes.shape.size() != scales.shape.size())
      return Misshapen(scales, codes.shape, "a scale for each block of the codes");
    Weight weight = Start(codes.name, scheme, codes, scales);
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {"fp8", "modelopt", "compressed-tensors"}));
    const auto [block_rows, block_columns] = claims_.block.value_or(std::make_pair(kBlock, kBlock));
    const std::string why = (claims_.block ? config_.file + " says" : "without a configuration") +
                            " blocks of " + std::to_string(block_rows) + "x" +
                            std::to_string(block_columns) + ", which";
    ZT_ASSIGN_OR_RETURN(weight.blocks, BlocksOf(codes, scales, codes.shape[codes.shape.size() - 2],
                                                weight.columns, block_rows, block_columns, why));
    return Add(std::move(weight), ModuleOf(codes.name));
  }

  // X, X_scale_inv: DeepSeek V3.
  Status LookAtInverse(const Object& scales, const std::string& name) {
    const Object* const codes = Find(name);
    if (codes == nullptr) return Missing(name, "whose scales these are");
    if (!Is(*codes, "f8_e4m3fn")) return Mistyped(*codes, "f8_e4m3fn, of which these are scales");
    if (!IsScale(scales) && !Is(scales, "f8_e8m0") && !Is(scales, "u8"))
      return Mistyped(scales, "f32, bf16, f16, f8_e8m0 or u8");
    return AddFp8Blocks(*codes, scales, "fp8 blocks");
  }

  // M.weight, M.scale: DeepSeek V4.
  Status LookAtPlainScale(const Object& scales, const std::string& module) {
    const Object* const codes = Find(module + ".weight");
    if (codes == nullptr || (!Is(*codes, "f8_e4m3fn") && !Is(*codes, "i8"))) return OkStatus();
    if (!Is(scales, "f8_e8m0") && !Is(scales, "f32")) return Mistyped(scales, "f8_e8m0 or f32");
    if (Is(*codes, "f8_e4m3fn")) return AddFp8Blocks(*codes, scales, "fp8 blocks");
    Weight weight = Start(codes->name, "fp4", *codes, scales);
    if (codes->shape.size() < 2) return Misshapen(*codes, {0, 0}, "the scheme");
    SetNibbles(weight);
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {"fp8"}));
    ZT_ASSIGN_OR_RETURN(weight.blocks,
                        BlocksOf(*codes, scales, codes->shape[codes->shape.size() - 2],
                                 weight.columns, 1, 32, "a scale for 32 numbers"));
    return Add(std::move(weight), module);
  }

  // The scales of a tensor: one, one a row, one a group of a row, or one a block.
  StatusOr<Blocks> AnyBlocks(const Object& codes, const Object& scales, std::uint64_t columns) {
    const std::uint64_t rows = codes.shape[0];
    if (ElementCount(scales.shape) == 1) return Blocks{rows, rows, columns, 1, 1};
    if (claims_.block) {
      return BlocksOf(codes, scales, rows, columns, claims_.block->first, claims_.block->second,
                      config_.file + "'s size of blocks");
    }
    if (scales.shape == Shape{rows} || scales.shape == Shape{rows, 1})
      return Blocks{rows, 1, columns, rows, 1};
    if (scales.shape.size() == 2 && scales.shape[0] == rows && scales.shape[1] > 0 &&
        columns % scales.shape[1] == 0)
      return Blocks{rows, 1, columns / scales.shape[1], rows, scales.shape[1]};
    return Misshapen(scales, {rows, 1}, "one scale for each row");
  }

  // M.weight_scale with M.weight or M.weight_packed: compressed-tensors and ModelOpt.
  Status LookAtScale(const Object& scales, const std::string& module) {
    if (const Object* const packed = Find(module + ".weight_packed")) {
      if (Is(*packed, "i32")) return OkStatus();  // LookAtPacked
      return LookAtFp4(scales, *packed, module);
    }
    const Object* const codes = Find(module + ".weight");
    if (codes == nullptr) return Missing(module + ".weight", "whose scales these are");
    if (Is(*codes, "u8")) return LookAtFp4(scales, *codes, module);
    const bool floats = Is(*codes, "f8_e4m3fn");
    if (!floats && !Is(*codes, "i8"))
      return Mistyped(*codes, "f8_e4m3fn, i8 or u8, of which there are scales");
    if (!IsScale(scales)) return Mistyped(scales, "f32, bf16 or f16");
    if (codes->shape.size() != 2) return Misshapen(*codes, {0, 0}, "the scheme");
    Weight weight = Start(codes->name, floats ? "fp8" : "int8", *codes, scales);
    if (!floats) weight.layout.kind = Codes::kI8;
    if (floats) {
      ZT_RETURN_IF_ERROR(
          CheckMethod(weight, {"compressed-tensors", "modelopt", "fp8", "fbgemm_fp8"}));
    } else {
      ZT_RETURN_IF_ERROR(CheckMethod(weight, {"compressed-tensors"}));
    }
    ZT_ASSIGN_OR_RETURN(weight.blocks, AnyBlocks(*codes, scales, weight.columns));
    ZT_RETURN_IF_ERROR(claims_.CheckGroups(weight, floats ? "float" : "int"));
    if (const Object* const zeros = Find(module + ".weight_zero_point")) {
      if (zeros->shape != scales.shape) return Misshapen(*zeros, scales.shape, "its scales");
      weight.members.push_back(IndexOf(*zeros));
      if (floats) {  // always 0
      } else if (!Is(*zeros, "i8")) {
        return Mistyped(*zeros, "i8");
      } else {
        weight.zeros_kind = Weight::Zeros::kI8;
        weight.zeros = Stored{IndexOf(*zeros)};
      }
    }
    return Add(std::move(weight), module);
  }

  // e2m1 in bytes: nvfp4 of both kinds, mxfp4.
  Status LookAtFp4(const Object& scales, const Object& codes, const std::string& module) {
    if (!Is(codes, "u8")) return Mistyped(codes, "u8 or i32");
    if (codes.shape.size() != 2 || scales.shape.size() != 2)
      return Misshapen(scales, {0, 0}, "the scheme");
    const std::string global = module + ".weight_global_scale", second = module + ".weight_scale_2";
    Weight weight = Start(module + ".weight", "mxfp4", codes, scales);
    SetNibbles(weight);
    std::uint64_t group = 32;
    std::string_view methods = "compressed-tensors";
    if (Is(scales, "f8_e4m3fn")) {
      weight.scheme = "nvfp4";
      weight.divides = Find(global) != nullptr;
      ZT_ASSIGN_OR_RETURN(weight.global, NeedNumber(weight.divides ? global : second));
      weight.members.push_back(*weight.global);
      if (!weight.divides) methods = "modelopt";
      group = 16;
    } else if (!Is(scales, "u8") && !Is(scales, "f8_e8m0")) {
      return Mistyped(scales, "f8_e4m3fn of nvfp4, or u8 of mxfp4");
    }
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {methods}));
    ZT_ASSIGN_OR_RETURN(weight.blocks,
                        BlocksOf(codes, scales, codes.shape[0], weight.columns, 1, group,
                                 "a scale for " + std::to_string(group) + " numbers"));
    ZT_RETURN_IF_ERROR(claims_.CheckGroups(weight, "float"));
    return Add(std::move(weight), module);
  }

  // P_blocks, P_scales of gpt-oss as transformers has it, which is transposed; P.blocks, P.scales as
  // OpenAI has it.
  Status LookAtBlocks(const Object& codes, const std::string& name, std::string_view suffix,
                      bool transposed) {
    const Object* const scales = Find(name + std::string(suffix));
    if (!Is(codes, "u8")) return OkStatus();
    if (scales == nullptr) {
      return method_ == "mxfp4" ? Missing(name + std::string(suffix), "the scales of these blocks")
                                : OkStatus();
    }
    const Shape& shape = codes.shape;
    if (shape.size() < 3 || shape.back() != 16) return Misshapen(codes, {0, 0, 0, 16}, "mxfp4");
    const Shape wanted(shape.begin(), shape.end() - 1);
    if (scales->shape != wanted) return Misshapen(*scales, wanted, "a scale for each block");
    if (!Is(*scales, "u8") && !Is(*scales, "f8_e8m0")) return Mistyped(*scales, "u8");
    Weight weight = Start(name, "mxfp4", codes, *scales);
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {"mxfp4"}));
    const std::uint64_t groups = shape[shape.size() - 2], rows = shape[shape.size() - 3];
    const auto columns = CheckedMul(groups, 32);
    const auto count = ElementCount(shape);
    if (!columns || !count) return InvalidData("its size overflows 64 bits");
    weight.bits = 4;
    weight.shape = Shape(shape.begin(), shape.end() - 3);
    if (!transposed) {
      weight.shape.push_back(rows);
      weight.shape.push_back(*columns);
      weight.columns = *columns;
      weight.layout = {.kind = Codes::kLowFirst, .bits = 4, .values = kE2m1Values};
      weight.pitch = *columns / 2;
      weight.blocks = {rows, 1, 32, rows, groups};
      return Add(std::move(weight), ModuleOf(name));
    }
    weight.shape.push_back(*columns);
    weight.shape.push_back(rows);
    weight.columns = rows;
    weight.layout = {.kind = Codes::kPicked, .bits = 4, .unit = 1, .values = kE2m1Values};
    weight.pitch = rows;
    weight.rows_per_codes = 2;
    weight.shifts = {0, 4};
    weight.blocks = {*columns, 32, 1, groups, rows};
    if (rows > 0 && groups > 0) {
      const std::uint64_t experts = *count / 16 / groups / rows;
      weight.codes.axes = {{experts, rows * groups * 16}, {groups * 16, 1}, {rows, groups * 16}};
      weight.scales.axes = {{experts, rows * groups}, {groups, 1}, {rows, groups}};
    }
    return Add(std::move(weight), ModuleOf(name));
  }

  // GPTQ, AWQ and pack-quantized, which the groups of --quant are, too.
  Status LookAtPacked(const Object& codes, const std::string& module) {
    if (config_.file.empty()) {
      return InvalidData(
          "codes of 32-bit words need a quantization configuration (config.json, "
          "quantize_config.json) to be read");
    }
    if (!declared_) declared_ = ReadDeclared(config_.content);
    Weight named;
    named.name = module + ".weight";
    named.codes.object = named.scales.object = IndexOf(codes);
    named.scheme = codes.name.ends_with(".qweight") ? "gptq or awq" : "pack-quantized";
    ZT_RETURN_IF_ERROR(CheckMethod(named, {"gptq", "awq", "compressed-tensors"}));
    if (!declared_->ok())
      return WithFile(WithCode(declared_->status(), StatusCode::kDataLoss), config_.file);
    const Declared& declared = **declared_;
    if (Anchor(declared.scheme) != codes.name.substr(module.size()))
      return InvalidData("it is no part of " + Quote(method_) + ", which " + config_.file +
                         " says");
    const auto recipe = Recognize(declared, tensors_, module);
    if (!recipe.ok()) {
      return recipe.status().code() == StatusCode::kUnimplemented
                 ? WithCode(recipe.status(), StatusCode::kDataLoss)
                 : recipe.status();
    }
    return AddRecipe(declared.scheme, *recipe, codes, module);
  }

  Status AddRecipe(Scheme scheme, const Recipe& recipe, const Object& codes,
                   const std::string& module) {
    const auto member = [&](std::string_view role) -> const Object* {
      for (const auto& [name, index] : recipe.members) {
        if (name == role) return &tensors_[index];
      }
      return nullptr;
    };
    const auto number = [&](std::string_view key) {
      return static_cast<std::uint64_t>(FindInteger(recipe.attributes, key).value_or(0));
    };
    const Object& scales = *member("scales");
    const Object *const zeros = member("zeros"), *const groups = member("g_idx");
    Weight weight = Start(module + ".weight",
                          scheme == Scheme::kGptq      ? "gptq"
                          : scheme == Scheme::kAwqGemm ? "awq"
                                                       : "pack-quantized",
                          codes, scales);
    weight.bits = static_cast<unsigned>(number("bits"));
    const bool packed = scheme == Scheme::kPackQuantized;
    const std::uint64_t out = recipe.shape[packed ? 0 : 1], in = recipe.shape[packed ? 1 : 0];
    const std::uint64_t sets = scales.shape[packed ? 1 : 0];  // of scales, in a row
    weight.shape = {out, in};
    weight.columns = in;
    weight.layout = {.kind = Codes::kLowFirst, .bits = weight.bits, .values = kPlainValues};
    weight.blocks = {out, 1, number("group_size"), out, sets};
    const auto transpose = [](Stored& stored, const Object& object, std::size_t width) {
      stored.width = width;
      stored.axes = {{object.shape[1], 1}, {object.shape[0], object.shape[1]}};
    };
    if (scheme == Scheme::kAwqGemm) {
      weight.layout.kind = Codes::kPicked;
      weight.layout.unit = 4;
      weight.rows_per_codes = 8;
      weight.shifts = kAwqShifts;
      weight.pitch = in * 4;
    } else {
      weight.pitch = codes.shape[packed ? 1 : 0] * 4;
    }
    if (!packed) {
      transpose(weight.codes, codes, 4);
      transpose(weight.scales, scales, ByteWidth(scales.components[0].element.dtype));
    }
    if (zeros != nullptr) {
      weight.zeros_kind = Weight::Zeros::kPacked;
      weight.zeros = Stored{IndexOf(*zeros)};
      if (!packed) transpose(*weight.zeros, *zeros, 4);
      weight.zero_offset = static_cast<std::uint32_t>(number("zero_offset"));
    } else {
      weight.zeros_kind = Weight::Zeros::kEqual;
      weight.zero = static_cast<float>(number("zero_point"));
    }
    if (groups != nullptr) weight.groups = IndexOf(*groups);
    weight.members.clear();
    weight.members.push_back(weight.codes.object);
    for (const auto& [role, index] : recipe.members) {
      if (index != weight.codes.object) weight.members.push_back(index);
    }
    return Add(std::move(weight), module);
  }

  // W, W.absmax, W.quant_map, W.quant_state.bitsandbytes__nf4: 4 bits of bitsandbytes.
  Status LookAtNf4(const Object& absmax, const std::string& name) {
    const Object* const codes = Find(name);
    const std::string prefix = name + ".quant_state.bitsandbytes__";
    const Object* state = Find(prefix + "nf4");
    if (state == nullptr) state = Find(prefix + "fp4");
    if (codes == nullptr) return Missing(name, "whose scales these are");
    if (state == nullptr) return Missing(prefix + "nf4", "which says the shape");
    if (!Is(*codes, "u8")) return Mistyped(*codes, "u8");
    Weight weight = Start(name, "bitsandbytes nf4", *codes, absmax);
    if (state->name.ends_with("fp4")) weight.scheme = "bitsandbytes fp4";
    ZT_RETURN_IF_ERROR(CheckBitsandbytes(weight, "load_in_4bit"));
    ZT_ASSIGN_OR_RETURN(const Value::Map map, ReadState(*state));
    const Value* const shape = FindMember(map, "shape");
    const std::int64_t block = FindInteger(map, "blocksize").value_or(0);
    const auto dimensions = shape == nullptr ? std::nullopt : ToShape(*shape);
    if (!dimensions || dimensions->size() > kMaxRank || block <= 0)
      return InvalidData(TensorContext(state->name) + " does not say a shape and a blocksize");
    const auto count = ElementCount(*dimensions);
    const std::uint64_t bytes = ElementCount(codes->shape).value_or(0);
    if (!count || CeilDiv(*count, 2) != bytes) {
      return InvalidData(TensorContext(state->name) + " says shape " + ToString(*dimensions) +
                         ", there are " + std::to_string(bytes) + " bytes of codes");
    }
    weight.bits = 4;
    weight.shape = *dimensions;
    weight.columns = std::max<std::uint64_t>(*count, 1);
    weight.pitch = bytes;
    weight.layout.kind = Codes::kHighNibble;
    const auto blocks = CeilDiv(*count, static_cast<std::uint64_t>(block));
    weight.blocks = {1, 1, static_cast<std::uint64_t>(block), 1,
                     std::max<std::uint64_t>(blocks, 1)};
    const Shape table = {16};
    ZT_ASSIGN_OR_RETURN(weight.value_table, Need(name + ".quant_map", "f32", &table));
    weight.members.insert(weight.members.end(), {*weight.value_table, IndexOf(*state)});
    if (ElementCount(absmax.shape) != blocks) return Misshapen(absmax, {blocks}, "its state");
    if (Is(absmax, "u8")) {
      ZT_RETURN_IF_ERROR(AddNested(weight, map, name));
    } else if (!Is(absmax, "f32")) {
      return Mistyped(absmax, "f32 or u8");
    }
    return Add(std::move(weight), ModuleOf(name));
  }

  Status AddNested(Weight& weight, const Value::Map& state, const std::string& name) {
    const std::int64_t block = FindInteger(state, "nested_blocksize").value_or(0);
    const Value* const offset = FindMember(state, "nested_offset");
    const double* const number = offset == nullptr ? nullptr : offset->AsDouble();
    if (block <= 0 || (number == nullptr && FindInteger(state, "nested_offset") != 0))
      return InvalidData("its state does not say nested_blocksize and nested_offset");
    const Shape map = {256};
    const Shape scales = {CeilDiv(weight.blocks.scale_columns, static_cast<std::uint64_t>(block))};
    Weight::Nested nested;
    ZT_ASSIGN_OR_RETURN(nested.map, Need(name + ".nested_quant_map", "f32", &map));
    ZT_ASSIGN_OR_RETURN(nested.absmax, Need(name + ".nested_absmax", "f32", &scales));
    nested.block = static_cast<std::uint64_t>(block);
    nested.offset = number == nullptr ? 0.0f : static_cast<float>(*number);
    weight.members.insert(weight.members.end(), {nested.map, nested.absmax});
    weight.nested = nested;
    return OkStatus();
  }

  StatusOr<Value::Map> ReadState(const Object& state) {
    const std::uint64_t bytes = state.components[0].bytes;
    if (!Is(state, "u8")) return Mistyped(state, "u8");
    if (bytes > kMostStateBytes) {
      return InvalidData(TensorContext(state.name) + " has " + std::to_string(bytes) +
                         " bytes; a state has at most " + std::to_string(kMostStateBytes));
    }
    std::string text(bytes, '\0');
    const ComponentId id{IndexOf(state), 0};
    ZT_RETURN_IF_ERROR(tensors_.source().Read(id, 0, std::as_writable_bytes(std::span(text))));
    auto map = ParseJsonObject(text);
    if (!map.ok()) return Annotate(map.status(), TensorContext(state.name));
    return map;
  }

  Status CheckBitsandbytes(const Weight& weight, std::string_view flag) const {
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {"bitsandbytes"}));
    const Value* const loads = FindMember(config_.content, flag);
    if (loads == nullptr || loads->AsBool() == nullptr || *loads->AsBool()) return OkStatus();
    return InvalidData("it is stored as " + std::string(weight.scheme) + ", and " + config_.file +
                       " says " + Quote(flag) + ": false");
  }

  // M.weight, M.SCB: int8 of bitsandbytes.
  Status LookAtInt8(const Object& scales, const std::string& module) {
    const Object* const codes = Find(module + ".weight");
    if (codes == nullptr) return Missing(module + ".weight", "whose scales these are");
    if (!Is(*codes, "i8")) return Mistyped(*codes, "i8");
    if (codes->shape.size() != 2) return Misshapen(*codes, {0, 0}, "the scheme");
    const Shape wanted = {codes->shape[0]};
    if (scales.shape != wanted) return Misshapen(scales, wanted, "a scale for each row");
    if (!Is(scales, "f32")) return Mistyped(scales, "f32");
    Weight weight = Start(codes->name, "bitsandbytes int8", *codes, scales);
    ZT_RETURN_IF_ERROR(CheckBitsandbytes(weight, "load_in_8bit"));
    weight.layout.kind = Codes::kI8;
    weight.blocks = {wanted[0], 1, weight.columns, wanted[0], 1};
    weight.factor = 1.0f / 127.0f;
    return Add(std::move(weight), module);
  }

  // In a quantized checkpoint, codes without scales are an error.
  Status CheckScaled(const Object& object) {
    if ((method_.empty() && found_.empty()) || used_[current_] || object.format != "dense")
      return OkStatus();
    const std::string_view name = object.name;
    const bool codes = Is(object, "f8_e4m3fn") || Is(object, "f8_e5m2") ||
                       (name.ends_with(".weight") && (Is(object, "i8") || Is(object, "u8"))) ||
                       name.ends_with(".weight_packed") || name.ends_with(".qweight");
    if (!codes || claims_.IsIgnored(name)) return OkStatus();
    const std::string what = "it holds codes (" + std::string(Name(object.components[0].element)) +
                             "), and no tensor beside it their scales; ";
    if (method_.empty()) {
      return InvalidData(what + TensorContext(found_.front().name) +
                         " has some, and no configuration says which modules are not quantized");
    }
    return InvalidData(what + Configured() +
                       " and does not name its module among those that are not quantized");
  }

  static constexpr std::uint64_t kBlock = 128;
  // The nibble of column i of eight is 4 * {0, 4, 1, 5, 2, 6, 3, 7}[i].
  static constexpr std::array<std::uint8_t, 8> kAwqShifts = {0, 16, 4, 20, 8, 24, 12, 28};

  const Tensors& tensors_;
  const Configuration& config_;
  const Claims claims_;
  const std::string method_;
  std::optional<StatusOr<Declared>> declared_;
  std::vector<bool> used_;                 // objects that are members
  std::unordered_set<std::string> names_;  // of what is found
  std::vector<Weight> found_;
  std::uint32_t current_ = 0;
};

}  // namespace

StatusOr<std::vector<Weight>> FindWeights(const Tensors& tensors, const Configuration& config) {
  return Finder(tensors, config).Run();
}

}  // namespace zt::composite::internal
