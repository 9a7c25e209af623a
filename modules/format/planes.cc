// zt.format — converts tensors in byte planes (profile ztstream.planes/1) to the objects of a 1.2
// file and back.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :dialect;
import :v2;
import zt.compress;
import zt.core;

namespace zt::format::internal {
namespace {

constexpr std::string_view kAttribute = "planes";

// The error that a rule of the profile is broken.
Status Broken(const std::string& rule) {
  return InvalidData(std::string(kPlanesName) + ": " + rule);
}

// The member `key` of `planes`; `otherwise`, if given, is its default.
StatusOr<std::uint32_t> ReadSize(const Value::Map& planes, std::string_view key,
                                 std::optional<std::uint32_t> otherwise) {
  const Value* value = FindMember(planes, key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) return Broken("'planes' has no " + Quote(key));
  const std::uint64_t* size = value->AsUint();
  if (size == nullptr) return Broken(Quote(key) + " is not a whole number from 0 up");
  if (*size > kMaxPlaneChunk) {
    return Broken(Quote(key) + " is " + std::to_string(*size) + ", more than " +
                  std::to_string(kMaxPlaneChunk >> 20) + " MiB");
  }
  return static_cast<std::uint32_t>(*size);
}

StatusOr<std::string> ReadName(const Value::Map& planes, std::string_view key) {
  const Value* value = FindMember(planes, key);
  if (value == nullptr || value->is_null()) return std::string();
  if (const std::string* text = value->AsString()) return *text;
  return Broken(Quote(key) + " is not text");
}

StatusOr<ElementType> ReadElement(const Value::Map& planes) {
  ElementType element;
  ZT_ASSIGN_OR_RETURN(const std::string dtype, ReadName(planes, "dtype"));
  if (dtype.empty()) return Broken("'planes' has no 'dtype'");
  const auto parsed = ParseDType(dtype);
  if (!parsed || ByteWidth(*parsed) < 2) {
    return Broken("dtype " + Quote(dtype) +
                  " is not one of f16, bf16, f32, f64, i16, i32, i64, u16, u32, u64");
  }
  element.dtype = *parsed;
  ZT_ASSIGN_OR_RETURN(element.type, ReadName(planes, "type"));
  if (element.type == dtype) element.type = {};  // redundant, as in a component
  const LogicalType* type = FindLogicalType(element.type);
  if (type != nullptr && type->storage != element.dtype) {
    return Broken("type " + Quote(element.type) + " is stored as " +
                  std::string(Name(type->storage)) + ", not as " + dtype);
  }
  return element;
}

}  // namespace

Status CheckPlaneParameters(const CodecParameters& read, const ElementType& element) {
  const std::string dtype(Name(element.dtype));
  if (read.width != ByteWidth(element.dtype)) {
    return Broken("the planes are " + std::to_string(read.width) + ", elements of " + dtype +
                  " have " + std::to_string(ByteWidth(element.dtype)) + " bytes");
  }
  if (read.rotate != 0 && !IsFloat(element.dtype)) {
    return Broken("'rotate' is 1, which integers (" + dtype + ") do not have");
  }
  if (read.frame_content == 0) return Broken("'chunk' is 0");
  const Status status = CheckPlaneLayout(read);
  return status.ok() ? status : Broken(Message(status));
}

namespace {

// Reads the parameters of byte planes from `planes`; `otherwise` has the defaults of absent
// members.
StatusOr<CodecParameters> ReadParameters(const Value::Map& planes, const ElementType& element,
                                         const std::optional<CodecParameters>& otherwise) {
  using Parameters = std::optional<std::uint32_t>;
  CodecParameters read;
  read.width = static_cast<std::uint8_t>(ByteWidth(element.dtype));
  ZT_ASSIGN_OR_RETURN(
      const std::uint32_t rotate,
      ReadSize(planes, "rotate", otherwise ? Parameters(otherwise->rotate) : std::nullopt));
  ZT_ASSIGN_OR_RETURN(
      read.group,
      ReadSize(planes, "group", otherwise ? Parameters(otherwise->group) : std::nullopt));
  ZT_ASSIGN_OR_RETURN(
      read.frame_content,
      ReadSize(planes, "chunk", otherwise ? Parameters(otherwise->frame_content) : std::nullopt));
  if (rotate > 1) return Broken("'rotate' is " + std::to_string(rotate) + ", neither 0 nor 1");
  read.rotate = static_cast<std::uint8_t>(rotate);
  ZT_RETURN_IF_ERROR(CheckPlaneParameters(read, element));
  return read;
}

}  // namespace

CodecParameters DefaultPlanesV2(const ElementType& element) {
  CodecParameters parameters;
  parameters.width = static_cast<std::uint8_t>(ByteWidth(element.dtype));
  parameters.rotate = IsFloat(element.dtype) ? 1 : 0;
  parameters.group = parameters.width * (std::uint32_t{128} << 10);
  parameters.frame_content = std::uint32_t{4} << 20;
  return parameters;
}

StatusOr<CodecParameters> ReadPlanesV2(const Value::Map& planes, const ElementType& element) {
  return ReadParameters(planes, element, DefaultPlanesV2(element));
}

Value::Map PlanesToV2(const CodecParameters& parameters, const ElementType& element) {
  const CodecParameters otherwise = DefaultPlanesV2(element);
  Value::Map planes;
  if (parameters.rotate != otherwise.rotate)
    planes.emplace_back("rotate", std::uint32_t{parameters.rotate});
  if (parameters.group != otherwise.group) planes.emplace_back("group", parameters.group);
  if (parameters.frame_content != otherwise.frame_content)
    planes.emplace_back("chunk", parameters.frame_content);
  return planes;
}

Status FromPlanes(StoredObject& object) {
  if (object.format != kPlanesName) return OkStatus();
  const auto found = std::find_if(object.attributes.begin(), object.attributes.end(),
                                  [](const auto& member) { return member.first == kAttribute; });
  const Value::Map* planes = found == object.attributes.end() ? nullptr : found->second.AsMap();
  if (planes == nullptr) return Broken("the attribute 'planes' is missing, or no map");
  if (object.components.size() != 1 || object.components[0].role != "data") {
    return Broken("an object has one component, 'data'");
  }
  StoredComponent& component = object.components[0];
  if (component.element != ElementType{DType::kU8, ""}) {
    return Broken("the component is " + std::string(Name(component.element)) +
                  ", not u8 without a type");
  }
  if (component.encoding != Encoding::kZstd) {
    return Broken("the component is " + std::string(Name(component.encoding)) + ", not zstd");
  }
  ZT_ASSIGN_OR_RETURN(component.element, ReadElement(*planes));
  ZT_ASSIGN_OR_RETURN(component.parameters,
                      ReadParameters(*planes, component.element, std::nullopt));
  component.encoding = Encoding::kPlanes;
  object.format = "dense";
  object.attributes.erase(found);
  return OkStatus();
}

bool HasPlanes(const StoredObject& object) {
  return std::any_of(object.components.begin(), object.components.end(),
                     [](const StoredComponent& c) { return c.encoding == Encoding::kPlanes; });
}

Status CheckPlanes(std::string_view format, std::size_t components, std::string_view role,
                   const Value::Map& attributes) {
  const std::string name(kPlanesName);
  if (format != "dense" || components != 1 || role != "data") {
    return InvalidArgument(name + " stores dense tensors only");
  }
  if (FindMember(attributes, kAttribute) != nullptr) {
    return InvalidArgument(name + " has an attribute 'planes' of its own, and the tensor has one");
  }
  return OkStatus();
}

StatusOr<StoredObject> ToPlanes(const StoredObject& object) {
  const StoredComponent& component = object.components[0];
  ZT_RETURN_IF_ERROR(
      CheckPlanes(object.format, object.components.size(), component.role, object.attributes));
  const CodecParameters& parameters = component.parameters;
  Value::Map planes = {{"dtype", Name(component.element.dtype)},
                       {"rotate", std::uint32_t{parameters.rotate}},
                       {"group", parameters.group},
                       {"chunk", parameters.frame_content}};
  if (!component.element.type.empty()) planes.emplace_back("type", component.element.type.str());
  StoredObject stored = object;
  stored.format = kPlanesName;
  stored.attributes.emplace_back(std::string(kAttribute), std::move(planes));
  stored.components[0].element = {DType::kU8, ""};
  stored.components[0].encoding = Encoding::kZstd;
  stored.components[0].parameters = {};
  return stored;
}

}  // namespace zt::format::internal
