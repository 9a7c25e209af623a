// zt.format:dialect — the default behaviour of versions, and functions that several share.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :dialect;
import zt.compress;
import zt.core;

namespace zt::format::internal {

namespace cbor = format_cbor;

namespace {

constexpr std::size_t kSizeBytes = 8;

bool IsInteger(DType dtype) { return IsSignedInt(dtype) || IsUnsignedInt(dtype); }

}  // namespace

std::string Dialect::Named() const { return "version " + std::string(traits_.text); }

Status Dialect::CheckStored(const StoredObject& object, const StoredComponent& component) const {
  if (!IsIndexRole(object.format, component.role)) return OkStatus();
  if (component.element.type.empty() && IsInteger(component.element.dtype)) return OkStatus();
  return InvalidData("it is of dtype " + std::string(Name(component.element)) +
                     ", indices are integers");
}

Status Dialect::CheckComplete(const Object&) const { return OkStatus(); }

std::optional<ElementType> Dialect::ParseElement(std::string_view dtype) const {
  if (const auto parsed = ParseDType(dtype)) return ElementType{*parsed, ""};
  return std::nullopt;
}

Status Dialect::CheckEncoding(Encoding encoding) const {
  if (encoding != Encoding::kPlanes) return OkStatus();
  return InvalidArgument(Named() + " has no " + std::string(kPlanesName) +
                         "; versions 1.2 and 2.0 have it");
}

Status Dialect::CheckShard(const StoredShard&) const {
  return InvalidArgument(Named() + " has no shards");
}

Status Dialect::CheckName(std::string_view name) const {
  return IsUtf8(name) ? OkStatus() : InvalidArgument("the name is not valid UTF-8");
}

Status Dialect::CheckRoot(const Value::Map& attributes) const {
  return CheckAttributes(attributes, kRootDepth);
}

// ---- shared ----

bool IsMagic(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

StatusOr<Trailer> LocateBySize(SpecVersion family, std::string_view magic,
                               std::span<const std::byte> tail, std::uint64_t file_bytes) {
  const std::size_t header_bytes = Traits(family).header_magic.size();
  const std::size_t footer_bytes = kSizeBytes + magic.size();
  if (file_bytes < header_bytes + footer_bytes + 1 || tail.size() < footer_bytes) {
    return InvalidData("it has " + std::to_string(file_bytes) +
                       " bytes, fewer than the smallest .zt file");
  }
  Trailer trailer;
  trailer.family = family;
  trailer.manifest_bytes = zt::internal::LoadLittle(tail.last(footer_bytes).data(), kSizeBytes);
  const std::uint64_t room = file_bytes - header_bytes - footer_bytes;
  const bool fits = trailer.manifest_bytes <= room && trailer.manifest_bytes > 0;
  if (family == SpecVersion::k1_0 && (!fits || trailer.manifest_bytes > kMaxManifestBytes)) {
    return InvalidData("no ZTEN1000 at the end: the file is truncated, or something follows it");
  }
  if (trailer.manifest_bytes > kMaxManifestBytes) {
    return InvalidData("the manifest size " + std::to_string(trailer.manifest_bytes) +
                       " exceeds 1 GiB");
  }
  if (!fits) {
    return InvalidData("the manifest size " + std::to_string(trailer.manifest_bytes) +
                       " does not fit the file of " + std::to_string(file_bytes) + " bytes");
  }
  trailer.manifest_offset = file_bytes - footer_bytes - trailer.manifest_bytes;
  trailer.data_end = trailer.manifest_offset;
  return trailer;
}

std::uint64_t BytesOf(ManifestParts manifest) {
  std::uint64_t bytes = 0;
  for (const std::span<const std::byte> part : manifest) bytes += part.size();
  return bytes;
}

std::vector<std::byte> SizeFooter(std::uint64_t manifest_bytes, std::string_view magic) {
  std::vector<std::byte> out(kSizeBytes);
  zt::internal::StoreLittle(manifest_bytes, kSizeBytes, out.data());
  for (const char c : magic) out.push_back(static_cast<std::byte>(c));
  return out;
}

Status CheckAttributes(const Value::Map& attributes, std::size_t depth) {
  if (attributes.empty()) return OkStatus();
  Bytes scratch;
  ZT_RETURN_IF_ERROR(Annotate(AppendMap(attributes, kMaxNesting - depth, &scratch), "attributes"));
  return AttributeBudget().Take(attributes);
}

Status AppendAttributes(const Value::Map& attributes, std::size_t depth, Bytes* out) {
  if (attributes.empty()) return OkStatus();
  cbor::AppendText(*out, "attributes");
  return Annotate(AppendMap(attributes, kMaxNesting - depth, out), "attributes");
}

Status CheckTexts(const StoredObject& object) {
  if (!IsUtf8(object.name)) return InvalidArgument("the name is not valid UTF-8");
  if (object.format.empty()) return InvalidArgument("the format is empty");
  if (!IsUtf8(object.format)) return InvalidArgument("the format is not valid UTF-8");
  if (object.shape.size() > kMaxRank) {
    return InvalidArgument("the rank exceeds " + std::to_string(kMaxRank));
  }
  if (object.components.empty()) return InvalidArgument("there is no component");
  for (const StoredComponent& component : object.components) {
    if (!IsUtf8(component.role) || !IsUtf8(component.element.type) || !IsUtf8(component.digest)) {
      return InvalidArgument("a component's role, type or digest is not valid UTF-8");
    }
  }
  return OkStatus();
}

StatusOr<InlinedVector<std::size_t, 4>> KeyOrder(std::span<const std::string_view> keys) {
  InlinedVector<std::size_t, 4> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() < 2) return order;
  std::sort(order.begin(), order.end(),
            [keys](std::size_t a, std::size_t b) { return cbor::KeyLess(keys[a], keys[b]); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (keys[order[i - 1]] == keys[order[i]]) {
      return InvalidArgument(Quote(keys[order[i]]) + " occurs twice");
    }
  }
  return order;
}

void AppendShape(const Shape& shape, Bytes* out) {
  cbor::AppendText(*out, "shape");
  cbor::AppendArrayHead(*out, shape.size());
  for (const std::uint64_t dim : shape) cbor::AppendUint(*out, dim);
}

}  // namespace zt::format::internal
