// zt.reader — checks the rules about all indices of a sparse object together, on stored data.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :recent;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

bool CanBeRead(const StoredObject& object, const std::set<std::uint32_t>& missing) {
  return std::ranges::none_of(object.components, [&](const StoredComponent& c) {
    return !c.undecodable.empty() || missing.contains(c.shard);
  });
}

}  // namespace

std::vector<std::uint64_t> KeyOf(const StoredComponent& c) {
  const CodecParameters& with = c.parameters;
  return {c.role.size(),
          c.shard,
          c.offset,
          c.length,
          c.decoded_bytes,
          static_cast<std::uint64_t>(c.encoding),
          with.frame_content,
          with.group,
          with.width,
          with.rotate,
          ByteWidth(c.element.dtype)};
}

Status CheckSparse(const Reader& reader, const std::set<std::uint32_t>& bad,
                   const std::set<std::uint32_t>& missing, std::uint64_t memory_bytes,
                   const AddProblem& wrong, std::vector<VerifyProblem>& unchecked) {
  const Manifest& manifest = reader.manifest();
  IndexChecker checker(reader, memory_bytes);
  for (std::uint32_t o = 0; o < manifest.objects.size(); ++o) {
    const StoredObject& object = manifest.objects[o];
    if (!IsSparse(object.format) || bad.contains(o) || !CanBeRead(object, missing)) continue;
    const Status status = checker.Check(o);
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
namespace {

using reader::internal::KeyOf;
using BytesKey = std::vector<std::uint64_t>;

constexpr std::uint64_t kPartCost = 256;  // of a part that keeps nothing

}  // namespace

struct IndexChecker::State {
  State(const Reader& of, std::uint64_t most_bytes)
      : reader(of), memory_bytes(most_bytes), parts(most_bytes) {
    if (!Traits(of.manifest().version).unique_indices) return;
    for (const StoredObject& object : of.manifest().objects) {
      if (object.format != "sparse_csr") continue;
      std::uint64_t pointers = 0;
      for (const StoredComponent& c : object.components) {
        if (c.role == "indptr") pointers = c.decoded_bytes / ByteWidth(c.element.dtype);
      }
      for (const StoredComponent& c : object.components) {
        if (c.role == "indices") rows[KeyOf(c)] = std::max(rows[KeyOf(c)], pointers);
      }
    }
  }

  const Reader& reader;
  const std::uint64_t memory_bytes;
  struct Seen {
    std::shared_ptr<SparseValidator> validator;  // null if there is no rule
    Status fed;                                  // what adding the indices said
  };
  std::map<BytesKey, std::uint64_t> rows;  // the most row pointers of an object with these indices
  std::map<BytesKey, Seen> seen;           // by all indices of an object, and its rank
  reader::internal::Recent<BytesKey, SparseValidator::Part> parts;  // of rows

  // Adds all indices of an object to `validator`, except those that another one has read.
  Status Feed(std::uint32_t index, SparseValidator& validator) {
    const StoredObject& object = reader.manifest().objects[index];
    for (std::uint32_t c = 0; c < object.components.size(); ++c) {
      const StoredComponent& stored = object.components[c];
      if (!IsIndexRole(object.format, stored.role)) continue;
      ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.DecodedBytes({index, c}));
      const BytesKey key = KeyOf(stored);
      if (validator.SetPart(c, parts.Find(key))) continue;
      if (const auto most = rows.find(key); most != rows.end())
        validator.AllowRows(c, most->second);
      ZT_RETURN_IF_ERROR(FeedOne({index, c}, bytes, validator));
      if (auto part = validator.part(c)) parts.Add(key, part, kPartCost + validator.kept_bytes(c));
    }
    return OkStatus();
  }

  // One block at a time: at least a whole frame, which is decoded as a whole anyway.
  Status FeedOne(ComponentId id, std::uint64_t bytes, SparseValidator& validator) {
    constexpr std::uint64_t kBlockBytes = 256 << 10;
    ZT_ASSIGN_OR_RETURN(const Access access, reader.FindAccess(id));
    std::vector<std::byte> block;
    for (std::uint64_t at = 0; at < bytes; at += block.size()) {
      block.resize(std::min(std::max(kBlockBytes, access.frame_bytes), bytes - at));
      ZT_RETURN_IF_ERROR(reader.Read(id, at, block));
      validator.Add(id.component, block);
    }
    return OkStatus();
  }
};

IndexChecker::IndexChecker(const Reader& reader, std::uint64_t memory_bytes)
    : state_(std::make_shared<State>(reader, memory_bytes)) {}

Status IndexChecker::Check(std::uint32_t object) {
  const Manifest& manifest = state_->reader.manifest();
  const StoredObject& stored = manifest.objects[object];
  if (!Traits(manifest.version).unique_indices || !IsSparse(stored.format)) return OkStatus();
  BytesKey key = {stored.format == "sparse_csr", stored.shape.size()};
  for (const StoredComponent& c : stored.components) {
    if (!IsIndexRole(stored.format, c.role)) continue;
    const BytesKey one = KeyOf(c);
    key.insert(key.end(), one.begin(), one.end());
  }
  const Object declared = DeclareWithoutAttributes(stored);
  auto found = state_->seen.find(key);
  if (found == state_->seen.end()) {
    std::shared_ptr<SparseValidator> validator =
        SparseValidator::Make(declared, manifest.version, state_->memory_bytes);
    Status fed = validator == nullptr ? OkStatus() : state_->Feed(object, *validator);
    if (fed.code() == StatusCode::kUnavailable) return fed;  // another try may succeed
    found = state_->seen.emplace(std::move(key), State::Seen{std::move(validator), fed}).first;
  }
  const State::Seen& known = found->second;
  if (!known.fed.ok() || known.validator == nullptr) return known.fed;
  return known.validator->Check(declared);
}

}  // namespace zt
