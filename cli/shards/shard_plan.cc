// zt.cli:shards — cuts a plan into shards, and computes the digest that identifies the plan, by
// samples of what it reads.
module;

#include "core/name_table.h"
#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :options;
import :output;
import :shards;
import zt.convert.composite;
import zt.convert.files;

namespace zt::cli::internal {
namespace {

// Objects that stay in one shard, by their indices in the plan.
struct Unit {
  std::uint64_t bytes = 0;  // decoded, shared ones counted once
  std::vector<std::uint32_t> objects;
};

const Object& SourceObject(const TensorSource& source, const PlannedObject& planned) {
  return source.objects()[planned.components.front().source.object];
}

// All units, in the order of their first objects. Files are not in units: all of them go to the
// first shard.
std::vector<Unit> FindUnits(const TensorSource& source, const Plan& plan) {
  std::vector<std::uint32_t> parent(plan.objects.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](std::uint32_t at) {
    while (parent[at] != at) at = parent[at] = parent[parent[at]];
    return at;
  };
  const auto unite = [&](std::uint32_t a, std::uint32_t b) {
    a = root(a);
    b = root(b);
    parent[std::max(a, b)] = std::min(a, b);
  };
  std::vector<const Object*> objects;
  for (const PlannedObject& planned : plan.objects)
    objects.push_back(&SourceObject(source, planned));
  const std::vector<std::string_view> modules = QuantizedModulesOf(objects);
  std::unordered_map<std::string_view, std::uint32_t, zt::internal::NameHash> first_of;
  for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
    for (const PlannedComponent& component : plan.objects[i].components) {
      if (component.shared_with) unite(i, component.shared_with->object);
    }
    if (!modules[i].empty()) unite(i, first_of.emplace(modules[i], i).first->second);
  }
  std::vector<Unit> units;
  std::vector<std::uint32_t> unit_of(plan.objects.size());
  for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
    if (IsFile(*plan.objects[i].object)) continue;
    const std::uint32_t first = root(i);
    if (first == i) {
      unit_of[i] = static_cast<std::uint32_t>(units.size());
      units.emplace_back();
    }
    Unit& unit = units[unit_of[first]];
    unit.objects.push_back(i);
    const PlannedObject& planned = plan.objects[i];
    for (std::size_t c = 0; c < planned.components.size(); ++c) {
      if (!planned.components[c].shared_with) unit.bytes += planned.object->components[c].bytes;
    }
  }
  return units;
}

// The ends of shards, as indices of units: each shard holds at most `bytes`, or a single unit. With
// `count` there are at least `count` shards if there are as many units.
std::vector<std::size_t> Cut(std::span<const Unit> units, std::uint64_t bytes,
                             std::uint64_t count = 0) {
  std::vector<std::size_t> ends;
  std::uint64_t held = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const bool full = i > begin && (units[i].bytes > bytes || held > bytes - units[i].bytes);
    const bool needed = i > begin && ends.size() + 1 + (units.size() - i) <= count;
    if (full || needed) {
      ends.push_back(i);
      begin = i;
      held = 0;
    }
    held += units[i].bytes;
  }
  ends.push_back(units.size());
  return ends;
}

// Cuts into exactly `count` shards and makes the largest as small as the order allows.
std::vector<std::size_t> CutInto(std::span<const Unit> units, std::uint64_t count) {
  std::uint64_t least = 0, most = 0;
  for (const Unit& unit : units) most += unit.bytes;
  while (least < most) {
    const std::uint64_t middle = least + (most - least) / 2;
    if (Cut(units, middle).size() <= count) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return Cut(units, least, count);
}

// Hashes the encodings of values, none of which is the beginning of another.
class PlanHasher {
 public:
  Status Add(const Value::Array& values) {
    ZT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, EncodeCbor(values));
    hasher_->Update(bytes);
    return OkStatus();
  }
  std::string Finish() { return hasher_->Finish(); }

 private:
  const std::unique_ptr<Hasher> hasher_ = MakeHasher(DigestKind::kSha256);
};

Status AddObject(PlanHasher& hash, const TensorSource& source, const PlannedObject& planned) {
  const Object& object = *planned.object;
  ZT_RETURN_IF_ERROR(hash.Add({object.name, object.format.str(),
                               Value::Array(object.shape.begin(), object.shape.end()),
                               object.attributes, planned.components.size()}));
  for (std::size_t c = 0; c < planned.components.size(); ++c) {
    const PlannedComponent& component = planned.components[c];
    const Component& to = object.components[c];
    const Component& from =
        source.objects()[component.source.object].components[component.source.component];
    const Storage& storage = component.storage;
    const auto& shared = component.shared_with;
    const auto extent = source.extent(component.source);
    ZT_RETURN_IF_ERROR(hash.Add(
        {to.role.str(), Name(from.element), Name(to.element), from.bytes, to.bytes,
         static_cast<int>(storage.compression), Name(*storage.digest), Name(storage.encoding),
         shared ? Value::Array{shared->object, shared->component} : Value::Array(),
         extent ? Value::Array{extent->offset, extent->length} : Value::Array()}));
  }
  return OkStatus();
}

StatusOr<std::string> DigestOf(const TensorSource& source, const Plan& plan,
                               std::span<const std::string> files, const WriterOptions& options,
                               const ShardPlan& cut) {
  PlanHasher hash;
  // The first is the version of the plan: to be changed with anything in this file that changes plans.
  ZT_RETURN_IF_ERROR(
      hash.Add({"ztstream shards 3", Traits(options.spec).text, static_cast<int>(plan.on_overflow),
                options.zstd.level, options.zstd.huffman, options.zstd.frame_bytes,
                options.min_gain, options.alignment, plan.attributes, plan.objects.size()}));
  for (const PlannedObject& planned : plan.objects)
    ZT_RETURN_IF_ERROR(WithTensor(AddObject(hash, source, planned), planned.object->name));
  for (const auto& shard : cut.shards)
    ZT_RETURN_IF_ERROR(hash.Add(Value::Array(shard.begin(), shard.end())));
  ZT_ASSIGN_OR_RETURN(const std::string sample, SampleInputs(files));
  ZT_RETURN_IF_ERROR(hash.Add({sample}));
  return hash.Finish();
}

}  // namespace

StatusOr<std::optional<ShardRequest>> FindShardRequest(const Args& args) {
  if (args.shards == 0 && args.shard_size == 0 && args.shard.empty()) return std::nullopt;
  ShardRequest request{.count = args.shards, .bytes = args.shard_size};
  if (!args.shard.empty()) {
    const std::string_view text = args.shard;
    const std::size_t slash = std::min(text.find('/'), text.size());
    const auto only = ParseNumber(text.substr(0, slash));
    const auto count = ParseNumber(text.substr(std::min(slash + 1, text.size())));
    if (!only || !count || *only == 0 || *only > *count) {
      return InvalidArgument(
          "--shard takes the number of a shard and of all shards, such as 3/8, not " +
          Quote(args.shard));
    }
    request.only = *only;
    if (request.bytes == 0 && request.count == 0) request.count = *count;
    if (request.count != 0 && request.count != *count)
      return InvalidArgument("--shard " + args.shard + " contradicts --shards " +
                             std::to_string(request.count));
    request.expected = *count;
  }
  if (request.count > kMaxShards)
    return InvalidArgument("at most " + std::to_string(kMaxShards) + " shards are written");
  if (!args.dry_run && (args.output == "-" || !args.output.ends_with(".zt"))) {
    return WithFile(InvalidArgument("the output of shards must end in .zt, such as model.zt"),
                    args.output);
  }
  if (!IsUtf8(std::filesystem::path(args.output).filename().string())) {
    return WithFile(InvalidArgument("the name must be valid UTF-8, because the index holds it"),
                    args.output);
  }
  return request;
}

StatusOr<ShardPlan> CutPlan(const TensorSource& source, const Plan& plan,
                            std::span<const std::string> inputs, const WriterOptions& options,
                            const ShardRequest& request) {
  if (!source.seekable())
    return Unsupported(
        "standard input cannot be cut into shards, because it can only be read once; name a file");
  const std::vector<Unit> units = FindUnits(source, plan);
  if (request.count > std::max<std::size_t>(units.size(), 1)) {
    return InvalidArgument(std::to_string(request.count) +
                           " shards are too many: tensors that must stay together make " +
                           Counted(units.size(), "group"));
  }
  const std::vector<std::size_t> ends =
      request.count != 0 ? CutInto(units, request.count) : Cut(units, request.bytes);
  if (ends.size() > kMaxShards) {
    return InvalidArgument("that makes " + std::to_string(ends.size()) + " shards, more than " +
                           std::to_string(kMaxShards));
  }
  if (request.expected != 0 && request.expected != ends.size()) {
    return InvalidArgument("--shard " + std::to_string(request.only) + "/" +
                           std::to_string(request.expected) + ": this plan has " +
                           Counted(ends.size(), "shard"));
  }
  ShardPlan cut;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    auto& shard = cut.shards.emplace_back();
    for (; begin < end; ++begin)
      shard.insert(shard.end(), units[begin].objects.begin(), units[begin].objects.end());
    std::sort(shard.begin(), shard.end());
  }
  for (std::uint32_t i = 0; i < plan.objects.size(); ++i) {
    if (IsFile(*plan.objects[i].object)) cut.shards.front().push_back(i);
  }
  std::ranges::sort(cut.shards.front());
  ZT_ASSIGN_OR_RETURN(cut.digest, DigestOf(source, plan, inputs, options, cut));
  return cut;
}

Plan PlanOfShard(const Plan& plan, const ShardPlan& cut, std::uint64_t number) {
  const std::vector<std::uint32_t>& members = cut.shards[number - 1];
  Plan shard;
  shard.spec = plan.spec;
  shard.attributes = plan.attributes;
  shard.on_overflow = plan.on_overflow;
  shard.allow_fraction_loss = plan.allow_fraction_loss;
  // The attribute describes files, which are in the first shard.
  if (number > 1) {
    std::erase_if(shard.attributes,
                  [](const auto& each) { return each.first == kFolderAttribute; });
  }
  SetMember(shard.attributes, kShardAttribute,
            ToValue(ShardStamp{cut.digest, number, cut.shards.size()}));
  shard.objects.reserve(members.size());
  std::unordered_map<std::uint32_t, std::uint32_t>
      place;  // index in the plan -> index in the shard
  for (const std::uint32_t member : members) {
    place.emplace(member, static_cast<std::uint32_t>(shard.objects.size()));
    PlannedObject& planned = shard.objects.emplace_back(plan.objects[member]);
    for (PlannedComponent& component : planned.components) {
      if (component.shared_with)
        component.shared_with->object = place.at(component.shared_with->object);
    }
  }
  return shard;
}

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSampleBytes = 4096;
constexpr std::uint64_t kMostSamples = 1024, kLeastSamples = 16;  // in all files; in one of many
constexpr std::uint64_t kRemoteSamples = 4;                       // in one on a server
// At the end of a file, where many formats have a directory or manifest.
constexpr std::uint64_t kEndBytes = 65536;

// Hashes the version of a file on a server, its end, and samples at even distances: all of it if it
// is small.
Status SampleFile(const std::string& path, std::uint64_t most, Hasher& hasher) {
  ZT_ASSIGN_OR_RETURN(const auto bytes, TheStore().Open(path));
  ZT_ASSIGN_OR_RETURN(const std::uint64_t size, KnownSize(*bytes, "a file in shards"));
  const std::string version = TheStore().VersionOf(path);
  hasher.Update(std::as_bytes(std::span(version)));
  std::vector<std::byte> buffer(kEndBytes);
  const auto hash = [&](std::uint64_t offset, std::uint64_t count) -> Status {
    const auto piece = std::span(buffer).first(std::min(count, size - offset));
    ZT_RETURN_IF_ERROR(bytes->ReadAt(offset, piece));
    hasher.Update(piece);
    return OkStatus();
  };
  ZT_RETURN_IF_ERROR(hash(size - std::min(size, kEndBytes), kEndBytes));
  const std::uint64_t samples = std::min(most, (size + kSampleBytes - 1) / kSampleBytes);
  for (std::uint64_t i = 0; i < samples; ++i)
    ZT_RETURN_IF_ERROR(hash(size / samples * i, kSampleBytes));
  return OkStatus();
}

}  // namespace

std::optional<fs::file_time_type> LastChange(std::span<const std::string> files) {
  std::optional<fs::file_time_type> last;
  for (const std::string& file : files) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (!error) last = last ? std::max(*last, time) : time;
  }
  return last;
}

StatusOr<std::string> SampleInputs(std::span<const std::string> files) {
  const std::unique_ptr<Hasher> hasher = MakeHasher(DigestKind::kSha256);
  for (const std::string& file : files) {
    ZT_ASSIGN_OR_RETURN(const auto size, WithFile(TheStore().SizeOf(file), file));
    if (!size) continue;  // a folder
    hasher->Update(std::as_bytes(std::span(&*size, 1)));
    const std::uint64_t most =
        IsUrl(file) ? kRemoteSamples : std::max(kMostSamples / files.size(), kLeastSamples);
    ZT_RETURN_IF_ERROR(WithFile(SampleFile(file, most, *hasher), file));
  }
  return hasher->Finish();
}

}  // namespace zt::cli::internal
