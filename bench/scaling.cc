// scaling — how many workers each way of the program keeps busy, on a machine of any size: what
// costs time sleeps instead.
//
//   scaling [--memory MIB] [--only TEXT] [WORKERS...]    default: 1 2 4 8 16 32 64 128, all ways,
//                                                        and the memory for so many workers
//
// Writer, reader, layout and pipeline run as they are, every stage and lock of them, over tensors
// that nobody reads: sources, codecs, transforms and sinks sleep as long as they took one core
// where that was measured (kWays). Sleeps are stretched so that all workers together pass at most
// kRate tasks a second, since few cores cannot wake more. What the table says:
//
//   busy   the work of the stages, divided by the time it took: below the number of workers, order,
//          window or locks made them wait
//   feeds  the work of the stages, divided by the processor time of the one thread that cuts and
//          submits it (unstretched): no more workers than that can be kept busy
#include <sys/prctl.h>
#include <time.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

import zt;
import zt.convert.layout;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRate = 10'000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// What one core takes for each byte of the content, in nanoseconds: docs/BENCHMARKS.md.
constexpr double kRead = 0.10, kWrite = 0.20, kCrc = 0.03;
// A file takes what it gets in order, on one thread: kernels let one write to it at a time.
constexpr double kFileWrite = 0.35;
constexpr double kZstd = 1.0, kPlanes = 0.33, kUnzstd = 0.65, kUnplanes = 0.20;
constexpr double kXxh3 = 0.04, kSha256 = 0.53, kToBf16 = 0.03, kDequantize = 0.7, kCompare = 0.06;

enum class Kind { kConvert, kShards, kVerify, kExtract, kDiff };

// A way through the program. Costs in nanoseconds for each byte that is read, and for each that is
// written; a codec's frames are read and written with its coding.
struct Way {
  const char* name;
  Kind kind;
  bool coded;         // compressed, on the side that has a choice
  double read, work;  // in parallel
  double chain;       // byte after byte of a tensor: a digest that needs order
  double write;
  std::uint64_t task;           // bytes that pass together, of large tensors
  std::size_t in = 1, out = 1;  // bytes of a transform's units
};

constexpr std::uint64_t kRaw = 256 << 10, kFrame = 4 * kMiB;
constexpr Way kWays[] = {
    {"raw", Kind::kConvert, false, kRead + kCrc, 0, 0, kWrite, kRaw},
    {"--zstd", Kind::kConvert, true, kRead, kZstd + kCrc + kWrite, 0, 0, kFrame},
    {"--zstd=planes", Kind::kConvert, true, kRead, kPlanes + kCrc + kWrite, 0, 0, kFrame},
    {"--dtype bf16 of f32", Kind::kConvert, false, kRead, kToBf16, 0, kWrite, 2 * kRaw, 4, 2},
    {"--dequantize f16 of Q4_K", Kind::kConvert, false, kRead, kDequantize, 0, kWrite, kRaw / 4,
     144, 512},
    {"--digest xxh3", Kind::kConvert, false, kRead, 0, kXxh3, kWrite, kRaw},
    {"--digest sha256", Kind::kConvert, false, kRead, 0, kSha256, kWrite, kRaw},
    {"raw, 8 files", Kind::kShards, false, kRead + kCrc, 0, 0, kXxh3 + kFileWrite, kRaw},
    {"--zstd=planes, 8 files", Kind::kShards, true, kRead, kPlanes + kCrc + kXxh3 + kFileWrite, 0,
     0, kFrame},
    {"verify of raw", Kind::kVerify, false, kRead + kCrc, 0, 0, 0, kFrame},
    {"verify of zstd", Kind::kVerify, true, 0, kUnzstd + kRead, 0, 0, kFrame},
    {"verify of planes", Kind::kVerify, true, 0, kUnplanes + kRead, 0, 0, kFrame},
    {"extract of raw", Kind::kExtract, false, kRead + kCrc, 0, 0, kWrite, kRaw},
    {"extract of zstd", Kind::kExtract, true, 0, kUnzstd + kRead, 0, kWrite, kFrame},
    {"extract of planes", Kind::kExtract, true, 0, kUnplanes + kRead, 0, kWrite, kFrame},
    {"diff of raw", Kind::kDiff, false, 2 * kRead, kCompare, 0, 0, 2 * kMiB},
    {"diff of zstd", Kind::kDiff, true, kUnzstd + 2 * kRead, kCompare, 0, 0, kFrame},
};

double stretch = 1;

// Sleeps, once that is worth a timer: a thread owes what it has not slept, and is owed what it
// overslept.
void Work(double ns_a_byte, std::uint64_t bytes) {
  thread_local double due = 0;
  due += ns_a_byte * static_cast<double>(bytes) * stretch;
  if (due < 100'000) return;
  const auto begin = Clock::now();
  std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(due)));
  due -= std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// ---- what sleeps --------------------------------------------------------------------------------

class SleepingSource final : public zt::TensorSource {
 public:
  SleepingSource(const Way& way, std::uint64_t tensors, std::uint64_t bytes) : cost_(way.read) {
    for (std::uint64_t i = 0; i < tensors; ++i) {
      objects_.push_back(
          *zt::DenseObject("tensor." + std::to_string(i), {bytes}, *zt::ParseElementType("u8")));
    }
  }
  std::string_view format() const override { return "nothing"; }
  zt::Status Read(zt::ComponentId, std::uint64_t, std::span<std::byte> out) override {
    Work(cost_, out.size());
    return zt::OkStatus();
  }

 private:
  const double cost_;
};

// Frames of one byte, of kFrame of content each but the last.
class SleepingCodec final : public zt::Codec {
 public:
  class Encoder final : public zt::FrameEncoder {
   public:
    zt::StatusOr<std::size_t> Encode(const zt::CodecParameters&, std::span<const std::byte> in,
                                     std::span<std::byte> out) const override {
      Work(cost, in.size());
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
  zt::StatusOr<std::optional<std::vector<zt::Frame>>> ReadFrames(
      const zt::StreamReader&, std::uint64_t stream_bytes, std::uint64_t content) const override {
    std::vector<zt::Frame> frames;
    for (std::uint64_t i = 0; i < stream_bytes; ++i) {
      frames.push_back(
          {i, i * kFrame, 1, static_cast<std::uint32_t>(std::min(kFrame, content - i * kFrame))});
    }
    return std::optional(std::move(frames));
  }
  zt::Status DecodeFrame(const zt::CodecParameters&, std::span<const std::byte>,
                         std::span<std::byte> out) const override {
    Work(cost, out.size());
    return zt::OkStatus();
  }
  std::unique_ptr<zt::StreamDecoder> OpenStream(const zt::CodecParameters&, zt::StreamReader,
                                                std::uint64_t, std::uint64_t) const override {
    return nullptr;
  }

  static inline double cost = 0;
};

class SleepingTransform final : public zt::Transform {
 public:
  explicit SleepingTransform(const Way& way) : way_(way) {}
  std::size_t input_unit() const override { return way_.in; }
  std::size_t output_unit() const override { return way_.out; }
  void Apply(std::span<const std::byte> in, std::span<std::byte>,
             zt::NumericCounts&) const override {
    Work(way_.work, in.size());
  }

 private:
  const Way& way_;
};

// Stands for the writer's stage of digests that need order, which would take real time.
class SleepingHash final : public zt::Stage {
 public:
  explicit SleepingHash(double cost) : cost_(cost) {}
  zt::StageOrder order() const override { return zt::StageOrder::kInChain; }
  zt::Status Process(zt::Chunk& chunk) override {
    Work(cost_, chunk.bytes().size());
    return zt::OkStatus();
  }

 private:
  const double cost_;
};

// What a file holds beside its blobs: the first bytes and the last that were written.
struct Ends {
  std::vector<std::byte> head, tail;
  std::uint64_t tail_at = 0;
};

class SleepingSink final : public zt::Sink {
 public:
  explicit SleepingSink(double cost, Ends* ends = nullptr, bool can_place = true)
      : cost_(cost), ends_(ends), can_place_(can_place) {}
  const std::string& name() const override { return name_; }
  bool can_place() const override { return can_place_; }
  zt::Status Append(zt::Pieces pieces) override { return WriteAt(0, pieces); }
  zt::Status WriteAt(std::uint64_t at, zt::Pieces pieces) override {
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    Work(cost_, bytes);
    if (ends_ == nullptr) return zt::OkStatus();
    std::vector<std::byte>& kept = at == 0 ? ends_->head : ends_->tail;
    kept.clear();
    for (const auto piece : pieces) kept.insert(kept.end(), piece.begin(), piece.end());
    if (at != 0) ends_->tail_at = at;
    return zt::OkStatus();
  }
  zt::Status Reserve(std::uint64_t) override { return zt::OkStatus(); }
  zt::Status Finish(std::uint64_t) override { return zt::OkStatus(); }
  void Abort() override {}

 private:
  const double cost_;
  Ends* const ends_;
  const bool can_place_;
  std::string name_ = "nowhere";
};

class SleepingFile final : public zt::ByteSource {
 public:
  SleepingFile(Ends ends, double cost) : ends_(std::move(ends)), cost_(cost) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return ends_.tail_at + ends_.tail.size(); }
  bool sequential() const override { return false; }
  zt::Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset >= ends_.tail_at) {
      std::memcpy(out.data(), ends_.tail.data() + (offset - ends_.tail_at), out.size());
    } else if (offset + out.size() <= ends_.head.size()) {
      std::memcpy(out.data(), ends_.head.data() + offset, out.size());
    } else {
      Work(cost_, out.size());
    }
    return zt::OkStatus();
  }

 private:
  const Ends ends_;
  const double cost_;
  const std::string name_ = "nowhere";
};

// ---- the ways -----------------------------------------------------------------------------------

struct Load {
  std::uint64_t tensors, bytes;  // of each
  unsigned workers;
  std::uint64_t memory;
};

void Check(const zt::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "scaling: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

zt::Status Convert(const Way& way, zt::Encoding codec, const Load& load,
                   std::unique_ptr<zt::Sink> sink, const zt::Share* share = nullptr) {
  SleepingSource source(way, load.tensors, load.bytes);
  zt::WriterOptions options;
  options.threads = load.workers;
  options.memory_bytes = load.memory;
  options.share = share;
  options.zstd.frame_bytes = kFrame;
  zt::PlanOptions planned;
  planned.storage = {way.coded ? zt::Compression::kAlways : zt::Compression::kNone,
                     zt::DigestKind::kNone, codec};
  auto plan = zt::MakePlan(source, planned);
  if (!plan.ok()) return plan.status();
  if (way.in != 1) {
    const auto transform = std::make_shared<SleepingTransform>(way);
    for (std::size_t i = 0; i < plan->objects.size(); ++i) {
      auto object = source.objects()[i];
      object.components[0].bytes = load.bytes / way.in * way.out;
      object.shape = {object.components[0].bytes};
      plan->objects[i].object = std::make_shared<const zt::Object>(std::move(object));
      plan->objects[i].components[0].transform = transform;
    }
  } else if (way.chain > 0) {
    options.stages = {std::make_shared<SleepingHash>(way.chain)};
  }
  auto writer = zt::Writer::Create(std::move(sink), options);
  if (!writer.ok()) return writer.status();
  if (auto status = (*writer)->AddSource(source, *plan); !status.ok()) return status;
  return (*writer)->Finish();
}

// An eighth of the tensors, or of the one tensor, in each file.
zt::Status Shards(const Way& way, zt::Encoding codec, const Load& load) {
  constexpr std::uint64_t kFiles = 8;
  Load each = load;
  (load.tensors == 1 ? each.bytes : each.tensors) /= kFiles;
  return zt::RunNumbered(kFiles, {.threads = load.workers, .memory_bytes = load.memory},
                         [&](std::uint64_t, const zt::Share& share) {
                           return Convert(way, codec, each,
                                          std::make_unique<SleepingSink>(way.write, nullptr, false),
                                          &share);
                         });
}

std::shared_ptr<zt::ByteSource> MakeFile(const Way& way, zt::Encoding codec, const Load& load) {
  Ends ends;
  const double asked = std::exchange(stretch, 0);
  Check(Convert({"", Kind::kConvert, way.coded, 0, 0, 0, 0, 0}, codec,
                {load.tensors, load.bytes, 1, 0}, std::make_unique<SleepingSink>(0, &ends)));
  stretch = asked;
  return std::make_shared<SleepingFile>(std::move(ends), way.read);
}

zt::Status Verify(const std::shared_ptr<zt::ByteSource>& file, const Load& load) {
  auto reader = zt::Reader::Open(file);
  if (!reader.ok()) return reader.status();
  zt::VerifyOptions options;
  options.threads = load.workers;
  options.memory_bytes = load.memory;
  const auto report = zt::Verify(**reader, options);
  return report.status();
}

zt::Status Extract(const Way& way, const std::shared_ptr<zt::ByteSource>& file, const Load& load) {
  auto source = zt::OpenZt(file);
  if (!source.ok()) return source.status();
  zt::FileLayout layout;
  for (std::uint32_t i = 0; i < load.tensors; ++i) {
    layout.pieces.push_back({.source = {i, 0}, .bytes = load.bytes});
    layout.bytes += load.bytes;
  }
  SleepingSink sink(way.write);
  return zt::WriteLayout(**source, layout, sink,
                         {.threads = load.workers, .memory_bytes = load.memory});
}

struct DiffRange {
  std::uint64_t bytes = 0;
};
using DiffBatch = zt::BatchOf<DiffRange>;

// A stage of `diff`, which the program keeps to itself.
zt::StageOf<DiffBatch> DiffStage(double cost, zt::StageOrder order) {
  return {order, [cost](DiffBatch& batch) {
            for (const DiffRange& range : batch.ranges) Work(cost, range.bytes);
            return zt::OkStatus();
          }};
}

zt::Status Diff(const Way& way, const Load& load) {
  zt::RangePipeline<DiffBatch> pipeline(
      {DiffStage(way.read, zt::StageOrder::kIfOrdered),
       DiffStage(way.work, zt::StageOrder::kParallel), DiffStage(0, zt::StageOrder::kInOrder)},
      {.threads = load.workers, .memory_bytes = load.memory});
  for (std::uint64_t i = 0; i < load.tensors; ++i) {
    for (std::uint64_t at = 0; at < load.bytes; at += way.task) {
      const std::uint64_t bytes = std::min(way.task, load.bytes - at);
      if (auto status = pipeline.Add({bytes}, {.bytes = bytes, .weight = 2 * bytes}); !status.ok())
        return status;
    }
  }
  return pipeline.Drain();
}

double ThreadSeconds() {
  timespec now;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Measure(const Way& way, const char* shape, zt::Encoding codec, const Load& load) {
  SleepingCodec::cost = way.work;
  const bool read_back = way.kind == Kind::kVerify || way.kind == Kind::kExtract;
  const auto file = read_back ? MakeFile(way, codec, load) : nullptr;
  const double cost = way.read + way.work + way.chain +
                      way.write * static_cast<double>(way.out) / static_cast<double>(way.in);
  const double bytes = static_cast<double>(load.tensors * load.bytes);
  const double task = static_cast<double>(std::min(way.task, std::max(load.bytes, kRaw)));
  stretch = std::max(1.0, load.workers / (cost * 1e-9 * task) / kRate);
  const auto begin = Clock::now();
  const double cpu = ThreadSeconds();
  switch (way.kind) {
    case Kind::kConvert:
      Check(Convert(way, codec, load, std::make_unique<SleepingSink>(way.write)));
      break;
    case Kind::kShards:
      Check(Shards(way, codec, load));
      break;
    case Kind::kVerify:
      Check(Verify(file, load));
      break;
    case Kind::kExtract:
      Check(Extract(way, file, load));
      break;
    case Kind::kDiff:
      Check(Diff(way, load));
      break;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const double work = cost * 1e-9 * bytes;
  const double own = ThreadSeconds() - cpu;
  std::printf("%-26s  %-12s  %8u  %8.2f  %8.1f  %8.0f\n", way.name, shape, load.workers, seconds,
              work * stretch / seconds, load.workers > 1 ? work / own : 1.0);
  std::fflush(stdout);
}

// Large tensors, middling and small ones, with so many tasks of each worker that the first and the
// last do not count.
void MeasureShapes(const Way& way, zt::Encoding codec, unsigned workers, std::uint64_t memory) {
  const auto whole = [&](std::uint64_t bytes) { return bytes / way.in * way.in; };
  const std::uint64_t tasks = std::max(100 * workers, 400U);
  // What passes a chain keeps but a few busy.
  const std::uint64_t chained = way.chain > 0 ? 1000 : tasks;
  const std::uint64_t megabyte = whole(1'000'000), small = whole(10'240);
  Measure(way, "one", codec,
          {1, whole(std::min(tasks, chained) * way.task / 1024) * 1024, workers, memory});
  Measure(way, "of 1 MB", codec,
          {std::max(tasks / 4, tasks * way.task / std::max(way.task, megabyte)), megabyte, workers,
           memory});
  // What half of the memory holds of them can be hashed side by side.
  if (way.chain > 0) Measure(way, "of 40 MB", codec, {4 * workers, 40 * megabyte, workers, memory});
  if (!way.coded) Measure(way, "of 10 KB", codec, {25 * tasks, small, workers, memory});
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_TIMERSLACK, 1);
  std::uint64_t memory = 0;
  std::string_view only;
  std::vector<unsigned> workers;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--memory" && i + 1 < argc) {
      memory = std::strtoull(argv[++i], nullptr, 10) * kMiB;
    } else if (argument == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else {
      workers.push_back(static_cast<unsigned>(std::atoi(argv[i])));
    }
  }
  if (workers.empty()) workers = {1, 2, 4, 8, 16, 32, 64, 128};
  const auto codec = zt::RegisterCodec(std::make_unique<SleepingCodec>());
  Check(codec.status());
  std::printf("%-26s  %-12s  %8s  %8s  %8s  %8s\n", "way", "tensors", "workers", "seconds", "busy",
              "feeds");
  for (const Way& way : kWays) {
    if (std::string_view(way.name).find(only) == std::string_view::npos) continue;
    for (const unsigned count : workers) {
      MeasureShapes(way, *codec, count, memory);
    }
  }
  return 0;
}
