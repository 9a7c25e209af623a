// Dequantization: float32 bytes written a second, out of cache, beside memcpy of as many bytes.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

import zt.core;
import zt.transform;

namespace {

// Written by one iteration: beyond the caches of any machine this is likely to run on.
constexpr std::size_t kOutput = std::size_t{768} << 20;
// The executor hands out chunks; so does this.
constexpr std::size_t kChunk = std::size_t{4} << 20;

constexpr std::string_view kTypes[] = {
    "q4_0",    "q4_1",  "q5_0",    "q5_1",  "q8_0",  "q2_k",  "q3_k",   "q4_k",   "q5_k",
    "q6_k",    "q8_k",  "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m",
    "iq4_nl",  "iq4_xs", "tq1_0",  "tq2_0", "mxfp4", "nvfp4", "q1_0",   "q2_0"};

std::vector<std::byte>& Output() {
  static std::vector<std::byte> out(kOutput, std::byte{1});
  return out;
}

// `piece` bytes a call.
void Memcpy(benchmark::State& state, std::size_t piece) {
  std::vector<std::byte>& out = Output();
  std::vector<std::byte> in(kOutput, std::byte{2});
  for (auto _ : state) {
    for (std::size_t at = 0; at < kOutput; at += piece) {
      std::memcpy(out.data() + at, in.data() + at, piece);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kOutput));
}

void Dequantize(benchmark::State& state, std::string_view type, zt::DType to) {
  std::vector<std::byte>& out = Output();
  const auto transform = *zt::MakeDequantize(type, to);
  const std::size_t in_unit = transform->input_unit(), out_unit = transform->output_unit();
  const std::size_t units = kChunk / out_unit, chunks = kOutput / kChunk;
  // Bytes of any kind are blocks; small exponents keep the scales finite, as those of weights are.
  std::vector<std::byte> in(chunks * units * in_unit);
  std::uint32_t x = 1;
  for (std::byte& b : in) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24 & 0x2f);
  }
  zt::NumericCounts counts;
  for (auto _ : state) {
    for (std::size_t c = 0; c < chunks; ++c) {
      transform->Apply(std::span(in).subspan(c * units * in_unit, units * in_unit),
                       std::span(out).subspan(c * kChunk, units * out_unit), counts);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(
      static_cast<std::int64_t>(state.iterations() * chunks * units * out_unit));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RegisterBenchmark("memcpy/chunks", Memcpy, kChunk)->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("memcpy/whole", Memcpy, kOutput)->Unit(benchmark::kMillisecond);
  for (const std::string_view type : kTypes) {
    benchmark::RegisterBenchmark((std::string(type) + "/f32").c_str(), Dequantize, type,
                                 zt::DType::kF32)
        ->Unit(benchmark::kMillisecond);
  }
  for (const std::string_view type : {"q4_k", "q8_0"}) {
    for (const zt::DType to : {zt::DType::kF16, zt::DType::kBF16}) {
      benchmark::RegisterBenchmark((std::string(type) + "/" + std::string(zt::Name(to))).c_str(),
                                   Dequantize, type, to)
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
