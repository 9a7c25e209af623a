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
namespace {

namespace fs = std::filesystem;

// The files that hold what a plan reads. Those of a folder or an index have their names within the folder.
std::set<std::string> FilesOf(const ConvertArgs& args, const TensorSource& source,
                              const Plan& plan) {
  std::set<std::string> files;
  for (const PlannedObject& object : plan.objects) {
    for (const PlannedComponent& component : object.components) {
      const std::string& file = source.file(component.source);
      if (!file.empty() && !files.contains(file)) files.insert(file);
    }
  }
  std::set<std::string> found;
  for (const std::string& file : files) {
    std::error_code error;
    if (fs::exists(file, error)) found.insert(file);
    for (const std::string& input : args.inputs) {
      const fs::path folder =
          fs::is_directory(input, error) ? fs::path(input) : fs::path(input).parent_path();
      if (fs::exists(folder / file, error)) found.insert((folder / file).string());
    }
  }
  return found;
}

}  // namespace

std::optional<fs::file_time_type> LastChange(const ConvertArgs& args, const TensorSource& source,
                                             const Plan& plan) {
  std::optional<fs::file_time_type> last;
  for (const std::string& file : FilesOf(args, source, plan)) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (!error) last = last ? std::max(*last, time) : time;
  }
  return last;
}

Status CheckPlace(const ConvertArgs& args, const TensorSource& source, const Plan& plan,
                  const ShardPlan& cut) {
  const std::uint64_t count = cut.shards.size();
  std::set<std::pair<dev_t, ino_t>>
      inputs;  // a status for each file, not for each pair of an input and a shard
  struct stat info;
  for (const std::string& file : FilesOf(args, source, plan)) {
    if (::stat(file.c_str(), &info) == 0) inputs.emplace(info.st_dev, info.st_ino);
  }
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::string path = ShardPath(args.output, number, count);
    if (::stat(path.c_str(), &info) != 0 || !inputs.contains({info.st_dev, info.st_ino})) continue;
    return InvalidArgument(path +
                           ": it is an input, which would be replaced while others are read; write "
                           "to another folder");
  }
  // Shards of two counts beside one another cannot be told apart by who opens the folder or the index.
  const fs::path first(ShardPath(args.output, 1, count));
  const auto ours = ParseShardName(first.filename().string(), ".zt");
  std::error_code error;
  const fs::path folder = first.has_parent_path() ? first.parent_path() : ".";
  for (fs::directory_iterator it(folder, error), end; ours && !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const auto other = ParseShardName(name, ".zt");
    if (!other || other->stem != ours->stem || other->count == ours->count) continue;
    return AlreadyExists(it->path().string() + ": shards of this name exist already, of " +
                         std::to_string(other->count) + "; remove them first");
  }
  return OkStatus();
}

}  // namespace zt::cli::internal
