// zt.convert.composite:scheme — GPTQ and AWQ (GEMM): the same names, packed along different axes.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.convert.composite;

import zt.std;
import :scheme;
import zt.core;

namespace zt::composite::internal {
namespace {

constexpr std::uint64_t kWordBits = 32;

// Bits of one code, where `words` words hold `codes` codes without a gap.
std::optional<std::uint64_t> BitsOf(std::uint64_t words, std::uint64_t codes) {
  const auto bits = CheckedMul(words, kWordBits);
  if (!bits || *bits % codes != 0) return std::nullopt;
  return *bits / codes;
}

Status OddPacking(const Object& packed, std::uint64_t codes) {
  return Unsupported(TensorContext(packed.name) + " of shape " + ToString(packed.shape) +
                     " cannot hold " + std::to_string(codes) + " codes a row");
}

}  // namespace

// qweight i32 [in * bits / 32, out] packs along `in`, qzeros i32 [groups, out * bits / 32] along `out`, both from
// the low bits up; scales [groups, out]; g_idx i32 [in], the group of each input where they are not consecutive.
StatusOr<Recipe> RecognizeGptq(const Value::Map& config, const Tensors& tensors,
                               const std::string& module) {
  // GPTQModel writes `format`; AutoGPTQ writes one only for its newer kernels. "gptq" stores each zero point minus 1.
  auto format = Text(config, "checkpoint_format");
  if (!format) format = Text(config, "format");
  if (format && *format != "gptq" && *format != "gptq_v2") {
    return Unsupported("checkpoint format " + Quote(*format) +
                       " is not supported, only gptq and gptq_v2");
  }
  if (Flag(config, "is_marlin_format").value_or(false)) {
    return Unsupported("checkpoint format 'marlin' is not supported, only gptq and gptq_v2");
  }
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const Object* const weight,
                      members.Need("packed_weight", ".qweight", {DType::kI32}, 2));
  ZT_ASSIGN_OR_RETURN(const Object* const scales,
                      members.Need("scales", ".scales", FloatTypes(), 2));
  ZT_ASSIGN_OR_RETURN(const Object* const zeros,
                      members.Need("zeros", ".qzeros", {DType::kI32}, 2));
  const std::uint64_t out = weight->shape[1];
  const std::uint64_t groups = scales->shape[0];
  ZT_RETURN_IF_ERROR(RequireShape(*scales, {groups, out}));
  ZT_RETURN_IF_ERROR(RequireShape(*zeros, {groups, zeros->shape[1]}));
  const auto bits = BitsOf(zeros->shape[1], out);
  if (!bits) return OddPacking(*zeros, out);
  if (*bits != 2 && *bits != 3 && *bits != 4 && *bits != 8) {
    return Unsupported(std::to_string(*bits) + " bits are not supported, only 2, 3, 4 and 8");
  }
  ZT_RETURN_IF_ERROR(RequireBits(Integer(config, "bits"), *bits));
  // 3-bit codes straddle words: 32 codes take 3 words.
  const std::uint64_t block = *bits == 3 ? 3 : 1;
  const auto in = CheckedMul(weight->shape[0] / block, kWordBits * block / *bits);
  if (weight->shape[0] % block != 0 || !in) {
    return Unsupported(TensorContext(weight->name) + " has no whole blocks of " +
                       std::to_string(block) + " rows");
  }
  if (members.Has(".g_idx")) {
    ZT_ASSIGN_OR_RETURN(const Object* const g_idx,
                        members.Need("g_idx", ".g_idx", {DType::kI32}, 1));
    ZT_RETURN_IF_ERROR(RequireShape(*g_idx, {*in}));
  } else if (Flag(config, "desc_act").value_or(false)) {
    return Unsupported(TensorContext(module + ".g_idx") + " is missing, which desc_act needs");
  }
  ZT_ASSIGN_OR_RETURN(const std::uint64_t group_size,
                      GroupSize(Integer(config, "group_size"), *in, groups));

  const bool straddles = *bits == 3;
  Value::Map attributes;
  attributes.emplace_back("quant_method", "gptq");
  attributes.emplace_back("bits", *bits);
  attributes.emplace_back("group_size", group_size);
  attributes.emplace_back("packing", straddles ? "gptq_i32_3bit_rows" : "gptq_i32_lsb_rows");
  attributes.emplace_back("zeros_packing", straddles ? "gptq_i32_3bit_cols" : "i32_lsb_cols");
  attributes.emplace_back("zero_offset", std::uint64_t{format == "gptq_v2" ? 0U : 1U});
  if (format) attributes.emplace_back("checkpoint_format", *format);
  return members.Finish({*in, out}, std::move(attributes));
}

// qweight i32 [in, out / 8] and qzeros i32 [groups, out / 8] pack along `out`, nibble i holding column
// [0, 2, 4, 6, 1, 3, 5, 7][i] of eight; scales [groups, out].
StatusOr<Recipe> RecognizeAwq(const Value::Map& config, const Tensors& tensors,
                              const std::string& module) {
  Members members(tensors, module);
  ZT_ASSIGN_OR_RETURN(const Object* const weight,
                      members.Need("packed_weight", ".qweight", {DType::kI32}, 2));
  ZT_ASSIGN_OR_RETURN(const Object* const scales,
                      members.Need("scales", ".scales", FloatTypes(), 2));
  ZT_ASSIGN_OR_RETURN(const Object* const zeros,
                      members.Need("zeros", ".qzeros", {DType::kI32}, 2));
  if (members.Has(".g_idx"))
    return Unsupported(TensorContext(module + ".g_idx") + " is not part of an awq module");
  const std::uint64_t in = weight->shape[0];
  const std::uint64_t groups = scales->shape[0];
  const std::uint64_t out = scales->shape[1];
  ZT_RETURN_IF_ERROR(RequireShape(*zeros, {groups, weight->shape[1]}));
  const auto bits = BitsOf(weight->shape[1], out);
  if (!bits) return OddPacking(*weight, out);
  if (*bits != 4) return Unsupported(std::to_string(*bits) + " bits are not supported, only 4");
  auto configured = Integer(config, "bits");
  if (!configured) configured = Integer(config, "w_bit");
  ZT_RETURN_IF_ERROR(RequireBits(configured, *bits));
  auto size = Integer(config, "group_size");
  if (!size) size = Integer(config, "q_group_size");
  ZT_ASSIGN_OR_RETURN(const std::uint64_t group_size, GroupSize(size, in, groups));

  Value::Map attributes;
  attributes.emplace_back("quant_method", "awq");
  attributes.emplace_back("bits", *bits);
  attributes.emplace_back("group_size", group_size);
  attributes.emplace_back("packing", "awq_gemm_i32_0246_1357");
  attributes.emplace_back("zeros_packing", "awq_gemm_i32_0246_1357");
  attributes.emplace_back("zero_offset", std::uint64_t{0});
  attributes.emplace_back("version", Text(config, "version").value_or("gemm"));
  return members.Finish({in, out}, std::move(attributes));
}

}  // namespace zt::composite::internal
