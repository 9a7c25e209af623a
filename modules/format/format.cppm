// zt.format — converts between bytes and the manifest model of every .zt version. Does no I/O; the
// fuzzers run this code.
export module zt.format;

import zt.std;
export import :data;
export import :files;
export import :model;
import zt.compress;
import zt.core;
import zt.digest;

export namespace zt {

// The traits of a version. Static.
const ContainerTraits& Traits(SpecVersion version);
// Parses "1.2", "1.2.0", "1.1", "0.1" ...; nullopt for anything else.
std::optional<SpecVersion> ParseSpecVersion(std::string_view text);

// The declaration of a stored object.
Object Declare(const StoredObject& object);
// The same without the attributes, which may be large.
Object DeclareWithoutAttributes(const StoredObject& object);

// ---- finding and decoding -----------------------------------------------------------------------

// LocateManifest reads this many bytes from the end of a file, or all of a smaller file.
inline constexpr std::size_t kTailBytes = 40;
// Reads the magics and the size of the manifest (1.2 §5, steps 1 to 4). `head` is the file's first
// 8 bytes, `tail` its last kTailBytes (or all of a smaller file). kDataLoss if this is not a .zt
// file or the manifest does not fit the file.
StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes);

// True if `head` (at least 8 bytes) begins like a .zt file of any version.
bool LooksLikeZt(std::span<const std::byte> head);

// Decodes a manifest (1.2 §1, §5) and validates everything that needs no other byte of the file:
// CBOR within limits, required fields, kinds, the version, known dtypes and encodings, unique keys,
// names that are UTF-8 and unique, well-formed digests. Ignores unknown fields, as the version
// policy requires. Errors are kDataLoss (kUnimplemented for a newer major version) and name the
// object.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family);
// The same for the manifest that `trailer` describes. Verifies its hash first, if the version has
// one.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, const Trailer& trailer);

// Validates the layout (1.2 §3 to §5): every blob is aligned and within [header, data_end), blobs
// are disjoint or identical, raw lengths and decoded sizes match shape and dtype, known formats
// have their components, indices have a dtype of the version, paths of files keep the rules.
Status CheckLayout(const Manifest& manifest, std::uint64_t data_end);
// The part of CheckLayout that concerns one object, wherever its blobs lie. The message names the
// component, not the object.
Status CheckStored(const StoredObject& object, SpecVersion version);
// Limit on the stored size of a frame with `content` bytes of content, if it is to be decoded
// alone. Encoders that flush often produce larger frames than those that get the content at once.
std::uint64_t MostOfFrame(const Codec& codec, std::uint64_t content);
// Validates the frames of an encoded component against its parameters and the version. nullopt
// means that it has no table of frames, an error if the version requires equal frames
// (ContainerTraits::equal_frames). kDataLoss.
Status CheckFrames(const StoredComponent& component, const ContainerTraits& traits,
                   std::optional<std::span<const Frame>> frames);
// A version's checks of a frame's bytes beyond its codec's (ContainerTraits::equal_frames).
// kDataLoss.
Status CheckFrameBytes(const ContainerTraits& traits, std::span<const std::byte> frame);

// The content digest of a 2.0 file (§6.4), "algorithm:hex", from the bytes of its manifest. It does
// not depend on layout, compression or shards. With `keep`, that of a file of the objects alone for
// whose names it is true. kInvalidArgument if a part has no digest, or `kind` is kNone.
StatusOr<std::string> ContentDigest(std::span<const std::byte> manifest, DigestKind kind,
                                    const std::function<bool(std::string_view)>& keep = nullptr);

// A reason why a file of version 2.0 is not canonical; the names are empty if it concerns the file.
struct CanonicalFault {
  std::string object, component, message;
};
// A digest of a range of the file that nobody can forge. Called once a range, for those alone that
// have one size and one xxh3 digest: contents can be made for which the latter is equal.
using StrongDigest =
    std::function<StatusOr<std::string>(std::uint64_t offset, std::uint64_t bytes)>;
// Encodes the manifest at `offset` again as that of a canonical file (2.0 §6.3) and compares: the
// first difference, or nullopt. Assumes that its digests are correct.
StatusOr<std::optional<CanonicalFault>> FindCanonicalFault(std::span<const std::byte> manifest,
                                                           std::uint64_t offset,
                                                           const StrongDigest& strong);

// True if `text` is in Unicode Normalization Form C, as all names of a canonical file are (2.0
// §6.3).
bool IsNormalized(std::string_view text);

// ---- encoding -----------------------------------------------------------------------------------

// Checks that a file of `version` can have components of this encoding. kInvalidArgument.
Status CheckEncoding(Encoding encoding, SpecVersion version);
// Checks that `version` has digests of this kind. kInvalidArgument.
Status CheckDigest(DigestKind kind, SpecVersion version);
// Checks that an object, or an alias of one, can have this name. kInvalidArgument.
Status CheckName(std::string_view name, SpecVersion version);
// Checks that `version` can express this declaration with this encoding and digest. The writer asks
// this of every object before it writes a byte. The message names what cannot be expressed, not the
// object. kInvalidArgument.
Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version);
// The same for the attributes of the file.
Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version);

// Counts the attribute values of one manifest, as decoding does, against kMaxAttributeValues.
class AttributeBudget {
 public:
  // Subtracts the values of one map; kUnimplemented if fewer are left.
  Status Take(const Value::Map& attributes);

 private:
  std::uint64_t left_ = kMaxAttributeValues;
};

// Deterministic CBOR (RFC 8949 §4.2.1): definite lengths, shortest heads and floats, maps sorted by
// encoded key. Equal manifests give equal bytes. 0.1.0 keeps the order of `objects` in its array.
// Empty and default fields are omitted: attributes, type, digest, encoding "raw".
StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version);

// A manifest in parts. Most of them point into the encoder that made it, and are valid until the
// encoder is changed or destroyed.
struct EncodedManifest {
  EncodedManifest() = default;
  // Movable only: `parts` may point into `own`.
  EncodedManifest(EncodedManifest&&) = default;
  EncodedManifest& operator=(EncodedManifest&&) = default;

  std::vector<std::span<const std::byte>> parts;
  std::uint64_t bytes = 0;  // of all parts
  // Bytes that the encoder does not hold: head, tail, names of aliases.
  std::deque<std::vector<std::byte>> own;

  // The concatenated parts.
  std::vector<std::byte> Joined() const;
};

// An object's manifest entry, and the place of the name in it.
struct EncodedEntry {
  std::vector<std::byte> bytes;
  std::size_t name = 0, name_bytes = 0;  // of the name's text
  std::uint64_t attribute_values = 0;    // see kMaxAttributeValues
};

// EncodeManifest object by object. Keeps only each object's encoded entry of some hundred bytes; a
// StoredObject with one component takes four times that. The entries are never joined, since a
// million are a hundred megabytes. Not thread-safe, but several threads may Encode while one adds
// objects.
class ManifestEncoder {
 public:
  // Starts an empty manifest. `version` must be writable.
  explicit ManifestEncoder(SpecVersion version);

  // Adds a file that holds blobs; StoredComponent::shard of objects added later counts it.
  // kInvalidArgument if the version has no shards.
  Status AddShard(const StoredShard& shard);
  // Appends an entry. An error leaves the existing entries unchanged; the message does not name the
  // object.
  Status Add(const StoredObject& object);
  // Add in two steps. AddShard must not be called between them.
  StatusOr<EncodedEntry> Encode(const StoredObject& object) const;
  Status Add(const EncodedEntry& entry);
  // Adds an entry after all others: a copy of the entry of object number `index` with another name.
  // The object may be added later.
  void AddAlias(std::string name, std::size_t index);
  // The manifest. Fails on a duplicate name.
  StatusOr<EncodedManifest> Finish(const Value::Map& attributes) const;

 private:
  // The offset of an entry, counted as if every block had kBlockBytes, and the place of its name.
  // With a million entries every byte counts: if the name's offset or length does not fit, both
  // fields are kFar and far_ has them.
  struct EntryPlace {
    std::uint32_t place;
    std::uint16_t name, name_bytes;
  };
  static constexpr std::uint16_t kFar = 0xffff;
  struct NamePlace {
    std::uint32_t name, bytes;
  };
  struct Alias {
    std::string name;
    std::size_t index;
  };
  std::vector<std::byte>& RoomyBlock();
  // The bytes of an entry, which ends where the next begins.
  std::span<const std::byte> BytesOf(std::size_t entry) const;
  // A line is an entry or, after all entries, an alias.
  std::size_t EntryOf(std::size_t line) const;
  std::string_view NameOf(std::size_t line) const;
  NamePlace PlaceOfName(std::size_t entry) const;
  StatusOr<std::vector<std::uint32_t>> Order() const;

  SpecVersion version_;
  std::deque<std::vector<std::byte>> blocks_;
  std::deque<EntryPlace> entries_;                  // a deque grows without a second copy
  std::unordered_map<std::size_t, NamePlace> far_;  // name places, by entry
  // The number of attribute values, by entry.
  std::unordered_map<std::size_t, std::uint64_t> values_of_;
  std::vector<Alias> aliases_;
  std::vector<StoredShard> shards_;
  std::uint64_t bytes_ = 0, values_ = 0;
};

// The bytes after a manifest at `manifest_offset`. In 1.x (1.2 §4): its size as u64 LE, then the
// footer magic if the version has one.
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset, ManifestParts manifest,
                                    SpecVersion version);
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset,
                                    std::span<const std::byte> manifest, SpecVersion version);

// Encodes one value deterministically. Every NaN becomes the one of two bytes. Fails on a duplicate
// key or text that is not UTF-8.
StatusOr<std::vector<std::byte>> EncodeCbor(const Value& value);
// Decodes one value with nothing after it, with the limits of manifests on nesting, sizes and
// kinds. Refuses tags, undefined and keys that are not text, as in attributes: a Value cannot hold
// them, and dropping them would lose data silently.
StatusOr<Value> DecodeCbor(std::span<const std::byte> bytes);

}  // namespace zt

// Shared by the implementation files, not exported.
namespace zt::format::internal {

// The number of elements of a sparse object, from the size of its indices; nullopt if that is
// unknown.
std::optional<std::uint64_t> CountElements(const Object& object);
// The shape in elements of a dense tensor of 4-bit elements, whose own shape counts bytes: 1.x
// keeps it in an attribute. nullopt if the attribute is missing or does not match the shape.
std::optional<Shape> LogicalShape(const Object& object);
// A component's decoded size where it follows only from the shape (1.1 and 0.1 zstd). kUnknownSize
// if it does not, or if the shape overflows, which CheckLayout reports.
std::uint64_t SizeFromShape(const StoredObject& object, const StoredComponent& component);

// Decodes the value at `*position` and moves `*position` behind it. `depth` is the number of
// containers that may still nest, `*budget` the number of values that may still be created.
StatusOr<Value> ReadValue(std::span<const std::byte> bytes, std::size_t* position,
                          std::size_t depth, std::size_t* budget);
// The number of values that decoding a map of attributes creates, itself included; 0 for an empty
// map, which is not written. Stops counting beyond kMaxAttributeValues.
std::uint64_t CountValues(const Value::Map& attributes);
// The error for more than kMaxAttributeValues values.
Status TooManyValues();

}  // namespace zt::format::internal
