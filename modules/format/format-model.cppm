// zt.format:model — the versions, the properties of their containers, and the manifest. Plain data.
export module zt.format:model;

import zt.std;
import zt.compress;
import zt.core;
import zt.digest;

export namespace zt {

// ---- versions -----------------------------------------------------------------------------------

// k1_0 is the dialect that 1.0.x writers produced between 0.1 and 1.1. It is read-only.
enum class SpecVersion : std::uint8_t { k0_1, k1_0, k1_1, k1_2, k2_0 };

// The properties of a version's container. Readers and writers take them from here and have no
// constants of their own; behaviour that needs code is in the version's Dialect.
struct ContainerTraits {
  SpecVersion version;
  std::string_view text;          // "1.2.0": the manifest's `version`
  std::string_view header_magic;  // 8 bytes at offset 0
  std::string_view footer_magic;  // 8 bytes at the end, or empty
  std::uint64_t alignment;        // of every blob's offset
  std::uint64_t placement;        // a writer's default alignment
  bool writable;                  // EncodeManifest supports it
  // Sparse objects have one blob in which values and indices alternate.
  bool mixed_sparse = false;
  // A bool may be any byte, and nonzero is true; else it must be 0 or 1.
  bool loose_bools = false;
  // Padding may have any value.
  bool free_padding = false;
  // The manifest is a blob as well: its offset is a multiple of the alignment, and
  // blobs may follow it.
  bool manifest_is_blob = false;
  // Digests cover decoded bytes, not stored bytes.
  bool digests_decoded = false;
  DigestKind digest = DigestKind::kCrc32c;  // a writer's default
  // Limit on the content of a frame, in bytes.
  std::uint64_t max_frame_bytes = std::uint64_t{1} << 30;
  // The version has a canonical form: default placement and digest, raw, sorted by name,
  // deduplicated.
  bool canonical = false;
  // All frames of a component have content of the same size; the last one may have less.
  bool equal_frames = false;
  // A manifest can name other files that hold blobs (2.0 §7).
  bool shard_table = false;
  // Indices ascend in each row of a sparse_csr object, and the indices of a sparse_coo object name
  // each cell at most once.
  bool unique_indices = false;
  // Files that travel with a model are written to it (profile ztstream.file/1).
  bool files = false;
  // Indices of sparse objects may be u32 as well as u64.
  bool u32_indices = false;
};

// The largest manifest that is read or written, in bytes (every 1.x spec, §5).
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;
// Limit on the nesting of maps, arrays and tags, the root included.
inline constexpr std::size_t kMaxNesting = 64;
// Limit on all attribute values of one manifest: one byte of CBOR can become a Value of 40 bytes,
// so a manifest full of them could exhaust the memory.
inline constexpr std::size_t kMaxAttributeValues = std::size_t{1} << 24;

// The format of an object that is stored as what differs from an object of another file
// (docs/DELTA.md).
inline constexpr std::string_view kDeltaFormat = "ztstream.delta/1";

// ---- the model ----------------------------------------------------------------------------------

// A component as stored: its declaration and the place of its blob (1.2 §1 "Component").
struct StoredComponent {
  std::string role;                    // "data", "values", ...
  ElementType element;                 // of the decoded bytes
  std::uint64_t offset = 0;            // absolute, in bytes
  std::uint64_t length = 0;            // bytes on disk
  Encoding encoding = Encoding::kRaw;  // of the stored bytes (1.2 §1 "encoding")
  // Size after decoding: `length` if raw. For zstd it is the manifest's uncompressed_length; in a
  // version without that field (1.1, 0.1) it follows from the shape, or is kUnknownSize.
  std::uint64_t decoded_bytes = 0;
  std::string digest;               // "algorithm:hex" as in the manifest; empty if there is none
  bool big_endian = false;          // 0.1.0 `data_endianness: big` on raw data
  CodecParameters parameters = {};  // of the codec of `encoding`
  std::uint32_t shard = 0;          // 0: this file, n: Manifest::shards[n - 1]
  // Why the bytes cannot be decoded ("encoding 'x/1' is not known"); empty if they can.
  std::string undecodable = {};
  // The manifest's name of an unknown encoding; `encoding` is then kRaw and has no meaning.
  std::string unknown_encoding = {};
};

// Identifies decoded bytes: components of one reader with equal keys have the same blob, and decode it
// in the same way to the same size.
struct ContentKey {
  explicit ContentKey(const StoredComponent& component)
      : offset(component.offset),
        length(component.length),
        decoded_bytes(component.decoded_bytes),
        encoding(component.encoding),
        parameters(component.parameters) {}
  std::uint64_t offset, length, decoded_bytes;
  Encoding encoding;
  CodecParameters parameters;
  auto operator<=>(const ContentKey&) const = default;  // an arbitrary order
};

// An object as stored: an Object whose components have blobs (1.2 §1 "Object").
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
  // Offset of the shard in Reader::bytes(). Offsets of its components count from here.
  std::uint64_t begin = 0;
};

// A file's manifest (1.2 §1 "Manifest"), decoded by DecodeManifest or to be encoded by
// EncodeManifest. Plain data.
struct Manifest {
  SpecVersion version = SpecVersion::k1_2;  // whose rules apply
  std::string version_text;                 // as written in the file, "" for 0.1.0
  Value::Map attributes;                    // of the whole file
  std::vector<StoredObject> objects;        // in the order of the manifest
  std::vector<StoredShard> shards = {};     // empty if all blobs are in this file
  // One line for each thing that was skipped because it cannot be kept: custom fields of 0.1.0.
  std::vector<std::string> warnings = {};
  // The range of the manifest, in a version in which it is a blob that no other may overlap.
  std::uint64_t offset = 0, bytes = 0;
};

// The bytes of a manifest: its parts in order.
using ManifestParts = std::span<const std::span<const std::byte>>;

// The position of the manifest, read from the end of the file.
struct Trailer {
  // k1_2 for any ZTEN1000 footer; DecodeManifest determines the exact version.
  SpecVersion family = SpecVersion::k1_2;
  std::uint64_t manifest_offset = 0;  // where it begins
  std::uint64_t manifest_bytes = 0;   // its size, at most kMaxManifestBytes; 0 for a 2.0 data shard
  std::uint64_t data_end = 0;         // blobs end here or before
  // XXH3 of the manifest, in a version that stores it.
  std::optional<std::uint64_t> manifest_hash = std::nullopt;
};
}  // namespace zt
