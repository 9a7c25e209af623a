// zt.convert.composite:weights — codes of a byte or of e2m1, with scales: FP8, FP4, int8.
module;

#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :finder;
import :scheme;
import :weights;
import zt.core;
import zt.source;
import zt.transform;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kBlock = 128;  // where no configuration says another

// Scales that are powers of two.
bool IsPower(const Object& object) { return Is(object, "f8_e8m0") || Is(object, "u8"); }

}  // namespace

StatusOr<Blocks> Finder::BlocksOf(const Object& codes, const Object& scales, std::uint64_t rows,
                                  std::uint64_t columns, std::uint64_t block_rows,
                                  std::uint64_t block_columns, std::string_view why) const {
  Shape wanted = codes.shape;
  wanted[wanted.size() - 2] = CeilDiv(rows, block_rows);
  wanted.back() = CeilDiv(columns, block_columns);
  if (scales.shape != wanted) return Misshapen(scales, wanted, why);
  return Blocks{rows, block_rows, block_columns, wanted[wanted.size() - 2], wanted.back()};
}

void Finder::SetNibbles(Weight& weight) const {
  weight.bits = 4;
  weight.layout = {.kind = Codes::kLowFirst, .bits = 4, .values = kE2m1Values};
  weight.pitch = weight.columns;
  weight.columns *= 2;
  weight.shape.back() = weight.columns;
}

Status Finder::AddFp8Blocks(const Object& codes, const Object& scales, std::string_view scheme) {
  if (codes.shape.size() < 2) return Unread(codes, "codes of two dimensions or more");
  Weight weight = Start(codes.name, scheme, codes, scales);
  ZT_RETURN_IF_ERROR(CheckMethod(weight, {"fp8", "modelopt", "compressed-tensors"}));
  if (!claims_.block && codes.shape.size() == 2 && ElementCount(scales.shape) == 1) {
    weight.scheme = "fp8";
    weight.blocks = {codes.shape[0], codes.shape[0], weight.columns, 1, 1};
    return Add(std::move(weight), ModuleOf(codes.name));
  }
  if (codes.shape.size() != scales.shape.size())
    return Unread(scales, "scales of as many dimensions as their codes");
  const std::uint64_t block_rows = claims_.block ? claims_.block->first : kBlock;
  const std::uint64_t block_columns = claims_.block ? claims_.block->second : kBlock;
  const std::string why = (claims_.block ? config_.file + " says" : "without a configuration") +
                          " blocks of " + std::to_string(block_rows) + "x" +
                          std::to_string(block_columns) + ", which";
  ZT_ASSIGN_OR_RETURN(weight.blocks, BlocksOf(codes, scales, codes.shape[codes.shape.size() - 2],
                                              weight.columns, block_rows, block_columns, why));
  return Add(std::move(weight), ModuleOf(codes.name));
}

Status Finder::AddFp4(const Object& codes, const Object& scales) {
  if (codes.shape.size() < 2) return Unread(codes, "codes of two dimensions or more");
  Weight weight = Start(codes.name, "fp4", codes, scales);
  SetNibbles(weight);
  ZT_RETURN_IF_ERROR(CheckMethod(weight, {"fp8"}));
  ZT_ASSIGN_OR_RETURN(weight.blocks, BlocksOf(codes, scales, codes.shape[codes.shape.size() - 2],
                                              weight.columns, 1, 32, "a scale for 32 numbers"));
  return Add(std::move(weight), ModuleOf(codes.name));
}

Status Finder::LookAtInverse(const Object& scales, const std::string& name) {
  const Object* const codes = Find(name);
  if (codes == nullptr) return Missing(name, "whose scales these are");
  if (Is(*codes, "i8") && IsPower(scales)) return AddFp4(*codes, scales);
  if (!Is(*codes, "f8_e4m3fn")) return Mistyped(*codes, "f8_e4m3fn, of which these are scales");
  if (!IsScale(scales) && !IsPower(scales))
    return Mistyped(scales, "f32, bf16, f16, f8_e8m0 or u8");
  return AddFp8Blocks(*codes, scales, "fp8 blocks");
}

Status Finder::LookAtPlainScale(const Object& scales, const std::string& module) {
  const Object* const codes = Find(module + ".weight");
  if (codes == nullptr || (!Is(*codes, "f8_e4m3fn") && !Is(*codes, "i8"))) {
    if (method_ != "fp8" || !Is(scales, "f8_e8m0")) return OkStatus();  // of something else
    return codes == nullptr ? Missing(module + ".weight", "whose scales these are")
                            : Mistyped(*codes, "f8_e4m3fn or i8, of which there are scales");
  }
  if (Is(*codes, "f8_e4m3fn")) {
    if (!Is(scales, "f8_e8m0") && !Is(scales, "f32")) return Mistyped(scales, "f8_e8m0 or f32");
    return AddFp8Blocks(*codes, scales, "fp8 blocks");
  }
  if (Is(scales, "f8_e8m0")) return AddFp4(*codes, scales);
  // Else integers of a scheme that is not read.
  return method_.empty() ? OkStatus() : Mistyped(scales, "f8_e8m0, the scales of fp4 in i8");
}

StatusOr<Blocks> Finder::AnyBlocks(const Object& codes, const Object& scales,
                                   std::uint64_t columns) {
  const std::uint64_t rows = codes.shape[0];
  if (ElementCount(scales.shape) == 1) return Blocks{rows, rows, columns, 1, 1};
  if (claims_.block) {
    auto blocks = BlocksOf(codes, scales, rows, columns, claims_.block->first,
                           claims_.block->second, config_.file + "'s size of blocks");
    if (blocks.ok() || !claims_.without_blocks) return blocks;
  }
  if (scales.shape == Shape{rows} || scales.shape == Shape{rows, 1})
    return Blocks{rows, 1, columns, rows, 1};
  if (scales.shape.size() == 2 && scales.shape[0] == rows && scales.shape[1] > 0 &&
      columns % scales.shape[1] == 0)
    return Blocks{rows, 1, columns / scales.shape[1], rows, scales.shape[1]};
  return Misshapen(scales, {rows, 1}, "one scale for each row");
}

Status Finder::LookAtScale(const Object& scales, const std::string& module) {
  if (const Object* const packed = Find(module + ".weight_packed")) {
    if (Is(*packed, "i32")) return OkStatus();  // LookAtPacked
    return LookAtFp4(scales, *packed, module);
  }
  const Object* const codes = Find(module + ".weight");
  if (codes == nullptr) return Missing(module + ".weight", "whose scales these are");
  const bool floats = Is(*codes, "f8_e4m3fn");
  if (!floats && !Is(*codes, "i8") && !Is(*codes, "u8"))
    return Mistyped(*codes, "f8_e4m3fn, i8 or u8, of which there are scales");
  // ComfyUI has other orders of codes and scales, and rotated ones, under the same names.
  const bool is_said = !method_.empty() || FindMember(config_.content, "config_groups") != nullptr;
  if (!is_said && !(floats && IsScale(scales)))
    return NeedsConfiguration("codes of " + std::string(Name(codes->components[0].element)) +
                              " with such scales");
  if (Is(*codes, "u8")) return LookAtFp4(scales, *codes, module);
  if (!IsScale(scales) && !(floats && IsPower(scales)))
    return Mistyped(scales, floats ? "f32, bf16, f16, f8_e8m0 or u8" : "f32, bf16 or f16");
  if (codes->shape.size() != 2) return Unread(*codes, "codes of two dimensions");
  Weight weight = Start(codes->name, floats ? "fp8" : "int8", *codes, scales);
  if (!floats) weight.layout.kind = Codes::kI8;
  if (floats) {
    ZT_RETURN_IF_ERROR(
        CheckMethod(weight, {"compressed-tensors", "modelopt", "fp8", "fbgemm_fp8"}));
  } else {
    ZT_RETURN_IF_ERROR(CheckMethod(weight, {"compressed-tensors"}));
  }
  ZT_ASSIGN_OR_RETURN(weight.blocks, AnyBlocks(*codes, scales, weight.columns));
  if (Is(scales, "u8") && (weight.blocks.block_rows != 1 || weight.blocks.block_columns != 32))
    return Mistyped(scales, "f32, bf16, f16 or f8_e8m0; u8 are those of groups of 32");
  ZT_RETURN_IF_ERROR(claims_.CheckGroups(weight, floats ? "float" : "int"));
  if (const Object* const zeros = Find(module + ".weight_zero_point")) {
    if (zeros->shape != scales.shape) return Misshapen(*zeros, scales.shape, "its scales");
    if (!Is(*zeros, "i8") && !(floats && (Is(*zeros, "f8_e4m3fn") || IsScale(*zeros))))
      return Mistyped(*zeros, floats ? "f8_e4m3fn" : "i8");
    weight.members.push_back(IndexOf(*zeros));
    weight.zeros_kind = Weight::Zeros::kEach;
    weight.zeros = Stored{IndexOf(*zeros)};
  }
  return Add(std::move(weight), module);
}

Status Finder::LookAtFp4(const Object& scales, const Object& codes, const std::string& module) {
  if (!Is(codes, "u8")) return Mistyped(codes, "u8 or i32");
  if (codes.shape.size() != 2) return Unread(codes, "codes of two dimensions");
  if (scales.shape.size() != 2) return Unread(scales, "scales of two dimensions");
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
  } else if (!IsPower(scales)) {
    return Mistyped(scales, "f8_e4m3fn of nvfp4, or u8 of mxfp4");
  }
  ZT_RETURN_IF_ERROR(CheckMethod(weight, {methods}));
  ZT_ASSIGN_OR_RETURN(weight.blocks,
                      BlocksOf(codes, scales, codes.shape[0], weight.columns, 1, group,
                               "a scale for " + std::to_string(group) + " numbers"));
  ZT_RETURN_IF_ERROR(claims_.CheckGroups(weight, "float"));
  return Add(std::move(weight), module);
}

Status Finder::LookAtBlocks(const Object& codes, const std::string& name) {
  if (!Is(codes, "u8")) return method_ == "mxfp4" ? Mistyped(codes, "u8") : OkStatus();
  const bool transposed = codes.name[name.size()] == '_';
  const std::string scales_name = name + (transposed ? "_scales" : ".scales");
  const Object* const scales = Find(scales_name);
  if (scales == nullptr)
    return method_ == "mxfp4" ? Missing(scales_name, "the scales of these blocks") : OkStatus();
  const Shape& shape = codes.shape;
  if (shape.size() < 3 || shape.back() != 16) return Unread(codes, "rows of blocks of 16 bytes");
  const Shape wanted(shape.begin(), shape.end() - 1);
  if (scales->shape != wanted) return Misshapen(*scales, wanted, "a scale for each block");
  if (!IsPower(*scales)) return Mistyped(*scales, "u8");
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

}  // namespace zt::composite::internal
