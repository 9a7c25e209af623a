// zt.pipeline:numbered — several runs at a time, each with a pipeline of its own: the files of a set.
export module zt.pipeline:numbered;

import zt.std;
import :executor;
import zt.core;

export namespace zt {

// What RunNumbered may use for all runs together.
struct NumberedOptions {
  unsigned threads = 0;            // 0 means UsableThreads()
  std::uint64_t memory_bytes = 0;  // see MemoryFor
  unsigned most = kMaxThreads;     // limit on the runs at a time
  // What a run needs at the least: of less than that for each, fewer run at a time.
  std::uint64_t least_memory = 16 << 20;
};

// The number of runs that RunNumbered has at a time: one for each thread, as far as the memory
// suffices. It is no less with few threads, because a run waits for its disk or server, too.
unsigned RunsAtOnce(std::uint64_t count, const NumberedOptions& options);

// Calls `run` for each number below `count`, begun in this order, RunsAtOnce of them at a time, each
// on a thread of its own. The share of a run is what all may use, divided by the runs at a time; it
// grows once no run is left to begin. After an error no run begins, those of higher numbers are
// cancelled and those of lower ones end; the error of the lowest number is returned.
Status RunNumbered(std::uint64_t count, const NumberedOptions& options,
                   const std::function<Status(std::uint64_t number, const Share& share)>& run);

}  // namespace zt
