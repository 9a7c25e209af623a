// zt.source:component — objects by name, and what a TensorSource says of where its components lie.
export module zt.source:component;

import zt.std;
import :bytes;
import zt.compress;
import zt.core;

export namespace zt {

// Hashes names with a random key of this process, as all tables of names do.
struct HashName {
  std::size_t operator()(std::string_view name) const;
};

// Objects by their names, which they own; of equal names the first.
using NameIndex = std::unordered_map<std::string_view, std::uint32_t, HashName>;
NameIndex ByName(const std::vector<Object>& objects);

// Identifies a component of a TensorSource.
struct ComponentId {
  std::uint32_t object = 0;                              // index into objects()
  std::uint32_t component = 0;                           // index into that object's components
  auto operator<=>(const ComponentId&) const = default;  // by object, then component
};

// Where the declared bytes of a component lie unchanged in a ByteSource.
struct Extent {
  ByteSource* bytes = nullptr;                     // owned by the TensorSource
  std::uint64_t offset = 0;                        // of the first byte in `bytes`
  std::uint64_t length = 0;                        // in bytes
  bool operator==(const Extent&) const = default;  // equal source and range
};

// Equal identities of components mean equal declared bytes: tied weights, which share a blob.
struct Identity {
  // An address unique to the source, which separates its values from those of others.
  const void* space = nullptr;
  std::uint64_t value = 0;   // identifies the bytes within `space`: an offset, an index
  std::uint64_t length = 0;  // of the declared bytes
  // An arbitrary order.
  auto operator<=>(const Identity&) const = default;
};

// The encoded stream that a component is stored as. Its frames can be copied to another file
// without being decoded.
struct EncodedStream {
  Encoding encoding = Encoding::kRaw;  // the codec's
  CodecParameters parameters = {};     // the codec's, of this component
  // Where the stream lies. `extent.bytes` is null if the stream must not be copied: it decodes to
  // other bytes than declared, as widened indices do.
  Extent extent = {};
  // The source compares a digest of the stored bytes as they are read: damage is found without
  // decoding.
  bool guarded = false;
};

// How a component is stored, as the manifest says. Texts are valid as long as the source.
struct StoredForm {
  Encoding encoding = Encoding::kRaw;
  CodecParameters parameters = {};         // the codec's
  std::string_view unknown_encoding = {};  // its name, instead of `encoding`
  std::string_view shard = {};        // the name of its shard in the root; empty: the file itself
  std::uint64_t offset = 0;           // in the file or shard
  std::uint64_t length = 0;           // stored bytes
  std::string_view digest = {};       // empty if there is none
  std::string_view undecodable = {};  // the reason, if it cannot be decoded
  ByteSource* file = nullptr;         // to which `offset` applies; null for a shard's
  bool mappable = false;              // its declared bytes can be mapped from `file`
  bool big_endian = false;            // its numbers are stored so
};

// A file of several that a root or an index names.
struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string digest = {};  // of the whole file; empty if none is stated
};

}  // namespace zt
