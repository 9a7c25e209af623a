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
namespace ondemand = simdjson::ondemand;

// The index may only name files of its own folder.
Status CheckShardName(std::string_view file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
      file.find('\\') != file.npos || file.find('\0') != file.npos) {
    return InvalidData("the index names the shard " + Quote(file) +
                       "; only files of the folder itself are read");
  }
  return OkStatus();
}

Status NotJson(simdjson::error_code error) {
  if (error == simdjson::MEMALLOC) return IoError("out of memory");
  return InvalidData(std::string("it is not JSON: ") + simdjson::error_message(error));
}

// The text of a value, which is passed over.
simdjson::simdjson_result<std::string_view> TextOf(ondemand::value value) {
  ondemand::object object;
  ondemand::array array;
  if (value.get_object().get(object) == simdjson::SUCCESS) return object.raw_json();
  if (value.get_array().get(array) == simdjson::SUCCESS) return array.raw_json();
  std::string_view token = value.raw_json_token();
  const bool passed = value.get_string().error() == simdjson::SUCCESS ||
                      value.get_double().error() == simdjson::SUCCESS ||
                      value.get_bool().error() == simdjson::SUCCESS;
  if (!passed) (void)value.is_null();  // whatever it is, it is checked elsewhere
  return token;
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

Status ParseWeightMap(ondemand::value value, ShardIndex& index) {
  ondemand::object entries;
  if (value.get_object().get(entries) != simdjson::SUCCESS)
    return InvalidData("weight_map is not a JSON object");
  for (auto each : entries) {
    ondemand::field field;
    std::string_view tensor, file;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(tensor)) return NotJson(error);
    if (const auto error = field.value().get_string().get(file)) {
      return error == simdjson::INCORRECT_TYPE
                 ? WithTensor(InvalidData("its shard is not a string"), tensor)
                 : NotJson(error);
    }
    ZT_RETURN_IF_ERROR(WithTensor(CheckShardName(file), tensor));
    if (!index.weight_map.emplace(std::string(tensor), std::string(file)).second)
      return WithTensor(InvalidData("weight_map has it twice"), tensor);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ShardIndex> ParseShardIndex(std::string text) {
  const simdjson::padded_string padded(text);
  text = {};
  // One member after the other: a tree of all takes ten times the memory of the text.
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object members;
  if (const auto error = parser.iterate(padded).get(document)) return NotJson(error);
  if (const auto error = document.get_object().get(members)) {
    return error == simdjson::INCORRECT_TYPE ? InvalidData("it is not a JSON object")
                                             : NotJson(error);
  }
  bool found = false;
  ShardIndex index;
  for (auto each : members) {
    ondemand::field field;
    std::string_view key, raw;
    if (const auto error = std::move(each).get(field)) return NotJson(error);
    if (const auto error = field.unescaped_key().get(key)) return NotJson(error);
    if (key == "weight_map") {
      if (found) return InvalidData("weight_map occurs twice");
      found = true;
      ZT_RETURN_IF_ERROR(ParseWeightMap(field.value(), index));
      continue;
    }
    const bool metadata = key == "metadata";
    if (const auto error = TextOf(field.value()).get(raw)) return NotJson(error);
    dom::parser other;
    dom::element value;
    if (const auto error = other.parse(raw.data(), raw.size()).get(value)) return NotJson(error);
    if (!metadata) continue;
    ZT_RETURN_IF_ERROR(ParseOwnMetadata(value, index));
    index.disk_delta = DiskDeltaOf(value);
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
    return NotJson(simdjson::TRAILING_CONTENT);
  if (!found) return InvalidData("there is no weight_map");
  return index;
}

}  // namespace zt
