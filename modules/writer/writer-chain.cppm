// zt.writer:chain — the stages every chunk passes, and the ledger they share. Internal to the module.
module;

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

module zt.writer:chain;

import :plan;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.sink;
import zt.source;
import zt.transform;

namespace zt::writer::internal {

// One component under way. Each field is touched by one stage, or is fixed, or is atomic.
struct ComponentState final : ChunkOwner {
  enum Choice { kUndecided, kRaw, kZstd };

  std::string_view file() const override {
    return source == nullptr ? std::string_view() : source->file(id);
  }

  // Fixed before the first chunk is submitted.
  std::shared_ptr<const Object> object;
  StoredComponent* entry =
      nullptr;  // in the ledger's manifest, filled when the last chunk is recorded
  std::uint64_t declared_bytes = 0;  // or kUnknownSize
  Storage storage;
  OnOverflow on_overflow = OnOverflow::kError;
  TensorSource* source = nullptr;  // null where the chunks bring their bytes
  ComponentId id;
  bool sequential = false;
  std::shared_ptr<const Transform> transform;
  bool ends_object = false;

  std::atomic<std::uint64_t> overflow = 0, nan_lost = 0;  // transform
  std::atomic<int> choice = kUndecided;                   // place decides; compress looks ahead
  std::uint64_t offset = 0;                               // place
  std::vector<Frame> frames;                              // place
  std::uint64_t content = 0;                              // place
  std::unique_ptr<Hasher> hasher;                         // hash
  std::uint32_t crc = 0;                                  // record
  std::uint64_t stored = 0;                               // record
};

// What one numeric finding is made of; the exported NumericFinding without the import cycle.
struct Finding {
  std::string tensor;
  NumericCounts counts;
};

// What the stages share. The in-order stages own the fields they change; the submitting thread only appends to
// `objects`, whose elements do not move.
struct Ledger {
  Ledger(const ContainerTraits& container, Sink& destination, const ZstdOptions& zstd_options,
         double gain, std::uint64_t pool_bytes)
      : traits(container),
        sink(destination),
        compressor(zstd_options),
        min_gain(gain),
        pool(pool_bytes) {}

  const ContainerTraits& traits;
  Sink& sink;
  FrameCompressor compressor;
  double min_gain;
  BufferPool pool;
  std::deque<StoredObject> objects;
  std::uint64_t cursor = 0;       // place: end of what has been placed
  std::vector<Finding> findings;  // record
  // record: read by the progress callback only
  std::uint64_t bytes_done = 0, tensors_done = 0, stored_done = 0;
};

// The chain, in order: read, transform, the caller's own, compress, place, hash, write,
// record.
std::vector<std::shared_ptr<Stage>> MakeChain(Ledger& ledger,
                                              const std::vector<std::shared_ptr<Stage>>& custom,
                                              std::shared_ptr<Stage> after);

}  // namespace zt::writer::internal
