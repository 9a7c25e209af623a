// zt.cli — what lies where shards are to be written: inputs, and shards of other counts.
module;

#include <sys/stat.h>

module zt.cli;

import zt.std;
import :args;
import :shards;
import zt;
import zt.convert.shards;

namespace zt::cli::internal {

namespace fs = std::filesystem;

Status CheckPlace(const ConvertArgs& args, const std::vector<InputFile>& inputs,
                  const ShardPlan& cut) {
  const std::uint64_t count = cut.shards.size();
  std::set<std::pair<dev_t, ino_t>>
      files;  // a status for each file, not for each pair of an input and a shard
  struct stat info;
  for (const InputFile& file : inputs) {
    if (::stat(file.path.c_str(), &info) == 0) files.emplace(info.st_dev, info.st_ino);
  }
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::string path = ShardPath(args.output, number, count);
    if (::stat(path.c_str(), &info) != 0 || !files.contains({info.st_dev, info.st_ino})) continue;
    return WithFile(InvalidArgument("it is an input, which would be replaced while others are "
                                    "read; write to another folder"),
                    path);
  }
  // Shards of two counts beside one another cannot be told apart by who opens the folder or the index.
  const fs::path first(ShardPath(args.output, 1, count));
  const auto ours = ParseShardName(first.filename().string(), ".zt");
  const fs::path folder = first.has_parent_path() ? first.parent_path() : ".";
  const auto listed = ListFolder(folder.string());
  for (const std::string& name : listed.ok() ? *listed : std::vector<std::string>()) {
    if (!ours) break;
    const auto other = ParseShardName(name, ".zt");
    if (!other || other->stem != ours->stem || other->count == ours->count) continue;
    return WithFile(AlreadyExists("shards of this name exist already, of " +
                                  std::to_string(other->count) + "; remove them first"),
                    (folder / name).string());
  }
  return OkStatus();
}

}  // namespace zt::cli::internal
