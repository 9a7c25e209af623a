// zt.format:v2 — the rules of 2.0's layouts (§5 and the profiles), for objects in 2.0's terms.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :v2;
import zt.compress;
import zt.core;

namespace zt::format::internal {
namespace {

// The registered names of gguf.TYPE/1.
constexpr std::string_view kGgufTypes[] = {
    "q4_0",  "q4_1",    "q5_0",  "q5_1",   "q8_0",   "q8_1",  "q2_k",    "q3_k",
    "q4_k",  "q5_k",    "q6_k",  "q8_k",   "iq1_s",  "iq1_m", "iq2_xxs", "iq2_xs",
    "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "mxfp4"};

template <std::size_t N>
bool IsOneOf(std::string_view text, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), text) != std::end(names);
}

// True if the size of the type's elements is known.
bool IsSized(std::string_view type) { return type.empty() || StorageOfV2(type).has_value(); }

bool IsKnownType(const ElementType& element) { return ElementFromV2(element).has_value(); }

// The rules for one object; errors name the section with the rule.
class Rules {
 public:
  Rules(const Object& object, std::string_view section)
      : object_(object), section_(section), count_(*ElementCount(object.shape)) {}

  Status Dense();
  Status Csr();
  Status Coo();
  Status Mx();
  Status Quantized();
  Status Gguf();

 private:
  Status Broken(std::string_view what) const { return BrokenV2(section_, what); }
  Status BrokenIn(const Component& part, std::string_view what) const {
    return WithComponent(Broken(what), part.role);
  }

  const Component* Find(std::string_view role) const {
    for (const Component& part : object_.components) {
      if (part.role == role) return &part;
    }
    return nullptr;
  }
  const Component& RequiredPart(std::string_view role) const { return *Find(role); }

  Status CheckParts(std::initializer_list<std::string_view> roles) const {
    for (const std::string_view role : roles) {
      if (Find(role) == nullptr) return Broken(object_.format + " has no part " + Quote(role));
    }
    for (const Component& part : object_.components) {
      if (std::find(roles.begin(), roles.end(), part.role) == roles.end()) {
        return Broken(object_.format + " has a part " + Quote(part.role) +
                      ", which it does not know");
      }
    }
    return OkStatus();
  }

  // Checks the decoded size of a part. `bytes` is nullopt if the expected size overflows.
  // kUnknownSize passes.
  Status CheckBytes(const Component& part, std::optional<std::uint64_t> bytes) const {
    if (part.bytes == kUnknownSize || (bytes && part.bytes == *bytes)) return OkStatus();
    return BrokenIn(part, "it has " + std::to_string(part.bytes) + " bytes, shape " +
                              ToString(object_.shape) + " needs " +
                              (bytes ? std::to_string(*bytes) : "more than 64 bits can say"));
  }
  // The same for `count` elements, if the type's size is known.
  Status CheckElements(const Component& part, std::optional<std::uint64_t> count) const {
    if (!IsSized(part.element.type)) return OkStatus();
    return CheckBytes(part, count ? BytesOfV2(part.element, *count) : std::nullopt);
  }
  Status CheckPlain(const Component& part, std::initializer_list<DType> dtypes) const {
    const bool known = std::find(dtypes.begin(), dtypes.end(), part.element.dtype) != dtypes.end();
    if (known && part.element.type.empty()) return OkStatus();
    return BrokenIn(part, object_.format + " does not allow " + std::string(Name(part.element)));
  }

  StatusOr<std::uint64_t> Number(const Value::Map& map, std::string_view key) const {
    const Value* value = FindMember(map, key);
    const std::uint64_t* number = value == nullptr ? nullptr : value->AsUint();
    if (number != nullptr) return *number;
    return Broken("attribute " + Quote(key) + " is missing, or no unsigned integer");
  }
  StatusOr<std::string> StringMember(const Value::Map& map, std::string_view key) const {
    const Value* value = FindMember(map, key);
    const std::string* text = value == nullptr ? nullptr : value->AsString();
    if (text != nullptr) return *text;
    return Broken("attribute " + Quote(key) + " is missing, or no text");
  }
  StatusOr<const Value::Map*> Members(std::string_view key) const {
    const Value* value = FindMember(object_.attributes, key);
    const Value::Map* map = value == nullptr ? nullptr : value->AsMap();
    if (map != nullptr) return map;
    return Broken("attribute " + Quote(key) + " is missing, or no map");
  }

  Status CheckPacking(std::uint64_t bits, std::uint64_t* per_word, std::uint64_t* width) const;
  Status CheckScales() const;
  Status CheckZeros(const Value::Map& zero, std::uint64_t scales, std::uint64_t per_word,
                    std::uint64_t width) const;

  const Object& object_;
  std::string_view section_;
  std::uint64_t count_;  // of elements
};

Status Rules::Dense() {
  ZT_RETURN_IF_ERROR(CheckParts({"data"}));
  return CheckElements(RequiredPart("data"), count_);
}

Status Rules::Csr() {
  ZT_RETURN_IF_ERROR(CheckParts({"values", "indices", "indptr"}));
  if (object_.shape.size() != 2) {
    return Broken("shape " + ToString(object_.shape) + " is not of two dimensions");
  }
  const Component& indices = RequiredPart("indices");
  const Component& indptr = RequiredPart("indptr");
  ZT_RETURN_IF_ERROR(CheckPlain(indices, {DType::kU32, DType::kU64}));
  ZT_RETURN_IF_ERROR(CheckPlain(indptr, {indices.element.dtype}));
  const std::size_t width = ByteWidth(indices.element.dtype);
  const auto rows = CheckedAdd(object_.shape[0], 1);
  ZT_RETURN_IF_ERROR(CheckElements(indptr, rows));
  if (indices.bytes == kUnknownSize) return OkStatus();
  if (indices.bytes % width != 0) return BrokenIn(indices, "it ends within an index");
  return CheckElements(RequiredPart("values"), indices.bytes / width);
}

Status Rules::Coo() {
  ZT_RETURN_IF_ERROR(CheckParts({"values", "coords"}));
  if (object_.shape.empty()) return Broken("a scalar has no coordinates");
  const Component& coords = RequiredPart("coords");
  ZT_RETURN_IF_ERROR(CheckPlain(coords, {DType::kU32, DType::kU64}));
  const std::uint64_t each = ByteWidth(coords.element.dtype) * object_.shape.size();
  if (coords.bytes == kUnknownSize) return OkStatus();
  if (coords.bytes % each != 0) return BrokenIn(coords, "it ends within a coordinate");
  return CheckElements(RequiredPart("values"), coords.bytes / each);
}

Status Rules::Gguf() {
  ZT_RETURN_IF_ERROR(CheckParts({"data"}));
  ZT_RETURN_IF_ERROR(CheckPlain(RequiredPart("data"), {DType::kU8}));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t elems, Number(object_.attributes, "elems_per_block"));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, Number(object_.attributes, "block_bytes"));
  if (elems == 0 || bytes == 0) return Broken("'elems_per_block' or 'block_bytes' is 0");
  if (count_ % elems != 0) {
    return Broken("shape " + ToString(object_.shape) + " is not a whole number of blocks of " +
                  std::to_string(elems) + " elements");
  }
  return CheckBytes(RequiredPart("data"), CheckedMul(count_ / elems, bytes));
}

Status Rules::Mx() {
  ZT_RETURN_IF_ERROR(CheckParts({"data", "scales"}));
  const Component& data = RequiredPart("data");
  const Component& scales = RequiredPart("scales");
  if (scales.element != ElementType{DType::kU8, "f8_e8m0"}) {
    return BrokenIn(scales, "it is " + std::string(Name(scales.element)) + ", not f8_e8m0");
  }
  ZT_ASSIGN_OR_RETURN(const std::string form, StringMember(object_.attributes, "scale_form"));
  if (form != "e8m0_exponent") return Broken("'scale_form' is " + Quote(form));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t block, Number(object_.attributes, "block_size"));
  std::uint64_t axis = object_.shape.size() - 1;  // of a scalar: also beyond its rank
  if (FindMember(object_.attributes, "axis") != nullptr) {
    ZT_ASSIGN_OR_RETURN(axis, Number(object_.attributes, "axis"));
  }
  if (axis >= object_.shape.size()) {
    return Broken("the axis lies beyond shape " + ToString(object_.shape));
  }
  if (block < 2 || object_.shape[axis] % block != 0) {
    return Broken("'block_size' " + std::to_string(block) + " does not divide dimension " +
                  std::to_string(axis) + " of shape " + ToString(object_.shape));
  }
  ZT_RETURN_IF_ERROR(CheckBytes(scales, count_ / block));
  const std::string_view type = data.element.type;
  const bool element = type == "f4_e2m1" || type == "f8_e4m3fn" || type == "f8_e5m2" ||
                       data.element == ElementType{DType::kI8, ""};
  if (!element && IsKnownType(data.element)) {
    return BrokenIn(data, "zt.mx/1 has no elements of " + std::string(Name(data.element)));
  }
  return CheckElements(data, count_);
}

// Reads the packing: codes per word and the width of a word.
Status Rules::CheckPacking(std::uint64_t bits, std::uint64_t* per_word,
                           std::uint64_t* width) const {
  ZT_ASSIGN_OR_RETURN(const Value::Map* packing, Members("packing"));
  ZT_ASSIGN_OR_RETURN(const std::string word, StringMember(*packing, "word"));
  ZT_ASSIGN_OR_RETURN(const std::string order, StringMember(*packing, "order"));
  ZT_ASSIGN_OR_RETURN(*per_word, Number(*packing, "per_word"));
  const auto dtype = ParseDType(word);
  if (!dtype || !IsUnsignedInt(*dtype)) return Broken("'word' is " + Quote(word));
  *width = ByteWidth(*dtype);
  const Component& data = RequiredPart("data");
  const bool integer = IsUnsignedInt(data.element.dtype) || IsSignedInt(data.element.dtype);
  if (!integer || ByteWidth(data.element.dtype) != *width || !data.element.type.empty()) {
    return BrokenIn(data, "it is " + std::string(Name(data.element)) + ", the words are " + word);
  }
  if (order != "lsb_first" && order != "msb_first") return Broken("'order' is " + Quote(order));
  const bool known = (bits >= 2 && bits <= 6) || bits == 8;
  if (!known || 8 * *width % bits != 0) {
    return Broken(std::to_string(bits) + " bits do not fill words of " + word);
  }
  if (*per_word == 8 * *width / bits) return OkStatus();
  return Broken("'per_word' is " + std::to_string(*per_word));
}

Status Rules::CheckScales() const {
  ZT_ASSIGN_OR_RETURN(const std::string form, StringMember(object_.attributes, "scale_form"));
  const Component& scales = RequiredPart("scales");
  const bool exponent = scales.element == ElementType{DType::kU8, "f8_e8m0"};
  const bool factor = IsFloat(scales.element.dtype) && scales.element.type.empty();
  if (form != "f32_factors" && form != "f16_factors" && form != "e8m0_exponent") {
    return Broken("'scale_form' is " + Quote(form));
  }
  if (form == "e8m0_exponent" ? exponent : factor) return OkStatus();
  return BrokenIn(scales, "it is " + std::string(Name(scales.element)) + ", which is not " + form);
}

Status Rules::CheckZeros(const Value::Map& zero, std::uint64_t scales, std::uint64_t per_word,
                         std::uint64_t width) const {
  const Component& zeros = RequiredPart("zeros");
  ZT_ASSIGN_OR_RETURN(const std::string packing, StringMember(zero, "packing"));
  if (packing == "plain") return CheckElements(zeros, scales);
  if (packing != "same_as_data") return Broken("'zero_point' is packed as " + Quote(packing));
  if (scales % per_word != 0) return BrokenIn(zeros, "the zero points end within a word");
  return CheckBytes(zeros, CheckedMul(scales / per_word, width));
}

Status Rules::Quantized() {
  ZT_ASSIGN_OR_RETURN(const std::uint64_t bits, Number(object_.attributes, "bits"));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t group, Number(object_.attributes, "group_size"));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t axis, Number(object_.attributes, "axis"));
  ZT_ASSIGN_OR_RETURN(const Value::Map* zero, Members("zero_point"));
  ZT_ASSIGN_OR_RETURN(const std::string form, StringMember(*zero, "form"));
  if (form != "none" && form != "implied" && form != "tensor") {
    return Broken("'zero_point' is of the form " + Quote(form));
  }
  ZT_RETURN_IF_ERROR(form == "tensor" ? CheckParts({"data", "scales", "zeros"})
                                      : CheckParts({"data", "scales"}));
  std::uint64_t per_word = 0, width = 0;
  ZT_RETURN_IF_ERROR(CheckPacking(bits, &per_word, &width));
  ZT_RETURN_IF_ERROR(CheckScales());
  if (axis >= object_.shape.size()) {
    return Broken("the axis lies beyond shape " + ToString(object_.shape));
  }
  const std::uint64_t along = object_.shape[axis];
  if (group != 0 && along % group != 0) {
    return Broken("'group_size' " + std::to_string(group) + " does not divide dimension " +
                  std::to_string(axis) + " of shape " + ToString(object_.shape));
  }
  if (count_ % per_word != 0) return BrokenIn(RequiredPart("data"), "the codes end within a word");
  ZT_RETURN_IF_ERROR(CheckBytes(RequiredPart("data"), CheckedMul(count_ / per_word, width)));
  // Groups times lanes: cannot overflow, since it is at most the number of elements.
  const std::uint64_t lanes = along == 0 ? 0 : count_ / along;
  const std::uint64_t scales = (group == 0 ? along : along / group) * lanes;
  ZT_RETURN_IF_ERROR(CheckElements(RequiredPart("scales"), scales));
  if (form == "tensor") return CheckZeros(*zero, scales, per_word, width);
  if (form != "implied") return OkStatus();
  const Value* value = FindMember(*zero, "value");
  if (value != nullptr && (value->AsUint() != nullptr || value->AsInt() != nullptr)) {
    return OkStatus();
  }
  return Broken("'zero_point' is implied, and its 'value' is missing, or no integer");
}

bool IsGguf(std::string_view layout) {
  constexpr std::string_view kPrefix = "gguf.", kSuffix = "/1";
  if (!layout.starts_with(kPrefix) || !layout.ends_with(kSuffix)) return false;
  layout.remove_prefix(kPrefix.size());
  layout.remove_suffix(kSuffix.size());
  return IsOneOf(layout, kGgufTypes);
}

// True if the layout is known; `status` is then the result of its rules.
bool CheckKnownLayout(const Object& object, Status& status) {
  const std::string_view layout = object.format;
  if (layout == "dense") {
    status = Rules(object, "5.1").Dense();
  } else if (layout == "zt.sparse_csr/1") {
    status = Rules(object, "5.2, zt.sparse_csr/1").Csr();
  } else if (layout == "zt.sparse_coo/1") {
    status = Rules(object, "5.2, zt.sparse_coo/1").Coo();
  } else if (layout == "zt.mx/1") {
    status = Rules(object, "5.2, zt.mx/1").Mx();
  } else if (layout == "zt.quant_group/1") {
    status = Rules(object, "5.2, zt.quant_group/1").Quantized();
  } else if (IsGguf(layout)) {
    status = Rules(object, "5.2, gguf.TYPE/1").Gguf();
  } else {
    return StripVendor(layout).has_value();
  }
  return true;
}

}  // namespace

std::optional<std::uint64_t> BytesOfV2(const ElementType& element, std::uint64_t count) {
  if (element.type == "f4_e2m1") return count / 2 + count % 2;
  return CheckedMul(count, ElementBytes(element));
}

Status CheckProfileV2(const Object& object) {
  Status status;
  if (CheckKnownLayout(object, status)) return status;
  return Unsupported("layout " + Quote(object.format) + " is not known");
}

Status CheckLayoutRules(StoredObject& stored) {
  Object object;
  if (stored.format == "dense") {  // no attribute matters: do not copy them
    object.format = stored.format;
    object.shape = stored.shape;
    for (const StoredComponent& c : stored.components) {
      object.components.push_back({c.role, c.element, c.decoded_bytes});
    }
  } else {
    object = Declare(stored);
  }
  Status status;
  const bool known = CheckKnownLayout(object, status);
  ZT_RETURN_IF_ERROR(status);
  for (StoredComponent& part : stored.components) {
    if (!part.undecodable.empty()) continue;
    if (!known) {
      part.undecodable = "layout " + Quote(stored.format) + " is not known";
    } else if (!IsKnownType(part.element)) {
      part.undecodable = "type " + Quote(part.element.type) + " is not known";
    }
  }
  return OkStatus();
}

}  // namespace zt::format::internal
