// zt.transform:simd — which instructions the kernels use here, for reports of problems and measurements.
export module zt.transform:simd;

import zt.std;

export namespace zt {

// Highway's version, "1.0.3". A literal.
std::string_view HighwayVersion();

// The instruction sets that the kernels were compiled for and this processor has, best first, by Highway's names:
// "AVX2", "SSE4", ... The first one is used.
std::vector<std::string> SimdTargets();

}  // namespace zt
