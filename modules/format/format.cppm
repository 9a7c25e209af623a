// zt.format — bytes <-> manifest model of every .zt version. No I/O: this is what gets fuzzed.
module;

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

export module zt.format;

export import :data;
import zt.compress;
import zt.core;

export namespace zt {

// ---- versions ------------------------------------------------------------------------------------------------

// k1_0 is the dialect 1.0.x writers produced between 0.1 and 1.1; it can be read, not written.
enum class SpecVersion : std::uint8_t { k0_1, k1_0, k1_1, k1_2 };

// What a version fixes about the container (1.2 §4). Writers and readers take these from here, never from constants of
// their own, so that a version with another alignment or footer is a new row.
struct ContainerTraits {
  SpecVersion version;            // which row this is
  std::string_view text;          // "1.2.0": what the manifest's `version` says
  std::string_view header_magic;  // 8 bytes at offset 0
  std::string_view footer_magic;  // 8 bytes at the end, or empty
  std::uint64_t alignment;        // every blob's offset is a multiple
  bool writable;                  // whether EncodeManifest writes it
};
// The row of a version. Static.
const ContainerTraits& Traits(SpecVersion version);
// "1.2", "1.2.0", "1.1", "0.1" ...: nothing for others.
std::optional<SpecVersion> ParseSpecVersion(std::string_view text);

// The largest manifest that is read or written, in bytes (every 1.x spec, §5).
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;
// The deepest nesting of maps, arrays and tags, the root included.
inline constexpr std::size_t kMaxNesting = 64;
// All values in all attributes of one manifest: a byte of CBOR can become a Value of 40, so that a manifest of
// nothing else must not fill the memory.
inline constexpr std::size_t kMaxAttributeValues = std::size_t{1} << 24;

// ---- the model -----------------------------------------------------------------------------------------------

// A component as stored: what it is and where its blob lies (1.2 §1 "Component").
struct StoredComponent {
  std::string role;                    // "data", "values", ...
  ElementType element;                 // of the decoded bytes
  std::uint64_t offset = 0;            // absolute, in bytes
  std::uint64_t length = 0;            // bytes on disk
  Encoding encoding = Encoding::kRaw;  // of the stored bytes (1.2 §1 "encoding")
  // Bytes after decoding: equal to `length` when raw. For zstd the manifest's uncompressed_length; where the
  // version has no such field (1.1, 0.1) it follows from the shape, or is kUnknownSize where nothing says.
  std::uint64_t decoded_bytes = 0;
  std::string digest;               // "algorithm:hex" as in the manifest, empty where there is none
  bool big_endian = false;          // 0.1.0 `data_endianness: big` on raw data
  CodecParameters parameters = {};  // what the codec of `encoding` asks for
};

// An object as stored: Object with components that lie somewhere (1.2 §1 "Object").
struct StoredObject {
  std::string name;                         // unique in the file
  std::string format = "dense";             // how the components combine
  Shape shape;                              // logical, in elements
  Value::Map attributes;                    // in 0.1.0: custom fields of the entry
  std::vector<StoredComponent> components;  // in the order of the manifest
};

// What a file says of itself (1.2 §1 "Manifest"). Plain data: as DecodeManifest found it, or as EncodeManifest is to
// write it.
struct Manifest {
  SpecVersion version = SpecVersion::k1_2;  // what its rules are
  std::string version_text;                 // as written in the file, "" for 0.1.0
  Value::Map attributes;                    // of the whole file
  std::vector<StoredObject> objects;        // in the order of the manifest
};

// The declaration a stored object stands for.
Object Declare(const StoredObject& object);

// ---- finding and decoding ------------------------------------------------------------------------------------

// Where the manifest lies, as the end of the file says.
struct Trailer {
  SpecVersion family =
      SpecVersion::k1_2;              // k1_2 for any ZTEN1000 footer; DecodeManifest refines it
  std::uint64_t manifest_offset = 0;  // also the end of the data region
  std::uint64_t manifest_bytes = 0;   // its size, at most kMaxManifestBytes
};
// Reads the magics and the size of the manifest (1.2 §5, steps 1 to 4). `head` is the file's first 8 bytes, `tail`
// its last 16 (or all there are). kDataLoss where they are no .zt file's, or the manifest would not fit the file.
StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes);

// True where `head` (at least 8 bytes) begins like a .zt file of any version.
bool LooksLikeZt(std::span<const std::byte> head);

// Decodes a manifest (1.2 §1, §5) and checks all that needs no other byte of the file: CBOR within limits, required
// fields, kinds, the version, known dtypes and encodings, no key twice, names valid UTF-8 and unique, digests well
// formed. Unknown fields are ignored, as the version policy asks. Errors are kDataLoss (kUnimplemented for a newer
// major version) and name the object.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family);

// Checks the layout (1.2 §3 to §5): every blob aligned, within [header, data_end), blobs disjoint or identical, raw
// lengths and decoded sizes as shape and dtype ask, component sets of the known formats, index dtypes of the version.
Status CheckLayout(const Manifest& manifest, std::uint64_t data_end);

// ---- encoding ------------------------------------------------------------------------------------------------

// Whether `version` can hold this declaration with this encoding and digest; the message says what it cannot say
// and does not name the object. Asked of every object before the first byte is written. kInvalidArgument.
Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version);
// The same for the attributes of the file.
Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version);

// The limit on all attribute values of one manifest (kMaxAttributeValues), as decoding counts them.
class AttributeBudget {
 public:
  // Takes what a map of attributes costs; kInvalidArgument where that is more than is left.
  Status Take(const Value::Map& attributes);

 private:
  std::uint64_t left_ = kMaxAttributeValues;
};

// Deterministic CBOR (RFC 8949 §4.2.1): definite lengths, shortest heads and floats, maps sorted by encoded key.
// Equal manifests give equal bytes. 0.1.0 keeps the order of `objects` in its array. What is empty or the default
// is left out: attributes, type, digest, encoding "raw".
StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version);

// EncodeManifest object by object: what is kept of one is its encoded entry, some hundred bytes where a StoredObject of
// one component takes four times that. Not thread-safe.
class ManifestEncoder {
 public:
  // Of an empty manifest. `version` must be writable.
  explicit ManifestEncoder(SpecVersion version);

  // Appends an entry. After an error the others are as they were; the message does not name the object.
  Status Add(const StoredObject& object);
  // One more entry, after all others: that of the object added as number `index`, under another name. The object may
  // be added later.
  void AddAlias(std::string name, std::size_t index);
  // The manifest. Fails where a name occurs twice.
  StatusOr<std::vector<std::byte>> Finish(const Value::Map& attributes) const;

 private:
  // Where an entry's parts lie in its block: the name's text, and what is encoded before and after it.
  struct Entry {
    std::uint32_t block, name, head, tail, end;
    std::uint32_t values;  // in its attributes
  };
  struct Alias {
    std::string name;
    std::size_t index;
  };
  struct Line {
    std::string_view name;
    const Entry* entry;
  };
  std::vector<std::byte>& RoomyBlock();
  std::span<const std::byte> Part(const Entry& entry, std::uint32_t begin, std::uint32_t end) const;
  StatusOr<std::vector<Line>> Lines() const;

  SpecVersion version_;
  std::deque<std::vector<std::byte>> blocks_;
  std::vector<Entry> entries_;
  std::vector<Alias> aliases_;
  std::uint64_t bytes_ = 0, values_ = 0;
};

// What follows the manifest (1.2 §4): its size as u64 LE, then the footer magic where the version has one.
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_bytes, SpecVersion version);

// One value, deterministically. Every NaN becomes the one of two bytes. Fails on a key twice or text that is not UTF-8.
StatusOr<std::vector<std::byte>> EncodeCbor(const Value& value);
// One value and nothing after it; nesting, sizes and kinds limited as for manifests. Tags, undefined and keys that
// are no text are refused, as in attributes: a Value cannot hold them, and dropping them would lose data silently.
StatusOr<Value> DecodeCbor(std::span<const std::byte> bytes);

}  // namespace zt

// Shared by the bodies, not exported.
namespace zt::format::internal {

// A storage dtype as `version` spells it, or nothing: "f32" and, in 1.1, "f8_e4m3"; "float32" in 0.1 and 1.0.
std::optional<ElementType> ParseSpelling(std::string_view text, SpecVersion version);
// The `dtype` text for `element`, or nothing where the version cannot say it. 1.2 says `type` in a field of its own.
std::optional<std::string_view> Spell(const ElementType& element, SpecVersion version);
// As sparse_csr and sparse_coo name them: "indices", "indptr", "coords".
bool IsIndexRole(std::string_view format, std::string_view role);
// What `version` asks of an object's components beyond ValidateObject.
Status CheckRoles(const Object& object, SpecVersion version);
// A component's decoded size where only the shape can tell (1.1 and 0.1 zstd): kUnknownSize where it cannot, or
// where the shape overflows, which CheckLayout reports.
std::uint64_t SizeFromShape(const StoredObject& object, const StoredComponent& component);
// OK where `digest` is "algorithm:value" and the value fits the algorithm, if it is a known one.
Status CheckDigestForm(std::string_view digest);
// The one among `keys` that occurs twice, if any. O(n log n) whatever the keys.
std::optional<std::string_view> FindTwice(std::span<const std::string_view> keys);
// A map's keys, in the order of its members.
std::vector<std::string_view> Keys(const Value::Map& map);
// Fields of a 0.1.0 entry; a custom field cannot have such a name.
bool IsReservedField01(std::string_view key);

// Decodes the value at `*position`, which moves behind it. `depth` is how many containers may still nest, `*budget`
// how many values may still be made.
StatusOr<Value> ReadValue(std::span<const std::byte> bytes, std::size_t* position,
                          std::size_t depth, std::size_t* budget);
// Of a 1.2 file: an object of byte planes becomes the dense tensor that it stands for, with Encoding::kPlanes. Others are
// left as they are. kDataLoss where it breaks a rule of the profile (docs/PLANES.md).
Status FromPlanes(StoredObject& object);
// True where a component is stored in byte planes.
bool HasPlanes(const StoredObject& object);
// Whether `version` can hold an object with byte planes. kInvalidArgument.
Status CheckPlanes(std::string_view format, std::size_t components, std::string_view role,
                   const Value::Map& attributes, SpecVersion version);
// A tensor with byte planes as the object that a 1.2 file has for it.
StatusOr<StoredObject> ToPlanes(const StoredObject& object, SpecVersion version);

// Appends `value`, or fails where it nests deeper than `depth`, has a key twice or text that is not UTF-8.
Status AppendValue(const Value& value, std::size_t depth, std::vector<std::byte>* out);
Status AppendMap(const Value::Map& map, std::size_t depth, std::vector<std::byte>* out);
// How many values decoding a map of attributes makes, itself included; 0 for an empty one, which is not written. Stops
// beyond kMaxAttributeValues.
std::uint64_t CountValues(const Value::Map& attributes);
// What is said where there are more than kMaxAttributeValues.
Status TooManyValues();

}  // namespace zt::format::internal
