// zt.pipeline: several runs at a time: their number, order, shares and errors, and files written by
// them; built and run with the thread sanitizer too.
#include "testing.h"

import zt.core;
import zt.pipeline;
import zt.sink;
import zt.source;
import zt.writer;

namespace zt {
namespace {

using std::chrono::steady_clock;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Waits until `count` threads are here, or for half a minute. Returns whether they were.
class Meeting {
 public:
  explicit Meeting(unsigned count) : count_(count) {}
  bool Join() {
    std::unique_lock lock(mutex_);
    ++here_;
    all_.notify_all();
    return all_.wait_for(lock, std::chrono::seconds(30), [&] { return here_ >= count_; });
  }

 private:
  const unsigned count_;
  std::mutex mutex_;
  std::condition_variable all_;
  unsigned here_ = 0;
};

TEST(RunNumbered, AsManyAtATimeAsThreadsAndMemoryAllow) {
  const auto runs = [](std::uint64_t count, unsigned threads, std::uint64_t memory,
                       unsigned most = kMaxThreads, std::uint64_t least = 16 * kMiB) {
    return RunsAtOnce(count, {threads, memory, most, least});
  };
  EXPECT_EQ(runs(8, 16, 0), 8u);
  EXPECT_EQ(runs(64, 16, 0), 16u);
  EXPECT_EQ(runs(8, 2, 0), 2u);
  EXPECT_EQ(runs(8, 1, 0), 1u);
  EXPECT_EQ(runs(8, 16, 0, 1), 1u);
  EXPECT_EQ(runs(8, 16, 48 * kMiB), 3u);
  EXPECT_EQ(runs(8, 16, 1), 1u);
  EXPECT_EQ(runs(8, 16, 256 * kMiB, 8, 100 * kMiB), 2u);
  EXPECT_EQ(runs(0, 16, 0), 1u);
}

TEST(RunNumbered, AMemoryThatEndsIsAnError) {
  for (const unsigned threads : {1u, 2u, 16u}) {
    const Status status =
        RunNumbered(32, {.threads = threads},
                    [](std::uint64_t, const Share&) -> Status { throw std::bad_alloc(); });
    EXPECT_EQ(status, OutOfMemory());
  }
}

TEST(RunNumbered, EachOnceBegunInOrder) {
  for (const unsigned threads : {1u, 2u, 16u, 64u}) {
    std::mutex mutex;
    std::vector<std::uint64_t> begun;
    std::atomic<unsigned> now = 0, most = 0;
    EXPECT_OK(RunNumbered(100, {.threads = threads}, [&](std::uint64_t number, const Share& share) {
      EXPECT_GE(share.threads, 1u);
      EXPECT_GE(share.memory_bytes, 16 * kMiB);
      const unsigned running = ++now;
      {
        const std::lock_guard lock(mutex);
        most = std::max(most.load(), running);
        begun.push_back(number);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(number % 7 * 50));
      --now;
      return OkStatus();
    }));
    EXPECT_LE(most, threads);
    EXPECT_EQ(std::set(begun.begin(), begun.end()).size(), 100u);
    EXPECT_EQ(begun.size(), 100u);
    if (threads == 1) EXPECT_TRUE(std::ranges::is_sorted(begun));
  }
}

TEST(RunNumbered, TheErrorOfTheLowestNumberCountsAndCancelsHigherOnes) {
  Meeting all(4);
  std::atomic<unsigned> begun = 0, cancelled = 0;
  const auto cancels = [](const Share& share) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(30);
    while (!share.cancelled && steady_clock::now() < deadline) std::this_thread::yield();
    return share.cancelled.load();
  };
  std::atomic<bool> failed = false;
  const Status status =
      RunNumbered(100, {.threads = 4}, [&](std::uint64_t number, const Share& share) -> Status {
        ++begun;
        EXPECT_TRUE(all.Join());
        if (number == 2) return InvalidData("the later one");
        if (number == 3) {
          cancelled += cancels(share) ? 1 : 0;
          failed = true;  // number 2 has
          return OkStatus();
        }
        // Lower ones end, after the higher one has failed.
        while (!failed) std::this_thread::yield();
        EXPECT_FALSE(share.cancelled);
        return number == 1 ? InvalidData("the earlier one") : OkStatus();
      });
  EXPECT_EQ(Message(status), "the earlier one");
  EXPECT_EQ(cancelled, 1u);
  EXPECT_EQ(begun, 4u);
}

TEST(RunNumbered, WhatItThrowsIsAnError) {
  const Status status = RunNumbered(3, {.threads = 2}, [](std::uint64_t number, const Share&) {
    if (number == 1) throw std::runtime_error("thrown");
    return OkStatus();
  });
  EXPECT_THAT(Message(status), ::testing::HasSubstr("thrown"));
}

struct Job final : Task {};

TEST(RunNumbered, TheLastOneHasAllThreadsAndMemory) {
  EXPECT_OK(RunNumbered(3, {.threads = 6, .memory_bytes = 96 * kMiB},
                        [](std::uint64_t number, const Share& share) -> Status {
                          if (number != 1) return OkStatus();
                          EXPECT_GE(share.threads, 2u);
                          Meeting six(6);
                          const auto meet = [&](Task&) {
                            return six.Join() ? OkStatus() : InvalidData("few workers");
                          };
                          Pipeline pipeline({{StageOrder::kParallel, meet}},
                                            {.threads = 2, .window_bytes = 1, .share = &share});
                          const auto deadline = steady_clock::now() + std::chrono::seconds(30);
                          while (share.threads < 6 && steady_clock::now() < deadline)
                            std::this_thread::yield();
                          EXPECT_EQ(share.memory_bytes, 96 * kMiB);
                          for (int i = 0; i < 6; ++i) {
                            auto job = std::make_unique<Job>();
                            job->weight = 8 * kMiB;  // the window admits six of them by then
                            if (Status status = pipeline.Submit(std::move(job)); !status.ok())
                              return status;
                          }
                          return pipeline.Drain();
                        }));
}

TEST(RunNumbered, APipelineThatIsCancelledSkipsItsTasks) {
  Share share;
  std::atomic<unsigned> ran = 0;
  Pipeline pipeline({{StageOrder::kParallel, [&](Task&) { return ++ran, OkStatus(); }}},
                    {.threads = 2, .window_bytes = kMiB, .share = &share});
  EXPECT_OK(pipeline.Submit(std::make_unique<Job>()));
  EXPECT_OK(pipeline.Drain());
  share.cancelled = true;
  EXPECT_EQ(pipeline.Submit(std::make_unique<Job>()).code(), StatusCode::kCancelled);
  EXPECT_EQ(pipeline.Drain().code(), StatusCode::kCancelled);
  EXPECT_EQ(ran, 1u);
}

// ---- files -------------------------------------------------------------------------------------

// A sink that calls `write` with the number of bytes before it takes them, in order.
class SlowSink final : public Sink {
 public:
  explicit SlowSink(std::function<void(std::uint64_t)> write) : write_(std::move(write)) {}
  const std::string& name() const override { return name_; }
  Status Append(Pieces pieces) override {
    std::uint64_t bytes = 0;
    for (const auto piece : pieces) bytes += piece.size();
    write_(bytes);
    return OkStatus();
  }
  Status Finish(std::uint64_t) override { return OkStatus(); }
  void Abort() override {}

 private:
  const std::function<void(std::uint64_t)> write_;
  const std::string name_ = "slow";
};

// A tensor for each file, in memory.
class Tensors {
 public:
  Tensors(std::uint64_t count, std::size_t bytes) : content_(bytes) {
    for (std::uint64_t i = 0; i < count; ++i) {
      EXPECT_OK(source.Add(*DenseObject("t" + std::to_string(i), {bytes}, *ParseElementType("u8")),
                           {content_}));
    }
    whole_ = Must(MakePlan(source, {}));
    for (PlannedObject& object : whole_.objects) object.components[0].shared_with.reset();
  }
  // Writes the files, `threads` of them at a time.
  Status Write(unsigned threads, const std::function<void(std::uint64_t)>& write) {
    return RunNumbered(source.objects().size(), {.threads = threads},
                       [&](std::uint64_t number, const Share& share) -> Status {
                         Plan plan;
                         plan.spec = whole_.spec;
                         plan.objects = {whole_.objects[number]};
                         WriterOptions options;
                         options.share = &share;
                         auto writer = Writer::Create(std::make_unique<SlowSink>(write), options);
                         if (!writer.ok()) return writer.status();
                         if (Status status = (*writer)->AddSource(source, plan); !status.ok())
                           return status;
                         return (*writer)->Finish();
                       });
  }
  MemorySource source;

 private:
  std::vector<std::byte> content_;
  Plan whole_;
};

TEST(RunNumbered, EightFilesAreWrittenAtOnce) {
  for (const unsigned threads : {8u, 16u}) {
    Tensors tensors(8, kMiB);
    Meeting eight(8);
    std::atomic<bool> met = true;
    EXPECT_OK(tensors.Write(threads, [&](std::uint64_t) {
      if (!eight.Join()) met = false;
    }));
    EXPECT_TRUE(met);
  }
}

}  // namespace
}  // namespace zt
