// zt.format:dialect — a version of the container: how its manifest is found, decoded and encoded. Internal to the module.
module;

#include "format/cbor.h"

module zt.format:dialect;

import zt.std;
import :model;
import zt.compress;
import zt.core;
import zt.digest;

namespace zt::format::internal {

using Bytes = format_cbor::Buffer;

// One object for each version; all that differs between versions is in its traits or in a virtual. A new version is a
// file with a class derived from this one, a value of SpecVersion, and a line in versions.cc. Thread-safe.
class Dialect {
 public:
  explicit Dialect(const ContainerTraits& traits) : traits_(traits) {}
  virtual ~Dialect() = default;
  Dialect(const Dialect&) = delete;
  Dialect& operator=(const Dialect&) = delete;

  inline const ContainerTraits& traits() const { return traits_; }
  // "version 1.2.0", for messages.
  std::string Named() const;

  // ---- reading ----

  // Finds the manifest of a file that begins with header_magic, from its last bytes: kTailBytes, or all there are.
  virtual StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                                   std::uint64_t file_bytes) const = 0;
  // As DecodeManifest.
  virtual StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const = 0;
  // Checks of a layout what the version asks beyond 1.2's common rules: of a component's element type, and of an
  // object whose components are valid. The messages name neither. kDataLoss.
  virtual Status CheckStored(const StoredObject& object, const StoredComponent& component) const;
  virtual Status CheckComplete(const Object& object) const;
  // As zt::CheckStored. `declared` is for reuse of its memory.
  Status CheckAlone(const StoredObject& object, Object* declared) const;
  // That so many bytes can lie there, in a file whose blobs reach to `data_end`. kDataLoss.
  Status CheckPlace(std::uint64_t offset, std::uint64_t length, std::uint64_t data_end) const;
  // As CheckLayout.
  Status CheckLayout(const Manifest& manifest, std::uint64_t data_end) const;
  // `status` with the section of the specification behind its message, in a version whose messages name it.
  virtual Status Cite(const Status& status, std::string_view) const { return status; }

  // A component's `dtype`, or nullopt where it is none of the version's.
  virtual std::optional<ElementType> ParseElement(std::string_view dtype) const;

  // ---- writing ----

  // As zt::CheckEncoding.
  virtual Status CheckEncoding(Encoding encoding) const;
  // As zt::CheckDigest.
  virtual Status CheckDigest(DigestKind) const { return OkStatus(); }
  // As CheckExpressible, of what is valid in itself.
  virtual Status CheckObject(const Object& object, Encoding encoding,
                             std::string_view digest) const = 0;
  virtual Status CheckRoot(const Value::Map& attributes) const;
  // Whether a manifest can name this file as one that holds blobs.
  virtual Status CheckShard(const StoredShard& shard) const;
  // Appends what the manifest says of an object, with its name as a text at `*name_at`, and counts the values that decoding
  // makes of it (kMaxAttributeValues). `shards` are what StoredComponent::shard counts.
  virtual Status AppendEntry(const StoredObject& object, std::span<const StoredShard> shards,
                             Bytes* out, std::size_t* name_at, std::uint64_t* values) const = 0;
  // Whether entries are in the order of deterministic map keys; else they keep their own.
  virtual bool SortsEntries() const { return true; }
  // What comes before and behind so many entries.
  virtual Status AppendHead(std::size_t entries, const Value::Map& attributes,
                            std::span<const StoredShard> shards, Bytes* out) const = 0;
  virtual Status AppendTail(const Value::Map& attributes, Bytes* out) const = 0;
  // As EncodeFooter.
  virtual std::vector<std::byte> Footer(std::uint64_t offset, ManifestParts manifest) const = 0;

 private:
  const ContainerTraits& traits_;
};

// The dialect of a version. Static.
const Dialect& DialectOf(SpecVersion version);
// Each in a file of its own.
const Dialect& Dialect01();
const Dialect& Dialect1x(SpecVersion version);
const Dialect& Dialect20();

// ---- what several dialects share ----

// Containers that hold the attributes of the file: the root.
inline constexpr std::size_t kRootDepth = 1;
// Containers that hold an object's attributes: root, objects, object.
inline constexpr std::size_t kObjectDepth = 3;

bool IsMagic(std::span<const std::byte> bytes, std::string_view magic);
// Finds a manifest that is followed by its size as u64 LE and by `magic`, with nothing behind it.
StatusOr<Trailer> LocateBySize(SpecVersion family, std::string_view magic,
                               std::span<const std::byte> tail, std::uint64_t file_bytes);
// The bytes of all parts.
std::uint64_t BytesOf(ManifestParts manifest);
// The size of a manifest and the magic behind it.
std::vector<std::byte> SizeFooter(std::uint64_t manifest_bytes, std::string_view magic);

// Long names, of 0.1 and 1.0: "float32".
std::optional<ElementType> ParseLongName(std::string_view text);
std::optional<std::string_view> LongName(const ElementType& element);

// Appends `value`, or fails where it nests deeper than `depth`, has a key twice or text that is not UTF-8.
Status AppendValue(const Value& value, std::size_t depth, Bytes* out);
Status AppendMap(const Value::Map& map, std::size_t depth, Bytes* out);
// Whether attributes can be written that lie within `depth` containers.
Status CheckAttributes(const Value::Map& attributes, std::size_t depth);
// Appends the key "attributes" and the map, unless that is empty.
Status AppendAttributes(const Value::Map& attributes, std::size_t depth, Bytes* out);
// Whether the names of an object are texts, and it has components.
Status CheckTexts(const StoredObject& object);
// Which of the keys comes first, second, ... in a deterministic map. Fails where one occurs twice.
StatusOr<InlinedVector<std::size_t, 4>> KeyOrder(std::span<const std::string_view> keys);
// An array of the dimensions, behind the key "shape".
void AppendShape(const Shape& shape, Bytes* out);

// Appends the entry of an object in 2.0's words; `stored` are its components, in the same order.
Status AppendEntryV2(const Object& said, std::span<const StoredComponent> stored,
                     std::span<const StoredShard> shards, Bytes* out);
// An object of the model as 2.0 says it: under a layout that means the same, or else unchanged under a layout of ours.
// kInvalidArgument where neither can be.
StatusOr<Object> ToV2(Object object);
// An object of a 2.0 manifest as the model has it. One of a layout that is not known stays as it is; so does one under names
// of ours that breaks what the model asks of it, and no component of it can be decoded.
StatusOr<StoredObject> FromV2(StoredObject object);

// An object of byte planes, as 1.2 has it, becomes the dense tensor that it stands for, with Encoding::kPlanes. Others are
// left as they are. kDataLoss where it breaks a rule of the profile (docs/PLANES.md).
Status FromPlanes(StoredObject& object);
// True where a component is stored in byte planes.
bool HasPlanes(const StoredObject& object);
// Whether these can be the parameters of byte planes of such elements. kDataLoss.
Status CheckPlaneParameters(const CodecParameters& parameters, const ElementType& element);
// Whether an object can have byte planes. kInvalidArgument.
Status CheckPlanes(std::string_view format, std::size_t components, std::string_view role,
                   const Value::Map& attributes);
// A tensor with byte planes as the object that a 1.2 file has for it.
StatusOr<StoredObject> ToPlanes(const StoredObject& object);

}  // namespace zt::format::internal
