// zt.writer:options — a Writer's options, and the progress and findings it reports.
export module zt.writer:options;

import zt.std;
import :chunk;
import :plan;
import zt.compress;
import zt.core;
import zt.format;
import zt.pipeline;
import zt.transform;

export namespace zt {

// Progress of a run. Counts what is recorded, in order; never decreases.
struct Progress {
  std::uint64_t bytes = 0;          // decoded input bytes done
  std::uint64_t bytes_total = 0;    // 0 if unknown (streamed objects)
  std::uint64_t tensors = 0;        // complete ones
  std::uint64_t tensors_total = 0;  // of the plans added so far
  std::uint64_t stored_bytes = 0;   // written for them
};

// The values of one tensor that a conversion could not represent.
struct NumericFinding {
  std::string tensor;        // its name in the file
  NumericCounts counts;      // of all its values
  std::uint64_t values = 0;  // elements, parts of complex ones
};

// A Writer's options. Writer::Create returns kInvalidArgument if one is out of range. Only
// `threads` and `memory_bytes` do not affect the file's bytes.
struct WriterOptions {
  SpecVersion spec = SpecVersion::k1_2;  // the version of the file
  Storage storage = {};                  // of components added without a plan
  ZstdOptions zstd = {};                 // level and frame size of compressed components
  // Blobs begin at multiples of it. It must be a multiple of the version's alignment; 0 means the
  // version's `placement` (Traits).
  std::uint64_t alignment = 0;
  // Least fraction by which compression must shrink a component: at most 1; below 0 it may grow.
  double min_gain = 0.02;
  // Workers, up to kMaxThreads; 0 means UsableThreads(), 1 the caller's thread alone.
  unsigned threads = 0;
  // The memory budget for chunks (MemoryFor); one chunk is always in flight.
  // The manifest comes on top, and at most as much again to validate the indices of one sparse
  // tensor: in 2.0 to find a cell that is named twice, and for coordinates of unknown size.
  std::uint64_t memory_bytes = 0;
  // If set, decides both of these and outlives the writer; see RunNumbered. Others read the same
  // sources then, so Flush does not call TensorSource::Finish, but CheckRead.
  const Share* share = nullptr;
  // Called for each chunk, in this order, after its transform and before compression. A stage may
  // replace the bytes (with a buffer of chunk.pool), and change their number only if the component
  // declares no size; it may hold one more such buffer of the chunk's size. Its errors and
  // exceptions get the tensor's name and the source's file.
  std::vector<std::shared_ptr<Stage>> stages = {};
  // Called after each batch, by one thread at a time. Must not block for long.
  std::function<void(const Progress&)> progress = {};
  // Set by another thread to stop: kCancelled. May be null. Writer::Cancel also wakes who waits.
  const std::atomic<bool>* cancelled = nullptr;
};

// kInvalidArgument if Writer::Create would refuse the options.
Status Validate(const WriterOptions& options);

}  // namespace zt
