// zt.convert.shards — checkpoints of several files in one folder, with an index or without.
module;

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

export module zt.convert.shards;

import zt.core;
import zt.source;

export namespace zt {

// How checkpoint folders are opened.
struct CheckpointOptions {
  // Shards may be symbolic links that lead out of the folder, as in the Hugging Face cache.
  bool follow_links = false;
};

// What the shards of a format are called, and how one is opened.
struct ShardFormat {
  std::string_view suffix;        // ".safetensors"
  std::string_view index_suffix;  // ".safetensors.index.json"
  // Opens a shard; `file` is its name in the folder.
  std::function<StatusOr<std::unique_ptr<TensorSource>>(std::shared_ptr<ByteSource>,
                                                        const std::string& file)>
      open;
};

// The `weight_map` of an index.json: tensor to shard. A shard that is no plain file name is kDataLoss, so that an index
// reads nothing outside its folder.
StatusOr<std::map<std::string, std::string>> ParseShardIndex(std::string text);

// A folder with one index, or the index file itself: its shards as one source, checked against the index both ways.
// Without an index, every file of the folder with the format's suffix, by name. Files named as parts of a set
// ("-00001-of-00003") must be the whole set; kDataLoss names all that are missing.
// Errors name the file within the folder.
StatusOr<std::unique_ptr<TensorSource>> OpenShards(const std::string& path,
                                                   const ShardFormat& format,
                                                   const CheckpointOptions& options = {});

}  // namespace zt
