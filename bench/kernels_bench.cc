// kernels_bench — each kernel of zt.transform and zt.compress beside memcpy moving the same bytes
// (reads plus writes), in and out of cache.
//
// Each iteration times the kernel and then its rivals, so all meet the same machine. The ratios are
// of median speeds, 1 is as fast:
//   of_memcpy   memcpy of half as many bytes as the kernel reads and writes together
//   of_traffic  memcpy of what is both read and written, and the rest only read, or only set: as
//               many bytes read and as many written as by the kernel. Where a kernel reads much
//               more than it writes, or the other way round, this is what one core can move at all.
// All work in the same two buffers, for where a page lies decides how fast it is.
// Rows: in_cache moves 128 KiB; out_of_cache 128 MiB, beyond the caches of a core; from_memory 1
// GiB, or twice the last-level cache if that is more, so that nothing is left of the pass before.
// The time shown is the kernel's.
#include <benchmark/benchmark.h>
#include <unistd.h>

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

import zt.compress;
import zt.core;
import zt.transform;

namespace {

// Bytes moved by one pass; out of cache: beyond a core's own. Where the last level is larger,
// see from_memory.
constexpr std::size_t kInCache = 128 << 10, kOutOfCache = 128 << 20;

std::size_t FromMemory() {
  const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::max(std::size_t{1} << 30, 2 * static_cast<std::size_t>(std::max(last_level, 0L)));
}

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

// The first pass is not timed: the contender before may have left dirty lines in the caches.
double Seconds(const std::function<void()>& work, int passes) {
  work();
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

// Reads all of it.
std::uint64_t Scan(std::span<const std::byte> bytes) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    all ^= word;
  }
  return all;
}

// What a kernel reads and what it writes, with room in each for half of both.
struct Buffers {
  Buffers(std::size_t read_bytes, std::size_t written_bytes)
      : read(read_bytes), written(written_bytes) {
    in = MakeBuffer(std::max(read, Moved() / 2));
    out = MakeBuffer(std::max(written, Moved() / 2));
  }
  std::size_t Moved() const { return read + written; }
  std::span<std::byte> In() const { return {in.get(), read}; }
  std::span<std::byte> Out() const { return {out.get(), written}; }

  std::size_t read, written;
  Buffer in, out;
};

void Compare(benchmark::State& state, const Buffers& buffers, const std::function<void()>& kernel) {
  const std::size_t moved = buffers.Moved(), common = std::min(buffers.read, buffers.written);
  const std::function<void()> copy = [&] {
    std::memcpy(buffers.out.get(), buffers.in.get(), moved / 2);
    benchmark::ClobberMemory();
  };
  const std::function<void()> traffic = [&] {
    std::memcpy(buffers.out.get(), buffers.in.get(), common);
    benchmark::DoNotOptimize(Scan(buffers.In().subspan(common)));
    const std::span<std::byte> rest = buffers.Out().subspan(common);
    if (!rest.empty()) std::memset(rest.data(), 1, rest.size());
    benchmark::ClobberMemory();
  };
  const int passes = moved <= kInCache ? 64 : 1;
  std::vector<double> ours, copying, moving;
  for (auto _ : state) {
    ours.push_back(Seconds(kernel, passes));
    copying.push_back(Seconds(copy, passes));
    moving.push_back(buffers.read == buffers.written ? copying.back() : Seconds(traffic, passes));
    state.SetIterationTime(ours.back());
  }
  const auto speed = [&](const std::vector<double>& seconds) {
    return static_cast<double>(moved) / Median(seconds) / 1e9;
  };
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * moved));
  state.counters["GB/s"] = speed(ours);
  state.counters["memcpy_GB/s"] = speed(copying);
  state.counters["of_memcpy"] = speed(ours) / speed(copying);
  state.counters["of_traffic"] = speed(ours) / speed(moving);
}

void Convert(benchmark::State& state, const char* from, const char* to, std::size_t bytes_moved) {
  const zt::ElementType from_type = *zt::ParseElementType(from),
                        to_type = *zt::ParseElementType(to);
  const auto conversion = *zt::MakeConversion(from_type, to_type, zt::OnOverflow::kError);
  const std::size_t in_unit = conversion->input_unit(), out_unit = conversion->output_unit();
  const std::size_t count = bytes_moved / (in_unit + out_unit);
  const Buffers buffers(count * in_unit, count * out_unit);
  FillWith(from_type, buffers.In());
  zt::NumericCounts counts;
  Compare(state, buffers, [&] {
    conversion->Apply(buffers.In(), buffers.Out(), counts);
    benchmark::ClobberMemory();
  });
  if (counts.overflow + counts.nan_lost > 0) state.SkipWithError("overflow");
}

void Swap(benchmark::State& state, std::size_t width, bool in_place, std::size_t bytes_moved) {
  const Buffers buffers(bytes_moved / 2, bytes_moved / 2);
  Compare(state, buffers, [&] {
    if (in_place) {
      zt::SwapBytes(buffers.In(), width);
    } else {
      zt::SwapBytes(buffers.In(), buffers.Out(), width);
    }
    benchmark::ClobberMemory();
  });
}

void Widen(benchmark::State& state, const char* from, std::size_t bytes_moved) {
  const zt::DType dtype = *zt::ParseDType(from);
  const std::size_t width = zt::ByteWidth(dtype), count = bytes_moved / (width + 8);
  const Buffers buffers(count * width, count * 8);
  const std::span out(reinterpret_cast<std::uint64_t*>(buffers.out.get()), count);
  Compare(state, buffers, [&] {
    if (!zt::WidenToU64(buffers.In(), dtype, out).ok()) state.SkipWithError("status");
    benchmark::ClobberMemory();
  });
}

void Transpose(benchmark::State& state, std::size_t width, std::size_t bytes_moved) {
  std::size_t rows = 1;
  while (rows * rows * 4 * width * 2 <= bytes_moved) rows *= 2;
  const std::size_t cols = bytes_moved / 2 / width / rows;
  const Buffers buffers(rows * cols * width, rows * cols * width);
  Compare(state, buffers, [&] {
    zt::Transpose(buffers.in.get(), cols, buffers.out.get(), rows, rows, cols, width);
    benchmark::ClobberMemory();
  });
}

void Planes(benchmark::State& state, std::uint32_t width, bool rotate, bool split,
            std::size_t bytes_moved) {
  const std::size_t group = std::size_t{width} << 17, half = bytes_moved / 2 / width * width;
  zt::CodecParameters layout;
  layout.width = static_cast<std::uint8_t>(width);
  layout.rotate = rotate ? 1 : 0;
  layout.group = static_cast<std::uint32_t>(group);
  const Buffers buffers(half, half);
  Compare(state, buffers, [&] {
    (split ? zt::compress::internal::SplitPlanes : zt::compress::internal::MergePlanes)(
        buffers.In(), buffers.Out(), layout);
    benchmark::ClobberMemory();
  });
}

template <class Function, class... Args>
void Register(const std::string& name, const Function& function, Args... args) {
  const struct {
    const char* name;
    std::size_t moved;
    int iterations;
  } sizes[] = {{"in_cache", kInCache, 100},
               {"out_of_cache", kOutOfCache, 15},
               {"from_memory", FromMemory(), 3}};
  for (const auto& size : sizes) {
    const std::size_t moved = size.moved;
    benchmark::RegisterBenchmark((name + "/" + size.name).c_str(),
                                 [=](benchmark::State& state) { function(state, args..., moved); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(size.iterations);
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
  for (const std::uint32_t width : {2u, 4u, 8u}) {
    for (const bool rotate : {false, true}) {
      const std::string name = std::to_string(width) + (rotate ? "/rotated" : "/plain");
      Register("split_planes/" + name, Planes, width, rotate, true);
      Register("merge_planes/" + name, Planes, width, rotate, false);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
