// zt.convert.shards — parses the JSON of an index. A plain unit, because simdjson's header and the
// module zt.std cannot be used in the same unit.
#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/status_macros.h"

import zt.core;
import zt.convert.shards;

namespace zt {
namespace {

namespace dom = simdjson::dom;

// The index may only name files of its own folder.
Status CheckShardName(std::string_view file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
      file.find('\\') != file.npos || file.find('\0') != file.npos) {
    return InvalidData("the index names the shard " + Quote(file) +
                       "; only files of the folder itself are read");
  }
  return OkStatus();
}

// Parses what `ztstream join` has written; other metadata is ignored.
Status ParseOwnMetadata(const dom::element& metadata, ShardIndex& index) {
  dom::element own;
  if (metadata.at_pointer("/ztstream").get(own) != simdjson::SUCCESS) return OkStatus();
  std::string_view plan;
  dom::object shards;
  if (own["plan"].get_string().get(plan) != simdjson::SUCCESS ||
      own["shards"].get_object().get(shards) != simdjson::SUCCESS) {
    return InvalidData("metadata.ztstream has no plan or no shards");
  }
  index.plan = plan;
  for (const auto& [name, entry] : shards) {
    ZT_RETURN_IF_ERROR(CheckShardName(name));
    ShardIndex::File file;
    std::string_view digest;
    if (entry["size"].get_uint64().get(file.bytes) != simdjson::SUCCESS ||
        entry["digest"].get_string().get(digest) != simdjson::SUCCESS) {
      return InvalidData("metadata.ztstream has no size or no digest of " + Quote(name));
    }
    file.digest = digest;
    if (!index.files.emplace(std::string(name), std::move(file)).second)
      return InvalidData("metadata.ztstream has " + Quote(name) + " twice");
  }
  return OkStatus();
}

// What the metadata of a "disk delta" say (zt.convert.diskdelta); empty for other indexes.
Value::Map DiskDeltaOf(const dom::element& metadata) {
  Value::Map texts;
  dom::object members;
  if (metadata.get_object().get(members) != simdjson::SUCCESS ||
      (members["delta_encoding"].error() != simdjson::SUCCESS &&
       members["base_version"].error() != simdjson::SUCCESS))
    return texts;
  for (const std::string_view known :
       {"delta_encoding", "compression_format", "checksum_format", "version", "base_version"}) {
    std::string_view text;
    if (members[known].get_string().get(text) == simdjson::SUCCESS)
      texts.emplace_back(std::string(known), Value(text));
  }
  if (texts.empty()) texts.emplace_back("delta_encoding", Value());
  return texts;
}

}  // namespace

StatusOr<ShardIndex> ParseShardIndex(std::string text) {
  dom::parser parser;
  dom::element root;
  // the reserved padding lets simdjson parse in place
  text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  if (const auto error = parser.parse(text).get(root); error != simdjson::SUCCESS) {
    if (error == simdjson::MEMALLOC) return IoError("out of memory");
    return InvalidData(std::string("it is not JSON: ") + simdjson::error_message(error));
  }
  dom::object members;
  if (root.get_object().get(members) != simdjson::SUCCESS)
    return InvalidData("it is not a JSON object");
  bool found = false;
  ShardIndex index;
  for (const auto& [key, value] : members) {
    if (key == "metadata") {
      ZT_RETURN_IF_ERROR(ParseOwnMetadata(value, index));
      index.disk_delta = DiskDeltaOf(value);
    }
    if (key != "weight_map") continue;
    if (found) return InvalidData("weight_map occurs twice");
    found = true;
    dom::object entries;
    if (value.get_object().get(entries) != simdjson::SUCCESS) {
      return InvalidData("weight_map is not a JSON object");
    }
    for (const auto& [tensor, shard] : entries) {
      std::string_view file;
      if (shard.get_string().get(file) != simdjson::SUCCESS) {
        return WithTensor(InvalidData("its shard is not a string"), tensor);
      }
      ZT_RETURN_IF_ERROR(WithTensor(CheckShardName(file), tensor));
      if (!index.weight_map.emplace(std::string(tensor), std::string(file)).second) {
        return WithTensor(InvalidData("weight_map has it twice"), tensor);
      }
    }
  }
  if (!found) return InvalidData("there is no weight_map");
  return index;
}

}  // namespace zt
