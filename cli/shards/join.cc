// zt.cli — join: the shards of one plan, and the index that makes them one checkpoint.
module;

#include "core/status_macros.h"

module zt.cli;

import zt.std;
import :shards;
import :options;
import :paths;
import :rules;
import :signals;
import zt.convert.shards;

namespace zt::cli::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".index.json";

// A shard, as its footer and manifest describe it.
struct ShardFile {
  std::string path, name;  // the name within its folder
  ShardStamp stamp;
  std::uint64_t bytes = 0;    // of the file
  std::uint64_t decoded = 0;  // of its tensors, shared ones counted once
  std::string digest;         // of the whole file
  std::uint64_t files = 0;    // of the model
  Manifest manifest;
};

StatusOr<ShardFile> ReadShard(const std::string& path) {
  ShardFile shard;
  shard.path = path;
  shard.name = fs::path(path).filename().string();
  if (!IsUtf8(shard.name)) return InvalidArgument("its name is not UTF-8, so no index can hold it");
  ZT_ASSIGN_OR_RETURN(const bool folder, TheStore().IsFolder(path));
  if (folder) {
    return InvalidArgument("it is a folder; name the shards in it: " +
                           (fs::path(path) / "*-of-*.zt").string());
  }
  auto opened = OpenReader(path);
  if (!opened.ok()) ZT_RETURN_IF_ERROR(CheckIsZt(path));
  ZT_ASSIGN_OR_RETURN(const auto reader, std::move(opened));
  shard.manifest = reader->manifest();
  shard.files = ListFiles(shard.manifest).size();
  const auto stamp = FindShardStamp(shard.manifest.attributes);
  if (!stamp)
    return InvalidData(
        "it is not a shard: 'ztstream convert --shards' or --shard-size writes those");
  shard.stamp = *stamp;
  shard.bytes = *reader->bytes().size();
  std::set<std::uint64_t> blobs;  // by offset
  for (const StoredObject& object : shard.manifest.objects) {
    for (const StoredComponent& component : object.components) {
      if (component.decoded_bytes == kUnknownSize || component.length == 0) continue;
      if (blobs.insert(component.offset).second) shard.decoded += component.decoded_bytes;
    }
  }
  // An index needs only the names.
  if (!Traits(shard.manifest.version).shard_table) {
    for (StoredObject& object : shard.manifest.objects) {
      StoredObject name;
      name.name = std::move(object.name);
      object = std::move(name);
    }
  }
  return shard;
}

Status AddShard(const std::string& path, std::map<std::uint64_t, ShardFile>& shards) {
  ZT_ASSIGN_OR_RETURN(ShardFile shard, ReadShard(path));
  const ShardStamp& stamp = shard.stamp;
  if (!shards.empty()) {
    const ShardFile& first = shards.begin()->second;
    if (stamp.plan != first.stamp.plan || stamp.count != first.stamp.count) {
      return InvalidData("its plan is not that of " + first.path +
                         ": the inputs or the options were different");
    }
  }
  const auto name = ParseShardName(shard.name, ".zt");
  if (!name || name->part != stamp.number || name->count != stamp.count) {
    return InvalidData("it is shard " + PartText(stamp.number) + " of " + PartText(stamp.count) +
                       ", and its name is not that of this shard");
  }
  const auto [held, fresh] = shards.emplace(stamp.number, std::move(shard));
  if (fresh) return OkStatus();
  return InvalidData("it is shard " + PartText(held->first) + ", like " + held->second.path);
}

// Reads all shards of one plan, by number. An error names the file that is wrong.
StatusOr<std::map<std::uint64_t, ShardFile>> ReadShards(const std::vector<std::string>& paths) {
  std::map<std::uint64_t, ShardFile> shards;
  for (const std::string& path : paths) {
    if (Interrupted()) return Cancelled("interrupted");
    ZT_RETURN_IF_ERROR(WithFile(AddShard(path, shards), path));
  }
  return shards;
}

JoinResult Summarize(const std::map<std::uint64_t, ShardFile>& shards) {
  JoinResult joined;
  const ShardStamp& stamp = shards.begin()->second.stamp;
  joined.plan = stamp.plan;
  joined.shards = stamp.count;
  for (const auto& [number, shard] : shards) {
    joined.tensors += shard.manifest.objects.size() - shard.files;
    joined.files += shard.files;
    joined.bytes += shard.decoded;
  }
  for (std::uint64_t number = 1; number <= stamp.count; ++number) {
    if (!shards.contains(number)) joined.missing.push_back(number);
  }
  return joined;
}

// The shard of each tensor.
using Weights = std::map<std::string_view, const ShardFile*>;
StatusOr<Weights> FindWeights(const std::map<std::uint64_t, ShardFile>& shards) {
  Weights weights;
  for (const auto& [number, shard] : shards) {
    for (const StoredObject& object : shard.manifest.objects) {
      const std::string& tensor = object.name;
      const auto [held, fresh] = weights.emplace(tensor, &shard);
      if (!fresh) {
        return WithFile(
            InvalidData(TensorContext(tensor) + " is in " + held->second->path + ", too"),
            shard.path);
      }
    }
  }
  return weights;
}

std::string TextOfIndex(const std::map<std::uint64_t, ShardFile>& shards, const Weights& weights,
                        const JoinResult& joined) {
  nlohmann::json files = nlohmann::json::object(), map = files;
  for (const auto& [number, shard] : shards)
    files[shard.name] = {{"size", shard.bytes}, {"digest", shard.digest}};
  for (const auto& [tensor, shard] : weights) map[std::string(tensor)] = shard->name;
  return IndexText({{"total_size", joined.bytes},
                    {"ztstream", {{"plan", joined.plan}, {"shards", std::move(files)}}}},
                   map);
}

// The bytes of the root (2.0 §7): a file of the version of the shards that names them and their
// contents.
StatusOr<std::string> RootText(std::map<std::uint64_t, ShardFile>& shards,
                               const JoinResult& joined) {
  std::vector<std::byte> out;
  Manifest& first = shards.begin()->second.manifest;
  ZT_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                      Writer::Create(MemorySink(out), {.spec = first.version, .threads = 1}));
  SetMember(first.attributes, kShardAttribute,
            Value::Map{{"plan", joined.plan}, {"shards", joined.shards}});
  writer->SetAttributes(first.attributes);
  for (auto& [number, shard] : shards) {
    const std::string name = PartText(number) + "-of-" + PartText(joined.shards);
    ZT_RETURN_IF_ERROR(
        writer->AddShard({.name = name, .bytes = shard.bytes, .digest = shard.digest},
                         std::move(shard.manifest.objects)));
  }
  ZT_RETURN_IF_ERROR(writer->Finish());
  return std::string(reinterpret_cast<const char*>(out.data()), out.size());
}

// True if the file holds exactly `text`.
StatusOr<bool> Holds(const std::string& path, std::string_view text) {
  ZT_ASSIGN_OR_RETURN(const auto bytes, TheStore().Open(path));
  if (bytes->size() != text.size()) return false;
  ZT_ASSIGN_OR_RETURN(const std::string held, ReadAll(*bytes, text.size()));
  return held == text;
}

// Writes the index, unless it exists with the same content.
Status WriteIndex(const std::string& path, std::string_view text, const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(const bool there, WithFile(TheStore().Exists(path), path));
  if (there) {
    ZT_ASSIGN_OR_RETURN(const bool same, WithFile(Holds(path, text), path));
    if (same) return OkStatus();
    if (!options.overwrite) return WithFile(OtherIndex(), path);
  }
  const Status written = WriteText(path, text, options);
  if (written.code() != StatusCode::kAlreadyExists) return written;
  const auto same = Holds(path, text);  // another run may have written it
  return same.ok() && *same ? OkStatus() : written;
}

Status CheckWhole(const std::map<std::uint64_t, ShardFile>& shards, const JoinResult& joined) {
  if (joined.missing.empty()) return OkStatus();
  std::set<std::uint64_t> there;
  for (const auto& [number, shard] : shards) there.insert(number);
  const bool one = joined.missing.size() == 1;
  return InvalidData(std::string(one ? "shard " : "shards ") +
                     MissingParts(there, 1, joined.shards, 5) + " of " + PartText(joined.shards) +
                     (one ? " is" : " are") + " missing; --missing prints what to run again");
}

}  // namespace

std::string IndexPath(const std::string& output, SpecVersion version) {
  return Traits(version).shard_table ? output : output + std::string(kIndexSuffix);
}

StatusOr<std::string> PlanOfIndex(const std::string& path, SpecVersion version) {
  if (!Traits(version).shard_table) {
    const auto index = ReadShardIndex(path, TheStore());
    ZT_RETURN_IF_UNAVAILABLE(index.status());
    return index.ok() ? index->plan : "";
  }
  const auto root = OpenReader(path);
  ZT_RETURN_IF_UNAVAILABLE(root.status());
  if (!root.ok()) return "";
  const Value* const value = FindMember((*root)->manifest().attributes, kShardAttribute);
  if (value == nullptr || value->AsMap() == nullptr) return "";
  const Value* const plan = FindMember(*value->AsMap(), "plan");
  const bool shard = FindShardStamp((*root)->manifest().attributes).has_value();
  return shard || plan == nullptr || plan->AsString() == nullptr ? "" : *plan->AsString();
}

StatusOr<JoinResult> WriteShardIndex(const std::vector<std::string>& paths,
                                     const std::string& output, const FileSinkOptions& options) {
  ZT_ASSIGN_OR_RETURN(auto shards, ReadShards(paths));
  JoinResult joined = Summarize(shards);
  ZT_RETURN_IF_ERROR(WithFile(CheckWhole(shards, joined), output));
  for (auto& [number, shard] : shards) {
    const std::string named = ShardPath(output, number, joined.shards);
    std::error_code error;  // one path may be spelled in several ways
    if (shard.name != fs::path(named).filename() ||
        (shard.path != named && !fs::equivalent(shard.path, named, error))) {
      return WithFile(InvalidData("the index of " + output + " would name it " + named),
                      shard.path);
    }
    ZT_ASSIGN_OR_RETURN(shard.digest, ReadDigestFile(shard.path));
    if (shard.digest.empty()) {
      return WithFile(InvalidData("the file with its digest is missing; convert this shard again "
                                  "to check it and write its digest"),
                      shard.path);
    }
  }
  ZT_ASSIGN_OR_RETURN(const Weights weights, FindWeights(shards));
  const SpecVersion version = shards.begin()->second.manifest.version;
  joined.path = IndexPath(output, version);
  std::string text;
  if (Traits(version).shard_table) {
    ZT_ASSIGN_OR_RETURN(text, RootText(shards, joined));
  } else {
    text = TextOfIndex(shards, weights, joined);
  }
  ZT_RETURN_IF_ERROR(WriteIndex(joined.path, text, options));
  return joined;
}

namespace {

// The shards that words name. A shell leaves a pattern as it is if no file matches, and always that
// of a URL, whose query may hold '?' and '['.
StatusOr<std::vector<std::string>> ExpandPatterns(const std::vector<std::string>& words) {
  std::vector<std::string> shards;
  for (const std::string& word : words) {
    const bool url = IsUrl(word);
    std::error_code error;
    if (word.find_first_of(url ? "*" : "*?[") == word.npos ||
        (!url && std::filesystem::exists(word, error))) {
      shards.push_back(word);
      continue;
    }
    const std::size_t before = shards.size(), slash = word.rfind('/') + 1;
    std::vector<std::string> names;  // of a folder of a server
    Pattern matching("", "glob:" + word.substr(slash));
    if (url) {
      ZT_RETURN_IF_ERROR(matching.Resolve({}));
      ZT_ASSIGN_OR_RETURN(names, WithFile(TheStore().List(word.substr(0, slash)), word));
      std::ranges::sort(names);
    }
    for (const std::string& name : names) {
      if (matching.Matches(name)) shards.push_back(word.substr(0, slash) + name);
    }
    if (shards.size() == before) {
      return WithFile(
          InvalidArgument("no file matches this pattern; the shards are not written yet, "
                          "or are in another folder"),
          word);
    }
  }
  return shards;
}

Status Join(const Args& args) {
  ZT_ASSIGN_OR_RETURN(const auto inputs, ExpandPatterns(args.inputs));
  if (args.missing) {
    ZT_ASSIGN_OR_RETURN(const auto shards, ReadShards(inputs));
    const JoinResult joined = Summarize(shards);
    const std::string array = RangesText(joined.missing, ",");  // as Slurm's --array takes it
    if (!args.json) return Print(array.empty() ? "" : array + "\n");
    Json json = Envelope(args, true);
    json["shards"] = joined.shards;
    json["plan_digest"] = joined.plan;
    json["missing"] = joined.missing;
    json["array"] = array;
    return PrintJson(args, json);
  }
  if (!args.output.ends_with(".zt"))
    return WithFile(
        InvalidArgument("name the output that was given to convert, such as DIR/model.zt"),
        args.output);
  ZT_ASSIGN_OR_RETURN(
      const JoinResult joined,
      WriteShardIndex(inputs, args.output, {.overwrite = args.force, .sync = !args.no_sync}));
  Completed();
  if (args.json) {
    Json json = Envelope(args, true);
    json["output"] = {{"path", joined.path}};
    json["shards"] = joined.shards;
    json["plan_digest"] = joined.plan;
    json["tensors"] = joined.tensors;
    json["bytes_decoded"] = joined.bytes;
    return PrintJson(args, json);
  }
  if (!args.quiet) {
    Note(joined.path + ": " + Counted(joined.shards, "shard") + ", " +
         Counted(joined.tensors, "tensor") +
         (joined.files > 0 ? " and " + Counted(joined.files, "file") : "") + ", " +
         HumanBytes(joined.bytes));
  }
  return OkStatus();
}

}  // namespace

int RunJoin(const Args& args) { return Done(args, Join(args)); }

}  // namespace zt::cli::internal
