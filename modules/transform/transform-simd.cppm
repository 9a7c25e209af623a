// zt.transform:simd — the instruction sets that the kernels use, for problem
// reports and benchmarks.
export module zt.transform:simd;

import zt.std;

export namespace zt {

// Highway's version, "1.0.3". A string literal.
std::string_view HighwayVersion();

// The instruction sets that the kernels were compiled for and this processor supports, best first,
// by Highway's names: "AVX2", "SSE4", ... The first one is used.
std::vector<std::string> SimdTargets();

}  // namespace zt
