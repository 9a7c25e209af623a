// zt.convert.gguf:header — the numbers of ggml's tensor types.
module zt.convert.gguf;

import zt.std;
import zt.core;
import zt.transform;

namespace zt {
namespace {

// Indexed by id; `removed` ids were once written to files and are no longer defined.
struct Row {
  std::string_view name;
  std::optional<DType> plain = std::nullopt;
  bool removed = false;
};
constexpr Row kTypes[] = {
    {"f32", DType::kF32},      // 0
    {"f16", DType::kF16},      // 1
    {"q4_0"},                  // 2
    {"q4_1"},                  // 3
    {"q4_2", {}, true},        // 4
    {"q4_3", {}, true},        // 5
    {"q5_0"},                  // 6
    {"q5_1"},                  // 7
    {"q8_0"},                  // 8
    {"q8_1"},                  // 9
    {"q2_k"},                  // 10
    {"q3_k"},                  // 11
    {"q4_k"},                  // 12
    {"q5_k"},                  // 13
    {"q6_k"},                  // 14
    {"q8_k"},                  // 15
    {"iq2_xxs"},               // 16
    {"iq2_xs"},                // 17
    {"iq3_xxs"},               // 18
    {"iq1_s"},                 // 19
    {"iq4_nl"},                // 20
    {"iq3_s"},                 // 21
    {"iq2_s"},                 // 22
    {"iq4_xs"},                // 23
    {"i8", DType::kI8},        // 24
    {"i16", DType::kI16},      // 25
    {"i32", DType::kI32},      // 26
    {"i64", DType::kI64},      // 27
    {"f64", DType::kF64},      // 28
    {"iq1_m"},                 // 29
    {"bf16", DType::kBF16},    // 30
    {"q4_0_4_4", {}, true},    // 31
    {"q4_0_4_8", {}, true},    // 32
    {"q4_0_8_8", {}, true},    // 33
    {"tq1_0"},                 // 34
    {"tq2_0"},                 // 35
    {"iq4_nl_4_4", {}, true},  // 36
    {"iq4_nl_4_8", {}, true},  // 37
    {"iq4_nl_8_8", {}, true},  // 38
    {"mxfp4"},                 // 39
    {"nvfp4"},                 // 40
    {"q1_0"},                  // 41
    {"q2_0"},                  // 42
};

GgmlType Describe(std::uint32_t id) {
  const Row& row = kTypes[id];
  if (row.plain) {
    return {id, row.name, row.plain, 1, static_cast<std::uint32_t>(ByteWidth(*row.plain))};
  }
  const GgmlBlock& block = *FindGgmlBlock(row.name);
  return {id, row.name, std::nullopt, block.elems, block.bytes};
}

}  // namespace

StatusOr<GgmlType> FindGgmlType(std::uint32_t id) {
  if (id >= std::size(kTypes)) {
    return Unsupported("ggml type " + std::to_string(id) + " is not known");
  }
  if (kTypes[id].removed) {
    return Unsupported("ggml type " + std::to_string(id) + " (" + std::string(kTypes[id].name) +
                       ") was removed from GGUF; convert the file with the tool that wrote it");
  }
  return Describe(id);
}

std::optional<GgmlType> FindGgmlType(std::string_view name) {
  for (std::uint32_t id = 0; id < std::size(kTypes); ++id) {
    if (kTypes[id].name == name && !kTypes[id].removed) return Describe(id);
  }
  return std::nullopt;
}

}  // namespace zt
