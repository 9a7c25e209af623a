// zt.writer:plan — everything that is decided before the first byte is written, as data.
export module zt.writer:plan;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;
import zt.format;
import zt.pipeline;
import zt.source;
import zt.transform;

export namespace zt {

// Whether a component is compressed.
enum class Compression : std::uint8_t {
  kNone,    // stored raw
  kIfGain,  // if its first frame shrinks by WriterOptions::min_gain or more
  kAlways,  // even if it does not shrink
  kKeep,    // the source's frames are copied if nothing in them changes; otherwise as kIfGain
};

// How a component is stored.
struct Storage {
  Compression compression = Compression::kNone;  // raw or compressed
  // Unset: the version's default, xxh3 in 2.0, crc32c before. 2.0 has no crc32c, and its digests
  // cover decoded bytes; those of other versions cover stored bytes.
  std::optional<DigestKind> digest = {};
  // The encoding of a compressed component, not kRaw. kPlanes is for dense tensors of floats of 2,
  // 4 or 8 bytes, in a file of version 1.2 or 2.0; other components are then kZstd.
  Encoding encoding = Encoding::kZstd;
  bool operator==(const Storage&) const = default;
};

// The plan for one component of a source.
struct PlannedComponent {
  ComponentId source;                          // where its bytes come from
  std::shared_ptr<const Transform> transform;  // null: the bytes stay as they are
  Storage storage;                             // how it is stored
  // Set if an earlier component of the plan has the same bytes: this one gets no blob but shares
  // that one's. Indices into Plan::objects and its components.
  std::optional<ComponentId> shared_with;
};

// One object of the file to be written.
struct PlannedObject {
  // The declaration to be stored: new name, element types and sizes. If nothing changes it is the
  // source's own, so a plan must not outlive its source.
  std::shared_ptr<const Object> object;
  InlinedVector<PlannedComponent, 1> components;  // one for each of object->components
};

// A Writer's instructions for one source. Plain data: it may be changed before Writer::AddSource,
// as long as objects and components match.
struct Plan {
  SpecVersion spec = SpecVersion::k1_2;         // the version it was checked for
  Value::Map attributes;                        // of the file
  std::vector<PlannedObject> objects;           // in the order of the source
  OnOverflow on_overflow = OnOverflow::kError;  // for all conversions
  bool allow_fraction_loss = true;              // in conversions of floats to integers

  std::uint64_t input_bytes(const TensorSource& source) const;  // to be read
  std::uint64_t output_bytes() const;  // decoded, of known size; shared blobs once
};

// Options of MakePlan. The functions may be empty; they get the source's declarations.
struct PlanOptions {
  SpecVersion spec = SpecVersion::k1_2;  // of the file; the Writer's must be the same
  Storage storage = {};                  // of every component
  // Components that the source has compressed stay compressed, whatever `storage` says; with their
  // encoding if the version has it.
  bool keep_encoding = false;
  OnOverflow on_overflow = OnOverflow::kError;  // for all conversions
  // False: a conversion of floats to integers fails if a value has a fraction.
  bool allow_fraction_loss = true;
  // False drops the attributes of the file.
  bool attributes = true;
  // False drops the object.
  std::function<bool(const Object&)> keep = {};
  // Returns the new name of the object `name`.
  std::function<std::string(const std::string& name)> rename = {};
  // Returns the object's new element type, or nullopt to keep it. Objects of ggml blocks (format
  // "gguf.<type>/1") are dequantized to it and become dense.
  std::function<std::optional<ElementType>(const Object&)> convert = {};
};

// Decides names (a collision is kInvalidArgument and names both tensors), conversions
// (kUnimplemented if there is none), shared blobs, and whether the spec can express the result
// (CheckExpressible). Reads no tensor bytes. Errors, and exceptions of the source or of a function
// of the options, name the tensor and its file.
StatusOr<Plan> MakePlan(const TensorSource& source, const PlanOptions& options);

// False for integers, and for types of 8 bits that have NaN alone.
bool HasInfinity(const ElementType& element);

// Adds the overflow of making numbers (TensorSource::TakeOverflow) to what was counted as they were
// converted to `element`, each number once.
void AddOverflow(std::uint64_t made, const ElementType& element, OnOverflow on_overflow,
                 NumericCounts& counts);

// kOutOfRange, with their number, if some numbers have no counterpart in the type they were
// converted to.
Status CheckFit(const NumericCounts& counts, const ElementType& element, const Plan& plan);

// Changes a plan to that of a canonical file (2.0 §6.3): objects and components in the order of
// their names, all raw and with the version's digest, and one blob for all components with the same
// bytes. To find these it reads the beginning and the middle of components of equal size, and the
// whole of those that look equal, with the threads and the memory of `options`. kInvalidArgument if
// the version has no such form, for a pipe, and for names that are not in Unicode Normalization
// Form C. The Writer must have no alignment of its own.
Status MakeCanonical(TensorSource& source, Plan& plan, const RangeOptions& options = {});

}  // namespace zt

// Shared by the implementation files, not exported.
namespace zt::writer::internal {

// How a component is stored, resolved from a Storage. The writer resolves it when it takes a
// component, since plans may be edited.
struct ResolvedStorage {
  Compression compression = Compression::kNone;
  Encoding encoding = Encoding::kRaw;  // kRaw if not compressed
  const Codec* codec = nullptr;        // the encoding's; null for kRaw
  CodecParameters parameters = {};     // the codec's parameters for the component
  DigestKind digest = DigestKind::kNone;
};

// Decides how a component of `object` is stored if the caller wants `wanted`: zstd if byte planes
// do not suit it, the version's digest if none is named, frames of about `frame_bytes` of content.
// `transform` may be null. kInvalidArgument if it is to be compressed and no codec has the
// encoding.
StatusOr<ResolvedStorage> ResolveStorage(const Object& object, std::size_t component,
                                         const Storage& wanted, SpecVersion spec,
                                         std::uint64_t frame_bytes, const Transform* transform);

}  // namespace zt::writer::internal
