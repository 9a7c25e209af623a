// zt.format:dialect — converts objects between the model, which uses 1.2's terms, and 2.0.
// docs/FORMAT.md has the table.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :dialect;
import :files;
import :v2;
import zt.core;

namespace zt::format::internal {

namespace {

constexpr std::string_view kPacked4 = "f4_e2m1";

struct NamedLayout {
  std::string_view format, layout;
};
constexpr NamedLayout kLayouts[] = {
    {"dense", "dense"}, {"sparse_csr", "zt.sparse_csr/1"}, {"sparse_coo", "zt.sparse_coo/1"}};
// Profiles that have the same name on both sides.
constexpr std::string_view kSharedProfiles[] = {"zt.quant_group/1", "zt.mx/1", kFileFormat,
                                                kDeltaFormat};

// Names that begin as those of vendors, and are the same on both sides.
bool IsOwnProfile(std::string_view format) {
  return format == kFileFormat || format == kDeltaFormat;
}

// The layout for a format, which fits if the object satisfies the layout's rules; nullopt if there
// is none.
std::optional<std::string_view> LayoutOf(std::string_view format) {
  for (const NamedLayout& each : kLayouts) {
    if (each.format == format) return each.layout;
  }
  if (format.starts_with("gguf.") && format.ends_with("/1")) return format;
  const auto shared = std::ranges::find(kSharedProfiles, format);
  if (shared == std::end(kSharedProfiles)) return std::nullopt;
  return *shared;
}

bool IsPacked4(const std::string& format, const ElementType& element) {
  return format == "dense" && element.type == kPacked4;
}

// The shape in packed bytes of a shape in 4-bit elements: the last dimension is halved if it is
// even, else the shape is flat.
std::optional<Shape> PackedShape(Shape logical) {
  const auto count = ElementCount(logical);
  if (!count) return std::nullopt;
  if (!logical.empty() && logical.back() % 2 == 0) {
    logical.back() /= 2;
    return logical;
  }
  return Shape{*count / 2 + *count % 2};
}

// Gives a dense tensor of 4-bit elements its shape in elements. False if it has none.
bool UnpackShape(Object& object) {
  auto logical = LogicalShape(object);
  if (!logical) return false;
  object.shape = *std::move(logical);
  std::erase_if(object.attributes, [](const auto& each) { return each.first == kLogicalShape; });
  return true;
}

}  // namespace

std::optional<Shape> LogicalShape(const Object& object) {
  const Value* const value = FindMember(object.attributes, kLogicalShape);
  auto logical = value == nullptr ? std::nullopt : ToShape(*value);
  if (!logical || logical->size() > kMaxRank || PackedShape(*logical) != object.shape) {
    return std::nullopt;
  }
  return logical;
}

StatusOr<Object> ToV2(Object object) {
  auto layout = LayoutOf(object.format);
  if (layout && IsPacked4(object.format, object.components[0].element) && !UnpackShape(object)) {
    layout = std::nullopt;
  }
  for (Component& component : object.components) {
    auto element = ElementToV2(component.element);
    if (!element.ok()) return WithComponent(element.status(), component.role);
    component.element = *std::move(element);
  }
  std::string vendor = VendorName(object.format);
  if (layout) {
    object.format = *layout;
    if (CheckProfileV2(object).ok()) return object;
  }
  if (IsOwnProfile(vendor)) {
    return InvalidArgument("version 2.0 keeps the layout " + Quote(vendor) + " for " +
                           (vendor == kFileFormat ? "files" : "differences"));
  }
  object.format = std::move(vendor);
  return object;
}

namespace {

StatusOr<StoredObject> FromV2Terms(StoredObject object) {
  const auto named = std::ranges::find(kLayouts, object.format, &NamedLayout::layout);
  const auto vendor = IsOwnProfile(object.format) ? std::nullopt : StripVendor(object.format);
  const bool profile = named != std::end(kLayouts);
  if (profile) {
    object.format = named->format;
  } else if (vendor) {
    object.format = std::string(*vendor);
  } else if (LayoutOf(object.format) == std::nullopt) {
    return object;
  }
  for (StoredComponent& c : object.components) {
    if (auto element = ElementFromV2(c.element)) c.element = *std::move(element);
  }
  if (!profile || !IsPacked4(object.format, object.components[0].element)) return object;
  if (FindMember(object.attributes, kLogicalShape) != nullptr) {
    return Unsupported("an f4_e2m1 tensor with an attribute 'logical_shape' of its own");
  }
  auto packed = PackedShape(object.shape);
  if (!packed) return InvalidData("shape " + ToString(object.shape) + " overflows 64 bits");
  Value::Array logical(object.shape.begin(), object.shape.end());
  object.attributes.emplace_back(std::string(kLogicalShape), std::move(logical));
  object.shape = *std::move(packed);
  return object;
}

}  // namespace

StatusOr<StoredObject> FromV2(StoredObject object) {
  const bool ours = (StripVendor(object.format) && !IsOwnProfile(object.format)) ||
                    std::ranges::any_of(object.components, [](const StoredComponent& each) {
                      return StripVendor(each.element.type).has_value();
                    });
  if (!ours) return FromV2Terms(std::move(object));
  ZT_ASSIGN_OR_RETURN(StoredObject mapped, FromV2Terms(object));
  Object declared;
  const Status kept = Dialect20().CheckAlone(mapped, &declared);
  if (kept.ok()) return mapped;
  // 2.0 has no rules for vendor names: the object is valid, but it is none of those that we write
  // under them.
  for (StoredComponent& component : object.components) {
    if (!component.undecodable.empty()) continue;
    component.undecodable =
        "it breaks the rules of the names that begin with 'ztstream.': " + Message(kept);
  }
  return object;
}

}  // namespace zt::format::internal
