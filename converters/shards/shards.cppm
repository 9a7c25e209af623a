// zt.convert.shards — checkpoints of several files in one folder, with an index or without.
export module zt.convert.shards;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// What an index.json says.
struct ShardIndex {
  struct File {
    std::uint64_t bytes = 0;
    std::string digest;  // of the whole file, as zt.digest writes it
  };
  std::map<std::string, std::string> weight_map;  // tensor to shard
  // What `ztstream join` writes of its shards, below metadata.ztstream; empty in the indexes of others.
  std::string plan;  // the digest of the plan that all shards are of
  std::map<std::string, File> files;
};
// The index in `text`. A shard that is no plain file name is kDataLoss, so that an index reads nothing outside its folder.
extern "C++" StatusOr<ShardIndex> ParseShardIndex(std::string text);
// The index in a file.
StatusOr<ShardIndex> ReadShardIndex(const std::string& path);

// What the shards of a format are called, and how one is opened.
struct ShardFormat {
  std::string_view suffix;        // ".safetensors"
  std::string_view index_suffix;  // ".safetensors.index.json"
  // Opens a shard; `file` is its name in the folder, `index` an empty one where the folder has none.
  std::function<StatusOr<std::unique_ptr<TensorSource>>(
      std::shared_ptr<ByteSource>, const std::string& file, const ShardIndex& index)>
      open;
  // The folder may hold other models: a file that the index does not list is an error where it is numbered and named as
  // the index is, and else passed over. Otherwise each is left out with a warning.
  bool refuse_unlisted = false;
  // True where a file that begins with `head` (512 bytes suffice) is one of the format. In a folder without an index, others
  // are left out with a warning, unless they are named as parts of a set, or nothing else is there. Null: all are shards.
  bool (*recognise)(std::span<const std::byte> head) = nullptr;
};

// "model-00002-of-00003.safetensors" taken apart.
struct ShardName {
  std::string stem;  // "model"
  std::uint64_t part = 0, count = 0;
  std::string set;  // what its siblings share: "model-*-of-00003.safetensors"
  int width = 0;    // digits of the part
};
// nullopt where `file` is not named so.
std::optional<ShardName> ParseShardName(std::string_view file, std::string_view suffix);
// "00002, 00004 to 00007": which numbers from `first` to `last` are not among `parts`. Empty where all are.
std::string MissingParts(const std::set<std::uint64_t>& parts, std::uint64_t first,
                         std::uint64_t last, int width);

// A folder with one index, or the index file itself: its shards as one source, checked against the index both ways.
// Without an index, every file of the folder with the format's suffix, by name. Files named as parts of a set
// ("-00001-of-00003") must be the whole set; kDataLoss names all that are missing.
// Errors name the file within the folder.
StatusOr<std::unique_ptr<TensorSource>> OpenShards(const std::string& path,
                                                   const ShardFormat& format,
                                                   const InputOptions& options = {});

}  // namespace zt
