// zt.reader:tensors — a .zt file as it is stored: the components of its manifest, read by a Reader.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import zt.compress;
import zt.core;
import zt.format;
import zt.source;

namespace zt {

namespace reader::internal {

class StoredSource final : public TensorSource {
 public:
  StoredSource(std::shared_ptr<ByteSource> file, std::unique_ptr<Reader> reader, bool keep_stamp)
      : file_bytes_(std::move(file)), reader_(std::move(reader)) {
    const Manifest& manifest = reader_->manifest();
    attributes_ = manifest.attributes;
    warnings_ = manifest.warnings;
    if (!keep_stamp)
      std::erase_if(attributes_, [](const auto& each) { return each.first == kShardAttribute; });
    for (const StoredShard& shard : manifest.shards)
      AddShard({shard.name, shard.bytes, shard.digest});
    objects_.reserve(manifest.objects.size());
    for (const StoredObject& object : manifest.objects) objects_.push_back(Declare(object));
  }

  const Reader& reader() const { return *reader_; }
  std::string_view format() const override { return "zt"; }
  std::string_view version() const override {
    const Manifest& manifest = reader_->manifest();
    return manifest.version_text.empty() ? Traits(manifest.version).text
                                         : std::string_view(manifest.version_text);
  }

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override {
    return reader_->Read(id, offset, out);
  }
  bool sequential(ComponentId id) const override { return AccessTo(id).sequential; }
  std::uint64_t preferred_read(ComponentId id) const override { return AccessTo(id).frame_bytes; }
  StatusOr<std::uint64_t> Size(ComponentId id) const override { return reader_->DecodedBytes(id); }
  Status Finish() override {
    return WithFile(reader_->bytes().CheckUnchanged(), reader_->bytes().name());
  }

  void WillRead(std::span<const ComponentId> components) override {
    std::vector<ByteRange> ranges;
    for (const ComponentId id : components) {
      const StoredComponent& c = reader_->component(id);
      if (c.length > 0) ranges.push_back({c.offset, c.offset + c.length});
    }
    reader_->bytes().WillRead(ranges);
  }

  std::optional<StoredForm> stored(ComponentId id) const override {
    const StoredComponent& c = reader_->component(id);
    StoredForm form{.encoding = c.encoding,
                    .parameters = c.parameters,
                    .unknown_encoding = c.unknown_encoding,
                    .offset = c.offset,
                    .length = c.length,
                    .digest = c.digest,
                    .undecodable = c.undecodable,
                    .big_endian = c.big_endian};
    if (c.shard == 0) {
      form.file = file_bytes_.get();
      form.mappable = reader_->CheckMappable(id).ok();
    } else {
      const StoredShard& shard = reader_->manifest().shards[c.shard - 1];
      form.shard = shard.name;
      form.offset -= shard.begin;
    }
    return form;
  }

  // Components of one blob are equal if they are decoded in the same way.
  std::optional<Identity> identity(ComponentId id) const override {
    const StoredComponent& c = reader_->component(id);
    if (c.length == 0) return std::nullopt;
    std::size_t way = static_cast<std::size_t>(c.encoding) * 32;
    if (c.big_endian) way += ByteWidth(c.element.dtype);
    if (c.element.dtype == DType::kBool && Traits(reader_->manifest().version).loose_bools)
      way += 16;
    return Identity{&ways_[way % ways_.size()], c.offset, c.decoded_bytes};
  }

 private:
  // If that fails, the next Read reports the error.
  Access AccessTo(ComponentId id) const { return reader_->FindAccess(id).value_or(Access{}); }

  const std::shared_ptr<ByteSource> file_bytes_;
  const std::unique_ptr<Reader> reader_;
  std::array<char, 256> ways_{};  // of decoding a blob; the addresses count
};

StatusOr<std::unique_ptr<TensorSource>> OpenAsStored(std::shared_ptr<ByteSource> bytes,
                                                     const ZtOrigin& origin) {
  ZT_ASSIGN_OR_RETURN(auto reader, Reader::Open(bytes, {.find_shard = origin.find_shard}));
  if (origin.stamp != nullptr) *origin.stamp = FindShardStamp(reader->manifest().attributes);
  return std::make_unique<StoredSource>(std::move(bytes), std::move(reader),
                                        origin.stamp == nullptr);
}

}  // namespace reader::internal

const Reader* ReaderOf(const TensorSource& source) {
  if (const auto* const stored = dynamic_cast<const reader::internal::StoredSource*>(&source))
    return &stored->reader();
  const auto* const wrapped = dynamic_cast<const WrappedSource*>(&source);
  if (wrapped == nullptr || wrapped->wrapped().size() != 1) return nullptr;
  return ReaderOf(*wrapped->wrapped().front());
}

}  // namespace zt
