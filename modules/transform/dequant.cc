// zt.transform:dequant — the block types and the binding to their kernels.
module;

#include <cstdint>
#include <memory>
#include <string_view>

module zt.transform;

import zt.core;

namespace zt {
namespace {

constexpr GgmlBlock kBlocks[] = {
    {"q4_0", 32, 18},     {"q4_1", 32, 20},     {"q5_0", 32, 22},     {"q5_1", 32, 24},
    {"q8_0", 32, 34},     {"q8_1", 32, 36},     {"q2_k", 256, 84},    {"q3_k", 256, 110},
    {"q4_k", 256, 144},   {"q5_k", 256, 176},   {"q6_k", 256, 210},   {"q8_k", 256, 292},
    {"iq2_xxs", 256, 66}, {"iq2_xs", 256, 74},  {"iq2_s", 256, 82},   {"iq3_xxs", 256, 98},
    {"iq3_s", 256, 110},  {"iq1_s", 256, 50},   {"iq1_m", 256, 56},   {"iq4_nl", 32, 18},
    {"iq4_xs", 256, 136}, {"tq1_0", 256, 54},   {"tq2_0", 256, 66},   {"mxfp4", 32, 17},
    {"nvfp4", 64, 36},    {"q1_0", 128, 18},    {"q2_0", 64, 18},
};

}  // namespace

const GgmlBlock* FindGgmlBlock(std::string_view name) {
  for (const GgmlBlock& block : kBlocks) {
    if (block.name == name) return &block;
  }
  return nullptr;
}

}  // namespace zt
