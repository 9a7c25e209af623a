// zt.pipeline — moves tensors: buffers (:buffer), the executor (:executor), what reads components and
// writes pieces (:components), several runs at a time (:numbered), and batches of ranges.
export module zt.pipeline;

import zt.std;
export import :buffer;
export import :components;
export import :executor;
export import :numbered;
import zt.core;

export namespace zt {

// Ranges that pass the stages together: one large range or many small ones, so that a tensor of a
// few kilobytes costs only microseconds.
template <class Range>
struct BatchOf : Task {
  std::vector<Range> ranges;  // at least one
  std::uint64_t bytes = 0;    // total size of the ranges
  Buffer input;               // content of the ranges, in the layout of the read stage
};

// What a RangePipeline needs to know about a range.
struct RangeCost {
  std::uint64_t bytes = 0;   // size, which limits batches and is reported as progress
  std::uint64_t weight = 0;  // see Task
  bool ordered = false;      // see kIfOrdered
  bool continues = false;    // continues the range before it; see kInChain
  bool continued = false;    // the next range continues it
};

// Options of a RangePipeline.
struct RangeOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor
  const Share* share = nullptr;    // see PipelineOptions
  // If not null, another thread may set it to stop the pipeline with kCancelled.
  const std::atomic<bool>* cancelled = nullptr;
  // Called in order, by one thread at a time, with the total size of the ranges that
  // have passed all stages.
  std::function<void(std::uint64_t bytes)> progress = {};
};

}  // namespace zt

namespace zt::pipeline::internal {

// Limits on a batch of small ranges.
inline constexpr std::uint64_t kBatchBytes = 256 << 10;
inline constexpr std::uint64_t kBatchWeight = 1 << 20;  // small ranges may decode to large ones
inline constexpr std::size_t kBatchRanges = 100;
// Memory of a batch beside its ranges: the batch itself, the executor's state, the
// rounding of its buffers.
inline constexpr std::uint64_t kBatchCost = 4 * 4096;

PipelineOptions OptionsOf(const RangeOptions& options);

}  // namespace zt::pipeline::internal

export namespace zt {

// A Pipeline of ranges: gathers ranges into batches, reports progress, and reports the earliest
// error. Everything that moves tensor bytes uses it, with its own type of range and its own
// stages. `Batch` is BatchOf<Range> or derived from it.
template <class Batch>
class RangePipeline {
 public:
  using Range = typename decltype(Batch::ranges)::value_type;
  using Stages = std::vector<StageOf<Batch>>;

  RangePipeline(Stages stages, const RangeOptions& options)
      : pipeline_(WithReport(std::move(stages), options), pipeline::internal::OptionsOf(options)) {}

  // Submits a range; small ranges are gathered into a batch first. Returns the first error so far.
  Status Add(Range range, const RangeCost& cost);
  // Submits the ranges gathered so far, and waits until no task is in flight. `added` is an error
  // that occurred after the last range, or OK. Returns the first error, if any.
  Status Drain(const Status& added = OkStatus()) {
    (void)Flush();  // the pipeline reports the error
    if (!added.ok()) pipeline_.Fail(added);
    return pipeline_.Drain();
  }
  // See Pipeline.
  inline void Cancel(const Status& status) { pipeline_.Cancel(status); }

 private:
  static std::vector<StageOf<Task>> WithReport(Stages stages, const RangeOptions& options) {
    std::vector<StageOf<Task>> all;
    for (StageOf<Batch>& stage : stages) all.push_back(std::move(stage).ForTasks());
    if (options.cancelled == nullptr && !options.progress) return all;
    all.push_back({StageOrder::kInOrder,
                   [cancelled = options.cancelled, progress = options.progress,
                    done = std::uint64_t{0}](Task& batch) mutable -> Status {
                     if (cancelled != nullptr && *cancelled) return Cancelled("interrupted");
                     done += static_cast<Batch&>(batch).bytes;
                     if (progress) progress(done);
                     return OkStatus();
                   }});
    return all;
  }
  Status Flush() {
    if (pending_ == nullptr || pending_->ranges.empty()) return OkStatus();
    return pipeline_.Submit(std::exchange(pending_, nullptr));
  }

  std::unique_ptr<Batch> pending_;
  Pipeline pipeline_;
};

template <class Batch>
Status RangePipeline<Batch>::Add(Range range, const RangeCost& cost) {
  using namespace pipeline::internal;
  // The end of one chain and the beginning of another in a batch would make one chain of the two.
  const auto ties_chains = [&] { return pending_->continues && cost.continued && !cost.continues; };
  if (pending_ != nullptr &&
      (pending_->bytes + cost.bytes > kBatchBytes ||
       pending_->weight + cost.weight > kBatchWeight || pending_->ranges.size() >= kBatchRanges ||
       pending_->ordered != cost.ordered || ties_chains())) {
    if (Status status = Flush(); !status.ok()) return status;
  }
  if (pending_ == nullptr) {
    pending_ = std::make_unique<Batch>();
    pending_->weight = kBatchCost;
    pending_->ordered = cost.ordered;
    pending_->continues = cost.continues;
    if (cost.bytes < kBatchBytes) {
      pending_->ranges.reserve(std::min<std::uint64_t>(
          kBatchRanges, kBatchBytes / std::max<std::uint64_t>(cost.bytes, 1)));
    }
  }
  pending_->ranges.push_back(std::move(range));
  pending_->weight += cost.weight;
  pending_->bytes += cost.bytes;
  return pending_->bytes >= kBatchBytes ? Flush() : OkStatus();
}

}  // namespace zt
