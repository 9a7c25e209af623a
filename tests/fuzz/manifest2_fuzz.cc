// Any bytes as a manifest of 2.0, alone and in a file: what decodes keeps the rules, and its
// content digest is one.
#include "fuzz.h"

import zt.core;
import zt.digest;
import zt.format;
import zt.reader;
import zt.source;

namespace {

constexpr std::size_t kFloor = 4096;

// A file with 4096 bytes of zeros for blobs and this manifest.
std::vector<std::byte> FileOf(std::span<const std::byte> manifest) {
  const std::string_view magic = zt::Traits(zt::SpecVersion::k2_0).header_magic;
  std::vector<std::byte> file(2 * kFloor);
  std::memcpy(file.data(), magic.data(), magic.size());
  file.insert(file.end(), manifest.begin(), manifest.end());
  const auto append = [&file](std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) file.push_back(static_cast<std::byte>(value >> 8 * i));
  };
  append(2 * kFloor, 8);
  append(manifest.size(), 8);
  append(zt::Xxh3(manifest), 8);
  append(2, 8);  // the version, and what is reserved
  for (const char c : magic) file.push_back(static_cast<std::byte>(c));
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = FuzzBytes(data, size);
  const auto manifest = zt::DecodeManifest(bytes, zt::SpecVersion::k2_0);
  const auto content = zt::ContentDigest(bytes, zt::DigestKind::kXxh3);
  if (!manifest.ok()) return 0;
  bool digests = true;
  for (const zt::StoredObject& object : manifest->objects) {
    ZT_FUZZ_CHECK(!object.components.empty() && zt::ElementCount(object.shape).has_value());
    for (const zt::StoredComponent& c : object.components) {
      digests = digests && !c.digest.empty();
      ZT_FUZZ_CHECK(c.shard <= manifest->shards.size());
    }
  }
  ZT_FUZZ_CHECK(content.ok() == digests);
  const std::vector<std::byte> file = FileOf(bytes);
  const auto reader = zt::Reader::Open(zt::MemoryBytes(file, "input"));
  if (!reader.ok()) return 0;
  (void)zt::Verify(**reader, {.memory_bytes = 4 << 20}).ok();
  return 0;
}
