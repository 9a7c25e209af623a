// zt.format — bytes <-> manifest model of every .zt version. No I/O: this is what gets fuzzed.
module;

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

export module zt.format;

import zt.core;

export namespace zt {

// ---- versions ------------------------------------------------------------------------------------------------

// k1_0 is the dialect 1.0.x writers produced between 0.1 and 1.1; it can be read, not written.
enum class SpecVersion : std::uint8_t { k0_1, k1_0, k1_1, k1_2 };

// What a version fixes about the container. Writers and readers take these from here, never from constants of
// their own, so that a version with another alignment or footer is a new row.
struct ContainerTraits {
  SpecVersion version;
  std::string_view text;           // "1.2.0": what the manifest's `version` says
  std::string_view header_magic;   // 8 bytes at offset 0
  std::string_view footer_magic;   // 8 bytes at the end, or empty
  std::uint64_t alignment;         // every blob's offset is a multiple
  bool writable;
};
const ContainerTraits& Traits(SpecVersion version);
// "1.2", "1.2.0", "1.1", "0.1" ...: nothing for others.
std::optional<SpecVersion> ParseSpecVersion(std::string_view text);

inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;  // every 1.x spec, §5
inline constexpr std::size_t kMaxNesting = 64;

// ---- the model -----------------------------------------------------------------------------------------------

enum class Encoding : std::uint8_t { kRaw, kZstd };
std::string_view Name(Encoding encoding);

// A component as stored: what it is and where its blob lies (1.2 §1 "Component").
struct StoredComponent {
  std::string role;
  ElementType element;
  std::uint64_t offset = 0;  // absolute, in bytes
  std::uint64_t length = 0;  // bytes on disk
  Encoding encoding = Encoding::kRaw;
  // Bytes after decoding: equal to `length` when raw. For zstd the manifest's uncompressed_length; where the
  // version has no such field (1.1, 0.1) it follows from the shape, or is kUnknownSize where nothing says.
  std::uint64_t decoded_bytes = 0;
  std::string digest;       // "algorithm:hex" as in the manifest, empty where there is none
  bool big_endian = false;  // 0.1.0 `data_endianness: big` on raw data
};

struct StoredObject {
  std::string name;
  std::string format = "dense";
  Shape shape;
  Value::Map attributes;  // in 0.1.0: custom fields of the entry
  std::vector<StoredComponent> components;
};

struct Manifest {
  SpecVersion version = SpecVersion::k1_2;
  std::string version_text;  // as written in the file, "" for 0.1.0
  Value::Map attributes;
  std::vector<StoredObject> objects;
};

// The declaration a stored object stands for.
Object Declare(const StoredObject& object);

// ---- finding and decoding ------------------------------------------------------------------------------------

// Where the manifest lies. `head` is the file's first 8 bytes, `tail` its last 16 (or all there are).
struct Trailer {
  SpecVersion family = SpecVersion::k1_2;  // k1_2 for any ZTEN1000 footer; DecodeManifest refines it
  std::uint64_t manifest_offset = 0;       // also the end of the data region
  std::uint64_t manifest_bytes = 0;
};
StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes);

// True where `head` (at least 8 bytes) begins like a .zt file of any version.
bool LooksLikeZt(std::span<const std::byte> head);

// Decodes and checks all that needs no other byte of the file: CBOR within limits, required fields, kinds, the
// version, known dtypes and encodings, no key twice, names valid UTF-8 and unique, digests well formed. Unknown
// fields are ignored, as the version policy asks. Errors are kDataLoss (kUnimplemented for a newer major version)
// and name the object.
StatusOr<Manifest> DecodeManifest(std::span<const std::byte> bytes, SpecVersion family);

// Checks the layout: every blob aligned, within [header, data_end), blobs disjoint or identical, raw lengths and
// decoded sizes as shape and dtype ask, component sets of the known formats, index dtypes of the version.
Status CheckLayout(const Manifest& manifest, std::uint64_t data_end);

// ---- encoding ------------------------------------------------------------------------------------------------

// Whether `version` can hold this declaration with this encoding and digest; the message says what it cannot say.
// Asked of every object before the first byte is written.
Status CheckExpressible(const Object& object, Encoding encoding, std::string_view digest_algorithm,
                        SpecVersion version);
Status CheckExpressible(const Value::Map& root_attributes, SpecVersion version);

// Deterministic CBOR (RFC 8949 §4.2.1): definite lengths, shortest heads and floats, maps sorted by encoded key.
// Equal manifests give equal bytes. 0.1.0 keeps the order of `objects` in its array.
StatusOr<std::vector<std::byte>> EncodeManifest(const Manifest& manifest, SpecVersion version);

// What follows the manifest: its size as u64 LE, then the footer magic where the version has one.
std::vector<std::byte> EncodeFooter(std::uint64_t manifest_bytes, SpecVersion version);

// One value, deterministically. Fails on a key twice or text that is not UTF-8.
StatusOr<std::vector<std::byte>> EncodeCbor(const Value& value);
// One value and nothing after it; nesting, sizes and kinds limited as for manifests.
StatusOr<Value> DecodeCbor(std::span<const std::byte> bytes);

}  // namespace zt
