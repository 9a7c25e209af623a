// zt.convert.zt — the stamp of a shard, and several shards as one source.
module;

#include "core/status_macros.h"

module zt.convert.zt;

import zt.std;
import zt.convert.shards;
import zt.core;
import zt.digest;
import zt.source;

namespace zt {

Value ToValue(const ShardStamp& stamp) {
  return Value::Map{{"plan", stamp.plan}, {"shard", stamp.number}, {"shards", stamp.count}};
}

std::optional<ShardStamp> FindShardStamp(const Value::Map& attributes) {
  const Value* const value = FindMember(attributes, kShardAttribute);
  const Value::Map* const map = value == nullptr ? nullptr : value->AsMap();
  if (map == nullptr) return std::nullopt;
  const Value* const plan = FindMember(*map, "plan");
  const Value* const number = FindMember(*map, "shard");
  const Value* const count = FindMember(*map, "shards");
  if (plan == nullptr || number == nullptr || count == nullptr || plan->AsString() == nullptr ||
      number->AsUint() == nullptr || count->AsUint() == nullptr || *number->AsUint() == 0 ||
      *number->AsUint() > *count->AsUint() || *count->AsUint() > kMaxShards) {
    return std::nullopt;
  }
  return ShardStamp{*plan->AsString(), *number->AsUint(), *count->AsUint()};
}

std::string DigestPath(const std::string& path, DigestKind kind) {
  return path + "." + std::string(Name(kind));
}

bool IsDigestOfShard(std::string_view name) {
  return std::ranges::any_of(kFileDigests, [&](DigestKind kind) {
    const std::string suffix = DigestPath("", kind);
    return name.ends_with(suffix) &&
           ParseShardName(name.substr(0, name.size() - suffix.size()), ".zt");
  });
}

StatusOr<std::unique_ptr<TensorSource>> OpenZtShards(const std::string& path,
                                                     const InputOptions& options) {
  const auto open = [&](std::shared_ptr<ByteSource> bytes, const std::string& file,
                        const ShardIndex& index) -> StatusOr<std::unique_ptr<TensorSource>> {
    const auto listed = index.files.find(file);
    if (listed != index.files.end())
      ZT_RETURN_IF_ERROR(ParseDigest(listed->second.digest).status());
    std::optional<ShardStamp> stamp;
    ZT_ASSIGN_OR_RETURN(auto source,
                        zt_source::internal::OpenStamped(
                            std::move(bytes), options, {},
                            listed == index.files.end() ? "" : listed->second.digest, &stamp));
    if (!index.plan.empty() && (!stamp || stamp->plan != index.plan))
      return InvalidData("its plan is not that of the index");
    return source;
  };
  return OpenShards(path, {".zt", open, true}, options);
}

}  // namespace zt
