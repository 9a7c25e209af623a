// zt.format — what a manifest and the size of its file decide about the blobs.
module;

#include "core/status_macros.h"

module zt.format;

import zt.std;
import :dialect;
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

constexpr std::uint64_t kHeaderBytes = 8;

struct Blob {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint32_t object;
  std::uint32_t component;
};

std::string Where(const Manifest& manifest, const Blob& blob) {
  const StoredObject& object = manifest.objects[blob.object];
  std::string where = TensorContext(object.name);
  if (object.components.size() > 1) {
    where += " component " + Quote(object.components[blob.component].role);
  }
  return where;
}

Status CheckBlob(const StoredComponent& component, const ContainerTraits& traits,
                 std::uint64_t data_end) {
  if (component.offset % traits.alignment != 0) {
    return InvalidData("offset " + std::to_string(component.offset) + " is no multiple of " +
                       std::to_string(traits.alignment));
  }
  const auto end = CheckedAdd(component.offset, component.length);
  if (!end || *end > data_end) {
    return InvalidData("blob at " + std::to_string(component.offset) + " of " +
                       std::to_string(component.length) +
                       " bytes reaches past the data, which ends at " + std::to_string(data_end));
  }
  if (component.length > 0 && component.offset < kHeaderBytes) {
    return InvalidData("blob at " + std::to_string(component.offset) + " lies in the header");
  }
  if (component.encoding == Encoding::kRaw) return OkStatus();
  const Codec& codec = *FindCodec(component.encoding);
  const std::string name(codec.name());
  if (component.length == 0) return InvalidData("the " + name + " stream is empty");
  if (component.decoded_bytes != kUnknownSize &&
      component.decoded_bytes / codec.max_ratio() > component.length) {
    return InvalidData("'uncompressed_length' " + std::to_string(component.decoded_bytes) +
                       " is more than " + std::to_string(component.length) + " bytes of " + name +
                       " can yield");
  }
  return OkStatus();
}

// Blobs may be shared whole, as tied weights are, but not in part.
Status CheckDisjoint(const Manifest& manifest, std::vector<Blob>& blobs) {
  std::sort(blobs.begin(), blobs.end(), [](const Blob& a, const Blob& b) {
    return std::tie(a.offset, a.length, a.object, a.component) <
           std::tie(b.offset, b.length, b.object, b.component);
  });
  const Blob* before = nullptr;  // the first of those that share its bytes
  for (const Blob& blob : blobs) {
    if (before != nullptr) {
      if (blob.offset == before->offset && blob.length == before->length) continue;
      const std::uint64_t end = before->offset + before->length;
      if (blob.offset < end) {
        return InvalidData(Where(manifest, blob) + ": blob at " + std::to_string(blob.offset) +
                           " overlaps that of " + Where(manifest, *before) + ", which ends at " +
                           std::to_string(end));
      }
    }
    before = &blob;
  }
  return OkStatus();
}

}  // namespace

Status format::internal::Dialect::CheckLayout(const Manifest& manifest,
                                              std::uint64_t data_end) const {
  std::vector<Blob> blobs;
  blobs.reserve(manifest.objects.size());
  Object declared;  // without attributes, which say nothing about sizes; reused for its memory
  for (std::size_t i = 0; i < manifest.objects.size(); ++i) {
    const StoredObject& object = manifest.objects[i];
    declared.name = object.name;
    declared.format = object.format;
    declared.shape = object.shape;
    declared.components.clear();
    for (std::size_t j = 0; j < object.components.size(); ++j) {
      const StoredComponent& component = object.components[j];
      // A blob may mix values and indices: its size is no number of elements.
      const bool mixed = traits_.mixed_sparse && object.format != "dense";
      declared.components.push_back(
          {component.role, component.element, mixed ? kUnknownSize : component.decoded_bytes});
      if (component.length > 0) {
        blobs.push_back({component.offset, component.length, static_cast<std::uint32_t>(i),
                         static_cast<std::uint32_t>(j)});
      }
      auto status = CheckBlob(component, traits_, data_end);
      if (status.ok()) status = CheckStored(object, component);
      if (!status.ok()) {
        if (object.components.size() > 1) {
          status = Annotate(status, "component " + Quote(component.role));
        }
        return Annotate(status, TensorContext(object.name));
      }
    }
    auto status = ValidateObject(declared);
    if (status.ok()) status = CheckComplete(declared);
    if (!status.ok()) {
      return Annotate(status, TensorContext(object.name));
    }
  }
  return CheckDisjoint(manifest, blobs);
}

}  // namespace zt
