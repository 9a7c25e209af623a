// zt.reader:checks — checks the rules about all indices of a sparse object together, on stored data.
module;

#include "core/status_macros.h"

module zt.reader;

import zt.std;
import :checks;
import :recent;
import :sparse_0_1;
import zt.core;
import zt.format;
import zt.source;

namespace zt::reader::internal {
namespace {

// Indices that were read.
struct ReadIndices {
  Status read;
  std::shared_ptr<ContentCheck> check;
};

}  // namespace

struct IndexChecker::State {
  State(const Reader& of, std::uint64_t most_bytes)
      : reader(of), memory_bytes(most_bytes), known(most_bytes) {
    if (!Traits(of.manifest().version).unique_indices) return;
    for (const StoredObject& object : of.manifest().objects) {
      if (object.format != "sparse_csr") continue;
      std::uint64_t pointers = 0;
      for (const StoredComponent& c : object.components) {
        if (c.role == "indptr") pointers = c.decoded_bytes / ByteWidth(c.element.dtype);
      }
      for (const StoredComponent& c : object.components) {
        if (c.role == "indices") rows[ContentKey(c)] = std::max(rows[ContentKey(c)], pointers);
      }
    }
  }

  const Reader& reader;
  const std::uint64_t memory_bytes;
  std::map<ContentKey, std::uint64_t>
      rows;  // the most row pointers of an object with these indices
  Recent<std::pair<ContentKey, DataRule>, const ReadIndices> known;

  // Reads the indices, unless another object has the same.
  std::shared_ptr<const ReadIndices> Indices(ComponentId id, const Object& declared,
                                             const DataRule& rule) {
    const std::pair key(ContentKey(reader.component(id)), rule);
    const auto most = rows.find(key.first);
    if (auto found = known.Find(key)) return found;
    auto indices = std::make_shared<ReadIndices>();
    indices->check = std::make_shared<ContentCheck>(reader.manifest().version, memory_bytes);
    indices->check->Expect(rule, declared);
    if (most != rows.end()) indices->check->AllowRows(most->second);
    indices->read = Feed(id, *indices->check);
    if (indices->read.code() == StatusCode::kUnavailable)
      return indices;  // another try may succeed
    return known.Add(key, indices, indices->check->kept_bytes());
  }

  // One block at a time: at least a whole frame, which is decoded as a whole anyway.
  Status Feed(ComponentId id, ContentCheck& check) {
    constexpr std::uint64_t kBlockBytes = 256 << 10;
    ZT_ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.DecodedBytes(id));
    ZT_ASSIGN_OR_RETURN(const Access access, reader.FindAccess(id));
    std::vector<std::byte> block;
    for (std::uint64_t at = 0; at < bytes; at += block.size()) {
      block.resize(std::min(std::max(kBlockBytes, access.frame_bytes), bytes - at));
      ZT_RETURN_IF_ERROR(reader.Read(id, at, block));
      check.Add(check.Look(at, block), block);
    }
    return OkStatus();
  }
};

IndexChecker::IndexChecker(const Reader& reader, std::uint64_t memory_bytes)
    : state_(std::make_shared<State>(reader, memory_bytes)) {}

Status IndexChecker::Check(std::uint32_t index) {
  const Manifest& manifest = state_->reader.manifest();
  const StoredObject& stored = manifest.objects[index];
  if (!Traits(manifest.version).unique_indices || !IsSparse(stored.format)) return OkStatus();
  const Object object = DeclareWithoutAttributes(stored);
  std::vector<ContentCheck::Part> parts;
  for (std::uint32_t c = 0; c < object.components.size(); ++c) {
    const Component& component = object.components[c];
    if (!IsIndexRole(object.format, component.role)) continue;
    const auto rule = RuleOf(object, c, component.bytes);
    if (!rule) continue;
    const auto indices = state_->Indices({index, c}, object, *rule);
    ZT_RETURN_IF_ERROR(indices->read);
    parts.push_back({indices->check, *rule});
  }
  return ContentCheck::CheckTogether(object, parts);
}

Status CheckSparse(const Reader& reader, std::optional<std::uint32_t> only,
                   const std::set<std::uint32_t>& bad, const std::set<std::uint32_t>& missing,
                   std::uint64_t memory_bytes, VerifyReport& report,
                   const std::function<void(std::uint32_t object, VerifyProblem what)>& wrong) {
  const std::vector<StoredObject>& objects = reader.manifest().objects;
  IndexChecker indices(reader, memory_bytes);
  Sparse01Checker mixed(reader);
  for (std::uint32_t o = 0; o < objects.size(); ++o) {
    const StoredObject& object = objects[o];
    const bool is_sparse_0_1 = IsSparse01(reader, o);
    if (o != only.value_or(o) || bad.contains(o) || (!is_sparse_0_1 && !IsSparse(object.format)))
      continue;
    const auto unreadable = [&](const StoredComponent& c) {
      return !c.undecodable.empty() || missing.contains(c.shard);
    };
    if (std::ranges::any_of(object.components, unreadable)) continue;
    const Status status = is_sparse_0_1 ? mixed.Check(o) : indices.Check(o);
    if (status.code() == StatusCode::kDataLoss) {
      wrong(o, ProblemOf(status, object.name));
    } else if (status.code() == StatusCode::kUnimplemented) {
      (is_sparse_0_1 ? report.undecodable : report.unchecked)
          .push_back(ProblemOf(status, object.name));
    } else if (!status.ok()) {
      return WithTensor(status, object.name);
    }
  }
  return OkStatus();
}

}  // namespace zt::reader::internal
