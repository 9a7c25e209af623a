// zt.writer:chain — what passes the stages, and what the stages are given. Internal to the module.
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

// Where a blob lies, and what the manifest says of it.
struct Blob {
  std::uint64_t offset = 0, length = 0, decoded_bytes = 0;
  Encoding encoding = Encoding::kRaw;
  CodecParameters parameters = {};
  std::string digest = {};
};

// A plan under way.
struct PlanState {
  PlanState(const Plan& running, std::shared_ptr<const void> kept)
      : plan(running), owner(std::move(kept)), of_caller(owner != nullptr) {}
  const Plan& plan;
  const std::shared_ptr<const void> owner;  // holds plan and source, where they came by Writer::Add
  const bool of_caller;                     // what is wrong with those bytes is the caller's
  struct Shared {
    Blob blob;
    std::vector<ComponentId> by;        // who has it beside the component it was written for
    std::vector<DataFacts> facts = {};  // what its bytes showed
  };
  // The blobs that several components share, by the component they are written for. The keys are fixed when the plan is
  // added; the record stage sets `blob` and `facts`.
  std::map<ComponentId, Shared> shared;
  // Of sparse objects, by their number. Those with the same indices have the same facts, which the first one's bytes feed.
  struct Cells {
    std::shared_ptr<CellFacts> facts;
    bool first;
  };
  std::map<std::uint32_t, Cells> cells;
};

// The frames of a component, all of one size of content but the last, and where they lie.
struct KeptFrames {
  EncodedStream stream;
  std::vector<Frame> frames;
};

// One component in flight. The stages change the last four fields; the others are fixed before its first chunk is submitted.
struct ComponentState {
  enum Choice { kUndecided, kRaw, kEncoded };

  std::shared_ptr<const Object> object;
  PlanState* plan = nullptr;  // null where the object was not planned
  // The same where the object came by Writer::Add: nobody else has it.
  std::shared_ptr<const PlanState> keeps;
  ComponentId at;                    // in the plan; of others only the component
  std::uint64_t declared_bytes = 0;  // or kUnknownSize
  // What readers ask of its bytes: as its own, and as those of all that share its blob. Each once.
  std::vector<DataRule> rules;
  ResolvedStorage storage;
  OnOverflow on_overflow = OnOverflow::kError;
  TensorSource* source = nullptr;  // null where the chunks bring their bytes
  ComponentId id;
  bool sequential = false;
  std::shared_ptr<const Transform> transform;
  bool ends_object = false;  // no component with a blob of its own follows
  // What is copied from the source without being decoded: its stream is then what is read, and `storage` says raw.
  std::unique_ptr<const EncodedStream> copied;
  // What is copied frame by frame, with the content read as well: a chunk is one frame.
  std::unique_ptr<const KeptFrames> kept;
  std::shared_ptr<CellFacts> cells;  // of a sparse object that was not planned

  std::atomic<int> choice = kUndecided;  // the place stage decides; the compress stage looks ahead
  std::unique_ptr<Hasher> hasher;        // the hash stage's, chunk after chunk
  std::string digest;                    // what it found
  std::uint64_t looked = 0;  // bytes that the look stage has seen, where sizes may change
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
  std::shared_ptr<const Object>
      closing;  // with an object's last chunk: what was declared since Begin
  // With the only chunk of an object: what the manifest says of it, if it is encoded before it is recorded. The bytes are in
  // the batch's `entries`.
  std::optional<EncodedEntry> entry;
  std::span<const std::byte> entry_bytes;
  NumericCounts counts;          // what the transform could not carry over
  std::vector<DataFacts> facts;  // of bytes(), one for each rule of the component

  // "FILE: tensor 'NAME': " put before the message; OK stays OK.
  Status Named(const Status& status) const;
};

// Consecutive chunks that travel together.
struct Batch final : BatchOf<Piece> {
  Buffer transformed, encoded;     // what pieces borrow beside `input`
  std::vector<std::byte> entries;  // for the manifest

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

  // What a component is compressed with, if it is.
  inline const FrameEncoder& EncoderOf(const ComponentState& state) const {
    return *encoders_.at(state.storage.encoding);
  }
  // True where so many encoded bytes are worth it.
  inline bool Gains(std::uint64_t encoded, std::uint64_t raw) const {
    return static_cast<double>(encoded) <= static_cast<double>(raw) * (1.0 - min_gain_);
  }

 private:
  std::map<Encoding, std::unique_ptr<FrameEncoder>> encoders_;  // one for each codec
  double min_gain_;
};

// What has been written down, in declared order. The record stage fills it.
struct Record {
  explicit Record(SpecVersion version) : manifest(version) {}
  ManifestEncoder manifest;
  std::vector<NumericFinding> findings;
  // The progress callback reads them while the next batch is being recorded.
  std::atomic<std::uint64_t> bytes_done = 0, tensors_done = 0, stored_done = 0;
  // Of the plans added so far.
  std::atomic<std::uint64_t> bytes_total = 0, tensors_total = 0;
};

// What the stages work with.
struct ChainParts {
  BufferPool& pool;
  const Codecs& codecs;
  Placer& placer;  // the place stage's
  Sink& sink;
  Record& record;
};

// Hands bytes to the sink: at `place` where it can place them, else after what it has. Names the sink in errors.
Status WriteTo(Sink& sink, std::uint64_t place, Pieces pieces);

// Calls what others wrote; what it throws becomes an error, to which `name` adds names. Memory that ran out is left to
// whoever called.
template <class Call, class Name>
auto Caught(const Call& call, const Name& name) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return name(OfException());
  }
}
template <class Call>
auto Caught(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return OfException();
  }
}

// The most bytes that the manifest's entry of an object can have, if it may be encoded before it is recorded, as that of a
// dense tensor without attributes may; else 0.
std::size_t EntryBytes(const Object& object);

// The rule by which a component's bytes are looked at. Of an object that was not planned, sizes and attributes are known only
// in the end.
std::optional<DataRule> RuleOf(const Object& object, std::uint32_t component, bool planned);
// What ComponentState::rules has to hold, told from the fields above it.
std::vector<DataRule> RulesOf(const ComponentState& state);

// A step on each piece by itself.
class PieceStage : public StageOf<Batch> {
 public:
  virtual Status ProcessPiece(Piece& piece) = 0;
  Status Process(Batch& batch) override {
    for (Piece& piece : batch.ranges) {
      const Status status = Caught([&] { return ProcessPiece(piece); });
      if (!status.ok()) return piece.Named(status);
    }
    return OkStatus();
  }
};

// The stage that reads.
std::shared_ptr<StageOf<Batch>> MakeReadStage(BufferPool& pool);

// The stage that encodes what the manifest says of objects that are one chunk, and the one that validates and writes all down.
std::shared_ptr<StageOf<Batch>> MakeEntryStage(const ManifestEncoder& manifest, SpecVersion spec);
std::shared_ptr<StageOf<Batch>> MakeRecordStage(Record& record, SpecVersion spec);

// The chain, in order: read, transform, the caller's own, look, compress, place, hash, crc, entry, write, record. Where digests cover decoded bytes, hash stands before compress.
PipelineOf<Batch>::Stages MakeChain(const ChainParts& parts, const WriterOptions& options);

}  // namespace zt::writer::internal
