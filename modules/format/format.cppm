// zt.format — bytes <-> manifest model of every .zt version. No I/O: this is what gets fuzzed.
export module zt.format;

import zt.std;
export import :data;
export import :files;
export import :model;
import zt.compress;
import zt.core;
import zt.digest;

export namespace zt {

// The row of a version. Static.
const ContainerTraits& Traits(SpecVersion version);
// "1.2", "1.2.0", "1.1", "0.1" ...: nothing for others.
std::optional<SpecVersion> ParseSpecVersion(std::string_view text);

// The declaration a stored object stands for.
Object Declare(const StoredObject& object);

// ---- finding and decoding ------------------------------------------------------------------------------------

// LocateManifest is given so many bytes from the end of a file, or all where it has fewer.
inline constexpr std::size_t kTailBytes = 40;
// Reads the magics and the size of the manifest (1.2 §5, steps 1 to 4). `head` is the file's first 8 bytes, `tail`
// its last kTailBytes (or all there are). kDataLoss where they are no .zt file's, or the manifest would not fit the file.
StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes);

// True where `head` (at least 8 bytes) begins like a .zt file of any version.
bool LooksLikeZt(std::span<const std::byte> head);

// Decodes a manifest (1.2 §1, §5) and checks all that needs no other byte of the file: CBOR within limits, required
// fields, kinds, the version, known dtypes and encodings, no key twice, names valid UTF-8 and unique, digests well
// formed. Unknown fields are ignored, as the version policy asks. Errors are kDataLoss (kUnimplemented for a newer
// major version) and name the object.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family);
// The same of the manifest that `trailer` found, whose guard is checked first where the version has one.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, const Trailer& trailer);

// Checks the layout (1.2 §3 to §5): every blob aligned, within [header, data_end), blobs disjoint or identical, raw
// lengths and decoded sizes as shape and dtype ask, component sets of the known formats, index dtypes of the version.
Status CheckLayout(const Manifest& manifest, std::uint64_t data_end);
// What that asks of one object, wherever its blobs lie. The message names the component, not the object.
Status CheckStored(const StoredObject& object, SpecVersion version);
// The most bytes that a frame of so much content may have and still be read on its own. Encoders that flush often make
// larger ones than those that are given all at once.
std::uint64_t MostOfFrame(const Codec& codec, std::uint64_t content);
// Checks where the frames of an encoded component lie: as its parameters say, and as the version asks
// (ContainerTraits::equal_frames). Without a table of frames there are none. kDataLoss.
Status CheckFrames(const StoredComponent& component, const ContainerTraits& traits,
                   std::optional<std::span<const Frame>> frames);
// What a version asks of the bytes of each frame beyond its codec (ContainerTraits::equal_frames). kDataLoss.
Status CheckFrameBytes(const ContainerTraits& traits, std::span<const std::byte> frame);

// The content digest of a 2.0 file (§6.4), "algorithm:hex", from the bytes of its manifest: the same for a model however it
// is laid out, compressed or split. kInvalidArgument where a part has no digest, or `kind` is kNone.
StatusOr<std::string> ContentDigest(std::span<const std::byte> manifest, DigestKind kind);

// What keeps a file of version 2.0 from being canonical; names are empty where it is the file's.
struct CanonicalFault {
  std::string object, component, message;
};
// Whether `bytes` bytes at one offset of the file are those at another.
using SameBytes =
    std::function<StatusOr<bool>(std::uint64_t a, std::uint64_t b, std::uint64_t bytes)>;
// Encodes the manifest that lies at `offset` again as that of a canonical file (2.0 §6.3), and compares: the first difference,
// or nullopt. The digests in it are taken for right.
StatusOr<std::optional<CanonicalFault>> FindCanonicalFault(std::span<const std::byte> manifest,
                                                           std::uint64_t offset,
                                                           const SameBytes& same);

// True where `text` is in Unicode Normalization Form C, as all names of a canonical file are (2.0 §6.3).
bool IsNormalized(std::string_view text);

// ---- encoding ------------------------------------------------------------------------------------------------

// Whether components can be stored so in a file of `version`. kInvalidArgument.
Status CheckEncoding(Encoding encoding, SpecVersion version);
// Whether it has such digests. kInvalidArgument.
Status CheckDigest(DigestKind kind, SpecVersion version);
// Whether `version` can hold this declaration with this encoding and digest; the message says what it cannot say
// and does not name the object. Asked of every object before the first byte is written. kInvalidArgument.
Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version);
// The same for the attributes of the file.
Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version);

// The limit on all attribute values of one manifest (kMaxAttributeValues), as decoding counts them.
class AttributeBudget {
 public:
  // Takes what a map of attributes costs; kUnimplemented where that is more than is left.
  Status Take(const Value::Map& attributes);

 private:
  std::uint64_t left_ = kMaxAttributeValues;
};

// Deterministic CBOR (RFC 8949 §4.2.1): definite lengths, shortest heads and floats, maps sorted by encoded key.
// Equal manifests give equal bytes. 0.1.0 keeps the order of `objects` in its array. What is empty or the default
// is left out: attributes, type, digest, encoding "raw".
StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version);

// A manifest in parts, most of which are the encoder's that made it, and valid until that is added to or dropped.
struct EncodedManifest {
  EncodedManifest() = default;
  EncodedManifest(EncodedManifest&&) = default;  // no copy: its parts would be those of the other
  EncodedManifest& operator=(EncodedManifest&&) = default;

  std::vector<std::span<const std::byte>> parts;
  std::uint64_t bytes = 0;  // of all parts
  // What the encoder does not hold: head, tail, names of aliases.
  std::deque<std::vector<std::byte>> own;

  // The parts in one piece.
  std::vector<std::byte> Joined() const;
};

// The bytes that a manifest has for one object: their size, and where the name stands in them.
struct EncodedEntry {
  std::uint32_t bytes = 0;             // of the whole
  std::uint32_t name = 0;              // how far on the name's own bytes are
  std::uint32_t name_bytes = 0;        // how many they are
  std::uint64_t attribute_values = 0;  // see kMaxAttributeValues
};

// EncodeManifest object by object: what is kept of one is its encoded entry, some hundred bytes where a StoredObject of
// one component takes four times that. They are never put together: a million make a hundred megabytes. Not thread-safe, but
// for Encode, which several threads may call while one adds objects.
class ManifestEncoder {
 public:
  // Of an empty manifest. `version` must be writable.
  explicit ManifestEncoder(SpecVersion version);

  // Names another file that holds blobs: StoredComponent::shard of what is added from now on counts it. kInvalidArgument
  // where the version has none of that kind.
  Status AddShard(const StoredShard& shard);
  // Appends an entry. After an error the others are as they were; the message does not name the object.
  Status Add(const StoredObject& object);
  // Add in two steps. Encode appends the bytes of an entry to `out`. Add takes them, of an entry that this encoder has made;
  // AddShard must not come between the two.
  StatusOr<EncodedEntry> Encode(const StoredObject& object, std::vector<std::byte>* out) const;
  Status Add(const EncodedEntry& entry, std::span<const std::byte> bytes);
  // One more entry, after all others: that of the object added as number `index`, under another name. The object may
  // be added later.
  void AddAlias(std::string name, std::size_t index);
  // The manifest. Fails where a name occurs twice.
  StatusOr<EncodedManifest> Finish(const Value::Map& attributes) const;

 private:
  // Where an entry begins, as if all blocks had the least size, and where the text of its name is. With a million entries
  // every byte counts: names that are far on or long have kFar in both fields, and their places in far_.
  struct Entry {
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
  // All bytes of an entry; it ends where the next begins.
  std::span<const std::byte> BytesOf(std::size_t entry) const;
  // Lines are the entries, and the aliases after them.
  std::size_t EntryOf(std::size_t line) const;
  std::string_view NameOf(std::size_t line) const;
  NamePlace PlaceOfName(std::size_t entry) const;
  StatusOr<std::vector<std::uint32_t>> Order() const;

  SpecVersion version_;
  std::deque<std::vector<std::byte>> blocks_;
  std::deque<Entry> entries_;                                 // which grows without a second copy
  std::unordered_map<std::size_t, NamePlace> far_;            // of entries
  std::unordered_map<std::size_t, std::uint64_t> values_of_;  // in the attributes of an entry
  std::vector<Alias> aliases_;
  std::vector<StoredShard> shards_;
  std::uint64_t bytes_ = 0, values_ = 0;
};

// What follows a manifest at `manifest_offset`. In 1.x (1.2 §4): its size as u64 LE, then the footer magic where the
// version has one.
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset, ManifestParts manifest,
                                    SpecVersion version);
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_offset,
                                    std::span<const std::byte> manifest, SpecVersion version);

// One value, deterministically. Every NaN becomes the one of two bytes. Fails on a key twice or text that is not UTF-8.
StatusOr<std::vector<std::byte>> EncodeCbor(const Value& value);
// One value and nothing after it; nesting, sizes and kinds limited as for manifests. Tags, undefined and keys that
// are no text are refused, as in attributes: a Value cannot hold them, and dropping them would lose data silently.
StatusOr<Value> DecodeCbor(std::span<const std::byte> bytes);

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::format::internal {

// The elements of a sparse object, from the size of its indices; nullopt where that is unknown.
std::optional<std::uint64_t> CountElements(const Object& object);
// The shape in elements of a dense tensor of 4-bit ones, whose own shape counts bytes: 1.x keeps it in an attribute. nullopt
// where that is missing, or no shape of so many bytes.
std::optional<Shape> LogicalShape(const Object& object);
// A component's decoded size where only the shape can tell (1.1 and 0.1 zstd): kUnknownSize where it cannot, or
// where the shape overflows, which CheckLayout reports.
std::uint64_t SizeFromShape(const StoredObject& object, const StoredComponent& component);

// Decodes the value at `*position`, which moves behind it. `depth` is how many containers may still nest, `*budget`
// how many values may still be made.
StatusOr<Value> ReadValue(std::span<const std::byte> bytes, std::size_t* position,
                          std::size_t depth, std::size_t* budget);
// How many values decoding a map of attributes makes, itself included; 0 for an empty one, which is not written. Stops
// beyond kMaxAttributeValues.
std::uint64_t CountValues(const Value::Map& attributes);
// What is said where there are more than kMaxAttributeValues.
Status TooManyValues();

}  // namespace zt::format::internal
