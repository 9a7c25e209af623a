// A source and a sink that fail, cut short or stall at every call in turn: one error, nothing
// published, all joined.
#include <new>

#include "testing.h"

import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.sink;
import zt.source;
import zt.writer;

namespace zt {
namespace {

// The thread sanitizer looks for races alone, at a twentieth of the speed.
#if __has_feature(thread_sanitizer)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

// Counts calls; the one at `at` fails, every third is slow.
struct Faults {
  enum Kind { kFail, kEnd, kThrow };
  explicit Faults(int call, Kind how = kFail, bool slow = false)
      : at(call), kind(how), stall(slow) {}
  const int at;
  const Kind kind;
  const bool stall;
  std::atomic<int> calls = 0;
  std::atomic<bool> fired = false;

  Status Call() {
    const int call = ++calls;
    if (stall && call % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (call != at) return OkStatus();
    fired = true;
    if (kind == kThrow) throw std::bad_alloc();
    return kind == kEnd ? InvalidData("it ends early") : IoError("broken");
  }
};

class FaultyBytes final : public ByteSource {
 public:
  FaultyBytes(const std::vector<std::byte>& bytes, bool sequential, Faults& faults)
      : bytes_(bytes), sequential_(sequential), faults_(faults) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return bytes_.size(); }
  bool sequential() const override { return sequential_; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (Status status = faults_.Call(); !status.ok()) return status;
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return OkStatus();
  }

 private:
  std::string name_ = "in";
  const std::vector<std::byte>& bytes_;
  bool sequential_;
  Faults& faults_;
};

// Compressible floats, made once.
const std::vector<std::byte>& Floats(std::size_t size) {
  static const std::vector<std::byte> all = [size] {
    std::vector<std::byte> bytes(size);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < size; i += 4) {
      const float value = Little(static_cast<float>(random() % 100));
      std::memcpy(&bytes[i], &value, 4);
    }
    return bytes;
  }();
  EXPECT_EQ(all.size(), size);
  return all;
}

// A large tensor, and small neighbours that are read together.
class FaultySource final : public TensorSource {
 public:
  FaultySource(bool sequential, Faults& faults) {
    file_ = "in";
    std::uint64_t at = 0;
    for (const std::uint64_t count :
         {std::uint64_t{1} << 16, std::uint64_t{100}, std::uint64_t{0}, std::uint64_t{200},
          std::uint64_t{300}, std::uint64_t{90'000}, std::uint64_t{200}}) {
      objects_.push_back(
          *DenseObject("t" + std::to_string(objects_.size()), {count}, {DType::kF32, ""}));
      offsets_.push_back(at);
      at += 4 * count;
    }
    bytes_ = std::make_unique<FaultyBytes>(Floats(at), sequential, faults);
  }
  std::string_view format() const override { return "test"; }
  bool seekable() const override { return !bytes_->sequential(); }
  bool sequential(ComponentId) const override { return bytes_->sequential(); }
  std::optional<Extent> extent(ComponentId id) const override {
    return Extent{bytes_.get(), offsets_[id.object], objects_[id.object].components[0].bytes};
  }
  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return bytes_->ReadAt(offsets_[id.object] + offset, out);
  }

 private:
  std::unique_ptr<FaultyBytes> bytes_;
  std::vector<std::uint64_t> offsets_;
};

// What became of a sink, which dies with its writer.
struct Outcome {
  bool finished = false;
  int aborts = 0;
  int calls_after_abort = 0;
};

class FaultySink final : public Sink {
 public:
  FaultySink(std::vector<std::byte>& out, bool place, Faults& faults, Outcome& outcome)
      : out_(out), place_(place), faults_(faults), outcome_(outcome) {}
  const std::string& name() const override { return name_; }
  bool can_place() const override { return place_; }
  Status Append(Pieces pieces) override { return Put(position_, pieces); }
  Status WriteAt(std::uint64_t offset, Pieces pieces) override { return Put(offset, pieces); }
  Status Reserve(std::uint64_t) override { return faults_.Call(); }
  Status Finish(std::uint64_t total) override {
    if (Status status = faults_.Call(); !status.ok()) return status;
    out_.resize(total);
    outcome_.finished = true;
    return OkStatus();
  }
  void Abort() override { ++outcome_.aborts; }

 private:
  Status Put(std::uint64_t offset, Pieces pieces) {
    if (outcome_.aborts > 0) ++outcome_.calls_after_abort;
    if (Status status = faults_.Call(); !status.ok()) return status;
    for (const auto piece : pieces) {
      if (!piece.empty()) std::memcpy(out_.data() + offset, piece.data(), piece.size());
      offset += piece.size();
    }
    if (!place_) position_ = offset;
    return OkStatus();
  }

  std::string name_ = "out";
  std::vector<std::byte>& out_;
  bool place_;
  Faults& faults_;
  Outcome& outcome_;
  std::uint64_t position_ = 0;
};

struct Way {
  Storage storage = {};
  SpecVersion spec = SpecVersion::k1_2;
  bool canonical = false;
  bool direct = false;  // from a pipe into a pipe
  unsigned threads = 1;
};

std::vector<Way> AllWays(unsigned threads) {
  std::vector<Way> ways;
  for (const Compression compression :
       {Compression::kNone, Compression::kIfGain, Compression::kAlways}) {
    for (const DigestKind digest : {DigestKind::kNone, DigestKind::kCrc32c, DigestKind::kSha256}) {
      if (kThreadSanitizer && digest == DigestKind::kNone) continue;  // a part of the others' way
      ways.push_back({.storage = {compression, digest}});
    }
  }
  for (const Encoding encoding : {Encoding::kZstd, Encoding::kPlanes}) {
    ways.push_back({.storage = {Compression::kAlways, {}, encoding}, .spec = SpecVersion::k2_0});
  }
  ways.push_back({.spec = SpecVersion::k2_0});
  const std::size_t count = ways.size();
  for (std::size_t i = 0; i < count; ++i) {
    ways.push_back(ways[i]);
    ways.back().direct = true;
  }
  ways.push_back({.spec = SpecVersion::k2_0, .canonical = true});
  for (Way& way : ways) way.threads = threads;
  return ways;
}

Status Convert(const Way& way, Faults& in, Faults& out, std::vector<std::byte>& file,
               Outcome& outcome) {
  file.assign(2 << 20, std::byte{0});
  FaultySource source(way.direct, in);
  auto plan = Must(MakePlan(source, {.spec = way.spec, .storage = way.storage}));
  WriterOptions options = {.spec = way.spec,
                           .zstd = {.frame_bytes = 32 << 10},
                           .threads = way.threads,
                           .memory_bytes = 4 << 20};
  auto writer =
      *Writer::Create(std::make_unique<FaultySink>(file, !way.direct, out, outcome), options);
  if (way.canonical) {
    try {
      if (const Status status = MakeCanonical(source, plan); !status.ok()) return status;
    } catch (const std::bad_alloc&) {  // passes to the caller, as from MakePlan
      return IoError("out of memory");
    }
  }
  const Status added = writer->AddSource(source, plan);
  // Goes on after errors, as a careless caller would.
  static const std::vector<std::byte> data(1000);
  (void)writer->Add("small", {data.size()}, {DType::kU8}, data);
  (void)writer->AddAlias("tied", "small");
  auto object = writer->Begin(
      {.name = "streamed", .shape = {2 * data.size()}, .components = {{"data", {DType::kU8}}}});
  if (object.ok()) {
    for (int i = 0; i < 2; ++i) (void)(*object)->Append(data);
    (void)(*object)->Finish();
  }
  (void)writer->Flush();
  const Status finished = writer->Finish();
  if (!added.ok()) EXPECT_EQ(added, finished) << "the first error is the one that stays";
  if (finished.ok()) return finished;
  EXPECT_EQ(writer->Flush(), finished);
  EXPECT_EQ(writer->Add("more", {0}, {DType::kU8}, {}), finished);
  return finished;
}

class EveryCall : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Faults, EveryCall, ::testing::Values(1, 2, 3));

TEST_P(EveryCall, OfSourceAndSink) {
  if (kThreadSanitizer && GetParam() != 2) GTEST_SKIP() << "two threads are enough for races";
  int injected = 0, recovered = 0;
  for (const Way& way : AllWays(GetParam())) {
    std::vector<std::byte> want, file;
    {
      Faults in(0), out(0);
      Outcome outcome;
      ASSERT_OK(Convert(way, in, out, want, outcome));
      ASSERT_TRUE(outcome.finished);
    }
    for (const bool of_source : {true, false}) {
      for (const Faults::Kind kind : {Faults::kFail, Faults::kEnd, Faults::kThrow}) {
        // Reserve, the header, the manifest and Finish are called from the caller's thread: it
        // may throw there.
        if (!of_source && kind != Faults::kFail) continue;
        for (int at = 1;; ++at) {
          const bool stall = at % 2 == 0 && GetParam() > 1;  // other workers come first
          Faults in(of_source ? at : 0, kind, stall), out(of_source ? 0 : at, kind, stall);
          Outcome outcome;
          const Status status = Convert(way, in, out, file, outcome);
          if (!in.fired && !out.fired) break;
          ++injected;
          if (status.ok()) {  // neighbours that could not be read together were read one by one
            ++recovered;
            ASSERT_TRUE(of_source);
            ASSERT_EQ(file, want);
            continue;
          }
          ASSERT_FALSE(outcome.finished);
          ASSERT_GE(outcome.aborts, 1);
          ASSERT_EQ(outcome.calls_after_abort, 0);
          const std::string message(Why(status));
          if (kind == Faults::kThrow) {
            ASSERT_EQ(message, "out of memory");
          } else if (of_source) {
            ASSERT_THAT(message, StartsWith("in: tensor 't"));
            ASSERT_EQ(status.code(),
                      kind == Faults::kEnd ? StatusCode::kDataLoss : StatusCode::kUnavailable);
          } else {
            ASSERT_THAT(message, StartsWith("out: "));
            ASSERT_EQ(status.code(), StatusCode::kUnavailable);
          }
        }
      }
    }
  }
  std::printf("%d faults injected with %u threads, %d recovered from\n", injected, GetParam(),
              recovered);
  EXPECT_GT(injected, 200);
}

}  // namespace
}  // namespace zt
