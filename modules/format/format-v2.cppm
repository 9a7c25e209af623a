// zt.format:v2 — zTensor 2.0's names and the rules that need no data, for reading and writing.
// Internal.
module zt.format:v2;

import zt.std;
import :model;
import zt.compress;
import zt.core;

namespace zt::format::internal {

// Limit on the containers around a value (2.0 §3.1).
inline constexpr std::size_t kMaxNestingV2 = 32;

// ---- words ----

// The error that a rule of zTensor 2.0 is broken (kDataLoss); `section` is the section with the
// rule, "3.4".
Status BrokenV2(std::string_view section, std::string_view what);
// Names the section as the broken rule, unless `status` names one already.
Status InSection(const Status& status, std::string_view section);

// Validates the name of an object, a part or an attribute (§3.5); `what` names the kind. kDataLoss,
// as in all of these.
Status CheckNameV2(std::string_view what, std::string_view name);
Status CheckShardNameV2(std::string_view name);
// Validates "algorithm:hex" in lower case (§3.4); a known algorithm must have all its digits.
Status CheckDigestV2(std::string_view digest);
Status CheckShapeV2(const Shape& shape);

// The storage type of a logical type of Appendix A; nullopt for others.
std::optional<DType> StorageOfV2(std::string_view type);
// Vendor names for layouts and types: "ztstream.<name>/1" holds 1.x's <name> unchanged.
std::string VendorName(std::string_view name);
std::optional<std::string_view> StripVendor(std::string_view name);
// Convert an element type of the model to 2.0 (kInvalidArgument if 2.0 cannot express it) and back
// (nullopt for a type that is neither in Appendix A nor a vendor name of ours).
StatusOr<ElementType> ElementToV2(const ElementType& element);
std::optional<ElementType> ElementFromV2(const ElementType& element);

// Encodings (§5.3).
inline constexpr std::string_view kSeekableV2 = "zt.zstd-seekable/1";

// ---- manifests ----

// OK if `bytes` are one value in Core Deterministic Encoding (§3.1): definite lengths, shortest
// heads and floats, keys sorted and unique, no tags, at most 32 levels deep. Takes linear time and
// constant memory.
Status CheckDeterministic(std::span<const std::byte> bytes);

// Decodes a manifest whose hash was verified, and validates everything that needs no other byte of
// the file: CBOR, fields, names, shapes, the shard table, and the rules of the known layouts. Valid
// objects that cannot be decoded (unknown layout, type or encoding) keep the file's names, and
// StoredComponent::undecodable says why.
StatusOr<Manifest> DecodeV2(std::span<const std::byte> bytes);
// The same in 2.0's own terms: layouts and types as in the manifest, shapes in elements.
StatusOr<Manifest> DecodeWordsV2(std::span<const std::byte> bytes);

// Checks an object of a manifest by the rules of its layout: `format` is the layout, roles are
// names of parts. An unknown layout or type makes components undecodable. Messages do not name the
// object. kDataLoss.
Status CheckLayoutRules(StoredObject& object);

// The same rules for a declaration in 2.0's terms; sizes of kUnknownSize pass. kUnimplemented for
// an unknown layout.
Status CheckProfileV2(const Object& object);

// The size of `count` elements (Appendix A), or nullopt on overflow.
std::optional<std::uint64_t> BytesOfV2(const ElementType& element, std::uint64_t count);

// The parameters of byte planes for an element type if the part has no field `planes`
// (docs/PLANES.md).
CodecParameters DefaultPlanesV2(const ElementType& element);
// Reads the field `planes` of a part; absent members are those of DefaultPlanesV2. kDataLoss.
StatusOr<CodecParameters> ReadPlanesV2(const Value::Map& planes, const ElementType& element);
// The field `planes` of a part: the parameters that differ from DefaultPlanesV2.
Value::Map PlanesToV2(const CodecParameters& parameters, const ElementType& element);

}  // namespace zt::format::internal
