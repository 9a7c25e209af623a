// zt.format:dialect — a version of the container: finds, decodes and encodes its manifest. Internal
// to the module.
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

// One object for each version. All differences between versions are in the traits or in a virtual
// function. To add a version, add a file with a derived class, a value of SpecVersion and a line in
// versions.cc. Thread-safe.
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

  // Finds the manifest of a file that begins with header_magic. `tail` is the last kTailBytes of
  // the file, or all of a smaller file.
  virtual StatusOr<Trailer> Locate(std::span<const std::byte> tail,
                                   std::uint64_t file_bytes) const = 0;
  // See DecodeManifest.
  virtual StatusOr<Manifest> Decode(std::span<const std::byte> bytes) const = 0;
  // The version's checks beyond the common rules of 1.2: CheckStored of a component's element type,
  // CheckComplete of an object whose components are valid. Messages name neither. kDataLoss.
  virtual Status CheckStored(const StoredObject& object, const StoredComponent& component) const;
  virtual Status CheckComplete(const Object& object) const;
  // All checks of one object: zt::CheckStored for this version. `declared` is reused scratch space.
  Status CheckAlone(const StoredObject& object, Object* declared) const;
  // Fails unless the blob is aligned and ends at `data_end` or before. kDataLoss.
  Status CheckBlobRange(std::uint64_t offset, std::uint64_t length, std::uint64_t data_end) const;
  // See CheckLayout.
  Status CheckLayout(const Manifest& manifest, std::uint64_t data_end) const;
  // Adds the section of the specification to the message, in a version whose messages name it.
  virtual Status Cite(const Status& status, std::string_view) const { return status; }

  // Parses a component's `dtype`; nullopt if the version does not have it.
  virtual std::optional<ElementType> ParseElement(std::string_view dtype) const;

  // ---- writing ----

  // See zt::CheckEncoding.
  virtual Status CheckEncoding(Encoding encoding) const;
  // See zt::CheckDigest.
  virtual Status CheckDigest(DigestKind) const { return OkStatus(); }
  // See zt::CheckName.
  virtual Status CheckName(std::string_view name) const;
  // See CheckExpressible. The object itself is valid.
  virtual Status CheckObject(const Object& object, Encoding encoding,
                             std::string_view digest) const = 0;
  virtual Status CheckRoot(const Value::Map& attributes) const;
  // Fails if a manifest cannot refer to this file for blobs.
  virtual Status CheckShard(const StoredShard& shard) const;
  // Appends an object's entry. Sets `*name_at` to the position of the name's text, and adds the
  // number of values that decoding creates to `*values` (kMaxAttributeValues).
  // StoredComponent::shard is an index into `shards`, plus 1.
  virtual Status AppendEntry(const StoredObject& object, std::span<const StoredShard> shards,
                             Bytes* out, std::size_t* name_at, std::uint64_t* values) const = 0;
  // True if entries are sorted as deterministic map keys; false if they keep the order in which
  // they were added.
  virtual bool SortsEntries() const { return true; }
  // Append what precedes and follows the `entries` entries.
  virtual Status AppendHead(std::size_t entries, const Value::Map& attributes,
                            std::span<const StoredShard> shards, Bytes* out) const = 0;
  virtual Status AppendTail(const Value::Map& attributes, Bytes* out) const = 0;
  // See EncodeFooter.
  virtual std::vector<std::byte> Footer(std::uint64_t offset, ManifestParts manifest) const = 0;

 private:
  const ContainerTraits& traits_;
};

// The dialect of a version. Static.
const Dialect& DialectOf(SpecVersion version);
// Each is defined in its own file.
const Dialect& Dialect01();
const Dialect& Dialect1x(SpecVersion version);
const Dialect& Dialect20();

// ---- what several dialects share ----

// Nesting depth of the file's attributes: root.
inline constexpr std::size_t kRootDepth = 1;
// Nesting depth of an object's attributes: root, objects, object.
inline constexpr std::size_t kObjectDepth = 3;

bool IsMagic(std::span<const std::byte> bytes, std::string_view magic);
// Finds a manifest that is followed by its size as u64 LE and `magic`, at the end of the file.
StatusOr<Trailer> LocateBySize(SpecVersion family, std::string_view magic,
                               std::span<const std::byte> tail, std::uint64_t file_bytes);
// The total size of the parts.
std::uint64_t BytesOf(ManifestParts manifest);
// The size of a manifest, followed by the magic.
std::vector<std::byte> SizeFooter(std::uint64_t manifest_bytes, std::string_view magic);

// Long names, of 0.1 and 1.0: "float32".
std::optional<ElementType> ParseLongName(std::string_view text);
std::optional<std::string_view> LongName(const ElementType& element);

// Appends `value`. Fails if it nests deeper than `depth`, repeats a key or has text that is not
// UTF-8.
Status AppendValue(const Value& value, std::size_t depth, Bytes* out);
Status AppendMap(const Value::Map& map, std::size_t depth, Bytes* out);
// Checks that attributes inside `depth` containers can be written.
Status CheckAttributes(const Value::Map& attributes, std::size_t depth);
// Appends the key "attributes" and the map, unless the map is empty.
Status AppendAttributes(const Value::Map& attributes, std::size_t depth, Bytes* out);
// Checks that the names of an object are UTF-8 and that it has components.
Status CheckTexts(const StoredObject& object);
// The indices of `keys` in the order of a deterministic map. Fails on a duplicate key.
StatusOr<InlinedVector<std::size_t, 4>> KeyOrder(std::span<const std::string_view> keys);
// Appends the key "shape" and the array of dimensions.
void AppendShape(const Shape& shape, Bytes* out);

// Appends the entry of an object in 2.0's terms. `stored` are its components, in the same order.
Status AppendEntryV2(const Object& said, std::span<const StoredComponent> stored,
                     std::span<const StoredShard> shards, Bytes* out);
// Converts an object of the model to 2.0: to the equivalent layout, else unchanged to one of our
// vendor layouts. kInvalidArgument if neither can hold it.
StatusOr<Object> ToV2(Object object);
// Converts an object of a 2.0 manifest to the model. An object of an unknown layout stays
// unchanged. So does one that uses our vendor names but breaks the model's rules; its components
// become undecodable.
StatusOr<StoredObject> FromV2(StoredObject object);

// Converts an object of 1.2's byte planes format to the dense tensor it represents, with
// Encoding::kPlanes. Leaves other objects unchanged. kDataLoss if it breaks a rule of the profile
// (docs/PLANES.md).
Status FromPlanes(StoredObject& object);
// True if a component is stored in byte planes.
bool HasPlanes(const StoredObject& object);
// Validates the parameters of byte planes for elements of this type. kDataLoss.
Status CheckPlaneParameters(const CodecParameters& parameters, const ElementType& element);
// Checks that an object can be stored in byte planes. kInvalidArgument.
Status CheckPlanes(std::string_view format, std::size_t components, std::string_view role,
                   const Value::Map& attributes);
// Converts a tensor with byte planes to the object that represents it in a 1.2 file.
StatusOr<StoredObject> ToPlanes(const StoredObject& object);

}  // namespace zt::format::internal
