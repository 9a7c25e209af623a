// zt.pipeline: order, the window, the first error, cancellation; built and run with the
// thread sanitizer too.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <new>

#include "testing.h"

import zt.core;
import zt.pipeline;

// The CPUs of a machine that is made up, and the sizes of the sets that it was asked to fill; 0 for
// the real machine.
int g_cpus = 0;
std::vector<std::size_t> g_asked;

extern "C" int sched_getaffinity(pid_t pid, std::size_t bytes, cpu_set_t* set) noexcept {
  if (g_cpus == 0) {
    std::memset(set, 0, bytes);
    return ::syscall(SYS_sched_getaffinity, pid, bytes, set) < 0 ? -1 : 0;
  }
  g_asked.push_back(bytes);
  if (8 * bytes < static_cast<std::size_t>(g_cpus)) {
    errno = EINVAL;
    return -1;
  }
  std::memset(set, 0, bytes);
  for (int cpu = 0; cpu < g_cpus; ++cpu) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  return 0;
}

namespace zt {
namespace {

struct Job final : Task {
  Buffer arena;
  Status Named(const Status& status) const override { return Annotate(status, "job"); }
};

StageOf<Task> Step(StageOrder order, std::function<Status(Job&)> body) {
  return StageOf<Job>{order, std::move(body)}.ForTasks();
}
StageOf<Task> Parallel(std::function<Status(Job&)> body) {
  return Step(StageOrder::kParallel, std::move(body));
}
StageOf<Task> InOrder(std::function<Status(Job&)> body) {
  return Step(StageOrder::kInOrder, std::move(body));
}

std::unique_ptr<Job> MakeJob(std::uint64_t weight = 1, bool continues = false) {
  auto job = std::make_unique<Job>();
  job->weight = weight;
  job->continues = continues;
  return job;
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
    Pipeline pipeline({Parallel([](Job& b) { return Jitter(b.sequence + 1), OkStatus(); }),
                       InOrder([&](Job& b) { return first.push_back(b.sequence), OkStatus(); }),
                       Parallel([](Job& b) { return Jitter(b.sequence + 77), OkStatus(); }),
                       InOrder([&](Job& b) { return second.push_back(b.sequence), OkStatus(); })},
                      Options());
    for (int i = 0; i < 300; ++i) ASSERT_OK(pipeline.Submit(MakeJob()));
    ASSERT_OK(pipeline.Drain());
    ASSERT_EQ(second.size(), 300u);
    ASSERT_OK(pipeline.Submit(MakeJob()));  // a drained pipeline goes on
    ASSERT_OK(pipeline.Drain());
  }
  ASSERT_EQ(first.size(), 301u);
  for (std::uint64_t i = 0; i < 301; ++i) {
    ASSERT_EQ(first[i], i);
    ASSERT_EQ(second[i], i);
  }
}

StageOf<Task> InChain(std::function<Status(Job&)> body) {
  return Step(StageOrder::kInChain, std::move(body));
}

// Chains of 1 to 5 jobs: within a chain each comes after the one before it.
TEST_P(Threads, ChainsKeepTheirOrder) {
  std::vector<std::vector<std::uint64_t>> chains;  // unguarded: one job of a chain at a time
  std::vector<std::size_t> chain_of;
  for (std::uint64_t i = 0; i < 400; ++i) {
    if (i % 15 == 0 || i % 15 == 1 || i % 15 == 5 || i % 15 == 10) chains.emplace_back();
    chain_of.push_back(chains.size() - 1);
  }
  std::atomic<bool> alone = true;
  std::vector<std::atomic<int>> inside(chains.size());
  Pipeline pipeline(
      {Parallel([](Job& b) { return Jitter(b.sequence + 1), OkStatus(); }), InChain([&](Job& b) {
         const std::size_t chain = chain_of[b.sequence];
         if (++inside[chain] != 1) alone = false;
         Jitter(b.sequence + 5);
         chains[chain].push_back(b.sequence);
         --inside[chain];
         return OkStatus();
       }),
       InOrder([](Job&) { return OkStatus(); })},
      Options(40));
  for (std::uint64_t i = 0; i < 400; ++i) {
    const bool continues = i > 0 && chain_of[i] == chain_of[i - 1];
    ASSERT_OK(pipeline.Submit(MakeJob(1, continues)));
  }
  ASSERT_OK(pipeline.Drain());
  EXPECT_TRUE(alone);
  std::uint64_t next = 0;
  for (const auto& chain : chains) {
    for (const std::uint64_t sequence : chain) ASSERT_EQ(sequence, next++);
  }
  EXPECT_EQ(next, 400u);
}

// Two chains are under way at once: each waits for the other to begin.
TEST(Chains, RunBesideEachOther) {
  std::atomic<int> begun = 0;
  Pipeline pipeline({InChain([&](Job&) {
                      ++begun;
                      for (int i = 0; begun < 2 && i < 5000; ++i) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      }
                      return begun == 2 ? OkStatus() : IoError("alone");
                    })},
                    {.threads = 2});
  ASSERT_OK(pipeline.Submit(MakeJob()));
  ASSERT_OK(pipeline.Submit(MakeJob()));
  EXPECT_OK(pipeline.Drain());
}

// An error of the submitter comes after those of what was submitted before.
// Of the jobs that are ordered each finds all before it done; the others wait for none.
TEST_P(Threads, OrderedJobsComeAfterAllBeforeThem) {
  std::vector<std::atomic<bool>> done(400);
  std::atomic<int> early = 0;
  std::mutex mutex;
  std::condition_variable second;
  Pipeline pipeline({Step(StageOrder::kIfOrdered,
                          [&](Job& job) {
                            if (job.sequence == 0 && GetParam() > 1) {  // waits for the next
                              std::unique_lock lock(mutex);
                              second.wait(lock, [&] { return done[1].load(); });
                            }
                            for (std::uint64_t i = 0; job.ordered && i < job.sequence; ++i) {
                              if (!done[i]) ++early;
                            }
                            Jitter(static_cast<unsigned>(job.sequence));
                            const std::lock_guard lock(mutex);
                            done[job.sequence] = true;
                            second.notify_all();
                            return OkStatus();
                          })},
                    Options());
  for (int i = 0; i < 400; ++i) {
    auto job = MakeJob();
    job->ordered = i % 7 > 3;
    ASSERT_TRUE(pipeline.Submit(std::move(job)).ok());
  }
  ASSERT_TRUE(pipeline.Drain().ok());
  EXPECT_EQ(early, 0);
  for (const auto& each : done) ASSERT_TRUE(each);
}

TEST_P(Threads, AnEarlierJobsErrorCountsBeforeTheSubmitters) {
  for (const bool earlier : {true, false}) {
    Pipeline pipeline({Parallel([&](Job&) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(5));
                        return earlier ? IoError("the job's") : OkStatus();
                      })},
                      Options());
    (void)pipeline.Submit(MakeJob());
    pipeline.Fail(IoError("the submitter's"));
    const std::string want = earlier ? "the job's" : "the submitter's";
    EXPECT_EQ(Why(pipeline.Drain()), want);
    EXPECT_EQ(Why(pipeline.Submit(MakeJob())), want);
  }
}

TEST_P(Threads, EveryBatchPassesEveryStageOnce) {
  std::vector<std::atomic<int>> passes(500);
  const auto count = [&](Job& b) { return ++passes[b.sequence], OkStatus(); };
  Pipeline pipeline({Parallel(count), InOrder(count), Parallel(count)}, Options());
  for (int i = 0; i < 500; ++i) ASSERT_OK(pipeline.Submit(MakeJob()));
  ASSERT_OK(pipeline.Drain());
  for (const auto& each : passes) ASSERT_EQ(each, 3);
}

TEST_P(Threads, TheWindowBoundsTheWeightUnderWay) {
  std::atomic<std::uint64_t> now = 0, most = 0;
  constexpr std::uint64_t kWindow = 1000;
  Pipeline pipeline({Parallel([&](Job& b) {
                       const std::uint64_t all = now += b.weight;
                       for (std::uint64_t seen = most;
                            seen < all && !most.compare_exchange_weak(seen, all);) {
                       }
                       Jitter(b.sequence + 1);
                       return OkStatus();
                     }),
                     InOrder([&](Job& b) { return now -= b.weight, OkStatus(); })},
                    Options(kWindow));
  for (int i = 0; i < 200; ++i) ASSERT_OK(pipeline.Submit(MakeJob(100 + i % 7 * 50)));
  ASSERT_OK(pipeline.Drain());
  EXPECT_LE(most, kWindow);
}

TEST_P(Threads, ABatchLargerThanTheWindowIsLetInAlone) {
  std::atomic<int> inside = 0;
  Pipeline pipeline({Parallel([&](Job&) {
                      const bool alone = ++inside == 1;
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                      --inside;
                      return alone ? OkStatus() : IoError("not alone");
                    })},
                    Options(10));
  for (int i = 0; i < 10; ++i) ASSERT_OK(pipeline.Submit(MakeJob(1 << 20)));
  EXPECT_OK(pipeline.Drain());
}

// The later batch fails first, by construction; the earlier one is reported nonetheless.
TEST_P(Threads, TheEarliestErrorWinsWhateverTheTiming) {
  if (GetParam() == 1) GTEST_SKIP() << "one thread fails in order";
  for (int round = 0; round < 20; ++round) {
    std::mutex mutex;
    std::condition_variable failed;
    bool later = false;
    Pipeline pipeline({Parallel([&](Job& b) {
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
    (void)pipeline.Submit(MakeJob());
    (void)pipeline.Submit(MakeJob());
    ASSERT_EQ(Why(pipeline.Drain()), "the earlier");
    ASSERT_EQ(Why(pipeline.Submit(MakeJob())), "the earlier");
  }
}

TEST_P(Threads, TheSameErrorAtAnyTiming) {
  for (unsigned round = 0; round < 50; ++round) {
    Pipeline pipeline({Parallel([&](Job& b) {
                        Jitter(round * 1000 + b.sequence + 1);
                        return b.sequence % 5 == 3 ? IoError(std::to_string(b.sequence))
                                                   : OkStatus();
                      })},
                      Options(8));
    Status status = OkStatus();
    for (int i = 0; i < 100 && status.ok(); ++i) status = pipeline.Submit(MakeJob());
    ASSERT_EQ(Why(pipeline.Drain()), "3");
  }
}

TEST_P(Threads, NothingAfterTheErrorReachesALaterStage) {
  std::vector<std::uint64_t> done;
  Pipeline pipeline(
      {Parallel([](Job& b) { return b.sequence == 7 ? IoError("seven") : OkStatus(); }),
       InOrder([&](Job& b) { return done.push_back(b.sequence), OkStatus(); })},
      Options());
  Status status = OkStatus();
  for (int i = 0; i < 100 && status.ok(); ++i) status = pipeline.Submit(MakeJob());
  EXPECT_EQ(Why(pipeline.Drain()), "seven");
  EXPECT_EQ(done, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_P(Threads, WhatAStageThrowsBecomesAStatus) {
  const auto outcome = [&](std::function<void()> body) {
    Pipeline pipeline({Parallel([&](Job&) { return body(), OkStatus(); })}, Options());
    (void)pipeline.Submit(MakeJob());
    return pipeline.Drain();
  };
  const Status memory = outcome([] { throw std::bad_alloc(); });
  EXPECT_THAT(memory, Fails(StatusCode::kUnavailable, "out of memory"));
  const Status other = outcome([] { throw std::runtime_error("odd"); });
  EXPECT_THAT(other, Fails(StatusCode::kInternal, "job: odd"));
  const Status odder = outcome([] { throw 7; });
  EXPECT_THAT(odder, Fails(StatusCode::kInternal, "job: the exception is not a std::exception"));
}

TEST_P(Threads, CancelFromAnotherThreadWakesASubmitThatWaits) {
  std::mutex mutex;
  std::condition_variable go;
  bool released = false;
  Pipeline pipeline({Parallel([&](Job&) {
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
  for (int i = 0; i < 10 && status.ok(); ++i) status = pipeline.Submit(MakeJob());
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Why(pipeline.Drain()), "stop");
  canceller.join();
}

TEST_P(Threads, TheFirstCancelIsTheOneThatCounts) {
  Pipeline pipeline({Parallel([](Job&) { return OkStatus(); })}, Options());
  pipeline.Cancel(Cancelled("first"));
  pipeline.Cancel(Cancelled("second"));
  EXPECT_EQ(Why(pipeline.Submit(MakeJob())), "first");
  EXPECT_EQ(Why(pipeline.Drain()), "first");
}

TEST_P(Threads, DroppingAFullPipelineJoinsEverything) {
  for (int round = 0; round < 30; ++round) {
    BufferPool pool(1 << 20);
    Pipeline pipeline(
        {Parallel([&](Job& b) { return b.arena = pool.Take(5000), OkStatus(); }),
         InOrder([](Job&) { return OkStatus(); }), Parallel([](Job&) { return OkStatus(); })},
        Options());
    for (int i = 0; i < 50; ++i) ASSERT_OK(pipeline.Submit(MakeJob()));
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
        std::vector<StageOf<Task>>{Parallel([&](Job& b) {
                                     return b.arena = pool.Take(4096 * (1 + b.sequence % 3)),
                                            OkStatus();
                                   }),
                                   InOrder([&](Job& b) {
                                     if (++inside != 1) return IoError("two at once");
                                     order.push_back(b.sequence);
                                     --inside;
                                     return OkStatus();
                                   }),
                                   Parallel([&](Job& b) {
                                     std::memset(b.arena.bytes().data(), 1, b.arena.bytes().size());
                                     return OkStatus();
                                   }),
                                   InOrder([](Job&) { return OkStatus(); })},
        Options(10));
    const auto moment = std::chrono::microseconds(random() % 400);
    std::thread canceller([&, moment] {
      std::this_thread::sleep_for(moment);
      pipeline->Cancel(Cancelled("stop"));
    });
    Status status = OkStatus();
    // Every other round goes on until it is stopped.
    for (int i = 0; (i < 200 || round % 2 == 1) && status.ok(); ++i)
      status = pipeline->Submit(MakeJob());
    const Status drained = pipeline->Drain();
    canceller.join();
    ASSERT_TRUE(drained.ok() || drained.code() == StatusCode::kCancelled) << Why(drained);
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

// A range is a number here, of which 7 cannot be moved.
using Numbers = BatchOf<int>;

class Ranges : public ::testing::TestWithParam<unsigned> {
 protected:
  RangePipeline<Numbers> Make(RangeOptions options = {}) {
    options.threads = GetParam();
    return RangePipeline<Numbers>(
        {{StageOrder::kInOrder, [this](Numbers& batch) { return See(batch); }}}, options);
  }
  Status See(const Numbers& batch) {
    std::string text = std::to_string(batch.ranges.size()) + " of " + std::to_string(batch.bytes) +
                       ", weight " + std::to_string(batch.weight);
    if (batch.ordered) text += ", ordered";
    if (batch.continues) text += ", continues";
    seen_.push_back(text + ":" + std::to_string(batch.ranges.front()));
    for (const int each : batch.ranges) {
      if (each == 7) return IoError("seven");
    }
    return OkStatus();
  }
  std::vector<std::string> seen_;
};
INSTANTIATE_TEST_SUITE_P(Pipeline, Ranges, ::testing::Values(1, 3));

TEST_P(Ranges, SmallOnesTravelTogether) {
  std::vector<std::uint64_t> done;
  auto pipeline = Make({.progress = [&](std::uint64_t bytes) { done.push_back(bytes); }});
  for (int i = 10; i < 240; ++i) ASSERT_TRUE(pipeline.Add(i, {.bytes = 10, .weight = 1}).ok());
  ASSERT_TRUE(pipeline.Drain().ok());
  constexpr std::uint64_t kKi = 1024;
  ASSERT_TRUE(pipeline.Add(300, {.bytes = 200 * kKi}).ok());
  ASSERT_TRUE(pipeline.Add(301, {.bytes = 100 * kKi, .continues = true}).ok());
  ASSERT_TRUE(pipeline.Add(302, {.bytes = 1, .ordered = true}).ok());
  ASSERT_TRUE(pipeline.Add(303, {.bytes = 1024 * kKi, .ordered = true}).ok());
  ASSERT_TRUE(pipeline.Add(304, {.bytes = 0}).ok());
  ASSERT_TRUE(pipeline.Drain().ok());
  EXPECT_EQ(seen_,
            (std::vector<std::string>{
                "100 of 1000, weight 16484:10", "100 of 1000, weight 16484:110",
                "30 of 300, weight 16414:210", "1 of 204800, weight 16384:300",
                "1 of 102400, weight 16384, continues:301", "1 of 1, weight 16384, ordered:302",
                "1 of 1048576, weight 16384, ordered:303", "1 of 0, weight 16384:304"}));
  EXPECT_EQ(done, (std::vector<std::uint64_t>{1000, 2000, 2300, 207100, 309500, 309501, 1358077,
                                              1358077}));
}

// Else a digest of one tensor would wait for that of the tensor before, and so on.
TEST_P(Ranges, TheEndOfAChainDoesNotTravelWithTheBeginningOfAnother) {
  constexpr std::uint64_t kKi = 1024;
  auto pipeline = Make();
  for (int i = 100; i < 300; i += 100) {
    ASSERT_TRUE(pipeline.Add(i, {.bytes = kKi}).ok());
    ASSERT_TRUE(pipeline.Add(i + 1, {.bytes = 200 * kKi, .continued = true}).ok());
    ASSERT_TRUE(
        pipeline.Add(i + 2, {.bytes = 200 * kKi, .continues = true, .continued = true}).ok());
    ASSERT_TRUE(pipeline.Add(i + 3, {.bytes = 10 * kKi, .continues = true}).ok());
    ASSERT_TRUE(pipeline.Add(i + 4, {.bytes = kKi}).ok());
  }
  ASSERT_TRUE(pipeline.Drain().ok());
  EXPECT_EQ(seen_,
            (std::vector<std::string>{
                "2 of 205824, weight 16384:100", "4 of 217088, weight 16384, continues:102",
                "1 of 204800, weight 16384:201", "3 of 216064, weight 16384, continues:202"}));
}

// A few bytes may decode to many, each of which a worker of its own should decode.
TEST_P(Ranges, HeavyOnesTravelAlone) {
  auto pipeline = Make();
  for (int i = 10; i < 13; ++i) {
    ASSERT_TRUE(pipeline.Add(i, {.bytes = 20, .weight = 600 << 10}).ok());
  }
  ASSERT_TRUE(pipeline.Drain().ok());
  EXPECT_EQ(seen_,
            (std::vector<std::string>{"1 of 20, weight 630784:10", "1 of 20, weight 630784:11",
                                      "1 of 20, weight 630784:12"}));
}

// What was gathered before a mistake is moved, and its error comes first.
TEST_P(Ranges, AnEarlierRangesErrorCountsBeforeTheCallers) {
  const Status mistake = InvalidArgument("mistake");
  auto good = Make();
  ASSERT_TRUE(good.Add(1, {.bytes = 1}).ok());
  EXPECT_EQ(good.Drain(mistake), mistake);
  auto bad = Make();
  ASSERT_TRUE(bad.Add(7, {.bytes = 1}).ok());
  EXPECT_EQ(std::string(Message(bad.Drain(mistake))), "seven");
  EXPECT_EQ(seen_.size(), 2u);
  EXPECT_TRUE(Make().Drain().ok());
}

TEST_P(Ranges, StopWhereTheyAreAskedTo) {
  std::atomic<bool> cancelled = false;
  auto pipeline = Make({.cancelled = &cancelled});
  ASSERT_TRUE(pipeline.Add(1, {.bytes = 1 << 20}).ok());
  ASSERT_TRUE(pipeline.Drain().ok());
  cancelled = true;
  (void)pipeline.Add(2, {.bytes = 1 << 20});
  EXPECT_EQ(pipeline.Drain().code(), StatusCode::kCancelled);
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

// What a buffer holds that was full of sevens: with assertions on, what is given
// back is overwritten.
#ifdef NDEBUG
constexpr std::byte kGivenBack{7};
#else
constexpr std::byte kGivenBack{0xee};
#endif

#if defined(__has_feature) && __has_feature(address_sanitizer)
TEST(BufferPoolDeathTest, ReportsWhoTouchesWhatItHasNot) {
  BufferPool pool(1 << 20);
  const std::byte* gone;
  {
    const Buffer buffer = pool.Take(10000);
    gone = buffer.bytes().data();
  }
  EXPECT_DEATH((void)*const_cast<volatile const std::byte*>(gone), "use-after-poison");
  const Buffer again = pool.Take(9999);
  ASSERT_EQ(again.bytes().data(), gone);
  EXPECT_EQ(again.bytes()[9998], kGivenBack);
  EXPECT_DEATH((void)*const_cast<volatile const std::byte*>(gone + 10007), "use-after-poison");
}
#endif

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
  EXPECT_EQ(again.bytes()[0], kGivenBack);
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
    kept += buffers.back().bytes()[0] == kGivenBack;
  }
  EXPECT_EQ(kept, 2);
}

TEST(BufferPool, NoMemoryIsBadAlloc) {
  BufferPool pool(1 << 20);
  EXPECT_THROW((void)pool.Take(std::size_t{1} << 60), std::bad_alloc);
}

TEST(BufferPool, ABufferMayOutliveItsPool) {
  Buffer kept;
  {
    BufferPool pool(1 << 20);
    kept = pool.Take(5000);
    const Buffer other = pool.Take(100);
  }
  std::memset(kept.bytes().data(), 1, kept.bytes().size());
  EXPECT_EQ(kept.bytes().size(), 5000u);
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

// A control group's quota may allow fewer, but not fewer than it allows of the real machine.
TEST(UsableThreads, OfAMachineWithMoreCpusThanASetHoldsAtFirst) {
  const unsigned real = UsableThreads();
  g_cpus = 3000;
  const unsigned threads = UsableThreads();
  g_cpus = 0;
  EXPECT_THAT(std::exchange(g_asked, {}), ::testing::ElementsAre(128u, 256u, 512u));
  EXPECT_GE(threads, real);
  EXPECT_LE(threads, 3000u);
}

TEST(MemoryFor, GrowsWithTheWorkersUnlessAsked) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  EXPECT_EQ(MemoryFor(0, 1), 64 * kMiB);
  EXPECT_EQ(MemoryFor(0, 2), 64 * kMiB);
  EXPECT_EQ(MemoryFor(0, 16), 512 * kMiB);
  EXPECT_EQ(MemoryFor(0, 0), MemoryFor(0, UsableThreads()));
  EXPECT_EQ(MemoryFor(1, 16), 1u);
}

}  // namespace
}  // namespace zt
