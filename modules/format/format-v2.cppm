// zt.format:v2 — reading zTensor 2.0: the footer, the manifest, the rules that need no byte of data. Internal.
module zt.format:v2;

import zt.std;
import :model;
import zt.compress;
import zt.core;

namespace zt::format::internal {

inline constexpr std::uint64_t kFloorV2 = 4096;    // every blob's offset is a multiple (2.0 §2.4)
inline constexpr std::size_t kFooterBytesV2 = 40;  // 2.0 §2.3
inline constexpr std::size_t kHeaderBytesV2 = 8;   // the magic
inline constexpr std::size_t kMaxNestingV2 = 32;   // containers around a value (2.0 §3.1)
inline constexpr std::size_t kMaxNameBytesV2 = 1024;  // 2.0 §3.5

// kDataLoss: a rule of zTensor 2.0 is broken; `section` is where the specification says it, "3.4".
Status BrokenV2(std::string_view section, std::string_view what);
// `status`, with the section behind its message unless it names one already.
Status InSection(const Status& status, std::string_view section);

// Finds the manifest of a file that begins with 2.0's magic (§2.3, §8). A data shard has a Trailer of no manifest bytes.
StatusOr<Trailer> LocateV2(std::span<const std::byte> tail, std::uint64_t file_bytes);

// OK where `bytes` are one value in Core Deterministic Encoding as §3.1 asks for it: definite lengths, shortest heads and
// floats, keys in order and once, no tags, nested to 32 levels at most. Linear, and without memory of its own.
Status CheckDeterministic(std::span<const std::byte> bytes);

// Decodes a manifest whose hash is right, and checks all that needs no other byte of the file: CBOR, fields, names,
// shapes, the shard table, and the rules of the layouts that are known. What is valid and cannot be decoded (a layout, a
// type or an encoding that is not known) is kept as the file says it, with StoredComponent::undecodable.
StatusOr<Manifest> DecodeV2(std::span<const std::byte> bytes);

// The blobs (§2.4, §3.6): aligned, inside the data of their file, identical or disjoint, none over the manifest.
Status CheckBlobsV2(const Manifest& manifest, std::uint64_t data_end);

// The rules of the layout of an object as its manifest has it: format is the layout, roles are the names of parts. A
// layout or type that is not known makes components undecodable. Messages do not name the object. kDataLoss.
Status CheckLayoutRules(StoredObject& object);

// The same rules, of a declaration in 2.0's words; sizes that are kUnknownSize pass. kUnimplemented for a layout that is
// not known.
Status CheckProfileV2(const Object& object);

// The bytes of `count` elements (Appendix A), or nothing where they overflow.
std::optional<std::uint64_t> BytesOfV2(const ElementType& element, std::uint64_t count);

// What the part field `planes` says of a component in byte planes, as the attribute of 1.2 does. kDataLoss.
StatusOr<CodecParameters> ReadPlaneParameters(const Value::Map& planes, const ElementType& element);

}  // namespace zt::format::internal
