// zt.format — validates blobs by the manifest and the file's size.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :dialect;
import :files;
import :v2;
import zt.compress;
import zt.core;

namespace zt {

namespace format::internal {

std::uint64_t SizeFromShape(const StoredObject& object, const StoredComponent& component) {
  if (object.format == "dense") {
    const LogicalType* type = FindLogicalType(component.element.type);
    if (!component.element.type.empty() && type == nullptr) return kUnknownSize;
    return DenseBytes(object.shape, component.element).value_or(kUnknownSize);
  }
  if (object.format == "sparse_csr" && component.role == "indptr" && object.shape.size() == 2) {
    const auto pointers = CheckedAdd(object.shape[0], 1);
    if (!pointers) return kUnknownSize;
    return CheckedMul(*pointers, ByteWidth(component.element.dtype)).value_or(kUnknownSize);
  }
  return kUnknownSize;
}

}  // namespace format::internal

namespace {

struct BlobExtent {
  std::uint32_t shard;  // 0: the file itself
  std::uint64_t offset;
  std::uint64_t length;
  std::uint32_t object;
  std::uint32_t component;
};
constexpr std::uint32_t kManifest = ~std::uint32_t{0};  // in place of an object's number

std::string Where(const Manifest& manifest, const BlobExtent& blob) {
  if (blob.object == kManifest) return "the manifest";
  const StoredObject& object = manifest.objects[blob.object];
  std::string where = TensorContext(object.name);
  if (object.components.size() > 1) {
    where += " component " + Quote(object.components[blob.component].role);
  }
  return where;
}

Status CheckEncoded(const StoredComponent& component) {
  if (component.encoding == Encoding::kRaw) return OkStatus();
  const Codec& codec = *FindCodec(component.encoding);
  const std::string name(codec.name());
  if (component.length == 0) return InvalidData("the " + name + " stream is empty");
  if (component.decoded_bytes != kUnknownSize &&
      component.decoded_bytes / codec.max_ratio() > component.length) {
    return InvalidData("its decoded size " + std::to_string(component.decoded_bytes) +
                       " is more than " + std::to_string(component.length) + " bytes of " + name +
                       " can yield");
  }
  if (component.encoding != Encoding::kPlanes) return OkStatus();
  return format::internal::CheckPlaneParameters(component.parameters, component.element);
}

// Fails if blobs overlap. Two components may share a whole blob, as tied weights do, but not a part
// of one.
Status CheckDisjoint(const Manifest& manifest, std::vector<BlobExtent>& blobs) {
  std::sort(blobs.begin(), blobs.end(), [](const BlobExtent& a, const BlobExtent& b) {
    return std::tie(a.shard, a.offset, a.length, a.object, a.component) <
           std::tie(b.shard, b.offset, b.length, b.object, b.component);
  });
  const BlobExtent* before = nullptr;  // the first blob at that offset
  for (const BlobExtent& blob : blobs) {
    if (before != nullptr && before->shard == blob.shard) {
      if (blob.offset == before->offset && blob.length == before->length) continue;
      const std::uint64_t end = before->offset + before->length;
      if (blob.offset < end) {
        const Status status =
            InvalidData("blob at " + std::to_string(blob.offset) + " overlaps that of " +
                        Where(manifest, *before) + ", which ends at " + std::to_string(end));
        if (blob.object == kManifest) return Annotate(status, Where(manifest, blob));
        const StoredObject& object = manifest.objects[blob.object];
        const bool several = object.components.size() > 1;
        return WithTensor(
            several ? WithComponent(status, object.components[blob.component].role) : status,
            object.name);
      }
    }
    before = &blob;
  }
  return OkStatus();
}

}  // namespace

namespace format::internal {

Status Dialect::CheckBlobRange(std::uint64_t offset, std::uint64_t length,
                               std::uint64_t data_end) const {
  Status status;
  const auto end = CheckedAdd(offset, length);
  if (offset % traits_.alignment != 0) {
    status = InvalidData("offset " + std::to_string(offset) + " is not a multiple of " +
                         std::to_string(traits_.alignment));
  } else if (!end || *end > data_end) {
    status = InvalidData("blob at " + std::to_string(offset) + " of " + std::to_string(length) +
                         " bytes reaches past the data, which ends at " + std::to_string(data_end));
  } else if (offset < traits_.header_magic.size() && (length > 0 || traits_.manifest_is_blob)) {
    status = InvalidData("blob at " + std::to_string(offset) + " lies in the header");
  }
  return Cite(status, "2.4");
}

// For an object that cannot be decoded only the rules of its encodings apply.
Status Dialect::CheckAlone(const StoredObject& object, Object* declared) const {
  declared->format = object.format;
  declared->shape = object.shape;
  declared->components.clear();
  bool decodable = true;
  for (const StoredComponent& component : object.components) {
    // If a blob mixes values and indices, its size does not give the number of elements.
    const bool mixed = traits_.mixed_sparse && object.format != "dense";
    declared->components.push_back(
        {component.role, component.element, mixed ? kUnknownSize : component.decoded_bytes});
    decodable = decodable && component.undecodable.empty();
    auto status = Cite(CheckEncoded(component), "5.3");
    if (status.ok() && decodable) status = CheckStored(object, component);
    if (status.ok()) continue;
    if (object.components.size() == 1) return status;
    return WithComponent(status, component.role);
  }
  if (IsFile(object)) ZT_RETURN_IF_ERROR(CheckFile(Declare(object)));
  if (!decodable) return OkStatus();
  ZT_RETURN_IF_ERROR(ValidateObject(*declared));
  return CheckComplete(*declared);
}

Status Dialect::CheckLayout(const Manifest& manifest, std::uint64_t data_end) const {
  std::vector<BlobExtent> blobs;
  blobs.reserve(manifest.objects.size() + 1);
  if (traits_.manifest_is_blob) blobs.push_back({0, manifest.offset, manifest.bytes, kManifest, 0});
  Object declared;  // reused for its memory
  FilePaths paths;
  for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
    const StoredObject& object = manifest.objects[i];
    for (std::size_t j = 0; j < object.components.size(); ++j) {
      const StoredComponent& component = object.components[j];
      std::uint64_t end = data_end;
      if (component.shard > 0) {
        const std::uint64_t bytes = manifest.shards[component.shard - 1].bytes;
        end = bytes - std::min<std::uint64_t>(bytes, kTailBytes);
      }
      Status status = CheckBlobRange(component.offset, component.length, end);
      if (object.components.size() > 1) status = WithComponent(status, component.role);
      ZT_RETURN_IF_ERROR(WithTensor(status, object.name));
      if (component.length > 0) {
        blobs.push_back({component.shard, component.offset, component.length,
                         static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)});
      }
    }
    declared.name = object.name;
    ZT_RETURN_IF_ERROR(WithTensor(CheckAlone(object, &declared), object.name));
    if (IsFile(object)) {
      const FileEntry file = FileEntryOf(Declare(object), 0);
      ZT_RETURN_IF_ERROR(WithTensor(paths.Add(file.path), object.name));
    }
  }
  ZT_RETURN_IF_ERROR(CheckWeightFiles(manifest.attributes, paths));
  return Cite(CheckDisjoint(manifest, blobs), "2.4");
}

}  // namespace format::internal

Status CheckStored(const StoredObject& object, SpecVersion version) {
  Object declared = {.format = {}};
  return format::internal::DialectOf(version).CheckAlone(object, &declared);
}

std::uint64_t MostOfFrame(const Codec& codec, std::uint64_t content) {
  constexpr std::uint64_t kFree = std::uint64_t{64} << 10;
  return std::max<std::uint64_t>(codec.Bound(content), 2 * content + kFree);
}

Status CheckFrames(const StoredComponent& component, const ContainerTraits& traits,
                   std::optional<std::span<const Frame>> frames) {
  if (frames) ZT_RETURN_IF_ERROR(CheckFrames(component.parameters, *frames));
  if (!traits.equal_frames) return OkStatus();
  const auto broken = [](std::string_view what) { return format::internal::BrokenV2("5.3", what); };
  if (!frames) return broken("the stream has no seek table");
  const Codec& codec = *FindCodec(component.encoding);
  for (std::size_t i = 0; i < frames->size(); ++i) {
    const std::uint64_t content = (*frames)[i].content_bytes;
    if (content > traits.max_frame_bytes) {
      return broken("frame " + std::to_string(i) + " has " + std::to_string(content) +
                    " bytes of content, more than " + std::to_string(traits.max_frame_bytes >> 20) +
                    " MiB");
    }
    // Readers could decode a larger frame only as a stream, in order, and never on its own.
    if (const std::uint64_t bytes = (*frames)[i].bytes; bytes > MostOfFrame(codec, content)) {
      return broken("frame " + std::to_string(i) + " has " + std::to_string(bytes) + " bytes for " +
                    std::to_string(content) + " of content, more than one frame takes");
    }
    if (i + 1 < frames->size() && content != frames->front().content_bytes) {
      return broken("frame " + std::to_string(i) + " has " + std::to_string(content) +
                    " bytes of content, the first has " +
                    std::to_string(frames->front().content_bytes));
    }
  }
  return OkStatus();
}

Status CheckFrameBytes(const ContainerTraits& traits, std::span<const std::byte> frame) {
  constexpr std::size_t kDescriptor = 4;  // behind zstd's magic
  constexpr std::byte kChecksum{4};
  if (!traits.equal_frames) return OkStatus();
  if (frame.size() > kDescriptor && (frame[kDescriptor] & kChecksum) != std::byte{0}) {
    return OkStatus();
  }
  return InvalidData("a frame has no checksum of its content (zTensor 2.0 §5.3)");
}

}  // namespace zt
