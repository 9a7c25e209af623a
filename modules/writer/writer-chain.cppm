// zt.writer:chain — the stages every chunk passes, and the ledger they share. Internal to the module.
module;

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

module zt.writer:chain;

import :chunk;
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

// Where a blob lies, and what the manifest says of it.
struct Blob {
  std::uint64_t offset = 0, length = 0, decoded_bytes = 0;
  Encoding encoding = Encoding::kRaw;
  CodecParameters parameters;
  std::string digest;
};

// A plan under way.
struct PlanState {
  explicit PlanState(const Plan& running) : plan(running) {}
  const Plan& plan;
  // The blobs that others share, by their place in the plan. The keys are fixed; the blobs are record's.
  std::map<ComponentId, Blob> shared;
};

// True where no component has a blob of its own.
bool OnlyShares(const PlannedObject& object);

// One component under way. Each field is touched by one stage, or is fixed, or is atomic.
struct ComponentState {
  enum Choice { kUndecided, kRaw, kEncoded };

  // Fixed before the first chunk is submitted.
  std::shared_ptr<const Object> object;
  PlanState* plan = nullptr;         // null where the object was not planned
  ComponentId at;                    // in the plan; of others only the component
  std::uint64_t declared_bytes = 0;  // or kUnknownSize
  Storage storage;
  OnOverflow on_overflow = OnOverflow::kError;
  TensorSource* source = nullptr;  // null where the chunks bring their bytes
  ComponentId id;
  bool sequential = false;
  std::shared_ptr<const Transform> transform;
  bool ends_object = false;  // no component with a blob of its own follows

  std::atomic<std::uint64_t> overflow = 0, nan_lost = 0;  // transform
  std::atomic<int> choice = kUndecided;                   // place decides; compress looks ahead
  std::uint64_t offset = 0;                               // place
  std::vector<Frame> frames;                              // place
  std::uint64_t content = 0;                              // place
  std::unique_ptr<Hasher> hasher;                         // hash
  std::uint32_t crc = 0;                                  // record
  std::uint64_t stored = 0;                               // record
};

// A chunk with all that the writer keeps of it.
struct Piece final : Chunk {
  using Chunk::Adopt;
  using Chunk::Borrow;
  using Chunk::owns;

  std::shared_ptr<ComponentState> state;
  std::uint64_t input_offset = 0;  // of the range to read, in the source's component
  std::uint64_t input_bytes = 0;   // of that range

  // What will be stored: bytes(), or `encoded`, which lies in the batch's buffer of that name.
  std::span<const std::byte> encoded;  // empty where it was not compressed
  std::span<const std::byte> stored;   // bytes() or `encoded`
  std::vector<std::byte> trailer;      // stored after `stored` (a seek table)
  std::uint64_t place = 0;             // absolute offset of `stored` in the output
  std::uint64_t padding = 0;           // zero bytes before it
  std::uint32_t crc = 0;               // CRC-32C of stored and trailer, where asked for

  // "FILE: tensor 'NAME': " put before the message; OK stays OK.
  Status Named(const Status& status) const;
};

// Consecutive chunks that travel together: one large chunk, or many small ones so that a tensor of some kilobytes
// costs microseconds.
struct Batch final : Task {
  std::vector<Piece> pieces;  // at least one
  Buffer input;               // bytes as read; pieces borrow them
  Buffer encoded;             // compressed bytes

  Status Named(const Status& status) const override { return pieces.front().Named(status); }
};

// What one numeric finding is made of; the exported NumericFinding without the import cycle.
struct Finding {
  std::string tensor;
  NumericCounts counts;
};

// What the stages share. The in-order stages own the fields they change.
struct Ledger {
  Ledger(const ContainerTraits& container, Sink& destination, const ZstdOptions& zstd_options,
         double gain, std::uint64_t pool_bytes)
      : traits(container),
        sink(destination),
        frame_bytes(zstd_options.frame_bytes),
        min_gain(gain),
        pool(pool_bytes),
        manifest(container.version) {
    for (const Encoding encoding : Encodings()) {
      encoders.emplace(encoding, FindCodec(encoding)->MakeEncoder(zstd_options));
    }
  }

  // The codec a component is compressed with, if it is, and what that has to know of it.
  inline const Codec& CodecOf(const ComponentState& state) const {
    return *FindCodec(state.storage.encoding);
  }
  inline CodecParameters ParametersOf(const ComponentState& state) const {
    return CodecOf(state).Parameters(state.object->components[state.at.component].element,
                                     frame_bytes);
  }

  // Where a component begins that follows `end`.
  inline std::uint64_t BeginAfter(std::uint64_t end) const {
    return (end + traits.alignment - 1) / traits.alignment * traits.alignment;
  }

  // Hands bytes to the sink: at `place` where it can place them, else after what it has.
  inline Status Write(std::uint64_t place, Pieces pieces) {
    return sink.can_place() ? sink.WriteAt(place, pieces) : sink.Append(pieces);
  }

  const ContainerTraits& traits;
  Sink& sink;
  std::map<Encoding, std::unique_ptr<FrameEncoder>> encoders;  // one for each codec
  std::uint64_t frame_bytes;
  double min_gain;
  BufferPool pool;
  ManifestEncoder manifest;       // record
  std::uint64_t cursor = 0;       // place: end of what has been placed
  std::vector<Finding> findings;  // record
  // record; the progress callback reads them while the next batch is being recorded
  std::atomic<std::uint64_t> bytes_done = 0, tensors_done = 0, stored_done = 0;
};

// The chain, in order: read, transform, the caller's own, compress, place, hash, write, record.
PipelineOf<Batch>::Stages MakeChain(Ledger& ledger,
                                    const std::vector<std::shared_ptr<Stage>>& custom,
                                    std::shared_ptr<StageOf<Batch>> after);

}  // namespace zt::writer::internal
