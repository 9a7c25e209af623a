// zt.format — what each version fixes about the container: magic, footer, alignment.
module;

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/little_endian.h"

module zt.format;

import zt.core;

namespace zt {
namespace {

constexpr std::size_t kMagicBytes = 8;
constexpr std::size_t kSizeBytes = 8;
constexpr std::string_view kMagic1 = "ZTEN1000";
constexpr std::string_view kMagic01 = "ZTEN0001";

// Never change these: files in the world depend on them.
constexpr std::array<ContainerTraits, 4> kTraits = {{
    {SpecVersion::k0_1, "0.1.0", kMagic01, "", 64, true},
    {SpecVersion::k1_0, "1.0", kMagic1, "", 64, false},
    {SpecVersion::k1_1, "1.1.0", kMagic1, kMagic1, 64, true},
    {SpecVersion::k1_2, "1.2.0", kMagic1, kMagic1, 64, true},
}};

bool IsMagic(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

const ContainerTraits& Traits(SpecVersion version) {
  return kTraits[static_cast<std::size_t>(version)];
}

std::optional<SpecVersion> ParseSpecVersion(std::string_view text) {
  if (text == "0.1" || text == "0.1.0") return SpecVersion::k0_1;
  if (text == "1.0" || text == "1.0.0") return SpecVersion::k1_0;
  if (text == "1.1" || text == "1.1.0") return SpecVersion::k1_1;
  if (text == "1.2" || text == "1.2.0") return SpecVersion::k1_2;
  return std::nullopt;
}

bool LooksLikeZt(std::span<const std::byte> head) {
  return IsMagic(head, kMagic1) || IsMagic(head, kMagic01);
}

StatusOr<Trailer> LocateManifest(std::span<const std::byte> head, std::span<const std::byte> tail,
                                 std::uint64_t file_bytes) {
  if (!LooksLikeZt(head)) {
    return InvalidData("no ZTEN1000 or ZTEN0001 at the start: this is no .zt file");
  }
  const bool footer = !IsMagic(head, kMagic01) && tail.size() >= kMagicBytes &&
                      IsMagic(tail.last(kMagicBytes), kMagic1);
  Trailer trailer;
  trailer.family = IsMagic(head, kMagic01) ? SpecVersion::k0_1
                   : footer                ? SpecVersion::k1_2
                                           : SpecVersion::k1_0;
  const std::size_t footer_bytes = kSizeBytes + (footer ? kMagicBytes : 0);
  if (file_bytes < kMagicBytes + footer_bytes + 1 || tail.size() < footer_bytes) {
    return InvalidData("it has " + std::to_string(file_bytes) +
                       " bytes, fewer than the smallest .zt file");
  }
  trailer.manifest_bytes = internal::LoadLittle(tail.last(footer_bytes).data(), kSizeBytes);
  const std::uint64_t room = file_bytes - kMagicBytes - footer_bytes;
  const bool fits = trailer.manifest_bytes <= room && trailer.manifest_bytes > 0;
  if (trailer.family == SpecVersion::k1_0 &&
      (!fits || trailer.manifest_bytes > kMaxManifestBytes)) {
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
  return trailer;
}

std::vector<std::byte> EncodeFooter(std::uint64_t manifest_bytes, SpecVersion version) {
  const std::string_view magic = Traits(version).footer_magic;
  std::vector<std::byte> out(kSizeBytes);
  internal::StoreLittle(manifest_bytes, kSizeBytes, out.data());
  for (const char c : magic) out.push_back(static_cast<std::byte>(c));
  return out;
}

Object Declare(const StoredObject& stored) {
  Object object;
  object.name = stored.name;
  object.format = stored.format;
  object.shape = stored.shape;
  object.attributes = stored.attributes;
  object.components.reserve(stored.components.size());
  for (const StoredComponent& component : stored.components) {
    object.components.push_back({component.role, component.element, component.decoded_bytes});
  }
  return object;
}

}  // namespace zt
