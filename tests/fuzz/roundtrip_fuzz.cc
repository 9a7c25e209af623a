// Objects made of the input, written by Writer and read back: equal to the byte; one byte of data
// changed: noticed.
#include "fuzz.h"

import zt;

namespace {

// Decisions taken from the input, zeros once it is used up.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : bytes_(bytes) {}
  unsigned Below(unsigned bound) { return Byte() % bound; }
  unsigned Wide() { return Byte() << 8 | Byte(); }
  bool Flip() { return (Byte() & 1) != 0; }
  std::span<const std::byte> Take(std::size_t count) {
    const auto out = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(out.size());
    return out;
  }

 private:
  unsigned Byte() {
    const auto byte = Take(1);
    return byte.empty() ? 0 : std::to_integer<unsigned>(byte[0]);
  }
  std::span<const std::byte> bytes_;
};

struct Made {
  zt::Object object;
  std::vector<std::vector<std::byte>> components;
  std::vector<zt::Storage> storage;
};

// Some of the input again and again, so that there is something to compress; bool bytes are 0 or 1.
std::vector<std::byte> Content(Choices& choices, const zt::Component& component) {
  std::vector<std::byte> out(component.bytes);
  const auto pattern = choices.Take(choices.Below(64));
  for (std::size_t i = 0; i < out.size() && !pattern.empty(); ++i)
    out[i] = pattern[i % pattern.size()];
  if (component.element.dtype == zt::DType::kBool) {
    for (std::byte& byte : out) byte &= std::byte{1};
  }
  return out;
}

std::optional<Made> MakeObject(Choices& choices) {
  static constexpr const char* kElements[] = {
      "f64", "f32", "f16", "bf16", "i64",  "i32",       "i16",       "i8",
      "u64", "u32", "u16", "u8",   "bool", "f8_e4m3fn", "complex64", "f4_e2m1"};
  Made made;
  const auto name = choices.Take(1 + choices.Below(8));
  made.object.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  for (unsigned rank = choices.Below(4); rank > 0; --rank)
    made.object.shape.push_back(choices.Below(24));
  const zt::ElementType element = *zt::ParseElementType(kElements[choices.Below(16)]);
  if (choices.Flip()) {
    made.object.format = "fuzz.pair/1";
    made.object.components = {{"data", element, choices.Wide() / 64 * zt::ByteWidth(element.dtype)},
                              {"more", {}, choices.Wide()}};
  } else {
    made.object.components = {{"data", element, *zt::DenseBytes(made.object.shape, element)}};
  }
  if (choices.Flip())
    made.object.attributes.push_back({"count", zt::Value(std::int64_t{choices.Wide()})});
  for (const zt::Component& component : made.object.components) {
    made.components.push_back(Content(choices, component));
    made.storage.push_back({.compression = static_cast<zt::Compression>(choices.Below(3))});
    // Or the version's own: 2.0 refuses crc32c.
    if (const unsigned digest = choices.Below(5); digest < 4)
      made.storage.back().digest = static_cast<zt::DigestKind>(digest);
  }
  return made;
}

void CheckReadsBack(const zt::Reader& reader, const std::vector<Made>& objects) {
  ZT_FUZZ_CHECK(reader.manifest().objects.size() == objects.size());
  for (const Made& made : objects) {
    const auto at = reader.Find(made.object.name);
    ZT_FUZZ_CHECK(at.has_value());
    const zt::StoredObject& stored = reader.manifest().objects[*at];
    ZT_FUZZ_CHECK(stored.shape == made.object.shape && stored.format == made.object.format);
    ZT_FUZZ_CHECK(stored.components.size() == made.components.size());
    for (std::size_t c = 0; c < made.components.size(); ++c) {
      std::uint32_t index = 0;  // a manifest sorts its components by role
      while (stored.components[index].role != made.object.components[c].role) {
        ZT_FUZZ_CHECK(++index < stored.components.size());
      }
      ZT_FUZZ_CHECK(stored.components[index].element == made.object.components[c].element);
      std::vector<std::byte> bytes(made.components[c].size());
      const zt::StatusOr<std::uint64_t> decoded = reader.DecodedBytes({*at, index});
      ZT_FUZZ_CHECK(decoded.ok() && *decoded == bytes.size());
      ZT_FUZZ_CHECK(reader.Read({*at, index}, 0, bytes).ok());
      ZT_FUZZ_CHECK(bytes == made.components[c]);
    }
  }
}

// True where a digest covers this byte. Of what is compressed in 2.0 it covers the content, which
// some bytes of a frame's header leave as it is.
bool Covered(const zt::Manifest& manifest, std::uint64_t at) {
  const bool decoded = zt::Traits(manifest.version).digests_decoded;
  for (const zt::StoredObject& object : manifest.objects) {
    for (const zt::StoredComponent& component : object.components) {
      if (component.digest.empty() || at - component.offset >= component.length) continue;
      if (!decoded || component.encoding == zt::Encoding::kRaw) return true;
    }
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr zt::SpecVersion kVersions[] = {zt::SpecVersion::k1_2, zt::SpecVersion::k1_1,
                                                  zt::SpecVersion::k0_1, zt::SpecVersion::k2_0};
  Choices choices(FuzzBytes(data, size));
  const unsigned damage_at = choices.Wide();
  const std::byte damage{static_cast<unsigned char>(1 + choices.Below(255))};
  zt::WriterOptions options;
  options.spec = kVersions[choices.Below(4)];
  options.threads = 1 + choices.Below(2);
  options.zstd = {.level = 1 + static_cast<int>(choices.Below(3)),
                  .huffman = choices.Flip(),
                  .frame_bytes = 1024};
  std::vector<Made> objects;
  for (unsigned left = choices.Below(6); left > 0; --left) {
    if (auto made = MakeObject(choices)) objects.push_back(*std::move(made));
  }

  std::vector<std::byte> file;
  auto writer = zt::Writer::Create(zt::MemorySink(file), options);
  ZT_FUZZ_CHECK(writer.ok());
  for (const Made& made : objects) {
    std::vector<std::span<const std::byte>> components(made.components.begin(),
                                                       made.components.end());
    // A name twice or not UTF-8, or what the version cannot say.
    if (!(*writer)->Add(made.object, std::move(components), made.storage).ok()) return 0;
  }
  ZT_FUZZ_CHECK((*writer)->Finish().ok());
  const auto reader = zt::Reader::Open(zt::MemoryBytes(file, "output"));
  ZT_FUZZ_CHECK(reader.ok());
  CheckReadsBack(**reader, objects);
  const auto report = zt::Verify(**reader);
  ZT_FUZZ_CHECK(report.ok() && report->problems.empty() && report->unverified.empty());

  std::vector<std::byte> damaged = file;
  const std::uint64_t at = damage_at % damaged.size();
  damaged[at] ^= damage;
  const auto again = zt::Reader::Open(zt::MemoryBytes(damaged, "damaged"));
  const bool covered = Covered((*reader)->manifest(), at);
  ZT_FUZZ_CHECK(again.ok() || !covered);
  if (!again.ok()) return 0;
  const auto found = zt::Verify(**again);
  if (covered) ZT_FUZZ_CHECK(!found.ok() || !found->problems.empty());
  return 0;
}
