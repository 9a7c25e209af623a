// zt.format:v2 — zTensor 2.0: its words and the rules that need no byte of data, for reading and for writing. Internal.
module zt.format:v2;

import zt.std;
import :model;
import zt.compress;
import zt.core;

namespace zt::format::internal {

inline constexpr std::size_t kMaxNestingV2 = 32;  // containers around a value (2.0 §3.1)

// ---- words ----

// kDataLoss: a rule of zTensor 2.0 is broken; `section` is where the specification says it, "3.4".
Status BrokenV2(std::string_view section, std::string_view what);
// `status`, with the section as the rule that is broken unless it names one already.
Status InSection(const Status& status, std::string_view section);

// The name of an object, of a part or of an attribute (§3.5); `what` says of which. kDataLoss, as all of these.
Status CheckNameV2(std::string_view what, std::string_view name);
Status CheckShardNameV2(std::string_view name);
// "algorithm:hex" in lower case (§3.4); of the algorithms that are known, with all their digits.
Status CheckDigestV2(std::string_view digest);
Status CheckShapeV2(const Shape& shape);

// The storage type of a logical type of Appendix A; nullopt for others.
std::optional<DType> StorageOfV2(std::string_view type);
// Layouts and types that are ours: "ztstream.<name>/1" holds what 1.x calls <name>, unchanged.
std::string VendorName(std::string_view name);
std::optional<std::string_view> StripVendor(std::string_view name);
// An element of the model as 2.0 says it, kInvalidArgument where it cannot, and back: nullopt for a type that is neither of
// Appendix A nor ours.
StatusOr<ElementType> ElementToV2(const ElementType& element);
std::optional<ElementType> ElementFromV2(const ElementType& element);

// The names of encodings (§5.3).
inline constexpr std::string_view kSeekableV2 = "zt.zstd-seekable/1";

// ---- manifests ----

// OK where `bytes` are one value in Core Deterministic Encoding as §3.1 asks for it: definite lengths, shortest heads and
// floats, keys in order and once, no tags, nested to 32 levels at most. Linear, and without memory of its own.
Status CheckDeterministic(std::span<const std::byte> bytes);

// Decodes a manifest whose hash is right, and checks all that needs no other byte of the file: CBOR, fields, names,
// shapes, the shard table, and the rules of the layouts that are known. What is valid and cannot be decoded (a layout, a
// type or an encoding that is not known) is kept as the file says it, with StoredComponent::undecodable.
StatusOr<Manifest> DecodeV2(std::span<const std::byte> bytes);
// The same in 2.0's own words: layouts and types as the manifest names them, shapes in elements.
StatusOr<Manifest> DecodeWordsV2(std::span<const std::byte> bytes);

// The rules of the layout of an object as its manifest has it: format is the layout, roles are the names of parts. A
// layout or type that is not known makes components undecodable. Messages do not name the object. kDataLoss.
Status CheckLayoutRules(StoredObject& object);

// The same rules, of a declaration in 2.0's words; sizes that are kUnknownSize pass. kUnimplemented for a layout that is
// not known.
Status CheckProfileV2(const Object& object);

// The bytes of `count` elements (Appendix A), or nothing where they overflow.
std::optional<std::uint64_t> BytesOfV2(const ElementType& element, std::uint64_t count);

// The layout of byte planes of an element where the part says nothing of it (docs/PLANES.md).
CodecParameters DefaultPlanesV2(const ElementType& element);
// What the part field `planes` says, or DefaultPlanesV2 of what it leaves out. kDataLoss.
StatusOr<CodecParameters> ReadPlanesV2(const Value::Map& planes, const ElementType& element);
// The field `planes` of a part: what is not as DefaultPlanesV2.
Value::Map PlanesToV2(const CodecParameters& parameters, const ElementType& element);

}  // namespace zt::format::internal
