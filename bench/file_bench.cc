// file_bench — what a .zt file is made with: codec, digests, manifest, Writer and Reader, each by
// itself, in memory.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

import zt;

namespace {

constexpr std::size_t kFrame = std::size_t{4} << 20;

// Bytes as bf16 weights have them: exponents of few values, mantissas of all.
std::vector<std::byte> Weights(std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  for (std::size_t i = 0; i + 2 <= bytes; i += 2) {
    const float value = normal(random);
    const auto raw = std::as_bytes(std::span(&value, 1));
    out[i] = raw[2];
    out[i + 1] = raw[3];
  }
  return out;
}

void SetBytes(benchmark::State& state, std::size_t each) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * each));
}

const zt::Codec& Zstd() { return *zt::FindCodec(zt::Encoding::kZstd); }

void Compress(benchmark::State& state) {
  const zt::ZstdOptions options = {.level = static_cast<int>(state.range(0)),
                                   .huffman = state.range(0) == 0};
  const auto encoder =
      Zstd().MakeEncoder(options.huffman ? zt::ZstdOptions{.huffman = true} : options);
  const std::vector<std::byte> in = Weights(kFrame);
  std::vector<std::byte> out(Zstd().Bound(kFrame));
  for (auto _ : state) {
    const auto size = encoder->Encode({}, in, out);
    if (!size.ok()) return state.SkipWithError("compress");
    state.counters["ratio"] = static_cast<double>(*size) / kFrame;
  }
  SetBytes(state, kFrame);
}
BENCHMARK(Compress)->ArgName("level_0_is_huffman")->Arg(0)->Arg(-5)->Arg(1)->Arg(3);

void Decompress(benchmark::State& state) {
  std::vector<std::byte> in = Weights(kFrame), frame(Zstd().Bound(kFrame));
  frame.resize(*Zstd().MakeEncoder({})->Encode({}, in, frame));
  for (auto _ : state) {
    if (!Zstd().DecodeFrame({}, frame, in).ok()) return state.SkipWithError("decompress");
  }
  SetBytes(state, kFrame);
}
BENCHMARK(Decompress);

void Digest(benchmark::State& state) {
  const auto kind = static_cast<zt::DigestKind>(state.range(0));
  const std::vector<std::byte> in = Weights(kFrame);
  for (auto _ : state) {
    const auto hasher = zt::MakeHasher(kind);
    hasher->Update(in);
    benchmark::DoNotOptimize(hasher->Finish());
  }
  state.SetLabel(std::string(zt::Name(kind)));
  SetBytes(state, kFrame);
}
BENCHMARK(Digest)->Arg(1)->Arg(2)->Arg(3);

// A file of `count` tensors of `bytes` each, written to `sink`; what it stored.
zt::Manifest Write(std::unique_ptr<zt::Sink> sink, std::int64_t count,
                   std::span<const std::byte> bytes, zt::Compression compression) {
  zt::WriterOptions options;
  options.storage.compression = compression;
  const auto writer = zt::Writer::Create(std::move(sink), options);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".weight";
    if (!(*writer)->Add(name, {bytes.size() / 2}, {zt::DType::kBF16, ""}, bytes).ok()) return {};
  }
  if (!(*writer)->Finish().ok()) return {};
  return *(*writer)->manifest();
}

void EncodeManifest(benchmark::State& state) {
  const zt::Manifest manifest =
      Write(zt::DiscardSink(), state.range(0), Weights(64), zt::Compression::kNone);
  for (auto _ : state)
    benchmark::DoNotOptimize(zt::EncodeManifest(manifest, manifest.version).ok());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(EncodeManifest)->RangeMultiplier(100)->Range(1, 100000);

void DecodeManifest(benchmark::State& state) {
  const zt::Manifest manifest =
      Write(zt::DiscardSink(), state.range(0), Weights(64), zt::Compression::kNone);
  const std::vector<std::byte> bytes = *zt::EncodeManifest(manifest, manifest.version);
  for (auto _ : state) benchmark::DoNotOptimize(zt::DecodeManifest(bytes, manifest.version).ok());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(DecodeManifest)->RangeMultiplier(100)->Range(1, 100000);

void WriteFile(benchmark::State& state) {
  const std::vector<std::byte> bytes = Weights(static_cast<std::size_t>(state.range(0)));
  const std::int64_t count = (std::int64_t{64} << 20) / state.range(0);
  const auto compression = state.range(1) != 0 ? zt::Compression::kAlways : zt::Compression::kNone;
  for (auto _ : state)
    benchmark::DoNotOptimize(Write(zt::DiscardSink(), count, bytes, compression));
  SetBytes(state, static_cast<std::size_t>(count) * bytes.size());
}
BENCHMARK(WriteFile)->ArgNames({"tensor", "zstd"})->ArgsProduct({{10240, 16 << 20}, {0, 1}});

void ReadFile(benchmark::State& state) {
  const std::vector<std::byte> bytes = Weights(std::size_t{16} << 20);
  std::vector<std::byte> file, out(bytes.size());
  Write(zt::MemorySink(file), 4, bytes,
        state.range(0) != 0 ? zt::Compression::kAlways : zt::Compression::kNone);
  for (auto _ : state) {
    const auto reader = zt::Reader::Open(zt::MemoryBytes(file, "file"));
    for (std::uint32_t i = 0; i < 4; ++i) {
      if (!(*reader)->Read({i, 0}, 0, out).ok()) return state.SkipWithError("read");
    }
  }
  SetBytes(state, 4 * bytes.size());
}
BENCHMARK(ReadFile)->ArgName("zstd")->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
