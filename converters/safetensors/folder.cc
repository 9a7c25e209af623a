// zt.convert.safetensors — sharded checkpoints: the index against its shards, both ways.
module;

#include <simdjson.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/status_macros.h"

module zt.convert.safetensors;

import zt.core;
import zt.source;

namespace zt {
namespace {

namespace dom = simdjson::dom;
namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 30;

using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

// A shard's name comes from the index, so it may name a file of the folder and nothing else.
Status CheckShardName(std::string_view file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
      file.find('\\') != file.npos || file.find('\0') != file.npos) {
    return InvalidData("the index names the shard " + Quote(file) +
                       "; only files of the folder itself are read");
  }
  return OkStatus();
}

StatusOr<WeightMap> ReadIndex(const fs::path& path) {
  ZT_ASSIGN_OR_RETURN(const std::shared_ptr<ByteSource> bytes, OpenFile(path.string()));
  if (*bytes->size() > kMaxIndexBytes) return InvalidData("the index is larger than 1 GiB");
  std::string text(*bytes->size(), '\0');
  ZT_RETURN_IF_ERROR(bytes->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return ParseSafetensorsIndex(std::move(text));
}

// A link may point anywhere; what lies outside the folder is read only where the user said so.
Status CheckStaysInside(const fs::path& folder, const std::string& file) {
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return IoError(error.value(), "cannot resolve the folder");
  const fs::path target = fs::canonical(folder / file, error);
  if (error) return OkStatus();  // opening it will say what is wrong
  if (target.parent_path() != root) {
    return InvalidData("it is a symbolic link that leaves the folder; --follow-links allows that");
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TensorSource>> OpenShard(const fs::path& folder, const std::string& file,
                                                  const CheckpointOptions& options) {
  if (!options.follow_links) ZT_RETURN_IF_ERROR(Annotate(CheckStaysInside(folder, file), file));
  std::error_code error;
  if (!fs::exists(folder / file, error)) return InvalidData("shard " + file + " is missing");
  auto bytes = OpenFile((folder / file).string());
  if (!bytes.ok()) return Annotate(bytes.status(), file);
  auto source = OpenSafetensors(*std::move(bytes));
  if (!source.ok()) return Annotate(source.status(), file);
  return source;
}

// The shards of an index, in the order of their names, with every (tensor, shard) pair checked both ways.
StatusOr<std::unique_ptr<TensorSource>> OpenIndexed(const fs::path& folder,
                                                    const std::string& index,
                                                    const std::vector<std::string>& present,
                                                    const CheckpointOptions& options) {
  auto map = ReadIndex(folder / index);
  if (!map.ok()) return Annotate(map.status(), index);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : *map) shards.insert(shard);
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& shard : shards) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenShard(folder, shard, options));
    for (const Object& object : source->objects()) {
      const auto entry = map->find(object.name);
      if (entry == map->end()) {
        return InvalidData(TensorContext(object.name) + " is in " + shard + " but not in " + index);
      }
      if (entry->second != shard) {
        return InvalidData(TensorContext(object.name) + " is in " + shard + ", " + index +
                           " says it is in " + entry->second);
      }
      seen.insert(object.name);
    }
    sources.push_back(std::move(source));
    names.push_back(shard);
  }
  for (const auto& [tensor, shard] : *map) {
    if (!seen.contains(tensor)) {
      return InvalidData(TensorContext(tensor) + " is not in " + shard + ", where " + index +
                         " puts it");
    }
  }
  if (sources.empty()) return InvalidData(index + " names no tensor");
  ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> merged,
                      MergeSources(std::move(sources), std::move(names)));
  for (const std::string& file : present) {
    if (!shards.contains(file))
      merged->AddWarning(file + " is not in " + index + " and is left out");
  }
  return merged;
}

}  // namespace

StatusOr<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string text) {
  dom::parser parser;
  dom::element root;
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);  // then it is parsed where it is
  if (const auto error = parser.parse(text).get(root); error != simdjson::SUCCESS) {
    if (error == simdjson::MEMALLOC) return IoError("out of memory");
    return InvalidData(std::string("it is no JSON: ") + simdjson::error_message(error));
  }
  dom::object members;
  if (root.get_object().get(members) != simdjson::SUCCESS)
    return InvalidData("it is no JSON object");
  bool found = false;
  WeightMap map;
  for (const auto& [key, value] : members) {
    if (key != "weight_map") continue;
    if (found) return InvalidData("weight_map is there twice");
    found = true;
    dom::object entries;
    if (value.get_object().get(entries) != simdjson::SUCCESS) {
      return InvalidData("weight_map is no JSON object");
    }
    for (const auto& [tensor, shard] : entries) {
      std::string_view file;
      if (shard.get_string().get(file) != simdjson::SUCCESS) {
        return Annotate(InvalidData("its shard is no string"), TensorContext(tensor));
      }
      ZT_RETURN_IF_ERROR(Annotate(CheckShardName(file), TensorContext(tensor)));
      if (!map.emplace(std::string(tensor), std::string(file)).second) {
        return Annotate(InvalidData("weight_map has it twice"), TensorContext(tensor));
      }
    }
  }
  if (!found) return InvalidData("there is no weight_map");
  return map;
}

StatusOr<std::unique_ptr<TensorSource>> OpenSafetensorsFolder(const std::string& path,
                                                              const CheckpointOptions& options) {
  std::error_code error;
  fs::path folder = path;
  std::vector<std::string> indices, files;
  if (!fs::is_directory(folder, error)) {
    indices.push_back(folder.filename().string());
    folder = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  }
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".safetensors")) files.push_back(name);
    if (name.ends_with(kIndexSuffix) && folder == fs::path(path)) indices.push_back(name);
  }
  if (error) return IoError(error.value(), "cannot list the folder");
  std::sort(files.begin(), files.end());
  std::sort(indices.begin(), indices.end());
  if (indices.size() > 1) {
    return InvalidArgument("the folder has several indices, " + indices[0] + " and " + indices[1] +
                           " among them; name one");
  }
  if (indices.size() == 1) return OpenIndexed(folder, indices[0], files, options);
  if (files.empty())
    return InvalidArgument("the folder has neither an index nor *.safetensors files");
  std::vector<std::unique_ptr<TensorSource>> sources;
  for (const std::string& file : files) {
    ZT_ASSIGN_OR_RETURN(std::unique_ptr<TensorSource> source, OpenShard(folder, file, options));
    sources.push_back(std::move(source));
  }
  return MergeSources(std::move(sources), std::move(files));
}

}  // namespace zt
