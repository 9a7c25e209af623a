// zt.format:v2 — checks the deterministic CBOR that zTensor 2.0 requires of its manifest.
module;

#include "core/status_macros.h"
#include "format/cbor.h"

module zt.format;

import zt.std;
import :v2;
import zt.core;

namespace zt::format::internal {
namespace {

namespace cbor = format_cbor;

constexpr std::string_view kSection = "3.1";

class Walker {
 public:
  explicit Walker(std::span<const std::byte> bytes) : bytes_(bytes), reader_(bytes) {}

  Status Walk() {
    ZT_RETURN_IF_ERROR(Value(0));
    if (reader_.remaining() == 0) return OkStatus();
    return BrokenV2(kSection, std::to_string(reader_.remaining()) + " bytes follow the CBOR value");
  }

 private:
  Status Wrong(std::string_view what, std::size_t at) const {
    return BrokenV2(kSection, std::string(what) + " at byte " + std::to_string(at));
  }

  // Checks one value inside `depth` containers.
  Status Value(std::size_t depth) {
    const std::size_t at = reader_.position();
    if (depth > kMaxNestingV2) return Wrong("the CBOR nests deeper than 32 levels", at);
    ZT_RETURN_IF_ERROR(CheckFirst(at));
    const cbor::Item item = reader_.Next();
    switch (item.kind) {
      case cbor::Kind::kError:
        return BrokenV2(kSection, reader_.error());
      case cbor::Kind::kUndefined:
        return Wrong("the CBOR value 'undefined', which is not permitted,", at);
      case cbor::Kind::kSimple:
        return Wrong("a CBOR simple value, which is not permitted,", at);
      case cbor::Kind::kBool:
      case cbor::Kind::kNull:
        return OkStatus();
      case cbor::Kind::kDouble:
        return CheckFloat(item.number, at);
      case cbor::Kind::kText:
        if (!IsUtf8(item.text)) return Wrong("text that is not valid UTF-8", at);
        return CheckHead(item.text.size(), item.text.size(), at);
      case cbor::Kind::kBytes:
        return CheckHead(item.text.size(), item.text.size(), at);
      case cbor::Kind::kArray:
        ZT_RETURN_IF_ERROR(CheckHead(item.value, 0, at));
        for (std::uint64_t i = 0; i < item.value; ++i) ZT_RETURN_IF_ERROR(Value(depth + 1));
        return OkStatus();
      case cbor::Kind::kMap:
        ZT_RETURN_IF_ERROR(CheckHead(item.value, 0, at));
        return WalkMap(item.value, depth);
      default:
        return CheckHead(item.value, 0, at);
    }
  }

  // Checks the first byte of a value: it must not begin a tag or an item of indefinite length.
  Status CheckFirst(std::size_t at) const {
    if (at >= bytes_.size()) return OkStatus();  // the reader reports the missing bytes
    const auto first = std::to_integer<unsigned>(bytes_[at]);
    if (first >> 5 == 6) return Wrong("a CBOR tag, which is not permitted,", at);
    if ((first & 31) == 31) return Wrong("a CBOR item of indefinite length", at);
    return OkStatus();
  }

  // Checks that the item from `at` to here has the shortest head for `value` before `content`
  // bytes.
  Status CheckHead(std::uint64_t value, std::size_t content, std::size_t at) const {
    if (reader_.position() - at == cbor::HeadBytes(value) + content) return OkStatus();
    return Wrong("a CBOR head that is longer than needed", at);
  }

  Status CheckFloat(double value, std::size_t at) {
    shortest_.clear();
    cbor::AppendDouble(shortest_, value);
    const std::size_t size = reader_.position() - at;
    if (size == shortest_.size() && std::memcmp(bytes_.data() + at, shortest_.data(), size) == 0) {
      return OkStatus();
    }
    return Wrong("a float that is not in its canonical form", at);
  }

  Status WalkMap(std::uint64_t pairs, std::size_t depth) {
    std::span<const std::byte> before;
    for (std::uint64_t i = 0; i < pairs; ++i) {
      const std::size_t at = reader_.position();
      ZT_RETURN_IF_ERROR(Value(depth + 1));
      const auto key = bytes_.subspan(at, reader_.position() - at);
      if (i > 0) {
        const int order =
            std::memcmp(before.data(), key.data(), std::min(before.size(), key.size()));
        if (order == 0 && before.size() == key.size())
          return Wrong("a map key for the second time", at);
        // No encoded item is a prefix of another, so equal prefixes mean equal keys.
        if (order > 0) return Wrong("a map key out of order", at);
      }
      before = key;
      ZT_RETURN_IF_ERROR(Value(depth + 1));
    }
    return OkStatus();
  }

  std::span<const std::byte> bytes_;
  cbor::Reader reader_;
  cbor::Buffer shortest_;
};

}  // namespace

Status CheckDeterministic(std::span<const std::byte> bytes) { return Walker(bytes).Walk(); }

}  // namespace zt::format::internal
