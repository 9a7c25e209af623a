// zt.format:model — the versions, what each fixes about the container, and what a file says of itself. Plain data.
export module zt.format:model;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;

export namespace zt {

// ---- versions ------------------------------------------------------------------------------------------------

// k1_0 is the dialect 1.0.x writers produced between 0.1 and 1.1; it can be read, not written.
enum class SpecVersion : std::uint8_t { k0_1, k1_0, k1_1, k1_2, k2_0 };

// What a version fixes about the container. Readers and writers take it from here, never from constants of their own.
// What needs code is in the version's Dialect.
struct ContainerTraits {
  SpecVersion version;            // which row this is
  std::string_view text;          // "1.2.0": what the manifest's `version` says
  std::string_view header_magic;  // 8 bytes at offset 0
  std::string_view footer_magic;  // 8 bytes at the end, or empty
  std::uint64_t alignment;        // every blob's offset is a multiple
  std::uint64_t placement;        // the multiple that a writer takes unless told otherwise
  bool writable;                  // whether EncodeManifest writes it
  // Sparse objects have one blob, in which values and indices alternate.
  bool mixed_sparse = false;
  // Every byte of a bool that is not 0 is true; else it has to be 1.
  bool loose_bools = false;
  // What lies between blobs may have any value.
  bool free_padding = false;
  // The manifest is a blob as well: its offset is a multiple of the alignment, and blobs may follow it.
  bool manifest_is_blob = false;
  // Digests cover the bytes before they were encoded, not those that are stored.
  bool digests_decoded = false;
  DigestKind digest = DigestKind::kCrc32c;  // what a writer takes unless told otherwise
  // The most content a frame of an encoded component may have.
  std::uint64_t max_frame_bytes = std::uint64_t{1} << 30;
  // The version has a canonical form: its own placement and digest, raw, ordered by name, equal contents stored once.
  bool canonical = false;
  // All frames of a component have the same content, but for the last one, which may have less.
  bool equal_frames = false;
  // A manifest can name other files that hold blobs (2.0 §7).
  bool shard_table = false;
  // Indices ascend in each row of a sparse_csr object, and those of sparse_coo name a cell once.
  bool unique_indices = false;
  // Files that travel with a model are written to it (profile ztstream.file/1).
  bool files = false;
  // Indices of sparse objects may be u32 as well as u64.
  bool u32_indices = false;
};

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
  std::uint32_t shard = 0;          // the file it lies in: 0 this one, n Manifest::shards[n - 1]
  // Why the bytes cannot be decoded ("encoding 'x/1' is not known"); empty where they can.
  std::string undecodable = {};
  // An encoding that is not known, as the manifest names it; `encoding` is kRaw then, and tells nothing.
  std::string unknown_encoding = {};
};

// An object as stored: Object with components that lie somewhere (1.2 §1 "Object").
struct StoredObject {
  std::string name;                         // unique in the file
  std::string format = "dense";             // how the components combine
  Shape shape;                              // logical, in elements
  Value::Map attributes;                    // in 0.1.0: custom fields of the entry
  std::vector<StoredComponent> components;  // in the order of the manifest
};

// Another file that holds blobs (2.0 §7).
struct StoredShard {
  std::string name;         // a label, no path
  std::uint64_t bytes = 0;  // its exact size
  std::string digest;       // of the whole file, "algorithm:hex"
  // Where its bytes begin in Reader::bytes(); the offsets of the components in it count from there as well.
  std::uint64_t begin = 0;
};

// What a file says of itself (1.2 §1 "Manifest"). Plain data: as DecodeManifest found it, or as EncodeManifest is to
// write it.
struct Manifest {
  SpecVersion version = SpecVersion::k1_2;  // what its rules are
  std::string version_text;                 // as written in the file, "" for 0.1.0
  Value::Map attributes;                    // of the whole file
  std::vector<StoredObject> objects;        // in the order of the manifest
  std::vector<StoredShard> shards = {};     // empty where all blobs lie in the file itself
  // What was passed over because it cannot be kept: custom fields of 0.1.0. A line each.
  std::vector<std::string> warnings = {};
  // Where the manifest lies, in a version in which it is a blob: no other blob may overlap it.
  std::uint64_t offset = 0, bytes = 0;
};

// The bytes of a manifest, part after part.
using ManifestParts = std::span<const std::span<const std::byte>>;

// Where the manifest lies, as the end of the file says.
struct Trailer {
  SpecVersion family =
      SpecVersion::k1_2;              // k1_2 for any ZTEN1000 footer; DecodeManifest refines it
  std::uint64_t manifest_offset = 0;  // where it begins
  std::uint64_t manifest_bytes = 0;   // its size, at most kMaxManifestBytes; 0 for a 2.0 data shard
  std::uint64_t data_end = 0;         // no blob reaches further
  // XXH3 of the manifest, in a version that guards it.
  std::optional<std::uint64_t> manifest_hash = std::nullopt;
};
}  // namespace zt
