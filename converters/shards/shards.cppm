// zt.convert.shards — sharded checkpoints: several files in one folder, with or without an index.
export module zt.convert.shards;

import zt.std;
import zt.core;
import zt.source;

export namespace zt {

// The contents of an index.json.
struct ShardIndex {
  // A shard.
  struct File {
    std::uint64_t bytes = 0;
    std::string digest;  // of the whole file, in the text form of zt.digest
  };
  std::map<std::string, std::string> weight_map;  // tensor name to shard
  // Written by `ztstream join`, under metadata.ztstream; empty in indexes of other programs.
  std::string plan;  // the digest of the plan that all shards share
  std::map<std::string, File> files;
  // The texts of its metadata, if they say that the shards are what differs from another model.
  Value::Map disk_delta;
};
// The root attribute that has ShardIndex::disk_delta.
inline constexpr std::string_view kDiskDelta = "disk-delta";
// Parses an index. kDataLoss if a shard is no plain file name: an index must not refer to files
// outside its folder.
extern "C++" StatusOr<ShardIndex> ParseShardIndex(std::string text);
// Reads and parses an index file.
StatusOr<ShardIndex> ReadShardIndex(const std::string& path, Store& store);

// Opens a file whose content is of another format than its name says; null if it is not.
using OpenOther = std::function<StatusOr<std::unique_ptr<TensorSource>>(
    const std::shared_ptr<ByteSource>& bytes, const std::string& path)>;

// The file names of a format's shards, and how to open a shard.
struct ShardFormat {
  std::string_view suffix;  // ".safetensors"
  // Opens a shard. `file` is its name in the folder. `index` is empty if the folder has no index.
  std::function<StatusOr<std::unique_ptr<TensorSource>>(
      std::shared_ptr<ByteSource>, const std::string& file, const ShardIndex& index)>
      open;
  // Files that the index does not list: false leaves out each with a warning; true refuses numbered
  // shards of its own set, and ignores the rest, for the folder may hold other models.
  bool refuse_unlisted = false;
  // True if a file that begins with `head` (512 bytes suffice) has the format. In a folder without
  // an index, other files are left out with a warning, unless they are named as parts of a set, or
  // there are no shards at all. Null: all files are shards.
  bool (*recognise)(std::span<const std::byte> head) = nullptr;
  OpenOther other = {};
};

// The parts of the name of a shard: a number and a count ("00002-of-00003", in any case and with any
// of "-_" around "of") somewhere between a stem and what all shards of the set end in.
struct ShardName {
  std::string stem;  // "model"
  std::uint64_t part = 0, count = 0;
  std::string tail;  // ".fp16.safetensors"
  std::string set;   // pattern of the set: "model-*-of-00003.fp16.safetensors"
  int width = 0;     // number of digits of `part`
};
// nullopt if `file` does not end in `suffix`, or has no such name.
std::optional<ShardName> ParseShardName(std::string_view file, std::string_view suffix);

// The parts of the name of an index: "model.safetensors.index.json", or of a variant
// "model.safetensors.index.fp16.json" or "model.fp16.safetensors.index.json".
struct IndexName {
  std::string stem;     // "model"; of the third form "model.fp16"
  std::string suffix;   // of the shards: ".safetensors"
  std::string variant;  // "fp16" of the second form
};
// nullopt if `file` has no such name.
std::optional<IndexName> ParseIndexName(std::string_view file);

// True if the name of a file with this suffix, a shard or an index is one of the variant "fp16":
// "model.fp16.safetensors", "model-fp16.safetensors", "model.safetensors.index.fp16.json".
bool IsOfVariant(std::string_view file, std::string_view suffix, std::string_view variant);
// The variants that files with this suffix, or their indices, name behind a dot: sorted, each once.
std::vector<std::string> VariantsOf(std::span<const std::string> files, std::string_view suffix);

// The error for a variant that none of the files has; names those that are there.
Status NoVariant(std::string_view variant, std::span<const std::string> variants);

// True if `file` has the name of an index of shards with this suffix.
bool IsIndexOf(std::string_view file, std::string_view suffix);
// The numbers from `first` to `last` that are not in `parts`: "00002, 00004 to 00007". Empty
// if none is missing.
std::string MissingParts(const std::set<std::uint64_t>& parts, std::uint64_t first,
                         std::uint64_t last, int width);

// kDataLoss if files that are named as parts of a set are not all of it: "`what` 00002 of
// 'model-*-of-00003.bin'; the checkpoint is not whole". Names of other forms are passed over.
Status CheckSets(std::span<const std::string> files, std::string_view suffix,
                 std::string_view what);

// Opens a folder with one index, or the index itself: all shards as one source. If a folder holds
// "model" and variants of it, "model.fp16", as files or indices, the variants are not read, or only
// that of InputOptions::variant is; a warning names the rest. The index must list exactly the
// tensors of its shards. Without an index, the shards are all files of the folder with the format's
// suffix, sorted by name; tensors of which each holds a part are put together (see
// zt.convert.parts). Files named as parts of a set ("-00001-of-00003") must be the whole set;
// kDataLoss lists all missing ones. Errors name the file, relative to the folder.
StatusOr<std::unique_ptr<TensorSource>> OpenShards(const std::string& path,
                                                   const ShardFormat& format,
                                                   const InputOptions& options = {});

}  // namespace zt
