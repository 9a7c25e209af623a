// zt.convert.safetensors — a file by the header it had: read verbatim, and laid out again.
module;

#include "core/little_endian.h"
#include "core/status_macros.h"

module zt.convert.safetensors;

import zt.std;
import zt.convert.layout;
import zt.core;
import zt.source;

namespace zt {
namespace {

constexpr std::size_t kLengthBytes = 8;  // before the JSON

// A file of which only the header is there.
class HeaderBytes final : public ByteSource {
 public:
  explicit HeaderBytes(std::span<const std::byte> header) : header_(header) {}
  const std::string& name() const override { return name_; }
  std::optional<std::uint64_t> size() const override { return std::nullopt; }
  bool sequential() const override { return true; }
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) override {
    if (offset > header_.size() || out.size() > header_.size() - offset) {
      return InvalidData("the header ends early");
    }
    if (!out.empty()) std::memcpy(out.data(), header_.data() + offset, out.size());
    return OkStatus();
  }

 private:
  const std::span<const std::byte> header_;
  const std::string name_ = "a header";
};

// True if the header's tensor has the declaration of the source's.
bool IsSame(const Object& stated, const Object& object) {
  return object.format == stated.format && object.shape == stated.shape &&
         object.components.size() == 1 &&
         object.components[0].element == stated.components[0].element &&
         object.components[0].bytes == stated.components[0].bytes;
}

// True if two tensors of one size have the same bytes, as they had where the header has them once.
StatusOr<bool> AreTied(TensorSource& source, ComponentId one, ComponentId two) {
  const auto identity = source.identity(one);
  if (identity && identity == source.identity(two)) return true;
  const auto reader = [&source](ComponentId id) {
    return [&source, id](std::uint64_t at, std::span<std::byte> out) {
      return AtTensor(source, id, source.Read(id, at, out));
    };
  };
  return ServeSameBytes(source.objects()[one.object].components[0].bytes, reader(one), reader(two));
}

}  // namespace

StatusOr<std::vector<std::byte>> ReadSafetensorsHeader(ByteSource& bytes) {
  std::vector<std::byte> header(kLengthBytes);
  ZT_RETURN_IF_ERROR(bytes.ReadAt(0, header));
  const std::uint64_t length = internal::LoadLittle(header.data(), kLengthBytes);
  if (length > kMaxSafetensorsHeader) {
    return InvalidData("the header claims " + std::to_string(length) + " bytes, the limit is " +
                       std::to_string(kMaxSafetensorsHeader));
  }
  header.resize(kLengthBytes + length);
  ZT_RETURN_IF_ERROR(bytes.ReadAt(kLengthBytes, std::span(header).subspan(kLengthBytes)));
  return header;
}

StatusOr<FileLayout> PlanSafetensorsAgain(TensorSource& source, std::span<const std::byte> header,
                                          const FindObject& find) {
  if (header.size() < kLengthBytes ||
      internal::LoadLittle(header.data(), kLengthBytes) != header.size() - kLengthBytes) {
    return InvalidData("the header's length is not the one it states");
  }
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> stated,
                      OpenSafetensors(std::make_shared<HeaderBytes>(header)));
  FileLayout layout;
  layout.bytes = header.size();
  std::optional<Extent> before;
  for (std::uint32_t i = 0; i < stated->objects().size(); ++i) {
    const Object& wanted = stated->objects()[i];
    const auto index = find(wanted.name);
    if (!index || !IsSame(wanted, source.objects()[*index])) {
      return FailedPrecondition(TensorContext(wanted.name) +
                                " is missing, or differs from the header");
    }
    const Extent extent = *stated->extent({i, 0});
    if (extent.length > 0 && before == extent) {
      const ComponentId kept = layout.pieces.back().source;
      ZT_ASSIGN_OR_RETURN(const bool tied, AreTied(source, kept, {*index, 0}));
      if (tied) continue;
      return FailedPrecondition(TensorContext(wanted.name) + " no longer has the bytes of " +
                                TensorContext(source.objects()[kept.object].name));
    }
    before = extent;
    layout.pieces.push_back({.source = {*index, 0}, .bytes = extent.length});
    layout.bytes += extent.length;
  }
  std::vector<std::byte> head(header.begin(), header.end());
  (layout.pieces.empty() ? layout.end : layout.pieces.front().before) = std::move(head);
  return layout;
}

}  // namespace zt
