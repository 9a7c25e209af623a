// Dequantization: bytes written a second, beside memcpy of as many: out of cache, and by chunks.
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
// What a pipeline hands out at a time.
constexpr std::size_t kChunk = std::size_t{4} << 20;

constexpr std::string_view kTypes[] = {
    "q4_0",   "q4_1",   "q5_0",    "q5_1",   "q8_0",  "q2_k",    "q3_k",  "q4_k",  "q5_k",
    "q6_k",   "q8_k",   "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m",
    "iq4_nl", "iq4_xs", "tq1_0",   "tq2_0",  "mxfp4", "nvfp4",   "q1_0",  "q2_0"};

std::vector<std::byte>& Output() {
  static std::vector<std::byte> out(kOutput, std::byte{1});
  return out;
}

void Memcpy(benchmark::State& state, std::size_t bytes, bool same) {
  std::vector<std::byte>& out = Output();
  std::vector<std::byte> in(kOutput, std::byte{2});
  for (auto _ : state) {
    for (std::size_t at = 0; at < kOutput; at += bytes) {
      std::memcpy(out.data() + (same ? 0 : at), in.data() + at, bytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * kOutput));
}

// `bytes` of output a call; `same` reuses the memory of the first call's, as a
// pipeline's buffers are.
void Dequantize(benchmark::State& state, std::string_view type, zt::DType to, std::size_t bytes,
                bool same) {
  std::vector<std::byte>& out = Output();
  const auto transform = *zt::MakeDequantize(type, to);
  const std::size_t in_unit = transform->input_unit(), out_unit = transform->output_unit();
  const std::size_t units = bytes / out_unit, calls = kOutput / bytes;
  // Bytes of any kind are blocks; small exponents keep the scales finite, as those of weights are.
  std::vector<std::byte> in(calls * units * in_unit);
  std::uint32_t x = 1;
  for (std::byte& b : in) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24 & 0x2f);
  }
  zt::NumericCounts counts;
  for (auto _ : state) {
    for (std::size_t c = 0; c < calls; ++c) {
      transform->Apply(std::span(in).subspan(c * units * in_unit, units * in_unit),
                       std::span(out).subspan(same ? 0 : c * bytes, units * out_unit), counts);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * calls * units * out_unit));
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto add = [](const std::string& name, auto... args) {
    benchmark::RegisterBenchmark(name.c_str(), args...)->Unit(benchmark::kMillisecond);
  };
  add("memcpy", Memcpy, kOutput, false);
  for (const std::string_view type : kTypes) {
    add(std::string(type) + "/f32", Dequantize, type, zt::DType::kF32, kOutput, false);
  }
  add("chunk/memcpy", Memcpy, kChunk, true);
  for (const std::string_view type : {"q4_k", "q8_0"}) {
    for (const zt::DType to : {zt::DType::kF32, zt::DType::kF16, zt::DType::kBF16}) {
      add("chunk/" + std::string(type) + "/" + std::string(zt::Name(to)), Dequantize, type, to,
          kChunk, true);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
