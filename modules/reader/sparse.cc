// zt.reader — checks the rules about all indices of a sparse object together, on stored data.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

// A key that is equal for objects with the same indices: the same stored bytes, decoded in the same
// way.
std::vector<std::uint64_t> KeyOf(const StoredObject& object) {
  std::vector<std::uint64_t> key = {object.format == "sparse_csr", object.shape.size()};
  for (const StoredComponent& c : object.components) {
    if (!IsIndexRole(object.format, c.role)) continue;
    const CodecParameters& with = c.parameters;
    key.insert(key.end(), {c.role.size(), c.shard, c.offset, c.length, c.decoded_bytes,
                           static_cast<std::uint64_t>(c.encoding), with.frame_content, with.group,
                           with.width, with.rotate, ByteWidth(c.element.dtype)});
  }
  return key;
}

bool CanBeRead(const StoredObject& object, const std::set<std::uint32_t>& missing) {
  return std::ranges::none_of(object.components, [&](const StoredComponent& c) {
    return !c.undecodable.empty() || missing.contains(c.shard);
  });
}

// Feeds all indices of an object to `validator`, one block at a time: at least a whole frame, which
// is decoded as a whole anyway.
Status Feed(const Reader& reader, std::uint32_t index, SparseValidator& validator) {
  constexpr std::uint64_t kBlockBytes = 256 << 10;
  const StoredObject& object = reader.manifest().objects[index];
  std::vector<std::byte> block;
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    if (!IsIndexRole(object.format, object.components[c].role)) continue;
    const ComponentId id{index, c};
    ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.DecodedBytes(id));
    ZT_ASSIGN_OR_RETURN(const Access access, reader.FindAccess(id));
    for (std::uint64_t at = 0; at < bytes; at += block.size()) {
      block.resize(std::min(std::max(kBlockBytes, access.frame_bytes), bytes - at));
      ZT_RETURN_IF_ERROR(reader.Read(id, at, block));
      validator.Add(c, block);
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const std::function<void(std::uint32_t, VerifyProblem)>& wrong,
                   std::vector<VerifyProblem>& unchecked) {
  const Manifest& manifest = reader.manifest();
  if (!Traits(manifest.version).unique_indices) return OkStatus();
  // Objects with the same indices share a validator.
  std::map<std::vector<std::uint64_t>, std::shared_ptr<SparseValidator>> seen;
  for (std::uint32_t o = 0; o < manifest.objects.size(); ++o) {
    const StoredObject& object = manifest.objects[o];
    if (!IsSparse(object.format) || bad.contains(o) || !CanBeRead(object, missing)) continue;
    const Object declared = Declare(object);
    const auto [found, fresh] = seen.try_emplace(KeyOf(object));
    if (fresh) found->second = SparseValidator::Make(declared, manifest.version, memory_bytes);
    if (found->second == nullptr) continue;
    Status status;
    if (fresh) status = Feed(reader, o, *found->second);
    if (!status.ok()) found->second = nullptr;
    if (status.ok()) status = found->second->Check(declared);
    if (status.code() == StatusCode::kDataLoss) {
      wrong(o, ProblemOf(status, object.name));
    } else if (status.code() == StatusCode::kUnimplemented) {
      unchecked.push_back(ProblemOf(status, object.name));
    } else if (!status.ok()) {
      return WithTensor(status, object.name);
    }
  }
  return OkStatus();
}

}  // namespace zt::reader::internal

namespace zt {

Status CheckIndices(const Reader& reader, std::uint32_t object, std::uint64_t memory_bytes) {
  const Object declared = Declare(reader.manifest().objects[object]);
  const auto validator = SparseValidator::Make(declared, reader.manifest().version, memory_bytes);
  if (validator == nullptr) return OkStatus();
  ZT_RETURN_IF_ERROR(reader::internal::Feed(reader, object, *validator));
  return validator->Check(declared);
}

}  // namespace zt
