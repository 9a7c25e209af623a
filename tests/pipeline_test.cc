// zt.pipeline: order, the window, the first error, cancellation; built and run with the thread sanitizer too.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

import zt.core;
import zt.pipeline;

namespace zt {
namespace {

// A stage made of a function on the batch.
class Step final : public Stage {
 public:
  Step(StageOrder order, std::function<Status(Batch&)> body)
      : order_(order), body_(std::move(body)) {}
  StageOrder order() const override { return order_; }
  Status Process(Chunk&) override { return OkStatus(); }
  Status ProcessBatch(Batch& batch) override { return body_(batch); }

 private:
  StageOrder order_;
  std::function<Status(Batch&)> body_;
};

std::shared_ptr<Stage> Parallel(std::function<Status(Batch&)> body) {
  return std::make_shared<Step>(StageOrder::kParallel, std::move(body));
}
std::shared_ptr<Stage> InOrder(std::function<Status(Batch&)> body) {
  return std::make_shared<Step>(StageOrder::kInOrder, std::move(body));
}

std::unique_ptr<Batch> MakeBatch(std::uint64_t weight = 1) {
  auto batch = std::make_unique<Batch>();
  batch->chunks.emplace_back();
  batch->weight = weight;
  return batch;
}

void Jitter(unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
}

class Threads : public ::testing::TestWithParam<unsigned> {
 protected:
  PipelineOptions Options(std::uint64_t window = 32 << 20) const {
    return {.threads = GetParam(), .window_bytes = window};
  }
};
INSTANTIATE_TEST_SUITE_P(Pipeline, Threads, ::testing::Values(1, 2, 3, 8));

TEST_P(Threads, InOrderStagesSeeTheOrderOfSubmit) {
  std::vector<std::uint64_t> first, second;  // unguarded: one batch at a time is what is promised
  {
    Pipeline pipeline({Parallel([](Batch& b) { return Jitter(b.sequence + 1), OkStatus(); }),
                       InOrder([&](Batch& b) { return first.push_back(b.sequence), OkStatus(); }),
                       Parallel([](Batch& b) { return Jitter(b.sequence + 77), OkStatus(); }),
                       InOrder([&](Batch& b) { return second.push_back(b.sequence), OkStatus(); })},
                      Options());
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(pipeline.Submit(MakeBatch()).ok());
    ASSERT_TRUE(pipeline.Drain().ok());
    ASSERT_EQ(second.size(), 300u);
    ASSERT_TRUE(pipeline.Submit(MakeBatch()).ok());  // a drained pipeline goes on
    ASSERT_TRUE(pipeline.Drain().ok());
  }
  ASSERT_EQ(first.size(), 301u);
  for (std::uint64_t i = 0; i < 301; ++i) {
    ASSERT_EQ(first[i], i);
    ASSERT_EQ(second[i], i);
  }
}

TEST_P(Threads, EveryBatchPassesEveryStageOnce) {
  std::vector<std::atomic<int>> passes(500);
  const auto count = [&](Batch& b) { return ++passes[b.sequence], OkStatus(); };
  Pipeline pipeline({Parallel(count), InOrder(count), Parallel(count)}, Options());
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(pipeline.Submit(MakeBatch()).ok());
  ASSERT_TRUE(pipeline.Drain().ok());
  for (const auto& each : passes) ASSERT_EQ(each, 3);
}

TEST_P(Threads, TheWindowBoundsTheWeightUnderWay) {
  std::atomic<std::uint64_t> now = 0, most = 0;
  constexpr std::uint64_t kWindow = 1000;
  Pipeline pipeline({Parallel([&](Batch& b) {
                       const std::uint64_t all = now += b.weight;
                       for (std::uint64_t seen = most;
                            seen < all && !most.compare_exchange_weak(seen, all);) {
                       }
                       Jitter(b.sequence + 1);
                       return OkStatus();
                     }),
                     InOrder([&](Batch& b) { return now -= b.weight, OkStatus(); })},
                    Options(kWindow));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(pipeline.Submit(MakeBatch(100 + i % 7 * 50)).ok());
  ASSERT_TRUE(pipeline.Drain().ok());
  EXPECT_LE(most, kWindow);
}

TEST_P(Threads, ABatchLargerThanTheWindowIsLetInAlone) {
  std::atomic<int> inside = 0;
  Pipeline pipeline({Parallel([&](Batch&) {
                      const bool alone = ++inside == 1;
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      --inside;
                      return alone ? OkStatus() : IoError("not alone");
                    })},
                    Options(10));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(pipeline.Submit(MakeBatch(1 << 20)).ok());
  EXPECT_TRUE(pipeline.Drain().ok());
}

// The later batch fails first, by construction; the earlier one is reported nonetheless.
TEST_P(Threads, TheEarliestErrorWinsWhateverTheTiming) {
  if (GetParam() == 1) GTEST_SKIP() << "one thread fails in order";
  for (int round = 0; round < 20; ++round) {
    std::mutex mutex;
    std::condition_variable failed;
    bool later = false;
    Pipeline pipeline({Parallel([&](Batch& b) {
                        if (b.sequence == 1) {
                          const std::lock_guard lock(mutex);
                          later = true;
                          failed.notify_all();
                          return IoError("the later");
                        }
                        std::unique_lock lock(mutex);
                        failed.wait(lock, [&] { return later; });
                        return IoError("the earlier");
                      })},
                      Options());
    (void)pipeline.Submit(MakeBatch());
    (void)pipeline.Submit(MakeBatch());
    ASSERT_EQ(std::string(Message(pipeline.Drain())), "the earlier");
    ASSERT_EQ(std::string(Message(pipeline.Submit(MakeBatch()))), "the earlier");
  }
}

TEST_P(Threads, TheSameErrorAtAnyTiming) {
  for (unsigned round = 0; round < 50; ++round) {
    Pipeline pipeline({Parallel([&](Batch& b) {
                        Jitter(round * 1000 + b.sequence + 1);
                        return b.sequence % 5 == 3 ? IoError(std::to_string(b.sequence))
                                                   : OkStatus();
                      })},
                      Options(8));
    Status status = OkStatus();
    for (int i = 0; i < 100 && status.ok(); ++i) status = pipeline.Submit(MakeBatch());
    ASSERT_EQ(std::string(Message(pipeline.Drain())), "3");
  }
}

TEST_P(Threads, NothingAfterTheErrorReachesALaterStage) {
  std::vector<std::uint64_t> done;
  Pipeline pipeline(
      {Parallel([](Batch& b) { return b.sequence == 7 ? IoError("seven") : OkStatus(); }),
       InOrder([&](Batch& b) { return done.push_back(b.sequence), OkStatus(); })},
      Options());
  Status status = OkStatus();
  for (int i = 0; i < 100 && status.ok(); ++i) status = pipeline.Submit(MakeBatch());
  EXPECT_EQ(std::string(Message(pipeline.Drain())), "seven");
  EXPECT_EQ(done, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_P(Threads, WhatAStageThrowsBecomesAStatus) {
  const auto outcome = [&](std::function<void()> body) {
    Pipeline pipeline({Parallel([&](Batch&) { return body(), OkStatus(); })}, Options());
    (void)pipeline.Submit(MakeBatch());
    return pipeline.Drain();
  };
  const Status memory = outcome([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code(), StatusCode::kUnavailable);
  EXPECT_EQ(std::string(Message(memory)), "out of memory");
  const Status other = outcome([] { throw std::runtime_error("odd"); });
  EXPECT_EQ(other.code(), StatusCode::kInternal);
  EXPECT_EQ(std::string(Message(other)), "odd");
}

TEST_P(Threads, CancelFromAnotherThreadWakesASubmitThatWaits) {
  std::mutex mutex;
  std::condition_variable go;
  bool released = false;
  Pipeline pipeline({Parallel([&](Batch&) {
                      std::unique_lock lock(mutex);
                      go.wait(lock, [&] { return released; });
                      return OkStatus();
                    })},
                    Options(1));
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pipeline.Cancel(Cancelled("stop"));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::lock_guard lock(mutex);
    released = true;
    go.notify_all();
  });
  Status status = OkStatus();
  for (int i = 0; i < 10 && status.ok(); ++i) status = pipeline.Submit(MakeBatch());
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(std::string(Message(pipeline.Drain())), "stop");
  canceller.join();
}

TEST_P(Threads, TheFirstCancelIsTheOneThatCounts) {
  Pipeline pipeline({Parallel([](Batch&) { return OkStatus(); })}, Options());
  pipeline.Cancel(Cancelled("first"));
  pipeline.Cancel(Cancelled("second"));
  EXPECT_EQ(std::string(Message(pipeline.Submit(MakeBatch()))), "first");
  EXPECT_EQ(std::string(Message(pipeline.Drain())), "first");
}

TEST_P(Threads, DroppingAFullPipelineJoinsEverything) {
  for (int round = 0; round < 30; ++round) {
    BufferPool pool(1 << 20);
    Pipeline pipeline(
        {Parallel([&](Batch& b) { return b.arena = pool.Take(5000), OkStatus(); }),
         InOrder([](Batch&) { return OkStatus(); }), Parallel([](Batch&) { return OkStatus(); })},
        Options());
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(pipeline.Submit(MakeBatch()).ok());
  }
}

// Cancels at random moments while another thread submits, drains and drops.
TEST_P(Threads, CancellationAtRandomMoments) {
  std::mt19937 random(GetParam());
  int cancelled = 0;
  for (int round = 0; round < 150; ++round) {
    BufferPool pool(1 << 16);
    std::vector<std::uint64_t> order;
    std::atomic<int> inside = 0;
    auto pipeline = std::make_unique<Pipeline>(
        std::vector<std::shared_ptr<Stage>>{
            Parallel([&](Batch& b) {
              return b.arena = pool.Take(4096 * (1 + b.sequence % 3)), OkStatus();
            }),
            InOrder([&](Batch& b) {
              if (++inside != 1) return IoError("two at once");
              order.push_back(b.sequence);
              --inside;
              return OkStatus();
            }),
            Parallel([&](Batch& b) {
              std::memset(b.arena.bytes().data(), 1, b.arena.bytes().size());
              return OkStatus();
            }),
            InOrder([](Batch&) { return OkStatus(); })},
        Options(10));
    const auto moment = std::chrono::microseconds(random() % 400);
    std::thread canceller([&, moment] {
      std::this_thread::sleep_for(moment);
      pipeline->Cancel(Cancelled("stop"));
    });
    Status status = OkStatus();
    // Every other round goes on until it is stopped.
    for (int i = 0; (i < 200 || round % 2 == 1) && status.ok(); ++i)
      status = pipeline->Submit(MakeBatch());
    const Status drained = pipeline->Drain();
    canceller.join();
    ASSERT_TRUE(drained.ok() || drained.code() == StatusCode::kCancelled) << Message(drained);
    if (!status.ok()) {
      ASSERT_EQ(drained.code(), StatusCode::kCancelled);
      ++cancelled;
    } else if (drained.ok()) {  // cancelled after the last Submit, some batches may be skipped
      ASSERT_EQ(order.size(), 200u);
    }
    if (round % 2 == 1) {
      ASSERT_FALSE(status.ok());
    }
    for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
    pipeline.reset();
  }
  EXPECT_GE(cancelled, 75);
}

TEST(Stage, ErrorsOfAChunkNameItsTensor) {
  class Refuse final : public Stage {
    Status Process(Chunk&) override { return InvalidData("no"); }
  };
  Object object;
  object.name = "w";
  Pipeline pipeline({std::make_shared<Refuse>()}, {});
  auto batch = MakeBatch();
  batch->chunks[0].object = &object;
  EXPECT_EQ(std::string(Message(pipeline.Submit(std::move(batch)))), "tensor 'w': no");
}

TEST(BufferPool, GivesWhatWasAskedFor) {
  BufferPool pool(1 << 20);
  EXPECT_TRUE(pool.Take(0).empty());
  for (const std::size_t size : {1u, 4095u, 4096u, 4097u, 100000u, 1u << 22}) {
    Buffer buffer = pool.Take(size);
    ASSERT_EQ(buffer.bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % 4096, 0u);
    std::memset(buffer.bytes().data(), 7, size);
  }
}

TEST(BufferPool, KeepsAndReuses) {
  BufferPool pool(1 << 20);
  const std::byte* first;
  {
    Buffer buffer = pool.Take(10000);
    first = buffer.bytes().data();
    std::memset(buffer.bytes().data(), 7, 10000);
  }
  Buffer again = pool.Take(10001);  // of the same class
  EXPECT_EQ(again.bytes().data(), first);
  EXPECT_EQ(again.bytes()[0], std::byte{7});
  Buffer moved = std::move(again);
  EXPECT_EQ(moved.bytes().data(), first);
  EXPECT_TRUE(again.empty());  // NOLINT(bugprone-use-after-move)
}

// What is kept beyond the limit goes back to the system: fresh pages are zero.
TEST(BufferPool, KeepsNoMoreThanItMay) {
  BufferPool pool(8192);
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 5; ++i) {
      buffers.push_back(pool.Take(4096));
      std::memset(buffers.back().bytes().data(), 7, 4096);
    }
  }
  std::vector<Buffer> buffers;
  int kept = 0;
  for (int i = 0; i < 5; ++i) {
    buffers.push_back(pool.Take(4096));
    kept += buffers.back().bytes()[0] == std::byte{7};
  }
  EXPECT_EQ(kept, 2);
}

TEST(BufferPool, NoMemoryIsBadAlloc) {
  BufferPool pool(1 << 20);
  EXPECT_THROW((void)pool.Take(std::size_t{1} << 60), std::bad_alloc);
}

TEST(BufferPool, FromManyThreads) {
  BufferPool pool(1 << 16);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 500; ++i) {
        Buffer buffer = pool.Take(1 + random() % 30000);
        std::memset(buffer.bytes().data(), static_cast<int>(t), buffer.bytes().size());
        for (const std::byte byte : buffer.bytes()) ASSERT_EQ(byte, static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(UsableThreads, AtLeastOne) { EXPECT_GE(UsableThreads(), 1u); }

}  // namespace
}  // namespace zt
