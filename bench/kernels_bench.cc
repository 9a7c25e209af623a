// kernels_bench — each zt.transform kernel beside memcpy moving the same bytes (reads plus writes),
// in and out of cache.
//
// Each iteration times the kernel and then memcpy, so both meet the same machine; "of_memcpy" is
// the ratio of their median speeds (1 is as fast as memcpy). The time shown is the kernel's, the
// buffers are the row's last number.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

import zt.core;
import zt.transform;

namespace {

// Bytes moved by one pass; out of cache: beyond the caches of any machine this is likely to run on.
constexpr std::size_t kInCache = 128 << 10, kOutOfCache = std::size_t{768} << 20;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;

// Page-aligned and touched.
Buffer MakeBuffer(std::size_t bytes) {
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(4096, rounded)));
  std::memset(buffer.get(), 1, rounded);
  return buffer;
}

// Values of around one in magnitude, as weights are: nothing overflows.
void FillWith(const zt::ElementType& type, std::span<std::byte> out) {
  std::vector<double> values(1 << 16);
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 0.7);
  for (double& value : values) value = normal(random);
  auto made = zt::MakeConversion({zt::DType::kF64, ""}, type, zt::OnOverflow::kSaturate);
  std::vector<std::byte> block(values.size() * (*made)->output_unit());
  zt::NumericCounts counts;
  (*made)->Apply(std::as_bytes(std::span(values)), block, counts);
  for (std::size_t i = 0; i < out.size(); i += block.size()) {
    std::memcpy(out.data() + i, block.data(), std::min(block.size(), out.size() - i));
  }
}

double Seconds(const std::function<void()>& work, int passes) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < passes; ++i) work();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / passes;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Compare(benchmark::State& state, std::size_t bytes_moved, const std::function<void()>& work) {
  const Buffer from = MakeBuffer(bytes_moved / 2), to = MakeBuffer(bytes_moved / 2);
  const std::function<void()> copy = [&] {
    std::memcpy(to.get(), from.get(), bytes_moved / 2);
    benchmark::ClobberMemory();
  };
  const int passes = bytes_moved <= kInCache ? 64 : 1;
  std::vector<double> ours, theirs;
  work();
  copy();
  for (auto _ : state) {
    ours.push_back(Seconds(work, passes));
    theirs.push_back(Seconds(copy, passes));
    state.SetIterationTime(ours.back());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes_moved));
  state.counters["of_memcpy"] = Median(theirs) / Median(ours);
  state.counters["memcpy_GB/s"] = static_cast<double>(bytes_moved) / Median(theirs) / 1e9;
  state.counters["GB/s"] = static_cast<double>(bytes_moved) / Median(ours) / 1e9;
}

void Convert(benchmark::State& state, const char* from, const char* to, std::size_t bytes_moved) {
  const zt::ElementType from_type = *zt::ParseElementType(from),
                        to_type = *zt::ParseElementType(to);
  const auto conversion = *zt::MakeConversion(from_type, to_type, zt::OnOverflow::kError);
  const std::size_t in_unit = conversion->input_unit(), out_unit = conversion->output_unit();
  const std::size_t count = bytes_moved / (in_unit + out_unit);
  const Buffer in = MakeBuffer(count * in_unit), out = MakeBuffer(count * out_unit);
  FillWith(from_type, {in.get(), count * in_unit});
  zt::NumericCounts counts;
  Compare(state, count * (in_unit + out_unit), [&] {
    conversion->Apply({in.get(), count * in_unit}, {out.get(), count * out_unit}, counts);
    benchmark::ClobberMemory();
  });
  if (counts.overflow + counts.nan_lost > 0) state.SkipWithError("overflow");
}

void Swap(benchmark::State& state, std::size_t width, bool in_place, std::size_t bytes_moved) {
  const std::size_t bytes = bytes_moved / 2;
  const Buffer in = MakeBuffer(bytes), out = MakeBuffer(bytes);
  Compare(state, bytes_moved, [&] {
    if (in_place) {
      zt::SwapBytes(std::span(in.get(), bytes), width);
    } else {
      zt::SwapBytes({in.get(), bytes}, {out.get(), bytes}, width);
    }
    benchmark::ClobberMemory();
  });
}

void Widen(benchmark::State& state, const char* from, std::size_t bytes_moved) {
  const zt::DType dtype = *zt::ParseDType(from);
  const std::size_t width = zt::ByteWidth(dtype), count = bytes_moved / (width + 8);
  const Buffer in = MakeBuffer(count * width);
  std::vector<std::uint64_t> out(count);
  Compare(state, count * (width + 8), [&] {
    if (!zt::WidenToU64({in.get(), count * width}, dtype, out).ok()) state.SkipWithError("status");
    benchmark::ClobberMemory();
  });
}

void Transpose(benchmark::State& state, std::size_t width, std::size_t bytes_moved) {
  std::size_t rows = 1;
  while (rows * rows * 4 * width * 2 <= bytes_moved) rows *= 2;
  const std::size_t cols = bytes_moved / 2 / width / rows;
  const std::size_t bytes = rows * cols * width;
  const Buffer in = MakeBuffer(bytes), out = MakeBuffer(bytes);
  Compare(state, 2 * bytes, [&] {
    zt::Transpose(in.get(), cols, out.get(), rows, rows, cols, width);
    benchmark::ClobberMemory();
  });
}

template <class Function, class... Args>
void Register(const std::string& name, const Function& function, Args... args) {
  for (const std::size_t bytes : {kInCache, kOutOfCache}) {
    benchmark::RegisterBenchmark(
        (name + (bytes == kInCache ? "/in_cache" : "/out_of_cache")).c_str(),
        [=](benchmark::State& state) { function(state, args..., bytes); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(bytes == kInCache ? 100 : 7);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, const char*> pairs[] = {
      {"f32", "bf16"},        {"f32", "f16"},         {"bf16", "f32"},       {"f16", "f32"},
      {"f64", "f32"},         {"f32", "f64"},         {"f32", "f8_e4m3fn"},  {"f32", "f8_e5m2"},
      {"f32", "f8_e4m3fnuz"}, {"f32", "f8_e5m2fnuz"}, {"f8_e4m3fn", "f32"},  {"f8_e5m2", "f32"},
      {"f8_e4m3fnuz", "f32"}, {"f8_e5m2fnuz", "f32"}, {"bf16", "f16"},       {"f16", "bf16"},
      {"bf16", "f8_e4m3fn"},  {"f16", "f8_e4m3fn"},   {"f8_e4m3fn", "bf16"}, {"f8_e5m2", "f16"},
      {"f64", "f16"},         {"f64", "bf16"},        {"f64", "f8_e4m3fn"},  {"f16", "f64"},
      {"i64", "i32"},         {"i32", "i64"},         {"i32", "f32"},        {"i64", "f32"},
      {"f32", "i32"},         {"f32", "i8"},          {"u8", "f32"},         {"i16", "i8"}};
  for (const auto& [from, to] : pairs) {
    Register(std::string("convert/") + from + "_to_" + to, Convert, from, to);
  }
  for (const std::size_t width : {2u, 4u, 8u}) {
    Register("swap_in_place/" + std::to_string(width), Swap, width, true);
    Register("swap/" + std::to_string(width), Swap, width, false);
  }
  for (const char* from : {"i32", "u32", "i64", "u64", "u16", "u8"}) {
    Register(std::string("widen_to_u64/") + from, Widen, from);
  }
  for (const std::size_t width : {1u, 2u, 4u, 8u, 16u}) {
    Register("transpose/" + std::to_string(width), Transpose, width);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
