// zt.reader:tensors — the stamp of a shard, and the file of its digest.
module zt.reader;

import zt.std;
import zt.core;
import zt.digest;

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

}  // namespace zt
