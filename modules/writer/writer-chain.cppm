// zt.writer:chain — the batches that pass the stages, and the state that the stages use. Internal
// to the module.
module;

#include "writer/placement.h"

module zt.writer:chain;

import zt.std;
import :chunk;
import :options;
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

// A blob's place and its fields in the manifest.
struct StoredBlob {
  std::uint64_t offset = 0, length = 0, decoded_bytes = 0;
  Encoding encoding = Encoding::kRaw;
  CodecParameters parameters = {};
  std::string digest = {};
};

// A plan in flight.
struct PlanState {
  PlanState(const Plan& running, std::shared_ptr<const void> kept)
      : plan(running), owner(std::move(kept)), of_caller(owner != nullptr) {}
  const Plan& plan;
  const std::shared_ptr<const void> owner;  // holds plan and source if they came by Writer::Add
  const bool of_caller;                     // invalid bytes are then the caller's error
  struct Shared {
    StoredBlob blob;
    std::vector<ComponentId> by;               // the other components that share the blob, in order
    std::shared_ptr<ContentCheck> check = {};  // until the last of them has it
  };
  // Shared blobs, by the component that writes them. The keys are fixed when the plan is added; the
  // record stage sets `blob` and `check`.
  std::map<ComponentId, Shared> shared;
};

// The frames of a stored component. All but the last have the same size of content.
struct KeptFrames {
  EncodedStream stream;
  std::vector<Frame> frames;
};

// One component in flight. The stages change the last four fields; the others are fixed before its
// first chunk is submitted.
struct ComponentState {
  enum Choice { kUndecided, kStoreRaw, kStoreEncoded };

  std::shared_ptr<const Object> object;
  PlanState* plan = nullptr;  // null if the object was not planned
  // Keeps `plan` alive for an object from Writer::Add; null for planned sources, whose plans the
  // engine keeps.
  std::shared_ptr<const PlanState> keeps;
  ComponentId at;                    // in the plan; unplanned: only the component is set
  std::uint64_t declared_bytes = 0;  // or kUnknownSize
  // By its rule and those of all components that share its blob; null if there is none.
  std::shared_ptr<ContentCheck> check;
  ResolvedStorage storage;
  TensorSource* source = nullptr;  // null if the chunks bring their bytes
  ComponentId id;
  bool sequential = false;
  // If set, reads the component without its digest, which the check stage then updates in order.
  std::shared_ptr<UnorderedReader> apart;
  std::shared_ptr<const Transform> transform;
  bool ends_object = false;  // no component with a blob of its own follows
  // If set, the source's whole stream is copied: it is read in place of the component, in chunks of
  // whole frames, and `storage` says raw.
  std::unique_ptr<const KeptFrames> copied;
  // If set, the source's frames are copied one by one while their content is read too: a chunk is
  // one frame.
  std::unique_ptr<const KeptFrames> kept;

  // Set by the place stage; the compress stage reads it early.
  std::atomic<int> choice = kUndecided;
  std::unique_ptr<Hasher> hasher;     // used by the hash stage, chunk after chunk
  std::string digest;                 // its result
  std::uint64_t validated_bytes = 0;  // bytes seen by the validate stage, if sizes may change
};

// True if a stage of the writer's own takes the component's chunks in sequence: it has a digest that
// needs order, when it is read or when it is written.
bool IsChained(const ComponentState& state);

// A chunk and the writer's state for it.
struct WriterChunk final : Chunk {
  using Chunk::Adopt;
  using Chunk::Borrow;
  using Chunk::owns;

  std::shared_ptr<ComponentState> state;
  std::uint64_t input_offset = 0;  // of the range to read, in the source's component
  std::uint64_t input_bytes = 0;   // of that range

  // The bytes to store: bytes(), or `encoded`, which lies in the batch's buffer of that name.
  std::span<const std::byte> encoded;  // empty if not compressed
  std::span<const std::byte> stored;   // bytes() or `encoded`
  std::vector<std::byte> trailer;      // stored after `stored` (a seek table)
  std::uint64_t place = 0;             // absolute offset of `stored` in the output
  std::uint64_t padding = 0;           // zero bytes before it
  std::uint32_t crc = 0;               // CRC-32C of `stored` and `trailer`, if requested
  NumericCounts counts;                // values that the transform could not represent
  ContentCheck::Found found;           // in bytes()
  std::optional<EncodedEntry> entry;   // of the object, if the entry stage has encoded it

  // Puts "FILE: tensor 'NAME': " before the message; OK stays OK.
  Status Named(const Status& status) const;
};

// Consecutive chunks that travel together.
struct Batch final : BatchOf<WriterChunk> {
  Buffer transformed, encoded;  // borrowed by chunks, as `input` is

  Status Named(const Status& status) const override { return ranges.front().Named(status); }
};

// How components are compressed.
class Codecs {
 public:
  Codecs(const ZstdOptions& options, double min_gain) : min_gain_(min_gain) {
    for (const Encoding encoding : Encodings()) {
      encoders_.emplace(encoding, FindCodec(encoding)->MakeEncoder(options));
    }
  }

  // The encoder of a component that is compressed.
  inline const FrameEncoder& EncoderOf(const ComponentState& state) const {
    return *encoders_.at(state.storage.encoding);
  }
  // True if the encoded size is small enough to store the encoded bytes.
  inline bool Gains(std::uint64_t encoded, std::uint64_t raw) const {
    return static_cast<double>(encoded) <= static_cast<double>(raw) * (1.0 - min_gain_);
  }

 private:
  std::map<Encoding, std::unique_ptr<FrameEncoder>> encoders_;  // one for each codec
  double min_gain_;
};

// The manifest and totals so far, in declared order. The record stage fills it.
struct Record {
  explicit Record(SpecVersion version) : manifest(version) {}
  ManifestEncoder manifest;
  std::vector<NumericFinding> findings;
  // The progress callback reads them while the next batch is being recorded.
  std::atomic<std::uint64_t> bytes_done = 0, tensors_done = 0, stored_done = 0;
  // Totals of the plans added so far.
  std::atomic<std::uint64_t> bytes_total = 0, tensors_total = 0;
};

// The objects that the stages share.
struct ChainParts {
  BufferPool& pool;
  const Codecs& codecs;
  Placer& placer;  // used by the place stage
  Sink& sink;
  Record& record;
};

// The rule for a component's bytes. Sizes and attributes of an unplanned object are known only at
// its end.
std::optional<DataRule> RuleOf(const Object& object, std::uint32_t component, bool planned);
// Makes ComponentState::check from the fields above it.
std::shared_ptr<ContentCheck> MakeCheck(const ComponentState& state, const WriterOptions& options);

// Limit on the size of a manifest entry that the entry stage may encode; 0 if it leaves the object
// to the record stage.
std::uint64_t EntryBytes(const Object& object);

// The stage that encodes the entries of objects of one chunk, many at a time: of a million small
// tensors, they are a fifth of the time.
StageOf<Batch> MakeEntryStage(const ManifestEncoder& manifest, SpecVersion spec);

// The step, in the order of chunks, that validates all objects and adds them to the manifest.
std::function<Status(WriterChunk&)> MakeRecordStage(Record& record, SpecVersion spec);

// The chain, in order: read, check, transform, the caller's own, validate, compress, place, hash,
// crc, entry, write, record. If digests cover decoded bytes, hash comes before compress.
RangePipeline<Batch>::Stages MakeChain(const ChainParts& parts, const WriterOptions& options);

}  // namespace zt::writer::internal
