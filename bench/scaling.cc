// scaling — how many workers a conversion keeps busy, on a machine of any size: what costs
// time sleeps instead.
//
//   scaling [--memory MIB] [WORKERS...]     default: 1 2 4 8 16 32 64 128, and the writer's own
//                                           memory for so many
//
// The writer runs as it is, every stage and lock of it, over tensors that nobody reads: a source, a
// codec and a sink sleep as long as reading, compressing and writing took one core where it was
// measured. What the table then shows below its number of workers is what the pipeline itself
// costs: its order, its window, its locks.
#include <sys/prctl.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

import zt;

namespace {

using Clock = std::chrono::steady_clock;

// How long one core takes, nanoseconds for each byte (docs/BENCHMARKS.md).
constexpr double kRead = 0.15, kCompress = 2.0, kWrite = 0.15;

void SleepFor(double ns_a_byte, std::uint64_t bytes) {
  std::this_thread::sleep_for(
      std::chrono::nanoseconds(static_cast<std::int64_t>(ns_a_byte * static_cast<double>(bytes))));
}

class SleepingSource final : public zt::TensorSource {
 public:
  SleepingSource(std::uint64_t tensors, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < tensors; ++i) {
      objects_.push_back(
          *zt::DenseObject("tensor." + std::to_string(i), {bytes}, *zt::ParseElementType("u8")));
    }
  }
  std::string_view format() const override { return "nothing"; }
  zt::Status Read(zt::ComponentId, std::uint64_t, std::span<std::byte> out) override {
    SleepFor(kRead, out.size());
    return zt::OkStatus();
  }
};

// Frames of a size and nothing in them. Files of it cannot be read.
class SleepingCodec final : public zt::Codec {
 public:
  class Encoder final : public zt::FrameEncoder {
   public:
    zt::StatusOr<std::size_t> Encode(const zt::CodecParameters&, std::span<const std::byte> in,
                                     std::span<std::byte> out) const override {
      SleepFor(kCompress, in.size());
      out[0] = std::byte{0};
      return 1;
    }
  };
  std::string_view name() const override { return "bench.sleep"; }
  std::uint64_t max_ratio() const override { return std::uint64_t{1} << 30; }
  std::size_t Bound(std::size_t content) const override { return content + 4096; }
  std::unique_ptr<zt::FrameEncoder> MakeEncoder(const zt::ZstdOptions&) const override {
    return std::make_unique<Encoder>();
  }
  std::vector<std::byte> Trailer(std::span<const zt::Frame>) const override { return {}; }
  std::uint64_t TrailerBytes(std::uint64_t) const override { return 0; }
  zt::StatusOr<std::optional<std::vector<zt::Frame>>> ReadFrames(const zt::StreamReader&,
                                                                 std::uint64_t,
                                                                 std::uint64_t) const override {
    return std::nullopt;
  }
  zt::Status DecodeFrame(const zt::CodecParameters&, std::span<const std::byte>,
                         std::span<std::byte>) const override {
    return zt::Unsupported("these frames hold nothing");
  }
  std::unique_ptr<zt::StreamDecoder> OpenStream(const zt::CodecParameters&, zt::StreamReader,
                                                std::uint64_t, std::uint64_t) const override {
    return nullptr;
  }
};

class SleepingSink final : public zt::Sink {
 public:
  const std::string& name() const override { return name_; }
  bool can_place() const override { return true; }
  zt::Status Append(zt::Pieces pieces) override { return WriteAt(0, pieces); }
  zt::Status WriteAt(std::uint64_t, zt::Pieces pieces) override {
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    SleepFor(kWrite, bytes);
    return zt::OkStatus();
  }
  zt::Status Reserve(std::uint64_t) override { return zt::OkStatus(); }
  zt::Status Finish(std::uint64_t) override { return zt::OkStatus(); }
  void Abort() override {}

 private:
  std::string name_ = "nowhere";
};

struct Work {
  const char* name;
  std::uint64_t tensors, bytes;  // of each
  bool compressed;
  double cost;  // ns for each byte, of all stages
};

// Seconds that a conversion takes.
double Convert(const Work& work, zt::Encoding codec, unsigned workers, std::uint64_t memory) {
  SleepingSource source(work.tensors, work.bytes);
  zt::WriterOptions options;
  options.threads = workers;
  if (memory != 0) options.memory_bytes = memory;
  zt::PlanOptions planned;
  planned.storage = {work.compressed ? zt::Compression::kAlways : zt::Compression::kNone,
                     zt::DigestKind::kNone, codec};
  const auto plan = zt::MakePlan(source, planned);
  const auto begin = Clock::now();
  auto writer = zt::Writer::Create(std::make_unique<SleepingSink>(), options);
  if (!plan.ok() || !writer.ok() || !(*writer)->AddSource(source, *plan).ok() ||
      !(*writer)->Finish().ok()) {
    std::fprintf(stderr, "scaling: the conversion failed\n");
    std::exit(1);
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  std::uint64_t memory = 0;
  std::vector<unsigned> workers;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--memory" && i + 1 < argc) {
      memory = std::strtoull(argv[++i], nullptr, 10) << 20;
    } else {
      workers.push_back(static_cast<unsigned>(std::atoi(argv[i])));
    }
  }
  if (workers.empty()) workers = {1, 2, 4, 8, 16, 32, 64, 128};
  const auto codec = zt::RegisterCodec(std::make_unique<SleepingCodec>());
  if (!codec.ok()) return 1;
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  std::printf("%-40s %8s %8s %8s\n", "work", "workers", "seconds", "busy");
  for (const unsigned count : workers) {
    const std::uint64_t scale = count < 8 ? 1 : count / 8;
    const Work works[] = {
        {"one compressed tensor", 1, 1024 * kMiB * scale, true, kRead + kCompress},
        {"compressed tensors of 1 MB", 512 * scale, 1'000'000, true, kRead + kCompress},
        {"compressed tensors of 100 KB", 4'000 * scale, 100'000, true, kRead + kCompress},
        {"one raw tensor", 1, 4096 * kMiB * scale, false, kRead + kWrite},
    };
    for (const Work& work : works) {
      const double seconds = Convert(work, *codec, count, memory);
      const double alone = work.cost * 1e-9 * static_cast<double>(work.tensors * work.bytes);
      std::printf("%-40s %8u %8.2f %8.1f\n", work.name, count, seconds, alone / seconds);
      std::fflush(stdout);
    }
  }
  return 0;
}
