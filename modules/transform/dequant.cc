// zt.transform:dequant — the table of block types, and calls of their kernels.
module;

#include "transform/convert_kernel.h"
#include "transform/dequant_kernel.h"
#include "transform/streaming.h"

module zt.transform;

import zt.std;
import zt.core;

namespace zt {
namespace {

struct Row {
  GgmlBlock block;
  kernel::DequantFn* kernel;  // null if ggml defines no values
};
constexpr Row kRows[] = {
    {{"q4_0", 32, 18}, kernel::DequantQ4_0},        {{"q4_1", 32, 20}, kernel::DequantQ4_1},
    {{"q5_0", 32, 22}, kernel::DequantQ5_0},        {{"q5_1", 32, 24}, kernel::DequantQ5_1},
    {{"q8_0", 32, 34}, kernel::DequantQ8_0},        {{"q8_1", 32, 36}, nullptr},
    {{"q2_k", 256, 84}, kernel::DequantQ2_K},       {{"q3_k", 256, 110}, kernel::DequantQ3_K},
    {{"q4_k", 256, 144}, kernel::DequantQ4_K},      {{"q5_k", 256, 176}, kernel::DequantQ5_K},
    {{"q6_k", 256, 210}, kernel::DequantQ6_K},      {{"q8_k", 256, 292}, kernel::DequantQ8_K},
    {{"iq2_xxs", 256, 66}, kernel::DequantIQ2_XXS}, {{"iq2_xs", 256, 74}, kernel::DequantIQ2_XS},
    {{"iq2_s", 256, 82}, kernel::DequantIQ2_S},     {{"iq3_xxs", 256, 98}, kernel::DequantIQ3_XXS},
    {{"iq3_s", 256, 110}, kernel::DequantIQ3_S},    {{"iq1_s", 256, 50}, kernel::DequantIQ1_S},
    {{"iq1_m", 256, 56}, kernel::DequantIQ1_M},     {{"iq4_nl", 32, 18}, kernel::DequantIQ4_NL},
    {{"iq4_xs", 256, 136}, kernel::DequantIQ4_XS},  {{"tq1_0", 256, 54}, kernel::DequantTQ1_0},
    {{"tq2_0", 256, 66}, kernel::DequantTQ2_0},     {{"mxfp4", 32, 17}, kernel::DequantMXFP4},
    {{"nvfp4", 64, 36}, kernel::DequantNVFP4},      {{"q1_0", 128, 18}, kernel::DequantQ1_0},
    {{"q2_0", 64, 18}, kernel::DequantQ2_0},
};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.block.name == name) return &row;
  }
  return nullptr;
}

class Dequantize final : public Transform {
 public:
  Dequantize(const Row& row, DType to, bool saturate) : row_(row), to_(to), saturate_(saturate) {}

  std::size_t input_unit() const override { return row_.block.bytes; }
  std::size_t output_unit() const override { return row_.block.elems * ByteWidth(to_); }

  void Apply(std::span<const std::byte> in, std::span<std::byte> out,
             NumericCounts& counts) const override {
    const auto* from = reinterpret_cast<const std::uint8_t*>(in.data());
    auto* to = reinterpret_cast<std::uint8_t*>(out.data());
    const std::size_t blocks = in.size() / row_.block.bytes;
    if (to_ != DType::kF32) {
      counts.overflow += Narrow(from, to, blocks);
    } else if (out.size() >= kernel::kStreamedBytes) {
      Stream(from, to, blocks);
    } else {
      row_.kernel(from, reinterpret_cast<float*>(to), blocks);
    }
    LittleEndian(out, ByteWidth(to_));
  }

 private:
  // Floats per step of a conversion: their buffer stays in the first-level cache.
  static constexpr std::size_t kStage = 2048;

  // Dequantizes in steps of up to kStage floats into `stage`, and calls take(elements) after each.
  template <class Take>
  void ForEachPiece(const std::uint8_t* from, std::size_t blocks, float* stage,
                    const Take& take) const {
    while (blocks > 0) {
      const std::size_t some = std::min<std::size_t>(blocks, kStage / row_.block.elems);
      row_.kernel(from, stage, some);
      take(some * row_.block.elems);
      from += some * row_.block.bytes;
      blocks -= some;
    }
  }

  std::uint64_t Narrow(const std::uint8_t* from, std::uint8_t* to, std::size_t blocks) const {
    alignas(64) float stage[kStage];
    kernel::Counts found;
    ForEachPiece(from, blocks, stage, [&](std::size_t count) {
      kernel::ConvertFloats(
          kernel::Number::kF32, to_ == DType::kF16 ? kernel::Number::kF16 : kernel::Number::kBf16,
          reinterpret_cast<const std::uint8_t*>(stage), to, count, saturate_, found);
      to += count * sizeof(std::uint16_t);
    });
    return found.overflow;
  }

  // Stores past the caches. The stage has the same offset within a cache line as the output, so
  // that whole lines are copied from aligned to aligned addresses.
  void Stream(const std::uint8_t* from, std::uint8_t* to, std::size_t blocks) const {
    alignas(64) std::uint8_t stage[kStage * sizeof(float) + 64];
    std::uint8_t* const start = stage + reinterpret_cast<std::uintptr_t>(to) % 64;
    ForEachPiece(from, blocks, reinterpret_cast<float*>(start), [&](std::size_t count) {
      const std::size_t bytes = count * sizeof(float);
      const std::size_t head = static_cast<std::size_t>(stage + 64 - start) % 64;
      std::memcpy(to, start, head);
      kernel::CopyStreamed(start + head, to + head, bytes - head);
      to += bytes;
    });
    kernel::FlushStreamed();
  }

  const Row& row_;
  DType to_;
  bool saturate_;
};

}  // namespace

const GgmlBlock* FindGgmlBlock(std::string_view name) {
  const Row* row = FindRow(name);
  return row == nullptr ? nullptr : &row->block;
}

std::string GgmlFormat(std::string_view name) { return "gguf." + std::string(name) + "/1"; }

const GgmlBlock* FindGgmlBlockOfFormat(std::string_view format) {
  if (!format.starts_with("gguf.") || !format.ends_with("/1")) return nullptr;
  return FindGgmlBlock(format.substr(5, format.size() - 7));
}

StatusOr<std::shared_ptr<const Transform>> MakeDequantize(std::string_view ggml_type, DType to,
                                                          bool saturate) {
  const Row* row = FindRow(ggml_type);
  if (row == nullptr || row->kernel == nullptr) {
    return Unsupported("blocks of ggml type " + Quote(ggml_type) + " cannot be dequantized");
  }
  if (to != DType::kF32 && to != DType::kF16 && to != DType::kBF16) {
    return Unsupported("dequantization gives f32, f16 or bf16, not " + std::string(Name(to)));
  }
  return std::make_shared<const Dequantize>(*row, to, saturate);
}

}  // namespace zt
