// zt.format:v2 — terms of 2.0 for reading and writing: sections, names, digests, shapes, types,
// vendor names.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :v2;
import zt.core;

namespace zt::format::internal {
namespace {

constexpr std::string_view kVendorPrefix = "ztstream.", kVendorSuffix = "/1";
constexpr std::size_t kMaxNameBytes = 1024;     // §3.5
constexpr std::size_t kMaxShardNameBytes = 64;  // §7.1

// Appendix A.
constexpr std::string_view kTypes[] = {"bool",        "f8_e4m3fn",   "f8_e5m2",
                                       "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0",
                                       "f4_e2m1",     "complex64",   "complex128"};

}  // namespace

Status BrokenV2(std::string_view section, std::string_view what) {
  return InSection(InvalidData(what), section);
}

Status InSection(const Status& status, std::string_view section) {
  return status.ok() ? status : WithRule(status, "zTensor 2.0 §" + std::string(section));
}

Status CheckNameV2(std::string_view what, std::string_view name) {
  std::string_view wrong;
  if (!IsUtf8(name)) wrong = " is not valid UTF-8";
  if (name.empty()) wrong = " is empty";
  if (name.size() > kMaxNameBytes) wrong = " has more than 1024 bytes";
  if (name.find('\0') != name.npos) wrong = " holds U+0000";
  if (wrong.empty()) return OkStatus();
  return BrokenV2("3.5", std::string(what) + " " + Quote(name.substr(0, 64)) + std::string(wrong));
}

Status CheckShardNameV2(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxShardNameBytes && name.front() != '.' &&
      std::ranges::all_of(name, fits)) {
    return OkStatus();
  }
  return BrokenV2("7.1",
                  "shard name " + Quote(name.substr(0, 96)) +
                      " is not of 1 to 64 letters, digits, '.', '_' and '-', or begins with '.'");
}

Status CheckDigestV2(std::string_view digest) {
  const std::size_t colon = digest.find(':');
  const std::string_view algorithm = digest.substr(0, colon);
  const std::string_view hex = colon == digest.npos ? "" : digest.substr(colon + 1);
  const std::size_t digits = algorithm == "xxh3" ? 16 : algorithm == "sha256" ? 64 : hex.size();
  const auto fits = [](char c) { return c > ' ' && c <= '~' && !(c >= 'A' && c <= 'Z'); };
  if (!algorithm.empty() && std::ranges::all_of(algorithm, fits) && !hex.empty() &&
      hex.size() == digits && hex.find_first_not_of("0123456789abcdef") == hex.npos) {
    return OkStatus();
  }
  return BrokenV2("3.4", "digest " + Quote(digest.substr(0, 96)) +
                             " is not an algorithm, ':' and its value in lower-case hexadecimal");
}

Status CheckShapeV2(const Shape& shape) {
  if (ElementCount(shape)) return OkStatus();
  return BrokenV2("3.3", "shape " + ToString(shape) + " overflows 64 bits");
}

std::optional<DType> StorageOfV2(std::string_view type) {
  if (std::ranges::find(kTypes, type) == std::end(kTypes)) return std::nullopt;
  return type == "bool" ? DType::kU8 : FindLogicalType(type)->storage;
}

std::string VendorName(std::string_view name) {
  return std::string(kVendorPrefix) + std::string(name) + std::string(kVendorSuffix);
}

std::optional<std::string_view> StripVendor(std::string_view name) {
  if (name.size() <= kVendorPrefix.size() + kVendorSuffix.size()) return std::nullopt;
  if (!name.starts_with(kVendorPrefix) || !name.ends_with(kVendorSuffix)) return std::nullopt;
  name.remove_prefix(kVendorPrefix.size());
  name.remove_suffix(kVendorSuffix.size());
  return name;
}

StatusOr<ElementType> ElementToV2(const ElementType& element) {
  if (element.dtype == DType::kBool) {
    if (!element.type.empty()) {
      return InvalidArgument("version 2.0 has no bool of type " + Quote(element.type));
    }
    return ElementType{DType::kU8, "bool"};
  }
  if (element.type.empty() || (element.type != "bool" && StorageOfV2(element.type))) return element;
  return ElementType{element.dtype, VendorName(element.type)};
}

std::optional<ElementType> ElementFromV2(const ElementType& element) {
  if (element == ElementType{DType::kU8, "bool"}) return ElementType{DType::kBool, ""};
  if (element.type.empty() || StorageOfV2(element.type)) return element;
  const auto name = StripVendor(element.type);
  if (!name || *name == Name(element.dtype)) return std::nullopt;
  ElementType plain{element.dtype, *name};
  const auto again = ElementToV2(plain);  // a type with a name in 2.0 is not a vendor name of ours
  return again.ok() && *again == element ? std::optional(std::move(plain)) : std::nullopt;
}

}  // namespace zt::format::internal
