// zt.format:v2 — the content digest of a 2.0 file (§6.4), from the bytes of its manifest.
module;

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :v2;
import zt.core;
import zt.digest;

namespace zt {
namespace {

namespace cbor = format_cbor;

// Hashes a manifest without its layout. Values are hashed as encoded.
class Content {
 public:
  Content(std::span<const std::byte> manifest, Hasher& hasher)
      : bytes_(manifest), reader_(manifest), hasher_(hasher) {}

  using Keep = std::function<bool(std::string_view)>;

  // `keep`: see ContentDigest.
  Status Walk(const Keep& keep) {
    const auto fields = FindFields<1>({"objects"});
    if (!fields[0]) return format::internal::BrokenV2("3.2", "field 'objects' is missing");
    cbor::Buffer head;
    cbor::AppendArrayHead(head, 2);
    cbor::AppendText(head, "zt.content/1");
    hasher_.Update(head);
    return Each(fields[0], WithTensor, keep, [this] { return Object(); });
  }

 private:
  // The range of a value.
  struct Span {
    std::size_t begin = 0, end = 0;
    explicit operator bool() const { return end != 0; }
  };

  // The values of the map at the reader's position, by key. Moves the reader behind the map.
  template <std::size_t N>
  std::array<Span, N> FindFields(const std::array<std::string_view, N>& keys) {
    std::array<Span, N> found;
    const cbor::Item head = reader_.Next();
    for (std::uint64_t i = 0; head.kind == cbor::Kind::kMap && i < head.value; ++i) {
      const std::size_t at = reader_.position();
      const cbor::Item key = reader_.Next();
      const std::string text(key.kind == cbor::Kind::kText ? key.text : "");
      reader_.Rewind(at);
      if (!reader_.Skip(kMaxNesting)) break;
      const std::size_t begin = reader_.position();
      if (!reader_.Skip(kMaxNesting)) break;
      for (std::size_t k = 0; k < N; ++k) {
        if (!text.empty() && text == keys[k]) found[k] = {begin, reader_.position()};
      }
    }
    return found;
  }

  // Hashes what is kept of the map at `map`: its keys as encoded, its values with `value`. `with`
  // adds a key to errors.
  template <typename Value>
  Status Each(const Span& map, Status (*with)(const Status&, std::string_view), const Keep& keep,
              Value value) {
    const std::size_t after = reader_.position();
    reader_.Rewind(map.begin);
    const cbor::Item head = reader_.Next();
    if (head.kind != cbor::Kind::kMap) return format::internal::BrokenV2("3.2", "a map is needed");
    std::vector<Span> keys;  // a value begins where its key ends
    for (std::uint64_t i = 0; i < head.value; ++i) {
      const std::size_t at = reader_.position();
      if (!reader_.Skip(kMaxNesting)) return InvalidData(reader_.error());
      const Span key{at, reader_.position()};
      if (!reader_.Skip(kMaxNesting)) return InvalidData(reader_.error());
      if (!keep || keep(NameAt(key))) keys.push_back(key);
    }
    Head(keys.size());
    for (const Span& key : keys) {
      Copy(key);
      reader_.Rewind(key.end);
      if (Status status = value(); !status.ok()) return with(status, NameAt(key));
    }
    reader_.Rewind(after);
    return OkStatus();
  }

  Status Object() {
    const auto [parts, shape, layout, attributes] =
        FindFields<4>({"parts", "shape", "layout", "attributes"});
    if (!parts || !shape || !layout) return format::internal::BrokenV2("3.3", "a field is missing");
    Head(attributes ? 4 : 3);
    Key("parts");
    ZT_RETURN_IF_ERROR(Each(parts, WithComponent, nullptr, [this] { return HashPart(); }));
    Member("shape", shape);
    Member("layout", layout);
    Member("attributes", attributes);
    return OkStatus();
  }

  Status HashPart() {
    auto [type, dtype, digest] = FindFields<3>({"type", "dtype", "digest"});
    if (std::ranges::equal(Bytes(type), Bytes(dtype))) type = {};  // redundant
    if (!dtype) return format::internal::BrokenV2("3.4", "field 'dtype' is missing");
    if (!digest) {
      return format::internal::InSection(
          InvalidArgument("it has no digest, so that the file has no content digest"), "6.4");
    }
    Head(type ? 3 : 2);
    Member("type", type);
    Member("dtype", dtype);
    Member("digest", digest);
    return OkStatus();
  }

  void Head(std::uint64_t pairs) {
    cbor::Buffer head;
    cbor::AppendMapHead(head, pairs);
    hasher_.Update(head);
  }
  void Key(std::string_view key) {
    cbor::Buffer text;
    cbor::AppendText(text, key);
    hasher_.Update(text);
  }
  void Member(std::string_view key, const Span& value) {
    if (!value) return;
    Key(key);
    Copy(value);
  }
  std::span<const std::byte> Bytes(const Span& span) const {
    return bytes_.subspan(span.begin, span.end - span.begin);
  }
  void Copy(const Span& span) { hasher_.Update(Bytes(span)); }
  std::string_view NameAt(const Span& key) {
    cbor::Reader reader(bytes_, key.begin);
    return reader.Next().text;
  }

  std::span<const std::byte> bytes_;
  cbor::Reader reader_;
  Hasher& hasher_;
};

}  // namespace

StatusOr<std::string> ContentDigest(std::span<const std::byte> manifest, DigestKind kind,
                                    const std::function<bool(std::string_view)>& keep) {
  const std::unique_ptr<Hasher> hasher = MakeHasher(kind);
  if (hasher == nullptr) return InvalidArgument("a content digest needs an algorithm");
  ZT_RETURN_IF_ERROR(format::internal::CheckDeterministic(manifest));
  ZT_RETURN_IF_ERROR(Content(manifest, *hasher).Walk(keep));
  return hasher->Finish();
}

}  // namespace zt
