// zt.writer:options — how a Writer writes, and what it tells while it does.
export module zt.writer:options;

import zt.std;
import :chunk;
import :plan;
import zt.compress;
import zt.core;
import zt.format;
import zt.transform;

export namespace zt {

// Where a run stands. Counts what has been recorded, in order; never decreases.
struct Progress {
  std::uint64_t bytes = 0;          // decoded input bytes done
  std::uint64_t bytes_total = 0;    // 0 where unknown (streamed objects)
  std::uint64_t tensors = 0;        // whole ones
  std::uint64_t tensors_total = 0;  // of the plans added so far
  std::uint64_t stored_bytes = 0;   // written for them
};

// What conversions could not carry over for one tensor.
struct NumericFinding {
  std::string tensor;        // its name in the file
  NumericCounts counts;      // of all its values
  std::uint64_t values = 0;  // elements, parts of complex ones
};

// How a Writer writes. Options out of range are kInvalidArgument of Writer::Create. Only `threads` and `memory_bytes`
// leave the file's bytes as they are.
struct WriterOptions {
  SpecVersion spec = SpecVersion::k1_2;  // the version of the file
  Storage storage = {};                  // of components added without a plan
  ZstdOptions zstd = {};                 // level and frames of what is compressed
  // Blobs begin at multiples of it; 0 is what the version's writers take (Traits), and it must be a multiple of what the
  // version asks for.
  std::uint64_t alignment = 0;
  // The fraction a component must shrink by to be stored compressed: at most 1; below 0 it may grow.
  double min_gain = 0.02;
  // Workers, up to kMaxThreads; 0 means UsableThreads(), 1 the caller's thread alone.
  unsigned threads = 0;
  // For chunks under way, of which there is always one: see MemoryFor. The manifest comes on top, and as much again at most
  // for the indices of one sparse tensor: in 2.0 to find whether they name a cell twice, and for coordinates of unknown size.
  std::uint64_t memory_bytes = 0;
  // Run on each chunk after its transform and before compression, in this order. A stage may replace the bytes (with
  // a buffer of chunk.pool), their number only where the component declares none. What it returns or throws gets the
  // tensor's name and the source's file.
  std::vector<std::shared_ptr<Stage>> stages = {};
  // Called after each batch, by one thread at a time. Must not block for long.
  std::function<void(const Progress&)> progress = {};
};

}  // namespace zt
